"""The whole way: built, checked, signed and pushed here; pulled and verified elsewhere."""

import json
import re
from pathlib import Path

import pytest
from invoking import invoke
from trust import vouched

pytestmark = pytest.mark.slow  # a check, a registry and a server
DIGITS = Path(__file__).parents[2] / "examples" / "digits"


class Machine:
    """Somebody's machine: a home of its own, a cache, a folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir(parents=True)
        (folder / "home").mkdir()
        self.environment = {
            "HOME": str(folder / "home"),
            "MARPACK_CACHE_DIR": str(folder / "cache"),
            "XDG_CACHE_HOME": str(folder / "home"),
            "COLUMNS": "80",
        }

    def run(self, *words: str, code: int = 0) -> str:
        done = invoke(*words, cwd=self.folder, env=self.environment, code=code)
        return " ".join((done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def handed(tmp_path_factory: pytest.TempPathFactory, registry: str) -> tuple[Machine, str]:
    """Return the machine of whoever made the archive, and where it was pushed to."""
    maker = Machine(tmp_path_factory.mktemp("maker"))
    vouched.keys_in(maker.folder)
    maker.run("build", str(DIGITS), "-o", "digits.mar", "--source-commit", "c" * 40)
    maker.run("check", "digits.mar", "--attest", "digits.mar.intoto.json", "--key", "signer.pem")
    maker.run("sign", "digits.mar", "--key", "signer.pem")
    maker.run("inspect", "digits.mar", "--sbom", "digits.mar.cdx.json")
    address = f"oci://{registry}/team/handed:1.0"
    maker.run("push", "digits.mar", address)
    return maker, address


@pytest.fixture
def elsewhere(handed: tuple[Machine, str], tmp_path: Path) -> Machine:
    """Return another machine, which has nothing but the signer's public key."""
    machine = Machine(tmp_path)
    (machine.folder / "signer.pub").write_bytes((handed[0].folder / "signer.pub").read_bytes())
    return machine


TRUST = ("--key", "signer.pub", "--require-check", "digits.mar.intoto.json")


def test_it_arrives_and_is_verified(handed: tuple[Machine, str], elsewhere: Machine) -> None:
    maker, address = handed
    elsewhere.run("pull", address)
    for suffix in ("", ".sig", ".intoto.json", ".cdx.json"):
        name = f"digits.mar{suffix}"
        assert (elsewhere.folder / name).read_bytes() == (maker.folder / name).read_bytes()
    claim = json.loads(elsewhere.run("verify", "digits.mar", *TRUST, "--json"))["check"]
    assert (claim["attestation"], claim["source_commit"]) == ("digits.mar.intoto.json", "c" * 40)


def flipped(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "place"),
    [  # weights, the time in a header, the signature's signature and statement, the attestation
        *(("digits.mar", 5000), ("digits.mar", 10), ("digits.mar.sig", -20), ("digits.mar.sig", 400)),
        ("digits.mar.intoto.json", 400),
    ],
)
def test_a_byte_that_changed_on_the_way_is_refused(
    name: str, place: int, handed: tuple[Machine, str], elsewhere: Machine
) -> None:
    elsewhere.run("pull", handed[1])
    flipped(elsewhere.folder / name, place)
    elsewhere.run("verify", "digits.mar", *TRUST, code=3)


def test_a_byte_that_changed_in_the_registry_is_refused(
    handed: tuple[Machine, str], elsewhere: Machine, registry: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What the registry keeps is changed in its own storage: nothing of it is kept here."""
    maker, _ = handed
    address = f"oci://{registry}/team/changed:1.0"
    told = maker.run("push", "digits.mar", address, "--json")
    found = re.search(r'"archive": "sha256:([0-9a-f]{64})"', told)
    assert found is not None
    (blob,) = tmp_path_factory.getbasetemp().glob(f"registry[0-9]*/storage/**/{found[1]}/data")
    flipped(blob, 5000)
    try:
        said = elsewhere.run("pull", address, "--json", code=3)
    finally:
        flipped(blob, 5000)
    assert '"digest-mismatch"' in said
    assert [path.name for path in elsewhere.folder.iterdir()] == ["signer.pub"]
