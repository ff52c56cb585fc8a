import json

import msgspec
import pytest
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement as OfficialStatement
from refusals import has_code, states
from trust import vouched

from marpack.archive.copying import file_digest
from marpack.errors import SignatureError, UsageError
from marpack.findings import Severity
from marpack.gate.verdicts import CheckResult, GateReport, GateVerdict, Verdict
from marpack.trust.attestations import CheckedFile, attest, require_check
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
    return vouched.signer()


@pytest.fixture
def archive(make_mar):
    return make_mar("def handle(data, context): return data\n")


@pytest.fixture
def attested(archive, key, tmp_path):
    """Return a function that attests a report in a file; `change` edits the statement before it is signed."""

    def attested(said, signer=key, change=None):
        file = tmp_path / "probe.mar.intoto.json"
        file.write_bytes(attest(said, CheckedFile.of(archive), None if change else signer, versions=VERSIONS))
        if change:
            statement = json.loads(file.read_bytes())
            change(statement, annotations(statement))
            sealed = Envelope.sealed(json.dumps(statement).encode(), key, keyid=key.public.fingerprint)
            file.write_bytes(msgspec.json.encode(sealed))
        return file

    return attested


def required(archive, file, key):
    return require_check(archive, file_digest(archive), file, key)


def refusal(archive, file, key):
    with pytest.raises(SignatureError) as refused:
        required(archive, file, key)
    return refused.value


def codes(error):
    return {each.code for each in error.findings}


def test_the_signer_of_a_result_counts_where_one_is_required(archive, attested, key):
    claim = required(archive, attested(report()), key.public)
    assert claim.signer.name == key.public.fingerprint
    assert (claim.target, claim.samples, claim.device, claim.marpack) == ("torchserve", 2, "cpu", "9.9")
    assert claim.source_commit == "c" * 40
    assert required(archive, attested(report()), None).signer is None  # although the file is signed
    other = vouched.signer()
    error = refusal(archive, attested(report(), other), key.public)
    assert error.code == "other-signer"
    states(error, other.public.fingerprint, key.public.fingerprint)
    file = attested(report(), None)
    assert required(archive, file, None).signer is None
    assert refusal(archive, file, key.public).code == "unsigned"


@pytest.mark.parametrize(
    ("said", "result", "reasons"),
    [
        (report(GateVerdict.REFUSED, FAILED), "FAILED", ["refused"]),
        (report(GateVerdict.NOT_PROVED, FAILED), "FAILED", ["not-proved"]),
        (
            report(GateVerdict.PARTIAL, reservations=("the check memory was left out",)),
            "WARNED",
            ["partial", "the check memory was left out"],
        ),
        (report(reservations=("--trust-pickle was given",)), "WARNED", ["--trust-pickle was given"]),
        (report(GateVerdict.DEPLOYABLE, WEIGHED), "WARNED", ["the check memory failed, but only counts as a warning"]),
    ],
    ids=["refused", "not proved", "partial", "with reservations", "downgraded"],
)
def test_a_result_that_does_not_allow_deployment(archive, attested, key, said, result, reasons):
    assert json.loads(attested(said, None).read_bytes())["predicate"]["result"] == result
    found = refusal(archive, attested(said), key.public).findings
    assert len(found) == len(reasons)
    assert all(reason in finding.message for finding, reason in zip(found, reasons, strict=True))


def test_another_file(archive, attested, key, make_mar):
    file = attested(report(GateVerdict.REFUSED, FAILED))
    make_mar("def handle(data, context): return []\n")
    assert [each.code for each in refusal(archive, file, key.public).findings] == ["checked-file", "check-failed"]


def test_every_changed_byte_is_refused(archive, attested, key):
    file, sha256 = attested(report()), file_digest(archive)
    for place in vouched.each_changed_byte(file):
        with pytest.raises(SignatureError) as refused:
            require_check(archive, sha256, file, key.public)
        assert refused.value.where, place


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda said, _: said.update(predicateType="https://example.com/x"), "does not attest a check"),
        (lambda said, _: said["predicate"].pop("configuration"), "marpack check did not write it"),
        (lambda said, _: said["predicate"]["configuration"].clear(), "marpack check did not write it"),
        (lambda said, _: said["predicate"]["configuration"][0].pop("annotations"), "marpack check did not write it"),
        (lambda _, found: found.pop("reservations"), "marpack check did not write it"),
    ],
)
def test_a_signed_statement_of_another_kind(archive, attested, key, change, what):
    assert what in refusal(archive, attested(report(), change=change), key.public).what


