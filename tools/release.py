"""What a release has to show before it is one: its files, built as an installer would, looked into and tried.

From the repository's root: python -m tools.release [--without-address]

Tried: installed into an empty venv, where the tutorial's commands do what the tutorial says. With each Python that is
on PATH, wheel and sdist with the newest dependencies; with the first of them the wheel with the oldest, too, which are
the floors of pyproject.toml and its extras. torch is the one of constraints.txt, as its floor is untested.
"""

import argparse
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any, NamedTuple

from packaging.requirements import Requirement

from tools.package_page import RELATIVE

ROOT = Path(__file__).parents[1]
NEWEST = 14  # the last Python 3 that is out
NOT_FOR_USERS = {"dev", "docs"}  # extras
CI_PAGE = "docs/how-to/ci.md"
NOBODYS = "OWNER/marpack"  # what that page says while there is no address
GOOD, BAD, NOT_SHOWN = "✓", "✗", "not shown"


class Line(NamedTuple):
    """One line of the table."""

    mark: str
    what: str
    detail: str


class ReleaseError(Exception):
    """Something that must not be released, as a sentence."""


def attempt(what: str, work: Callable[..., str], *arguments: object) -> Line:
    """Do a piece of work and return its line; what a page does not do as it says is an AssertionError."""
    try:
        return Line(GOOD, what, work(*arguments))
    except (ReleaseError, AssertionError, subprocess.TimeoutExpired) as error:
        return Line(BAD, what, str(error))


def call(*command: str | Path) -> str:
    """Run a command that sees nothing of this checkout, and return what it says."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=environment, stdout=PIPE, stderr=STDOUT, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout


def lines(home: Path, *, without_address: bool) -> Iterator[Line]:
    """Yield the table's lines as they come; `home` is an empty folder."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    repository = settings["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    version, page = runpy.run_path(str(ROOT / "marpack/version.py"))["__version__"], (ROOT / CI_PAGE).read_text()
    yield attempt("version", released, version, (ROOT / "CHANGELOG.md").read_text(), page)
    address = attempt("address", addressed, repository, page)
    yield address._replace(mark=NOT_SHOWN) if without_address and not repository else address
    built = attempt("build", lambda: call(sys.executable, "-m", "build", "--outdir", home, ROOT) and "sdist and wheel")
    yield built
    if built.mark == BAD:
        return
    wheel, sdist = next(home.glob("*.whl")), next(home.glob("*.tar.gz"))
    yield attempt("wheel", contents, wheel, tracked("marpack", "templates"))
    yield attempt("sdist", contents, sdist, tracked("marpack", "templates", "examples", "tools/package_page.py"))
    yield attempt("package page", page_renders, wheel, sdist, repository)
    yield from trials(wheel, sdist, settings["project"], home)


