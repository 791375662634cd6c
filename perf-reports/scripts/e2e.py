"""Whole processes, from file to file: `saltmill run` over each format, wall time, processor time, memory."""
import argparse
import gzip
import os
import shutil
import time

from report import DATA, FOUR, SALTMILL, WINDOWS, Report, count, median, stream

FORMATS = ["arrow", "parquet", "csv", "csv.gz", "ndjson"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="20M")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    rows = count(options.rows)
    report = Report(
        "e2e",
        "whole processes, file to file",
        f"just bench-e2e --rows {options.rows} --runs {options.runs}",
        "Reading decides: Arrow and parquet near the speed of the engine alone, plain text a fraction of it and bound by "
        "decoding on all cores, compressed text bound by one core's decompression. Memory does not grow with the file.",
    )
    lines = []
    for ending in FORMATS:
        path = compressed(rows) if ending == "csv.gz" else stream("z11", rows, ending)
        size = path.stat().st_size
        runs = [run(path) for _ in range(options.runs + 1)][1:]
        for i, (wall, cpu, peak) in enumerate(runs):
            report.add(
                format=ending, round=i + 1, rows=rows, bytes=size, wall_s=round(wall, 4), cpu_s=round(cpu, 4),
                peak_mib=round(peak, 1),
            )
        wall = median([run[0] for run in runs])
        lines.append([
            ending, f"{size / 1e6:.0f}", f"{wall:.2f}", f"{rows / wall / 1e6:.1f}", f"{size / wall / 1e6:.0f}",
            f"{median([run[1] for run in runs]) / wall:.2f}", f"{max(run[2] for run in runs):.0f}",
        ])
    report.say(f"Zipf 1.1 of a million keys, {rows:,} rows, {FOUR} by key and window, result as csv.")
    report.table(["input", "MB", "s", "M rows/s", "MB/s", "cores used", "peak MiB"], lines)
    report.write()


def compressed(rows):
    """The csv file, compressed by gzip."""
    plain = stream("z11", rows, "csv")
    path = plain.with_name(plain.name + ".gz")
    if not path.exists():
        part = path.with_name("part-" + path.name)
        with open(plain, "rb") as source, gzip.open(part, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        part.rename(path)
    return path


def run(path):
    """Wall seconds, processor seconds and largest resident MiB of one process."""
    target = DATA / "result.csv"
    command = [str(word) for word in [SALTMILL, "run", path, *WINDOWS, "--output", target]]
    started = time.perf_counter()
    child = os.spawnv(os.P_NOWAIT, command[0], command)
    _, status, usage = os.wait4(child, 0)
    wall = time.perf_counter() - started
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(command)} failed")
    target.unlink()
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
