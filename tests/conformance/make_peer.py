"""The peer: a venv with the real TorchServe 0.12, made from a package index, for the conformance suite to compare with.

Run as `python tests/conformance/make_peer.py DIR`; it prints the value for MARPACK_PEER. A finished venv is kept.
"""

import hashlib
import os
import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# What the server, the archiver and the built-in handlers need; torchvision comes apart, without its own idea of torch.
TORCH = "torch==2.13.0"
REQUIREMENTS = (
    *(TORCH, "torchserve==0.12.0", "torch-model-archiver==0.12.0", "captum==0.9.0"),
    *("packaging", "psutil", "pyyaml", "setuptools", "wheel"),
)
# What decodes pictures and computes numbers must be the same on both sides for the same bytes to come out.
AS_HERE = ("numpy", "onnxruntime", "pillow")
WITHOUT_DEPENDENCIES = ("torchvision==0.28.0",)

# torchvision from the public index is built against the CUDA wheel of torch. Beside a CPU wheel its native operators
# do not load, and its Python half, all that the handlers use, then stumbles over these two names.
SITE_CUSTOMIZE = '''"""Declare the torchvision operators that its Python half asks for, once torch is imported."""

import importlib.abc
import importlib.machinery
import sys


class _Declare(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "torchvision":
            return None
        sys.meta_path.remove(self)
        import torch

        global library  # torch forgets the operators with the object that declared them
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            try:
                library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            except RuntimeError:
                pass  # the native library is there after all
        return None


sys.meta_path.insert(0, _Declare())
'''


def requirements() -> list[str]:
    """Return everything to install with its dependencies; of what is installed here too, the same version."""
    return [*REQUIREMENTS, *map(_as_here, AS_HERE)]


def _as_here(package: str) -> str:
    try:
        return f"{package}=={version(package)}"
    except PackageNotFoundError:
        return package


def recipe() -> str:
    """Return the digest of everything a finished venv depends on."""
    parts = (*requirements(), *WITHOUT_DEPENDENCIES, SITE_CUSTOMIZE, sys.version)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def make_peer(folder: Path) -> Path:
    """Make the venv in a folder unless it is there already; return its folder of programs."""
    programs = folder / "bin"
    stamp = folder / "marpack-peer"
    if stamp.is_file() and stamp.read_text() == recipe():
        return programs
    venv.create(folder, clear=True)
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet"]
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--compile-bytecode"]
    uv += ["--python", str(programs / "python")]
    _install(pip, TORCH)  # uv does not look where pip is told to find a build for the CPU
    for arguments in (requirements(), ["--no-deps", *WITHOUT_DEPENDENCIES]):
        try:
            _install(uv, *arguments)
        except (OSError, subprocess.CalledProcessError):  # it is not installed, or finds no package index
            _install(pip, *arguments)
    _site_packages(programs).joinpath("sitecustomize.py").write_text(SITE_CUSTOMIZE)
    stamp.write_text(recipe())
    return programs


def _install(command: list[str], *arguments: str) -> None:
    # The shell's own settings (an index, a cache) hold here too; its virtual environment does not.
    environment = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONHOME"}}
    subprocess.run([*command, *arguments], check=True, env=environment, stdout=sys.stderr)


def _site_packages(programs: Path) -> Path:
    command = [programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} DIR   (the venv to make, e.g. .venvs/peer)")
    sys.stdout.write(f"{make_peer(Path(sys.argv[1]).absolute())}\n")
