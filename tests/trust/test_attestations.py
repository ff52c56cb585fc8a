import json

import msgspec
import pytest
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement as OfficialStatement
from refusals import has_code, states
from trust import vouched
from trust.changed import each_changed_byte

from marpack.archive.copying import file_digest
from marpack.errors import SignatureError, UsageError
from marpack.findings import Severity
from marpack.gate.verdicts import CheckResult, GateReport, GateVerdict, Verdict
from marpack.trust.attestations import CheckedFile, attest, require_check
from marpack.trust.keys import PrivateKey
from marpack.trust.signatures import Envelope

VERSIONS = {"marpack": "9.9", "torch": "2.6"}
CHECKS = (
    CheckResult(name="loads", title="it loads", verdict=Verdict.PASSED, reason="on cpu"),
    CheckResult(name="proved", title="it answers", verdict=Verdict.PASSED, reason="2 requests"),
    CheckResult(name="compiled", title="compiled", verdict=Verdict.SKIPPED, reason="not compiled"),
)
FAILED = CheckResult(name="memory", title="no leak", verdict=Verdict.FAILED, reason="it grows")
WEIGHED = msgspec.structs.replace(FAILED, severity=Severity.WARNING)


def report(verdict=GateVerdict.DEPLOYABLE, *more, **fields):
    return GateReport(
        archive="probe.mar",
        content_digest=None,
        target="torchserve",
        device="cpu",
        source_commit="c" * 40,
        verdict=verdict,
        deployable=verdict is GateVerdict.DEPLOYABLE,
        checks=(*CHECKS, *more),
        samples=2,
        seconds=1.0,
        **fields,
    )


@pytest.fixture
def key():
    return PrivateKey.from_pem(vouched.private_pem(vouched.new_key()), where="k")


@pytest.fixture
def archive(make_mar):
    return make_mar("def handle(data, context): return data\n")


@pytest.fixture
def attested(archive, key, tmp_path):
    """Return a function that attests a report in a file."""

    def attested(said, signer=key):
        file = tmp_path / "probe.mar.intoto.json"
        file.write_bytes(attest(said, CheckedFile.of(archive), signer, versions=VERSIONS))
        return file

    return attested


def required(archive, file, key):
    return require_check(archive, file_digest(archive), file, key)


def refusal(archive, file, key):
    with pytest.raises(SignatureError) as refused:
        required(archive, file, key)
    return refused.value


def test_a_yes_for_this_very_file(archive, attested, key):
    claim = required(archive, attested(report()), key.public)
    assert claim.signer.name == key.public.fingerprint
    assert (claim.target, claim.samples, claim.device, claim.marpack) == ("torchserve", 2, "cpu", "9.9")
    assert claim.source_commit == "c" * 40


def test_without_a_key_it_is_a_claim(archive, attested, key):
    assert required(archive, attested(report()), None).signer is None  # although somebody signed it
    file = attested(report(), None)
    assert required(archive, file, None).signer is None
    assert refusal(archive, file, key.public).code == "unsigned"


def test_another_checker(archive, attested, key):
    other = PrivateKey.from_pem(vouched.private_pem(vouched.new_key()), where="k")
    error = refusal(archive, attested(report(), other), key.public)
    assert error.code == "other-signer"
    states(error, other.public.fingerprint, key.public.fingerprint)


@pytest.mark.parametrize(
    ("said", "result", "messages"),
    [
        (report(GateVerdict.REFUSED, FAILED), "FAILED", ["the check ended with refused"]),
        (report(GateVerdict.NOT_PROVED, FAILED), "FAILED", ["the check ended with not-proved"]),
        (
            report(GateVerdict.PARTIAL, reservations=("the check memory was left out",)),
            "WARNED",
            ["the check ended with partial", "the check memory was left out"],
        ),
        (report(reservations=("--trust-pickle was given",)), "WARNED", ["--trust-pickle was given"]),
        (report(GateVerdict.DEPLOYABLE, WEIGHED), "WARNED", ["the check memory failed, but only counts as a warning"]),
    ],
    ids=["refused", "not proved", "partly", "reserved", "weighed down"],
)
def test_what_is_no_yes(archive, attested, key, said, result, messages):
    file = attested(said)
    statement = json.loads(Envelope(**_fields(file)).unsigned())
    assert statement["predicate"]["result"] == result
    assert [each.message for each in refusal(archive, file, key.public).findings] == messages


def _fields(file):
    envelope = json.loads(file.read_bytes())
    return {"payload": envelope["payload"], "payload_type": envelope["payloadType"], "signatures": ()}


def test_another_file(archive, attested, key, make_mar):
    file = attested(report(GateVerdict.REFUSED, FAILED))
    make_mar("def handle(data, context): return []\n")
    codes = [each.code for each in refusal(archive, file, key.public).findings]
    assert codes == ["checked-file", "check-failed"]


def test_every_changed_byte_is_refused(archive, attested, key):
    file, sha256 = attested(report()), file_digest(archive)
    for place in each_changed_byte(file):
        with pytest.raises(SignatureError) as refused:
            require_check(archive, sha256, file, key.public)
        assert refused.value.where, place


