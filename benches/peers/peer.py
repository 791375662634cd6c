"""One other engine, in a process of its own: loads a stream, and runs a query each time it is asked.

Lines of JSON on standard input: {"load": PATH, "threads": N, "windows": .., "aggregates": [..]}, "run", "digest".
Each is answered by a line of JSON on standard output. With `--files SPEC`, does one whole job from file to file.
Loading is not part of a run's time, nor are imports; having the whole result in memory is.
"""
import gc
import json
import os
import sys
import time

from cells import WINDOW_MS


class Query:
    def __init__(self, spec):
        self.threads = spec["threads"]
        self.windows = spec["windows"]
        self.aggregates = [tuple(a) for a in spec["aggregates"]]

    def sql(self, table, window, windows=None):
        parts = ["count(*)" if c is None else f"{f}({c})" for f, c in self.aggregates]
        parts = [f"{part} AS a{i}" for i, part in enumerate(parts)]
        by_window = (windows or self.windows) == "windows"
        first = [f"{window} AS w"] if by_window else []
        group = f"key, {window}" if by_window else "key"
        return f"SELECT {', '.join(first + ['key'] + parts)} FROM {table} GROUP BY {group}"


def read(path):
    """The stream as a table with times as plain integers, and its tables by window if they are split."""
    import pyarrow as pa
    import pyarrow.ipc as ipc

    with pa.OSFile(path, "rb") as file:
        table = ipc.open_file(file).read_all()
    at = table.schema.get_field_index("ts")
    return table.set_column(at, "ts", table.column(at).cast(pa.int64()))


def split(table):
    import pyarrow.compute as pc

    window = pc.divide(table["ts"], WINDOW_MS)
    first, last = pc.min(window).as_py(), pc.max(window).as_py()
    return {w: table.filter(pc.equal(window, w)) for w in range(first, last + 1)}


def in_order(table, window=None):
    """Window start, key, aggregates; the window's start is 0 where there is none."""
    import pyarrow as pa

    names = [name for name in table.column_names if name not in ("w", "key")]
    if "w" in table.column_names:
        start = table["w"]
    else:
        start = pa.chunked_array([pa.repeat(pa.scalar(window or 0, pa.int64()), table.num_rows)])
    return pa.table([start, table["key"]] + [table[name] for name in names], ["w", "key"] + names)


class DuckDb:
    def __init__(self, query):
        import duckdb

        self.query, self.version = query, duckdb.__version__
        self.db = duckdb.connect(config={"threads": query.threads})
        self.db.execute("SET preserve_insertion_order=false")

    def load(self, path):
        source = read(path)
        self.parts = {None: source} if self.query.windows != "split" else split(source)
        self.names = {w: f"t{i}" for i, w in enumerate(self.parts)}
        for w, part in self.parts.items():
            self.db.register("part", part)
            self.db.execute(f"CREATE TABLE {self.names[w]} AS SELECT * FROM part")
            self.db.unregister("part")
        self.parts = None

    def run(self):
        window = f"ts // {WINDOW_MS} * {WINDOW_MS}"
        return {w: self.db.sql(self.query.sql(name, window)).to_arrow_table() for w, name in self.names.items()}

    def tables(self, result):
        return [in_order(t, None if w is None else w * WINDOW_MS) for w, t in result.items()]

    def files(self, source, target):
        window = f"epoch_ms(ts) // {WINDOW_MS} * {WINDOW_MS}"
        self.db.execute(f"COPY ({self.query.sql(repr(source), window)}) TO '{target}' (HEADER)")


