"""Imports, requirements, weights, labels and model configs, right and wrong, with what should be found."""
# ruff: noqa: E501 - a row of these tables is a line

from inspection.lint.case import BASE, CLASS, FUNCTION, NET, Case
from inspection.lint.weights_files import bytes_of, weights

from marpack.protocol.targets import Target

EAGER = {"serialized_file": "model.pt", "model_file": "model.py"}
SERIALIZED = {"serialized_file": "model.pt"}
CONFIG = {"config_file": "model-config.yaml"}
MANIFEST = "MAR-INF/MANIFEST.json: model."


def imports(name: str, source: str, *expected: str, files: dict[str, str] | None = None, **options: object) -> Case:
    return Case(name, {"handler.py": f"{source}\n{CLASS}", **(files or {})}, expected, **options)


IMPORTS = [
    imports("pythons", "import os, json, xml.etree.ElementTree, concurrent.futures\nfrom collections import abc"),
    imports("bygone", "import asyncore, distutils.util", fails=False),
    imports("stock", "import torch, numpy as np, yaml, psutil, packaging.version\nfrom PIL import Image\nimport torchvision"),
    imports("unlisted", "import transformers", "W import-unlisted handler.py:1", fails=True),
    imports("guarded", "try:\n    import transformers\nexcept ImportError:\n    transformers = None"),
    imports("guarded-but-raised", "try:\n    import transformers\nexcept ImportError as error:\n    raise RuntimeError from error",
            "W import-unlisted handler.py:2", fails=True),
    imports("guarded-against-something-else", "try:\n    import transformers\nexcept ValueError:\n    pass",
            "W import-unlisted handler.py:2", fails=True),
    imports("in-the-guard-itself", "try:\n    import torch\nexcept ImportError:\n    import transformers",
            "N import-unlisted handler.py:4", fails=False),
    Case("in-a-class", {"handler.py": f"class A:\n    import transformers\n{FUNCTION}"}, ("W import-unlisted handler.py:2",),
         fails=True),
    imports("type-checking", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import transformers, model"),
    imports("under-main", "if __name__ == '__main__':\n    import transformers, model"),
    imports("conditional", "import sys\nif sys.version_info < (3, 0):\n    import model", "W import-not-packed handler.py:3",
            fails=False),
    imports("deferred", "def later():\n    import transformers", "N import-unlisted handler.py:2", fails=False),
    imports("sibling-missing", "from model import Net", "E import-not-packed handler.py:1"),
    imports("sibling-missing-deferred", "def later():\n    import utils", "W import-not-packed handler.py:2", fails=False),
    imports("sibling-in-folder", "import net", "E import-not-packed handler.py:1", files={"src/net.py": ""}),
    imports("sibling-in-folder-with-path", "import sys\nsys.path.append('src')\nimport net",
            "N import-not-packed handler.py:3", files={"src/net.py": ""}, fails=False),
    imports("sibling-in-zip", "import zipfile\nwith zipfile.ZipFile('code.zip') as archive:\n    archive.extractall()\n"
            "from model import Net", "N import-not-packed handler.py:4", files={"code.zip": "PK"}, fails=True),
    imports("vendored-elsewhere", "import tokenizers", "W import-not-packed handler.py:1",
            files={"vendor/tokenizers/__init__.py": ""}, fails=True),
    imports("relative", "from .model import Net", "E import-relative handler.py:1", files={"model.py": "Net = 1"}),
    imports("relative-in-package", "import pkg", files={"pkg/__init__.py": "from .inner import x", "pkg/inner.py": "x = 1"}),
    imports("relative-beyond-package", "import pkg", "E import-relative pkg/__init__.py:1",
            files={"pkg/__init__.py": "from ..inner import x", "inner.py": "x = 1"}),
    imports("name-missing", "from net import Nett", "E import-name-missing handler.py:1", files={"net.py": "Net = 1"}),
    imports("name-by-star", "from net import Net", files={"net.py": "from inner import *", "inner.py": "Net = 1"}),
    imports("name-on-demand", "from net import Net", files={"net.py": "def __getattr__(name): return 1"}),
    imports("name-maybe", "from net import Net", files={"net.py": "import sys\nif sys.argv:\n    Net = 1"}),
    imports("submodule-missing", "import pkg.inner", "E import-submodule-missing handler.py:1", files={"pkg/__init__.py": ""}),
    imports("namespace-missing", "from pkg import outer", "E import-submodule-missing handler.py:1", files={"pkg/inner.py": ""}),
    imports("followed", "import first", "W import-unlisted second.py:1",
            files={"first.py": "import second", "second.py": "import transformers"}, fails=True),
    imports("followed-first-deferred", "def later():\n    import first\nimport second", "W import-unlisted first.py:1",
            files={"first.py": "import transformers", "second.py": "import first"}, fails=True),
    imports("brought-by-pip", "import subprocess\nsubprocess.run(['true'])\nimport transformers", "N import-unlisted handler.py:3",
            fails=True),
    imports("relative-to-the-package-above", "import pkg.sub.deep", files={"pkg/__init__.py": "", "pkg/sub/__init__.py": "",
            "pkg/sub/deep.py": "from ..other import x\nfrom . import peer\nfrom .. import other", "pkg/sub/peer.py": "",
            "pkg/other.py": "x = 1"}),
    imports("followed-broken", "import first", "E source-syntax first.py:1", files={"first.py": "def ("}),
    imports("handler-module", "from base_handler import BaseHandler", "E import-handler-module handler.py:1"),
    imports("ts", "from ts.torch_handler.base_handler import BaseHandler\nfrom ts.context import Context\n"
            "from ts.utils.util import map_class_to_label, PredictionException\nfrom ts.torch_handler import image_classifier\n"
            "import ts.metrics.dimension\nfrom ts import __version__"),
    imports("ts-module", "from ts.torch_handler.basehandler import BaseHandler", "E ts-module-missing handler.py:1"),
    imports("ts-name", "from ts.torch_handler.vision_handler import Vision", "E ts-name-missing handler.py:1"),
    imports("ts-engine", "import ts.handler_utils.distributed.pt_pippy", "N ts-needs-engine handler.py:1", fails=True),
    Case("model-files-imports", {"handler.py": BASE, "model.py": f"import timm\n{NET}", "model.pt": weights("state_dict")},
         ("W import-unlisted model.py:1",), model=EAGER, fails=True),
]  # fmt: skip

# What breaks a worker breaks it before the loader runs; test_peer.py starts one for that.
SHADOWS = [
    imports("breaks-worker", "", "E module-breaks-worker types.py", files={"types.py": ""}, fails=False),
    imports("breaks-worker-package", "", "E module-breaks-worker json/__init__.py", files={"json/__init__.py": ""}, fails=False),
    imports("folder-breaks-nothing", "", files={"json/readme.txt": ""}),
    imports("shadows-torch", "", "W module-shadows torch.py", files={"torch.py": ""}, fails=False),
    Case("handler-breaks-worker", {"random.py": CLASS}, ("E module-breaks-worker random.py",), model={"handler": "random.py"}),
    Case("model-is-no-substitute", {"handler.py": BASE, "uuid.py": NET, "model.pt": weights("state_dict")},
         ("E module-breaks-worker uuid.py",), model={**EAGER, "model_file": "uuid.py"}),
    imports("substitute", "", "W module-shadows dataclasses.py", files={"dataclasses.py": ""}),
    imports("vendored", "", files={"requests/__init__.py": "", "typing_extensions.py": ""}),
    imports("never-found", "", "W module-never-found io.py", files={"io.py": ""}),
    imports("everyday-names", "import utils, service, context", files={"utils.py": "", "service.py": "", "context.py": ""}),
]  # fmt: skip


def required(name: str, text: str | bytes, *expected: str, **files: str) -> Case:
    note = "N requirements-need-setting requirements.txt"
    members = {
        "handler.py": CLASS,
        "requirements.txt": text,
        **{key.replace("__", "."): value for key, value in files.items()},
    }
    model = {"requirements_file": "requirements.txt"}
    return Case(name, members, (note, *expected), model=model, fails=False)  # only pip reads them


REQUIREMENTS = [
    required("plain", "numpy\ntorch>=2.0  # comment\n\n# more\nPillow[jpeg]==10.*\nscipy; python_version < '3.9'\n"),
    required("continued-and-more", "numpy \\\n  >=1.0\n=\n", "E requirements-line requirements.txt:3"),
    required("addresses", "a @ https://example.org/a.whl\ngit+https://example.org/b.git@main#egg=b\n"),
    required("utf-16", "numpy==1.0\r\n".encode("utf-16")),
    required("conda", "numpy=1.0=py39_0\n", "E requirements-line requirements.txt:1"),
    required("nonsense", "numpy\nthis is not one\n", "E requirements-line requirements.txt:2"),
    required("missing-include", "-r more.txt\n", "W requirements-missing requirements.txt:1"),
    required("include", "-r more.txt\n", more__txt="numpy\n"),
    required("include-wrong", "-r more.txt\n", "E requirements-line more.txt:1", more__txt="=\n"),
    required("local-wheel", "./a-1.0-py3-none-any.whl\n", "W requirements-path requirements.txt:1"),
    required("home-and-root", "~/a\n/b\n", "W requirements-path requirements.txt:1", "W requirements-path requirements.txt:2"),
    required("editable", "-e .\n-e ../lib\n", "W requirements-path requirements.txt:2"),
    required("unnamed", "https://example.org/\n", "N requirements-unnamed requirements.txt:1"),
    Case("requirements-in-a-folder", {"handler.py": CLASS, "pip/all.txt": "-r more.txt\n", "pip/more.txt": "=\n"},
         ("N requirements-need-setting pip/all.txt", "E requirements-line pip/more.txt:1"), model={"requirements_file": "pip/all.txt"},
         fails=False),
    Case("requirements-file-missing", {"handler.py": CLASS}, (f"W requirements-missing {MANIFEST}requirementsFile",),
         model={"requirements_file": "requirements.txt"}),
    Case("requirements-provide", {"handler.py": f"import cv2, sklearn, tokenizers, skimage.io\n{CLASS}",
         "requirements.txt": "opencv-python-headless\nscikit_learn\ntransformers\nscikit.image\n"},
         ("N requirements-need-setting requirements.txt",), model={"requirements_file": "requirements.txt"}, fails=True),
    Case("requirements-provide-from-addresses", {"handler.py": f"import odd, transformers\n{CLASS}", "requirements.txt":
         "https://example.org/odd-1.0-py3-none-any.whl\ntransformers @ https://example.org/transformers-4.0-py3-none-any.whl\n"},
         ("N requirements-need-setting requirements.txt",), model={"requirements_file": "requirements.txt"}, fails=True),
    Case("requirements-may-provide", {"handler.py": f"import odd\n{CLASS}", "requirements.txt": "git+https://example.org/x.git\n"},
         ("N requirements-need-setting requirements.txt", "N requirements-unnamed requirements.txt:1",
          "N import-unlisted handler.py:1"),
         model={"requirements_file": "requirements.txt"}, fails=True),
]  # fmt: skip


def eager(name: str, kind: str, *expected: str, handler: str = BASE, **options: object) -> Case:
    files = {"handler.py": handler, "model.py": NET, "model.pt": weights(kind)}
    return Case(f"eager-{name}", files, expected, model=EAGER, **options)


def alone(name: str, kind: str, file: str, *expected: str, handler: str = BASE, **options: object) -> Case:
    files = {"handler.py": handler, file: weights(kind)}
    return Case(f"alone-{name}", files, expected, model={"serialized_file": file}, **options)


OWN = BASE + "\n    def initialize(self, context):\n        self.model = None\n"
SUPER = BASE + "\n    def initialize(self, context):\n        super().initialize(context)\n        self.more = 1\n"
HOOK = BASE + "\n    def _load_torchscript_model(self, path):\n        return torch.nn.Linear(2, 2)\n"
MAYBE = BASE + "\n    def initialize(self, context):\n        if context:\n            super().initialize(context)\n"
SERVICE = (
    BASE
    + """\

    def handle(self, data, context):
        return [1]


_service = Handler()


def handle(data, context):
    if not _service.initialized:
        _service.initialize(context)
    return _service.handle(data, context) if data else None
"""
)
TEXT = "from ts.torch_handler.text_classifier import TextClassifier\nclass Handler(TextClassifier):\n    pass\n"
MODEL = "model.pt"
AOT = {"model-config.yaml": "pt2: {export: {aot_compile: true}}\n"}
ONNX_HANDLER = BASE + "\n    def inference(self, data):\n        return torch.zeros(1)\n"

WEIGHTS = [
    eager("state-dict", "state_dict"),
    eager("legacy", "legacy"),
    eager("script", "script", "E weights-content model.pt"),
    eager("whole", "whole", "E weights-pickled model.pt"),
    eager("objects", "objects", "W weights-objects model.pt", fails=True),
    alone("objects", "objects", "model.pt", "E weights-need-model-file model.pt"),
    eager("safetensors", "safetensors", "E weights-content model.pt"),
    eager("export", "export", "E weights-content model.pt"),
    eager("checkpoint", "checkpoint", "W weights-checkpoint model.pt", fails=True),
    eager("parallel", "parallel", "W weights-data-parallel model.pt", fails=True),
    eager("safetensors-for-marpack", "safetensors", target=Target.MARPACK, fails=True),
    eager("whole-for-marpack", "whole", "W weights-pickled model.pt", target=Target.MARPACK, fails=True),
    alone("script", "script", "model.pt"),
    alone("state-dict", "state_dict", "model.pt", "E weights-need-model-file model.pt"),
    alone("legacy", "legacy", "model.pt", "E weights-need-model-file model.pt"),
    alone("whole", "whole", "model.pt", "E weights-pickled model.pt"),
    alone("script-pth", "script", "model.pth", "E weights-suffix model.pth"),
    alone("script-pth-for-marpack", "script", "model.pth", target=Target.MARPACK, fails=True),
    alone("safetensors", "safetensors", "model.safetensors", "E weights-need-model-file model.safetensors"),
    alone("export", "export", "model.pt2", "E weights-suffix model.pt2"),
    alone("export-for-marpack", "export", "model.pt2", target=Target.MARPACK, fails=True),
    alone("export-as-pt", "export", "model.pt", "E weights-content model.pt"),
    alone("onnx", "onnx", "model.onnx", "E weights-onnx-inference model.onnx", "W weights-onnx-runtime model.onnx"),
    alone("onnx-own-inference", "onnx", "model.onnx", "W weights-onnx-runtime model.onnx", handler=ONNX_HANDLER, fails=True),
    alone("onnx-for-marpack", "onnx", "model.onnx", target=Target.MARPACK, fails=True),
    alone("onnx-as-pt", "onnx", "model.pt", "E weights-content model.pt"),
    alone("script-as-onnx", "script", "model.onnx", "E weights-content model.onnx"),
    alone("library", "elf", "model.so", "E weights-aot-setting model.so"),
    Case("library-with-setting", {"handler.py": BASE, "model.so": weights("elf"), **AOT},
         model={"serialized_file": "model.so", **CONFIG}, fails=True),
    Case("library-that-is-none", {"handler.py": BASE, "model.so": weights("script"), **AOT}, ("E weights-content model.so",),
         model={"serialized_file": "model.so", **CONFIG}),
    Case("weights-file-missing", {"handler.py": BASE}, (f"E weights-missing {MANIFEST}serializedFile",), model=SERIALIZED),
    Case("weights-file-missing-own", {"handler.py": OWN}, (f"W weights-missing {MANIFEST}serializedFile",), model=SERIALIZED,
         fails=None, answers=False),
    Case("weights-file-none", {"handler.py": BASE}, (f"E weights-none {MANIFEST}serializedFile",)),
    Case("weights-file-none-own", {"handler.py": OWN}, answers=False),
    Case("weights-untrained", {"handler.py": BASE, "model.py": NET}, (f"N weights-untrained {MANIFEST}serializedFile",),
         model={"model_file": "model.py"}),
    Case("weights-empty", {"handler.py": BASE, MODEL: b""}, ("E weights-absent model.pt",), model=SERIALIZED),
    Case("weights-lfs", {"handler.py": BASE, MODEL: "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"},
         ("E weights-absent model.pt",), model=SERIALIZED),
    Case("weights-text", {"handler.py": BASE, MODEL: "hello"}, ("E weights-absent model.pt",), model=SERIALIZED),
    Case("weights-unknown-suffix", {"handler.py": BASE, "model.safetensors": b"\0x"}, ("E weights-suffix model.safetensors",),
         model={"serialized_file": "model.safetensors"}),
    Case("weights-own-pickle", {"handler.py": OWN, "iris.pkl": b"\x80\x04N."}, model={"serialized_file": "iris.pkl"}, answers=False),
    Case("weights-own-booster", {"handler.py": OWN, "iris.txt": b"tree\nversion=v4\n"}, model={"serialized_file": "iris.txt"},
         answers=False),
    Case("weights-own-pointer", {"handler.py": OWN, "iris.pkl": b"version https://git-lfs.github.com/spec/v1\n"},
         ("N weights-absent iris.pkl",), model={"serialized_file": "iris.pkl"}, answers=False),
    Case("weights-null", {"handler.py": BASE}, (f"E weights-missing {MANIFEST}serializedFile",), model={"serialized_file": ""}),
    Case("config-null", {"handler.py": CLASS}, (f"E config-missing {MANIFEST}configFile",), model={"config_file": ""}),
    Case("unexpected-key", {"handler.py": BASE, "model.py": NET.replace("layer", "other"), "model.pt": weights("state_dict")},
         ("W weights-missing-key model.pt", "W weights-unexpected-key model.pt"), model=EAGER, fails=True),
    Case("missing-key", {"handler.py": BASE, "model.py": NET.replace("        self.layer", "        self.more = nn.Linear(1, 1)\n"
         "        self.layer", 1), "model.pt": weights("state_dict")}, ("W weights-missing-key model.pt",), model=EAGER, fails=True),
    Case("keys-made-unseen", {"handler.py": BASE, "model.py": "from torch import nn\nclass Net(nn.Module):\n"
         "    def __init__(self):\n        super().__init__()\n        self.add_module('lay' + 'er', nn.Linear(2, 2))\n"
         "    def forward(self, x): return x\n", "model.pt": weights("state_dict")}, model=EAGER),
    Case("keys-of-a-base", {"handler.py": BASE, "model.py": "from base import Base\nclass Net(Base): pass\n",
         "base.py": NET.replace("Net", "Base"), "model.pt": weights("state_dict")}, model=EAGER),
    Case("weights-unknown", {"handler.py": BASE, MODEL: b"\0hello" * 100}, ("W weights-unknown model.pt",), model=SERIALIZED,
         fails=True),
    Case("weights-truncated", {"handler.py": BASE, MODEL: lambda: bytes_of("script")[:-200]}, ("W weights-unknown model.pt",),
         model=SERIALIZED, fails=True),
    alone("own", "state_dict", "model.bin", "N weights-need-model-file model.bin", handler=OWN, answers=False),
    alone("own-safetensors", "safetensors", "model.safetensors", "N weights-need-model-file model.safetensors", handler=OWN,
          answers=False),
    alone("super", "state_dict", "model.pt", "E weights-need-model-file model.pt", handler=SUPER),
    alone("maybe", "state_dict", "model.pt", "W weights-need-model-file model.pt", handler=MAYBE, fails=True),
    alone("hook", "state_dict", "model.pt", "N weights-need-model-file model.pt", handler=HOOK),
    alone("touching-the-manifest", "state_dict", "model.pt", "N weights-need-model-file model.pt", fails=True, handler=SUPER.replace(
        "super()", "context.manifest['model']['serializedFile'] = 'other.pt'\n        super()")),
    alone("touching-its-own", "state_dict", "model.pt", "E weights-need-model-file model.pt", handler=SUPER.replace(
        "super()", "self.more, self.names = 1, {}\n        self.names['a'] = 1\n        super()")),
    alone("base-by-name", "state_dict", "model.pt", "E weights-need-model-file model.pt", handler=SUPER.replace(
        "super().initialize(", "BaseHandler.initialize(self, ")),
    alone("service", "state_dict", "model.pt", "W weights-need-model-file model.pt", handler=SERVICE, fails=True),
    alone("service-made-late", "state_dict", "model.pt", "N weights-need-model-file model.pt", fails=True, handler=SERVICE.replace(
        "_service = Handler()", "_service = None").replace("    if not", "    global _service\n    _service = _service or Handler()\n    if not")),
    alone("service-of-several", "state_dict", "model.pt", "N weights-need-model-file model.pt", fails=True, handler=SERVICE.replace(
        "_service = Handler()", "_service = [Handler()][0]")),
    Case("vocabulary-missing", {MODEL: weights("script")}, ("E vocabulary-missing source_vocab.pt",),
         model={"handler": "text_classifier", **SERIALIZED}),
    Case("text-batches", {MODEL: weights("script"), "source_vocab.pt": weights("vocabulary"), "m.yaml": "batchSize: 4\n"},
         ("W text-batches m.yaml:1",), model={"handler": "text_classifier", "config_file": "m.yaml", **SERIALIZED}, fails=True),
    Case("text-batches-for-marpack", {MODEL: weights("script"), "source_vocab.pt": weights("vocabulary"),
         "m.yaml": "batchSize: 4\n"}, model={"handler": "text_classifier", "config_file": "m.yaml", **SERIALIZED},
         target=Target.MARPACK, fails=True),
    Case("vocabulary-not-where-named", {MODEL: weights("script"), "source_vocab.pt": weights("vocabulary")},
         ("E vocabulary-missing words.pt",), model={"handler": "text_classifier", "extra": {"sourceVocab": "words.pt"}, **SERIALIZED}),
    Case("vocabulary-where-named", {MODEL: weights("script"), "words.pt": weights("vocabulary")},
         model={"handler": "text_classifier", "extra": {"sourceVocab": "words.pt"}, **SERIALIZED}, fails=True),
    Case("vocabulary-elsewhere", {"handler.py": TEXT.replace("pass", "get_source_vocab_path = str"), MODEL: weights("script")},
         model=SERIALIZED, fails=True),
    Case("vocabulary-own-way", {"handler.py": TEXT.replace("pass", "def initialize(self, context): pass")}, answers=False),
    Case("vocabulary-of-a-derived-class", {"handler.py": TEXT, MODEL: weights("script")}, ("E vocabulary-missing source_vocab.pt",),
         model=SERIALIZED),
    Case("text-batch-of-one", {MODEL: weights("script"), "source_vocab.pt": weights("vocabulary"), "m.yaml": "batchSize: 1\n"},
         model={"handler": "text_classifier", "config_file": "m.yaml", **SERIALIZED}, fails=True),
]  # fmt: skip


def labelled(name: str, text: str | bytes, *expected: str, handler: str | None = None, **options: object) -> Case:
    files = {"model.pt": weights("script"), "index_to_name.json": text, **({"handler.py": handler} if handler else {})}
    model = {"handler": "handler.py" if handler else "base_handler", **SERIALIZED}
    return Case(f"labels-{name}", files, expected, model=model, answers=False, **options)


FIVE = '{"0": "a", "1": "b", "2": "c", "3": "d", "4": "e"}'
TOPK = (
    "from ts.torch_handler.image_classifier import ImageClassifier\n\n\nclass Handler(ImageClassifier):\n    topk = 2\n"
)
CLASSIFIER = TOPK.replace("topk = 2", "pass")

LABELS = [
    labelled("number-value", '{"0": 1}', "E labels-value index_to_name.json: 0"),
    labelled("list-ending-in-number", '{"0": ["a", 1]}', "E labels-value index_to_name.json: 0"),
    labelled("many-wrong-values", '{"0": 0, "1": 1, "2": 2, "3": 3, "4": 4}', *(
        f"E labels-value index_to_name.json: {index}" for index in range(3)), "E labels-value index_to_name.json"),
    labelled("four-wrong-values", '{"0": 0, "1": 1, "2": 2, "3": 3}', *(
        f"E labels-value index_to_name.json: {index}" for index in range(3)), "E labels-value index_to_name.json"),
    labelled("inverted", '{"cat": "0", "dog": "1"}', "W labels-key index_to_name.json: cat"),
    labelled("padded-key", '{"00": "a"}', "W labels-key index_to_name.json: 00"),
    labelled("gap", '{"0": "a", "2": "c"}', "N labels-gap index_to_name.json"),
    labelled("gap-of-a-classifier", '{"0":"a","1":"b","2":"c","3":"d","5":"f"}', "W labels-gap index_to_name.json",
             handler=CLASSIFIER),
    labelled("far-gap", '{"0": "a", "99999999999999999": "b"}', "N labels-gap index_to_name.json"),
    labelled("nothing", "{}", "W labels-gap index_to_name.json"),
    labelled("duplicate", '{"0": "a", "1": "a"}', "N labels-duplicate index_to_name.json"),
    labelled("duplicate-key", '{"0": "a", "0": "b"}', "W labels-duplicate-key index_to_name.json"),
    labelled("number-among-names", '{"object_type_names": ["a", 1]}', "W labels-value index_to_name.json: object_type_names"),
    labelled("few-for-a-classifier", '{"0": "a", "1": "b"}', "W labels-few index_to_name.json", handler=CLASSIFIER),
    labelled("few-with-topk", '{"0": "a", "1": "b"}', handler=TOPK),
    labelled("few-for-marpack", '{"0": "a", "1": "b"}', handler=CLASSIFIER, target=Target.MARPACK),
    labelled("trailing-comma", '{\n"0": "a",\n}', "E labels-syntax index_to_name.json:3"),
    labelled("empty", "", "E labels-syntax index_to_name.json:1"),
    labelled("nested", "[" * 100_000, "E labels-syntax index_to_name.json"),
    labelled("endless-number", '{"0": ' + "9" * 5000 + "}", "E labels-syntax index_to_name.json"),
    labelled("bom", b"\xef\xbb\xbf{}", "E labels-encoding index_to_name.json:1"),
    labelled("latin-1", '{"0": "é"}'.encode("latin-1"), "E labels-encoding index_to_name.json:1"),
    labelled("own-shape", '["a", "b"]', "N labels-shape index_to_name.json", handler=OWN),
    Case("labels-misnamed", {"model.pt": weights("script"), "labels/index_to_name.json": FIVE},
         ("N labels-misnamed labels/index_to_name.json",), model={"handler": "base_handler", **SERIALIZED}, answers=False),
]  # fmt: skip


def configured(name: str, text: str | bytes, *expected: str, fails: bool | None = None, **options: object) -> Case:
    files = {"handler.py": BASE, "model.pt": weights("script"), "model-config.yaml": text}
    return Case(f"config-{name}", files, expected, model={**SERIALIZED, **CONFIG}, fails=fails, **options)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{chr(ord(name) - 1)}'] * 9)}]\n" for name in "bcdefg"
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{chr(ord(name) - 1)}'] * 9)}]}}\n" for name in "bcdefg"
)
YAML = "model-config.yaml"

