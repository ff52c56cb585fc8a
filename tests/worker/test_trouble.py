"""What is told of an exception: its words, its causes, the frames that are the author's, and a hint."""

import json
import linecache
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from workers import launch

from marpack.errors import HandlerError
from marpack.protocol.messages import Load, Trouble
from marpack.runner.pool import LocalPool, PoolSettings
from marpack.torchserve.http import Part, Request
from marpack.torchserve.response import AnsweredTwice
from marpack.worker.handlers.base import BaseHandler
from marpack.worker.trouble import Hint, find_hint, flatten, last_words, message_of, note_labels_gap


@pytest.fixture
def ran(tmp_path: Path) -> Callable[[str], BaseException]:
    """Return what an author's file `handler.py` raises when it is run."""

    def run(source: str) -> BaseException:
        path = tmp_path / "handler.py"
        path.write_text(source)
        linecache.checkcache()
        with pytest.raises(Exception) as caught:
            exec(compile(source, str(path), "exec"), {})
        return caught.value

    return run


def told(error: BaseException, tmp_path: Path, **more: Any) -> Trouble:
    return flatten(error, stage="handle", model_dir=str(tmp_path), **more)


def test_broken_code_is_told_from_what_a_request_may_cause(ran, tmp_path: Path):
    broken = ["absent", "def f():\n    a\n    a = 1\nf()", "import nowhere_at_all", "from os import nowhere_at_all"]
    broken += ["eval('(')", "exec(' 1\\n  2')", "class Own(NameError): ...\nraise Own"]
    sound = ["None.absent", "{}['absent']", "raise ValueError from NameError()"]
    assert [told(ran(source), tmp_path).code_fault for source in broken] == [True] * 7
    assert [told(ran(source), tmp_path).code_fault for source in sound] == [False] * 3


def test_frames_begin_with_the_authors_first(ran, tmp_path: Path):
    trouble = told(ran("import json\ndef ask():\n    json.loads('{')\nask()\n"), tmp_path)
    assert (trouble.kind, trouble.stage) == ("JSONDecodeError", "handle")
    first, second, *others = trouble.frames
    assert (first.file, first.line, first.function, first.code, first.user) == (
        "handler.py", 4, "<module>", "ask()", True,
    )  # fmt: skip
    assert (second.function, second.line, second.user) == ("ask", 3, True)
    assert {frame.user for frame in others} == {False}
    assert others[-1].function.endswith("decode")


def test_a_line_that_loops_inside_is_told_once(ran, tmp_path: Path):
    for line, functions in {
        "[{}[word] for word in 'a']": [],
        "next({}[word] for word in 'a')": [],
        "(lambda: {}['a'])()": ["ask.<locals>.<lambda>"],
        "next(\n {}[word]\n for word in 'a')": ["ask.<locals>.<genexpr>"],
    }.items():
        trouble = told(ran(f"def ask():\n    {line}\nask()\n"), tmp_path)
        assert [frame.function for frame in trouble.frames] == ["<module>", "ask", *functions]


def test_of_many_frames_the_innermost_sixty_are_told(ran, tmp_path: Path):
    trouble = told(ran("def again(n):\n    if n: again(n - 1)\n    else: 1 / 0\nagain(99)\n"), tmp_path)
    assert [frame.line for frame in trouble.frames] == [2] * 59 + [3]


def test_without_a_frame_of_the_authors_importlibs_are_left_out_and_of_marpacks_errors_all(tmp_path: Path):
    with pytest.raises(ImportError) as missing:
        __import__("no_such_module_here")
    assert [frame.file for frame in told(missing.value, tmp_path).frames] == [__file__]
    with pytest.raises(HandlerError) as ours:
        raise HandlerError("no", where="here", hint="mend it")
    trouble = told(ours.value, tmp_path)
    assert (trouble.frames, trouble.hint) == ((), "mend it")


