"""The table of finding codes: every row is complete, and a static check's code is found by a case."""

import re
import string

from inspection.lint.content_cases import CASES as CONTENTS
from inspection.lint.handler_cases import CASES as HANDLERS

from tools.reference.findings import CHAPTERS, rows

# Found by tests beside the tables of cases: test_hostile.py, test_contents.py and test_handlers.py.
ELSEWHERE = {
    "member-unreadable", "sources-too-large", "check-gave-up", "labels-unchecked", "requirements-too-large",
    "config-key-missing", "manifest-key-missing", "handler-base-unknown",
}  # fmt: skip


def test_every_row_is_complete() -> None:
    for name, codes in rows().items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert codes[0].cause.endswith("."), name
        for code in codes:
            assert not code.message.endswith("."), name
            assert not code.hint or code.hint[-1] in ".})`…", name
            fields = {field for _, field, _, _ in string.Formatter().parse(code.message) if field}
            assert not fields & {"where", "severity", "hint"}, name


def test_every_static_check_is_found_by_a_case() -> None:
    names = list(rows())
    static = set(names[names.index("model-name") : names.index("does-not-load")])
    expected = {line.split()[1] for case in (*HANDLERS, *CONTENTS) for line in case.expected}
    assert static - expected - ELSEWHERE == set()


def test_every_chapter_begins_with_a_code() -> None:
    assert set(CHAPTERS.values()) <= set(rows())
