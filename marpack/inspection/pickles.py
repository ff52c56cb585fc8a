"""Every pickle in every member, nested archives included: what unpickling it would import and call."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from marpack.findings import Finding, Severity
from marpack.inspection.danger import is_dangerous, second_opinion
from marpack.weights.pickle_machine import Global
from marpack.weights.pickle_stream import Stream
from marpack.weights.weights_only import foreign, loads_weights_only

_NAMED = 5  # globals in a message; all of them are in the facts


class Verdict(StrEnum):
    """How much unpickling asks of one's trust."""

    SAFE = "safe"  # nothing but what torch.load(weights_only=True) allows
    NEEDS_TRUST = "needs trust"  # imports code that the archive's author chose
    DANGEROUS = "dangerous"  # imports what runs commands or loads more code


class PickleFacts(Struct, frozen=True, kw_only=True):
    """One pickle."""

    where: str  # "digits.pt!digits/data.pkl", with "@1234" when it begins at that byte
    verdict: Verdict
    globals: tuple[str, ...] = ()  # what it imports beyond torch.load(weights_only=True), Python 3 names
    reasons: tuple[str, ...] = ()  # why it is dangerous, or more than its globals
    opcodes: int
    weights_only: bool  # torch.load(weights_only=True) reads it: its opcodes are all known to that, too
    problem: str | None = None  # why it breaks off before its end


class Unscanned(Struct, frozen=True):
    """A part of a member that was not looked into, and why."""

    where: str
    reason: str


class Seen(Protocol):
    """What was seen of one member."""

    @property
    def pickles(self) -> tuple[PickleFacts, ...]:
        """Its pickles."""

    @property
    def unscanned(self) -> tuple[Unscanned, ...]:
        """What was not looked into."""


class PickleScan(Struct, frozen=True, kw_only=True):
    """All of them."""

    verdict: Verdict = Verdict.SAFE  # the worst of all
    pickles: tuple[PickleFacts, ...] = ()
    unscanned: tuple[Unscanned, ...] = ()
    unfetched: int = 0  # members of torch's files elsewhere, numbers and code that torch never unpickles


def judge(stream: Stream, where: str, *, script: bool = False) -> PickleFacts:
    """Return the verdict on one pickle; `script` says that it is TorchScript's own, read by C++."""
    names = foreign(stream.imports, script=script)
    reasons = list(_dangers(stream, names))
    verdict = Verdict.SAFE
    if reasons:
        verdict = Verdict.DANGEROUS
    elif names or stream.indirect:
        verdict = Verdict.NEEDS_TRUST
        if not names:
            reasons = ["it calls what another call returned"]
    return PickleFacts(
        where=where,
        verdict=verdict,
        globals=tuple(sorted({item.path for item in names})),
        reasons=tuple(reasons),
        opcodes=stream.opcodes,
        weights_only=loads_weights_only(stream),
        problem=stream.problem,
    )


def _dangers(stream: Stream, names: tuple[Global, ...]) -> Iterator[str]:
    if stream.computed:
        yield "it computes the name of what it imports"
    known = [item for item in names if is_dangerous(item)]
    yield from (f"it imports {item.path}" for item in known)
    rest = [item for item in names if item not in known]
    if rest:
        yield from (f"it imports {path}, which picklescan lists as dangerous" for path in second_opinion(rest))


def scan_of(parts: Sequence[Seen], *, unfetched: int = 0) -> PickleScan:
    """Put the pickles of several members together, under the worst verdict of them all."""
    found = tuple(pickle for part in parts for pickle in part.pickles)
    worst = max((pickle.verdict for pickle in found), key=list(Verdict).index, default=Verdict.SAFE)
    unscanned = tuple(item for part in parts for item in part.unscanned)
    return PickleScan(verdict=worst, pickles=found, unscanned=unscanned, unfetched=unfetched)


def distrust(scan: PickleScan, source: str) -> Iterator[Finding]:
    """Yield what to know before anybody unpickles anything of the archive."""
    for pickle in scan.pickles:
        where = f"{source}!{pickle.where}"
        if pickle.verdict is Verdict.DANGEROUS:
            yield Finding(
                code="dangerous-pickle",
                severity=Severity.ERROR,
                message=f"unpickling it would run code: {'; '.join(pickle.reasons)}",
                where=where,
                hint="do not load it anywhere; ask where the archive comes from",
            )
        elif pickle.verdict is Verdict.NEEDS_TRUST:
            yield Finding(
                code="untrusted-pickle",
                severity=Severity.WARNING,
                message=f"torch.load(weights_only=True) refuses it: {_needed(pickle)}",
                where=where,
                hint="save the state_dict instead of the model",
            )
    for part in scan.unscanned:
        where, text = f"{source}!{part.where}", f"it was not looked into: {part.reason}"
        yield Finding(code="unscanned", severity=Severity.WARNING, message=text, where=where)


def _needed(pickle: PickleFacts) -> str:
    if not pickle.globals:
        return "; ".join(pickle.reasons)
    rest = len(pickle.globals) - _NAMED
    return f"it imports {', '.join(pickle.globals[:_NAMED])}" + (f" and {rest} more" if rest > 0 else "")
