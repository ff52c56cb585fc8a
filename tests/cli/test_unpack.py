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


def test_the_result_as_json(marpack, tmp_path):
    make(tmp_path / "m.mar", "data/x", root="top/")
    code, out, err = marpack("unpack", "m.mar", "-d", "look", "--only", "*.py", "--only", "data", "--json")
    result = json.loads(out)
    findings = result.pop("findings")
    assert (code, err) == (0, "")
    assert result == {"source": "m.mar", "folder": "look", "files": ["data/x", "h.py"], "bytes": 8}
    assert [finding["code"] for finding in findings] == ["mar-root-folder"]


def test_limits_are_raised_by_flags(marpack, tmp_path):
    make(tmp_path / "m.mar", "zeros", method=zipfile.ZIP_DEFLATED, size=70 << 20)
    for given, raised in (
        ((), "--max-ratio"),
        (("--max-ratio", "2000", "--max-size", "1M"), "--max-size"),
        (("--max-ratio", "2000", "--max-members", "2"), "--max-members"),
    ):
        code, _, err = marpack("unpack", "m.mar", *given)
        assert (code, raised in err) == (3, True)
    assert marpack("unpack", "m.mar", "--max-ratio", "2000")[0] == 0


WRONG = {  # words → exit code
    "": 2,
    ".": 2,
    "m.mar -d .": 2,
    "m.mar --max-size many": 2,
    "m.mar --max-ratio 0": 2,
    "text.mar": 3,
    "empty.mar": 3,
    "hostile.mar": 3,
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage_has_its_exit_code(marpack, tmp_path, words):
    make(tmp_path / "m.mar")
    make(tmp_path / "hostile.mar", "../x")
    (tmp_path / "text.mar").write_text("hello\n" * 100)
    (tmp_path / "empty.mar").touch()
    before = sorted(tmp_path.parent.rglob("*"))
    ended, out, err = marpack("unpack", *words.split())
    assert (ended, out, bool(err)) == (WRONG[words], "", True)
    assert sorted(tmp_path.parent.rglob("*")) == before
