"""The Python that a stock TorchServe 0.12 runs on: its standard library, what is installed, what it has loaded already.

Facts: the standard libraries of Python 3.8 to 3.12; the requirement files of the server's images; `sys.modules` of
a worker before it loads a handler, whose search path begins with the model folder.
"""

import sys


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
    torch torchvision torchaudio torchtext torchgen functorch ts model_archiver numpy PIL psutil packaging wheel yaml
    requests captum pynvml ninja setuptools pkg_resources _distutils_hack pip cython Cython cpuinfo
    typing_extensions filelock sympy mpmath networkx jinja2 markupsafe fsspec triton tqdm matplotlib mpl_toolkits pylab
    cycler kiwisolver pyparsing dateutil six contourpy fontTools urllib3 certifi idna charset_normalizer
    """
)
# Of those, the ones that are one file, which `pip install -t` leaves at the archive's root.
SINGLE_FILES = _names("typing_extensions six pylab pynvml cpuinfo")


def is_standard(top: str) -> bool:
    """Say whether a top-level module belongs to the standard library of a Python that the server runs on."""
    return top in STANDARD


def never_found(top: str) -> bool:
    """Say whether a module of this name in the model folder loses against one that is there already."""
    return top in UNREACHABLE or top in COMPILED


def breaks_worker(top: str) -> bool:
    """Say whether a module of this name in the model folder takes the place of one the worker itself needs."""
    return top in LOADED or top in SERVER_LOADED