def sealed(key, statement):
    signer = key.public.fingerprint
    return msgspec.json.encode(Envelope.sealed(json.dumps(statement).encode(), key, keyid=signer))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda said: said.update(predicateType="https://example.com/x"), "does not attest a check"),
        (lambda said: said["predicate"].pop("configuration"), "marpack check did not write it"),
        (lambda said: said["predicate"]["configuration"].clear(), "marpack check did not write it"),
        (lambda said: said["predicate"]["configuration"][0].pop("annotations"), "marpack check did not write it"),
        (
            lambda said: said["predicate"]["configuration"][0]["annotations"].pop("reservations"),
            "marpack check did not write",
        ),
        (lambda said: said["predicate"].update(result="WARNED"), "does not say"),
        (lambda said: said["predicate"].update(result="passed"), "does not say"),
        (lambda said: said["subject"].clear(), "does not say"),
        (lambda said: said["subject"].append({"name": "x", "digest": {"sha256": "0" * 64}}), "does not say"),
        (lambda said: said["subject"][0].update(digest={"sha1": "0"}), "does not say"),
    ],
)
def test_what_the_checker_signed_but_is_something_else(archive, attested, key, change, what):
    file = attested(report(), None)
    statement = json.loads(file.read_bytes())
    change(statement)
    file.write_bytes(sealed(key, statement))
    assert what in refusal(archive, file, key.public).what


def annotations(said):
    return said["predicate"]["configuration"][0]["annotations"]


def check_of(said, name):
    return next(each for each in annotations(said)["checks"] if each["name"] == name)


@pytest.mark.parametrize(
    "change",
    [
        lambda said: annotations(said).update(samples=0),
        lambda said: annotations(said).update(samples=-2),
        lambda said: annotations(said).update(target="elsewhere"),
        lambda said: check_of(said, "loads").update(verdict="failed"),
        lambda said: check_of(said, "compiled").update(verdict="failed"),
        lambda said: check_of(said, "compiled").update(verdict="unknown"),
        lambda said: check_of(said, "compiled").update(reason="left out"),
        lambda said: check_of(said, "proved").update(verdict="skipped"),
        lambda said: annotations(said).update(checks=[]),
        lambda said: annotations(said).pop("checks"),
        lambda said: annotations(said)["checks"].append(check_of(said, "compiled")),
        lambda said: said["predicate"].update(passedTests=[]),
        lambda said: said["predicate"].update(passedTests=["loads"]),
        lambda said: said["predicate"].update(failedTests=["memory"]),
        lambda said: said["predicate"].update(warnedTests=["memory"]),
    ],
)
def test_a_signed_yes_that_contradicts_itself(archive, attested, key, change):
    file = attested(report(), None)
    statement = json.loads(file.read_bytes())
    change(statement)
    file.write_bytes(sealed(key, statement))
    assert {each.code for each in refusal(archive, file, key.public).findings} == {"check-inconsistent"}


def test_only_one_result_is_a_yes(archive, attested, key):
    statement = json.loads(attested(report(), None).read_bytes())
    for value in ("PASSED ", "passed", "", "UNKNOWN", "WARNED", "FAILED"):
        statement["predicate"]["result"] = value
        file = attested(report(), None)
        file.write_bytes(sealed(key, statement))
        assert {each.code for each in refusal(archive, file, key.public).findings} == {"check-failed"}


@pytest.mark.parametrize("signer", [True, False])
def test_a_key_that_is_repeated_is_refused(archive, attested, key, signer):
    text = attested(report(), None).read_text().replace('"result":"PASSED"', '"result":"FAILED","result":"PASSED"')
    file = attested(report())
    data = Envelope.sealed(text.encode(), key, keyid=key.public.fingerprint) if signer else None
    file.write_bytes(msgspec.json.encode(data) if data else text.encode())
    assert refusal(archive, file, key.public if signer else None).where == str(file)


def test_generated_samples_do_not_count(archive, attested, key):
    assert required(archive, attested(report(generated=1)), key.public).samples == 1
    codes = {each.code for each in refusal(archive, attested(report(generated=2)), key.public).findings}
    assert codes == {"check-inconsistent"}


def test_what_is_no_attestation(archive, key, tmp_path):
    file = tmp_path / "a.json"
    for data in (b"", b"[]", b"{}", b"\xff", b'{"payload":"e30=","payloadType":"x","signatures":[]}'):
        file.write_bytes(data)
        for trusted in (key.public, None):
            assert refusal(archive, file, trusted).where == str(file)


def test_the_statement_is_one_of_in_toto(attested):
    statement = json.loads(attested(report(GateVerdict.REFUSED, FAILED), None).read_bytes())
    (subject,) = statement["subject"]
    official = ResourceDescriptor(name=subject["name"], digest=subject["digest"])
    OfficialStatement([official.pb], statement["predicateType"], statement["predicate"]).validate()
    (configuration,) = statement["predicate"]["configuration"]
    ResourceDescriptor(**configuration).validate()
    assert statement["predicate"]["passedTests"] == ["loads", "proved"]
    assert statement["predicate"]["failedTests"] == ["memory"]
    assert attested(report(), None).read_bytes() == attested(report(), None).read_bytes()


def test_an_archive_that_changed_or_was_not_checked_to_the_end(archive):
    before = CheckedFile.of(archive)
    archive.write_bytes(archive.read_bytes())
    with pytest.raises(SignatureError, check=has_code("file-changed")):
        attest(report(), before, None, versions=VERSIONS)
    interrupted = report(GateVerdict.INTERRUPTED, interrupted=True)
    with pytest.raises(SignatureError, match="interrupted"):
        attest(interrupted, CheckedFile.of(archive), None, versions=VERSIONS)
    archive.unlink()
    with pytest.raises(SignatureError, check=has_code("file-changed")):
        attest(report(), before, None, versions=VERSIONS)


def test_what_is_no_file(tmp_path):
    with pytest.raises(UsageError, check=has_code("not-a-file")):
        CheckedFile.of(tmp_path)
    with pytest.raises(UsageError, check=has_code("unreadable-file")):
        CheckedFile.of(tmp_path / "x.mar")
