"""A dated report: perf-reports/DATE-TOPIC/ with README.md and raw.csv. What stands there is never overwritten.

A script says beforehand what it expects, and every figure that misses it is written like the others.
"""
import csv
import json
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path

from streams import SPAN_MS, STREAMS, WINDOW_MS

ROOT = Path(__file__).resolve().parent.parent.parent
SALTMILL = ROOT / "target" / "release" / "saltmill"
DATA = ROOT / "target" / "bench-data"
FOUR = "count,sum(value),min(value),max(value)"
WINDOWS = ["--key", "key", "--time", "ts", "--window", f"tumbling:{WINDOW_MS}ms", "--agg", FOUR]


def count(text):
    """5000, 20K, 1.5M, 1G."""
    factor = {"K": 1_000, "M": 1_000_000, "G": 1_000_000_000}.get(text[-1].upper(), 1)
    return int(float(text.rstrip("KMGkmg")) * factor)


def output(command, **options):
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, **options)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()[-3000:]}")
    return done.stdout


def stream(name, rows, ending="arrow", columns="ts,key,value"):
    """A stream of ten windows of 5 s, made if it is not there."""
    keys, distribution = STREAMS[name]
    path = DATA / f"{name}-{rows}.{ending}"
    if not path.exists():
        DATA.mkdir(parents=True, exist_ok=True)
        part = path.with_name("part-" + path.name)
        command = [SALTMILL, "gen", "--rows", rows, "--keys", keys, "--dist", distribution, "--output", part]
        output([*command, "--columns", columns, "--rows-per-ms", max(rows // SPAN_MS, 1)])
        part.rename(path)
    return path


def bench(path, *options, against=(), runs=5):
    """The JSON of `saltmill bench`; settings after `against` take turns with the first in one process."""
    command = [SALTMILL, "bench", path, *WINDOWS, *options, "--runs", runs, "--json"]
    for other in against:
        command += ["--against", other]
    return json.loads(output(command))


def processor():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
        flags = next(line.split(":")[1].split() for line in lines if line.startswith("flags"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
    best = next((name for name in ("avx512f", "avx2") if name in flags), "neither avx2 nor avx512f")
    return f"{model}, {os.cpu_count()} cores, {best}"


def governor():
    try:
        return Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text().strip()
    except OSError:
        return "not shown by this machine"


def memory_gib():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


class Report:
    def __init__(self, topic, title, command, expected, folder=None):
        base = ROOT / "perf-reports" / f"{time.strftime('%Y-%m-%d')}-{topic}"
        self.folder, number = folder or base, 1
        while folder is None and self.folder.exists():
            number += 1
            self.folder = base.with_name(f"{base.name}-{number}")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.title, self.command, self.expected = title, command, expected
        self.load_before = os.getloadavg()[0]
        self.raw, self.seen = [], []

    def add(self, **figures):
        """A line of raw.csv."""
        self.raw.append(figures)
        print(", ".join(f"{name} {value}" for name, value in figures.items()), flush=True)

    def say(self, text):
        """A paragraph or a table of what was seen."""
        self.seen.append(text)

    def table(self, head, lines):
        rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        self.say("\n".join(rows + ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]))

    def write(self):
        if self.raw:
            names = list(dict.fromkeys(name for line in self.raw for name in line))
            with open(self.folder / "raw.csv", "w", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=names, restval="")
                writer.writeheader()
                writer.writerows(self.raw)
        commit = output(["git", "rev-parse", "--short=12", "HEAD"]).strip()
        if output(["git", "status", "--porcelain", "--untracked-files=no"]).strip():
            commit += " and changes that are not committed"
        text = [
            f"# {time.strftime('%Y-%m-%d')}: {self.title}",
            f"Command: `{self.command}`  \nCommit: {commit}  \nCompiler: {output(['rustc', '--version']).strip()}  \n"
            f"Processor: {processor()}; {memory_gib():.0f} GiB; governor: {governor()}  \n"
            f"Load of the machine before: {self.load_before:.1f}; after: {os.getloadavg()[0]:.1f} "
            f"(of {os.cpu_count()} cores; other work beside makes figures worse and spreads them)",
            "## Expected",
            self.expected,
            "## Seen",
            *self.seen,
        ]
        if self.raw:
            text.append("Every run stands in `raw.csv`.")
        (self.folder / "README.md").write_text("\n\n".join(text) + "\n")
        print(f"written: {self.folder.relative_to(ROOT)}", flush=True)


def judged(value, aim):
    """A ratio with its aim, and whether it was reached."""
    if aim is None:
        return f"{value:.2f}"
    return f"{value:.2f} (aim {aim}: {'reached' if value >= aim else 'missed'})"


def median(values):
    return statistics.median(values)
