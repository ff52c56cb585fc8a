"""An import that nothing packed answers: whose module it is, and how it comes along."""

from msgspec import Struct
from msgspec.structs import replace

from marpack.findings import Finding, Severity
from marpack.inspection.lint.bindings import Imported
from marpack.inspection.lint.codes import Code, suggestion
from marpack.inspection.lint.files import Files, Found, Module
from marpack.inspection.lint.model_loading import LintContext, lighter
from marpack.torchserve import server_modules as ts
from marpack.torchserve.server_modules import is_homely, is_known, namesake, usual_provider

NOT_PACKED = Code(
    "import-not-packed",
    "A module that looks like the author's own is imported, and it is not at the archive's root, where Python looks.",
    "Pack the file at the archive's root.",
)
HANDLER_MODULE = Code(
    "import-handler-module",
    "The server's handlers are imported from ts.torch_handler; by themselves their names are not found.",
    "Import from ts.torch_handler.",
)

UNLISTED = Code(
    "import-unlisted",
    "An import is neither Python's own, nor packed, nor listed in the requirements, nor on a stock server.",
    "List its distribution in requirements.txt, or pack the module.",
)
_KEEP_FOLDER = (
    "in marpack.yaml, files: [{0}] keeps the folder; with flags, name a folder that holds it: "
    "mkdir parts && cp -r {0} parts/, then --extra-files parts"
)


class ImportSite(Struct, frozen=True):
    """One import, in the module where it stands."""

    module: Module
    statement: Imported
    sure: bool  # that the statement runs, and all that lead to it

    @property
    def where(self) -> str:
        """Where the statement stands."""
        return self.module.at(self.statement.line)

    @property
    def severity(self) -> Severity:
        """How much it weighs that the import certainly fails where it runs."""
        return Severity.ERROR if self.sure else Severity.WARNING


class MissingModules:
    """Judges imports from a set of members."""

    def __init__(self, context: LintContext, starts: list[str]) -> None:
        """Take what is packed and required; `starts` are the members that the server itself imports."""
        self._files = context.files
        self._requirements = context.requirements
        self._starts = starts

    def judge(self, need: ImportSite, source: str, *, anywhere: bool) -> Finding:
        """Return the finding for an import; `anywhere`: the archive's code looks for modules in other places, too."""
        top = source.partition(".")[0]
        light = anywhere or self._requirements.unnamed
        finding = self._flattened(need, source) or _not_packed(self._files, top, need.severity, need.where)
        if finding is None:
            return self._unlisted(need, top, light=light)
        return replace(finding, severity=Severity.NOTE) if light else finding

    def _flattened(self, need: ImportSite, source: str) -> Finding | None:
        """Say that a folder's contents are packed and the folder is not, as the archiver's --extra-files has it.

        What shows it is the module that is wanted of the folder. An __init__.py says nothing of whose it is, so it only
        counts where the import must be the author's own.
        """
        top, _, rest = source.partition(".")
        member = self._at_root(rest or need.statement.name or "")
        if member is None and is_homely(top) and not rest:
            member = self._at_root("__init__")
        if member is None or is_known(top):
            return None
        message = f"'{top}' is not packed, but {member} is at the archive's root: --extra-files leaves the folder out"
        severity = need.severity if is_homely(top) else lighter(need.severity, Severity.WARNING)
        return NOT_PACKED.weigh(severity, message, need.where, _KEEP_FOLDER.format(top))

    def _at_root(self, dotted: str) -> str | None:
        located = self._files.locate(dotted, ("",))
        is_source = located is not None and located.kind is Found.SOURCE and located.member not in self._starts
        return located.member if located is not None and is_source else None

    def _unlisted(self, need: ImportSite, top: str, *, light: bool) -> Finding:
        maybe = namesake(top, self._requirements.names)
        if maybe is not None:
            message = f"'{top}' may or may not come with {maybe}, which the requirements list"
            return UNLISTED.note(message, need.where, f"if it does not, add {_distribution(top)} to them")
        message = f"'{top}' is neither packed, nor in the requirements, nor on a stock server"
        severity = Severity.NOTE if light or not need.sure else Severity.WARNING
        return UNLISTED.weigh(severity, message, need.where, self._misspelt(top) or self._listing(top))

    def _misspelt(self, top: str) -> str | None:
        """Return which packed module was probably meant: none that is only there to be run."""
        started = {member.removesuffix(".py") for member in self._starts}
        names = [name for name in _packed_tops(self._files) if name not in started]
        return None if is_known(top) else suggestion(top, names)

    def _listing(self, top: str) -> str:
        name, yours = _distribution(top), "" if is_known(top) else "; if it is a file of yours, pack it"
        if self._requirements.file:
            return f"add {name} to {self._requirements.file}{yours}"
        return f"list {name} in a requirements.txt, named by requirements: or --requirements-file{yours}"


def _distribution(top: str) -> str:
    """Return how a hint names the distribution of an import; one that the tables do not know has no name there."""
    return usual_provider(top) or "its distribution"


def _not_packed(files: Files, top: str, severity: Severity, where: str) -> Finding | None:
    """Return the finding for an import that must be the author's own and is not packed; None for any other."""
    if top in ts.BUILT_INS:
        hint = f"write ts.torch_handler.{top}"
        return HANDLER_MODULE.weigh(severity, f"'{top}' is found only as ts.torch_handler.{top}", where, hint)
    homely = is_homely(top)
    elsewhere = _elsewhere(files, top)
    if not homely and elsewhere is None:
        return None
    message = f"'{top}' is packed as {elsewhere}, where Python does not look" if elsewhere else f"'{top}' is not packed"
    return NOT_PACKED.weigh(severity if homely else Severity.WARNING, message, where)


def _elsewhere(files: Files, top: str) -> str | None:
    """Return where a module lies in a folder that is no package of its own."""
    found = sorted(name for name in files.names if name.endswith((f"/{top}.py", f"/{top}/__init__.py")))
    loose = (name for name in found if "__init__.py" not in files.files_in(name.partition("/")[0] + "/"))
    return next(loose, None)


def _packed_tops(files: Files) -> list[str]:
    """Return the names that can be imported from the archive's root."""
    return sorted({name.split("/")[0].removesuffix(".py") for name in files.names if name.endswith(".py")})
