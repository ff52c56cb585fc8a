"""The verdict on a pickle, by what loading it imports and calls."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from io import BytesIO

from msgspec import Struct

from marpack.findings import Finding, Severity
from marpack.weights.pickle_stream import INERT, Global, Stream, disallowed, loads_weights_only

# Whole modules, whose functions reach out of the process, run code or load more of it.
_MODULES = frozenset(
    """
    os posix nt subprocess sys shutil socket ssl ctypes _ctypes pty runpy importlib _imp imp zipimport pkgutil
    pickle _pickle dill cloudpickle marshal shelve code codeop bdb pdb cProfile profile timeit trace doctest pydoc
    site venv ensurepip pip setuptools distutils webbrowser urllib http ftplib smtplib poplib imaplib telnetlib
    xmlrpc requests aiohttp httpx asyncio commands popen2 fileinput antigravity idlelib lib2to3 _osx_support
    _aix_support _pyrepl numpy.f2py torch.hub torch.utils.cpp_extension torch.ops torch._ops torch.package
    torch.distributed.rpc torch._inductor.codecache sympy.core.sympify sympy.parsing
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
# Single names in modules that honest pickles use for other things.
_NAMES = frozenset(
    """
    builtins.eval builtins.exec builtins.compile builtins.open builtins.getattr builtins.setattr builtins.delattr
    builtins.__import__ builtins.input builtins.breakpoint builtins.globals builtins.locals builtins.vars
    builtins.help builtins.apply builtins.execfile builtins.file _io.FileIO _io.open _io.open_code io.open
    io.open_code io.FileIO codecs.open operator.attrgetter operator.methodcaller operator.itemgetter
    _operator.attrgetter _operator.methodcaller _operator.itemgetter types.CodeType types.FunctionType
    types.LambdaType functools.reduce itertools.starmap inspect.getattr_static logging.FileHandler
    copyreg.add_extension copyreg.pickle gc.get_objects sqlite3.connect platform.popen tempfile.mkstemp
    torch.load torch.serialization.load torch.jit.load torch.jit._serialization.load torch._C._jit_load
    torch.utils.collect_env.run torch.fx.graph_module._forward_from_src
    torch.utils._config_module.ConfigModule.load_config torch.jit.unsupported_tensor_ops.execWrapper
    torch._dynamo.guards.GuardBuilder.get torch.fx.experimental.symbolic_shapes.ShapeEnv.evaluate_guards_expression
    torch.utils.bottleneck.__main__.run_cprofile torch.utils.bottleneck.__main__.run_autograd_prof
    torch.storage._load_from_bytes multiprocessing.util.spawnv_passfds
    numpy.load numpy.loads numpy.lib.npyio.load numpy.testing._private.utils.runstring joblib.load
    joblib.numpy_pickle.load pandas.read_pickle pandas.io.pickle.read_pickle pandas.eval
    yaml.load yaml.unsafe_load yaml.full_load jsonpickle.decode
    sympy.sympify sympy.core.sympify sympy.S sympy.core.S sympy.core.singleton.S sympy.parse_expr sympy.lambdify
    sympy.utilities.lambdify
    """.split()  # noqa: SIM905 - as above
)
# As an attribute of whatever module: reached through it, these are the real ones.
_ATTRIBUTES = frozenset(
    "os posix nt subprocess sys builtins __builtins__ importlib shutil socket ctypes pickle runpy".split()  # noqa: SIM905
)
_NAMED = 5  # globals in a message; all of them are in the facts


def is_dangerous(item: Global) -> bool:
    """Tell whether a name, spelt as Python 3 imports it, is known to run code or reach out of the process.

    A dotted name is followed through its attributes: `torch.serialization` + `os.system` is os.system.
    """
    parts = item.module.split(".")
    if any(".".join(parts[:count]) in _MODULES for count in range(1, len(parts) + 1)):
        return True
    path = item.path.split(".")
    if any(".".join(path[:count]) in _NAMES for count in range(2, len(path) + 1)):
        return True
    return not _ATTRIBUTES.isdisjoint(item.name.split("."))


