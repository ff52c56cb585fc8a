"""The page of two archives compared, line by line."""

from typing import Any

import click
import pytest

from marpack.inspection.diff import Change, Diff, FieldDifference, TensorDiff
from marpack.render.diff import diff_lines


def differs(name: str, change: Change = Change.CHANGED, before: Any = None, after: Any = None) -> FieldDifference:
    return FieldDifference(name=name, change=change, before=before, after=after)


def shown(width: int = 80, **values: Any) -> list[str]:
    given: dict[str, Any] = {"before": "a.mar", "after": "b.mar", "same": False}
    return [click.unstyle(line) for line in diff_lines(Diff(**(given | values)), width)]


def size(count: int) -> dict[str, Any]:
    return {"size": count, "sha256": None}


def tensor(*shape: int, dtype: str = "float32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape)}


PAGE = """\
- a.mar
+ b.mar

manifest
  ~ model.modelVersion  1.0 → 2
  + model.extensions    ["a","b"]
  - createdOn           today

recorded
  ~ target  torchserve → marpack

members
  ~ handler.py  10 bytes → 1.0 kB
  ~ labels.txt  10 bytes, other bytes
  + new.py      20 bytes
  - old.py      30 bytes

config
  ~ batchSize  1 → null

labels
  ~ 0  cat → dog

tensors of w.pt → v.pt
  4 of 7 differ, 1 have no numbers here to compare
  ~ a  float32 [3], other values
  ~ b  float32 [3] → float16 [3]
  + c  int64 []
  - d  float32 [2, 3]

tensors of x.pt
  0 of 2 differ
  broken it is cut
"""


def test_the_whole_page():
    lines = shown(
        manifest=(
            differs("model.modelVersion", before="1.0", after=2),
            differs("model.extensions", Change.ADDED, after=["a", "b"]),
            differs("createdOn", Change.REMOVED, before="today"),
        ),
        recorded=(differs("target", before="torchserve", after="marpack"),),
        members=(
            differs("handler.py", before=size(10), after=size(1000)),
            differs("labels.txt", before=size(10), after=size(10)),
            differs("new.py", Change.ADDED, after=size(20)),
            differs("old.py", Change.REMOVED, before=size(30)),
        ),
        config=(differs("batchSize", before=1),),
        labels=(differs("0", before="cat", after="dog"),),
        tensors=(
            TensorDiff(
                member="w.pt",
                other="v.pt",
                same=2,
                uncompared=1,
                differences=(
                    differs("a", before=tensor(3), after=tensor(3)),
                    differs("b", Change.RETYPED, tensor(3), tensor(3, dtype="float16")),
                    differs("c", Change.ADDED, after=tensor(dtype="int64")),
                    differs("d", Change.REMOVED, before=tensor(2, 3)),
                ),
            ),
            TensorDiff(member="x.pt", other="x.pt", same=2, problem="it is cut"),
        ),
    )
    assert lines == PAGE.splitlines()


def test_what_is_the_same_says_so_and_nothing_else():
    assert shown(same=True) == ["the same", "- a.mar", "+ b.mar"]


@pytest.mark.parametrize(
    ("count", "last"), [(40, "  ~ key39  0 → 1"), (41, "  … and 1 more"), (1040, "  … and 1,000 more")]
)
def test_of_many_differences_the_first_are_shown(count: int, last: str):
    lines = shown(config=tuple(differs(f"key{number}", before=0, after=1) for number in range(count)))
    assert lines[4] == "  ~ key0   0 → 1"
    assert lines[43] == "  ~ key39  0 → 1"
    assert lines[-1] == last
    assert len(lines) == min(count, 40) + 4 + (count > 40)


def test_names_have_half_the_line_and_values_the_rest():
    (line,) = shown(60, config=(differs("k" * 50, before="x" * 50, after=1),))[4:]
    assert line == f"  ~ {'k' * 25}…  {'x' * 27}…"
    (line,) = shown(60, config=(differs("key", before="x" * 50, after=1),))[4:]
    assert line == f"  ~ key  {'x' * 50}…"


def test_what_was_added_is_green_and_what_is_gone_is_red():
    gone, new, other = list(
        diff_lines(
            Diff(
                before="a",
                after="b",
                same=False,
                config=(differs("x", Change.REMOVED, 1), differs("y", Change.ADDED, None, 1), differs("z")),
            ),
            80,
        )
    )[4:]
    assert gone == click.style("  - x  1", fg="red")
    assert new == click.style("  + y  1", fg="green")
    assert other == click.style("  ~ z  null → null", fg="yellow")
