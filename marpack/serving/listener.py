"""What a server tells of itself while it runs; whoever shows it overrides what it wants to show."""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from marpack.errors import MarpackError, shortened
from marpack.protocol.messages import Loaded, Trouble
from marpack.runner.results import Percentiles, Reservoir
from marpack.serving.settings import Address

_CAUSES = 100  # that are counted apart
_CAUSE = 200  # characters of one
_OTHER = "other failures"


class AnsweredRequest(Struct, frozen=True, kw_only=True):
    """One request and what became of it."""

    id: str
    method: str
    target: str  # path and query, as they were sent
    remote: str
    status: int  # 0: the client had gone
    milliseconds: float  # from the end of its head to the answer
    model: str | None = None
    version: str | None = None
    queue_ms: float | None = None
    handler_ms: float | None = None  # of the batch it was in


class ServerListener:
    """Is told what happens, as it happens; this one says nothing. None raises: what cannot be written is lost."""

    def listening(self, what: str, address: Address) -> None:
        """Take note of an address that is listened on, and what for."""

    def noted(self, text: str) -> None:
        """Take note of what whoever starts the server should know."""

    def loaded(self, model: str, worker: int, loaded: Loaded, milliseconds: float) -> None:
        """Take note of a worker that answers."""

    def failed(self, model: str, worker: int | None, error: MarpackError, *, given_up: bool) -> None:
        """Take note of a model, or a worker of it, that could not be started."""

    def printed(self, model: str, worker: int, lines: Sequence[str], troubles: Sequence[Trouble]) -> None:
        """Take what a handler printed, and why its answers are what they are."""

    def answered(self, request: AnsweredRequest) -> None:
        """Take note of an answer."""

    def measured(self, line: str) -> None:
        """Take a metric's line, where metrics go to the log."""

    def reloaded(self, model: str, changed: Sequence[str], error: MarpackError | None) -> None:
        """Take note of a model that was loaded anew because of changed files, or was not, and goes on as it was."""


class ServerStatistics:
    """What the requests of a server add up to."""

    def __init__(self) -> None:
        self.requests = 0
        self.failures: Counter[str] = Counter()  # by what was answered: "503 Prediction failed"
        self._durations = Reservoir()  # ms

    def add(self, status: int, milliseconds: float, cause: str = "") -> None:
        """Count one answer; 0 is the status of a client that had gone."""
        self.requests += 1
        self._durations.add(milliseconds)
        if 200 <= status < 400:
            return
        text = shortened(f"{status} {cause}", _CAUSE) if status else "the client had gone"
        known = text in self.failures or len(self.failures) < _CAUSES
        self.failures[text if known else _OTHER] += 1  # handlers write causes, of any number and length

    def percentiles(self) -> Percentiles | None:
        """Return how long answers took, in ms; None before the first."""
        return self._durations.percentiles() if self.requests else None