def second_opinion(items: Iterable[Global]) -> tuple[str, ...]:
    """Return the names that picklescan knows to be dangerous.

    It is shown the names alone, in a pickle made for it: what it thinks does not hang on how they were hidden.
    """
    from picklescan.scanner import SafetyLevel, scan_pickle_bytes  # noqa: PLC0415 - most archives do not need it

    result = scan_pickle_bytes(BytesIO(_listing(items)), "names")
    return tuple(f"{found.module}.{found.name}" for found in result.globals if found.safety is SafetyLevel.Dangerous)


def _listing(items: Iterable[Global]) -> bytes:
    lines = (f"c{item.module}\n{item.name}\n0".encode("utf-8", "replace") for item in items if _is_plain(item))
    return b"\x80\x02" + b"".join(lines) + b"N."


def _is_plain(item: Global) -> bool:
    return "\n" not in item.path and item.path.isprintable()


class PickleVerdict(StrEnum):
    """How much unpickling asks of one's trust."""

    SAFE = "safe"  # runs no code, and torch.load(weights_only=True) allows it if it is torch that reads it
    NEEDS_TRUST = "needs trust"  # imports code that the archive's author chose, or was not read to its end
    DANGEROUS = "dangerous"  # imports what runs commands or loads more code


class PickleFacts(Struct, frozen=True, kw_only=True):
    """One pickle."""

    where: str  # "digits.pt!digits/data.pkl", with "@1234" when it begins at that byte
    verdict: PickleVerdict
    globals: tuple[str, ...] = ()  # what it imports beyond torch.load(weights_only=True), Python 3 names
    reasons: tuple[str, ...] = ()  # why it is dangerous, or more than its globals
    opcodes: int
    weights_only: bool  # torch.load(weights_only=True) reads it: its opcodes are all known to that, too
    runs_no_code: bool  # read to its end, it imports nothing but classes of plain values
    problem: str | None = None  # why it breaks off before its end


class StrayImports(Struct, frozen=True):
    """What an unpickler would import of a file that is not a pickle, before it fails: `cat` reads as `at`."""

    where: str
    globals: tuple[str, ...]


class Unscanned(Struct, frozen=True):
    """A part of a member that was not scanned, and why."""

    where: str
    reason: str


class HostileExpression(Struct, frozen=True):
    """A text in a torch.export program that loading it would turn into code, and that no honest program has."""

    where: str
    reason: str


class PickleScan(Struct, frozen=True, kw_only=True):
    """All of them."""

    verdict: PickleVerdict = PickleVerdict.SAFE  # the worst of all; what was not looked into needs trust
    pickles: tuple[PickleFacts, ...] = ()
    expressions: tuple[HostileExpression, ...] = ()  # each is dangerous
    unscanned: tuple[Unscanned, ...] = ()
    stray_imports: tuple[StrayImports, ...] = ()  # of files that are not pickles; importing alone runs no packed code
    unfetched: int = 0  # members of torch's files elsewhere, numbers and code that torch never unpickles


def judge(
    stream: Stream, where: str, *, torch: bool = False, script: bool = False, packed: Collection[str] = ()
) -> PickleFacts:
    """Return the verdict on one pickle.

    Args:
        stream: What it would do.
        where: Its place, for messages.
        torch: A loader of torch's reads it.
        script: That loader is TorchScript's own, in C++.
        packed: Top-level names of the modules in the archive.
    """
    names = disallowed(stream.imports, script=script)
    beyond = tuple(item for item in names if item.path not in INERT)
    reasons = list(_dangers(stream, beyond))
    is_dangerous = bool(reasons)
    if not script:  # whose reader imports nothing
        reasons += _doubts(stream, packed)
    needs_trust = bool(beyond or reasons or stream.problem or (torch and names))
    verdict = PickleVerdict.NEEDS_TRUST if needs_trust else PickleVerdict.SAFE
    return PickleFacts(
        where=where,
        verdict=PickleVerdict.DANGEROUS if is_dangerous else verdict,
        globals=tuple(sorted({item.path for item in names})),
        reasons=tuple(reasons),
        opcodes=stream.opcodes,
        weights_only=loads_weights_only(stream),
        runs_no_code=not (beyond or reasons or stream.problem),
        problem=stream.problem,
    )


