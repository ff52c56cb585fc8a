"""A real torch.export program with dynamic shapes, and ways to change what is written in it."""

import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

Change = Callable[[dict[str, Any]], object]
AUTO = torch.export.Dim.AUTO


class Dynamic(nn.Module):
    """Sizes that come out as most of the functions that torch writes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, stride=2)

    def forward(
        self, x: torch.Tensor, named: dict[str, torch.Tensor], *, target: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        rows, count = target.shape[0], named["a b"].shape[0]
        picked = target.sum().long().item()
        torch._check(picked >= 0)
        torch._check(picked < rows)
        sizes = [rows % 7 + 1, rows**2, (rows * 3) // (rows + 2), 2**rows, max(rows, count), torch.sym_min(rows, count)]
        return (
            nn.functional.interpolate(self.conv(x), scale_factor=1.5, mode="bilinear"),
            nn.functional.pad(target, (0, (-rows) % 8)),
            named["a b"][:-1] * rows**0.5 + count / 2,
            target[:picked],
            *(torch.zeros(size) for size in sizes),
        )


def write_dynamic(path: Path) -> Path:
    """Export the model."""
    inputs = (torch.ones(2, 3, 32, 32), {"a b": torch.ones(3)})
    shapes = {"x": {0: AUTO, 2: AUTO, 3: AUTO}, "named": {"a b": {0: AUTO}}, "target": {0: AUTO}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(Dynamic(), inputs, {"target": torch.zeros(5)}, dynamic_shapes=shapes)
        torch.export.save(program, path)
    return path


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


def with_guard(text: str) -> Change:
    """Return a change that adds a guard."""
    return lambda program: program["guards_code"].append(text)
