"""`marpack sign` and `marpack verify`, as they are typed."""

import json

import pytest
from trust import vouched

HANDLER = "def handle(data, context):\n    return [len(row['body']) for row in data] if data else None\n"


@pytest.fixture
def here(marpack, make_mar, tmp_path):
    """Return the folder: an archive, its signer's keys, another's."""
    make_mar(HANDLER)
    vouched.keys_in(tmp_path)
    vouched.keys_in(tmp_path, "other")
    return tmp_path


def test_as_json(marpack, here):
    code, out, _ = marpack("sign", "probe.mar", "--key", "signer.pem", "--json")
    signed = json.loads(out)
    assert (code, signed["signature"], signed["findings"]) == (0, "probe.mar.sig", [])
    code, out, _ = marpack("verify", "probe.mar", "--key", "signer.pub", "--json")
    verified = json.loads(out)
    assert (code, verified["sha256"], verified["signer"]) == (0, signed["sha256"], signed["signer"])
    with (here / "probe.mar").open("ab") as file:
        file.write(b"x")
    code, out, _ = marpack("verify", "probe.mar", "--key", "signer.pub", "--json")
    failure = json.loads(out)
    assert (code, failure["code"], failure["findings"][0]["code"]) == (3, "signature", "signed-file")


def test_a_key_from_the_environment(marpack, here, monkeypatch):
    monkeypatch.setenv("SIGNING_KEY", (here / "signer.pem").read_text())
    monkeypatch.setenv("SIGNER", (here / "signer.pub").read_text())
    assert marpack("sign", "probe.mar", "--key", "env:SIGNING_KEY")[0] == 0
    assert marpack("verify", "probe.mar", "--key", "env:SIGNER")[0] == 0


def test_a_key_with_a_password(marpack, here, monkeypatch):
    (here / "locked.pem").write_bytes(vouched.private_pem(vouched.new_key(), b"secret"))
    (here / "locked.pem").chmod(0o600)
    code, out, _ = marpack("sign", "probe.mar", "--key", "locked.pem", "--json")
    assert (code, json.loads(out)["code"]) == (2, "password-required")
    monkeypatch.setenv("MARPACK_KEY_PASSWORD", "secret")
    assert marpack("sign", "probe.mar", "--key", "locked.pem")[0] == 0


def test_a_key_that_others_can_read(marpack, here):
    (here / "signer.pem").chmod(0o644)
    code, _, err = marpack("sign", "probe.mar", "--key", "signer.pem")
    assert code == 0
    assert "(readable-key)" in err
    assert "chmod 600 signer.pem" in err


def test_a_signature_that_is_there_stays(marpack, here):
    assert marpack("sign", "probe.mar", "--key", "signer.pem")[0] == 0
    before = (here / "probe.mar.sig").read_bytes()
    code, _, err = marpack("sign", "probe.mar", "--key", "other.pem")
    assert code == 2
    assert "--force" in err
    assert (here / "probe.mar.sig").read_bytes() == before
    assert marpack("sign", "probe.mar", "--key", "other.pem", "--force")[0] == 0
    assert (here / "probe.mar.sig").read_bytes() != before


WRONG = {  # words → exit code
    "sign probe.mar": 2,
    "sign none.mar --key signer.pem": 2,
    "sign . --key signer.pem": 2,
    "sign https://host/x.mar --key signer.pem": 2,
    "sign probe.mar --key none.pem": 2,
    "sign probe.mar --key signer.pub": 2,
    "sign probe.mar --key env:NOT_SET_HERE": 2,
    "sign probe.mar --key signer.pem --certificate signer.pub": 2,
    "sign signer.pub --key signer.pem": 3,
    "verify probe.mar": 2,
    "verify probe.mar --key signer.pub --ca x.pem": 2,
    "verify probe.mar --key signer.pub": 2,
    "verify probe.mar --signature probe.mar": 2,
    "verify probe.mar --key signer.pub --signature other.pub": 3,
}


def test_wrong_usage_has_its_exit_code_and_changes_nothing(marpack, here):
    before = sorted(here.iterdir())
    for words, expected in WRONG.items():
        code, out, err = marpack(*words.split())
        assert (code, out) == (expected, ""), words
        assert err
        assert "Traceback" not in err
        assert sorted(here.iterdir()) == before


def test_no_key_is_ever_printed(marpack, here):
    secret = (here / "signer.pem").read_text().splitlines()[1]
    for words in (
        ("sign", "probe.mar", "--key", "signer.pem", "--json"),
        ("verify", "probe.mar", "--key", "signer.pem"),
        ("sign", "probe.mar", "--key", "signer.pem"),
    ):
        _, out, err = marpack(*words)
        assert secret not in out + err


def test_an_attestation_of_an_earlier_release_is_ignored_with_a_note(marpack, here):
    (here / "probe.mar.intoto.json").write_text("{")
    assert marpack("verify", "probe.mar", "--key", "signer.pub")[0] == 2  # it does not replace a signature
    assert marpack("sign", "probe.mar", "--key", "signer.pem")[0] == 0
    code, out, _ = marpack("verify", "probe.mar", "--key", "signer.pub", "--json")
    (finding,) = json.loads(out)["findings"]
    assert (code, finding["code"], finding["severity"]) == (0, "attestation-ignored", "note")
    code, out, _ = marpack("verify", "probe.mar", "--key", "other.pub", "--json")
    assert (code, json.loads(out)["code"]) == (3, "other-signer")
