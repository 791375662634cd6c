"""From one worker to more: in turn in one process, also with more workers than cores; then the model for machines with
more cores (model.py), fed with what was measured."""
import argparse
import json
import os

import model
from report import FOUR, SALTMILL, WINDOWS, Report, bench, count, judged, output, stream

WORKERS = [2, 4, 8]
TWO_OVER_ONE = {"u1m": 1.7}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="50M")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    rows = count(options.rows)
    report = Report(
        "scale",
        "from one worker to many",
        f"just bench-scale --rows {options.rows} --runs {options.runs}",
        "Two workers at least 1.7 times one on a uniform stream of a million keys; hot keys do not take that away. More "
        "workers than cores cost little: the same work, a few per cent more for messages and partials.",
    )
    lines = []
    for name in ["u1k", "u1m", "z11", "h80", "h99"]:
        path = stream(name, rows)
        told = bench(path, "--workers", 1, against=[f"--workers {n}" for n in WORKERS], runs=options.runs)
        settings = [(1, told), *zip(WORKERS, told["against"])]
        for i in range(options.runs):
            for workers, of in settings:
                report.add(
                    stream=name, workers=workers, round=i + 1, rows=rows,
                    m_rows_per_s=round(of["runs"][i]["rows_per_s"] / 1e6, 2),
                )
        # The ratio that is told is one worker over more.
        over_one = [1 / other["ratio_median"] for other in told["against"]]
        rates = [f"{of['rows_per_s_median'] / 1e6:.1f}" for _, of in settings]
        lines.append([name, *rates, judged(over_one[0], TWO_OVER_ONE.get(name))])
    report.say(f"{rows:,} rows, {FOUR} by key and window; M rows/s (medians of {options.runs}).")
    report.table(["stream", *(f"{n} workers" for n in [1, *WORKERS]), "two over one, of pairs"], lines)
    report.say(f"Cores of this machine: {os.cpu_count()}. More workers than that share them.")
    on_paper(report, rows)
    report.write()


def cpu_seconds(name, rows, workers, *options):
    """Processor seconds of all shards in one run, and of the busiest."""
    stats = stream(name, rows).with_suffix(".json")
    command = [SALTMILL, "bench", stream(name, rows), *WINDOWS, "--workers", workers, *options]
    output([*command, "--runs", 1, "--stats", stats])
    shards = json.loads(stats.read_text())["shards"]
    return sum(shard["cpu_s"] for shard in shards), max(shard["cpu_s"] for shard in shards)


def on_paper(report, rows):
    measured = {}
    for name in model.STREAMS:
        for workers in [1, 2, 4, 8, 16]:
            # The least of three: what else the machine does only adds.
            runs = [cpu_seconds(name, rows, workers) for _ in range(3)]
            measured[name, workers] = min(total for total, _ in runs) / rows * 1e9
            report.add(stream=name, workers=workers, cpu_ns_per_row=round(measured[name, workers], 3))
    report.say(model.text(measured))


if __name__ == "__main__":
    main()
