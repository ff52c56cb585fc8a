"""marpack.yaml as types: the one place that says which keys there are."""

from pathlib import Path
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from marpack.project.severities import Severities
from marpack.torchserve.targets import Target

FILE_NAME = "marpack.yaml"

_FilePath = Annotated[str, Meta(description="A path, relative to the folder of marpack.yaml.")]


class FileMapping(Struct, frozen=True, forbid_unknown_fields=True):
    """One file or folder to pack under another name."""

    source: Annotated[str, Meta(description="A file, folder or glob, relative to the project.")] = field(name="from")
    to: Annotated[str, Meta(description="Its name in the archive; ends with / for a folder.")]


class TextExpectation(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an answer's body, read as UTF-8 text, must hold."""

    contains: Annotated[str | list[str] | None, Meta(description="Text that must be in the body.")] = None
    regex: Annotated[str | None, Meta(description="A Python regular expression that must match somewhere.")] = None


class Expectation(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the server must answer to a sample; `marpack check` replays it."""

    status: Annotated[int | None, Meta(description="The HTTP status, from 100 to 599.")] = None
    body: Annotated[str | None, Meta(description="The exact body, as text.")] = None
    json: Annotated[
        Any, Meta(description="A part of the JSON body; a number may be {min, max} or {approx, tolerance}.")
    ] = UNSET
    text: Annotated[str | TextExpectation | None, Meta(description="Text that the body contains.")] = None
    shape: Annotated[list[int] | None, Meta(description="The shape of the nested lists in a JSON body.")] = None


class Sample(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One recorded input, packed under MAR-INF/samples/, and what is expected of its answer."""

    input: Annotated[str, Meta(description="The file whose bytes are the request's body.")]
    expect: Annotated[Expectation | None, Meta(description="What the answer must be.")] = None


class ProjectFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of marpack.yaml."""

    name: Annotated[
        str,
        Meta(description="The model's name; the archive is <name>.mar.", pattern=r"^[A-Za-z0-9][A-Za-z0-9_\-.]*$"),
    ]
    version: Annotated[
        str,
        Meta(description="The model's version, as text.", extra_json_schema={"type": ["string", "number"]}),
    ]
    handler: Annotated[str, Meta(description="A built-in such as image_classifier, or file.py, or file.py:function.")]
    weights: Annotated[str | None, Meta(description="The weights: .pt .pth .safetensors .onnx .pt2 .so")] = None
    model_file: Annotated[str | None, Meta(description="For eager models: the file with the one nn.Module.")] = None
    labels: Annotated[str | None, Meta(description="Labels: .json .yaml .txt .csv, packed as index_to_name.json.")] = (
        None
    )
    requirements: Annotated[str | None, Meta(description="The requirements.txt to pack.")] = None
    target: Annotated[Target, Meta(description="Whose behaviour run and check show.")] = Target.TORCHSERVE
    files: Annotated[
        list[_FilePath | FileMapping], Meta(description="More files, folders and globs; trees keep their shape.")
    ] = []
    config: Annotated[
        dict[str, Any] | str | None, Meta(description="The model's configuration itself, or a path to a YAML file.")
    ] = None
    samples: Annotated[list[Sample], Meta(description="Inputs with the answers they must get.")] = []
    checks: Annotated[
        Severities, Meta(description="How much a failed check of `marpack check` weighs, by its name.")
    ] = Severities()


class Project(ProjectFile, frozen=True, kw_only=True):
    """A project: what its marpack.yaml says, and where it lies."""

    folder: Path
    file: str = FILE_NAME  # the path of marpack.yaml, as messages name it
    lines: dict[str, int] = {}  # key → line in the file, for messages

    def place(self, key: str) -> str:
        """Return where a key stands, as `path:line: key`; a key of a list's item falls back on the list's."""
        line = self.lines.get(key) or self.lines.get(key.partition("[")[0])
        return f"{self.file}:{line}: {key}" if line else f"{self.file}: {key}"


__all__ = [
    "FILE_NAME",
    "Expectation",
    "FileMapping",
    "Project",
    "ProjectFile",
    "Sample",
    "Target",
    "TextExpectation",
    "UnsetType",
]
