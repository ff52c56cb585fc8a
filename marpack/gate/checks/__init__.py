"""The checks of the gate, one module each; their names and order are in `marpack/project/schema.py`."""

from importlib import import_module

from marpack.gate.candidate import Candidate
from marpack.gate.verdicts import CheckOutcome
from marpack.project.schema import CHECKS, Check


def run(check: Check, candidate: Candidate) -> CheckOutcome:
    """Run a check by its name; raises MarpackError where that is against the archive, too."""
    outcome: CheckOutcome = import_module(f"{__name__}.{check.name.replace('-', '_')}").run(candidate)
    return outcome


def as_markdown() -> str:
    """Return the table of all checks, as `docs/check.md` holds it."""
    rows = [
        f"| [{each.name}](#{each.name}) | {each.title} | {'✓' if each.asks else ''} | {int(each.exit_code)} |"
        for each in CHECKS
    ]
    return "\n".join(["| check | makes sure that | runs the model | exit code |", "|---|---|---|---|", *rows, ""])
