"""The options of `marpack score`, in the groups that `--help` shows, as Python has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import click

from marpack.cli.options import Options, seconds, size
from marpack.cli.run_options import ARCHIVES, BODY_SIZE, DIGEST, ENVELOPES, MODEL, RunCommand, grouped, header, option
from marpack.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

SUMMARY = "--json-summary"


class ScoreCommand(RunCommand):
    """A command whose `--json` names the columns behind it and, without any, asks for the summary."""

    several: ClassVar[dict[str, str]] = RunCommand.several | {
        name: name for name in ("--json", "--json-object", "--keep", "--select", "--type")
    }

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take each word behind `--json`, `--keep` and the like for one of theirs."""
        return super().parse_args(ctx, spelt_json(args))


def spelt_json(words: Sequence[str]) -> list[str]:
    """Return the words with `--json-summary` in place of a `--json` that no column follows."""
    following = [*words[1:], "-"]
    return [
        SUMMARY if word == "--json" and after.startswith("-") | after.endswith(ARCHIVES) else word
        for word, after in zip(words, following, strict=False)
    ]


_GROUPS = {
    "Tables": (
        option("-i", "--input", "inputs", multiple=True, metavar="FILE…", help=(
            "Parquet, Arrow, CSV, JSONL; folders, globs, s3://…"
        )),
        option("--output", metavar="DIR", help="A folder for the parts, which is made."),
        option("--keep", multiple=True, metavar="COLUMN…", help="Columns that are copied."),
        option("--limit", type=click.IntRange(1), metavar="N", help="Read N rows at most, of all inputs together."),
        option("--resume", is_flag=True, help="Go on with the parts that are in the folder."),
    ),
    "A row's request, one of": (
        option("--body", metavar="COLUMN", help="Bytes, sent as they are."),
        option("--text", metavar="COLUMN", help="Text, sent as text/plain."),
        option("--json", multiple=True, metavar="COLUMN…", help="One column's value, or an object of several."),
        option("--json-object", multiple=True, metavar="COLUMN…", help="Columns, always sent as one JSON object."),
        option("--path", metavar="COLUMN", help="The names of files below --root."),
        option("--url", metavar="COLUMN", help="http and https addresses, which are fetched."),
    ),
    "Requests": (
        option("--root", metavar="DIR", help="Where the files of --path lie [.]."),
        option("--allow-private", is_flag=True, help="Fetch from private and local addresses, too."),
        option("--type", "types", multiple=True, metavar="COLUMN=TYPE…", help=(
            "Of texts in JSON: int, float, bool, json, text."
        )),
        option("--content-type", metavar="TYPE", help="Of the bodies [by the column, or by content]."),
        option("-H", "--header", "headers", multiple=True, metavar="K=V", help="A request header."),
        option("--explain", is_flag=True, help="Ask for explanations instead of predictions."),
        option("--envelope", type=ENVELOPES, help="The server's service_envelope setting [none]."),
        option("--max-request-size", **BODY_SIZE),
        option("--max-response-size", **BODY_SIZE),
    ),
    "Answers": (
        option("--select", multiple=True, metavar="NAME=PATH…", help=(
            "A column from the answer's JSON: top=probs[0]:float."
        )),
        option("--encode-binary", is_flag=True, help="Bodies that are no UTF-8 as base64."),
        option("--format", type=click.Choice(["parquet", "jsonl"]), default="parquet", help="Of the parts [parquet]."),
        option("--part-rows", type=click.IntRange(1), default=65_536, metavar="N", help="Rows of a part [65536]."),
        option("--max-errors", metavar="N|P%", help="Stop once more rows have failed [never]."),
        option(SUMMARY, "as_json", is_flag=True, help="What it adds up to, as JSON; --json alone is the same."),
    ),
    "Workers": (
        option("--batch-size", type=click.IntRange(1), default=1, metavar="N", help="Rows per call of handle [1]."),
        option("--workers", type=click.IntRange(1), default=1, metavar="N", help="Processes that share the rows [1]."),
        option("--isolate", is_flag=True, help="Ask the rows of a batch that failed again, one by one."),
        option("--timeout", type=seconds, metavar="SECONDS", help="For a batch [the config's, or 120]."),
        option("--startup-timeout", type=seconds, metavar="SECONDS", help="For loading [the config's, or 120]."),
        option("--max-memory", type=size, metavar="SIZE", help="Data a worker may have, e.g. 2GB [no bound]."),
    ),
    "Model": (*MODEL, DIGEST),
    "Cluster": (
        option("--on", type=click.Choice(["local", "ray"]), default="local", help=(
            "ray: the parts are shared out by Ray Data [local]."
        )),
        option("--address", metavar="ADDRESS", help="Of a cluster: HOST:PORT or auto [Ray is started here]."),
        option("--actors", type=click.IntRange(1), metavar="N", help="Loaded models [as many as fit]."),
    ),
}  # fmt: skip
score_options = grouped(_GROUPS)


def parsed(options: Options) -> Options:
    """Return the options as Python has them; raises UsageError for what is missing or malformed."""
    from marpack.runner.inputs import as_utf8

    if not options["inputs"]:
        raise UsageError("there is nothing to score", hint="name tables: marpack score --input FILE…")
    if not options["output"]:
        raise UsageError("there is no place for the results", hint="name a folder: --output DIR")
    if options["allow_private"] and not options["url"]:
        raise UsageError("--allow-private is for addresses, and none are fetched", hint="leave it out, or add --url")
    if options["on"] != "ray":
        for name in ("address", "actors"):
            if options[name] is not None:
                raise UsageError("this is for a cluster", where=f"--{name}", hint="add --on ray")
    return options | {
        "headers": tuple(header(text) for text in options["headers"]),
        "select": _pairs("--select", options["select"], "label=a.b[0]:text"),
        "types": _pairs("--type", options["types"], "age=int"),
        "content_type": as_utf8(options["content_type"] or "", "--content-type") or None,
    }


def _pairs(name: str, texts: Sequence[str], example: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise UsageError(
                "this is a name, = and what it stands for", where=f"{name} {text}", hint=f"as in {example}"
            )
        if key in pairs:
            raise UsageError(f"{key} is given twice", where=f"{name} {text}")
        pairs[key] = value
    return pairs
