"""Counters of the processor over whole runs: cycles, instructions, cache and TLB misses a row, where the kernel and the
machine give them; else what perf counts itself (task clock, faults, switches)."""
import argparse
import shutil
import subprocess

from report import SALTMILL, WINDOWS, Report, count, stream

EVENTS = (
    "task-clock,context-switches,cpu-migrations,page-faults,cycles,instructions,branches,branch-misses,"
    "cache-references,cache-misses,L1-dcache-load-misses,LLC-load-misses,dTLB-load-misses"
)
RUNS = 5


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="20M")
    options = parser.parse_args()
    if not shutil.which("perf"):
        raise SystemExit("perf is not installed; on Debian: apt-get install linux-perf")
    rows = count(options.rows)
    report = Report(
        "perf-stat",
        "counters of the processor",
        f"just perf-stat --rows {options.rows}",
        "A cold row of a million keys costs about two cache misses; a hot row none. Page faults do not grow with the number "
        "of windows, as panes are used again.",
    )
    lines, missing = [], set()
    for name in ["u1k", "u1m", "u10m", "z11", "h80", "h99"]:
        # Loading and warming up are in both; the difference is the runs alone.
        one, more = (counters(name, rows, runs) for runs in (1, 1 + RUNS))
        for event in EVENTS.split(","):
            if event not in one or event not in more:
                missing.add(event)
                continue
            value = (more[event] - one[event]) / RUNS / rows
            report.add(stream=name, event=event, per_row=f"{value:.6g}")
            lines.append([name, event, f"{value:.4g}"])
    report.say(f"{rows:,} rows, default workers; per row, loading left out (the difference of {1 + RUNS} runs and one).")
    report.table(["stream", "event", "a row"], lines)
    if missing:
        report.say("Not given by this machine: " + ", ".join(sorted(missing)) + ".")
    report.write()


def counters(name, rows, runs):
    command = ["perf", "stat", "-x", ";", "-e", EVENTS, SALTMILL, "bench", stream(name, rows), *WINDOWS, "--runs", runs]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found = {}
    for line in done.stderr.splitlines():
        fields = line.split(";")
        if len(fields) > 2 and fields[0].replace(".", "").isdigit():
            # The task clock is in milliseconds; in nanoseconds a row it can be held against the others.
            factor = 1e6 if fields[2].startswith("task-clock") else 1
            found[fields[2].split(":")[0]] = float(fields[0]) * factor
    return found


if __name__ == "__main__":
    main()
