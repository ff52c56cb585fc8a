"""Archives with one fault each, and the check that names it."""

import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gate.archives import HANDLER, archive

EXAMPLES = Path(__file__).parents[2] / "examples"
INDEX, MANIFEST = "MAR-INF/marpack.json", "MAR-INF/MANIFEST.json"


class Slow(NamedTuple):
    """How to break an archive whose workers need other times."""

    make: Callable[[Path], Path]
    timeout: float = 30.0  # seconds
    startup_timeout: float | None = None


def built(handler: str = HANDLER, **options: Any) -> Callable[[Path], Path]:
    """Break the project that the archive is built from."""
    return lambda folder: archive(folder, handler, **options)


def instead(old: str, new: str, **options: Any) -> Callable[[Path], Path]:
    """Break one place of the handler."""
    assert HANDLER.count(old) == 1, old
    return built(HANDLER.replace(old, new), **options)


def rewritten(change: Callable[[dict[str, bytes]], None], **options: Any) -> Callable[[Path], Path]:
    """Break the archive's members; CRCs are right again afterwards."""

    def make(folder: Path) -> Path:
        path = archive(folder, **options)
        with zipfile.ZipFile(path) as file:
            members = {name: file.read(name) for name in file.namelist()}
        change(members)
        with zipfile.ZipFile(path, "w") as file:
            for name, content in members.items():
                file.writestr(name, content)
        return path

    return make


def by_hand(write: Callable[[Path], None], name: str = "probe.mar") -> Callable[[Path], Path]:
    """Write an archive that marpack would never write."""

    def make(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / name)
        return folder / name

    return make


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes], **manifest: Any) -> Callable[[Path], None]:
    """Return what writes a zip with a handler, a manifest and other members."""

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as file:
            for name, content in (*members, ("handler.py", HANDLER.encode()), (MANIFEST, manifest_of(**manifest))):
                file.writestr(name, content)

    return write


def manifest_of(**model: Any) -> bytes:
    return json.dumps({"runtime": "python", "model": {"modelName": "probe", "handler": "handler.py"} | model}).encode()


def pictured(weights: str | bytes, labels: dict[str, str]) -> Callable[[Path], Path]:
    """Pack a built-in handler with weights of the examples, or with these bytes in their place."""

    def make(folder: Path) -> Path:
        found = weights if isinstance(weights, bytes) else next(EXAMPLES.glob(f"*/{weights}")).read_bytes()
        keys = {"entry": "image_classifier", "weights": "model.pt", "config": None}
        return archive(folder, samples={}, files={"model.pt": found, "labels.json": json.dumps(labels)}, **keys)

    return make


def rooted(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("probe/handler.py", HANDLER)
        file.writestr(f"probe/{MANIFEST}", manifest_of())


def bomb(path: Path) -> None:
    zipped()(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file, file.open("zeros", "w") as member:
        for _ in range(80):
            member.write(bytes(1 << 20))


def flat_tar(path: Path) -> None:
    with tarfile.open(path, "w:gz") as file:
        for name, content in (("handler.py", HANDLER.encode()), (MANIFEST, manifest_of())):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))


def cut(folder: Path) -> Path:
    path = archive(folder)
    path.write_bytes(path.read_bytes()[:-40])
    return path


