"""The options of `marpack run`: what they are worth by themselves, before anything is loaded."""

from pathlib import Path
from typing import Any

import click
import pytest

from marpack.cli.inputs import InputOptions, count_inputs, read_inputs
from marpack.cli.main import marpack
from marpack.runner.inputs import RequestDefaults

# With the group's own settings: a command keeps the help option that it was first asked with.
MARPACK = click.Context(marpack, **marpack.context_settings)


def options(*words: str) -> dict[str, Any]:
    """Return what these words on the command line ask for."""
    run = marpack.get_command(MARPACK, "run")
    assert run is not None
    return run.make_context("run", list(words), MARPACK).params


def test_nothing_is_asked_for_by_itself() -> None:
    given = {name: value for name, value in options().items() if value not in (None, False, ())}
    assert given == {
        "max_request_size": 6_553_500,
        "max_response_size": 6_553_500,
        "workers": 1,
        "device": "auto",
        "env": "current",
        "compile": True,
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-i", "a", "-", "b", "--json"], {"inputs": ("a", "-", "b"), "as_json": True, "source": None}),
        (["-i", "a", "x.mar", "b"], {"inputs": ("a", "b"), "source": "x.mar"}),
        (["-i", "a", "x.tar.gz"], {"inputs": ("a",), "source": "x.tar.gz"}),
        (["here", "--input", "a", "-i", "b", "--logs", "--workers", "1"], {"inputs": ("a", "b"), "source": "here"}),
        (["--form", "a=1", "--form", "b=2", "-H", "A=1", "-H", "B=2"], {"form": ("a=1", "b=2")}),
        (["--batch-size", "1", "--repeat", "1", "--warmup", "0"], {"batch_size": 1, "repeat": 1, "warmup": 0}),
    ],
)
def test_words_are_taken_as_a_shell_gives_them(words: list[str], expected: dict[str, Any]) -> None:
    assert options(*words).items() >= expected.items()


def test_an_input_needs_a_name() -> None:
    for words in (["--input"], ["x.mar", "--data", "x", "-i"]):
        with pytest.raises(click.BadOptionUsage, match="requires an argument"):
            options(*words)


def named(*words: str) -> InputOptions:
    """Return the options of these words that name inputs."""
    given = options(*words)
    return InputOptions(**{name: given[name] for name in InputOptions.__struct_fields__})


def test_inputs_come_from_files_then_texts_then_the_form(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    given = named("--form", "k=v", "--data", "b", "--data", "c", "-i", str(tmp_path / "a.txt"))
    assert [found.name.rpartition("/")[2] for found in read_inputs(given, RequestDefaults())] == [
        "a.txt",
        "data[0]",
        "data[1]",
        "form",
    ]
    assert count_inputs(given) == 4
    assert count_inputs(named("--requests", "r.jsonl")) is None
    assert count_inputs(named("-i", "@list", "--data", "x")) is None


def test_a_folders_files_are_chosen_by_kind(tmp_path: Path) -> None:
    for name in ("a.png", "b.PNG", "c.jpg", "d.xyz", "e.json", "plain"):
        (tmp_path / name).write_bytes(b"x")
    for kind, expected in {
        "image": ["a.png", "b.PNG", "c.jpg"],
        "image/png": ["a.png", "b.PNG"],
        "png": ["a.png", "b.PNG"],
        ".PNG": ["a.png", "b.PNG"],
        "xyz": ["d.xyz"],
        "application": ["e.json"],
    }.items():
        given = named("-i", str(tmp_path), "--type", kind)
        assert [found.name.rpartition("/")[2] for found in read_inputs(given, RequestDefaults())] == expected
        assert count_inputs(given) == len(expected)
