"""The `kserve` envelope: `{"instances": […]}` → `{"predictions": …}` or `{"explanations": …}`, first request only."""

import json
from typing import Any

from marpack.runtime.envelopes.base import BaseEnvelope, asks_explanation, payload


class KServeEnvelope(BaseEnvelope):
    """Hands the first request's instances to the handler; the others of a batch are lost, as on the server."""

    def parse_input(self, data: Any) -> Any:
        """Return the instances of the first request."""
        body = [payload(row) for row in data][0]  # noqa: RUF015 - every row is looked at, as on the server
        if isinstance(body, bytes | bytearray):
            body = json.loads(body.decode())
        return body.get("instances")

    def format_output(self, data: Any) -> Any:
        """Return one answer, whatever the batch's size."""
        return [{"explanations" if asks_explanation(self.context) else "predictions": data}]