class Polars:
    def __init__(self, query):
        os.environ["POLARS_MAX_THREADS"] = str(query.threads)
        import polars

        self.pl, self.query, self.version = polars, query, polars.__version__
        if polars.thread_pool_size() != query.threads:
            raise RuntimeError("polars does not use the threads it was given")

    def load(self, path):
        source = read(path)
        parts = {None: source} if self.query.windows != "split" else split(source)
        self.frames = {w: self.pl.from_arrow(part, rechunk=True) for w, part in parts.items()}

    def lazy(self, frame, time):
        pl = self.pl
        keys = ["key"]
        if self.query.windows == "windows":
            keys.insert(0, (time // WINDOW_MS * WINDOW_MS).alias("w"))
        of = {"sum": pl.Expr.sum, "min": pl.Expr.min, "max": pl.Expr.max}
        parts = [pl.len() if c is None else of[f](pl.col(c)) for f, c in self.query.aggregates]
        return frame.group_by(keys).agg([part.alias(f"a{i}") for i, part in enumerate(parts)])

    def run(self):
        time = self.pl.col("ts")
        return {w: self.lazy(f.lazy(), time).collect(engine="streaming") for w, f in self.frames.items()}

    def tables(self, result):
        return [in_order(f.to_arrow(), None if w is None else w * WINDOW_MS) for w, f in result.items()]

    def files(self, source, target):
        pl = self.pl
        if source.endswith(".parquet"):
            frame = pl.scan_parquet(source)
        else:
            frame = pl.scan_csv(source, schema_overrides={"ts": pl.Datetime("ms")})
        self.lazy(frame, pl.col("ts").dt.epoch("ms")).sink_csv(target, engine="streaming")


class DataFusion:
    def __init__(self, query):
        os.environ["TOKIO_WORKER_THREADS"] = str(query.threads)
        import datafusion

        self.query, self.version = query, datafusion.__version__
        config = datafusion.SessionConfig().with_target_partitions(query.threads)
        self.context = datafusion.SessionContext(config)

    def load(self, path):
        source = read(path)
        parts = {None: source} if self.query.windows != "split" else split(source)
        self.names = {w: f"t{i}" for i, w in enumerate(parts)}
        for w, part in parts.items():
            batches = part.to_batches(max_chunksize=65536)
            step = -(-len(batches) // self.query.threads)
            partitions = [batches[i : i + step] for i in range(0, len(batches), step)]
            self.context.register_record_batches(self.names[w], partitions)

    def run(self):
        window = f"ts / {WINDOW_MS} * {WINDOW_MS}"
        return {w: self.context.sql(self.query.sql(name, window)).collect() for w, name in self.names.items()}

    def tables(self, result):
        import pyarrow as pa

        tables = {w: pa.Table.from_batches(batches) for w, batches in result.items()}
        return [in_order(t, None if w is None else w * WINDOW_MS) for w, t in tables.items()]

    def files(self, source, target):
        import pyarrow as pa

        if source.endswith(".parquet"):
            self.context.register_parquet("t", source)
        else:
            fields = [("ts", pa.timestamp("ms")), ("key", pa.int64()), ("value", pa.int64())]
            self.context.register_csv("t", source, schema=pa.schema(fields))
        window = f"arrow_cast(ts, 'Int64') / {WINDOW_MS} * {WINDOW_MS}"
        self.context.sql(f"COPY ({self.query.sql('t', window)}) TO '{target}' STORED AS CSV").collect()


class ClickHouse:
    def __init__(self, query):
        import chdb
        from chdb import session

        self.query = query
        self.version = getattr(chdb, "engine_version", chdb.__version__)
        self.session = session.Session()
        for setting in ("max_threads", "max_insert_threads"):
            self.session.query(f"SET {setting}={query.threads}")

    def load(self, path):
        import pyarrow.ipc as ipc

        ask = self.session.query
        with open(path, "rb") as file:
            schema = ipc.open_file(file).schema
        kinds = {"string": "String", "int64": "Int64", "double": "Float64"}
        columns = [(f.name, "Int64" if f.name == "ts" else kinds[str(f.type)]) for f in schema]
        columns = ", ".join(f"{name} {kind}" for name, kind in columns)
        # Times come as DateTime64(3), whose number is the milliseconds.
        stored = columns.replace("ts Int64", "ts DateTime64(3, \\'UTC\\')")
        names = ", ".join(f.name for f in schema).replace("ts", "toUnixTimestamp64Milli(ts)")
        ask("CREATE DATABASE IF NOT EXISTS b")
        self.names = {None: "b.t"}
        source = f"SELECT {names} FROM file('{path}', 'Arrow', '{stored}')"
        ask(f"CREATE TABLE b.t ({columns}) ENGINE=Memory")
        ask(f"INSERT INTO b.t {source}")
        if self.query.windows != "split":
            return
        bounds = str(ask(f"SELECT intDiv(min(ts), {WINDOW_MS}), intDiv(max(ts), {WINDOW_MS}) FROM b.t"))
        first, last = (int(n) for n in bounds.strip().split(","))
        self.names = {w: f"b.t{i}" for i, w in enumerate(range(first, last + 1))}
        for w, name in self.names.items():
            ask(f"CREATE TABLE {name} ({columns}) ENGINE=Memory")
            ask(f"INSERT INTO {name} SELECT * FROM b.t WHERE intDiv(ts, {WINDOW_MS}) = {w}")
        ask("DROP TABLE b.t")

    def prepare(self):
        for name in self.names.values():
            self.session.query(f"DROP TABLE IF EXISTS {name}_result")

    def run(self):
        window = f"intDiv(ts, {WINDOW_MS}) * {WINDOW_MS}"
        n = self.query.threads
        for name in self.names.values():
            sql = self.query.sql(name, window)
            self.session.query(
                f"CREATE TABLE {name}_result ENGINE=Memory AS {sql} SETTINGS max_threads={n}, max_insert_threads={n}"
            )
        return True

    def tables(self, _):
        import pyarrow as pa
        import pyarrow.ipc as ipc

        for w, name in self.names.items():
            answer = self.session.query(
                f"SELECT * FROM {name}_result SETTINGS output_format_arrow_string_as_string=1", "ArrowStream"
            )
            table = ipc.open_stream(pa.py_buffer(answer.bytes())).read_all()
            # Counts are unsigned there.
            yield in_order(table, None if w is None else w * WINDOW_MS)

    def files(self, source, target):
        ask = self.session.query
        kind = "Parquet" if source.endswith(".parquet") else "CSVWithNames"
        columns = "ts DateTime64(3, \\'UTC\\'), key Int64, value Int64"
        window = f"intDiv(toUnixTimestamp64Milli(ts), {WINDOW_MS}) * {WINDOW_MS}"
        sql = self.query.sql(f"file('{source}', '{kind}', '{columns}')", window)
        n = self.query.threads
        ask(
            f"INSERT INTO FUNCTION file('{target}', 'CSVWithNames') {sql} "
            f"SETTINGS max_threads={n}, max_insert_threads={n}, date_time_input_format='best_effort', "
            f"engine_file_truncate_on_insert=1"
        )


ENGINES = {"duckdb": DuckDb, "polars": Polars, "datafusion": DataFusion, "clickhouse": ClickHouse}


def answer(value):
    print(json.dumps(value), flush=True)


def serve(name):
    engine = result = None
    for line in sys.stdin:
        command = json.loads(line)
        if isinstance(command, dict):
            engine = ENGINES[name](Query(command))
            engine.load(command["load"])
            gc.collect()
            answer({"version": engine.version})
        elif command == "run":
            result = None
            gc.collect()
            if hasattr(engine, "prepare"):
                engine.prepare()
            started = time.perf_counter()
            result = engine.run()
            answer({"elapsed_s": time.perf_counter() - started})
        elif command == "digest":
            from digest import digest

            answer(digest(engine.tables(result)))


def files(name, spec):
    engine = ENGINES[name](Query(spec))
    started = time.perf_counter()
    engine.files(spec["load"], spec["target"])
    answer({"elapsed_s": time.perf_counter() - started, "version": engine.version})


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[2] == "--files":
        files(sys.argv[1], json.loads(sys.argv[3]))
    else:
        serve(sys.argv[1])
