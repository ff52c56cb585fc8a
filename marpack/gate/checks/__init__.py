"""The checks of the gate, one module each, in the order in which they run: names, titles, and what must hold before."""

from collections.abc import Callable

from msgspec import Struct

from marpack.errors import ExitCode
from marpack.gate.candidate import Candidate
from marpack.gate.checks import (
    batch_contract,
    body_forms,
    compiled,
    digests,
    labels,
    loads,
    manifest,
    memory,
    model_folder,
    opens,
    pickles,
    preflight,
    repeatable,
    requirements,
    samples,
)
from marpack.gate.verdicts import CheckOutcome


class Check(Struct, frozen=True):
    """One check."""

    name: str
    title: str
    run: Callable[[Candidate], CheckOutcome]
    needs: tuple[str, ...] = ()  # checks that must not have failed
    asks: bool = False  # whether the model is loaded for it
    exit_code: ExitCode = ExitCode.SHORT  # of the command, if this is the first to fail


_ARCHIVE = ExitCode.ARCHIVE
_SOUND = ("safe-to-open", "digests", "manifest")
_TRUSTED = (*_SOUND, "preflight", "pickles", "requirements")
_LOADED = (*_TRUSTED, "loads")


def _about(name: str, title: str, run: Callable[[Candidate], CheckOutcome]) -> Check:
    """Return a check of the loaded model."""
    return Check(name, title, run, _LOADED, asks=True)


CHECKS = (
    Check("safe-to-open", "the server can read it, and reading it is safe", opens.run, exit_code=_ARCHIVE),
    Check("digests", "every byte is as it was built", digests.run, _SOUND[:1], exit_code=_ARCHIVE),
    Check("manifest", "the manifest names files that are there", manifest.run, _SOUND[:2], exit_code=_ARCHIVE),
    Check("preflight", "handler, model file, config, labels and weights fit together", preflight.run, _SOUND),
    Check("pickles", "no pickle can run code", pickles.run, _SOUND),
    Check("requirements", "its requirements are met here", requirements.run, _SOUND),
    Check("loads", "the handler loads and initializes", loads.run, _TRUSTED, asks=True, exit_code=ExitCode.HANDLER),
    _about("samples", "every packed sample is answered as expected", samples.run),
    _about("batch-contract", "batches are answered as their requests alone", batch_contract.run),
    _about("body-forms", "one content in several forms gets one answer", body_forms.run),
    _about("repeatable", "answers depend on neither order nor history", repeatable.run),
    _about("labels", "the answers' labels are the archive's", labels.run),
    _about("compiled", "the compiled model agrees with the eager one", compiled.run),
    _about("memory", "memory does not grow with the requests", memory.run),
    _about("model-folder", "nothing is written into the model folder", model_folder.run),
)


def as_markdown() -> str:
    """Return the table of all checks, as `docs/check.md` holds it."""
    rows = [
        f"| [{each.name}](#{each.name}) | {each.title} | {'✓' if each.asks else ''} | {int(each.exit_code)} |"
        for each in CHECKS
    ]
    return "\n".join(["| check | makes sure that | runs the model | exit code |", "|---|---|---|---|", *rows, ""])
