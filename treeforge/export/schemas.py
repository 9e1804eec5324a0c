"""Columns of the export formats, their Arrow schemas, and plain columns to Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from treeforge.errors import DataError
from treeforge.store.parquet import VERSION_KEY
from treeforge.store.tables import text_array

SCHEMA_VERSION = 1
"""Version of the exported columns; grows when a column changes its meaning, name or type."""

FORMAT_KEY = b"treeforge.format"

LIST_OF_ROWS = pa.list_(pa.int32())

Columns = Mapping[str, Any]
"""One entry a column, all of one length: a numpy array, an Arrow array, or a list of texts or of tuples."""


def scalar_name(kind: Any) -> str:
    """An Arrow type that holds no others, as `datasets` and polars users know it."""
    return {"float": "float32", "double": "float64"}.get(str(kind), str(kind))


class Column(msgspec.Struct, frozen=True):
    """One column of a format."""

    name: str
    kind: Any
    """The Arrow type."""
    about: str
    """One line for the dataset card: meaning, unit, what null says."""


def make_schema(name: str, columns: Sequence[Column]) -> pa.Schema:
    """The schema of format `name`, the same for every shard, with the format and the schema version as metadata.

    No time, host or treeforge version: the same rows give the same bytes.
    """
    fields = [pa.field(column.name, column.kind) for column in columns]
    return pa.schema(fields, metadata={FORMAT_KEY: name, VERSION_KEY: str(SCHEMA_VERSION)})


def make_table(columns: Columns, schema: pa.Schema) -> pa.Table:
    """Columns as an Arrow table. NaN becomes null; in a bool column of int8s, -1 does.

    Raises `DataError` for a text that is not Unicode.
    """
    arrays = []
    for field in schema:
        values = columns[field.name]
        if isinstance(values, pa.Array):
            arrays.append(values if values.type == field.type else values.cast(field.type))
        elif not isinstance(values, np.ndarray):
            arrays.append(_list_array(field, values))
        elif pa.types.is_boolean(field.type) and values.dtype == np.int8:
            arrays.append(pa.array(values == 1, field.type, mask=values < 0))
        else:
            arrays.append(pa.array(values, field.type, from_pandas=True))
    return pa.Table.from_arrays(arrays, schema=schema)


def _list_array(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    kind = field.type
    if pa.types.is_string(kind) or (pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type)):
        return text_array(field.name, values, kind)
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError as error:  # of a text somewhere inside a struct; which row does not matter to the fix
        raise DataError(
            f"a row holds a lone surrogate ({error.object[error.start]!a}), which no file can carry",
            field=field.name,
            fix="Clean the text with treeforge.policy.steps.clean_text",
        ) from None
