"""What is told of an exception: its words, its causes, and the frames that are the author's."""

import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marpack.errors import HandlerError
from marpack.protocol.messages import Trouble
from marpack.torchserve.response import AnsweredTwice
from marpack.worker.trouble import flatten, last_words, message_of


@pytest.fixture
def raised(tmp_path: Path) -> Callable[[str], BaseException]:
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


@pytest.mark.parametrize(
    ("source", "is_fault"),
    [
        ("absent", True),
        ("def f():\n    a\n    a = 1\nf()", True),
        ("import nowhere_at_all", True),
        ("from os import nowhere_at_all", True),
        ("eval('(')", True),
        ("exec(' 1\\n  2')", True),
        ("class Own(NameError): ...\nraise Own", True),
        ("None.absent", False),
        ("{}['absent']", False),
        ("raise ValueError from NameError()", False),
    ],
)
def test_broken_code_is_told_from_what_a_request_may_cause(raised, tmp_path: Path, source: str, is_fault: bool):
    assert told(raised(source), tmp_path).code_fault is is_fault


def test_frames_begin_with_the_authors_first(raised, tmp_path: Path):
    trouble = told(raised("import json\ndef ask():\n    json.loads('{')\nask()\n"), tmp_path)
    assert (trouble.kind, trouble.stage) == ("JSONDecodeError", "handle")
    first, second, *others = trouble.frames
    assert (first.file, first.line, first.function, first.code, first.user) == (
        "handler.py", 4, "<module>", "ask()", True,
    )  # fmt: skip
    assert (second.function, second.line, second.user) == ("ask", 3, True)
    assert {frame.user for frame in others} == {False}
    assert others[-1].function.endswith("decode")


@pytest.mark.parametrize(
    ("line", "functions"),
    [
        ("[{}[word] for word in 'a']", []),
        ("next({}[word] for word in 'a')", []),
        ("(lambda: {}['a'])()", ["ask.<locals>.<lambda>"]),
        ("next(\n {}[word]\n for word in 'a')", ["ask.<locals>.<genexpr>"]),
    ],
)
def test_a_line_that_loops_inside_is_told_once(raised, tmp_path: Path, line: str, functions: list[str]):
    trouble = told(raised(f"def ask():\n    {line}\nask()\n"), tmp_path)
    assert [frame.function for frame in trouble.frames] == ["<module>", "ask", *functions]


def test_of_many_frames_the_innermost_sixty_are_told(raised, tmp_path: Path):
    trouble = told(raised("def again(n):\n    if n: again(n - 1)\n    else: 1 / 0\nagain(99)\n"), tmp_path)
    assert [frame.line for frame in trouble.frames] == [2] * 59 + [3]


def test_without_a_frame_of_the_authors_importlibs_are_left_out(tmp_path: Path):
    try:
        __import__("no_such_module_here")
    except ImportError as error:
        trouble = told(error, tmp_path)
    assert [frame.function for frame in trouble.frames] == [
        "test_without_a_frame_of_the_authors_importlibs_are_left_out"
    ]


def test_an_error_of_marpacks_own_says_nothing_of_where_it_was_noticed(tmp_path: Path):
    try:
        raise HandlerError("no", where="here", hint="mend it")
    except HandlerError as error:
        trouble = told(error, tmp_path)
    assert (trouble.frames, trouble.hint) == ((), "mend it")


def test_a_line_that_is_no_python_is_a_frame(raised, tmp_path: Path):
    frame = told(raised("x = 1\ndef (:\n"), tmp_path).frames[-1]
    assert (frame.file, frame.line, frame.function, frame.code, frame.user) == (
        "handler.py", 2, "<module>", "def (:", True,
    )  # fmt: skip
    frame = told(raised("compile('(', '<made>', 'exec')\n"), tmp_path).frames[-1]
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
    ],
)
def test_what_led_to_it_is_told_once(raised, tmp_path: Path, source: str, causes: list[str]):
    trouble = told(raised(source), tmp_path)
    assert trouble.kind == "KeyError"
    assert [note.partition(":")[0] for note in trouble.notes] == causes


def test_notes_come_before_causes(raised, tmp_path: Path):
    source = "try: 1 / 0\nexcept ZeroDivisionError as error:\n error.add_note('look')\n raise"
    assert told(raised(source), tmp_path).notes == ("look",)


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


def test_a_folder_beside_the_models_with_a_longer_name_is_not_the_authors(raised, tmp_path: Path):
    error = raised("import json\njson.loads('{')\n")
    frame, *_ = told(error, tmp_path).frames
    assert (frame.file, frame.user) == ("handler.py", True)
    beside = tmp_path.with_name(tmp_path.name[:-1])  # the model's folder `digits`, the library's `digits-env`
    frames = told(error, beside).frames
    assert {frame.user for frame in frames} == {False}
    assert str(tmp_path / "handler.py") in {frame.file for frame in frames}


def test_a_syntax_error_beside_the_model_is_not_the_authors(tmp_path: Path):
    path = str(tmp_path.with_name(f"{tmp_path.name}-env") / "library.py")
    (frame,) = told(SyntaxError("invalid syntax", (path, 1, 1, "def\n")), tmp_path).frames
    assert (frame.file, frame.user) == (path, False)