def released(version: str, changelog: str, page: str) -> str:
    """Return the version that the changelog tells of, and a page names no other."""
    if not re.search(rf"^## \[?{re.escape(version)}(?![\w.])", changelog, re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has no section {version}: name its `## Unreleased` so")
    if others := set(re.findall(r"(?:@|rev: )v(\d+\.\d+\.\d+)", page)) - {version}:
        raise ReleaseError(f"{CI_PAGE} names {', '.join(sorted(others))}, where {version} is released")
    return f"{version}, of which CHANGELOG.md tells"


def addressed(repository: str, page: str) -> str:
    """Return the repository's address, which pages name as well."""
    if not repository:
        raise ReleaseError("no address: README's links lead nowhere on a package page")
    if NOBODYS in page and NOBODYS not in repository:
        raise ReleaseError(f"{CI_PAGE} still says {NOBODYS}, where {repository} is meant")
    return repository


def tracked(*names: str) -> list[str]:
    """Return the files of some folders that git knows."""
    return call("git", "-C", ROOT, "ls-files", "-z", *names).rstrip("\0").split("\0")


def contents(file: Path, sources: Collection[str]) -> str:
    """Return how much is in a wheel or an sdist: the sources, metadata, and what stands at an sdist's top."""
    if file.suffix == ".whl":
        names = set(zipfile.ZipFile(file).namelist())
        inside = {name for name in names if ".dist-info/" not in name}
        expected = {name if name.startswith("marpack/") else f"marpack/{name}" for name in sources}
    else:
        with tarfile.open(file) as archive:
            names = {member.name.partition("/")[2] for member in archive if member.isfile()}
        inside, expected = {name for name in names if "/" in name}, set(sources)
    for wrong, fault in ((inside - expected, "holds what is none of ours"), (expected - inside, "lacks")):
        if wrong:
            raise ReleaseError(f"{fault}: {', '.join(sorted(wrong)[:5])}" + f", {len(wrong)} in all" * (len(wrong) > 5))
    return f"{file.name}, {file.stat().st_size / 1000:,.0f} kB in {len(names)} files"


def page_renders(wheel: Path, sdist: Path, repository: str) -> str:
    """Return how an index shows the files; where there is an address, each link must be whole."""
    call(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(metadata).decode()
    if repository and (relative := RELATIVE.findall(text)):
        raise ReleaseError(f"links that lead nowhere: {', '.join(relative)}")
    return "an index would take and render it"


def trials(wheel: Path, sdist: Path, project: Mapping[str, Any], home: Path) -> Iterator[Line]:
    """Yield what comes of the files with every Python from the oldest on."""
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    extras = ",".join(sorted(set(project["optional-dependencies"]) - NOT_FOR_USERS))
    ways = [("wheel, newest", str(wheel), [torch]), ("sdist, newest", str(sdist), [torch])]
    oldest = [("wheel, oldest", f"{wheel}[{extras}]", [torch, *floors(project)])]
    for minor in range(int(project["requires-python"].rpartition(".")[2]), NEWEST + 1):
        python = find(minor)
        if python is None:
            yield Line(NOT_SHOWN, f"Python 3.{minor}", f"Python 3.{minor} is not here")
            continue
        for what, file, pins in ways + oldest:
            yield attempt(f"Python 3.{minor}: {what}", tried, python, file, pins, home / "trial")
        oldest = []
    yield Line(NOT_SHOWN, "oldest torch", f"its floor is untested: {torch} everywhere")


def find(minor: int, path: str | None = None) -> str | None:
    """Return the first Python 3 of that minor version on PATH that starts: a version manager's may be there and not."""
    for folder in (path or os.environ["PATH"]).split(os.pathsep):
        program = shutil.which(f"python3.{minor}", path=folder)
        if program and subprocess.run([program, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return program
    return None


def floors(project: Mapping[str, Any]) -> list[str]:
    """Return the oldest dependencies that a project says it takes, torch aside, as constraints of pip's."""
    extras = [texts for name, texts in project["optional-dependencies"].items() if name not in NOT_FOR_USERS]
    found = set()
    for requirement in map(Requirement, chain(project["dependencies"], *extras)):
        oldest = next(each.version for each in requirement.specifier if each.operator == ">=")
        marker = f"; {requirement.marker}" if requirement.marker else ""
        found.add(f"{requirement.name}=={oldest}{marker}")
    return sorted(each for each in found if not each.startswith("torch=="))


def tried(python: str, file: str, pins: list[str], home: Path) -> str:
    """Return what the tutorial was tried with, in an empty venv."""
    shutil.rmtree(home, ignore_errors=True)
    programs = home / "venv" / "bin"
    call(python, "-m", "venv", home / "venv")
    (home / "constraints.txt").write_text("\n".join(pins))
    pip = (programs / "python", "-m", "pip", "--disable-pip-version-check")
    options = ("--quiet", "--only-binary", ":all:", "--constraint", home / "constraints.txt")
    call(*pip, "install", *options, file, "pytest")
    call(*pip, "check")
    play_tutorial(programs, home)
    return f"the tutorial does what it says, with {len(call(*pip, 'list', '--format', 'freeze').split())} packages"


def play_tutorial(programs: Path, home: Path) -> None:
    """Run the tutorial in a copy of the examples, by the `marpack` and `python` in a folder."""
    sys.path.append(str(ROOT / "tests"))  # where pages are played
    from docs.test_commands import Session, play_page

    shutil.copytree(ROOT / "examples", home / "work/examples", ignore=shutil.ignore_patterns("*.mar", "__pycache__"))
    session = Session(home / "work", programs)
    environment = {name: value for name, value in session.environment.items() if name != "PYTHONPATH"}
    session.environment = environment | {"MARPACK_CACHE_DIR": str(home / "cache")}
    play_page(ROOT / "docs/tutorial.md", session)


def main(arguments: list[str] | None = None) -> int:
    """Print the table as its lines come; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--without-address", action="store_true", help="pass although the repository has no address")
    failed = False
    with tempfile.TemporaryDirectory() as home:
        for line in lines(Path(home), **vars(parser.parse_args(arguments))):
            print(f"{line.mark:<10}{line.what:<28}{line.detail}", flush=True)
            failed |= line.mark == BAD
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
