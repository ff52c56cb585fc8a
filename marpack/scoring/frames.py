"""Tables of other libraries in memory: dicts of columns, Arrow's, and pandas', which is not imported for them."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from marpack.errors import UsageError
from marpack.scoring.batches import RowBatch
from marpack.scoring.mapping import RowMapping


def batch_of(rows: Any, mapping: RowMapping) -> RowBatch:  # Any: of whichever library
    """Return all rows of a table; raises UsageError for what is none, and for one without a mapping's columns."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        mapping.check(rows.schema)
        return RowBatch(0, rows.num_rows, rows)
    if isinstance(rows, Mapping):
        mapping.check_names(list(rows))
        counts = {len(values) for values in rows.values()}
        if len(counts) > 1:
            raise UsageError("the columns are of different lengths", where="rows")
        return RowBatch(0, max(counts, default=0), rows)
    if hasattr(rows, "columns") and hasattr(rows, "assign"):
        mapping.check_names(list(rows.columns))
        return RowBatch(0, len(rows), {name: _without_nan(rows[name]) for name in mapping.asked})
    hint = "give a dict of columns, an Arrow table or a pandas DataFrame"
    raise UsageError(f"this is no table but of type {type(rows).__name__}", where="rows", hint=hint)


def _without_nan(series: Any) -> Any:  # Any: pandas'
    """Return a column whose missing values are null, which pandas writes as NaN."""
    try:
        return pa.array(series, from_pandas=True)
    except pa.ArrowException:  # of values of several types
        return series.tolist()


def with_columns(rows: Any, keep: tuple[str, ...], made: Mapping[str, Any]) -> Any:  # Any: as above, pyarrow's arrays
    """Return a table like another, of those of its columns that are kept and of new ones."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        fields = [*(rows.schema.field(name) for name in keep), *(pa.field(name, made[name].type) for name in made)]
        columns = [*(rows.column(name) for name in keep), *made.values()]
        return type(rows).from_arrays(columns, schema=pa.schema(fields))
    if isinstance(rows, Mapping):
        return {name: rows[name] for name in keep} | {name: array.to_pylist() for name, array in made.items()}
    return rows[list(keep)].assign(**{name: array.to_pandas().to_numpy() for name, array in made.items()})