def test_a_line_that_is_no_python_is_a_frame(ran, tmp_path: Path):
    frame = told(ran("x = 1\ndef (:\n"), tmp_path).frames[-1]
    assert (frame.file, frame.line, frame.function, frame.code, frame.user) == (
        "handler.py", 2, "<module>", "def (:", True,
    )  # fmt: skip
    frame = told(ran("compile('(', '<made>', 'exec')\n"), tmp_path).frames[-1]
    assert (frame.file, frame.line, frame.user) == ("<made>", 1, False)
    assert told(SyntaxError("no place"), tmp_path).frames == ()


@pytest.mark.parametrize(
    ("source", "causes"),
    [
        ("try: 1 / 0\nexcept ZeroDivisionError as error: raise KeyError from error", ["caused by ZeroDivisionError"]),
        ("try: 1 / 0\nexcept ZeroDivisionError: raise KeyError", ["while handling ZeroDivisionError"]),
        ("try: 1 / 0\nexcept ZeroDivisionError: raise KeyError from None", []),
        (
            "try:\n try: 1 / 0\n except Exception as one: raise ValueError from one\nexcept ValueError: raise KeyError",
            ["while handling ValueError", "caused by ZeroDivisionError"],
        ),
        ("a, b = KeyError(), ValueError()\na.__cause__, b.__cause__ = b, a\nraise a", ["caused by ValueError"]),
        (  # notes come before causes
            "try: 1 / 0\nexcept ZeroDivisionError as one:\n two = KeyError()\n two.add_note('n')\n raise two from one",
            ["n", "caused by ZeroDivisionError"],
        ),
    ],
)
def test_what_led_to_it_is_told_once(ran, tmp_path: Path, source: str, causes: list[str]):
    trouble = told(ran(source), tmp_path)
    assert trouble.kind == "KeyError"
    assert [note.partition(":")[0] for note in trouble.notes] == causes


def test_long_words_are_cut_and_those_that_raise_are_no_end():
    class Mute(Exception):
        def __str__(self) -> str:
            raise KeyError

    assert message_of(ValueError("x" * 4000)) == "x" * 4000
    assert message_of(ValueError("x" * 4001)) == f"{'x' * 4000}… (4001 characters)"
    assert "KeyError" in message_of(Mute())


def test_the_last_words_of_a_worker_are_its_deaths_or_what_the_author_raised(tmp_path: Path):
    trouble = last_words(AnsweredTwice("twice"), str(tmp_path))
    assert (trouble.kind, trouble.message, trouble.stage) == ("answered-twice", "twice", "respond")
    assert trouble.hint == AnsweredTwice.hint
    assert last_words(SystemExit(3), str(tmp_path), stage="preprocess").stage == "preprocess"
    assert told(KeyError("x"), tmp_path, hint="mine").hint == "mine"


def test_a_folder_beside_the_models_with_a_longer_name_is_not_the_authors(ran, tmp_path: Path):
    error = ran("import json\njson.loads('{')\n")
    frame, *_ = told(error, tmp_path).frames
    assert (frame.file, frame.user) == ("handler.py", True)
    beside = tmp_path.with_name(tmp_path.name[:-1])  # the model's folder `digits`, the library's `digits-env`
    frames = told(error, beside).frames
    assert {frame.user for frame in frames} == {False}
    assert str(tmp_path / "handler.py") in {frame.file for frame in frames}
    path = str(tmp_path.with_name(f"{tmp_path.name}-env") / "library.py")
    (frame,) = told(SyntaxError("invalid syntax", (path, 1, 1, "def\n")), tmp_path).frames
    assert (frame.file, frame.user) == (path, False)


def missing(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (missing("cv2"), "opencv-python"),
        (missing("model"), "model.py"),
        (missing("a_b"), "a_b.py"),
        (missing("msgspec.x"), "msgspec.x"),
        (missing("pkg.inner"), "pkg.inner"),
        (missing("single.inner"), "single.inner"),
        (missing("ts.x"), "TorchServe 0.12"),
        (ModuleNotFoundError("ts.x needs an engine", name="ts.x"), None),
        (ModuleNotFoundError("nameless"), None),
        (KeyError("x"), None),
    ],
)
def test_what_mends_the_commonest_failures(tmp_path: Path, error: BaseException, part: str | None):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "single.py").touch()
    hint = find_hint(error, str(tmp_path))
    assert hint == Hint(None) if part is None else part in str(hint.text)
    assert not hint.only_here


