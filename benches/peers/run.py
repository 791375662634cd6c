"""Saltmill beside other engines, on the same files and queries, in turn: S A B .. S A B ..

    python3 benches/peers/run.py --rows 50M

Needs a release build of saltmill and of benches/peers/timely (`just bench-peers` makes both). Installs the engines with pip
into a virtual environment under target/ by itself. Every result is held against Saltmill's, to the last bit.
Writes perf-reports/DATE-peers: every run (raw.csv), the table (table.csv, README.md) and a plot (plot.svg), after each
cell anew. A cell that is lost is written like any other. With --quick everything goes below target/.
"""
import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENV = ROOT / "target" / "peers-venv"
PACKAGES = ["numpy", "pyarrow", "duckdb", "polars", "datafusion", "chdb"]


def in_own_environment():
    """Goes on under the virtual environment's Python, made and filled if need be."""
    python = VENV / "bin" / "python"
    if Path(sys.prefix) == VENV:
        return
    if not python.exists():
        venv.create(VENV, with_pip=True)
    wanted = " ".join(PACKAGES)
    mark = VENV / "installed"
    if not mark.exists() or mark.read_text() != wanted:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        mark.write_text(wanted)
    os.execv(python, [str(python), str(Path(__file__).resolve()), *sys.argv[1:]])


if __name__ == "__main__":
    in_own_environment()

import table  # noqa: E402
# Also finds the scripts of perf-reports, which come after it.
from cells import DISORDER_MS, SPAN_MS, STREAMS, WINDOW_MS, cells  # noqa: E402
from report import Report, count  # noqa: E402

ENGINES = ["duckdb", "polars", "datafusion", "clickhouse"]
# Of an engine with the rows and its results in memory, at most about.
BYTES_PER_ROW = 110


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="50M", help="rows of a stream; text keys 0.4 of it [50M]")
    parser.add_argument("--runs", type=int, default=5, help="measured rounds, after one to warm up [5]")
    parser.add_argument("--threads", type=int, default=2, help="threads of every engine [2]")
    parser.add_argument("--cells", default="", help="only cells whose names contain one of these, with commas")
    parser.add_argument("--engines", default=",".join(ENGINES + ["timely"]), help="which others")
    parser.add_argument("--data", type=Path, default=ROOT / "target" / "peers-data", help="where streams are kept")
    parser.add_argument("--quick", action="store_true", help="few rows, one round: a test of the comparison itself")
    options = parser.parse_args()
    options.rows = count(options.rows)
    if options.quick:
        options.rows, options.runs = min(options.rows, 500_000), 1
    return options


def machine_busy():
    """Processor seconds of the whole machine so far."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq = (int(n) for n in file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


class Saltmill:
    """A process a run: it loads the stream, warms up once and measures once."""

    name = "saltmill"
    path = ROOT / "target" / "release" / "saltmill"

    def __init__(self, cell, source, threads):
        aggregates = [function if column is None else f"{function}({column})" for function, column in cell.aggregates]
        self.job = ["--key", "key", "--agg", ",".join(aggregates), "--workers", str(threads)]
        if cell.windows != "none":
            self.job += ["--time", "ts", "--window", f"tumbling:{WINDOW_MS}ms"]
            self.job += ["--out-of-orderness", f"{DISORDER_MS}ms"]
        self.cell, self.source = cell, source
        self.version = output([self.path, "--version"]).split()[-1]
        self.checksum = None

    def run(self):
        if self.cell.way != "memory":
            target = self.source.with_name("saltmill-result.csv")
            started = time.perf_counter()
            output([self.path, "run", self.source, *self.job, "--output", target])
            return time.perf_counter() - started
        told = json.loads(output([self.path, "bench", self.source, *self.job, "--runs", "1", "--json"]))
        if self.checksum not in (None, told["checksum"]):
            raise RuntimeError("saltmill: two runs gave different results")
        self.checksum = told["checksum"]
        return told["runs"][0]["elapsed_s"]

    def digest(self):
        import pyarrow as pa
        import pyarrow.ipc as ipc
        from digest import digest

        target = self.source.with_name("saltmill-result.arrow")
        output([self.path, "run", self.source, *self.job, "--output", target])
        with pa.memory_map(str(target)) as file:
            table = ipc.open_file(file).read_all()
            if self.cell.windows == "none":
                nothing = pa.repeat(pa.scalar(0, pa.int64()), table.num_rows)
                table = table.add_column(0, "window_start", nothing)
            else:
                table = table.drop_columns(["window_end"])
            found = digest([table])
        target.unlink()
        return found


class Peer:
    """Another engine: a process that stays, or one a run for files."""

    def __init__(self, name, cell, source, threads):
        self.name, self.cell, self.source = name, cell, source
        self.spec = {
            "load": str(source),
            "threads": threads,
            "windows": cell.windows if cell.way == "memory" else "windows",
            "aggregates": cell.aggregates,
        }
        self.process = self.version = None
        self.program = [sys.executable, HERE / "peer.py", name]
        if name == "timely":
            self.program = [HERE / "timely" / "target" / "release" / "saltmill-peer-timely"]
        if cell.way == "memory":
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(self.program, stdin=pipe, stdout=pipe, text=True)
            self.version = self.ask(self.spec)["version"]

    def ask(self, command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended in the middle of {self.cell.name}")
        return json.loads(line)

    def run(self):
        if self.process:
            return self.ask("run")["elapsed_s"]
        self.target().unlink(missing_ok=True)
        spec = json.dumps(self.spec | {"target": str(self.target())})
        told = json.loads(output([*self.program, "--files", spec]).splitlines()[-1])
        self.version = told["version"]
        return told["elapsed_s"]

    def target(self):
        return self.source.with_name(f"{self.name}-result.csv")

    def digest(self):
        return self.ask("digest") if self.process else csv_digest(self.target())

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()
        else:
            self.target().unlink(missing_ok=True)


def csv_digest(path):
    """The digest of a result that was written as text."""
    import pyarrow.csv as text
    from digest import digest

    table = text.read_csv(path)
    if "window_end" in table.column_names:
        table = table.drop_columns(["window_end"])
    return digest([table])


def output(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def stream(options, cell):
    """The file of a cell's stream, made if it is not there."""
    rows = int(options.rows * cell.rows)
    keys, distribution = STREAMS[cell.stream]
    wide = "-wide" if "session" in cell.columns() else ""
    text = "-text" if cell.text else ""
    ending = "arrow" if cell.way == "memory" else cell.way
    path = options.data / f"{cell.stream}-{rows}{text}{wide}.{ending}"
    if not path.exists():
        options.data.mkdir(parents=True, exist_ok=True)
        part = path.with_name("part-" + path.name)
        rows_per_ms = max(rows // SPAN_MS, 1)
        command = [Saltmill.path, "gen", "--rows", rows, "--keys", keys, "--dist", distribution]
        command += ["--columns", ",".join(cell.columns()), "--key-type", "text" if cell.text else "int64"]
        command += ["--out-of-orderness", f"{DISORDER_MS}ms", "--rows-per-ms", rows_per_ms, "--output", part]
        output(command)
        part.rename(path)
    return path, rows


def peers_of(options, cell):
    asked = options.engines.split(",")
    found = [name for name in ENGINES if name in asked]
    # timely's program is made for one query: int64 keys, windows, four aggregates, from memory.
    fits = cell.windows == "windows" and not cell.text and len(cell.aggregates) == 4 and cell.way == "memory"
    return found + ["timely"] if fits and "timely" in asked else found


def groups(names, rows):
    """So many engines at a time as memory allows."""
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) * 1024
    size = max(1, int(free * 0.8 / (rows * BYTES_PER_ROW)) - 1)
    return [names[i : i + size] for i in range(0, len(names), size)]


