"""The first `import ts` of a process that a handler started: makes way for the real thing, which imports everything."""

import importlib
import sys

from marpack.torchserve.ts import finder

finder.install()
del sys.modules[__name__]
importlib.import_module("ts")  # the import system takes what is found under the name in the end
