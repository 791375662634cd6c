"""What skew costs and what the cure brings: adaptive against off and against a uniform stream, in turn in one process;
then the balance of eight shards."""
import argparse
import json

from report import FOUR, SALTMILL, WINDOWS, Report, bench, count, judged, output, stream

# Stream: aims over off, and over the uniform stream.
AIMS = {"u1m": (0.97, None), "z11": (None, None), "z15": (None, None), "h80": (2.0, 2.5), "h99": (4.0, 8.0)}
BALANCE_MAX = 1.10


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="50M")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    rows = count(options.rows)
    report = Report(
        "skew",
        "what skew costs, and what the cure brings",
        f"just bench-skew --rows {options.rows} --runs {options.runs}",
        "Adaptive over off, two workers: 0.97 or more on a uniform stream, 2.0 with 80 % on one key, 4.0 with 99 %. Against "
        "the uniform stream: 2.5 times with 80 %, 8 times with 99 %. Largest shard of eight over their mean: at most "
        f"{BALANCE_MAX} in every stream. A hot key that moves costs nothing against off.",
    )
    speed(report, rows, options.runs)
    balance(report, min(rows, 20_000_000))
    report.write()


def speed(report, rows, runs):
    lines = []
    uniform = stream("u1m", rows)
    for name in [*AIMS, "drift"]:
        over_off_aim, over_uniform_aim = AIMS.get(name, (0.9, None))
        path = stream(name, rows)
        others = ["--skew off"] + ([str(uniform)] if name != "u1m" else [])
        told = bench(path, "--workers", 2, against=others, runs=runs)
        settings = [("adaptive", told), *zip(["off", "uniform"], told["against"])]
        for i in range(runs):
            for setting, of in settings:
                report.add(
                    stream=name, setting=setting, round=i + 1, rows=of["rows"],
                    elapsed_s=round(of["runs"][i]["elapsed_s"], 5),
                    m_rows_per_s=round(of["runs"][i]["rows_per_s"] / 1e6, 2),
                )
        rate = f"{told['rows_per_s_median'] / 1e6:.1f}"
        off, *uniforms = told["against"]
        spread = f"{off['ratio_min']:.2f} to {off['ratio_max']:.2f}"
        over_off = f"{judged(off['ratio_median'], over_off_aim)}, {spread}"
        over_uniform = judged(uniforms[0]["ratio_median"], over_uniform_aim) if uniforms else ""
        lines.append([name, rate, f"{off['rows_per_s_median'] / 1e6:.1f}", over_off, over_uniform])
    report.say(f"{rows:,} rows, {FOUR} by key and window, two workers, M rows/s (medians of {runs}); ratios are of pairs.")
    report.table(["stream", "adaptive", "off", "over off, and range", "over uniform"], lines)


def balance(report, rows):
    lines = []
    for name in ["u1m", "z11", "z15", "z20", "h80", "h99"]:
        stats = stream(name, rows).with_suffix(".json")
        output([SALTMILL, "bench", stream(name, rows), *WINDOWS, "--workers", 8, "--runs", 1, "--stats", stats])
        told = json.loads(stats.read_text())
        now = told["imbalance"]["rows_max_over_mean"]
        if_off = told["imbalance"]["unmitigated_rows_max_over_mean"]
        verdict = "reached" if now <= BALANCE_MAX else "missed"
        keys = len(told["hot_keys"])
        report.add(stream=name, setting="8 workers", rows=rows, max_over_mean=now, if_off=if_off, hot_keys=keys)
        lines.append([name, f"{if_off:.2f}", f"{now:.2f} ({verdict})", keys])
    report.say(f"Eight workers, {rows:,} rows: rows of the largest shard over the mean.")
    report.table(["stream", "if off", "adaptive", "hot keys"], lines)


if __name__ == "__main__":
    main()
