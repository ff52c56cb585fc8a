"""The metrics port: what Prometheus reads."""

from urllib.parse import parse_qsl

from marpack.serving.api import Api, Call, Route, ServingCore, json_reply
from marpack.serving.http import Reply
from marpack.serving.metric_families import CONTENT_TYPE
from marpack.serving.openapi import server_document
from marpack.torchserve.frontend.http_response import phrase_of
from marpack.torchserve.messages import Response


class MetricsApi(Api):
    """Answers whoever collects metrics."""

    def __init__(self, core: ServingCore) -> None:
        """Answer for a core."""
        own = (Route("/api-description", self.document), Route("/", self.document, frozenset({"OPTIONS"})))
        super().__init__(core, (Route("/metrics/*", self.metrics), *own))

    async def metrics(self, call: Call, rest: str = "") -> Reply:  # noqa: ARG002 - whatever follows
        """Show all metrics, or those that `name[]` names."""
        names = [value for name, value in parse_qsl(call.query, keep_blank_values=True) if name == "name[]"]
        body = self.core.metrics.exposition(names)
        response = Response(status=200, phrase=phrase_of(200), body=body, content_type=CONTENT_TYPE)
        return Reply(response=response, request_id=call.id)

    async def document(self, call: Call) -> Reply:
        """Describe the server."""
        return json_reply(call, server_document(management=False))
