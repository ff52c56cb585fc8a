"""The one way a result becomes JSON on stdout."""

import sys

import msgspec


def show(result: object) -> None:
    """Write one result as indented JSON and a newline to stdout, and nothing else."""
    text = msgspec.json.format(msgspec.json.encode(result, order="deterministic"), indent=2)
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.flush()
