"""Save trained models as files with the same bytes on every machine."""

import warnings
import zipfile
from io import BytesIO
from itertools import groupby
from pathlib import Path

import torch
from torch import nn

_WRITTEN_BY_TORCH = ("version", "byteorder", ".data/serialization_id", ".storage_alignment")


def make_deterministic(seed: int = 0) -> None:
    """Seed torch and forbid nondeterminism; use one thread, because sums depend on how they are split."""
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)


def save_torchscript(net: nn.Module, path: Path) -> None:
    """Script a model and save it without debug records, which contain the absolute paths of all sources."""
    buffer = BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch recommends export; the server needs TorchScript
        torch.jit.save(torch.jit.script(net.eval()), buffer)
    with zipfile.ZipFile(buffer) as full:
        records = {info.filename.partition("/")[2]: full.read(info) for info in full.infolist()}
    writer = torch._C.PyTorchFileWriter(str(path))  # noqa: SLF001 - aligns tensors as torch.jit.save does
    for name, content in records.items():
        if name.endswith(".debug_pkl") or name in _WRITTEN_BY_TORCH:
            continue
        kept = _sort_constants(content) if name.endswith(".py") else content
        writer.write_record(name, kept, len(kept))
    writer.write_end_of_file()


def _sort_constants(code: bytes) -> bytes:
    """Sort each class's constants, because torch lists them in the order of a set, which differs between runs."""
    runs = groupby(code.splitlines(keepends=True), key=lambda line: b" : Final[" in line)
    return b"".join(b"".join(sorted(run) if constants else run) for constants, run in runs)


def save_onnx(net: nn.Module, example: torch.Tensor, path: Path, *, input_name: str, output_name: str) -> None:
    """Save a model with one input and one output as ONNX, for batches of any size."""
    batch = {input_name: {0: "batch"}, output_name: {0: "batch"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the newer exporter needs another package
        torch.onnx.export(
            net.eval(),
            (example,),
            str(path),
            dynamo=False,
            input_names=[input_name],
            output_names=[output_name],
            dynamic_axes=batch,
        )


def save_exported(net: nn.Module, example: torch.Tensor, path: Path) -> None:
    """Save a model with one input as a torch.export program, for batches of any size."""
    batch = torch.export.Dim("batch")
    program = torch.export.export(net.eval(), (example,), dynamic_shapes=({0: batch},))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it contains the absolute paths of all sources
    torch.export.save(program, path)
