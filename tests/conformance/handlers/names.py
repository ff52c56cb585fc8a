"""Evaluate each request's body with the names that handlers import from `ts`; errors are told by their kind."""

# ruff: noqa: F401 - the requests use these names

import importlib
import inspect
import json
import os

import ts
import ts.context
import ts.handler_utils.text_utils
import ts.handler_utils.timer
import ts.metrics.dimension
import ts.metrics.metric_type_enum
import ts.torch_handler.base_handler
from ts.context import Context
from ts.handler_utils import utils
from ts.torch_handler.unit_tests.test_utils.mock_context import MockContext
from ts.utils import util
from ts.utils.util import PredictionException


def handle(data, context):
    if data is None:
        return None
    scope = globals() | {"context": context}
    try:
        exec(bytes(data[0]["body"]).decode(), scope)
        return [repr(scope["answer"])]
    except Exception as error:  # noqa: BLE001 - its kind is the answer
        return [next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")]


def shape(name, thing):
    """Tell what callers may rely on: a class's public methods, a function's arguments, a value's type."""
    if inspect.isclass(thing):
        return {name: sorted(key for key, value in inspect.getmembers(thing, callable) if is_method(key, value))}
    if callable(thing):
        return {name: list(inspect.signature(thing).parameters)}
    return {name: type(thing).__name__}


def is_method(key, value):
    return not key.startswith("_") and not inspect.isclass(value)
