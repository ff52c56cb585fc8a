"""What is fuzzed: five kinds of bytes that come from elsewhere, each with what marpack does with them."""

import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from fuzz import seeds
from fuzz.changes import Change, Copy, changed
from fuzz.seeds import Seeds

from marpack.archive.reader import open_archive, unpack
from marpack.errors import MarpackError
from marpack.inspection.diff import diff, tensor_digest
from marpack.inspection.inspect import inspect, weights_facts
from marpack.inspection.lint.linting import lint
from marpack.inspection.nested_files import NestedScan
from marpack.json_text import to_json
from marpack.project.load import load_project, read_document
from marpack.project.planning import plan_project
from marpack.protocol.messages import Predict
from marpack.protocol.targets import Target
from marpack.runner.inputs import check_requests, recorded_inputs
from marpack.weights.contents import read_contents, recognize

Changes = list[Change | Copy]


class FuzzTarget(NamedTuple):
    """Seeds, words that mean something among them, and what raises nothing but marpack's own errors."""

    seeds: Callable[[], Seeds]
    words: tuple[bytes, ...]
    look: Callable[[str, bytes], None]  # the seed's name, and what became of it


@contextmanager
def laid_out(content: Seeds) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="marpack-fuzz-") as folder:
        seeds.lay_out(Path(folder), content)
        yield Path(folder)


@cache
def archives() -> Seeds:
    """Return archives of every form, and members of one, by `member NAME`."""
    members = seeds.members()
    packed = {form: pack(members) for form, pack in seeds.PACKERS.items()}
    return packed | {f"member {name}": data for name, data in members.items()}


def look_at_archive(name: str, data: bytes) -> None:
    """Look at an archive in every way; of a member that was changed, at archives of each form that hold it."""
    member = name.removeprefix("member ")
    if member == name:
        look_at_packed(data)
    else:
        form = sorted(seeds.PACKERS)[len(data) % len(seeds.PACKERS)]
        look_at_packed(seeds.PACKERS[form]({**seeds.members(), member: data}))


def look_at_packed(data: bytes) -> None:
    with laid_out({"a.mar": data, "good.mar": archives()["ours"]}) as folder, suppress(MarpackError):
        with open_archive(folder / "a.mar") as archive, open_archive(folder / "good.mar") as good:
            for look in (lambda: inspect(archive, verify=True), lambda: diff(archive, good, verify=True)):
                with suppress(MarpackError):
                    to_json(look())
            with suppress(MarpackError):
                to_json([lint(archive, archive.manifest, target=target) for target in Target])
            unpack(archive, folder / "unpacked")
        with open_archive(folder / "unpacked") as again:
            to_json(inspect(again))


def look_at_project(name: str, data: bytes) -> None:
    """Plan a project of which one file was changed, with the labels and the config in that form."""
    name = name.rpartition("/")[2] or "marpack.yaml"
    text = seeds.FULL
    if name.startswith("labels"):
        text = text.replace("labels: labels.txt", f"labels: {name}")
    if name == "config.yaml":
        text = "\n".join(f"config: {name}" if line.startswith("config") else line for line in text.splitlines())
    files = {"model.pt": seeds.weights()["script"], "marpack.yaml": text.encode(), **seeds.projects(), name: data}
    with laid_out({key: value for key, value in files.items() if "/" not in key}) as folder:
        with suppress(MarpackError):
            read_document(folder / name)
        with suppress(MarpackError):
            planned = plan_project(load_project(folder))
            to_json((planned.findings, planned.modules, planned.plan.manifest))


def look_at_requests(_: str, data: bytes) -> None:
    """Read requests as `marpack run --requests` does, up to what a worker is sent, and what is told of the others."""
    with laid_out({"requests.jsonl": data, "labels.txt": b"cat\n"}) as folder:
        file = str(folder / "requests.jsonl")
        with suppress(MarpackError):
            check_requests(file)
        with suppress(MarpackError):
            for each in recorded_inputs(file, limit=1000):
                msgspec.msgpack.encode(Predict((each.request,)))
                to_json((each.name, each.refused, each.why))


def look_at_weights(_: str, data: bytes) -> None:
    """Read what a file of weights says of itself, what it holds within, and the numbers where it says they are."""
    file = io.BytesIO(data)
    with suppress(MarpackError):
        found = recognize(file)
        contents = read_contents(file, found)
        seen = list(NestedScan(opcodes=100_000).file("weights", file, found))
        to_json((weights_facts("weights", contents), seen))
        for placed in contents.tensors:
            tensor_digest(file, found, placed)


def look_at_pickle(_: str, data: bytes) -> None:
    """Follow a pickle by itself, and where torch and joblib would unpickle it."""
    file = io.BytesIO(data)
    for name in ("a.pkl", "a.pt", "a"):
        with suppress(MarpackError):
            to_json(list(NestedScan(opcodes=100_000, weights="a.pt").file(name, file, recognize(file))))


