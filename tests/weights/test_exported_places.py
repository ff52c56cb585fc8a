"""A hostile text at every place of a program: either marpack reports it, or torch does not run it."""

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from lazy import torch
from weights.exports import changed, description_of

from marpack.weights.contents import TorchZip
from marpack.weights.exported_scan import scan_exported
from marpack.weights.pickle import OpcodeBudget

# Texts that make a folder: evaluated as they are, or pasted behind quotes of either kind.
RUN = "__import__('os').mkdir({!r})"
HOSTILE = (RUN, f"' + str({RUN.replace(chr(39), chr(34))}) + '", f'" + str({RUN}) + "')
# Keys whose texts torch runs or pastes into source somewhere, to be tried in every object.
KEYS = (
    *("expr_str", "guards_code", "name", "as_name", "as_string", "as_strings", "target", "as_operator", "class_fqn"),
    *("parameter_name", "fqn", "type", "in_spec", "out_spec", "forward_arg_names", "field_names", "dialect"),
)
Place = tuple[str | int, ...]


def places(value: object, place: Place = ()) -> Iterator[tuple[Place, object]]:
    """Yield every part of a description with its place."""
    yield place, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*place, key))


def put(program: dict[str, Any], place: Place, value: object) -> None:
    """Replace the part at a place."""
    for key in place[:-1]:
        program = program[key]
    program[place[-1]] = value  # type: ignore[index]


def variants(program: dict[str, Any], hostile: str) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield the program with a text in place of each text, as a key of each map, and under each key of each object."""
    for place, value in places(program):
        found: list[tuple[Place, object]] = [(place, hostile)] if isinstance(value, str) else []
        if isinstance(value, dict):
            found += [((*place, key), [hostile] if key.endswith("s") else hostile) for key in (*KEYS, hostile)]
        for changed_place, new in found:
            evil = copy.deepcopy(program)
            put(evil, changed_place, new)
            yield changed_place, evil


@pytest.mark.slow
@pytest.mark.parametrize("hostile", HOSTILE, ids=["as it is", "behind '", 'behind "'])
def test_a_hostile_text_is_reported_or_does_not_run(hostile: str, small_program: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    text = hostile.replace("{!r}", repr(str(marker)) if "'os'" in hostile else json.dumps(str(marker)))
    path, clean, reported = tmp_path / "evil.pt2", 0, 0
    for place, program in variants(description_of(small_program), text):
        changed(small_program, path, lambda described, program=program: (described.clear(), described.update(program)))
        with path.open("rb") as file:
            if scan_exported(TorchZip(file), OpcodeBudget()).problems:
                reported += 1
                continue
        clean += 1
        with suppress(Exception):  # torch may refuse it with any error
            torch.export.load(path).module()(torch.ones(3, 4), torch.ones(3, 4))
        assert not marker.exists(), place
    assert reported > 300
    assert clean
