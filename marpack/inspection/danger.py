"""Names that no honest weights import: with them, unpickling is running somebody's commands."""

from collections.abc import Iterable
from io import BytesIO

from marpack.weights.pickle_machine import Global

# Whole modules, whose functions reach out of the process, run code or load more of it.
_MODULES = frozenset(
    """
    os posix nt subprocess sys shutil socket ssl ctypes _ctypes pty runpy importlib _imp imp zipimport pkgutil
    pickle _pickle dill cloudpickle marshal shelve code codeop bdb pdb cProfile profile timeit trace doctest pydoc
    site venv ensurepip pip setuptools distutils webbrowser urllib http ftplib smtplib poplib imaplib telnetlib
    xmlrpc requests aiohttp httpx asyncio commands popen2 fileinput antigravity idlelib lib2to3 _osx_support
    _aix_support _pyrepl numpy.f2py torch.hub torch.utils.cpp_extension torch.ops torch._ops torch.package
    torch.distributed.rpc
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
    torch._inductor.codecache.compile_file torch.utils.collect_env.run torch.fx.graph_module._forward_from_src
    torch.utils._config_module.ConfigModule.load_config torch.jit.unsupported_tensor_ops.execWrapper
    torch._dynamo.guards.GuardBuilder.get torch.fx.experimental.symbolic_shapes.ShapeEnv.evaluate_guards_expression
    torch.utils.bottleneck.__main__.run_cprofile torch.utils.bottleneck.__main__.run_autograd_prof
    numpy.load numpy.loads numpy.lib.npyio.load numpy.testing._private.utils.runstring joblib.load
    joblib.numpy_pickle.load pandas.read_pickle pandas.io.pickle.read_pickle pandas.eval
    yaml.load yaml.unsafe_load yaml.full_load jsonpickle.decode
    """.split()  # noqa: SIM905 - as above
)
# As an attribute of whatever module: reached through it, these are the real ones.
_ATTRIBUTES = frozenset(
    "os posix nt subprocess sys builtins __builtins__ importlib shutil socket ctypes pickle runpy".split()  # noqa: SIM905
)


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
