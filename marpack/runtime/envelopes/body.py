"""The `body` envelope: the handler gets the bare payloads."""

from typing import Any

from marpack.runtime.envelopes.base import BaseEnvelope, payload


class BodyEnvelope(BaseEnvelope):
    """Unwraps each row to its `data` or `body`; answers pass untouched."""

    def parse_input(self, data: Any) -> Any:
        """Return one payload per row."""
        return [payload(row) for row in data]

    def format_output(self, data: Any) -> Any:
        """Return the answers as they are."""
        return data