def flipped(member: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = archive(folder)
        with zipfile.ZipFile(path) as file:
            place = file.getinfo(member).header_offset
            content = file.read(member)
        data = bytearray(path.read_bytes())
        data[data.index(content, place) + 1] ^= 1
        path.write_bytes(data)
        return path

    return make


def index_with(**values: Any) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        members[INDEX] = json.dumps(json.loads(members[INDEX]) | values).encode()

    return change


def add(name: str, content: bytes) -> Callable[[dict[str, bytes]], None]:
    return lambda members: members.update({name: content})


def drop(name: str) -> Callable[[dict[str, bytes]], None]:
    return lambda members: members.__delitem__(name)


class Runs:
    def __reduce__(self):
        return print, ("unpickled",)


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("true",)


INIT = '        folder = context.system_properties["model_dir"]\n'
EACH = "return [self.answer(text, context, index) for index, text in enumerate(self.preprocess(data))]"
LAST = '        return {self.labels["0"]: vowels, self.labels["1"]: 1 - vowels}\n'


def at_load(*lines: str) -> Callable[[Path], Path]:
    return instead(INIT, "".join(f"        {line}\n" for line in lines) + INIT)


def at_answer(*lines: str, **options: Any) -> Callable[[Path], Path]:
    return instead(LAST, "".join(f"        {line}\n" for line in lines) + LAST, **options)


def batch(*lines: str, **options: Any) -> Callable[[Path], Path]:
    body = "\n        ".join(("found = " + EACH.removeprefix("return "), *lines, "return found"))
    return instead(EACH, body, **options)


def expecting(**expectation: Any) -> Callable[[Path], Path]:
    return built(expect={"sky.txt": expectation})


PICTURE = {"a.png": b"\x89PNG\r\n\x1a\n aeiou", "b.png": b"\x89PNG\r\n\x1a\n sky"}
BASE64 = """
import base64


class Handler:
    def initialize(self, context): ...

    def handle(self, data, context):
        return [self.length(row["body"]) for row in data]

    def length(self, body):
        if isinstance(body, str):
            body = base64.b64decode(body)[:8]
        return {"bytes": len(body)}
"""

# The check that fails and the code of its first finding → the faults.
FAULTS: dict[tuple[str, str], dict[str, Callable[[Path], Path] | Slow]] = {
    ("safe-to-open", "unsafe-archive"): {
        "a member outside the folder": by_hand(zipped(("../evil.py", b""))),
    },
    ("safe-to-open", "limit-exceeded"): {"a bomb": by_hand(bomb)},
    ("safe-to-open", "damaged-archive"): {"cut off": cut},
    ("safe-to-open", "not-an-archive"): {"no archive": by_hand(lambda path: path.write_text("hello"))},
    ("safe-to-open", "mar-root-folder"): {"all under one folder": by_hand(rooted)},
    ("safe-to-open", "tgz-no-root-folder"): {"a flat tar": by_hand(flat_tar, "probe.tar.gz")},
    ("safe-to-open", "archive-suffix"): {"a zip by another name": by_hand(zipped(), "probe.zip")},
    ("digests", "damaged-member"): {
        "a flipped byte": flipped("handler.py"),
    },
    ("digests", "digest-mismatch"): {"a changed member": rewritten(add("handler.py", HANDLER.encode() + b"#"))},
    ("digests", "unlisted-member"): {"a member more": rewritten(add("more.txt", b"x"))},
    ("digests", "missing-member"): {"no manifest any more": rewritten(drop(MANIFEST))},
    ("digests", "damaged-archive"): {
        "an index that is no index": rewritten(add(INDEX, b"[]")),
    },
    ("digests", "unknown-target"): {"an unknown target": rewritten(index_with(target="mars"))},
    ("manifest", "manifest"): {
        "no manifest": by_hand(lambda p: zipfile.ZipFile(p, "w").writestr("handler.py", b"")),
        "weights that are absent": by_hand(zipped(serializedFile="gone.pt")),
    },
    ("preflight", "source-syntax"): {"a handler that does not parse": built("def broken(:\n")},
    ("preflight", "handler-no-entry"): {"no handle": built("x = 1\n")},
    ("preflight", "import-name-missing"): {
        "a name that its module lacks": built("from words import gone\n" + HANDLER, files={"words.py": "here = 1\n"})
    },
    ("preflight", "config-root"): {
        "a config that is a list": built(config="model-config.yaml", files={"model-config.yaml": "[1]\n"})
    },
    ("preflight", "weights-need-model-file"): {
        "weights of another kind": pictured("state_dict.pt", dict.fromkeys("012345", "x"))
    },
    ("preflight", "weights-absent"): {
        "a pointer to weights": pictured(b"version https://git-lfs.github.com/spec/v1\n", {})
    },
    ("pickles", "dangerous-pickle"): {
        "a pickle that runs a command": built(files={"vocab.pkl": pickle.dumps(Evil())}),
    },
    ("pickles", "untrusted-pickle"): {"a pickle that needs trust": built(files={"vocab.pkl": pickle.dumps(Runs())})},
    ("pickles", "unscanned"): {
        "a pickle that breaks off": built(files={"vocab.pkl": pickle.dumps({"a": 1})[:-1]}),
    },
    ("requirements", "requirement-unmet"): {
        "a package that is not here": built(
            files={"requirements.txt": "a-package-of-nobody\n"}, requirements="requirements.txt"
        ),
    },
    ("loads", "does-not-load"): {
        "raises when imported": built("{}['gone']\n" + HANDLER),
        "raises when constructed": instead(
            "class Handler:", "class Handler:\n    def __init__(self):\n        {}['gone']\n"
        ),
        "hangs when initialized": Slow(at_load("import time", "time.sleep(60)"), startup_timeout=1.0),
        "exits when initialized": at_load("os._exit(3)"),
    },
    ("samples", "sample-missed"): {
        "another status": expecting(status=404),
        "another body": expecting(body="sky"),
        "raises on a sample": at_answer('if "sky" in text or "why" in text: {}["gone"]'),
        "dies on a sample": at_answer('if "why" in text: os._exit(1)'),
        "hangs on a sample": Slow(at_answer('if "why" in text: __import__("time").sleep(60)'), timeout=4.0),
        "an answer that is no JSON": at_answer('if "why" in text: return {text}'),
    },
    ("samples", "sample-missing"): {
        "a sample that is not packed": rewritten(index_with(samples=[{"input": "MAR-INF/samples/gone.txt"}]))
    },
    ("samples", "sample-unreadable"): {
        "an expectation of the future": rewritten(
            index_with(samples=[{"input": "MAR-INF/samples/sky.txt", "expect": {"color": "blue"}}])
        )
    },
    ("batch-contract", "batch-refused"): {
        "a batch one short": batch("if len(data) > 1: found.pop()"),
        "a batch that dies": batch("if len(data) == 3: os._exit(1)"),
        "a batch that hangs": Slow(batch('if len(data) > 1: __import__("time").sleep(60)'), timeout=3.0),
    },
    ("batch-contract", "batch-differs"): {
        "rows that share": instead(
            EACH, "return [self.answer(max(self.preprocess(data)), context, index) for index in range(len(data))]"
        ),
        "rows in another order": batch("found.reverse()"),
        "a type for the first row only": batch('context.set_response_content_type(0, "application/json")'),
    },
    ("body-forms", "form-differs"): {
        "a form's field is read otherwise": instead(
            'row.get("data") or row.get("body")', 'row.get("body") or row["data"][1:]'
        ),
        "bytes are read otherwise": instead("bytes(body).decode()", "str(body)"),
        "base64 is read otherwise": built(BASE64, samples=PICTURE, labels=None),
    },
    ("body-forms", "form-kills"): {
        "a form that kills": instead(
            'self.text_of(row.get("data") or', 'self.text_of(os._exit(1) if "data" in row else'
        )
    },
    ("repeatable", "not-repeatable"): {
        "it rolls dice": at_answer('return {"dice": __import__("random").random()}'),
        "it tosses a coin": at_answer(
            'return __import__("random").choice("ab")', samples={f"{n}.txt": f"{n}" for n in range(12)}
        ),
        "it remembers the last one": at_answer(
            'last, self.last = getattr(self, "last", None), text', 'return {"last": last}'
        ),
        "it drifts after a while": at_answer(
            'self.seen = getattr(self, "seen", 0) + 1', 'return {"n": max(self.seen, 12)}'
        ),
    },
    ("labels", "unknown-label"): {
        "a label of its own": at_answer('return {self.labels["0"]: vowels, "Other": 1 - vowels}'),
    },
    ("memory", "memory-grows"): {
        "it keeps its requests": at_answer('self.kept = [*getattr(self, "kept", ()), bytearray(50_000)]'),
        "it keeps its requests, and has little time": at_answer(
            '__import__("time").sleep(0.02)', 'self.kept = [*getattr(self, "kept", ()), bytearray(50_000)]'
        ),
    },
    ("memory", "worn-out"): {
        "it wears out": at_answer('self.seen = getattr(self, "seen", 0) + 1', "if self.seen > 60: os._exit(1)")
    },
    ("model-folder", "model-folder-written"): {
        "it writes when loaded": at_load('open("state.txt", "w").write("x")'),
        "it writes beside bytecode": at_load(
            'os.makedirs("__pycache__", exist_ok=True)', 'open("__pycache__/state.txt", "w").write("x")'
        ),
        "it writes when asked": at_answer('open("log.txt", "a").write("x")'),
        "it takes a member away": built(
            HANDLER.replace(INIT, INIT + '        os.unlink(folder + "/notes.txt")\n'), files={"notes.txt": "x"}
        ),
        "it changes a member": built(
            HANDLER.replace(INIT, INIT + '        open(folder + "/notes.txt", "w").write("y")\n'),
            files={"notes.txt": "x"},
        ),
    },
}
