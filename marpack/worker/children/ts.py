"""The first `import ts` of a process that a handler started: makes way for marpack's, which imports everything."""

import importlib
import sys

from marpack.worker import ts_names

ts_names.install()
del sys.modules[__name__]
importlib.import_module("ts")  # the import system returns the module that has the name at the end
