"""The modules, names, built-in handlers and packages of a stock TorchServe 0.12, and the providers of imports.

Sources: Python 3.8 to 3.12, the requirement files of the server's images, and `sys.modules` of a worker.
"""

import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

_PACKAGE = "ts.torch_handler."
_CROP = 224 / 256
TOPK = 5  # classes that image_classifier answers with


class BuiltIn(Struct, frozen=True):
    """A handler of the server's own, under the name that a manifest gives it."""

    name: str  # the module's, below ts.torch_handler
    cls: str  # the class that answers
    engine: str | None = None  # the engine that it needs, if marpack does not provide it
    offered: bool = False  # to authors of archives (contract §1); handlers derive from the others
    loads: bool = False  # its own `initialize` loads the model as BaseHandler's does
    is_async: bool = False  # its `handle` is a coroutine
    pictures: bool = False  # takes pictures, as bytes and in base64
    crop: float | None = None  # the share of a picture's width and height that it looks at, in the middle
    classifies: bool = False  # answers `{label: probability}`
    topk: int | None = None  # of so many classes, and fails with fewer; None: of all
    detects: bool = False  # answers boxes by their labels

    @property
    def module(self) -> str:
        """The server's module."""
        return _PACKAGE + self.name

    @property
    def dotted(self) -> str:
        """The class that answers, by its dotted name."""
        return f"{self.module}.{self.cls}"


_ROWS = (
    BuiltIn("base_handler", "BaseHandler", offered=True, loads=True),
    BuiltIn("image_classifier", "ImageClassifier", offered=True, pictures=True, crop=_CROP, classifies=True, topk=TOPK),
    BuiltIn("image_segmenter", "ImageSegmenter", offered=True, pictures=True, crop=_CROP),
    BuiltIn("object_detector", "ObjectDetector", offered=True, loads=True, pictures=True, detects=True),
    BuiltIn("text_classifier", "TextClassifier", offered=True, classifies=True),
    BuiltIn("vision_handler", "VisionHandler", loads=True, pictures=True),
    BuiltIn("text_handler", "TextHandler", loads=True),
    BuiltIn("densenet_handler", "DenseNetHandler"),
    BuiltIn("dali_handler", "DALIHandler", engine="NVIDIA DALI", loads=True),
    BuiltIn("dali_image_classifier", "DALIImageClassifier", engine="NVIDIA DALI", offered=True),
    BuiltIn("vllm_handler", "VLLMHandler", engine="vLLM", offered=True, is_async=True),
    BuiltIn("trt_llm_handler", "TRTLLMHandler", engine="TensorRT-LLM", offered=True, is_async=True),
    BuiltIn("distributed.base_pippy_handler", "BasePippyHandler"),
    BuiltIn("distributed.base_deepspeed_handler", "BaseDeepSpeedHandler"),
)
BUILT_INS = {row.name: row for row in _ROWS}
BASE = BUILT_INS["base_handler"].dotted
# Optional keys of the manifest's model → the kind of file, torch-model-archiver's flag, the key of marpack.yaml.
MANIFEST_FILES = {
    "modelFile": ("model file", "--model-file", "model_file"),
    "serializedFile": ("weights file", "--serialized-file", "weights"),
    "requirementsFile": ("requirements file", "--requirements-file", "requirements"),
    "configFile": ("model config", "--config-file", "config"),
}
# What BaseHandler's `initialize` sets, and handlers rely on.
SET_BY_INITIALIZE = ("mapping", "model", "device", "manifest", "model_pt_path", "map_location", "model_yaml_config")


def built_in_of(dotted: str) -> BuiltIn | None:
    """Return the built-in whose class has this dotted name."""
    return next((row for row in BUILT_INS.values() if row.dotted == dotted), None)


class HandlerName(Struct, frozen=True):
    """A manifest's `handler`, taken apart as the server does (contract §2)."""

    path: str  # up to the colon
    function: str | None = None  # after the colon; None: without a colon

    @classmethod
    def parse(cls, text: str) -> "HandlerName":
        """Parse `built_in`, `file.py`, `folder/file.py:function`, or a file without its `.py`."""
        path, colon, function = text.partition(":")
        return cls(path, function if colon else None)

    @property
    def base(self) -> str:
        """The file's name without its folders, which is all that the server imports."""
        return self.path.rpartition("/")[2]

    @property
    def module(self) -> str:
        """The name that the server imports."""
        return self.base.removesuffix(".py")

    @property
    def folder(self) -> str | None:
        """The folder that comes first on the search path: of `folder/file.py:function`, and of no other form."""
        folder, slash, _ = self.path.rpartition("/")
        return folder if slash and self.function is not None else None


