"""The samples of an archive: the packed ones, and further inputs."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from marpack import finding_codes as codes
from marpack.archive.index import index_of
from marpack.archive.protocol import INDEX_NAME, Archive
from marpack.findings import Finding
from marpack.project.schema import Expectation, SampleSpec
from marpack.runner.inputs import Input, RequestDefaults, type_of
from marpack.torchserve.http import Request


class Sample(Struct, frozen=True, kw_only=True):
    """One input, and the response expected to it."""

    name: str  # unique: the file under MAR-INF/, or the input's own name
    input: Input  # as `marpack run --input` makes it, with the name that people know
    expected: Expectation = Expectation()  # by default, any 2xx
    is_packed: bool = True
    is_generated: bool = False  # `marpack init` generated its content, so a response to it proves nothing

    @property
    def request(self) -> Request:
        """The request to send."""
        return self.input.request

    @property
    def short_name(self) -> str:
        """The name that people know."""
        return self.input.name


class PackedSamples(Struct, frozen=True):
    """The samples of an archive, and the problems of those that cannot be sent."""

    samples: tuple[Sample, ...] = ()
    problems: tuple[Finding, ...] = ()
    generated: frozenset[str] = frozenset()  # "sha256:<hex>" of each content that is marked as generated


def packed_samples(archive: Archive, shape: RequestDefaults) -> PackedSamples:
    """Read the samples packed under MAR-INF/ as requests of a shape; an archive without an index has none.

    Raises DamagedArchiveError.
    """
    index = index_of(archive)
    listed = index.samples if index else ()
    # A mark holds for its content under every name: a copy or a renamed file is as generated as the original.
    generated = frozenset(mark for item in listed if isinstance(mark := item.get("generated"), str))
    samples: list[Sample] = []
    problems: list[Finding] = []
    for number, item in enumerate(listed):
        where = f"{archive.source}!{INDEX_NAME}: samples[{number}]"
        try:
            spec = msgspec.convert(item, SampleSpec)
        except msgspec.ValidationError as error:
            problems.append(codes.SAMPLE_UNREADABLE.at(where, reason=error))
            continue
        if spec.input not in archive.entries:
            problems.append(codes.SAMPLE_MISSING.at(where, sample=spec.input))
            continue
        with archive.open(spec.input) as file:
            data = file.read()
        # The number gives the request an id of its own, in every run the same.
        sent = shape.input(spec.input.removeprefix("MAR-INF/"), number, type_of(spec.input, data), data)
        is_generated = _digest(data) in generated
        expected = spec.expect or Expectation()
        samples.append(Sample(name=spec.input, input=sent, expected=expected, is_generated=is_generated))
    return PackedSamples(tuple(samples), tuple(problems), generated)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def input_samples(inputs: Iterable[Input], generated: frozenset[str] = frozenset()) -> Iterator[Sample]:
    """Yield a sample for each input given beside the packed ones; any 2xx is expected. `generated` are digests."""
    seen: Counter[str] = Counter()
    for each in inputs:
        seen[each.name] += 1
        name = each.name if seen[each.name] == 1 else f"{each.name} ({seen[each.name]})"
        is_generated = bool(generated) and any(_digest(part.value) in generated for part in each.request.parts)
        yield Sample(name=name, input=each, is_packed=False, is_generated=is_generated)
