"""The three handlers of how-to/write-a-handler.md, over HTTP: as `marpack serve` and as a real TorchServe answer."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.peer import require_peer
from conformance.server import Server
from conformance.wire import Answer, Message, exchange
from docs.blocks import blocks
from serving.commands import serving

import marpack

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("uncovered")]  # it saves three models, and starts servers

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-handler.md"
NAMES = ("topics", "shades", "months")
TEXT = (("Content-Type", "text/plain"),)
FORM = (("Content-Type", "multipart/form-data; boundary=X"),)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write the page's files, each into the folder that the page has made for it, save the models and build."""
    folder = place = tmp_path_factory.mktemp("work")
    for block in blocks(PAGE):
        if block.language == "sh" and "mkdir" in block.text:
            place = folder / block.text.split()[-1]
        elif block.title:
            path = place / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
    for name in NAMES:
        subprocess.run([sys.executable, "save_model.py"], cwd=folder / name, check=True)
    return {name: Path(marpack.build(folder / name).path) for name in NAMES}


def part(content: bytes) -> bytes:
    head = b'Content-Disposition: form-data; name="data"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
    return b"--X\r\n" + head + content + b"\r\n--X--\r\n"


def asked(address: tuple[str, int], archives: dict[str, Path]) -> Iterator[Answer]:
    sun = (archives["shades"].parent / "samples" / "sun.png").read_bytes()
    for path, headers, body in (
        ("/predictions/topics", TEXT, b"where is my parcel"),
        ("/predictions/topics", TEXT, b"xyzzy"),
        ("/predictions/shades", (), sun),
        ("/predictions/shades", FORM, part(sun)),
        ("/predictions/shades", (), b"not an image"),
        ("/predictions/months", TEXT, b"October"),
        ("/predictions/months", TEXT, b"Smarch"),
    ):
        yield exchange(address, Message("POST", path, headers, body))


@pytest.fixture(scope="module")
def served(archives: dict[str, Path]) -> list[Answer]:
    with serving(*map(str, archives.values()), cwd=archives["topics"].parent, loaded=len(NAMES)) as server:
        return list(asked(("127.0.0.1", server.port()), archives))


def test_they_answer_as_the_page_says(served: list[Answer]):
    assert [answer.status for answer in served] == [200, 422, 200, 200, 400, 200, 400]
    assert b'"delivery": 0.99' in served[0].body
    assert b'"message": "no word of this text is known"' in served[1].body
    assert b'"shade": "light"' in served[2].body
    assert served[3].body == served[2].body
    assert served[5].pieces == (b"november\n", b"december\n", b"january\n", b"february\n")
    assert served[5].header("content-type") == "text/plain"


def test_a_real_server_answers_the_same(archives: dict[str, Path], served: list[Answer], tmp_path: Path):
    with Server(require_peer(), tmp_path / "server") as server:
        for name, archive in archives.items():
            assert server.register(archive, name).status == 200
        live = list(asked(server.inference, archives))
    for said, answer in zip(served, live, strict=True):
        assert (said.status, said.phrase, said.body, said.pieces) == (
            answer.status, answer.phrase, answer.body, answer.pieces,
        )  # fmt: skip
