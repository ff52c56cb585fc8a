"""What every envelope does: unwrap the rows, call the handler, wrap its answers."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class BaseEnvelope(ABC):
    """Stands between the server and a handler's entry point.

    Rows and answers are `Any` throughout: they are whatever clients sent and handlers returned, and what does not fit
    must fail where and as it fails on the server.
    """

    def __init__(self, handle_fn: Callable[[Any, Any], Any]) -> None:
        self._handle_fn = handle_fn
        self.context: Any = None

    def handle(self, data: Any, context: Any) -> Any:
        """Answer one batch; an empty batch and an empty answer pass untouched."""
        self.context = context
        answers = self._handle_fn(self.parse_input(data) if data else data, context)
        return self.format_output(answers) if answers else answers

    @abstractmethod
    def parse_input(self, data: Any) -> Any:
        """Return the handler's rows."""

    @abstractmethod
    def format_output(self, data: Any) -> Any:
        """Return the answers in the protocol's form."""


def payload(row: Any) -> Any:
    """Return what a row carries: its `data`, else its `body`."""
    return row.get("data") or row.get("body")


def asks_explanation(context: Any) -> bool:
    """Say whether the batch was sent for explanations."""
    return bool(context) and context.get_request_header(0, "explain") == "True"
