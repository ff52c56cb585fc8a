"""Handlers and model files, right and wrong, with what should be found; a real server agrees on every row."""
# ruff: noqa: E501 - a row of these tables is a line

from inspection.lint.case import BASE, CLASS, FUNCTION, NET, Case
from inspection.lint.weights_files import weights

SCRIPT = {"model.pt": weights("script")}
SERIALIZED = {"serialized_file": "model.pt"}
EAGER = {"serialized_file": "model.pt", "model_file": "model.py"}


def handler(name: str, source: str, *expected: str, **options: object) -> Case:
    return Case(name, {"handler.py": source}, expected, **options)


def stages(*methods: str) -> str:
    """Return a handler on BaseHandler that needs no model, with these further methods."""
    lines = ["from ts.torch_handler.base_handler import BaseHandler", "", "", "class Handler(BaseHandler):"]
    lines += ["    def initialize(self, context):", "        pass", "", *(f"    {line}" for line in methods)]
    return "\n".join(lines) + "\n"


PASSING = ("def preprocess(self, data): return data", "def inference(self, data): return data")
MANY = "E handler-many-classes handler.py:"

COUNTING = [
    handler("class", CLASS),
    handler("function", FUNCTION),
    handler("dataclass-beside", f"from dataclasses import dataclass\n@dataclass\nclass A: x: int\n{CLASS}", MANY + "3"),
    handler("metaclass-beside", f"class Meta(type): pass\n{CLASS}", MANY + "1"),
    handler("namedtuple-call", f"from collections import namedtuple\nP = namedtuple('P', 'a b')\n{CLASS}", fails=True),
    handler("alias", f"{CLASS}Other = Handler\n", fails=True),
    handler("two-under-one-name", f"class Handler: pass\n{CLASS}"),
    handler("newtype", f"from typing import NewType, TypeVar\nA = NewType('A', int)\nT = TypeVar('T')\n{CLASS}"),
    handler("generic-aliases", f"from typing import Dict\nA = Dict[str, int]\nB = list[int]\n{CLASS}C = list[Handler]\n"),
    handler("everyday-expressions", f"import os, torch\nDEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'\nName = os.getenv('A') or 'b'\n"
            f"Path = os.path.join('a', 'b')\n{CLASS}Service = Handler() if DEVICE else None\n"),
    handler("function-asking-for-types", f"def kind(x): return type(x).__name__\nlabel = kind(1)\n{CLASS}"),
    handler("chosen-class", f"{CLASS}Chosen = Handler if Handler else None\n", fails=True),
    handler("registered-class", f"NETS = dict(a=int)\nChosen = NETS['a']\n{CLASS}"),
    handler("instance", f"{CLASS}_service = Handler()\n"),
    handler("main-guard", f"{CLASS}if __name__ == '__main__':\n    class Demo: pass\n"),
    handler("type-checking", f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    class T: pass\n{CLASS}"),
    handler("not-type-checking", f"from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    class T: pass\n{CLASS}", MANY + "3"),
    handler("under-if", f"import sys\nif sys.argv:\n    class Extra: pass\n{CLASS}",
            fails=True),
    handler("try-fallback", f"try:\n    from nowhere import Extra\nexcept ImportError:\n    class Extra: pass\n{CLASS}", fails=True),
    handler("made-by-function", f"def make():\n    class X: pass\n    return X\nX = make()\n{CLASS}", fails=True),
    handler("bound-by-a-function", f"def later():\n    global handle\n    handle = 1\n{CLASS}"),
    handler("unknown-decorator", "def keep(cls): return cls\n@keep\n" + CLASS),
    handler("class-of-another-module", f"class A:\n    __module__ = 'elsewhere'\n{CLASS}"),
    handler("dataclass-handler", f"from dataclasses import dataclass\n@dataclass\n{CLASS}"),
    handler("classes-but-function", f"class A: pass\nclass B: pass\n{FUNCTION}"),
    handler("imported-only", "from ts.torch_handler.base_handler import BaseHandler\n",
            "E handler-no-entry handler.py"),
    handler("nothing", "x = 1\n", "E handler-no-entry handler.py"),
    handler("empty", "", "E handler-no-entry handler.py"),
    Case("star-classes-do-not-count", {"handler.py": f"from other import *\n{CLASS}", "other.py": "class Q: pass\n"}),
    Case("star-function", {"handler.py": "from other import *\n", "other.py": FUNCTION}),
    Case("imported-function", {"handler.py": "from other import handle\n", "other.py": FUNCTION}),
    Case("reexported-many-times", {**{f"m{i}.py": f"from m{i + 1} import handle\n" for i in range(15)}, "m15.py": "def handle(): return [1]\n",
         "handler.py": "from m0 import handle\n"}, ("E handler-signature m15.py:1",)),
    Case("reexported-in-a-circle", {"handler.py": "from a import handle\n", "a.py": "from b import handle\n",
         "b.py": "from a import handle\n"}, fails=True),
    Case("imported-class", {"handler.py": "from other import Handler\n", "other.py": CLASS},
         ("E handler-no-entry handler.py",)),
    Case("derived-by-star-of-the-server", {"handler.py": "from math import *\nfrom ts.torch_handler.base_handler import *\nclass H(BaseHandler):\n"
         "    def initialize(self, context): pass\n    def preprocess(self, data, context): return data\n"}, fails=True),
    Case("derived-by-module", {"handler.py": "import other\nclass Mine(other.Handler): pass\n", "other.py": CLASS}),
    Case("derived-by-module-in-vain", {"handler.py": "import other\nclass Mine(other.Handler): pass\n",
         "other.py": CLASS.replace("handle", "handel")}, ("E handler-method-missing handler.py:2",)),
    Case("derived-in-vain", {"handler.py": "from other import Handler\nclass Mine(Handler): pass\n",
         "other.py": CLASS.replace("initialize", "initialyze")}, ("E handler-method-missing handler.py:2",)),
    Case("derived-as-a-diamond", {"handler.py": "from other import B, C\nclass H(B, C): pass\n",
         "other.py": f"{CLASS}class B(Handler): pass\nclass C(Handler):\n    def handle(self, data): return [1]\n"},
         ("E handler-signature other.py:9",)),
    Case("derived-from-packed", {"handler.py": "from other import Handler\nclass Mine(Handler): pass\n", "other.py": CLASS}),
]  # fmt: skip

CALLING = [
    handler("bound-method", f"{CLASS}_service = Handler()\nhandle = _service.handle\n",
            fails=True),  # its class is never initialized: the function is called with None
    handler("lambda", "handle = lambda data, context: [1] * len(data or [])\n"),
    handler("constant-handle", "handle = 3\n", "E handler-not-callable handler.py:1"),
    handler("too-few-parameters", "def handle(data): return [1]\n", "E handler-signature handler.py:1"),
    handler("too-many-parameters", "def handle(data, context, more): return [1]\n", "E handler-signature handler.py:1"),
    handler("keyword-only", "def handle(data, context, *, k): return [1]\n", "E handler-signature handler.py:1"),
    handler("varargs", "def handle(*args, **kwargs): return [1]\n"),
    handler("async-function", "async def handle(data, context): return [1]\n", "E handler-async handler.py:1"),
    handler("generator-function", "def handle(data, context):\n    yield 1\n", "E handler-generator handler.py:1"),
    handler("returns-nothing", "def handle(data, context):\n    x = 1\n", "E handler-returns-nothing handler.py:1"),
    handler("only-raises", "def handle(data, context):\n    if data:\n        raise ValueError\n    return [1]\n", answers=False),
    handler("returns-dict", "def handle(data, context):\n    if data is None:\n        return None\n    return {'a': 1}\n",
            "W handler-returns-no-list handler.py:4", fails=True),
    handler("returns-json-text", "import json\ndef handle(data, context):\n    return json.dumps([1])\n",
            "W handler-returns-no-list handler.py:3", fails=True),
    handler("returns-none", "def handle(data, context): return None\n", "E handler-returns-nothing handler.py:1"),
    *(handler(f"returns-{name}", f"def handle(data, context):\n    return {text}\n", "W handler-returns-no-list handler.py:2", fails=True)
      for name, text in (("text", "'a'"), ("number", "3"), ("boolean", "True"), ("tuple", "(1,)"), ("set", "{1}"),
                         ("comprehension", "{a: a for a in 'ab'}"), ("generator", "(a for a in 'ab')"), ("format", "f'{data}'"))),
    handler("no-handle", "class H:\n    def initialize(self, context): pass\n", "E handler-method-missing handler.py:1"),
    handler("handle-on-instance", "class H:\n    def __init__(self): self.handle = lambda data, context: [1]\n"
            "    def initialize(self, context): pass\n"),
    handler("handle-on-demand", "class H:\n    def initialize(self, context): pass\n"
            "    def __getattr__(self, name): return lambda data, context: [1]\n"),
    handler("needs-argument", CLASS.replace("class Handler:", "class Handler:\n    def __init__(self, x): pass"),
            "E class-needs-arguments handler.py:2"),
    handler("field-with-default", f"from dataclasses import dataclass\n@dataclass\n{CLASS}    x: int = 1\n"),
    handler("initialize-takes-nothing", CLASS.replace("(self, context)", "(self)"), "E handler-signature handler.py:2",
            "W undefined-name handler.py:3"),
    handler("handle-without-self", CLASS.replace("(self, data, context)", "(data, context)"),
            "E handler-signature handler.py:5"),
    handler("static-handle", CLASS.replace("    def handle(self, ", "    @staticmethod\n    def handle(")),
    handler("async-method", CLASS.replace("    def handle", "    async def handle"), "E handler-async handler.py:5"),
    handler("stage-with-context", stages("def preprocess(self, data, context): return data"),
            "E handler-stage handler.py:8"),
    handler("skips-initialize", stages("def postprocess(self, data): return [self.mapping['0']]", *PASSING),
            "W handler-skips-initialize handler.py:8", fails=True),
    handler("skips-initialize-model", stages("def handle(self, data, context): return [self.model(1)]"),
            "W handler-skips-initialize handler.py:8", fails=True),
    handler("skips-initialize-and-asks", stages("def postprocess(self, data): return [self.mapping['0'] if self.mapping else 1]", *PASSING)),
    handler("skips-initialize-and-sets", stages("def preprocess(self, data): self.mapping = {'0': 1}; return data",
            "def inference(self, data): return data", "def postprocess(self, data): return [self.mapping['0']]")),
    handler("skips-initialize-and-setattr", stages("def preprocess(self, data): setattr(self, 'mapping', {'0': 1}); return data",
            "def inference(self, data): return data", "def postprocess(self, data): return [self.mapping['0']]")),
    handler("skips-initialize-until-later", stages("def preprocess(self, data): super().initialize(self.context); return data",
            "def inference(self, data): return data", "def postprocess(self, data): return [self.mapping['0']]"), fails=True),
    handler("skips-nothing", "class Handler:\n    def initialize(self, context): pass\n"
            "    def handle(self, data, context): return [self.device.type]\n", fails=True),
    handler("async-stage", stages("async def preprocess(self, data): return data"), "E handler-stage handler.py:8"),
    handler("postprocess-returns-nothing", stages("def postprocess(self, data): print(data)"),
            "E handler-returns-nothing handler.py:8"),
    handler("postprocess-returns-dict", stages(
            "def preprocess(self, data): return data", "def inference(self, data): return data",
            "def postprocess(self, data): return {'a': 1}"), "W handler-returns-no-list handler.py:10", fails=True),
    handler("own-handle-own-stages", stages(
            "def preprocess(self, data, context): return data",
            "def handle(self, data, context): return [self.preprocess(data, context)]")),
    Case("cross-module-mro", {
        "handler.py": "from mixin import Quick\nfrom ts.torch_handler.base_handler import BaseHandler\n"
                      "class H(Quick, BaseHandler):\n    def initialize(self, c): pass\n",
        "mixin.py": "class Quick:\n    def handle(self, data, context): return [1]\n"}),
    handler("unknown-base", "try:\n    from nowhere import Base\nexcept ImportError:\n    Base = object\nclass H(Base): pass\n", fails=True),
]  # fmt: skip

FILES = [
    Case("function-by-name", {"handler.py": FUNCTION.replace("handle", "go")}, model={"handler": "handler.py:go"}),
    Case("function-missing", {"handler.py": CLASS}, ("W handler-function-missing MAR-INF/MANIFEST.json: model.handler",),
         model={"handler": "handler.py:gone"}),
    Case("function-and-class-missing", {"handler.py": "x = 1\n"},
         ("E handler-no-entry handler.py",), model={"handler": "handler.py:gone"}),
    Case("class-as-function", {"handler.py": CLASS}, ("E handler-not-callable handler.py:1",),
         model={"handler": "handler.py:Handler"}),
    Case("method-as-function", {"handler.py": CLASS}, ("W handler-function-missing MAR-INF/MANIFEST.json: model.handler",),
         model={"handler": "handler.py:Handler.handle"}),
    Case("without-suffix", {"handler.py": CLASS}, model={"handler": "handler"}),
    Case("dash-in-name", {"my-handler.py": CLASS}, model={"handler": "my-handler.py"}),
    Case("dot-in-name", {"handler.v2.py": CLASS}, ("E handler-file-name handler.v2.py",),
         model={"handler": "handler.v2.py"}),
    Case("in-folder", {"src/handler.py": CLASS}, ("E handler-missing MAR-INF/MANIFEST.json: model.handler",),
         model={"handler": "src/handler.py"}),
    Case("in-package", {"src/__init__.py": "", "src/handler.py": CLASS}, model={"handler": "src.handler"}),
    Case("missing", {"hander.py": CLASS}, ("E handler-missing MAR-INF/MANIFEST.json: model.handler",)),
    Case("built-in-misspelt", SCRIPT, ("E handler-missing MAR-INF/MANIFEST.json: model.handler",),
         model={"handler": "image_clasifier", **SERIALIZED}),
    Case("built-in", SCRIPT, model={"handler": "image_classifier", **SERIALIZED}, answers=False),
    Case("built-in-base", SCRIPT, model={"handler": "vision_handler", **SERIALIZED}, answers=False),
    Case("no-handler-module", SCRIPT, ("E handler-not-a-handler MAR-INF/MANIFEST.json: model.handler",),
         model={"handler": "contractions"}),
    Case("built-in-shadowed", {"image_classifier.py": CLASS}, ("N handler-shadows-built-in image_classifier.py",),
         model={"handler": "image_classifier"}),
    Case("needs-engine", {}, ("E handler-async MAR-INF/MANIFEST.json: model.handler",
         "N handler-needs-engine MAR-INF/MANIFEST.json: model.handler"), model={"handler": "vllm_handler"}),
    Case("installed-elsewhere", {}, ("W handler-unknown MAR-INF/MANIFEST.json: model.handler",),
         model={"handler": "acme.serving"}, fails=True),
    Case("pythons-own", {"os.py": CLASS}, ("E handler-never-found MAR-INF/MANIFEST.json: model.handler",),
         model={"handler": "os.py"}),
    Case("hidden-by-package", {"handler.py": CLASS, "handler/__init__.py": ""},
         ("E handler-no-entry handler/__init__.py", "W module-hidden handler.py")),
    Case("hidden-by-library", {"handler.py": CLASS, "handler.so": b"\x7fELF"},
         ("N source-unchecked handler.so", "W module-hidden handler.py"), fails=True),
    Case("package-handler", {"handler/__init__.py": "from .inner import handle\n", "handler/inner.py": FUNCTION},
         model={"handler": "handler"}),
    Case("folder-only", {"handler/readme.txt": ""}, ("E handler-missing MAR-INF/MANIFEST.json: model.handler",)),
    handler("syntax-error", "def handle(data, context)\n    return []\n", "E source-syntax handler.py:1"),
    handler("null-byte", "x = 1\0\n", "E source-syntax handler.py"),
    Case("bom", {"handler.py": b"\xef\xbb\xbf" + CLASS.encode()}),
    Case("latin-1", {"handler.py": "# coding: latin-1\nx = 'é'\n".encode("latin-1") + CLASS.encode()}),
    Case("latin-1-undeclared", {"handler.py": "x = 'é'\n".encode("latin-1") + CLASS.encode()},
         ("E source-syntax handler.py:1",)),
    Case("unknown-encoding", {"handler.py": "# coding: klingon\n" + CLASS}, ("E source-syntax handler.py:1",)),
    handler("invalid-escape", "x = '\\d'\n" + CLASS),
]  # fmt: skip

MODELS = [
    Case("eager", {"handler.py": BASE, "model.py": NET, "model.pt": weights("state_dict")}, model=EAGER),
    Case("two-models", {"handler.py": BASE, "model.py": f"{NET}class Z(nn.Module): pass\n", "model.pt": weights("state_dict")},
         ("E model-many-classes model.py:11",), model=EAGER),
    Case("block-imported", {"handler.py": BASE, "model.py": f"from blocks import Block\n{NET}", "model.pt": weights("state_dict"),
         "blocks.py": "class Block: pass\n"}, model=EAGER),
    Case("no-model", {"handler.py": BASE, "model.py": "x = 1\n", "model.pt": weights("state_dict")},
         ("E model-no-class model.py",), model=EAGER),
    Case("model-imported", {"handler.py": BASE, "model.py": "from net import Net\n", "net.py": NET,
         "model.pt": weights("state_dict")}, ("E model-no-class model.py",), model=EAGER),
    Case("model-needs-argument", {"handler.py": BASE, "model.py": NET.replace("__init__(self)", "__init__(self, n)", 1),
         "model.pt": weights("state_dict")}, ("E class-needs-arguments model.py:5",), model=EAGER),
    Case("model-undecided", {"handler.py": BASE, "model.py": f"import sys\nif sys.argv:\n    class A: pass\n{NET}",
         "model.pt": weights("state_dict")}, model=EAGER, fails=True),
    Case("plain-class", {"handler.py": BASE, "model.py": "class Net: pass\n", "model.pt": weights("state_dict")},
         ("E model-not-a-module model.py:1",), model=EAGER),
    Case("model-file-missing", {"handler.py": BASE, "model.pt": weights("state_dict")},
         ("E model-file-missing MAR-INF/MANIFEST.json: model.modelFile",), model=EAGER),
    Case("model-file-dotted", {"handler.py": BASE, "net.v2.py": NET, "model.pt": weights("state_dict")},
         ("E model-file-name net.v2.py",), model={**EAGER, "model_file": "net.v2.py"}),
    Case("model-file-in-folder", {"handler.py": BASE, "nets/model.py": NET, "model.pt": weights("state_dict")},
         ("E model-file-name nets/model.py",), model={**EAGER, "model_file": "nets/model.py"}),
    Case("model-file-dashed", {"handler.py": BASE, "my-net.py": NET, "model.pt": weights("state_dict")},
         model={**EAGER, "model_file": "my-net.py"}),
    Case("model-file-pythons-own", {"handler.py": BASE, "io.py": NET, "model.pt": weights("state_dict")},
         ("E model-file-name io.py",), model={**EAGER, "model_file": "io.py"}),
    Case("model-file-broken", {"handler.py": BASE, "model.py": "class Net(:\n", "model.pt": weights("state_dict")},
         ("E source-syntax model.py:1",), model=EAGER),
    Case("own-initialize-weighs-less", {"handler.py": CLASS, "model.py": f"{NET}class B(nn.Module): pass\n"},
         ("N model-many-classes model.py:11",), model={"model_file": "model.py"}),
]  # fmt: skip

# Nothing is reported about a name that a branch binds, or that is bound twice.
FORKS = [
    handler("fork-overwritten", f"import sys\nif sys.argv:\n    class Handler: pass\nelse:\n    Handler = 1\n{CLASS}"),
    handler("fork-try-or-raise", "try:\n    def handle(data, context): return [1]\nexcept ImportError:\n    raise\n"),
]  # fmt: skip

CASES = [*COUNTING, *CALLING, *FILES, *MODELS, *FORKS]
