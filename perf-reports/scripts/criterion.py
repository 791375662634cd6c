"""Runs the criterion benches and the hand-written loop, and writes what they said."""
import argparse
import csv
import io
import json
import os
import subprocess

from report import ROOT, Report, judged, output

BENCH = ["cargo", "bench", "--quiet", "--manifest-path", "benches/Cargo.toml"]
# One worker over a hand-written loop, and two workers over one.
AIMS = {"U1M": (0.9, 1.7), "H80": (1.5, None)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="10000000", help="of each stream, for whole engines")
    parser.add_argument("filter", nargs="?", default="", help="only benches whose names contain this")
    options = parser.parse_args()
    report = Report(
        "bench",
        "stages, whole engines, and a loop written by hand",
        f"just bench --rows {options.rows} {options.filter}".strip(),
        "One worker against a hand-written loop over a hash table: at least 0.9 of it on U1M and 1.5 times on H80; two "
        "workers at least 1.7 times one on U1M. Kernels: AVX2 and AVX-512 well above portable.",
    )
    os.environ["SALTMILL_BENCH_ROWS"] = options.rows
    started = (ROOT / "Cargo.toml").stat().st_mtime
    try:
        started = max(path.stat().st_mtime for path in found())
    except ValueError:
        pass
    for bench in ["stages", "engine"]:
        command = [*BENCH, "--bench", bench, "--", *([options.filter] if options.filter else [])]
        subprocess.run(command, cwd=ROOT, check=True)
    lines = []
    for path in sorted(found()):
        if path.stat().st_mtime <= started:
            continue
        told = json.loads(path.with_name("benchmark.json").read_text())
        times = json.loads(path.read_text())
        elements = (told["throughput"] or {}).get("Elements", 1)
        ns = times["median"]["point_estimate"] / elements
        bounds = times["median"]["confidence_interval"]
        low, high = (bounds[f"{side}_bound"] / elements for side in ("lower", "upper"))
        report.add(bench=told["full_id"], ns_per_row=round(ns, 4), low=round(low, 4), high=round(high, 4))
        lines.append([told["full_id"], f"{ns:.3f}", f"{low:.3f} to {high:.3f}", f"{1000 / ns:.1f}"])
    report.say("Nanoseconds a row (a value, for rings), median and its 95 % interval.")
    report.table(["bench", "ns", "interval", "M rows/s"], lines)
    if not options.filter:
        by_hand(report)
        idle(report)
    report.write()


def found():
    return (ROOT / "benches" / "target" / "criterion").glob("**/new/estimates.json")


def by_hand(report):
    text = output([*BENCH, "--bench", "hand_written"])
    lines = []
    for line in csv.DictReader(io.StringIO(text)):
        report.add(**line)
        hand, two = AIMS.get(line["stream"], (None, None))
        lines.append([
            line["stream"], line["by_hand_m_rows_per_s"], line["one_worker_m_rows_per_s"],
            judged(float(line["one_over_by_hand"]), hand), line["two_workers_m_rows_per_s"],
            judged(float(line["two_over_one"]), two),
        ])
    report.say("A loop over the columns and a hash table a window, by hand, against one and two workers; M rows/s.")
    report.table(["stream", "by hand", "one worker", "over by hand", "two workers", "two over one"], lines)


def idle(report):
    done = subprocess.run([*BENCH, "--bench", "idle"], cwd=ROOT, capture_output=True, text=True)
    lines = list(csv.DictReader(io.StringIO(done.stdout)))
    for line in lines:
        report.add(**line)
    report.say("An idle engine (aim: under 0.01 of a core), and from a push that wakes it to the first result (aim: median "
               f"under 200 us): {'reached' if done.returncode == 0 else 'missed'}.")
    report.table(list(lines[0]), [line.values() for line in lines])


if __name__ == "__main__":
    main()