CONFIGS = [
    configured("usual", "minWorkers: 1\nmaxWorkers: 2\nbatchSize: 8\nmaxBatchDelay: 100\ndeviceType: gpu\n"
               "deviceIds: [0, 1]\nhandler: {profile: true}\nmine: {any: thing}\n"),
    configured("anchors", "batchSize: &b 4\nminWorkers: *b\nbase: &base {a: 1}\nmine: {<<: *base, b: 2}\n"),
    configured("torchrun", "torchrun: {nproc-per-node: 2, OMP_NUMBER_THREADS: 4}\nparallelType: tp\n"),
    configured("empty", "", f"E config-root {YAML}"),
    configured("comment", "# nothing\n", f"E config-root {YAML}"),
    configured("list", "- a\n", f"E config-root {YAML}", fails=False),
    configured("text", "hello\n", f"E config-root {YAML}", fails=False),
    configured("number-key", "batchSize: 1\n1: a\n", f"E config-key {YAML}:2", fails=False),
    configured("tab", "a:\n\tb: 1\n", f"E config-syntax {YAML}:2"),
    configured("two-documents", "a: 1\n---\nb: 1\n", f"E config-syntax {YAML}:2"),
    configured("null-byte", "a: \0\n", f"E config-syntax {YAML}"),
    configured("list-as-key", "? [a]\n: 1\n", f"E config-syntax {YAML}:1"),
    configured("object-tag", "a: !!python/object/apply:os.system [id]\n", f"E config-tag {YAML}:1"),
    configured("bomb", BOMB, f"E config-bomb {YAML}", fails=False),
    configured("merge-bomb", MERGES, f"E config-bomb {YAML}", fails=False),
    configured("itself", "a: &a [*a]\n", f"E config-bomb {YAML}", fails=False),
    configured("deep", "a: " + "[" * 60 + "]" * 60 + "\n", f"W config-beyond-frontend {YAML}"),
    configured("as-deep-as-may-be", "a: " + "[" * 48 + "1" + "]" * 48 + "\n"),
    configured("deeper-by-one", "a: " + "[" * 49 + "1" + "]" * 49 + "\n", f"W config-beyond-frontend {YAML}"),
    configured("as-many-aliases-as-may-be", "a: &a [1]\nb: [" + "*a, " * 50 + "]\n"),
    configured("one-alias-more", "a: &a [1]\nb: [" + "*a, " * 51 + "]\n", f"W config-beyond-frontend {YAML}"),
    configured("very-deep", "a: " + "[" * 20_000, f"E config-bomb {YAML}"),
    configured("deeper-than-python", "a: " + "[" * 2_000 + "]" * 2_000 + "\n", f"E config-bomb {YAML}"),
    configured("wrongly-tagged", "a: !!bool perhaps\nb: !!timestamp never\n", f"E config-syntax {YAML}"),
    configured("tab-after-colon", "a:\t1\n", f"E config-syntax {YAML}:1"),
    configured("large", "a: " + "x" * (1 << 20) + "\n", f"N config-unchecked {YAML}"),
    configured("very-large", "a: " + "x" * 3_200_000 + "\n", f"W config-beyond-frontend {YAML}"),
    configured("latin-1", "a: é\n".encode("latin-1"), f"E config-encoding {YAML}:1"),
    configured("bom", b"\xef\xbb\xbfbatchSize: 2\n"),
    configured("duplicate", "batchSize: 1\nbatchSize: 2\n", f"W config-duplicate-key {YAML}:2"),
    configured("text-number", 'batchSize: "8"\n', f"W config-type {YAML}:1"),
    configured("fraction", "minWorkers: 1.5\n", f"W config-type {YAML}:1"),
    configured("beyond-32-bits", "batchSize: 3000000000\n", f"W config-type {YAML}:1"),
    configured("device-ids", "deviceIds: [a]\n", f"W config-type {YAML}:1"),
    configured("whole-numbers-at-their-ends", "batchSize: 1\nminWorkers: 0\nmaxBatchDelay: 2147483647\nuseVenv: true\n"),
    configured("device-ids-of-truths", "deviceIds: [yes]\n", f"W config-type {YAML}:1"),
    configured("device-as-number", "deviceType: 3\n", f"W config-type {YAML}:1"),
    configured("device-in-capitals", "deviceType: GPU\nparallelType: TP\n"),
    configured("workers-of-none", "minWorkers: 3\nmaxWorkers: 0\n"),
    configured("negative-delay", "maxBatchDelay: -1\n", f"W config-range {YAML}:1"),
    configured("unknown-device", "deviceType: gpus\n", f"W config-range {YAML}:1"),
    configured("neuron", "deviceType: neuron\n", f"N config-range {YAML}:1"),
    configured("workers", "minWorkers: 3\nmaxWorkers: 1\n", f"W config-workers {YAML}:1"),
    configured("snake-case", "batch_size: 8\n", f"W config-unknown-key {YAML}:1"),
    configured("misspelt", "maxBatchDelai: 8\n", f"W config-unknown-key {YAML}:1"),
    configured("torchrun-underscores", "torchrun: {nproc_per_node: 2}\n", f"W config-torchrun-key {YAML}:1"),
    configured("torchrun-number-key", "torchrun: {1: 2}\n", f"E config-torchrun-key {YAML}:1", fails=False),
    Case("config-missing", {"handler.py": CLASS}, (f"E config-missing {MANIFEST}configFile",), model=CONFIG),
    Case("sequences-without-idle-time", {"handler.py": FUNCTION, YAML: "sequenceBatching: true\n"},
         ("E sequence-idle-time model-config.yaml:1",), model=CONFIG, fails=False),
    *(Case(f"sequences-idle-{idle}", {"handler.py": FUNCTION, YAML: f"sequenceBatching: true\nsequenceMaxIdleMSec: {idle}\n"},
           (f"E sequence-idle-time {YAML}:1", *more), model=CONFIG, fails=False)
      for idle, *more in (("0",), ("-1", f"W config-range {YAML}:2"), ("soon", f"W config-type {YAML}:2"),
                          ("yes", f"W config-type {YAML}:2"))),
    Case("no-sequences", {"handler.py": FUNCTION, YAML: "sequenceBatching: false\n"}, model=CONFIG),
    Case("sequences", {"handler.py": FUNCTION, YAML: "sequenceBatching: true\nsequenceMaxIdleMSec: 1\n"}, model=CONFIG),
    Case("async-wanted", {"handler.py": CLASS, YAML: "asyncCommunication: true\n"}, ("E handler-not-async handler.py:5",),
         model=CONFIG, fails=False),  # the frontend has the worker await
    Case("async-given", {"handler.py": CLASS.replace("    def handle", "    async def handle"),
         YAML: "asyncCommunication: true\n"}, model=CONFIG, answers=False),
    Case("async-wanted-of-base", {"handler.py": BASE, "model.pt": weights("script"), YAML: "asyncCommunication: true\n"},
         ("E handler-not-async handler.py:5",), model={**SERIALIZED, **CONFIG}, fails=False),
]  # fmt: skip

