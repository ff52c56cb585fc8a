import pytest

from marpack.archive.reader import open_archive
from marpack.runner.environments import has_requirements, requirement_notes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", []),
        ("msgspec\nclick>=8\n", []),
        ("msgspec<0.1\n", ["msgspec"]),
        ("no-such-package-anywhere\n", ["no-such-package-anywhere is not installed"]),
        ("# a comment\n-r other.txt\n--extra-index-url x\n./local/folder\n", []),
        ("no-such-package-anywhere; python_version < '3'\n", []),
        ("msgspec \\\n    --hash=sha256:00\n", []),
        ("msgspec<0.1 --hash=sha256:00\n", ["msgspec"]),
        ("msgspec<0.1 # too old\n", ["msgspec"]),
        ("not a requirement at all !\n", []),
    ],
)
def test_what_this_environment_does_not_meet_is_noted(make_mar, text: str, told: list[str]):
    mar = make_mar("", files={"requirements.txt": text}, requirementsFile="requirements.txt")
    with open_archive(mar) as archive:
        notes = list(requirement_notes(archive))
    assert len(notes) == len(told)
    for note, words in zip(notes, told, strict=True):
        assert words in note.message
        assert note.severity == "note"
        # Another version of a package that workers share cannot be had that way.
        assert ("--env isolated" in (note.hint or "")) is ("msgspec" not in note.message)


def test_an_archive_without_requirements_has_none(make_mar):
    with open_archive(make_mar("")) as archive:
        assert not has_requirements(archive)
    with open_archive(make_mar("", name="gone", requirementsFile="gone.txt")) as archive:
        assert not has_requirements(archive)