class ServerModule(Struct, frozen=True):
    """One module of the server's."""

    names: str  # the names that it binds, without submodules
    needs: str | None = None  # a package that a stock server lacks


class HandlerClass(Struct, frozen=True):
    """One handler class of the server's."""

    bases: str  # among the handler classes, dotted
    methods: str  # that it defines itself


class _Facts(Struct, frozen=True):
    modules: dict[str, ServerModule]
    classes: dict[str, HandlerClass]


def has_module(module: str) -> bool:
    """Return whether `ts` or `ts.…` is a module of the server's."""
    return module in modules()


def modules() -> Mapping[str, ServerModule]:
    """Return every module by its dotted name."""
    return _facts().modules


def names_of(module: str) -> frozenset[str]:
    """Return what can be imported from a module of the server's: its names and its submodules."""
    inner = (name.removeprefix(f"{module}.") for name in modules() if name.startswith(f"{module}."))
    return names_held(module) | {name for name in inner if "." not in name}


def names_held(module: str) -> frozenset[str]:
    """Return what a module of the server's binds, submodules apart."""
    return frozenset(modules()[module].names.split())


def needs_of(module: str) -> str | None:
    """Return the package that a module needs and a stock server lacks, if any."""
    return modules()[module].needs if module in modules() else None


def handler_class(name: str) -> str | None:
    """Return the dotted name of the server's handler class of this name, if there is one."""
    return next((dotted for dotted in classes() if dotted.rpartition(".")[2] == name), None)


def classes() -> Mapping[str, HandlerClass]:
    """Return every handler class by its dotted name."""
    return _facts().classes


@cache
def _facts() -> _Facts:
    return msgspec.json.decode(Path(__file__).with_name("server_modules.json").read_bytes(), type=_Facts)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# In the standard library of a Python that the server runs on, gone from later ones.
_BYGONE = _names(
    """
    aifc asynchat asyncore audioop binhex cgi cgitb chunk crypt distutils dummy_threading formatter imghdr imp lib2to3
    mailcap msilib nis nntplib ossaudiodev parser pipes smtpd sndhdr spwd sunau symbol telnetlib uu xdrlib
    """
)
STANDARD = frozenset(sys.stdlib_module_names) | _BYGONE | {"tomllib", "graphlib", "zoneinfo"}

# Found in the frozen or built-in part of some Python, or loaded before the search path counts: a file of this name
# is not what `import` finds.
UNREACHABLE = _names(
    """
    sys builtins time errno gc marshal posix pwd itertools atexit faulthandler abc codecs io os site stat genericpath
    ntpath posixpath importlib zipimport runpy encodings
    """
)
# Written in C, and built in or not as the Python goes.
COMPILED = _names("array binascii cmath fcntl grp math mmap resource select unicodedata zlib")
NEVER_FOUND = UNREACHABLE | COMPILED  # in the model folder: another module of that name is loaded first
# Loaded by a worker, from files, before it loads a handler, and needed: a module of this name in the model folder comes
# first, and no worker comes up. (Others it loads and does not use by then: calendar, gzip, locale …)
LOADED = _names(
    """
    argparse ast asyncio base64 bisect collections concurrent contextlib contextvars copy copyreg ctypes
    dataclasses datetime dis email enum fnmatch functools gettext glob heapq http inspect json keyword linecache
    logging multiprocessing numbers opcode operator pathlib pickle platform pprint queue quopri random re
    reprlib selectors signal socket ssl string struct subprocess tempfile textwrap threading timeit token
    tokenize traceback types typing unittest urllib uuid warnings weakref
    """
)
# Of those, the ones that were once packages of their own, and may be packed as complete substitutes.
SUBSTITUTABLE = _names("argparse asyncio contextvars dataclasses enum pathlib typing unittest uuid")
# Not the standard library's, and loaded just the same.
SERVER_LOADED = frozenset({"numpy", "yaml", "ts"})

