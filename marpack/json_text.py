"""Results → JSON; texts need not be UTF-8, such as names of files."""

from typing import Any

import msgspec


def to_json(result: object, *, indent: bool = False) -> bytes:
    """Return a result as JSON, on one line or indented; a letter that UTF-8 cannot hold is spelt out."""
    try:
        text = msgspec.json.encode(result, order="deterministic")
    except UnicodeEncodeError:
        text = msgspec.json.encode(_legible(msgspec.to_builtins(result, order="deterministic", str_keys=True)))
    return msgspec.json.format(text, indent=2) if indent else text


def legible(text: str) -> str:
    """Return a text with the number of each letter that UTF-8 cannot hold in that letter's place."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def is_number(value: object) -> bool:
    """Return whether a JSON value is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _legible(value: Any) -> Any:  # Any: JSON
    if isinstance(value, str):
        return legible(value)
    if isinstance(value, dict):
        return {legible(key): _legible(item) for key, item in value.items()}
    return [_legible(item) for item in value] if isinstance(value, list | tuple) else value
