"""What a function is given for a command's options: checked as the command line checks them."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from marpack.errors import UsageError, did_you_mean, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    Options = Mapping[str, Any]  # Any: each option has its own type

Name = str | os.PathLike[str]  # of a file or a folder, or an address
_CHOICES: dict[str, tuple[str, ...]] = {
    "target": ("torchserve", "marpack"),
    "archive_format": ("default", "zip-store", "tgz", "no-archive"),
    "runtime": ("python", "python3", "LSP"),
    "envelope": ("body", "json", "kserve", "kservev2"),
    "env": ("current", "isolated"),
    "stand_ins": ("on", "off", "auto"),
    "allow_unproved": ("inputs", "gpu"),
    "vendor_platform": ("linux_x86_64", "linux_aarch64", "any"),
}
_FLAGS = (
    *("force", "strict", "vendor", "verify", "no_lock", "no_attach", "no_attached", "plain_http"),
    *("hermetic", "explain", "describe", "compile", "trust_pickle", "trust_url", "trace", "fail_fast", "isolate"),
    *("clear_cache", "allow_unsigned", "allow_outside", "require_safe", "trust_native", "yes"),
)
_TIMES = ("timeout", "startup_timeout", "seconds_per_check")
_COUNTS = (
    *("workers", "batch_size", "max_memory", "max_request_size", "max_response_size"),
    *("max_members", "max_size", "max_ratio", "max_opcodes"),
)
_TEXTS = (
    *("password", "vendor_python"),
    *("name", "version", "template", "handler", "model_name", "device", "source_commit", "key_password"),
    *("reference", "digest", "to", "image", "storage_uri", "role"),
)
_PATHS = (
    *("source", "project", "folder", "directory", "from_", "output", "export_path", "metrics_config"),
    *("attest", "sbom", "wheel", "lock", "archive", "signature", "require_check"),
    *("weights", "labels", "serialized_file", "model_file", "requirements_file", "config_file"),
)
_MAX_COUNT = 1 << 63
_KEYS = ("key", "ca", "check_key", "certificate")
_SEVERAL = ("only", "skip", "allow_unproved")


def valid(given: Options) -> dict[str, Any]:  # Any: each option has its own type
    """Return a function's arguments as the options of its command: paths as text, and nothing that cannot be.

    Raises UsageError, which names the argument.
    """
    options = {name: _plain(value, name) for name, value in given.items()}
    for name in _SEVERAL:
        if name in options:
            options[name] = several_texts(options[name], name)
    for name, choices in _CHOICES.items():
        value = options.get(name)
        for each in value if isinstance(value, tuple) else () if value is None else (value,):
            _expect(isinstance(each, str) and each in choices, name, each, f"one of {', '.join(choices)}")
    for name in _FLAGS:
        _expect(isinstance(options.get(name, False), bool), name, options.get(name), "True or False")
    for name in _TIMES:
        _expect(_is_number(options.get(name), above=0), name, options.get(name), "a number of seconds above 0")
    for name in _COUNTS:
        _expect(_is_count(options.get(name)), name, options.get(name), "a whole number above 0")
    tolerance = options.get("tolerance")
    _expect(_is_number(tolerance, above=-math.ulp(0)), "tolerance", tolerance, "a number of 0 or more")
    for name in (*_TEXTS, *_PATHS):
        expected = "a path" if name in _PATHS else "a text"
        _expect(isinstance(options.get(name), str | None), name, options.get(name), expected)
    for name in _KEYS:
        _expect(isinstance(options.get(name), str | bytes | None), name, options.get(name), "a path or bytes")
    return options


def _plain(value: Any, name: str) -> Any:  # Any: as above
    """Return a path as text, and what is no path as it is."""
    if not isinstance(value, os.PathLike):
        return value
    text = os.fspath(value)
    _expect(isinstance(text, str), name, text, "a path of text")
    return text


def _is_number(value: object, *, above: float) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and above < value < math.inf


def _is_count(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_COUNT


def _expect(fits: bool, name: str, value: object, expected: str) -> None:
    if not fits:
        meant = did_you_mean(value, _CHOICES.get(name, ())) if isinstance(value, str) else None
        hint = meant or f"Set {name} to {expected}."
        raise UsageError(f"{shortened(repr(value), 40)} is not {expected}", where=name, hint=hint)


def several_texts(value: Any, name: str) -> tuple[str, ...]:  # Any: as above
    """Return several texts; raises UsageError for one that is not in a list, which would be taken letter by letter."""
    fits = isinstance(value, list | tuple | set | frozenset) and all(isinstance(each, str) for each in value)
    _expect(fits, name, value, "a list of texts")
    return tuple(value)


def several_names(value: Any, name: str) -> tuple[str, ...]:  # Any: as above
    """Return several paths as text; raises UsageError for a value that is not a list of paths."""
    _expect(isinstance(value, list | tuple | set | frozenset), name, value, "a list of paths")
    return tuple(named(each, name) for each in value)


def named(source: Any, name: str = "source") -> str:  # Any: as above
    """Return a path or an address as text; raises UsageError for what is neither."""
    text = _plain(source, name)
    _expect(isinstance(text, str), name, source, "a path")
    return str(text)
