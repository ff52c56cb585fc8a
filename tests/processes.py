"""The marker `process`: on every test that starts a program, itself, by a helper, or by a fixture of this folder."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

TESTS = str(Path(__file__).parent)
STARTS = {subprocess.run, subprocess.Popen, subprocess.check_output}
NOT_COUNTED = {"invoke", "shared"}  # they run the command in this process; its workers are forks
_known: dict[Any, bool] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start a process, which `pytest -m process` then selects."""
    for item in items:
        if isinstance(item, pytest.Function) and any(map(starts_process, functions_of(item))):
            item.add_marker("process")


def functions_of(item: pytest.Function) -> Iterator[Any]:
    """Yield a test's function, and those of its fixtures."""
    yield item.function
    for fixtures in item._fixtureinfo.name2fixturedefs.values():  # pytest has no public name for it
        yield from (fixture.func for fixture in fixtures)


def starts_process(function: Any) -> bool:
    """Return whether a function or class of ours names what starts a program, or another function that does."""
    if function not in _known:
        _known[function] = False  # for as long as it is looked at: functions call each other
        _known[function] = _is_starter(getattr(function, "__wrapped__", function))
    return _known[function]


def _is_starter(function: Any) -> bool:
    if isinstance(function, type):
        return any(starts_process(each) for each in vars(function).values() if isinstance(each, FunctionType))
    if not isinstance(function, FunctionType) or not function.__code__.co_filename.startswith(TESTS):
        return False
    return any(map(_starts, _named(function)))


def _named(function: FunctionType) -> Iterator[Any]:
    """Yield the globals that a function names, with what it takes from the modules among them."""
    names = set(_names(function.__code__)) - NOT_COUNTED
    for name in names & function.__globals__.keys():
        value = function.__globals__[name]
        yield from map(vars(value).get, names) if isinstance(value, ModuleType) else (value,)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _starts(value: Any) -> bool:
    try:
        return value in STARTS or starts_process(value)
    except TypeError:  # cannot be hashed, so is no function
        return False
