"""The one way a result becomes JSON on stdout."""

import sys

import msgspec


def show(result: object) -> None:
    """Write one result as indented JSON and a newline to stdout, and nothing else."""
    text = msgspec.json.format(msgspec.json.encode(result, order="deterministic"), indent=2)
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.flush()


def show_line(result: object) -> None:
    """Write one result as a line of JSON to stdout, at once."""
    sys.stdout.buffer.write(msgspec.json.encode(result, order="deterministic") + b"\n")
    sys.stdout.flush()