def is_packed(item: Global, packed: Collection[str]) -> bool:
    """Return whether a name may be imported from a module that the archive contains."""
    return item.module.partition(".")[0] in packed


def _doubts(stream: Stream, packed: Collection[str]) -> Iterator[str]:
    """Yield what keeps a pickle from being safe although each of its imports may be allowed."""
    if stream.indirect:
        yield "it calls the result of another call"
    yield from (f"it calls {path} with unusual arguments" for path in stream.misused)
    yield from (
        f"it imports {item.path} from a module in the archive" for item in stream.imports if is_packed(item, packed)
    )


def _dangers(stream: Stream, names: tuple[Global, ...]) -> Iterator[str]:
    if stream.computed:
        yield "it computes the name of an import"
    yield from (f"it imports and changes {item.path}" for item in stream.changes)
    known = [item for item in names if is_dangerous(item)]
    yield from (f"it imports {item.path}" for item in known)
    rest = [item for item in names if item not in known]
    if rest:
        yield from (f"it imports {path}, which picklescan lists as dangerous" for path in second_opinion(rest))


def scan_of(seen: Sequence[object], *, unfetched: int = 0) -> PickleScan:
    """Return the scan of all members, with the worst of their verdicts."""
    found = tuple(item for item in seen if isinstance(item, PickleFacts))
    worst = max((pickle.verdict for pickle in found), key=list(PickleVerdict).index, default=PickleVerdict.SAFE)
    unscanned = tuple(item for item in seen if isinstance(item, Unscanned))
    expressions = tuple(item for item in seen if isinstance(item, HostileExpression))
    if unscanned and worst is PickleVerdict.SAFE:
        worst = PickleVerdict.NEEDS_TRUST
    if expressions:
        worst = PickleVerdict.DANGEROUS
    return PickleScan(
        verdict=worst,
        pickles=found,
        expressions=expressions,
        unscanned=unscanned,
        stray_imports=tuple(item for item in seen if isinstance(item, StrayImports)),
        unfetched=unfetched,
    )


def distrust(scan: PickleScan, source: str) -> Iterator[Finding]:
    """Yield a finding for each pickle that is not safe to load, and for each part that was not scanned."""
    for pickle in scan.pickles:
        where = f"{source}!{pickle.where}"
        if pickle.verdict is PickleVerdict.DANGEROUS:
            yield Finding(
                code="dangerous-pickle",
                severity=Severity.ERROR,
                message=f"loading this pickle runs code: {'; '.join(pickle.reasons)}",
                where=where,
                hint="Do not load the archive. Ask its author what the file is for.",
            )
        elif pickle.verdict is PickleVerdict.NEEDS_TRUST and (pickle.globals or pickle.reasons):
            yield _untrusted(pickle, where)  # without either it is among what was not looked into
    for expression in scan.expressions:
        yield Finding(
            code="dangerous-expression",
            severity=Severity.ERROR,
            message=f"torch.export.load would run it as code: {expression.reason}",
            where=f"{source}!{expression.where}",
            hint="Do not load the file. Ask its author for a file that torch.export.save wrote.",
        )
    for part in scan.unscanned:
        yield Finding(
            code="unscanned",
            severity=Severity.WARNING,
            message=f"not scanned completely: {part.reason}",
            where=f"{source}!{part.where}",
            hint="If you trust the archive's author, use --trust-pickle.",
        )


def _untrusted(pickle: PickleFacts, where: str) -> Finding:
    harmless = ", although it runs no code" if pickle.runs_no_code else ""
    rest = len(pickle.globals) - _NAMED
    names = ", ".join(pickle.globals[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
    causes = [*([f"it imports {names}"] if names else ()), *pickle.reasons]
    return Finding(
        code="untrusted-pickle",
        severity=Severity.WARNING,
        message=f"torch.load(weights_only=True) refuses it{harmless}: {'; '.join(causes)}",
        where=where,
        hint="Save the state_dict instead of the model. If you trust the archive's author, use --trust-pickle.",
    )
