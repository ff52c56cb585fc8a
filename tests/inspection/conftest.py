"""What looking inside is tried on: files in memory, each looked into as a member of an archive would be."""

import io
from collections.abc import Callable

import pytest
import torch

from marpack.inspection.nesting import Walk
from marpack.inspection.pickles import PickleFacts, PickleScan, Unscanned, scan_of
from marpack.weights.kind import recognize


class Seen:
    def __init__(self, found: list[PickleFacts | Unscanned]) -> None:
        self.pickles = tuple(item for item in found if isinstance(item, PickleFacts))
        self.unscanned = tuple(item for item in found if isinstance(item, Unscanned))


@pytest.fixture(scope="session")
def scan() -> Callable[..., PickleScan]:
    """Return a function that looks into bytes under an innocent name."""

    def scan(content: bytes, name: str = "notes.bin", **options: object) -> PickleScan:
        file = io.BytesIO(content)
        return scan_of([Seen(list(Walk(**options).file(name, file, recognize(file))))])

    return scan


@pytest.fixture(scope="session")
def saved() -> Callable[..., bytes]:
    """Return a torch.save into memory."""

    def saved(value: object, **options: object) -> bytes:
        buffer = io.BytesIO()
        torch.save(value, buffer, **options)
        return buffer.getvalue()

    return saved
