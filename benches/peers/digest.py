"""A number that depends on every value of a result, but not on the order of its rows.

Row by row h = (h ^ value) * M, h ^= h >> 32, over window start (ms; 0 without windows), key, aggregates; the sum
of all h modulo 2^64. Text keys are those of `saltmill gen`, user-0000042, and count as their number.
"""
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

START = 0x9E3779B97F4A7C15
MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
ROWS = 1 << 20


def words(column):
    """64 bits of each value of a column without nulls."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    if column.null_count:
        raise ValueError("a result has a null")
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_binary(kind):
        column = column.cast(pa.string())
        if not pc.all(pc.starts_with(column, "user-")).as_py():
            raise ValueError("a key is not of the generator's form")
        column = pc.utf8_slice_codeunits(column, 5).cast(pa.int64())
    elif pa.types.is_floating(kind):
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False).view(np.uint64)
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ms", kind.tz)).cast(pa.int64())
    elif not pa.types.is_integer(kind) or kind.bit_width != 64:
        # Sums may be wider than 64 bits; a value that does not fit is an error.
        column = column.cast(pa.int64())
    return column.to_numpy(zero_copy_only=False).view(np.uint64)


def digest(tables):
    """Rows and digest of tables whose columns are window start, key, aggregates."""
    rows, total = 0, 0
    for table in tables:
        for start in range(0, table.num_rows, ROWS):
            part = table.slice(start, ROWS)
            h = np.full(part.num_rows, START, dtype=np.uint64)
            for column in part.columns:
                h ^= words(column)
                h *= MULTIPLIER
                h ^= h >> np.uint64(32)
            total = (total + int(np.add.reduce(h, dtype=np.uint64))) % 2**64
            rows += part.num_rows
    return {"rows": rows, "digest": f"{total:016x}"}
