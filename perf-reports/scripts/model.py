"""What the measured costs say about machines with more cores.

`just bench-scale` measures processor time per row with 1 to 16 workers on the cores there are, and this model, fed with
it, says how far 8, 32 and 64 cores would come and what would stop them first. Usage alone, over a report's figures:

    python3 perf-reports/scripts/model.py perf-reports/DATE-scale/raw.csv

The model. One worker needs c(n) = a + b n nanoseconds of processor time for a row when there are n workers: a is the
work on the row itself (read, hash, look up, update, emit); b n is what a batch costs once for each shard (a message, a
selection list, a pass over a shorter list), divided by the rows of a batch. a and b are fitted to 1, 2 and 4 workers by
least squares; 8 and 16, oversubscribed, check them. Then, with n cores,

    by cores      = n / c(n) / imbalance(n)       imbalance: key groups do not divide evenly, unless they do
    by memory     = bandwidth(n) / bytes(row)     what a row moves to and from memory
    by transfer   = n * link / bytes(handed on)   cache lines that move from core to core, (n - 1) / n of the cold rows

and the least of the three is what can be had. Merging partials is written beside it: keys * workers * ns each a window.
"""
import csv
import math
import sys

# Streams: keys in a window, share of rows that are hot (aggregated where they are read) with two-phase aggregation.
STREAMS = {"u1k": (1_000, 0.0), "u1m": (1_000_000, 0.0), "h80": (1_000_000, 0.8), "h99": (1_000_000, 0.99)}
FITTED, CHECKED = [1, 2, 4], [8, 16]

# Machines on paper: cores, memory bandwidth in GB/s, last-level cache in MB. A desktop, a server, a large server.
MACHINES = [(8, 60, 32), (32, 200, 128), (64, 350, 256)]
# Sustained transfer of lines that another core has written or holds, GB/s for each core.
LINK_GB_S = 6.0
KEY_GROUPS = 128
BATCH_ROWS = 8192
# Three columns of eight bytes.
INPUT_BYTES = 24
# A key's row and its share of the index; measured as state_bytes_max over keys.
STATE_BYTES = 78
LINE = 64
# Of one hot key's partial into its owner, with its share of the messages.
MERGE_NS = 200


def fit(points):
    """a and b of a + b n through (n, cost), least squares; b is not negative."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    b = max(0.0, sum((x - mean_x) * (y - mean_y) for x, y in points) / spread)
    return mean_y - b * mean_x, b


def imbalance(workers):
    return math.ceil(KEY_GROUPS / workers) / (KEY_GROUPS / workers)


def memory_bytes(keys, hot, cache_mb):
    """What one row moves to and from memory: its input, and for a cold row whose state is not cached one line of
    the index, and one of the table that is written back."""
    cold = 1 - hot
    missing = max(0.0, 1 - cache_mb * 1e6 / (keys * STATE_BYTES))
    return INPUT_BYTES + cold * missing * 3 * LINE


def handed_bytes(hot, workers):
    """Of one row: its columns, hash and row number, if it is cold and another core's."""
    return (1 - hot) * (workers - 1) / workers * (INPUT_BYTES + 8 + 4)


def limits(cost, keys, hot, machine):
    """M rows/s by each limit."""
    cores, bandwidth, cache = machine
    handed = handed_bytes(hot, cores)
    return {
        "cores": cores / cost * 1e3 / imbalance(cores),
        "memory": bandwidth * 1e3 / memory_bytes(keys, hot, cache),
        "transfer": cores * LINK_GB_S * 1e3 / handed if handed else math.inf,
    }


def text(measured):
    """The arithmetic as paragraphs and tables. `measured` is ns of processor time a row by (stream, workers)."""
    parts = ["## On paper: 8, 32 and 64 cores", __doc__.split("The model. ")[1].strip()]
    lines = ["| stream | a ns | b ns | " + " | ".join(f"{n} workers: model, measured" for n in CHECKED) + " |"]
    lines.append("|---|---|---|" + "---|" * len(CHECKED))
    fits, worst = {}, 0.0
    for name in STREAMS:
        fits[name] = a, b = fit([(n, measured[name, n]) for n in FITTED])
        cells = []
        for n in CHECKED:
            off = (a + b * n) / measured[name, n] - 1
            worst = max(worst, abs(off))
            cells.append(f"{a + b * n:.2f}, {measured[name, n]:.2f} ({off:+.0%})")
        lines.append(f"| {name} | {a:.2f} | {b:.3f} | " + " | ".join(cells) + " |")
    parts += ["\n".join(lines), f"The model is off by {worst:.0%} at most where it can be checked."]
    lines = ["| stream | cores | ns a row | by cores | by memory | by transfer | first limit | M rows/s | over one core |"]
    lines.append("|---|" + "---|" * 8)
    for name, (keys, hot) in STREAMS.items():
        a, b = fits[name]
        for machine in MACHINES:
            cost = a + b * machine[0]
            found = limits(cost, keys, hot, machine)
            first = min(found, key=found.get)
            cells = [f"{found[limit]:,.0f}" for limit in ("cores", "memory", "transfer")]
            over = found[first] / (1e3 / (a + b))
            cells = [name, machine[0], f"{cost:.2f}", *cells, first, f"{found[first]:,.0f}", f"{over:.1f}"]
            lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    parts.append("M rows/s by each limit. " + "; ".join(
        f"{cores} cores: {bandwidth} GB/s, {cache} MB of last-level cache" for cores, bandwidth, cache in MACHINES
    ) + f"; {LINK_GB_S:.0f} GB/s a core between caches. These are assumptions, not measurements.")
    parts.append("\n".join(lines))
    cores = MACHINES[-1][0]
    parts.append(
        f"Key groups: {KEY_GROUPS} on {cores} cores are {imbalance(cores):.2f} times the mean load on the fullest shard; a "
        "number of groups that the workers divide makes it 1. Merging: 100 hot keys on "
        f"{cores} workers are {100 * cores * MERGE_NS / 1e6:.1f} ms of work a window, spread over their owners. Messages: a batch of "
        f"{BATCH_ROWS:,} rows is {cores} messages there, {BATCH_ROWS // cores} rows each."
    )
    return "\n\n".join(parts)


def main():
    measured = {}
    with open(sys.argv[1], newline="") as file:
        for line in csv.DictReader(file):
            if line.get("cpu_ns_per_row"):
                measured[line["stream"], int(line["workers"])] = float(line["cpu_ns_per_row"])
    print(text(measured))


if __name__ == "__main__":
    main()
