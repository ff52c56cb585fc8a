import pytest
from trust import vouched

import marpack
from marpack.errors import SignatureError, UsageError

HANDLER = "def handle(data, context):\n    return data\n"


def test_sign_and_verify(make_mar, tmp_path):
    archive, (private, public) = make_mar(HANDLER), vouched.keys_in(tmp_path)
    signed = marpack.sign(archive, key=private)
    assert signed.signature == f"{archive}.sig"
    verified = marpack.verify(archive, key=public)
    assert verified.signer == signed.signer
    assert marpack.verify(archive, key=public.read_bytes()).sha256 == signed.sha256
    assert "key " in repr(verified)
    assert "verified" in verified._repr_html_()
    assert "signed" in signed._repr_html_()
    assert verified.to_dict()["signer"] == {"kind": "key", "name": signed.signer.name}


def test_a_changed_archive_is_an_error(make_mar, tmp_path):
    archive, (private, public) = make_mar(HANDLER), vouched.keys_in(tmp_path)
    marpack.sign(archive, key=private.read_bytes(), output=tmp_path / "apart.sig")
    with archive.open("ab") as file:
        file.write(b"x")
    with pytest.raises(SignatureError) as refused:
        marpack.verify(archive, key=public, signature=tmp_path / "apart.sig")
    assert [each.code for each in refused.value.findings] == ["signed-file", "signed-member"]


def test_arguments_that_cannot_be(make_mar, tmp_path):
    archive, (private, _) = make_mar(HANDLER), vouched.keys_in(tmp_path)
    for wrong in ({"key": 7}, {"key": private, "output": 7}, {"key": private, "certificate": 7}):
        with pytest.raises(UsageError):
            marpack.sign(archive, **wrong)