YAML = (
    b": ", b"\n", b"- ", b"? ", b"&a ", b"*a", b"!!binary ", b"!!int ", b"!!python/object:os.system ", b"<<: ", b"[",
    b"]", b"{", b"}", b"|\n ", b">-\n ", b"'", b'"', b"#", b"%YAML 1.2\n", b"---\n", b"...\n", b"\t", b"\r", b"~",
    b".nan", b".inf", b"1e400", b"0o7", b"1:30", b"2026-01-01", b"null", b"yes", b"\xef\xbb\xbf", b"\xc2\x85",
    b"\xe2\x80\xa8", b"\xff", b"\0", b"../", b"/", b"*", b"**/", b"\\x", b"name: ", b"handler: ", b"samples: ",
    b"expect: ", b"files: ",
)  # fmt: skip
JSON = (
    b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"1e999", b"-0", b"9" * 30, b"\\ud800", b"\\u0000",
    b"\\", b"\xff", b"\xed\xa0\x80", b"\n", b"\r\n", b'"body":', b'"json":', b'"form":', b'"file":', b'"base64":',
    b'"headers":', b'"content_type":', b'"name":', b'"batch":', b"=", b"--x", b"; charset=utf-16", b"; boundary=",
    b"multipart/form-data", b"application/x-www-form-urlencoded", b"%zz", b"%00", b"\\r\\n", b"filename*=",
    b"content-type", b"../",
)  # fmt: skip
PICKLE = (
    b"\x80\x02", b"\x80\x04\x95", b"(", b")", b"]", b"}", b"\x8f", b"t", b"\x85", b"\x86", b"\x87", b"l", b"d", b"a",
    b"e", b"s", b"u", b"\x90", b"0", b"1", b"2", b".", b"N", b"\x88", b"I1\n", b"I01\n", b"L9L\n", b"F1e999\n",
    b"K\1", b"M\1\1", b"J\xff\xff\xff\xff", b"\x8a\1\xff", b"\x8b\xff\xff\xff\x7f", b"G\x7f\xf0\0\0\0\0\0\0",
    b"S'a'\n", b"Va\\ud800\n", b"U\1a", b"T\1\0\0\0a", b"X\1\0\0\0a", b"\x8c\1a", b"\x8d", b"C\1a", b"B", b"\x8e",
    b"\x96", b"p0\n", b"q\0", b"r", b"\x94", b"g0\n", b"h\0", b"j\0\0\0\0", b"cos\nsystem\n", b"ios\nsystem\n",
    b"\x93", b"R", b"o", b"\x81", b"\x92", b"b", b"Pid\n", b"Q", b"\x82\1", b"\x84\1\0\0\0", b"\x97", b"\x98",
    b"\x95" + bytes(8), b"ctorch._utils\n_rebuild_tensor_v2\n", b"cbuiltins\ngetattr\n", b"\x8c\x02os",
    b"c__builtin__\nlong\n", b"cnumpy\ndtype\n",
)  # fmt: skip
ZIP = (
    b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7", b"PK\7\x08", b"\1\0\x10\0", b"up", b"../", b"\\", b"/",
    b"\0", b"MAR-INF/MANIFEST.json", b"model.pt", b"\x1f\x8b\x08", b"ustar\0", b"ustar  \0", b"GNU.sparse",
    b"19 path=../../x\n",
)  # fmt: skip
HEADERS = (
    b"data.pkl", b"data/0", b".data/version", b"byteorder", b"constants.pkl", b"code/", b"\x93NUMPY\1\0", b"'descr'",
    b"'|O'", b"(1 << 64)", b"{}", b'"dtype":', b'"F32"', b'"shape":[', b'"data_offsets":[', b"-1", b"__metadata__",
    b"\x0a", b"\x12", b"\x3a", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"x\x9c", b"\x28\xb5\x2f\xfd", b"BZh9",
    b"\xfd7zXZ\0",
)  # fmt: skip

TARGETS = {
    "archives": FuzzTarget(archives, (*ZIP, *JSON, *YAML), look_at_archive),
    "project files": FuzzTarget(seeds.projects, (*YAML, *JSON), look_at_project),
    "request lines": FuzzTarget(lambda: seeds.REQUESTS, JSON, look_at_requests),
    "pickles": FuzzTarget(seeds.pickles, PICKLE, look_at_pickle),
    "weight headers": FuzzTarget(seeds.weights, (*HEADERS, *ZIP, *PICKLE), look_at_weights),
}


def look(target: str, seed: str, made: Changes) -> None:
    """Look at one case; anything but an error of marpack's own comes out."""
    found = TARGETS[target].seeds()
    TARGETS[target].look(seed, changed(found.get(seed, b""), made, found))
