"""`marpack sign`, `marpack verify` and `marpack check --attest`, as they are typed."""

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
    "verify probe.mar --key signer.pub --require-check x": 2,
    "verify probe.mar --key signer.pub --require-check other.pub": 3,
    "verify probe.mar --require-check x": 2,
    "verify probe.mar --key signer.pub --allow-unsigned": 2,
    "verify probe.mar --check-key signer.pub": 2,
    "verify probe.mar --require-check x --check-key signer.pub --allow-unsigned": 2,
    "check probe.mar --key signer.pem": 2,
    "check probe.mar --attest no/where.json": 2,
    "check probe.mar --attest a.json --key signer.pub": 2,
    "check probe.mar --attest a.json --device cpu,cuda": 2,
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage_has_its_exit_code_and_changes_nothing(marpack, here, words):
    before = sorted(here.iterdir())
    code, out, err = marpack(*words.split())
    assert (code, out) == (WRONG[words], "")
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


def test_a_folder_is_not_attested(marpack, here, make_folder):
    folder = make_folder(HANDLER)
    code, out, _ = marpack("check", str(folder), "--attest", "a.json", "--json")
    assert (code, json.loads(out)["code"]) == (2, "not-an-archive-file")
    assert not (here / "a.json").exists()


def test_the_whole_way(marpack, here):
    """Check, attest, sign, verify; then a check that leaves something out does not do, and another file neither."""
    (here / "in.txt").write_text("abc")
    (here / "in2.txt").write_text("abcd")
    given = ("--input", "in.txt", "--input", "in2.txt", "--patience", "1")
    code, out, _ = marpack("check", "probe.mar", *given, "--attest", "yes.json", "--key", "signer.pem")
    assert code == 0, out
    trust = ("--key", "other.pub", "--check-key", "signer.pub")
    for keys in (trust, ("--key", "other.pub", "--allow-unsigned")):  # the check does not replace the signature
        assert marpack("verify", "probe.mar", *keys, "--require-check", "yes.json")[0] == 2
    assert marpack("sign", "probe.mar", "--key", "other.pem")[0] == 0
    code, out, err = marpack("verify", "probe.mar", *trust, "--require-check", "yes.json", "--json")
    assert (code, err) == (0, "")
    claim = json.loads(out)["check"]
    assert (claim["target"], claim["samples"]) == ("torchserve", 2)

    assert marpack("check", "probe.mar", *given, "--skip", "memory", "--attest", "part.json")[0] == 0
    code, out, err = marpack("verify", "probe.mar", "--require-check", "part.json", "--allow-unsigned")
    assert (code, out) == (3, "")
    for said in ("memory", "(check-reserved)", "partial", "(check-failed)"):
        assert said in err

    with (here / "probe.mar").open("ab") as file:
        file.write(b"x")
    code, _, err = marpack("verify", "probe.mar", *trust, "--require-check", "yes.json")
    assert code == 3
    for said in ("neither the signature nor the check", "(signed-file)", "(checked-file)"):
        assert said in err
