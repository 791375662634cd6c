#!/usr/bin/env python3
"""Holds `saltmill run` against DuckDB, row by row, on real data.

usage: duckdb_check.py SALTMILL DATA

SALTMILL is the program, DATA the folder with online_retail/, nycflights13/ and vega_flights/. Keys, windows,
counts, sums and extremes must be equal, means and float sums within 1e-12 of each other (relative), since
DuckDB adds floats in any order. Needs the package duckdb.
"""
import csv
import io
import math
import subprocess
import sys
from dataclasses import dataclass, field

import duckdb

TOLERANCE = 1e-12


@dataclass
class Case:
    """One job, in the words of both."""

    name: str
    args: list
    sql: str
    keys: int
    floats: set = field(default_factory=set)


def cases(data):
    retail = f"{data}/online_retail/online_retail.csv.gz"
    flights = f"{data}/nycflights13/flights.csv.gz"
    vega = f"{data}/vega_flights/flights-3m.parquet"
    yield Case(
        "online_retail by customer and day",
        [retail, "--key", "CustomerID", "--time", "InvoiceDate", "--window", "tumbling:1d",
         "--agg", "count,sum(Quantity),avg(UnitPrice),min(UnitPrice),max(UnitPrice)"],
        f"""SELECT date_trunc('day', InvoiceDate), CustomerID, count(*), sum(Quantity), avg(UnitPrice),
                   min(UnitPrice), max(UnitPrice)
            FROM read_csv('{retail}', sample_size=-1, types={{'CustomerID': 'BIGINT',
                 'InvoiceDate': 'TIMESTAMP', 'Quantity': 'BIGINT', 'UnitPrice': 'DOUBLE'}})
            GROUP BY 1, 2""",
        1, {2, 3, 4})
    for keys in ("carrier", "origin,dest"):
        yield Case(
            f"flights by {keys} and hour, NA as null, in the file's order",
            [flights, "--key", keys, "--time", "time_hour", "--window", "tumbling:1h", "--null", "NA",
             "--out-of-orderness", "400d", "--agg",
             "count,count(arr_delay),sum(arr_delay),avg(dep_delay),min(arr_delay),max(distance)"],
            f"""SELECT date_trunc('hour', time_hour), {keys}, count(*), count(arr_delay), sum(arr_delay),
                       avg(dep_delay), min(arr_delay), max(distance)
                FROM read_csv('{flights}', sample_size=-1, nullstr='NA', types={{'time_hour': 'TIMESTAMP',
                     'arr_delay': 'BIGINT', 'dep_delay': 'BIGINT', 'distance': 'BIGINT'}})
                GROUP BY ALL""",
            len(keys.split(",")), {3})
    yield Case(
        "3,000,000 flights of a parquet file by origin and hour",
        [vega, "--key", "origin", "--time", "date", "--window", "tumbling:1h", "--agg",
         "count,sum(delay),avg(delay),min(distance),max(distance)"],
        f"""SELECT date_trunc('hour', date), origin, count(*), sum(delay), avg(delay), min(distance),
                   max(distance) FROM read_parquet('{vega}') GROUP BY ALL""",
        1, {2})


def text(value):
    """A value of DuckDB as saltmill's csv writes it, except for floats."""
    if value is None:
        return ""
    if hasattr(value, "isoformat"):
        return value.isoformat().removesuffix("+00:00").removesuffix("Z")
    return str(value)


def from_saltmill(program, case):
    output = subprocess.run([program, "run", *case.args, "--output-format", "csv"],
                            check=True, capture_output=True, text=True).stdout
    rows = csv.reader(io.StringIO(output))
    next(rows)
    found = {}
    for start, _end, *rest in rows:
        key = (start.removesuffix("Z"), *rest[:case.keys])
        assert key not in found, f"{case.name}: two result rows for {key}"
        found[key] = rest[case.keys:]
    return found


def from_duckdb(case):
    rows = duckdb.sql(case.sql).fetchall()
    return {tuple(text(part) for part in row[:1 + case.keys]): row[1 + case.keys:] for row in rows}


def check(program, case):
    found, expected = from_saltmill(program, case), from_duckdb(case)
    missing, extra = expected.keys() - found.keys(), found.keys() - expected.keys()
    assert not missing and not extra, \
        f"{case.name}: {len(missing)} keys missing ({sorted(missing)[:3]}), {len(extra)} more ({sorted(extra)[:3]})"
    for key, want in expected.items():
        for i, (have, value) in enumerate(zip(found[key], want, strict=True)):
            if i in case.floats and value is not None:
                same = math.isclose(float(have), value, rel_tol=TOLERANCE, abs_tol=1e-300)
            else:
                same = have == text(value)
            assert same, f"{case.name}: {key}: aggregate {i} is {have}, DuckDB has {value}"
    print(f"{case.name}: {len(expected)} rows equal")


def main():
    program, data = sys.argv[1:3]
    for case in cases(data):
        check(program, case)


if __name__ == "__main__":
    main()