def test_a_file_of_the_archives_that_nobody_packed(tmp_path: Path):
    def hint(name: str | int) -> str:
        return str(find_hint(raised(lambda: os.stat(name)), str(tmp_path)).text)  # noqa: PTH116 - of a number, too

    assert "assets/vocab.json" in hint(str(tmp_path / "assets" / "vocab.json"))
    assert "no-such-file.json" in hint("no-such-file.json")  # the working directory is the archive's
    assert {hint(name) for name in ("/no/such/file.json", 987654321, "../elsewhere.json")} == {"None"}
    assert find_hint(FileNotFoundError("vocab.json"), str(tmp_path)) == Hint(None)

    class Hostile(FileNotFoundError):
        @property
        def filename(self) -> str:
            raise ValueError

    assert find_hint(Hostile(), str(tmp_path)) == Hint(None)


def test_what_the_server_has_is_missing_only_here():
    stock = find_hint(missing("torchvision"), "/m")
    assert (stock.only_here, str(stock.text).endswith("pip install torchvision")) == (True, True)
    assert "pip install pillow" in str(find_hint(missing("PIL"), "/m").text)
    listed = find_hint(missing("llama_cpp"), "/m", required=["attrs", "llama-cpp-python"])
    assert (listed.only_here, "pip install llama-cpp-python" in str(listed.text)) == (True, True)
    assert flatten(missing("mii"), stage="import", model_dir="/m", required=["deepspeed-mii"]).only_here
    remedy = find_hint(missing("ts"), "/m")
    assert ("--torchserve" in str(remedy.text), remedy.only_here) == (True, True)
    bygone = str(find_hint(missing("asyncore"), "/m").text)
    assert f"Python {sys.version_info.major}.{sys.version_info.minor} " in bygone
    assert "pip install" not in bygone


def imported(path: Path, source: str) -> Any:
    path.write_text(source)
    linecache.checkcache()
    exec(compile(source, str(path), "exec"), vars(module := ModuleType("own")))
    return module


