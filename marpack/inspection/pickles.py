"""The verdict on a pickle, by its opcodes and by an allow-list of what loading it imports and calls."""

from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from marpack import finding_codes as codes
from marpack.findings import Finding
from marpack.weights.kind import Program, ProgramKind
from marpack.weights.pickle import INERT, Global, Stream, disallowed, loads_weights_only

# Modules and single names that run code, load more of it, or reach out of the process. Names that are on no allow-list
# need trust anyway; those listed here are dangerous even for archives that the user trusts.
_DANGEROUS = frozenset(
    """
    os posix nt subprocess sys shutil socket ssl ctypes _ctypes pty runpy importlib _imp imp zipimport pkgutil
    pickle _pickle dill cloudpickle marshal shelve code codeop bdb pdb cProfile profile timeit trace doctest pydoc
    site venv ensurepip pip setuptools distutils webbrowser urllib http ftplib smtplib poplib imaplib telnetlib
    xmlrpc requests aiohttp httpx asyncio commands popen2 fileinput antigravity idlelib lib2to3 _osx_support
    _aix_support _pyrepl test numpy.f2py torch.hub torch.utils.cpp_extension torch.ops torch._ops torch.package
    torch.distributed.rpc torch._inductor.codecache sympy.core.sympify sympy.parsing

    builtins.eval builtins.exec builtins.compile builtins.open builtins.getattr builtins.setattr builtins.delattr
    builtins.__import__ builtins.input builtins.breakpoint builtins.globals builtins.locals builtins.vars
    builtins.help builtins.apply builtins.execfile builtins.file _io.FileIO _io.open _io.open_code io.open
    io.open_code io.FileIO codecs.open operator.attrgetter operator.methodcaller operator.itemgetter
    _operator.attrgetter _operator.methodcaller _operator.itemgetter types.CodeType types.FunctionType
    types.LambdaType functools.partial functools.reduce itertools.starmap inspect.getattr_static logging.FileHandler
    copyreg.add_extension copyreg.pickle gc.get_objects sqlite3.connect platform.popen tempfile.mkstemp
    uuid._get_command_stdout multiprocessing.util.spawnv_passfds
    torch.load torch.serialization.load torch.jit.load torch.jit._serialization.load torch._C._jit_load
    torch.utils.collect_env.run torch.fx.graph_module._forward_from_src
    torch.utils._config_module.ConfigModule.load_config torch.jit.unsupported_tensor_ops.execWrapper
    torch._dynamo.guards.GuardBuilder.get torch.fx.experimental.symbolic_shapes.ShapeEnv.evaluate_guards_expression
    torch.utils.bottleneck.__main__.run_cprofile torch.utils.bottleneck.__main__.run_autograd_prof
    torch.utils.data.datapipes.utils.decoder.basichandlers torch.storage._load_from_bytes
    numpy.load numpy.loads numpy.lib.npyio.load numpy.testing._private.utils joblib.load joblib.numpy_pickle.load
    pandas.read_pickle pandas.io.pickle.read_pickle pandas.eval yaml.load yaml.unsafe_load yaml.full_load
    jsonpickle.decode sympy.sympify sympy.S sympy.core.S sympy.core.singleton.S sympy.parse_expr sympy.lambdify
    sympy.utilities.lambdify
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
# As an attribute of any module: reached through it, these are the real ones.
_ATTRIBUTES = frozenset(
    "os posix nt subprocess sys builtins __builtins__ importlib shutil socket ctypes pickle runpy".split()  # noqa: SIM905
)
# Zips that torch loads as code: no verdict on their pickles makes them safe.
RUN_BY_TORCH = (ProgramKind.AOTI_PACKAGE, ProgramKind.TORCH_EXPORT)
_NAMED = 5  # globals in a message; all of them are in the facts


def is_dangerous(item: Global) -> bool:
    """Return whether a name, spelt as Python 3 imports it, is known to run code or reach out of the process.

    A dotted name is followed through its attributes: `torch.serialization` + `os.system` is os.system.
    """
    path = item.path.split(".")
    is_listed = any(".".join(path[:count]) in _DANGEROUS for count in range(1, len(path) + 1))
    return is_listed or not _ATTRIBUTES.isdisjoint(item.name.split("."))


class PickleVerdict(StrEnum):
    """How much trust unpickling requires."""

    SAFE = "safe"  # runs no code, and torch.load(weights_only=True) allows it if it is torch that reads it
    NEEDS_TRUST = "needs trust"  # imports code that the archive's author chose, or was not read to its end
    DANGEROUS = "dangerous"  # imports names that run commands or load more code


class PickleFacts(Struct, frozen=True, kw_only=True):
    """One pickle."""

    where: str  # "digits.pt!digits/data.pkl", with "@1234" when it begins at that byte
    verdict: PickleVerdict
    globals: tuple[str, ...] = ()  # imports that torch.load(weights_only=True) refuses, Python 3 names
    reasons: tuple[str, ...] = ()  # why it is dangerous, or more than its globals
    opcodes: int
    weights_only: bool  # torch.load(weights_only=True) reads it, and knows all its opcodes
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


class PickleScan(Struct, frozen=True, kw_only=True):
    """All pickles of an archive."""

    verdict: PickleVerdict = PickleVerdict.SAFE  # the worst of all; unscanned parts and torch's programs need trust
    pickles: tuple[PickleFacts, ...] = ()
    unscanned: tuple[Unscanned, ...] = ()
    stray_imports: tuple[StrayImports, ...] = ()  # of files that are not pickles; importing alone runs no packed code
    unfetched: int = 0  # members of torch's files elsewhere, numbers and code that torch never unpickles
    unknown_weights: str | None = None  # the manifest's weights, if marpack does not know their format

    @property
    def needs_trust_pickle(self) -> bool:
        """Return whether a pickle needs trust or a part is not scanned; programs are trusted separately."""
        return bool(self.unscanned) or any(each.verdict is not PickleVerdict.SAFE for each in self.pickles)


def judge(
    stream: Stream, where: str, *, torch: bool = False, script: bool = False, packed: Collection[str] = ()
) -> PickleFacts:
    """Return the verdict on one pickle that a loader of `torch` reads, or TorchScript's own reader (`script`).

    `packed` are the top-level names of the modules in the archive.
    """
    names = disallowed(stream.imports, script=script)
    beyond = [item for item in names if item.path not in INERT]
    reasons = ["it computes the name of an import"] if stream.computed else []
    reasons += [f"it imports and changes {item.path}" for item in stream.changes]
    reasons += [f"it imports {item.path}" for item in beyond if is_dangerous(item)]
    verdict = PickleVerdict.DANGEROUS if reasons else PickleVerdict.SAFE
    if not script:  # TorchScript's reader imports nothing
        reasons += ["it calls the result of another call"] if stream.indirect else []
        reasons += [f"it calls {path} with unusual arguments" for path in stream.misused]
        own = [item for item in stream.imports if item.module.partition(".")[0] in packed]
        reasons += [f"it imports {item.path} from a module in the archive" for item in own]
    runs_no_code = not (beyond or reasons or stream.problem)
    if verdict is PickleVerdict.SAFE and (not runs_no_code or (torch and names)):
        verdict = PickleVerdict.NEEDS_TRUST
    return PickleFacts(
        where=where,
        verdict=verdict,
        globals=tuple(sorted({item.path for item in names})),
        reasons=tuple(reasons),
        opcodes=stream.opcodes,
        weights_only=loads_weights_only(stream),
        runs_no_code=runs_no_code,
        problem=stream.problem,
    )


def scan_of(seen: Sequence[object], *, unfetched: int = 0, unknown_weights: str | None = None) -> PickleScan:
    """Return the scan of all members, with the worst of their verdicts."""
    found = tuple(item for item in seen if isinstance(item, PickleFacts))
    worst = max((pickle.verdict for pickle in found), key=list(PickleVerdict).index, default=PickleVerdict.SAFE)
    unscanned = tuple(item for item in seen if isinstance(item, Unscanned))
    runs_code = any(isinstance(item, Program) and item.kind in RUN_BY_TORCH for item in seen)
    if (unscanned or runs_code) and worst is PickleVerdict.SAFE:
        worst = PickleVerdict.NEEDS_TRUST
    return PickleScan(
        verdict=worst,
        pickles=found,
        unscanned=unscanned,
        stray_imports=tuple(item for item in seen if isinstance(item, StrayImports)),
        unfetched=unfetched,
        unknown_weights=unknown_weights,
    )


def pickle_findings(scan: PickleScan, source: str) -> Iterator[Finding]:
    """Yield a finding for each pickle that is not safe to load, and for each part that was not scanned."""
    for pickle in scan.pickles:
        where = f"{source}!{pickle.where}"
        if pickle.verdict is PickleVerdict.DANGEROUS:
            yield codes.DANGEROUS_PICKLE.at(where, reasons="; ".join(pickle.reasons))
        elif pickle.verdict is PickleVerdict.NEEDS_TRUST and (pickle.globals or pickle.reasons):
            # Without either, it is among the unscanned parts.
            rest = len(pickle.globals) - _NAMED
            names = ", ".join(pickle.globals[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
            causes = "; ".join([*([f"it imports {names}"] if names else ()), *pickle.reasons])
            harmless = ", although it runs no code" if pickle.runs_no_code else ""
            yield codes.UNTRUSTED_PICKLE.at(where, harmless=harmless, causes=causes)
    for part in scan.unscanned:
        yield codes.UNSCANNED.at(f"{source}!{part.where}", reason=part.reason)
