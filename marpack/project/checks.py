"""The checks of the gate in their order: marpack.yaml weighs them by name, and `marpack check` runs them."""

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct, defstruct

from marpack.errors import ExitCode
from marpack.findings import Severity


class Check(Struct, frozen=True):
    """One check; what it does is `run` of the module of its name in `marpack/gate/checks/`."""

    name: str
    title: str
    needs: tuple[str, ...] = ()  # checks that must not have failed
    exit_code: ExitCode = ExitCode.SHORT  # of the command, if this is the first to fail
    optional: bool = False  # runs only where it is asked for

    @property
    def asks(self) -> bool:
        """Whether the model is loaded for it."""
        return "loads" in (self.name, *self.needs)


_ARCHIVE = ExitCode.ARCHIVE
_SOUND = ("safe-to-open", "digests", "manifest")
_TRUSTED = (*_SOUND, "preflight", "pickles", "requirements")
_LOADED = (*_TRUSTED, "loads")

PROOF = "proved"  # the check without which nothing is said to be deployable
SAFETY = "pickles"  # the check that --require-safe makes stricter
HERMETIC = "hermetic"  # the check that `--hermetic` adds
COMPARISONS = ("alike", "no-slower")  # the checks that `--slower` adds
_PROVED = (*_LOADED, PROOF)
CHECKS = (
    Check("safe-to-open", "the server can read it, and reading it is safe", exit_code=_ARCHIVE),
    Check("digests", "every byte is as it was built", _SOUND[:1], exit_code=_ARCHIVE),
    Check("manifest", "the manifest names files that are there", _SOUND[:2], exit_code=_ARCHIVE),
    Check("preflight", "handler, model file, config, labels and weights fit together", _SOUND),
    Check(SAFETY, "nothing in the weights can run code", _SOUND),
    Check("requirements", "its requirements are met here", _SOUND),
    Check("loads", "the handler loads and initializes", _TRUSTED, exit_code=ExitCode.HANDLER),
    Check("samples", "every sample is answered as expected", _LOADED),
    Check("batch-contract", "batches are answered as their requests alone", _LOADED),
    Check("body-forms", "one content in several forms gets one answer", _LOADED),
    Check("repeatable", "answers depend on neither order nor history", _LOADED),
    Check("labels", "the answers' labels are the archive's", _LOADED),
    Check("compiled", "the compiled model agrees with the eager one", _LOADED),
    Check("memory", "memory does not grow with the requests", _LOADED),
    Check("model-folder", "nothing is written into the model folder", _LOADED),
    Check(PROOF, "requests get the status expected, one a 2xx, in a batch, too", _LOADED),
    Check(HERMETIC, "it needs nothing but its archive and its packages", _PROVED, optional=True),
    Check(COMPARISONS[0], "the answers are those of the archive compared with", _PROVED, optional=True),
    Check(COMPARISONS[1], "a request costs no more than by the archive compared with", _PROVED, optional=True),
)


def _weight(check: Check) -> tuple[str, object, Severity]:
    about = Meta(description=f"{check.title[0].upper()}{check.title[1:]}.")
    return check.name.replace("-", "_"), Annotated[Severity, about], Severity.ERROR


if TYPE_CHECKING:
    Severities = Struct
else:
    Severities = defstruct(
        "Severities",
        map(_weight, CHECKS),
        namespace={
            "__doc__": "One key per check: `error` keeps the archive from being deployed,"
            " `warning` and `note` only tell."
        },
        module=__name__,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
        omit_defaults=True,
        rename="kebab",
    )