def measure(options, cell, runs):
    asked = peers_of(options, cell)
    if not asked:
        print(f"{cell.name}: left out, as none of {options.engines} runs it", flush=True)
        return
    source, rows = stream(options, cell)
    saltmill = Saltmill(cell, source, options.threads)
    expected = None
    for names in groups(asked, rows):
        # A process keeps to its engine's own threads; the others wait for a line meanwhile.
        others = [Peer(name, cell, source, options.threads) for name in names]
        for round_ in range(options.runs + 1):
            for engine in [saltmill, *others]:
                busy = machine_busy()
                elapsed = engine.run()
                busy = machine_busy() - busy
                if round_ > 0:
                    runs.append(
                        {
                            "cell": cell.name, "engine": engine.name, "version": engine.version, "rows": rows,
                            "group": names[0], "round": round_, "elapsed_s": round(elapsed, 6),
                            "m_rows_per_s": round(rows / elapsed / 1e6, 3), "machine_busy_s": round(busy, 2),
                        }
                    )
        if expected is None:
            in_csv = cell.way != "memory"
            expected = csv_digest(source.with_name("saltmill-result.csv")) if in_csv else saltmill.digest()
        for other in others:
            found = other.digest()
            if found != expected:
                raise RuntimeError(f"{cell.name}: {other.name} has {found}, saltmill {expected}")
            other.close()
    rates = {}
    for run in runs:
        if run["cell"] == cell.name:
            rates.setdefault(run["engine"], []).append(run["m_rows_per_s"])
    told = ", ".join(f"{name} {statistics.median(rate):.1f}" for name, rate in rates.items())
    print(f"{cell.name}: {told} M rows/s; {expected['rows']} results, all the same", flush=True)


def begin(options):
    """The report, with what is expected."""
    rounds = "round" if options.runs == 1 else "rounds"
    report = Report(
        "peers",
        "Saltmill beside other engines",
        f"just bench-peers {' '.join(sys.argv[1:])}".strip(),
        "Over the best of DuckDB, Polars (streaming), DataFusion and ClickHouse, and over a program tuned for the one "
        "query on timely dataflow: the aims in the table. All of them were set for 50M rows.",
        ROOT / "target" / "peers" if options.quick else None,
    )
    report.say(
        f"{options.rows:,} rows (text keys 0.4 of it, csv 0.48), {options.threads} threads each; M rows/s, medians of "
        f"{options.runs} {rounds}; ratios are medians over rounds of one run in which the engines took turns. *windows*: count, sum, "
        "min, max by key and 5 s window over 50 s, at most 3 ms out of order; *split*: the other engines get ten tables, "
        "split beforehand; *no window*: by key only; files: Saltmill's whole process, the others without their start "
        "and imports. All results were compared and are the same. The fastest of a line is bold."
    )
    return report


def main():
    options = arguments()
    wanted = [part for part in options.cells.split(",") if part]
    asked = [cell for cell in cells() if not wanted or any(part in cell.name for part in wanted)]
    report, runs = begin(options), []
    introduction = list(report.seen)
    for cell in asked:
        measure(options, cell, runs)
        # After each cell, so that a long comparison that is ended leaves what it has.
        report.raw = runs
        report.seen = [*introduction, *table.write(report.folder, runs, asked)]
        report.write()


if __name__ == "__main__":
    main()
