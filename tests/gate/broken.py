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


class Fault(NamedTuple):
    """How to break an archive, and what must be said of it."""

    code: str  # of the first finding
    make: Callable[[Path], Path]
    settings: dict[str, Any]  # of the workers


def fault(code: str, make: Callable[[Path], Path], **settings: Any) -> Fault:
    return Fault(code, make, settings)


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


def with_manifest(value: bytes | dict[str, Any]) -> Callable[[Path], None]:
    """Return what writes a zip with a handler and this manifest, or these keys in it."""
    content = value if isinstance(value, bytes) else json.dumps(json.loads(manifest_of()) | value).encode()

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("handler.py", HANDLER)
            file.writestr(MANIFEST, content)

    return write


def pictured(weights: str | bytes, labels: dict[str, str]) -> Callable[[Path], Path]:
    """Pack a built-in handler with weights of the examples, or with these bytes in their place."""

    def make(folder: Path) -> Path:
        found = weights if isinstance(weights, bytes) else next(EXAMPLES.glob(f"*/{weights}")).read_bytes()
        keys = {"entry": "image_classifier", "weights": "model.pt", "config": None}
        return archive(folder, samples={}, files={"model.pt": found, "labels.json": json.dumps(labels)}, **keys)

    return make


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, 0o120777 << 16
    return info


def bzipped(path: Path) -> None:
    zipped()(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_BZIP2) as file:
        file.writestr("more.txt", b"x" * 100)


