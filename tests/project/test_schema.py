"""The mistakes in expectations and metadata: each at its key, before anything is built."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

import marpack
from marpack.archive.index import Metadata, index_of
from marpack.archive.reader import open_archive
from marpack.errors import ProjectError
from marpack.findings import Finding
from marpack.project.load import load_project
from marpack.project.planning import plan_project
from marpack.project.schema import (
    Expectation,
    ProjectMetadata,
    contact,
    is_web_address,
    metadata_mistakes,
    mistakes,
    valid_metadata,
)

# An expectation → the key and a word of each mistake.
WRONG: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"status": 99}, [("status", "99")]),
    ({"status": 600}, [("status", "600")]),
    ({"text": {"regex": "["}}, [("text.regex", "unterminated")]),
    ({"shape": [2, -1]}, [("shape", "negative")]),
    ({"json": {"cat": {"min": "0.9"}}}, [("json.cat.min", "quotes")]),
    ({"json": {"cat": {"tolerance": 0.1}}}, [("json.cat.tolerance", "approx")]),
    ({"json": {"cat": {"approx": 1, "tolerance": -1}}}, [("json.cat.tolerance", "negative")]),
    ({"json": {"min": math.nan}}, [("json.min", "nan")]),
    ({"json": {"min": 10**400}}, []),
    ({"json": [1, {"min": 2, "max": 1}]}, [("json[1].min", "at least 2")]),
    ({"json": {"min": 2, "max": 1, "approx": 1, "tolerance": 1}}, [("json.min", "at most 1")]),
    ({"json": {"a": [{"b": {"min": "1", "max": "x"}}]}}, [("json.a[0].b.min", "quotes")]),
    *(
        (right, [])
        for right in (
            {},
            {"status": 100},
            {"status": 599, "body": "", "text": "x", "shape": [], "json": None},
            {"text": {"regex": ".*", "contains": []}},
            {"json": {"cat": {"min": 0.5, "max": 0.5}}},
            {"json": {"cat": {"approx": 0.5, "tolerance": 0, "min": 0, "max": 1}}},
            {"shape": [0, 3]},
            {"json": {"min": "warm", "max": "hot"}},  # an object that happens to have these keys
            {"json": {"min": 30, "max": "hot"}},
            {"json": {"min": 1, "max": False}},
            {"json": {"min": "0.5", "unit": "K"}},
            {"json": [[], {}, "0.5", True]},
        )
    ),
]


@pytest.mark.parametrize(("told", "expected"), WRONG)
def test_mistakes_are_reported_at_their_keys(told: dict[str, Any], expected: list[tuple[str, str]]):
    found = list(mistakes(msgspec.convert(told, Expectation)))
    assert [key for key, _ in found] == [key for key, _ in expected]
    assert all(word in message for (_, message), (_, word) in zip(found, expected, strict=True))


Make = Callable[..., Path]
HANDLER = {"handler.py": "def handle(data, context):\n    return [1 for _ in data or []]\n"}
HEAD = "name: tiny\nversion: '1.0'\nhandler: handler.py\n"
FULL = (
    HEAD + "metadata:\n  license: apache-2.0 or licenseref-Ours\n  authors: [Ada <ada@example.org>, ' The team ']\n"
    "  description: >\n    Tells digits\n    apart.\n  homepage: https://example.org/m?v=1#top\n"
)
SAID = Metadata(
    license="Apache-2.0 OR LicenseRef-Ours",
    authors=("Ada <ada@example.org>", "The team"),
    description="Tells digits apart.",
    homepage="https://example.org/m?v=1#top",
)
# Under metadata, in YAML → the place and the code of the one finding, and a word of its message or hint.
WRONG_METADATA = {
    "{licence: MIT}": ("metadata.licence", "unknown-key", "license"),
    "{license: ' '}": ("metadata.license", "metadata", "empty"),
    "{license: Apache 2.0}": ("metadata.license", "metadata", "Apache-2.0"),
    "{license: proprietary}": ("metadata.license", "metadata", "LicenseRef-NAME"),
    "{license: MIT AND}": ("metadata.license", "metadata", "MIT?"),
    "{license: LicenseRef-a b}": ("metadata.license", "metadata", "LicenseRef-NAME"),
    '{license: "MIT\\nOR MIT"}': ("metadata.license", "metadata", "control"),
    "{authors: [Ada, '']}": ("metadata.authors[1]", "metadata", "empty"),
    "{authors: [Ada <ada>]}": ("metadata.authors[0]", "metadata", "'Ada <ada>'"),
    "{authors: [Ada <a@b> and others]}": ("metadata.authors[0]", "metadata", "author"),
    '{authors: ["Ada\\e[31m"]}': ("metadata.authors[0]", "metadata", "control"),
    '{description: "a bell \\a"}': ("metadata.description", "metadata", "control"),
    "{homepage: example.org}": ("metadata.homepage", "metadata", "'example.org'"),
    "{homepage: 'javascript:alert(1)'}": ("metadata.homepage", "metadata", "address"),
    "{homepage: 'https://me:secret@example.org'}": ("metadata.homepage", "metadata", "password"),
}


def refused(folder: Path) -> tuple[Finding, ...]:
    with pytest.raises(ProjectError) as caught:
        plan_project(load_project(folder), check=False)
    return caught.value.findings


@pytest.mark.parametrize("written", WRONG_METADATA)
def test_invalid_metadata_is_reported_at_its_key(make_project: Make, written: str) -> None:
    (finding,) = refused(make_project(HEAD + f"metadata: {written}\n", **HANDLER))
    where, code, word = WRONG_METADATA[written]
    assert ((finding.where or "").partition(": ")[2], finding.code) == (where, code)
    assert word in f"{finding.message} {finding.hint}"
    assert "secret" not in f"{finding.message} {finding.hint}"


@pytest.mark.parametrize("nothing", ["", "metadata: {}\n", "metadata: {authors: []}\n"])
def test_where_nothing_is_said_the_bytes_are_those_of_before(make_project: Make, nothing: str) -> None:
    folder = make_project(HEAD + nothing, **HANDLER)
    assert plan_project(load_project(folder), check=False).plan.metadata is UNSET
    with open_archive(marpack.build(folder).path) as archive, archive.open("MAR-INF/marpack.json") as file:
        assert list(json.loads(file.read())) == ["format", "members", "provenance", "samples", "target"]


def test_an_archive_says_it_and_a_project_made_of_it_says_it_again(make_project: Make, tmp_path: Path) -> None:
    first = marpack.build(make_project(FULL, **HANDLER))
    with open_archive(first.path) as archive:
        index = index_of(archive)
        assert index is not None
        assert index.metadata == SAID
    assert marpack.inspect(first.path).metadata == SAID
    assert marpack.init(tmp_path / "again", from_=first.path).findings == ()
    assert marpack.build(tmp_path / "again").content_digest == first.content_digest


def test_what_others_recorded_and_no_project_can_say_is_left_out() -> None:
    theirs = Metadata(license="BSD", authors=("A", "\x1b"), description="fine", homepage="ftp://x")
    assert valid_metadata(theirs) == Metadata(description="fine")
    assert valid_metadata(SAID) == SAID


def test_a_diff_tells_what_is_said_otherwise(make_project: Make, tmp_path: Path) -> None:
    folder = make_project(FULL, **HANDLER)
    marpack.build(folder, output=tmp_path / "a.mar")
    (folder / "marpack.yaml").write_text(FULL.replace("apache-2.0 or licenseref-Ours", "MIT").replace("Ada", "Bob"))
    marpack.build(folder, output=tmp_path / "b.mar", source_commit="A" * 40)
    found = marpack.diff(tmp_path / "a.mar", tmp_path / "b.mar").recorded
    assert [(each.name, each.before, each.after) for each in found] == [
        ("metadata.license", "Apache-2.0 OR LicenseRef-Ours", "MIT"),
        ("metadata.authors", ("Ada <ada@example.org>", "The team"), ("Bob <ada@example.org>", "The team")),
        ("provenance.source_commit", None, "a" * 40),
    ]


AUTHORS = {
    "Ada": ("Ada", ""),
    "Ada Lovelace <ada@example.org>": ("Ada Lovelace", "ada@example.org"),
    "<ada@example.org>": ("", "ada@example.org"),
}
NO_AUTHORS = ["Ada <ada@b@c>", "Ada <a da@b>", "Ada <@b>", "Ada <ada@b", "ada@b>", "A> <a@b>", " "]


@pytest.mark.parametrize("written", [*AUTHORS, *NO_AUTHORS])
def test_an_author_is_a_name_an_address_or_both(written: str) -> None:
    assert contact(written) == AUTHORS.get(written)


ADDRESSES = ["https://example.org", "HTTP://example.org:8080/a?b=c#d%20e", "https://münchen.example/ß"]
NO_ADDRESSES = [
    *("https://", "https:///path", "//example.org", "https://example.org/a b", "https://example.org/%zz"),
    *("https://example.org:99999", "https://example.org/#a#b", "https://example.org/\x01", "https://[::1"),
]


@pytest.mark.parametrize("text", [*ADDRESSES, *NO_ADDRESSES])
def test_a_homepage_is_an_address_that_a_browser_takes(text: str) -> None:
    assert is_web_address(text) is (text in ADDRESSES)


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (ProjectMetadata(license="LicenseRef-" + "a" * 245), 0),
        (ProjectMetadata(license="LicenseRef-" + "a" * 246), 1),
        (ProjectMetadata(authors=["A" * 256, *["B"] * 255]), 0),
        (ProjectMetadata(authors=["A" * 257]), 1),
        (ProjectMetadata(authors=["B"] * 257), 1),
        (ProjectMetadata(description=f" {'x' * 4096} "), 0),
        (ProjectMetadata(description="x" * 4097), 1),
        (ProjectMetadata(homepage="https://a/".ljust(2048, "b")), 0),
        (ProjectMetadata(homepage="https://a/".ljust(2049, "b")), 1),
    ],
)
def test_each_text_has_its_length(given: ProjectMetadata, wrong: int) -> None:
    assert len(list(metadata_mistakes(given))) == wrong


def test_a_description_may_have_lines() -> None:
    assert list(metadata_mistakes(ProjectMetadata(description="One.\n\n\tTwo, with a zero-width\u200djoiner.\n"))) == []
