"""The checks of the gate, one module each, in the order in which they run."""

from marpack.gate.checks.registry import CHECKS, Check

__all__ = ["CHECKS", "Check"]
