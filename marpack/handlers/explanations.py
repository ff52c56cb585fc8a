"""Explanations: what a request asks to have attributed, and Captum's attributors, imported only then (contract §7)."""

from collections.abc import Callable
from typing import Any

from marpack.errors import MissingExtraError
from marpack.torchserve.diagnostics import note

# Any: tensors and rows of every handler's own making
Insights = Callable[[Any, Any, Any], Any]


def subject(row: Any) -> tuple[Any, Any]:  # Any: a row, or what an envelope made of it
    """Return a row's input and its `target`, 0 if it names none."""
    if not isinstance(row, dict):
        return None, 0
    return row.get("data") or row.get("body"), row.get("target") or 0


def insights_of(handler: Any) -> Insights:  # Any: handlers with and without the method
    """Return the handler's `get_insights`; AttributeError, as on the server, where its author wrote none."""
    if not hasattr(handler, "get_insights"):
        message = f"{type(handler).__name__} has no get_insights, which explanations need"
        hint = "write get_insights(self, tensor_data, raw_data, target), or inherit from a built-in that has it"
        note("no-insights", message, stage="explain_handle", hint=hint)
    insights: Insights = handler.get_insights
    return insights


class Deferred:
    """One of Captum's attributors, made when something of it is asked for: importing Captum takes long."""

    def __init__(self, name: str, *args: Any) -> None:  # Any: the model, and a layer of it
        self._name = name
        self._args = args

    def __getattr__(self, name: str) -> Any:  # Any: the attributor's own
        if name.startswith("_"):  # not set yet, as while copying
            raise AttributeError(name)
        return getattr(getattr(captum_attr(), self._name)(*self._args), name)


def captum_attr() -> Any:  # Any: captum has no types
    """Import captum.attr; raises MissingExtraError naming the package and the extra."""
    try:
        import captum.attr  # noqa: PLC0415 - seconds of import that only explanations need
    except ModuleNotFoundError as error:
        if error.name != "captum":
            raise
        raise MissingExtraError("captum", "explain", "an explanation") from error
    return captum.attr
