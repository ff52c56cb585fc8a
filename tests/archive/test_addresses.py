import pytest

from marpack.archive.addresses import Reference, is_exposed, is_loopback
from marpack.errors import UsageError

SHA = "sha256:" + "a" * 64

FINE = {
    "oci://registry.example.com/team/digits:1.0": ("registry.example.com", "team/digits", "1.0", None),
    "oci://localhost:5000/digits:1.0": ("localhost:5000", "digits", "1.0", None),
    "OCI://host/a__b/c-d.e:_x": ("host", "a__b/c-d.e", "_x", None),
    f"oci://host/digits@{SHA}": ("host", "digits", None, SHA),
    f"oci://host/digits:1.0@{SHA}": ("host", "digits", "1.0", SHA),
    "oci://[::1]:5000/digits:1.0": ("[::1]:5000", "digits", "1.0", None),
    "oci://docker.io/me/digits:1.0": ("docker.io", "me/digits", "1.0", None),
}


@pytest.mark.parametrize("text", FINE)
def test_addresses_are_read(text: str):
    found = Reference.parse(text)
    assert (found.host, found.repository, found.tag, found.digest) == FINE[text]
    assert Reference.parse(str(found)) == found


WRONG = {
    "host/digits:1.0": "begins with oci://",
    "https://host/digits:1.0": "begins with oci://",
    "": "begins with oci://",
    "oci://": "has no host",
    "oci://host": "has no repository",
    "oci://host:port/digits:1.0": "'host:port' is not a host",
    "oci://host:99999/digits:1.0": "'host:99999' is not a host",
    "oci://-host/digits:1.0": "is not a host",
    "oci://ann:secret@host/digits:1.0": "contains a user",
    "oci://host/Digits:1.0": "lower-case letters",
    "oci://host/a//b:1.0": "is not a repository",
    "oci://host/../b:1.0": "is not a repository",
    "oci://host/digits": "neither a tag nor a digest",
    "oci://host/digits:": "'' is not a tag",
    "oci://host/digits:" + "x" * 129: "is not a tag",
    "oci://host/digits:1.0:2": "is not a tag",
    "oci://host/digits@sha256:abc": "is not a digest",
    "oci://host/digits@sha512:" + "a" * 128: "is not a digest",
    "oci://host/digits@sha256:" + "A" * 64: "is not a digest",
    "oci://host/dig its:1.0": "contains ' '",
    "oci://host/digits:1.0?x=1": "'?'",
    "oci://host/digits\\x:1.0": "",
    "oci://host/digits\n:1.0": "",
    "oci://host/" + "a" * 260 + ":1": "maximum is 254",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_with_an_address_is_said(text: str):
    with pytest.raises(UsageError) as caught:
        Reference.parse(text)
    assert WRONG[text] in caught.value.what
    assert caught.value.hint
    assert "secret" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("text", "plain", "base"),
    [
        ("oci://host/a/b:1", False, "https://host/v2/a/b"),
        ("oci://host/a/b:1", True, "http://host/v2/a/b"),
        ("oci://localhost:5000/b:1", False, "http://localhost:5000/v2/b"),
        ("oci://127.0.0.1/b:1", False, "http://127.0.0.1/v2/b"),
        ("oci://[::1]:5000/b:1", False, "http://[::1]:5000/v2/b"),
        ("oci://localhost.example.com/b:1", False, "https://localhost.example.com/v2/b"),
        ("oci://docker.io/me/b:1", False, "https://registry-1.docker.io/v2/me/b"),
    ],
)
def test_only_this_machine_is_asked_without_tls(text: str, plain: bool, base: str):
    assert Reference.parse(text).base(plain_http=plain) == base


def test_docker_keeps_its_own_registrys_credentials_under_another_name():
    assert Reference.parse("oci://docker.io/me/b:1").credentials_key == "https://index.docker.io/v1/"
    assert Reference.parse("oci://host:5000/b:1").credentials_key == "host:5000"


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