# By import name, what the server needs, what its images install, and what those bring along.
INSTALLED = _names(
    """
    torch torchvision torchaudio torchgen functorch ts model_archiver numpy PIL psutil packaging wheel yaml
    requests captum pynvml ninja setuptools pkg_resources _distutils_hack pip cython Cython cpuinfo
    typing_extensions filelock sympy mpmath networkx jinja2 markupsafe fsspec triton tqdm matplotlib mpl_toolkits pylab
    cycler kiwisolver pyparsing dateutil six contourpy fontTools urllib3 certifi idna charset_normalizer
    """
)
# Of those, the ones that are one file, which `pip install -t` leaves at the archive's root.
SINGLE_FILES = _names("typing_extensions six pylab pynvml cpuinfo")

# By distribution, the versions that its images pin, for Python 3.9; no file of the server's pins the others.
PINNED = dict(
    pin.split("==")
    for pin in _names(
        """
        torch==2.4.0 torchvision==0.19.0 torchaudio==2.4.0 numpy==1.24.3 pillow==10.3.0 cython==3.0.5 wheel==0.42.0
        psutil==5.9.8 requests==2.32.0 captum==0.6.0 packaging==23.2 pynvml==11.5.0 pyyaml==6.0.1 ninja==1.11.1.1
        torchserve==0.12.0 torch-model-archiver==0.12.0
        """
    )
)
# Their own requirements of packages that no file pins; a copy in a model folder is used by them as well.
ASKED = ("typing-extensions>=4.8.0", "charset-normalizer>=2,<4", "idna>=2.5,<4", "urllib3>=1.21.1,<3")


def is_standard(top: str) -> bool:
    """Return whether a top-level module belongs to the standard library of a Python that the server runs on."""
    return top in STANDARD


def breaks_worker(top: str) -> bool:
    """Return whether a module of this name in the model folder takes the place of one the worker itself needs."""
    return top in LOADED or top in SERVER_LOADED


class _Tables(Struct, frozen=True):
    providers: dict[str, str]  # import name → distributions, where neither the same nor a spelling of it
    brings: dict[str, str]  # distribution → imports that it always brings along through its own requirements
    namesakes: str  # distributions that are imported by their own names, those that handlers import most often
    homely: str  # names of people's own files, by which no distribution that they would install is imported


@cache
def _tables() -> _Tables:
    return msgspec.json.decode(Path(__file__).with_name("distributions.json").read_bytes(), type=_Tables)


def canonical(name: str) -> str:
    """Return a distribution's name in the index's own spelling (PEP 503)."""
    from packaging.utils import canonicalize_name  # noqa: PLC0415 - looking at most archives asks for no name

    return canonicalize_name(name)


def providers(top: str) -> frozenset[str]:
    """Return the distributions that may provide a top-level import, in canonical spelling."""
    return frozenset({canonical(top), *_tables().providers.get(top, "").split()})


def provided(top: str, required: Iterable[str]) -> bool:
    """Return whether one of the required distributions (canonical names) provides, or always brings, an import."""
    names = set(required)
    if names & providers(top) or any(top in _tables().brings.get(name, "").split() for name in names):
        return True
    return any(top in _imports_of(name) for name in names)


@cache
def _imports_of(name: str) -> frozenset[str]:
    from importlib import metadata  # noqa: PLC0415 - most archives need no more than the tables

    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return frozenset()
    declared = (found.read_text("top_level.txt") or "").split()
    files = (file for file in found.files or () if file.suffix == ".py")
    return frozenset(declared or (file.parts[0].removesuffix(".py") for file in files))


def is_known(top: str) -> bool:
    """Return whether the tables know an import as a distribution's."""
    return top in _tables().providers or top in _tables().namesakes.split()


def is_usual_file_name(top: str) -> bool:
    """Return whether an import must be one of the author's own files."""
    return top in _tables().homely.split()


def usual_provider(top: str) -> str | None:
    """Return the usual distribution of an import, from the tables alone; None for an import that they do not have.

    Never guess a name: anyone could publish a package under it, and a hint would make users install it.
    """
    return _tables().providers.get(top, canonical(top)).split()[0] if is_known(top) else None


def find_by_name_part(top: str, required: Iterable[str]) -> str | None:
    """Return the required distribution that an import may come from, by its name alone: `lru` from `lru-dict`."""
    name = canonical(top)
    return next((each for each in sorted(required) if each.startswith(f"{name}-") or each.endswith(f"-{name}")), None)
