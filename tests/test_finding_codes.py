"""The table of finding codes: a case finds the code of every static check."""

from inspection.lint.content_cases import CASES as CONTENTS
from inspection.lint.handler_cases import CASES as HANDLERS

from tools.reference.findings import CHAPTERS, rows

# Found by tests beside the tables of cases: test_hostile.py, test_contents.py and test_handlers.py.
ELSEWHERE = {
    "member-unreadable", "sources-too-large", "check-gave-up", "labels-unchecked", "requirements-too-large",
    "config-key-missing", "manifest-key-missing", "handler-base-unknown",
}  # fmt: skip


def test_every_static_check_is_found_by_a_case() -> None:
    names = list(rows())
    static = set(names[names.index("model-name") : names.index("does-not-load")])
    expected = {line.split()[1] for case in (*HANDLERS, *CONTENTS) for line in case.expected}
    assert static - expected - ELSEWHERE == set()


def test_every_chapter_begins_with_a_code() -> None:
    assert set(CHAPTERS.values()) <= set(rows())
