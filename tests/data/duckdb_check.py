#!/usr/bin/env python3
"""Compares `saltmill run` with DuckDB on three real data sets, row by row.

    duckdb_check.py SALTMILL DATA_FOLDER

Also windows of every kind, and which rows are late. Keys, counts, integers, minima and maxima must be equal, averages and sums of floats to 1e-12 relative (DuckDB's
`favg` and `fsum`, which are Kahan sums; its plain ones are not that precise). A column written `~E expression` may be off
by a fraction E: sketches by their stated error, moments by what DuckDB's running formulas lose. Exit code 1 if
anything differs.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
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
    # Windows other than tumbling: start and end of a row's window, and the rows to which these apply.
    bounds: tuple[str, str] | None = None
    rows: str = "{source}"


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


# Ties are broken by the larger value here, so DuckDB is asked for the largest pair.
SETS_AGG = (
    "count(distinct CustomerID) as c,count(distinct StockCode) as p,count(distinct \"CustomerID\", StockCode) as cp,"
    "approx_distinct(CustomerID) as ac,approx_distinct(StockCode) as ap,mode(Quantity),top_n(Quantity, 3),"
    "sum(Quantity) filter (where UnitPrice > 2.5 and Quantity > 0 or Description is null) as some,"
    "count filter (where StockCode in ('85123A', '71053') and not Country = 'France') as few,"
    "bottom_n(UnitPrice, 2),bit_xor(Quantity),arg_max(StockCode, Quantity)"
)
SETS_COLUMNS = [
    "count(DISTINCT CustomerID)", "count(DISTINCT StockCode)",
    "count(DISTINCT CASE WHEN CustomerID IS NOT NULL AND StockCode IS NOT NULL THEN (CustomerID, StockCode) END)",
    "~0.066 count(DISTINCT CustomerID)", "~0.066 count(DISTINCT StockCode)",
    "(SELECT min(v) FROM (SELECT unnest(map_keys(histogram(Quantity))) AS v, "
    "unnest(map_values(histogram(Quantity))) AS n) WHERE n = (SELECT max(m) FROM "
    "(SELECT unnest(map_values(histogram(Quantity))) AS m)))",
    "max(Quantity, 3)",
    "sum(Quantity) FILTER (WHERE UnitPrice > 2.5 AND Quantity > 0 OR Description IS NULL)",
    "count(*) FILTER (WHERE StockCode IN ('85123A', '71053') AND NOT Country = 'France')",
    "min(UnitPrice, 2)", "bit_xor(Quantity)", "max((Quantity, StockCode))[2]",
]
SPREAD_AGG = (
    "approx_quantile(arr_delay, 0.5) as p50,approx_quantile(arr_delay, 0.99) as p99,median(air_time),"
    "stddev(arr_delay),var_pop(dep_delay),corr(dep_delay, arr_delay),covar_samp(distance, air_time),"
    "arg_max(tailnum, arr_delay),arg_min(dest, dep_delay),any_value(origin),"
    "avg(arr_delay) filter (where origin <> 'JFK') as not_jfk"
)
SPREAD_COLUMNS = [
    "~0.0079 quantile_disc(arr_delay, 0.5)", "~0.0079 quantile_disc(arr_delay, 0.99)",
    "~0.0079 quantile_disc(air_time, 0.5)", "~1e-9 stddev_samp(arr_delay)", "~1e-9 var_pop(dep_delay)",
    "~1e-9 CASE WHEN count(*) FILTER (WHERE arr_delay IS NOT NULL AND dep_delay IS NOT NULL) > 1 AND "
    "stddev_pop(arr_delay) FILTER (WHERE dep_delay IS NOT NULL) > 0 AND "
    "stddev_pop(dep_delay) FILTER (WHERE arr_delay IS NOT NULL) > 0 THEN corr(dep_delay, arr_delay) END",
    "~1e-9 covar_samp(distance, air_time)",
    "max((arr_delay, tailnum)) FILTER (WHERE arr_delay IS NOT NULL AND tailnum IS NOT NULL)[2]",
    "min((dep_delay, dest)) FILTER (WHERE dep_delay IS NOT NULL)[2]", "min(origin)",
    "favg(arr_delay) FILTER (WHERE origin <> 'JFK')",
]


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


def overlapping(keys: list[str], size: int, slide: int) -> Case:
    """Hopping windows of `size` minutes every `slide` minutes: each row once for each window that holds it."""
    start = f"time_bucket(INTERVAL '{slide} minutes', date, TIMESTAMP '1970-01-01') - INTERVAL 1 MINUTE * {slide} * k"
    end = f"{start} + INTERVAL '{size} minutes'"
    rows = f"(SELECT * FROM {{source}}, range({-(-size // slide)}) AS windows(k)) WHERE {end} > date"
    return Case(
        VEGA, VEGA_SQL, keys, "date", f"hopping:{size}m/{slide}m", f"hopping {size}m/{slide}m", VEGA_AGG, VEGA_COLUMNS,
        [], (start, end), rows,
    )


def monthly(keys: list[str]) -> Case:
    start = "date_trunc('month', InvoiceDate)"
    return Case(
        RETAIL, RETAIL_SQL, keys, "InvoiceDate", "tumbling:1mo", "calendar month", RETAIL_AGG, RETAIL_COLUMNS, [],
        (start, f"{start} + INTERVAL 1 MONTH"),
    )


def monthly_sets(keys: list[str]) -> Case:
    """Different customers and products in each calendar month."""
    case = monthly(keys)
    return replace(case, aggregates=SETS_AGG, columns=SETS_COLUMNS)


def local_days(keys: list[str], zone: str) -> Case:
    """Days of a zone; the times are taken as UTC."""
    local = f"date_trunc('day', timezone('{zone}', timezone('UTC', time_hour)))"
    utc = "timezone('UTC', timezone('{zone}', {local}))"
    start = utc.format(zone=zone, local=local)
    end = utc.format(zone=zone, local=f"{local} + INTERVAL 1 DAY")
    return Case(
        FLIGHTS, FLIGHTS_SQL, keys, "time_hour", f"tumbling:1d@{zone}", f"day in {zone}", FLIGHTS_AGG,
        FLIGHTS_COLUMNS, FLIGHTS_OPTIONS, (start, end),
    )


def sessions(keys: list[str], minutes: int) -> Case:
    """Sessions, numbered per key by the rows that begin one."""
    partition = "PARTITION BY " + ", ".join(f'"{key}"' for key in keys) if keys else ""
    gap = f"INTERVAL '{minutes} minutes'"
    rows = f"""(
        SELECT *, min(InvoiceDate) OVER session AS first, max(InvoiceDate) OVER session + {gap} AS last FROM (
            SELECT *, sum(begins) OVER ({partition} ORDER BY InvoiceDate) AS number FROM (
                SELECT *, coalesce((InvoiceDate - lag(InvoiceDate) OVER ({partition} ORDER BY InvoiceDate) >= {gap})::INT, 0)
                    AS begins
                FROM {{source}}))
        WINDOW session AS ({partition + ", " if partition else "PARTITION BY "}number))"""
    return Case(
        RETAIL, RETAIL_SQL, keys, "InvoiceDate", f"session:{minutes}m", f"session of {minutes} minutes", RETAIL_AGG,
        RETAIL_COLUMNS, ["--out-of-orderness", "1h"], ("first", "last"), rows,
    )


CASES = [
    overlapping(["origin"], 60, 15),
    overlapping(["origin", "destination"], 50, 20),
    monthly(["Country"]),
    monthly(["Country", "StockCode"]),
    monthly_sets(["Country"]),
    local_days(["carrier"], "America/New_York"),
    local_days(["origin"], "Australia/Lord_Howe"),
    sessions(["CustomerID"], 30),
    sessions(["Country", "StockCode"], 600),
    sessions([], 15),
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
    Case(RETAIL, RETAIL_SQL, ["Country"], "InvoiceDate", "30d", "30 days", SETS_AGG, SETS_COLUMNS, []),
    Case(RETAIL, RETAIL_SQL, [], None, "none", "", SETS_AGG, SETS_COLUMNS, ["--workers", "4"]),
    Case(
        FLIGHTS, FLIGHTS_SQL, ["carrier"], "time_hour", "1d", "1 day", SPREAD_AGG, SPREAD_COLUMNS, FLIGHTS_OPTIONS
    ),
    Case(FLIGHTS, FLIGHTS_SQL, ["origin"], None, "none", "", SPREAD_AGG, SPREAD_COLUMNS, FLIGHTS_OPTIONS[:2]),
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
        window = case.window if ":" in case.window else f"tumbling:{case.window}"
        command += ["--time", case.time, "--window", window]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0 or ran.stderr:
        raise SystemExit(f"{' '.join(command)}\nexit code {ran.returncode}: {ran.stderr}")
    bounds = "epoch_us(window_start), epoch_us(window_end), * EXCLUDE (window_start, window_end)"
    select = bounds if windowed else "*"
    order = "ORDER BY " + ", ".join(f"{i + 1} NULLS FIRST" for i in range(len(case.keys) + 2)) if case.bounds else ""
    rows = duckdb.sql(f"SELECT {select} FROM read_parquet('{out}') {order}").fetchall()
    return rows, json.loads(stats.read_text())


def duckdb_rows(case: Case, path: Path) -> tuple[list[tuple], int]:
    """The rows that DuckDB gives, in the same order, and how many rows the input has."""
    source = case.source.format(path=path)
    groups = [f'"{key}"' for key in case.keys]
    select = list(groups)
    rows_of = case.rows.format(source=source)
    if case.bounds:
        start, end = case.bounds
        select = [f"epoch_us({start})", f"epoch_us({end})", *select]
        groups = [start, end, *groups]
    elif case.window != "none":
        start = f"time_bucket(INTERVAL '{case.interval}', {case.time}, TIMESTAMP '1970-01-01')"
        select = [f"epoch_us({start})", f"epoch_us({start} + INTERVAL '{case.interval}')", *select]
        groups = [start, *groups]
    # Sessions leave in steps of time, so the program's rows are sorted here as well.
    order = ", ".join(f"{i + 1} NULLS FIRST" for i in range(len(select)))
    group_by = f"GROUP BY {', '.join(groups)} ORDER BY {order}" if groups else ""
    columns = [loose(column)[1] for column in case.columns]
    rows = duckdb.sql(f"SELECT {', '.join(select + columns)} FROM {rows_of} {group_by}").fetchall()
    return rows, duckdb.sql(f"SELECT count(*) FROM {source}").fetchall()[0][0]


def loose(column: str) -> tuple[float | None, str]:
    """How far off a column may be, if that is said, and its expression."""
    if not column.startswith("~"):
        return None, column
    error, expression = column[1:].split(" ", 1)
    return float(error), expression


def same(ours: object, theirs: object, error: float | None) -> bool:
    if error is None and isinstance(ours, int):
        return ours == theirs
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        allowed = TOLERANCE if error is None else error
        # A covariance near zero is the difference of large numbers.
        floor = 1e-9 if allowed == 1e-9 else 0
        return ours == theirs or abs(ours - theirs) <= max(allowed * max(abs(ours), abs(theirs)), floor)
    return ours == theirs


def differences(ours: list[tuple], theirs: list[tuple], case: Case) -> list[str]:
    found = []
    errors = [loose(column)[0] for column in case.columns]
    if len(ours) != len(theirs):
        found.append(f"{len(ours)} rows here, {len(theirs)} rows in DuckDB")
    for number, (our, their) in enumerate(zip(ours, theirs)):
        exact = [None] * (len(our) - len(errors))
        if len(our) != len(their) or not all(map(same, our, their, exact + errors)):
            found.append(f"row {number}:\n    saltmill {our}\n    duckdb   {their}")
    return found


def check(program: str, data: Path, case: Case) -> bool:
    path = data / case.file
    with tempfile.TemporaryDirectory() as folder:
        ours, stats = saltmill_rows(program, case, path, Path(folder))
    theirs, rows_in = duckdb_rows(case, path)
    found = differences(ours, theirs, case)
    if (stats["rows_in"], stats["rows_aggregated"]) != (rows_in, rows_in):
        found.append(f"of {rows_in} rows {stats['rows_in']} came in, {stats['rows_aggregated']} were aggregated")
    keys = ", ".join(case.keys) or "all rows"
    window = f"per {case.interval}" if case.interval else "over all time"
    verdict = "equal" if not found else f"{len(found)} differences"
    print(f"{case.file}: {keys} {window}: {len(theirs)} result rows, {verdict}", flush=True)
    for text in found[:DIFFERENCES_SHOWN]:
        print(f"  {text}")
    return not found


def check_late(program: str, data: Path) -> bool:
    """Flights in file order are nearly all late, and exactly those are kept; in order of time none is."""
    path = data / FLIGHTS
    source = FLIGHTS_SQL.format(path=path)[:-1] + ", parallel=false)"
    hour_end = "time_bucket(INTERVAL '1 hour', time_hour, TIMESTAMP '1970-01-01') + INTERVAL '1 hour'"
    latest = "max(time_hour) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    duckdb.sql("SET preserve_insertion_order = true")
    rows_of = f"SELECT * EXCLUDE (latest) FROM (SELECT *, {latest} AS latest FROM {source}) WHERE {hour_end} <= latest"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        late, stats, ordered = folder / "late.parquet", folder / "stats.json", folder / "sorted.parquet"
        job = ["--null", "NA", "--time", "time_hour", "--window", "tumbling:1h", "--key", "carrier", "--agg", "count"]
        job += ["--stats", str(stats), "--output", str(folder / "out.csv"), "--progress", "never"]

        def run(*more: str) -> dict:
            subprocess.run([program, "run", *more, *job], check=True, capture_output=True)
            return json.loads(stats.read_text())

        counts = run(str(path), "--late", str(late), "--schema", "tailnum:utf8")
        kept = f"SELECT * REPLACE (time_hour::TIMESTAMP AS time_hour) FROM read_parquet('{late}')"
        duckdb.sql(f"CREATE OR REPLACE TEMP TABLE expected AS {rows_of}")
        duckdb.sql(f"CREATE OR REPLACE TEMP TABLE kept AS {kept}")
        columns = duckdb.sql("SELECT column_name FROM (DESCRIBE expected)").fetchall()
        row = "md5(concat_ws('|', " + ", ".join(f"coalesce(\"{c}\"::VARCHAR, '-')" for (c,) in columns) + "))"
        differing = duckdb.sql(
            f"(SELECT {row} FROM expected EXCEPT ALL SELECT {row} FROM kept) UNION ALL "
            f"(SELECT {row} FROM kept EXCEPT ALL SELECT {row} FROM expected)"
        ).fetchall()
        rows_late = duckdb.sql("SELECT count(*) FROM expected").fetchall()[0][0]
        sums = counts["rows_aggregated"] + counts["rows_late"] == counts["rows_in"]
        duckdb.sql(f"COPY (SELECT * FROM {source} ORDER BY time_hour) TO '{ordered}' (FORMAT parquet)")
        patient = run(str(ordered), "--out-of-orderness", "24h")
    equal = sums and counts["rows_late"] == rows_late and not differing and patient["rows_late"] == 0
    share = counts["rows_late"] / counts["rows_in"]
    print(
        f"{FLIGHTS} in file order: {counts['rows_late']} of {counts['rows_in']} rows late ({share:.1%}), DuckDB says "
        f"{rows_late}; {len(differing)} rows differ; in order of time {patient['rows_late']} late", flush=True,
    )
    return equal


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    program, data = sys.argv[1], Path(sys.argv[2])
    verdicts = [check(program, data, case) for case in CASES]
    return 0 if all([*verdicts, check_late(program, data)]) else 1


if __name__ == "__main__":
    sys.exit(main())
