"""What the fuzzer starts from: real bytes of every format, made by the libraries that own them."""

import io
import json
import pickle
import tarfile
import tempfile
import zipfile
from collections import OrderedDict
from datetime import datetime
from functools import cache
from pathlib import Path

from inspection import containers

EXAMPLES = Path(__file__).parents[2] / "examples"
Seeds = dict[str, bytes]

HANDLER = b"""import torch
from ts.torch_handler.base_handler import BaseHandler

class Handler(BaseHandler):
    def initialize(self, context):
        super().initialize(context)
        self.scale = context.model_yaml_config.get("scale", 1)

    def preprocess(self, data):
        return torch.tensor([row.get("body") or row["data"] for row in data])

    def postprocess(self, output):
        return (output * self.scale).tolist()
"""
REQUIREMENTS = b"numpy>=1.26 ; python_version > '3'\ngit+https://example.com/a.git#egg=a\n--extra-index-url x\n"


@cache
def members() -> Seeds:
    """Return the members of a model archive as marpack writes it, its index among them."""
    import marpack

    with tempfile.TemporaryDirectory() as folder:
        files = {"labels.txt": b"cat\ndog\n", "requirements.txt": REQUIREMENTS, "model.pt": weights()["script"]}
        lay_out(Path(folder), {**files, "handler.py": HANDLER, "marpack.yaml": projects()["marpack.yaml"]})
        with zipfile.ZipFile(marpack.build(folder).path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


def lay_out(folder: Path, content: Seeds) -> None:
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def zipped(content: Seeds) -> bytes:
    return containers.zipped(content, zipfile.ZIP_DEFLATED)


def streamed(content: Seeds) -> bytes:
    """Return a zip whose sizes stand behind the bytes, as one has it that is written into a pipe."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise io.UnsupportedOperation

    file = Pipe()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return file.getvalue()


def tarred(content: Seeds, mode: str = "w:gz", form: int = tarfile.PAX_FORMAT) -> bytes:
    more = {"pax_headers": {"comment": "größer"}} if form == tarfile.PAX_FORMAT else {}
    return containers.tarred({f"m/{name}": data for name, data in content.items()}, form, mode, **more)


def ours(content: Seeds) -> bytes:
    """Return the .mar that marpack writes of some members."""
    from marpack.archive.copying import Copier
    from marpack.archive.writers import ZipWriter

    file = io.BytesIO()
    with Copier() as copier:
        writer = ZipWriter(file, copier)
        for name, data in content.items():
            writer.add(name, io.BytesIO(data), len(data), aligned=name.endswith(".pt"))
        writer.finish()
    return file.getvalue()


LABELS: Seeds = {
    "labels.txt": "cat\ndog\ngrößer\n".encode(),
    "labels.csv": b'index,label\n0,cat\n1,"dog, large"\n',
    "labels.json": b'{"0": "cat", "1": ["n02", "dog"], "2": "gr\\u00f6\\ud83e\\udd86"}',
    "labels.yaml": b"0: cat\n1: &d dog\n2: *d\n",
}
CONFIG: Seeds = {
    "config.yaml": b"batchSize: 4\nhandler: {a: &s 2.5, b: [*s, ~, 1:30, 2026-01-01, !!set {x}]}\n<<: {c: 1}\n"
}
FULL = """\
name: m
version: 1.10
handler: handler.py
weights: model.pt
labels: labels.txt
requirements: requirements.txt
config: {minWorkers: 1, batchSize: 2, maxBatchDelay: 10, scale: 2.5, pt2: {compile: {enable: true}}, more: [1, ~, yes]}
files: [labels.txt, {from: labels.txt, to: inner/größer.txt}]
checks: {memory: warning}
samples:
  - input: labels.txt
    expect: &e {status: 200, json: {cat: {min: 0.5}}}
  - {<<: {input: requirements.txt}, expect: *e}
  - {input: handler.py, expect: {text: dog}}
"""
PACKERS = {"zip": zipped, "stored": containers.zipped, "streamed": streamed, "tar.gz": tarred, "ours": ours}


@cache
def projects() -> Seeds:
    """Return project files, those of the examples and one with every kind of key, and the files that it names."""
    found = {f"{file.parent.name}/marpack.yaml": file.read_bytes() for file in sorted(EXAMPLES.glob("*/marpack.yaml"))}
    own = {"marpack.yaml": FULL.encode(), "handler.py": HANDLER, "requirements.txt": REQUIREMENTS}
    return {**found, **own, **LABELS, **CONFIG}


FORM = (
    "--x\r\nContent-Disposition: form-data; name=\"a\"; filename*=UTF-8''%c3%a9\r\nContent-Transfer-Encoding: 8bit\r\n"
    "Content-Type: text/plain; charset=utf-16\r\n\r\nvalue\r\n--x--\r\n"
)
REQUESTS: Seeds = {
    "body": b'{"content_type": "text/plain; charset=utf-8", "body": "\\u00e9\\ud83e\\udd86", "id": "7", "name": "n"}\n',
    "json": b'{"json": {"data": [1, 2.5e300, null, true, "x"]}, "headers": [["X-A", "b"], ["x-a", "c"]], "batch": 1}\n',
    "base64": b'{"base64": "iVBORw0KGgo=", "content_type": "image/png", "headers": {"X-A": "7"}, "explain": true}\n',
    "form": b'{"form": {"data": {"base64": "AAEC", "filename": "f.bin"}, "top": "3"}, "batch": "b"}\n',
    "list": b'{"form": [{"name": "a", "value": "x", "content_type": "text/html; charset=latin-1"}, {"name": "a"}]}\n',
    "file": b'{"file": "labels.txt", "url_path": "a/b", "describe": true}\n{"form": {"f": {"file": "labels.txt"}}}\n',
    "multipart": json.dumps({"content_type": "multipart/form-data; boundary=x", "body": FORM}).encode() + b"\n",
    "urlencoded": b'{"content_type": "application/x-www-form-urlencoded", "body": "a=1&b=%20%C3%A9&c&=d"}\n',
}


@cache
def pickles() -> Seeds:
    """Return pickles of values that use most opcodes, by every protocol."""
    import numpy as np

    shared = [1]
    value = OrderedDict(
        a=[1, -2, 1 << 40, 1 << 300, 2.5, None, True, "text", "größer", b"bytes", (), (1,), (1, 2), (1, 2, 3, 4)],
        b={"x": shared, "y": shared, 3: {4}, "f": frozenset([5]), "d": datetime(2026, 1, 1)},  # noqa: DTZ001
        c=np.arange(6).reshape(2, 3),
        e=OSError(2, "no"),
        g=len,
    )
    found = {f"protocol {number}": pickle.dumps(value, number) for number in range(6)}
    found["buffers"] = pickle.dumps(bytearray(b"x" * 300), 5) + pickle.dumps(slice(1, 2))
    found["calls"] = (
        b"cos\nsystem\n(S'true'\ntR." + b"(iposix\nsystem\n(Vtrue\nobR0." + b"\x80\x04\x8c\x02os\x8c\x06system\x93."
    )
    found["list"] = b"(lp0\nI1\naL2L\naI01\naF2.5\na(dS'k'\nNssg0\na."
    return found


@cache
def weights() -> Seeds:
    """Return weights of every format that is told apart."""
    import joblib
    import numpy as np
    import torch
    from inspection.lint.weights_files import bytes_of

    torch.manual_seed(7)
    found = {kind: bytes_of(kind) for kind in ("state_dict", "legacy", "whole", "checkpoint", "script", "export")}
    arrays = {"a": np.zeros((3, 4)), "b": np.array(["x", 1], dtype=object)}
    return found | {
        "joblib": containers.written(lambda file: joblib.dump(arrays, file)),
        "joblib packed": containers.written(lambda file: joblib.dump(arrays, file, compress=("zlib", 3))),
        "npy": containers.written(np.save, np.zeros(3, dtype=[("x", "<f4"), ("y", "S3", (2,))])),
        "npz": containers.written(np.savez, **arrays),
        "safetensors": bytes_of("safetensors"),
        "onnx": _onnx(),
    }


def _onnx() -> bytes:
    import numpy as np
    from onnx import helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    bias = helper.make_tensor("b", 1, [3], [1.0, 2.0, 3.0])
    ports = [helper.make_tensor_value_info(name, 1, ["batch", 2]) for name in "xy"]
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], [weight, bias])
    model = helper.make_model(graph, producer_name="m")
    helper.set_model_props(model, {"author": "tests"})
    return bytes(model.SerializeToString())
