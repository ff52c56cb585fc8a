"""What the options of `marpack run` send to the handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marpack.cli.run_options import header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from marpack.runner.inputs import Input
    from marpack.runner.resume import Journal
    from marpack.runner.sources import Wanted


def inputs_of(options: dict[str, Any], journal: Journal | None = None) -> Iterator[Input]:
    """Return the inputs, in order, less those that a journal holds.

    Raises UsageError for what is not there, before anything is loaded; only names are held, not contents.
    """
    from itertools import chain

    from marpack.runner.inputs import Shape, data_inputs, file_inputs, form_input
    from marpack.runner.replay import check_requests, recorded_inputs
    from marpack.runner.sources import check_sources, paths_of
    from marpack.torchserve.messages import MAX_BODY

    limit = options["max_request_size"] or MAX_BODY
    if options["recorded"]:
        if options["recorded"] != "-":
            check_requests(options["recorded"])
        return _unanswered(recorded_inputs(options["recorded"], limit=limit), journal)
    shape = Shape(
        content_type=options["content_type"],
        headers=tuple(header(text) for text in options["headers"]),
        explain=options["explain"],
        describe=options["describe"],
        max_request_size=limit,
    )
    wanted = _wanted(options["kind"])
    check_sources(options["inputs"], wanted=wanted)
    paths = paths_of(options["inputs"], wanted=wanted)
    files = file_inputs(paths, shape, skip=journal.holds if journal else lambda _: False)
    form = iter((form_input(options["form"], shape),)) if options["form"] else iter(())
    return chain(files, _unanswered(chain(data_inputs(options["data"], shape), form), journal))


def _unanswered(inputs: Iterator[Input], journal: Journal | None) -> Iterator[Input]:
    return inputs if journal is None else journal.unanswered(inputs)


def count_of(options: dict[str, Any]) -> int | None:
    """Return how many inputs there are, or None where only reading them would tell."""
    from marpack.runner import sources

    if options["recorded"]:
        return None
    files = sources.count_of(options["inputs"], wanted=_wanted(options["kind"]))
    return None if files is None else files + len(options["data"]) + bool(options["form"])


def _wanted(kind: str | None) -> Wanted | None:
    """Return what says of a file's name whether it is of a kind: `image`, `image/png`, `png` or `.png`."""
    if kind is None:
        return None
    from pathlib import PurePath

    from marpack.runner.inputs import type_of_suffix

    suffix = "." + kind.lstrip(".").lower()

    def is_of_kind(name: str) -> bool:
        own = PurePath(name).suffix.lower()
        known = type_of_suffix(own) or ""
        return own == suffix or known == kind or known.partition("/")[0] == kind

    return is_of_kind
