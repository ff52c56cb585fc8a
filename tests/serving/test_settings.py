"""Where a server listens, as people write it."""

import pytest

from marpack.errors import UsageError
from marpack.serving.settings import Address

ADDRESSES = {
    "http://127.0.0.1:8080": (Address("127.0.0.1", 8080), "http://127.0.0.1:8080"),
    "http://0.0.0.0": (Address("0.0.0.0", 80), "http://0.0.0.0:80"),
    "HTTP://localhost:1/": (Address("localhost", 1), "http://localhost:1"),
    "http://my_host-1.lan:65535": (Address("my_host-1.lan", 65_535), "http://my_host-1.lan:65535"),
    "http://localhost:0": (Address("localhost", 0), "http://localhost:0"),
    "http://[::]:8080": (Address("::", 8080), "http://[::]:8080"),
    "http://[0:0::1]": (Address("::1", 80), "http://[::1]:80"),
    "unix:/run/s.sock": (Address("", 0, "/run/s.sock"), "unix:/run/s.sock"),
    "UNIX:/a b": (Address("", 0, "/a b"), "unix:/a b"),
}
REFUSED = {
    "https://127.0.0.1:8443": "asks for TLS",
    "HTTPS://localhost": "asks for TLS",
    "127.0.0.1:8080": "is not an address",
    "8080": "is not an address",
    "": "is not an address",
    "http://": "is not an address",
    "http://host:": "is not an address",
    "http://host:80a": "is not an address",
    "http://host:-1": "is not an address",
    "http://ho st:80": "is not an address",
    "http://host:80/path": "is not an address",
    "http://user@host:80": "is not an address",
    "http://*:80": "is not an address",
    "http://::1:80": "is not an address",
    "http://höst:80": "is not an address",
    "http://ho\u017ft:80": "is not an address",  # whose capital letter is S
    "ftp://host:80": "is not an address",
    "http://host:65536": "names the port 65536",
    "http://[::g]:80": "is not an IPv6 address",
    "http://[]:80": "is not an IPv6 address",
    "unix:relative": "absolute path",
    "unix:": "absolute path",
    "unix:/a\0b": "absolute path",
}


@pytest.mark.parametrize(("text", "expected"), ADDRESSES.items(), ids=ADDRESSES)
def test_reads(text: str, expected: tuple[Address, str]) -> None:
    address = Address.parse(text, default_port=80)
    assert (address, str(address)) == expected


@pytest.mark.parametrize(("text", "what"), REFUSED.items(), ids=map(ascii, REFUSED))
def test_refuses(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        Address.parse(text, default_port=80)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://127.0.0.1:8081", True),
        ("http://127.1.2.3:8081", True),
        ("http://localhost:8081", True),
        ("http://[::1]:8081", True),
        ("unix:/run/s.sock", True),
        ("http://0.0.0.0:8081", False),
        ("http://[::]:8081", False),
        ("http://10.0.0.1:8081", False),
        ("http://127.example.com:8081", False),  # a name of anybody's
    ],
)
def test_whether_only_this_machine_reaches_it(text: str, expected: bool) -> None:
    assert Address.parse(text, default_port=80).is_loopback is expected