def raised(call: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:
        call()
    return caught.value


def test_a_module_that_asks_for_arguments_is_told_whose_they_are(tmp_path: Path):
    parser = "import argparse as a\nparser = a.ArgumentParser()\nparser.add_argument('x')\nparser.parse_args([])"
    sources = {parser: True, "import sys\nint(sys.argv[900])": True, "import sys\nsys.exit(2)": False}
    for source, is_told in sources.items():
        error = raised(lambda source=source: imported(tmp_path / "own.py", source))
        assert ("if __name__ == '__main__'" in str(find_hint(error, str(tmp_path)).text)) is is_told


READ = "row.get('data') or row.get('body')"


@pytest.mark.parametrize(
    ("line", "body", "hint"),
    [
        ("data[0]['body'].decode()", {"a": 1}, "a dict"),
        ("data[0]['body'].decode()", "text", "a str"),
        ("json.loads(data[0]['body'])", [1], "a list"),
        ("io.BytesIO(data[0]['body'])", {"a": 1}, "a dict"),
        ("data[0].decode()", {"a": 1}, READ),
        ("data[0]['data']", {"a": 1}, READ),
        ("data[0]['x']", {"a": 1}, None),
        ("{}['data']", {"data": 1}, None),
        ("data[0]['body'].decode_all()", bytearray(b"x"), None),
        ("json.loads(io)", {"a": 1}, None),
        ("1 + ''", {"a": 1}, None),
        ("int('x')", "x", None),
        ("raise_([])", {"a": 1}, None),
    ],
)
def test_a_body_that_is_taken_for_bytes(tmp_path: Path, line: str, body: object, hint: str | None):
    source = f"import io, json\ndef raise_(key): raise KeyError(key)\ndef handle(data):\n    {line}\n"
    rows = [{"data" if line.startswith("{}") else "body": body}]
    error = raised(lambda: imported(tmp_path / "own.py", source).handle(rows))
    found = find_hint(error, "/m", rows=rows, handler=None).text
    assert found is None if hint is None else hint in str(found)


OWN = """
from marpack.worker.handlers.base import BaseHandler
class Own(BaseHandler):
    def ask(self):
        {line}
"""


@pytest.mark.parametrize(
    ("line", "initialized", "words"),
    [
        ("self.mapping['0']", False, ("super().initialize(context)", "self.mapping")),
        ("self.model_yaml_config['a']", False, ("super().initialize(context)", "self.model_yaml_config")),
        ("self.mapping['0']", True, ("index_to_name.json", "self.mapping")),
        ("self.model(1)", True, None),
        ("self.own['0']", False, None),
        ("None + self.target", False, None),
    ],
)  # fmt: skip
def test_what_the_base_handler_would_have_set(
    tmp_path: Path, line: str, initialized: bool, words: tuple[str, str] | None
):
    handler = imported(tmp_path / "own.py", OWN.format(line=line)).Own()
    handler.own = None
    handler.map_location = "cpu" if initialized else None
    hint = find_hint(raised(handler.ask), "/m", rows=[], handler=handler).text
    assert hint is None if words is None else all(word in str(hint) for word in words)


def test_what_is_no_base_handler_and_what_cannot_be_asked_get_no_hint(tmp_path: Path):
    plain = imported(tmp_path / "own.py", OWN.format(line="self.mapping['0']").replace("(BaseHandler)", ""))
    handler = plain.Own()
    handler.mapping = None
    assert find_hint(raised(handler.ask), "/m", rows=[], handler=handler).text is None

    class Odd(BaseHandler):
        @property
        def mapping(self) -> None:
            raise KeyError

        @mapping.setter
        def mapping(self, value: object) -> None: ...

        def ask(self) -> None:
            raise TypeError(self.mapping if self is None else "")  # says self.mapping

    assert find_hint(raised(Odd().ask), "/m", rows=[], handler=Odd()).text is None


ANSWERS = """
def handle(data, context):
    if data is None:
        return
    word = data[0]["body"].decode()
    return {"bytes": [{"a": [b"x"]}], "own": [[b"x"]], "deep": [[[[[[b"x"]]]]]], "set": [{1}]}[word]
"""


def test_hints_stand_beside_the_answers_of_a_worker(make_folder):
    kinds = {"1": "application/json", "set": "", "bytes": "", "own": "", "deep": ""}
    batches = [(Request(id=word, parts=(Part("body", word.encode(), kind),)),) for word, kind in kinds.items()]
    with LocalPool(Load(model_dir=str(make_folder(ANSWERS))), PoolSettings(launch=launch)) as pool:
        pool.start()
        hints = [str(outcome.troubles[0].hint) for outcome in pool.outcomes(batches)]
    assert "a int" in hints[0]
    assert ["b64encode" in hint for hint in hints[1:]] == [False, True, True, False]


NUMBERED = {"0": "cat", "1": "dog"}


@pytest.mark.parametrize(
    ("labels", "key", "named"),
    [
        ({"mapping": NUMBERED}, "2", "index_to_name.json"),
        ({"other": {"a": 1}, "names": {0: "cat", 1: "dog"}}, 2, "the handler's names"),
        ({"mapping": NUMBERED}, "1x", None),
        ({"mapping": NUMBERED}, 2, None),  # a number, where the labels' are texts
        ({"mapping": {"0": "cat", "7": "dog"}}, "2", None),  # whoever leaves gaps may mean them
        ({"mapping": {}}, "0", None),
        ({"mapping": None}, "0", None),
    ],
)
def test_a_class_beyond_the_labels(notes, labels: dict[str, Any], key: str | int, named: str | None):
    class Handler:
        def ask(self) -> object:
            return {}[key]

    handler = Handler()
    vars(handler).update(labels)
    note_labels_gap(raised(handler.ask), handler)
    told = notes()
    assert [re.findall(r"\d+", trouble.message) for trouble in told.values()] == ([["2", "2"]] if named else [])
    assert all(str(named) in trouble.message for trouble in told.values())
    assert set(told) == ({"labels-gap"} if named else set())
    for other in (None, object()):
        note_labels_gap(raised(handler.ask), other)
    note_labels_gap(raised(lambda: int("x")), handler)
    assert notes() == {}


LOOKUP = "class Own:\n    def ask(self, context):\n        {}\n"
SET_IT = "MODEL_SIZE=… marpack …"


@pytest.mark.parametrize(
    ("line", "config", "part"),
    [
        ("import os; os.environ['MODEL_SIZE']", None, SET_IT),
        ("context.model_yaml_config['handler']['a']", None, "--config-file"),
        ("config = context.model_yaml_config; config['handler']", None, "--config-file"),
        ("context.model_yaml_config['handler']", {"minWorkers": 1}, "c.yaml"),
        ("context.model_yaml_config['handler']['a']", {"handler": {}}, "c.yaml"),
        ("context.manifest['model']['modelFile']", None, "--model-file"),
        ("model = context.manifest['model']; model['serializedFile']", None, "--serialized-file"),
        ("{}['other']", None, None),
        ("{}[7]", None, None),
        ("raise KeyError", None, None),
        ("raise KeyError(['handler'])", None, None),
        ("context.manifest['nothing']", None, None),
    ],
)
def test_a_key_that_is_missing_is_set_where_it_comes_from(tmp_path, line, config, part, monkeypatch):
    monkeypatch.delenv("MODEL_SIZE", raising=False)
    model = {} if config is None else {"configFile": "c.yaml"}
    (tmp_path / "MAR-INF").mkdir()
    (tmp_path / "MAR-INF" / "MANIFEST.json").write_text(json.dumps({"model": model}))
    own = imported(tmp_path / "own.py", LOOKUP.format(line)).Own()
    given = SimpleNamespace(model_yaml_config=config or {}, manifest={"model": model})
    error = raised(lambda: own.ask(given))
    hint = find_hint(error, str(tmp_path)).text
    assert hint is None if part is None else part in str(hint)
    (tmp_path / "MAR-INF" / "MANIFEST.json").unlink()
    left = find_hint(error, str(tmp_path)).text
    assert left is None or (part == SET_IT and SET_IT in left)


@pytest.mark.parametrize("name", ["zz_new", "vllm_handler", "zz_new.inner", "msgspec.zz_new", "torchgen"])
def test_no_package_is_named_after_a_module(tmp_path: Path, name: str):
    hint = str(find_hint(missing(name), str(tmp_path)).text)
    for word in name.split("."):
        assert f"pip install {word}" not in hint
        assert f"pip install {word.replace('_', '-')}" not in hint
    assert "zz-new" not in hint


class AutoTokenizer:
    """As transformers' class of this name, as far as names go."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: object) -> None:
        raise ImportError("install sentencepiece")


def test_a_failed_from_pretrained_is_explained_by_the_file_that_is_missing(tmp_path: Path):
    def hint(place: object) -> str | None:
        with pytest.raises(ImportError) as caught:
            AutoTokenizer.from_pretrained(place)
        return find_hint(caught.value, str(tmp_path)).text

    (tmp_path / "bert").mkdir()
    assert "tokenizer.json" in str(hint(tmp_path))
    assert "bert/tokenizer.json" in str(hint(str(tmp_path / "bert")))
    assert hint("bert-base-uncased") is None
    assert hint(tmp_path.parent) is None
    assert hint(None) is None
    (tmp_path / "tokenizer.json").touch()
    assert hint(tmp_path) is None
