"""What is compared: streams, queries, and the ratios that are aimed at."""
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "perf-reports" / "scripts"))

import streams  # noqa: E402
from streams import SPAN_MS, WINDOW_MS  # noqa: E402, F401

DISORDER_MS = 3

# By their names in the table.
STREAMS = {
    name: streams.STREAMS[name.replace(".", "").lower()]
    for name in ("U1K", "U1M", "U10M", "Z1.1", "Z1.5", "H80", "H99")
}

FOUR = [("count", None), ("sum", "value"), ("min", "value"), ("max", "value")]
# No sum of floats: engines round it differently, and results are compared to the last bit.
EIGHT = FOUR + [("min", "amount"), ("max", "amount"), ("min", "session"), ("max", "session")]


@dataclass
class Cell:
    name: str
    stream: str
    # windows: one query by key and window; split: the peers get ten tables, one a window; none: by key only.
    windows: str = "windows"
    aggregates: list = field(default_factory=lambda: FOUR)
    text: bool = False
    # memory, or the files a whole process goes from and to
    way: str = "memory"
    # share of the rows asked for
    rows: float = 1.0
    over_best: float = None
    over_timely: float = None

    def columns(self):
        wanted = ["ts", "key"] + [column for _, column in self.aggregates if column]
        return list(dict.fromkeys(wanted))


def cells():
    over_best = {"U1K": 2.5, "U1M": 4.0, "U10M": 3.0, "Z1.1": 5.5, "Z1.5": 4.0, "H80": 8.0, "H99": 7.0}
    over_timely = {"U1K": 1.3, "U1M": 1.5, "U10M": 1.5, "Z1.1": 1.5, "Z1.5": 1.7, "H80": 3.0, "H99": 3.5}
    found = [
        Cell(f"windows {s}", s, over_best=over_best[s], over_timely=over_timely[s]) for s in STREAMS
    ]
    split = {"U1M": 2.2, "Z1.1": 2.7, "H99": 3.0}
    found += [Cell(f"split {s}", s, windows="split", over_best=aim) for s, aim in split.items()]
    found += [
        Cell(f"no window {s}", s, windows="none", over_best=1.5 if s == "U1K" else 2.5) for s in STREAMS
    ]
    found += [
        Cell(f"text keys {s}", s, text=True, rows=0.4, over_best=2.5) for s in ("U1M", "Z1.1", "H80")
    ]
    found.append(Cell("8 aggregates Z1.1", "Z1.1", aggregates=EIGHT, over_best=3.0))
    found.append(Cell("parquet to csv Z1.1", "Z1.1", way="parquet", over_best=1.5))
    # 40 to 45 bytes a row: 1 GB of 50M rows asked for.
    found.append(Cell("csv to csv Z1.1", "Z1.1", way="csv", rows=0.48, over_best=1.0))
    return found
