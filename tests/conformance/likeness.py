"""Likeness: whether an answer is the recorded one, where floats may differ in their last digits between machines."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from conformance.recording import Reply

# Kernels choose their instructions by processor; sums of floats then round differently.
TOLERANCE = 1e-5


def alike(one: Reply, other: Reply, *, numeric: bool) -> bool:
    """Say whether two answers are the same; of numeric ones, whether their JSON is, to the tolerance."""
    if one == other:
        return True
    if not numeric or replace(one, body=b"") != replace(other, body=b""):
        return False
    try:
        return _close(json.loads(one.body), json.loads(other.body))
    except ValueError:
        return False


def _close(one: object, other: object) -> bool:
    match one, other:
        case float(), float():
            return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        case list(), list():
            return len(one) == len(other) and all(map(_close, one, other))
        case dict(), dict():
            return list(one) == list(other) and all(map(_close, one.values(), other.values()))
        case _:
            return one == other
