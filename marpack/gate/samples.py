"""The inputs packed with an archive: what is sent, and what is expected of the answer."""

from typing import Any

import msgspec
from msgspec import Struct

from marpack.archive.index import Index
from marpack.archive.protocol import INDEX_NAME, Archive
from marpack.findings import Finding
from marpack.gate.verdicts import problem
from marpack.project import schema
from marpack.project.schema import Expectation
from marpack.runner.inputs import Input, Shape, type_of
from marpack.torchserve.messages import Request, Response, Trouble


class Sample(Struct, frozen=True, kw_only=True):
    """One input, and what is expected of its answer."""

    name: str  # of the file under MAR-INF/, or as the user named it
    request: Request  # as `marpack run --input` would make it
    expected: Expectation = Expectation()  # of nothing: any 2xx
    refused: Response | None = None  # what a client gets without any handler's being asked
    why: Trouble | None = None  # it is refused

    @classmethod
    def of(
        cls, number: int, name: str, data: bytes, expected: Expectation | None = None, *, shape: Shape | None = None
    ) -> "Sample":
        """Return the n-th sample; its request id is its own, in every run the same."""
        sent = (shape or Shape()).input(name, number, type_of(name, data), data)
        expected = expected or Expectation()
        return cls(name=name, request=sent.request, expected=expected, refused=sent.refused, why=sent.why)

    @property
    def input(self) -> Input:
        """The sample as one of the inputs of a run."""
        return Input(self.short_name, self.request, refused=self.refused, why=self.why)

    @property
    def short_name(self) -> str:
        """The name as people know it."""
        return self.name.removeprefix("MAR-INF/")


class Packed(Struct, frozen=True):
    """The samples of an archive, and what is wrong with those that cannot be sent."""

    samples: tuple[Sample, ...] = ()
    problems: tuple[Finding, ...] = ()


def packed_samples(archive: Archive, shape: Shape | None = None) -> Packed:
    """Read the samples packed under MAR-INF/, to be sent in a shape; an archive without an index has none.

    Raises DamagedArchiveError.
    """
    if INDEX_NAME not in archive.entries:
        return Packed()
    with archive.open(INDEX_NAME) as file:
        listed = Index.from_json(file.read()).samples
    found = [_sample(archive, number, item, shape or Shape()) for number, item in enumerate(listed)]
    return Packed(
        tuple(item for item in found if isinstance(item, Sample)),
        tuple(item for item in found if isinstance(item, Finding)),
    )


def _sample(archive: Archive, number: int, item: dict[str, Any], shape: Shape) -> Sample | Finding:  # Any: JSON
    where = f"{archive.source}!{INDEX_NAME}: samples[{number}]"
    try:
        told = msgspec.convert(item, schema.Sample)
    except msgspec.ValidationError as error:
        return problem("sample-unreadable", f"a sample cannot be read: {error}", where=where, hint=_AGAIN)
    if told.input not in archive.entries:
        message = f"the sample {told.input} is listed and not packed"
        return problem("sample-missing", message, where=where, hint=_AGAIN)
    with archive.open(told.input) as file:
        return Sample.of(number, told.input, file.read(), told.expect, shape=shape)


_AGAIN = "build the archive again: marpack build"
