"""A zip that torch wrote: which of its formats it is, and the pickles in it, each read once."""

import re
from contextlib import suppress
from typing import BinaryIO

from marpack.weights.kind import WeightsFormat
from marpack.weights.pickle_machine import OpcodeBudget
from marpack.weights.pickle_stream import Stream
from marpack.weights.weights_only import disallowed
from marpack.weights.zip_entries import NotZipError, ZipEntry, open_entry, read_directories

_AOT_LIBRARY = re.compile(r"(?:^|/)data/aotinductor/[^/]+/.+\.(?:so|pyd|dll|dylib)$")
_STORAGES = {"data.pkl": "data/", "constants.pkl": "constants/", "traced_inputs.pkl": "traced_inputs/"}
_EXPORTED = re.compile(r"(?:^|/)models/[^/]+\.json$")
# torch looks members up without regard to case, under the folder of the first one.
_EXPORT_MARK = re.compile(r"(?:[^/]*/archive_format|serialized_exported_program\.json)", re.IGNORECASE)


class TorchZip:
    """The members of one such zip, their common folder taken off."""

    def __init__(self, file: BinaryIO, directories: list[tuple[ZipEntry, ...]], budget: OpcodeBudget) -> None:
        self._file = file
        self._budget = budget
        self.entries = entries = tuple(dict.fromkeys(entry for each in directories for entry in each))
        self.is_ambiguous = len(directories) > 1  # readers find different members
        self.root = _root(entries)
        self.members = {entry.name.removeprefix(self.root): entry for entry in reversed(entries)}
        self._streams: dict[str, Stream] = {}

    @classmethod
    def read(cls, file: BinaryIO, budget: OpcodeBudget | None = None) -> "TorchZip":
        """Read the zip's directory; its pickles are read within a budget, or one of their own. Raises NotZipError."""
        return cls(file, read_directories(file), budget or OpcodeBudget())

    def open(self, name: str) -> BinaryIO:
        """Open a member by its name without the common folder. Raises KeyError, NotZipError."""
        return open_entry(self._file, self.members[name])

    def open_entry(self, entry: ZipEntry) -> BinaryIO:
        """Open one of the entries, also one that another of its name hides. Raises NotZipError."""
        return open_entry(self._file, entry)

    def pickle(self, name: str) -> Stream:
        """Read the first pickle of a member, at the first call. Raises KeyError, NotZipError."""
        if name not in self._streams:
            self._streams[name] = self._budget.read(self.open(name))
        return self._streams[name]

    def read_already(self, name: str, entry: ZipEntry) -> Stream | None:
        """Return the pickle of a member if `pickle` was asked for it before."""
        return self._streams.get(name) if self.members.get(name) is entry else None

    @property
    def kind(self) -> WeightsFormat:
        """The format, by the members that each of torch's writers leaves."""
        if any(_AOT_LIBRARY.search(name) for name in self.members):
            return WeightsFormat.AOTI_PACKAGE
        if "serialized_exported_program.json" in self.members:  # torch.export.save up to torch 2.7
            return WeightsFormat.TORCH_EXPORT
        if "archive_format" in self.members:
            exported = any(_EXPORTED.search(name) for name in self.members)
            return WeightsFormat.TORCH_EXPORT if exported else WeightsFormat.UNKNOWN
        if "data.pkl" not in self.members:
            return WeightsFormat.UNKNOWN
        return WeightsFormat.TORCHSCRIPT if "constants.pkl" in self.members else self._saved_kind()

    @property
    def is_exported(self) -> bool:
        """Tell whether torch.export.load takes it for a program, whatever else it is."""
        return any(_EXPORT_MARK.fullmatch(entry.name) for entry in self.entries)

    def _saved_kind(self) -> WeightsFormat:
        try:
            return saved_kind(self.pickle("data.pkl"))
        except NotZipError:
            return WeightsFormat.UNKNOWN


def saved_kind(stream: Stream) -> WeightsFormat:
    """Return what torch.save wrote, by its pickle."""
    if stream.problem is not None and not stream.unfollowed:
        return WeightsFormat.UNKNOWN
    return WeightsFormat.PICKLED_MODULE if disallowed(stream.imports) or stream.computed else WeightsFormat.STATE_DICT


def _root(entries: tuple[ZipEntry, ...]) -> str:
    """Return the one folder that every member lies in, with its slash; torch names it after the file."""
    tops = {entry.name.partition("/")[0] for entry in entries}
    if len(tops) != 1:
        return ""
    top = f"{tops.pop()}/"
    return top if all(entry.name.startswith(top) for entry in entries) else ""


def plain_members(file: TorchZip) -> frozenset[ZipEntry]:
    """Return the members that torch reads as numbers, or as code of its own language: it unpickles none of them."""
    names: set[str] = set()
    for pickle, folder in _STORAGES.items():
        with suppress(KeyError, NotZipError):
            names.update(f"{folder}{key}" for key in file.pickle(pickle).storages)
    if file.kind is WeightsFormat.TORCHSCRIPT:
        names.update(name for name in file.members if name.startswith("code/"))
    return frozenset(file.members[name] for name in names if name in file.members)