COMPILING = [
    configured("pt2-flat", "pt2: {backend: inductor, mode: reduce-overhead}\n"),
    configured("pt2-nested", "pt2: {compile: {enable: true, backend: eager, dynamic: true}}\n"),
    configured("pt2-export", "pt2: {export: {aot_compile: true}}\n"),
    configured("pt2-unknown", "pt2: cudagraphs\n", f"W pt2-backend {YAML}:1"),
    configured("pt2-unknown-for-marpack", "pt2: cudagraphs\n", f"E pt2-backend {YAML}:1", target=Target.MARPACK, fails=False),
    configured("pt2-gone", "pt2: nvfuser\n", f"W pt2-backend-gone {YAML}:1"),
    configured("pt2-package", "pt2: openvino\n", f"N pt2-backend-needs {YAML}:1"),
    configured("pt2-empty", "pt2:\n", f"E pt2-shape {YAML}:1"),
    configured("pt2-compile-true", "pt2: {compile: true}\n", f"E pt2-shape {YAML}:1"),
    configured("pt2-no-enable", "pt2: {compile: {backend: eager}}\n", f"E pt2-shape {YAML}:1"),
    configured("pt2-word-compile", "pt2: compile\n", f"E pt2-shape {YAML}:1"),
    configured("pt2-word-export", "pt2: export\n", f"W pt2-off {YAML}:1"),
    configured("pt2-disabled", "pt2: {compile: {enable: false}}\n", f"N pt2-off {YAML}:1"),
    configured("pt2-enable-text", "pt2: {compile: {enable: 'true'}}\n", f"W pt2-off {YAML}:1"),
    configured("pt2-option", "pt2: {compile: {enable: true, modee: x}}\n", f"W pt2-option {YAML}:1"),
    configured("pt2-mode", "pt2: {compile: {enable: true, mode: reduce_overhead}}\n", f"W pt2-option {YAML}:1"),
    configured("pt2-both", "pt2: {mode: default, options: {a: 1}}\n", f"W pt2-option {YAML}:1"),
    configured("pt2-type", "pt2: {backend: 3}\n", f"W pt2-option {YAML}:1"),
    Case("pt2-own-way", {"handler.py": OWN, YAML: "pt2: 3\n"}, (f"N pt2-shape {YAML}:1",), model=CONFIG, answers=False),
]  # fmt: skip

