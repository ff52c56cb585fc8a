"""Bulk scoring: rows of tables → requests, answers → columns, and the parts that they are written to."""

from marpack.errors import MissingExtraError

try:
    import pyarrow as _pyarrow  # noqa: F401, ICN001 - asked for before any module of this room, each of which needs it
except ModuleNotFoundError as error:
    if error.name != "pyarrow":
        raise
    raise MissingExtraError("pyarrow", "score", "scoring tables") from error
