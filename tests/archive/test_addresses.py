import pytest
from refusals import has_code, has_facts

from marpack.archive.addresses import is_exposed, is_loopback, parse_address, public_address, with_digest
from marpack.errors import UsageError

SHA = "a1" * 32
FILE = "https://host/x.mar"


def test_the_digest_is_split_off_an_address():
    assert parse_address(f"{FILE}?a=b") == (f"{FILE}?a=b", None)
    assert parse_address(f"{FILE}#sha256={SHA.upper()}") == (FILE, SHA)
    assert with_digest(FILE, f"sha256:{SHA.upper()}") == f"{FILE}#sha256={SHA}"
    assert with_digest(f"{FILE}#sha256={SHA}", f"sha256:{SHA}") == f"{FILE}#sha256={SHA}"


@pytest.mark.parametrize("fragment", ["", "sha256=12", f"md5={SHA}", f"sha256:{SHA}", f"sha256={SHA}0"])
def test_another_fragment_is_refused(fragment: str):
    with pytest.raises(UsageError, check=has_facts(f"'#{fragment}'", "#sha256=")):
        parse_address(f"{FILE}#{fragment}")


@pytest.mark.parametrize(
    ("source", "digest", "fact"),
    [
        (FILE, "latest", "64 hexadecimal digits"),
        (FILE, "", "64 hexadecimal digits"),
        (FILE, f"md5:{SHA}", "64 hexadecimal digits"),
        (f"{FILE}#sha256={SHA}", f"sha256:{'0' * 64}", SHA),
        ("x.mar", f"sha256:{SHA}", "https or s3"),
        (None, f"sha256:{SHA}", "https or s3"),
        ("oci://host/a:1", f"sha256:{SHA}", "oras pull host/a:1"),
    ],
)
def test_a_digest_that_cannot_be_of_the_source_is_refused(source: str | None, digest: str, fact: str):
    with pytest.raises(UsageError, check=has_facts(fact)):
        with_digest(source, digest)


@pytest.mark.parametrize(
    ("source", "pulled"),
    [
        ("oci://registry.example.com/team/digits:1.0", "oras pull registry.example.com/team/digits:1.0"),
        (f"OCI://localhost:5000/digits@sha256:{SHA}", f"oras pull localhost:5000/digits@sha256:{SHA}"),
        (f"oci://ann:secret@host/digits:1?token=secret#sha256={SHA}", "oras pull host/digits:1?…"),
        ("oci://", "oras pull "),
    ],
)
def test_a_registry_is_refused_with_the_command_to_use(source: str, pulled: str):
    with pytest.raises(UsageError, check=has_code("oci-registry", pulled)) as caught:
        parse_address(source)
    assert "secret" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://host/a/x.mar", "https://host/a/x.mar"),
        ("https://me:p@ss@host/x.mar?token=secret", "https://host/x.mar?…"),
        ("https://me:pass@host?token=secret", "https://host?…"),
        ("https://host/x.mar?to=a@b/c", "https://host/x.mar?…"),
        ("s3://bucket/a@b.mar", "s3://bucket/a@b.mar"),
    ],
)
def test_what_may_be_secret_is_not_shown(address: str, shown: str):
    assert public_address(address) == shown


@pytest.mark.parametrize(
    ("address", "exposed"),
    [
        ("https://a.example/x", False),
        ("http://127.0.0.1:8080/x", False),
        ("http://[::1]/x", False),
        ("http://localhost/x", False),
        ("http://a.example/x", True),
        ("HTTP://127.0.0.1.example/x", True),
        ("http://user@127.0.0.1@a.example/x", True),
    ],
)
def test_plain_http_is_for_this_machine(address: str, exposed: bool):
    assert is_exposed(address) is exposed


@pytest.mark.parametrize(("host", "own"), [("127.8.8.8", True), ("[::1]", True), ("10.0.0.1", False), (None, False)])
def test_this_machine_is_known(host: str | None, own: bool):
    assert is_loopback(host) is own