def rooted(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("probe/handler.py", HANDLER)
        file.writestr(f"probe/{MANIFEST}", manifest_of())


def prefixed(path: Path) -> None:
    zipped()(path)
    path.write_bytes(b"#!/bin/sh\nexit 1\n" + path.read_bytes())


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


def nested(depth: int) -> bytes:
    data = b"x"
    for _ in range(depth):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as file:
            file.writestr("inner.zip", data)
        data = buffer.getvalue()
    return data


def stored_pickle(value: object) -> bytes:
    """Return a pickle in a zip, as torch.save writes one."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(value, 2))
        file.writestr("archive/version", "3\n")
    return buffer.getvalue()


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

FAULTS: dict[str, dict[str, Fault]] = {
    "safe-to-open": {
        "a member outside the folder": fault("unsafe-archive", by_hand(zipped(("../evil.py", b"")))),
        "a member from the root": fault("unsafe-archive", by_hand(zipped(("/etc/evil", b"")))),
        "a link": fault("unsafe-archive", by_hand(zipped((link("link"), b"/etc/passwd")))),
        "names that collide": fault("unsafe-archive", by_hand(zipped(("a", b""), ("A", b"")))),
        "a bomb": fault("limit-exceeded", by_hand(bomb)),
        "cut off": fault("damaged-archive", cut),
        "no archive": fault("not-an-archive", by_hand(lambda path: path.write_text("hello"))),
        "no bytes": fault("not-an-archive", by_hand(lambda path: path.write_bytes(b""))),
        "an unknown compression": fault("unsafe-archive", by_hand(bzipped)),
        "all under one folder": fault("mar-root-folder", by_hand(rooted)),
        "bytes before it": fault("unsafe-archive", by_hand(prefixed)),
        "a flat tar": fault("tgz-no-root-folder", by_hand(flat_tar, "probe.tar.gz")),
        "a zip by another name": fault("archive-suffix", by_hand(zipped(), "probe.zip")),
    },
    "digests": {
        "a flipped byte": fault("damaged-member", flipped("handler.py")),
        "a flipped byte in the manifest": fault("damaged-member", flipped(MANIFEST)),
        "a flipped byte in the index": fault("damaged-member", flipped(INDEX)),
        "a changed member": fault("digest-mismatch", rewritten(add("handler.py", HANDLER.encode() + b"#"))),
        "a member more": fault("unlisted-member", rewritten(add("more.txt", b"x"))),
        "a member less": fault("missing-member", rewritten(drop("index_to_name.json"))),
        "no manifest any more": fault("missing-member", rewritten(drop(MANIFEST))),
        "an index that is no index": fault("damaged-archive", rewritten(add(INDEX, b"[]"))),
        "an index of the future": fault("damaged-archive", rewritten(index_with(format=99))),
        "an unknown target": fault("unknown-target", rewritten(index_with(target="mars"))),
    },
    "manifest": {
        "no manifest": fault("manifest", by_hand(lambda p: zipfile.ZipFile(p, "w").writestr("handler.py", b""))),
        "weights that are absent": fault("manifest", by_hand(zipped(serializedFile="gone.pt"))),
        "weights outside": fault("manifest", by_hand(zipped(serializedFile="../gone.pt"))),
        "a handler that is absent": fault("manifest", by_hand(zipped(handler="gone.py"))),
        "no handler's name": fault("manifest", by_hand(zipped(handler=None))),
        "an unknown runtime": fault("manifest", by_hand(with_manifest({"runtime": "ruby"}))),
        "a manifest that is no JSON": fault("manifest", by_hand(with_manifest(b"{"))),
        "a manifest with a BOM": fault("manifest", by_hand(with_manifest(b"\xef\xbb\xbf" + manifest_of()))),
    },
    "preflight": {
        "a handler that does not parse": fault("source-syntax", built("def broken(:\n")),
        "no handle": fault("handler-no-entry", built("x = 1\n")),
        "a name that its module lacks": fault(
            "import-name-missing", built("from words import gone\n" + HANDLER, files={"words.py": "here = 1\n"})
        ),
        "a config that is a list": fault(
            "config-root", built(config="model-config.yaml", files={"model-config.yaml": "[1]\n"})
        ),
        "weights of another kind": fault(
            "weights-need-model-file", pictured("state_dict.pt", dict.fromkeys("012345", "x"))
        ),
        "a pointer to weights": fault("weights-absent", pictured(b"version https://git-lfs.github.com/spec/v1\n", {})),
    },
    "pickles": {
        "a pickle that runs a command": fault("dangerous-pickle", built(files={"vocab.pkl": pickle.dumps(Evil())})),
        "a pickle that needs trust": fault("untrusted-pickle", built(files={"vocab.pkl": pickle.dumps(Runs())})),
        "a file that hides files": fault("unscanned", built(files={"assets.zip": nested(9)})),
        "a pickle that breaks off": fault("unscanned", built(files={"vocab.pkl": pickle.dumps({"a": 1})[:-1]})),
        "weights that run a command": fault(
            "dangerous-pickle", built(files={"model.pt": stored_pickle(Evil())}, weights="model.pt")
        ),
    },
    "requirements": {
        "a package that is not here": fault(
            "requirement-unmet",
            built(files={"requirements.txt": "a-package-of-nobody\n"}, requirements="requirements.txt"),
        ),
        "a version that is not here": fault(
            "requirement-unmet", built(files={"requirements.txt": "click<1\n"}, requirements="requirements.txt")
        ),
    },
    "loads": {
        "raises when imported": fault("does-not-load", built("{}['gone']\n" + HANDLER)),
        "imports what is not installed": fault("does-not-load", built("import nowhere_at_all\n" + HANDLER)),
        "raises when constructed": fault(
            "does-not-load", instead("class Handler:", "class Handler:\n    def __init__(self):\n        {}['gone']\n")
        ),
        "raises when initialized": fault("does-not-load", at_load('open("gone.txt")')),
        "hangs when initialized": fault("does-not-load", at_load("import time", "time.sleep(60)"), startup_timeout=1.0),
        "exits when initialized": fault("does-not-load", at_load("os._exit(3)")),
        "leaves when initialized": fault("does-not-load", at_load("raise SystemExit")),
        "is killed when initialized": fault("does-not-load", at_load("os.kill(os.getpid(), 9)")),
        "imports nothing when initialized": fault("does-not-load", at_load('__import__("nowhere_at_all")')),
    },
    "samples": {
        "another status": fault("sample-missed", expecting(status=404)),
        "another body": fault("sample-missed", expecting(body="sky")),
        "another number": fault("sample-missed", expecting(json={"vowel": {"min": 0.5}})),
        "another label": fault("sample-missed", expecting(json={"consonant": {"min": 0.5}})),
        "a number too far": fault("sample-missed", expecting(json={"vowel": {"approx": 0.2, "tolerance": 0.1}})),
        "another text": fault("sample-missed", expecting(text="consonant")),
        "no match": fault("sample-missed", expecting(text={"regex": "^cons"})),
        "another shape": fault("sample-missed", expecting(shape=[2, 2])),
        "raises on a sample": fault("sample-missed", at_answer('if "sky" in text or "why" in text: {}["gone"]')),
        "dies on a sample": fault("sample-missed", at_answer('if "why" in text: os._exit(1)')),
        "hangs on a sample": fault(
            "sample-missed", at_answer('if "why" in text: __import__("time").sleep(60)'), timeout=1.5
        ),
        "an answer that is no JSON": fault("sample-missed", at_answer('if "why" in text: return {text}')),
        "a sample that is not packed": fault(
            "sample-missing", rewritten(index_with(samples=[{"input": "MAR-INF/samples/gone.txt"}]))
        ),
        "an expectation of the future": fault(
            "sample-unreadable",
            rewritten(index_with(samples=[{"input": "MAR-INF/samples/sky.txt", "expect": {"colour": "blue"}}])),
        ),
    },
    "batch-contract": {
        "a batch one short": fault("batch-refused", batch("if len(data) > 1: found.pop()")),
        "a batch's answers as one": fault("batch-refused", batch("if len(data) > 1: return [found]")),
        "a batch that raises": fault("batch-refused", batch("if len(data) == 3: raise ValueError(3)")),
        "a batch that dies": fault("batch-refused", batch("if len(data) == 3: os._exit(1)")),
        "a batch that hangs": fault(
            "batch-refused", batch('if len(data) > 1: __import__("time").sleep(60)'), timeout=3.0
        ),
        "rows that share": fault(
            "batch-differs",
            instead(
                EACH, "return [self.answer(max(self.preprocess(data)), context, index) for index in range(len(data))]"
            ),
        ),
        "rows in another order": fault("batch-differs", batch("found.reverse()")),
        "a type for the first row only": fault(
            "batch-differs", batch('context.set_response_content_type(0, "application/json")')
        ),
    },
    "body-forms": {
        "a form's field is read otherwise": fault(
            "form-differs", instead('row.get("data") or row.get("body")', 'row.get("body") or row["data"][1:]')
        ),
        "bytes are read otherwise": fault("form-differs", instead("bytes(body).decode()", "str(body)")),
        "a form that kills": fault(
            "form-kills", instead('self.text_of(row.get("data") or', 'self.text_of(os._exit(1) if "data" in row else')
        ),
        "base64 is read otherwise": fault("form-differs", built(BASE64, samples=PICTURE, labels=None)),
    },
    "repeatable": {
        "it counts its requests": fault(
            "not-repeatable", at_answer('self.seen = getattr(self, "seen", 0) + 1', 'return {"n": self.seen}')
        ),
        "it rolls dice": fault("not-repeatable", at_answer('return {"dice": __import__("random").random()}')),
        "it tosses a coin": fault(
            "not-repeatable",
            at_answer('return __import__("random").choice("ab")', samples={f"{n}.txt": f"{n}" for n in range(12)}),
        ),
        "it remembers the last one": fault(
            "not-repeatable", at_answer('last, self.last = getattr(self, "last", None), text', 'return {"last": last}')
        ),
        "it drifts after a while": fault(
            "not-repeatable", at_answer('self.seen = getattr(self, "seen", 0) + 1', 'return {"n": max(self.seen, 12)}')
        ),
    },
    "labels": {
        "a label of its own": fault(
            "unknown-label", at_answer('return {self.labels["0"]: vowels, "Other": 1 - vowels}')
        ),
        "a number for a label": fault("unknown-label", at_answer('return {self.labels["0"]: vowels, "class 1": 0.25}')),
    },
    "memory": {
        "it keeps its requests": fault(
            "memory-grows", at_answer('self.kept = [*getattr(self, "kept", ()), bytearray(50_000)]')
        ),
        "it keeps its requests, and has little time": fault(
            "memory-grows",
            at_answer('__import__("time").sleep(0.02)', 'self.kept = [*getattr(self, "kept", ()), bytearray(50_000)]'),
        ),
        "it wears out": fault(
            "worn-out", at_answer('self.seen = getattr(self, "seen", 0) + 1', "if self.seen > 60: os._exit(1)")
        ),
    },
    "model-folder": {
        "it writes when loaded": fault("model-folder-written", at_load('open("state.txt", "w").write("x")')),
        "it writes when asked": fault("model-folder-written", at_answer('open("log.txt", "a").write("x")')),
        "it takes a member away": fault(
            "model-folder-written",
            built(HANDLER.replace(INIT, INIT + '        os.unlink(folder + "/notes.txt")\n'), files={"notes.txt": "x"}),
        ),
        "it changes a member": fault(
            "model-folder-written",
            built(
                HANDLER.replace(INIT, INIT + '        open(folder + "/notes.txt", "w").write("y")\n'),
                files={"notes.txt": "x"},
            ),
        ),
    },
}
