"""The library's one call that builds a project."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import marpack
from marpack.archive.reader import open_archive
from marpack.errors import BuildError, ProjectError
from marpack.project.load import load_project
from marpack.project.plan import pack
from marpack.project.planning import plan_project

FUNCTION = "def handle(data, context):\n    return [1 for _ in data or []]\n"

Make = Callable[..., Path]


def test_builds_a_project_from_its_folder_or_its_file(make_project: Make) -> None:
    folder = make_project(**{"handler.py": FUNCTION})
    counted: list[int] = []
    built = pack(plan_project(load_project(folder)).plan, counted.append)
    assert (built.path, built.members, sum(counted)) == (folder / "tiny.mar", 3, len(FUNCTION))
    again = marpack.build(str(folder / "marpack.yaml"), output=folder / "dist" / "again.mar")
    assert again.content_digest == built.content_digest
    with open_archive(again.path) as archive:
        assert archive.manifest.model.handler == "handler.py"


def test_strict_holds_here_too(make_project: Make) -> None:
    folder = make_project("name: tiny\nversion: 1\nhandler: handler.py\nfiles: ['*.x']\n", **{"handler.py": FUNCTION})
    assert Path(marpack.build(folder).path).exists()
    with pytest.raises(ProjectError):
        marpack.build(folder, strict=True)


def test_a_folder_that_cannot_be_made(make_project: Make) -> None:
    folder = make_project(**{"handler.py": FUNCTION})
    planned = plan_project(load_project(folder), output=folder / "dist" / "x.mar")
    (folder / "dist").touch()
    with pytest.raises(BuildError, match=os.strerror(errno.EEXIST)) as caught:
        pack(planned.plan)
    assert caught.value.code == "unwritable-output"
