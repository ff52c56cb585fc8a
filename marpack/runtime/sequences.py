"""Sequence batching: what the frontend makes of a request that names no sequence (contract §9)."""

from collections.abc import Mapping
from typing import Any, Self

from msgspec import Struct

from marpack.runtime.context import Context, RequestProcessor
from marpack.runtime.frontend import error_response
from marpack.runtime.messages import Response, Trouble

# What the frontend's Java says of the lock that it makes only where there is an idle time.
_NO_LOCK = (
    'Cannot invoke "java.util.concurrent.locks.ReentrantLock.isHeldByCurrentThread()" '
    'because "this.jobGroupLock" is null'
)


class Sequences(Struct, frozen=True):
    """The `sequenceBatching` of a model config."""

    idle: int  # ms that a sequence may be idle

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:  # Any: YAML as it stands
        """Return what a config asks for, None if it asks for no sequences."""
        if config.get("sequenceBatching") is not True:
            return None
        idle = config.get("sequenceMaxIdleMSec")
        return cls(idle if isinstance(idle, int) and not isinstance(idle, bool) else 0)

    @property
    def stuck(self) -> bool:
        """Whether the server answers no request at all: it cannot without an idle time."""
        return self.idle <= 0

    def refusals(self, count: int) -> tuple[Response, ...]:
        """Return what clients get instead."""
        return (error_response(500, _NO_LOCK, kind="NullPointerException"),) * count

    def why_stuck(self) -> Trouble:
        """Return what is behind it."""
        return Trouble(
            kind="no-idle-time",
            stage="handle",
            message="with sequenceBatching the server needs to know how long a sequence may be idle",
            hint="set sequenceMaxIdleMSec: 60000 (or another time in ms) in the model config",
        )

    def enter(self, request: RequestProcessor, context: Context) -> None:
        """Begin a sequence with a request that names none, as the frontend does."""
        from uuid import uuid4  # noqa: PLC0415 - few models have sequences

        keys = vars(context)
        headers = request.get_request_properties()
        if not headers.get(keys["header_key_sequence_id"]):
            headers[keys["header_key_sequence_id"]] = f"ts-seq-{uuid4()}"
            headers[keys["header_key_sequence_start"]] = "true"