def annotations(statement):
    return statement["predicate"]["configuration"][0]["annotations"]


def check_of(found, name):
    return next(each for each in found["checks"] if each["name"] == name)


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("checked-file", lambda said, _: said["subject"].clear()),
        ("checked-file", lambda said, _: said["subject"].append({"name": "x", "digest": {"sha256": "0" * 64}})),
        ("checked-file", lambda said, _: said["subject"][0].update(digest={"sha1": "0"})),
        *(
            ("check-failed", lambda said, _, result=result: said["predicate"].update(result=result))
            for result in ("PASSED ", "passed", "", "UNKNOWN", "WARNED", "FAILED")
        ),
        ("check-inconsistent", lambda _, found: found.update(samples=0)),
        ("check-inconsistent", lambda _, found: found.update(samples=-2)),
        ("check-inconsistent", lambda _, found: found.update(target="elsewhere")),
        ("check-inconsistent", lambda _, found: check_of(found, "loads").update(verdict="failed")),
        ("check-inconsistent", lambda _, found: check_of(found, "compiled").update(verdict="failed")),
        ("check-inconsistent", lambda _, found: check_of(found, "compiled").update(verdict="unknown")),
        ("check-inconsistent", lambda _, found: check_of(found, "compiled").update(reason="left out")),
        ("check-inconsistent", lambda _, found: check_of(found, "proved").update(verdict="skipped")),
        ("check-inconsistent", lambda _, found: found.update(checks=[])),
        ("check-inconsistent", lambda _, found: found.pop("checks")),
        ("check-inconsistent", lambda _, found: found["checks"].append(check_of(found, "compiled"))),
        ("check-inconsistent", lambda said, _: said["predicate"].update(passedTests=[])),
        ("check-inconsistent", lambda said, _: said["predicate"].update(passedTests=["loads"])),
        ("check-inconsistent", lambda said, _: said["predicate"].update(failedTests=["memory"])),
        ("check-inconsistent", lambda said, _: said["predicate"].update(warnedTests=["memory"])),
    ],
)
def test_a_signed_statement_that_contradicts_itself_or_names_another_file(archive, attested, key, code, change):
    assert codes(refusal(archive, attested(report(), change=change), key.public)) == {code}


@pytest.mark.parametrize("signer", [True, False])
def test_a_key_that_is_repeated_is_refused(archive, attested, key, signer):
    text = attested(report(), None).read_text().replace('"result":"PASSED"', '"result":"FAILED","result":"PASSED"')
    file = attested(report())
    data = Envelope.sealed(text.encode(), key, keyid=key.public.fingerprint) if signer else None
    file.write_bytes(msgspec.json.encode(data) if data else text.encode())
    assert refusal(archive, file, key.public if signer else None).where == str(file)


def test_generated_samples_do_not_count(archive, attested, key):
    assert required(archive, attested(report(generated=1)), key.public).samples == 1
    assert codes(refusal(archive, attested(report(generated=2)), key.public)) == {"check-inconsistent"}


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


def test_an_archive_that_changed_or_an_interrupted_check_is_not_attested(archive):
    before = CheckedFile.of(archive)
    interrupted = report(GateVerdict.INTERRUPTED, interrupted=True)
    with pytest.raises(SignatureError, match="interrupted"):
        attest(interrupted, before, None, versions=VERSIONS)
    for change in (lambda: archive.write_bytes(archive.read_bytes()), archive.unlink):
        change()
        with pytest.raises(SignatureError, check=has_code("file-changed")):
            attest(report(), before, None, versions=VERSIONS)


def test_a_folder_and_a_missing_file_are_not_attested(tmp_path):
    for path, code in ((tmp_path, "not-a-file"), (tmp_path / "x.mar", "unreadable-file")):
        with pytest.raises(UsageError, check=has_code(code)):
            CheckedFile.of(path)
