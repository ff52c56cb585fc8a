"""One archive for the static checks: its members, its manifest, and what should be found in it."""

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

from marpack.archive.manifest import Manifest, ManifestModel
from marpack.findings import Finding
from marpack.inspection.lint.linting import lint
from marpack.protocol.targets import Target

# A class and a function that a server is content with.
CLASS = """\
class Handler:
    def initialize(self, context):
        self.context = context

    def handle(self, data, context):
        return [1 for _ in data]
"""
FUNCTION = """\
def handle(data, context):
    return [1 for _ in data or []]
"""
BASE = """\
import torch
from ts.torch_handler.base_handler import BaseHandler


class Handler(BaseHandler):
    def preprocess(self, data):
        return torch.zeros(len(data), 2)
"""
NET = """\
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x)
"""


class Members:
    """A MemberView over bytes in memory."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    @property
    def entries(self) -> Iterable[str]:
        return self._files.keys()

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(self._files[name])


@dataclass(frozen=True)
class Case:
    """What a table of tests holds per row."""

    name: str
    files: Mapping[str, str | bytes | Callable[[], bytes]]  # the last: what makes them
    expected: tuple[str, ...] = ()  # "E code member:line", in any order
    model: Mapping[str, str] = field(default_factory=dict)  # fields of the manifest's model
    runtime: str = "python"
    target: Target = Target.TORCHSERVE
    fails: bool | None = None  # whether the real server does; None where errors tell: then it must agree
    answers: bool = True  # whether a request of one byte can be asked of it

    @property
    def manifest(self) -> Manifest:
        return Manifest(
            model=ManifestModel(**{"name": "probe", "handler": "handler.py", **self.model}), runtime=self.runtime
        )

    @property
    def members(self) -> dict[str, bytes]:
        made = {name: content() if callable(content) else content for name, content in self.files.items()}
        return {name: content.encode() if isinstance(content, str) else content for name, content in made.items()}

    def findings(self) -> list[Finding]:
        return lint(Members(self.members), self.manifest, target=self.target)


def check_case(case: Case) -> None:
    """Assert that the checks find in a case what it expects, each with a hint and without a full stop."""
    found = case.findings()
    assert told(found) == sorted(case.expected), case.name
    assert not [finding.message for finding in found if finding.message.endswith(".")]
    assert not [finding.code for finding in found if not finding.hint]


def told(findings: Iterable[Finding]) -> list[str]:
    """Return findings as tables write them."""
    return sorted(f"{item.severity[0].upper()} {item.code} {item.where}" for item in findings)
