"""A real torch.export program with dynamic shapes, and ways to change what is written in it."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

Change = Callable[[dict[str, Any]], object]
AUTO = torch.export.Dim.AUTO


class Adding(nn.Module):
    """As little as a program can do."""

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return x + target


def write_small(path: Path) -> Path:
    """Export a model that adds its inputs."""
    program = torch.export.export(
        Adding(), (torch.ones(3, 4), torch.ones(3, 4)), dynamic_shapes={"x": {0: AUTO}, "target": {0: AUTO}}
    )
    torch.export.save(program, path)
    return path


def members_of(path: Path) -> dict[str, bytes]:
    """Return a zip's members by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def changed(source: Path, target: Path, change: Change, **files: bytes) -> Path:
    """Write a program again with another description; `files` are further members by their paths in it."""
    members = members_of(source)
    root = next(iter(members)).partition("/")[0]
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in members.items():
            if "/models/" in name:
                described = json.loads(data)
                change(described)
                archive.writestr(name, json.dumps(described))
            elif name.partition("/")[2] not in files:
                archive.writestr(name, data)
        for inside, data in files.items():
            archive.writestr(f"{root}/{inside}", data)
    return target


def with_size(text: str) -> Change:
    """Return a change that puts a text in the place of the first symbolic size."""

    def change(program: dict[str, Any]) -> None:
        values = program["graph_module"]["graph"]["tensor_values"].values()
        size = next(size for meta in values for size in meta["sizes"] if "as_expr" in size)
        size["as_expr"]["expr_str"] = text

    return change
