"""`--json` names columns, or, without any, asks for the summary; several options take more than one word."""

import click
import pytest

from marpack.cli.main import marpack
from marpack.cli.score import replace_json, score

MARPACK = click.Context(marpack, **marpack.context_settings)  # whose settings a command keeps from its first context


@pytest.mark.parametrize(
    ("words", "summary", "columns"),
    [
        ("--json", True, ()),
        ("--json-summary", True, ()),
        ("--json --input a", True, ()),
        ("--json x.mar", True, ()),
        ("--json a", False, ("a",)),
        ("--json a b --text t", False, ("a", "b")),
        ("--json a --json b", False, ("a", "b")),
        ("--json a x.mar b", False, ("a", "b")),
        ("--json a --json", True, ("a",)),
        ("--json --json a", True, ("a",)),
        ("--input json", False, ()),
        ("--json-object a --json", True, ()),
    ],
)
def test_json_is_what_follows_it(words: str, summary: bool, columns: tuple[str, ...]):
    with score.make_context("score", words.split(), MARPACK, resilient_parsing=True) as context:
        assert (context.params["as_json"], context.params["json"]) == (summary, columns)
    assert ("--json-summary" in replace_json(words.split())) is summary


def test_options_take_every_word_up_to_the_next():
    words = "-i a b digits.mar --json-object j k --keep c d --select e=f g=h:int --type i=int --output out"
    with score.make_context("score", words.split(), MARPACK, resilient_parsing=True) as context:
        given = {
            name: context.params[name]
            for name in ("inputs", "source", "json_object", "keep", "select", "types", "output")
        }
    assert given == {
        "inputs": ("a", "b"),
        "source": "digits.mar",
        "json_object": ("j", "k"),
        "keep": ("c", "d"),
        "select": {"e": "f", "g": "h:int"},
        "types": {"i": "int"},
        "output": "out",
    }
