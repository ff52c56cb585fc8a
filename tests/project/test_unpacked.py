from pathlib import Path

import pytest

from marpack.errors import ProjectError, UsageError
from marpack.project.source import unpacked


def test_a_project_is_laid_out_as_its_archive_would_be(tmp_path: Path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "handler.py").write_text("import near\ndef handle(data, context): return data\n")
    (tmp_path / "src" / "near.py").write_text("")
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    (tmp_path / "data" / "deep").mkdir(parents=True)
    for name in ("data/deep/a.txt", "data/deep/b.txt"):
        (tmp_path / name).touch()
    (tmp_path / "marpack.yaml").write_text(
        "name: p\nversion: '1'\nhandler: src/handler.py\nlabels: labels.txt\nconfig: {batchSize: 2}\nfiles: [data]\n"
    )
    with unpacked(str(tmp_path)) as resolved:
        found = {str(path.relative_to(resolved.path)) for path in resolved.path.rglob("*") if path.is_file()}
        assert found == {
            "handler.py",
            "near.py",
            "index_to_name.json",
            "model-config.yaml",
            "MAR-INF/MANIFEST.json",
            "data/deep/a.txt",
            "data/deep/b.txt",
        }
        assert (resolved.path / "handler.py").resolve() == tmp_path / "src" / "handler.py"
        assert resolved.project is not None
    assert not resolved.path.exists()


def test_a_model_folder_is_taken_as_it_is(make_folder):
    folder = make_folder("")
    with unpacked(str(folder)) as resolved:
        assert resolved.path == folder


def test_archives_and_unsound_projects_are_refused(make_mar, tmp_path: Path):
    with pytest.raises(UsageError) as caught, unpacked(str(make_mar(""))):
        pass
    assert caught.value.code == "source-not-a-folder"
    with pytest.raises(ProjectError), unpacked(str(tmp_path)):
        pass
