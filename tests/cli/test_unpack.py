import json
import zipfile

import pytest

MANIFEST = json.dumps({"runtime": "python", "model": {"modelName": "m", "handler": "h.py"}})


def make(path, *names, method=zipfile.ZIP_STORED, size=2, root=""):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name in names:
            archive.writestr(root + name, bytes(size))
        archive.writestr(root + "h.py", "x = 1\n")
        archive.writestr(root + "MAR-INF/MANIFEST.json", MANIFEST)


def test_the_folder_is_named_after_the_archive(marpack, tmp_path):
    make(tmp_path / "digits-1.0.mar", "data/x")
    code, out, err = marpack("unpack", "digits-1.0.mar")
    assert (code, err) == (0, "")
    assert out == "unpacked digits-1.0\n  source digits-1.0.mar\n  size   3 files, 77 bytes\n"
    assert (tmp_path / "digits-1.0" / "data" / "x").read_bytes() == b"\0\0"


def test_the_result_as_json(marpack, tmp_path):
    make(tmp_path / "m.mar", "data/x", root="top/")
    code, out, err = marpack("unpack", "m.mar", "-d", "look", "--only", "*.py", "--only", "data", "--json")
    result = json.loads(out)
    findings = result.pop("findings")
    assert (code, err) == (0, "")
    assert result == {"source": "m.mar", "folder": "look", "files": ["data/x", "h.py"], "bytes": 8}
    assert [finding["code"] for finding in findings] == ["mar-root-folder"]


def test_a_hostile_archive(marpack, tmp_path):
    make(tmp_path / "m.mar", "../x")
    code, out, err = marpack("unpack", "m.mar")
    assert (code, out) == (3, "")
    assert "the member '../x' contains '.' or '..'" in err
    assert [path.name for path in tmp_path.iterdir()] == ["m.mar"]


def test_limits_are_raised_by_flags(marpack, tmp_path):
    make(tmp_path / "m.mar", "zeros", method=zipfile.ZIP_DEFLATED, size=70 << 20)
    code, _, err = marpack("unpack", "m.mar")
    assert code == 3
    assert "--max-ratio" in err
    code, _, err = marpack("unpack", "m.mar", "--max-ratio", "2000", "--max-size", "1M")
    assert code == 3
    assert "--max-size" in err
    code, _, err = marpack("unpack", "m.mar", "--max-ratio", "2000", "--max-size", "0.1G", "--max-members", "2")
    assert code == 3
    assert "--max-members" in err
    assert marpack("unpack", "m.mar", "--max-ratio", "2000")[0] == 0


WRONG = {  # words → exit code
    "": 2,
    "nothing.mar": 2,
    ".": 2,
    "m.mar -d .": 2,
    "m.mar --only *.pt": 2,
    "m.mar --max-size many": 2,
    "m.mar --max-ratio 0": 2,
    "text.mar": 3,
    "empty.mar": 3,
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage_has_its_exit_code(marpack, tmp_path, words):
    make(tmp_path / "m.mar")
    (tmp_path / "text.mar").write_text("hello\n" * 100)
    (tmp_path / "empty.mar").touch()
    ended, out, err = marpack("unpack", *words.split())
    assert (ended, out, bool(err)) == (WRONG[words], "", True)
