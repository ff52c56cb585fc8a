"""The plan of a run, made before it starts: the archive, the rows, the columns and the identity of its parts."""

from enum import StrEnum
from hashlib import blake2b
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from marpack.scoring.mapping import INPUT, ROW, RowMapping
from marpack.scoring.storage import FileState
from marpack.scoring.tables import TableInput, TableKind

PART_ROWS = 65_536  # of every part but an input's last


class PartFormat(StrEnum):
    """The format of the results."""

    PARQUET = "parquet"
    JSONL = "jsonl"


class InputIdentity(Struct, frozen=True):
    """The identity of an input when a run is resumed."""

    number: int
    name: str
    kind: TableKind
    state: FileState
    rows: int | None


class RunIdentity(Struct, frozen=True):
    """The identity of a run, which all its parts share."""

    archive: str  # its content digest
    options: dict[str, str]  # those that answers depend on, as texts
    inputs: str  # a digest of all identities
    input_count: int


class ScorePlan(Struct, frozen=True, kw_only=True):
    """One run."""

    archive: str  # its content digest
    mapping: RowMapping
    inputs: tuple[TableInput, ...]
    kept: tuple[Any, ...] = ()  # Any: pyarrow's fields, of the columns that are copied
    format: PartFormat = PartFormat.PARQUET
    part_rows: int = PART_ROWS
    batch_size: int = 1
    limit: int | None = None  # rows that are read, of all inputs together
    options: dict[str, str] = {}  # further options that answers depend on, such as the target

    @property
    def schema(self) -> Any:  # Any: pyarrow's
        """The columns of every part: input (where there are several), row, those kept, the answer's, status, error."""
        several = [pa.field(INPUT, pa.int32())] if len(self.inputs) > 1 else []
        return pa.schema([*several, pa.field(ROW, pa.int64()), *self.kept, *self.mapping.answers.fields])

    @property
    def rows(self) -> int | None:
        """The number of rows to read, if all inputs state theirs."""
        counts = [table.rows for table in self.inputs if table.rows is not None]
        total = sum(counts) if len(counts) == len(self.inputs) else None
        return total if total is None or self.limit is None else min(total, self.limit)

    def mapping_of(self, number: int) -> RowMapping:
        """Return how the rows of the input of a number become requests."""
        return self.inputs[number].mapping(self.mapping)

    def identity_of(self, number: int) -> InputIdentity:
        """Return the identity of the input of a number."""
        table = self.inputs[number]
        return InputIdentity(number, table.shown, table.kind, table.state, table.rows)

    def identity(self) -> RunIdentity:
        """Return the identity of the run, with digests of headers, which may be secret."""
        headers = tuple((name, _digest(value.encode())) for name, value in self.mapping.headers)
        of_mapping = msgspec.to_builtins(replace(self.mapping, headers=headers))
        usual = msgspec.to_builtins(RowMapping(**{self.mapping.source: getattr(self.mapping, self.mapping.source)}))
        words = {
            **{name: value for name, value in of_mapping.items() if value != usual[name]},
            self.mapping.source: of_mapping[self.mapping.source],
            "format": self.format,
            "part_rows": self.part_rows,
            "batch_size": self.batch_size,
            "limit": self.limit,
            **self.options,
        }
        texts = {
            name: value if isinstance(value, str) else msgspec.json.encode(value, order="deterministic").decode()
            for name, value in words.items()
            if value is not None
        }
        inputs = _digest(msgspec.json.encode([self.identity_of(number) for number in range(len(self.inputs))]))
        return RunIdentity(self.archive, texts, inputs, len(self.inputs))


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
