#!/usr/bin/env python3
"""Compares `saltmill run` with DuckDB on three real data sets, row by row.

    duckdb_check.py SALTMILL DATA_FOLDER

Keys, counts, integers, minima and maxima must be equal, averages and sums of floats to 1e-12 relative (DuckDB's
`favg` and `fsum`, which are Kahan sums; its plain ones are not that precise). Exit code 1 if anything differs.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb

TOLERANCE = 1e-12
DIFFERENCES_SHOWN = 5


@dataclass
class Case:
    """One job, as arguments and as a query. `time` is None for a job without windows."""

    file: str
    source: str
    keys: list[str]
    time: str | None
    window: str
    interval: str
    aggregates: str
    columns: list[str]
    options: list[str]


RETAIL = "online_retail/online_retail.csv.gz"
RETAIL_SQL = (
    "read_csv('{path}', types={{'CustomerID': 'BIGINT', 'InvoiceDate': 'TIMESTAMP', "
    "'Quantity': 'BIGINT', 'UnitPrice': 'DOUBLE', 'InvoiceNo': 'VARCHAR'}})"
)
FLIGHTS = "nycflights13/flights.csv.gz"
FLIGHTS_SQL = "read_csv('{path}', nullstr='NA', types={{'time_hour': 'TIMESTAMP', 'tailnum': 'VARCHAR'}})"
# Months are out of order in the file.
FLIGHTS_OPTIONS = ["--null", "NA", "--out-of-orderness", "400d"]
VEGA = "vega_flights/flights-3m.parquet"
VEGA_SQL = "read_parquet('{path}')"

RETAIL_AGG = "count,sum(Quantity),avg(UnitPrice),min(UnitPrice),max(UnitPrice)"
RETAIL_COLUMNS = ["count(*)", "sum(Quantity)", "favg(UnitPrice)", "min(UnitPrice)", "max(UnitPrice)"]
FLIGHTS_AGG = (
    "count,count(dep_delay),sum(dep_delay),avg(arr_delay),min(arr_delay),max(air_time),min(tailnum),max(dest)"
)
FLIGHTS_COLUMNS = [
    "count(*)", "count(dep_delay)", "sum(dep_delay)", "avg(arr_delay)", "min(arr_delay)", "max(air_time)",
    "min(tailnum)", "max(dest)",
]
VEGA_AGG = "count,sum(delay),avg(distance),min(delay),max(distance)"
VEGA_COLUMNS = ["count(*)", "sum(delay)", "avg(distance)", "min(delay)", "max(distance)"]


def retail(keys: list[str], window: str, interval: str, *options: str) -> Case:
    return Case(
        RETAIL, RETAIL_SQL, keys, "InvoiceDate", window, interval, RETAIL_AGG, RETAIL_COLUMNS, list(options)
    )


def flights(keys: list[str], window: str, interval: str, *options: str) -> Case:
    return Case(
        FLIGHTS, FLIGHTS_SQL, keys, "time_hour", window, interval, FLIGHTS_AGG, FLIGHTS_COLUMNS,
        [*FLIGHTS_OPTIONS, *options],
    )


def vega(keys: list[str], window: str, interval: str, *options: str) -> Case:
    return Case(VEGA, VEGA_SQL, keys, "date", window, interval, VEGA_AGG, VEGA_COLUMNS, list(options))


CASES = [
    retail(["CustomerID"], "1d", "1 day"),
    retail(["Country", "CustomerID"], "12h", "12 hours", "--workers", "3"),
    retail(["StockCode"], "none", ""),
    flights(["carrier"], "1h", "1 hour"),
    flights(["origin", "dest"], "1h", "1 hour"),
    flights(["tailnum"], "1d", "1 day", "--workers", "5"),
    vega(["origin"], "1h", "1 hour"),
    vega(["origin", "destination"], "1d", "1 day"),
    vega([], "1h", "1 hour"),
    vega(["delay"], "none", ""),
]


def saltmill_rows(program: str, case: Case, path: Path, folder: Path) -> tuple[list[tuple], dict]:
    """The rows that Saltmill gives, and its statistics."""
    out, stats = folder / "out.parquet", folder / "stats.json"
    command = [program, "run", str(path), "--agg", case.aggregates, "--output", str(out)]
    command += ["--stats", str(stats), "--ordered", *case.options]
    if case.keys:
        command += ["--key", ",".join(case.keys)]
    windowed = case.window != "none"
    if windowed:
        command += ["--time", case.time, "--window", f"tumbling:{case.window}"]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0 or ran.stderr:
        raise SystemExit(f"{' '.join(command)}\nexit code {ran.returncode}: {ran.stderr}")
    bounds = "epoch_us(window_start), epoch_us(window_end), * EXCLUDE (window_start, window_end)"
    select = bounds if windowed else "*"
    rows = duckdb.sql(f"SELECT {select} FROM read_parquet('{out}')").fetchall()
    return rows, json.loads(stats.read_text())


def duckdb_rows(case: Case, path: Path) -> tuple[list[tuple], int]:
    """The rows that DuckDB gives, in the same order, and how many rows the input has."""
    source = case.source.format(path=path)
    groups = [f'"{key}"' for key in case.keys]
    select = list(groups)
    if case.window != "none":
        start = f"time_bucket(INTERVAL '{case.interval}', {case.time}, TIMESTAMP '1970-01-01')"
        select = [f"epoch_us({start})", f"epoch_us({start} + INTERVAL '{case.interval}')", *select]
        groups = [start, *groups]
    order = ", ".join(f"{i + 1} NULLS FIRST" for i in range(len(select)))
    group_by = f"GROUP BY {', '.join(groups)} ORDER BY {order}" if groups else ""
    rows = duckdb.sql(f"SELECT {', '.join(select + case.columns)} FROM {source} {group_by}").fetchall()
    return rows, duckdb.sql(f"SELECT count(*) FROM {source}").fetchall()[0][0]


def same(ours: object, theirs: object) -> bool:
    if isinstance(ours, float) and isinstance(theirs, (int, float)):
        return ours == theirs or abs(ours - theirs) <= TOLERANCE * max(abs(ours), abs(theirs))
    return ours == theirs


def differences(ours: list[tuple], theirs: list[tuple]) -> list[str]:
    found = []
    if len(ours) != len(theirs):
        found.append(f"{len(ours)} rows here, {len(theirs)} rows in DuckDB")
    for number, (our, their) in enumerate(zip(ours, theirs)):
        if len(our) != len(their) or not all(map(same, our, their)):
            found.append(f"row {number}:\n    saltmill {our}\n    duckdb   {their}")
    return found


def check(program: str, data: Path, case: Case) -> bool:
    path = data / case.file
    with tempfile.TemporaryDirectory() as folder:
        ours, stats = saltmill_rows(program, case, path, Path(folder))
    theirs, rows_in = duckdb_rows(case, path)
    found = differences(ours, theirs)
    if (stats["rows_in"], stats["rows_aggregated"]) != (rows_in, rows_in):
        found.append(f"of {rows_in} rows {stats['rows_in']} came in, {stats['rows_aggregated']} were aggregated")
    keys = ", ".join(case.keys) or "all rows"
    window = f"per {case.interval}" if case.interval else "over all time"
    verdict = "equal" if not found else f"{len(found)} differences"
    print(f"{case.file}: {keys} {window}: {len(theirs)} result rows, {verdict}", flush=True)
    for text in found[:DIFFERENCES_SHOWN]:
        print(f"  {text}")
    return not found


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    program, data = sys.argv[1], Path(sys.argv[2])
    return 0 if all([check(program, data, case) for case in CASES]) else 1


if __name__ == "__main__":
    sys.exit(main())