MANIFESTS = [
    Case("envelope", {"handler.py": FUNCTION}, (f"N envelope-ignored {MANIFEST}envelope",), model={"envelope": "body"}),
    Case("envelope-unknown", {"handler.py": FUNCTION}, (f"W envelope-unknown {MANIFEST}envelope",), model={"envelope": "jsn"}),
    Case("name-with-space", {"handler.py": FUNCTION}, (f"W model-name {MANIFEST}modelName",), model={"name": "a b"}),
    Case("name-with-slash", {"handler.py": FUNCTION}, (f"E model-name {MANIFEST}modelName",), model={"name": "a/b"}, fails=False),
    Case("lsp", {"BaseHandler.so": ""}, ("W runtime-lsp MAR-INF/MANIFEST.json: runtime",), runtime="LSP",
         model={"handler": "BaseHandler"}, fails=True),
    Case("upper-case-runtime", {"handler.py": FUNCTION}, runtime="PYTHON"),
    Case("title-case-runtime", {"handler.py": FUNCTION}, ("E runtime-unknown MAR-INF/MANIFEST.json: runtime",),
         runtime="Python", fails=False),
]  # fmt: skip

CASES = [*IMPORTS, *SHADOWS, *REQUIREMENTS, *WEIGHTS, *LABELS, *CONFIGS, *COMPILING, *MANIFESTS]
