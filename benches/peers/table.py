"""From the runs to a table (csv and markdown) and a plot (svg). Ratios are medians over rounds of one run."""
import csv
import math
import statistics

COLORS = {
    "saltmill": "#1b6ca8",
    "duckdb": "#d9a514",
    "polars": "#6a9f58",
    "datafusion": "#b5533c",
    "clickhouse": "#7d6b99",
    "timely": "#777777",
}


def by_engine(runs, cell):
    """Rows/s of each engine by (group, round), in millions."""
    found = {}
    for run in runs:
        if run["cell"] == cell.name:
            found.setdefault(run["engine"], {})[run["group"], run["round"]] = run["m_rows_per_s"]
    return found


def ratios(own, other):
    """Saltmill over another engine, round by round."""
    return [own[at] / rate for at, rate in other.items()]


def lines(runs, cells):
    for cell in cells:
        rates = by_engine(runs, cell)
        if "saltmill" not in rates:
            continue
        own = rates.pop("saltmill")
        line = {"cell": cell.name, "saltmill": statistics.median(own.values())}
        over = {}
        for name, rate in rates.items():
            line[name] = statistics.median(rate.values())
            over[name] = ratios(own, rate)
        engines = {name: statistics.median(found) for name, found in over.items() if name != "timely"}
        if engines:
            best = min(engines, key=engines.get)
            line["best_engine"], line["over_best"] = best, engines[best]
            line["over_best_min"], line["over_best_max"] = min(over[best]), max(over[best])
            line["aim_over_best"] = cell.over_best
        if "timely" in over:
            line["over_timely"] = statistics.median(over["timely"])
            line["aim_over_timely"] = cell.over_timely
        yield line


def cut(value):
    return f"{value:.3g}" if isinstance(value, float) and value < 100 else f"{value:.0f}" if isinstance(value, float) else value


def verdict(line):
    found = []
    for name in ("best", "timely"):
        over, aim = line.get(f"over_{name}"), line.get(f"aim_over_{name}")
        if over is not None and aim is not None:
            found.append(over >= aim)
    # Without an aim, or without those it is about, there is nothing to judge.
    return "" if not found else "reached" if all(found) else "missed"


def write(folder, runs, cells):
    """Writes table.csv and plot.svg; answers what the README says."""
    found = list(lines(runs, cells))
    names = list(dict.fromkeys(name for line in found for name in line))
    with open(folder / "table.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=names + ["verdict"], restval="")
        writer.writeheader()
        for line in found:
            writer.writerow({name: cut(value) for name, value in line.items()} | {"verdict": verdict(line)})
    (folder / "plot.svg").write_text(plot(found))
    versions = {run["engine"]: run["version"] for run in runs}
    versions = ", ".join(f"{name} {version}" for name, version in versions.items())
    return [markdown(found), "![rows per second](plot.svg)", f"Versions: {versions}."]


def markdown(table):
    engines = [name for name in COLORS if any(name in line for line in table)]
    head = ["cell", *engines, "over best engine (min to max)", "aim", "over timely", "aim", ""]
    text = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for line in table:
        fastest = max((name for name in engines if name in line), key=line.get)
        cells = [line["cell"]]
        for name in engines:
            value = cut(line[name]) if name in line else ""
            cells.append(f"**{value}**" if name == fastest else str(value))
        best = ""
        if "over_best" in line:
            spread = f"{cut(line['over_best_min'])} to {cut(line['over_best_max'])}"
            best = f"{cut(line['over_best'])} x {line['best_engine']} ({spread})"
        timely = f"{cut(line['over_timely'])} x" if "over_timely" in line else ""
        aims = [f"{line[f'aim_over_{n}']} x" if line.get(f"aim_over_{n}") else "" for n in ("best", "timely")]
        cells += [best, aims[0], timely, aims[1], verdict(line)]
        text.append("| " + " | ".join(cells) + " |")
    return "\n".join(text)


def plot(table):
    """Bars of rows/s on a logarithmic scale, a group a cell."""
    engines = [name for name in COLORS if any(name in line for line in table)]
    bar, gap, left, height, top = 9, 14, 60, 320, 40
    group = bar * len(engines) + gap
    width = left + group * len(table) + 20
    rates = [line[name] for line in table for name in engines if name in line]
    low, high = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates)))
    high = max(high, low + 1)

    def y(rate):
        return top + height * (1 - (math.log10(rate) - low) / (high - low))

    style = "font-family='sans-serif' font-size='11'"
    out = [f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{top + height + 130}' {style}>"]
    out.append(f"<rect width='{width}' height='{top + height + 130}' fill='white'/>")
    for power in range(low, high + 1):
        for digit in (1, 2, 5) if power < high else (1,):
            rate = digit * 10.0**power
            out.append(f"<line x1='{left}' x2='{width - 10}' y1='{y(rate):.1f}' y2='{y(rate):.1f}' stroke='#ddd'/>")
            out.append(f"<text x='{left - 6}' y='{y(rate) + 4:.1f}' text-anchor='end'>{rate:g}</text>")
    out.append(f"<text x='10' y='{top - 22}'>M rows/s (logarithmic)</text>")
    for i, name in enumerate(engines):
        x = left + 150 + i * 95
        out.append(f"<rect x='{x}' y='{top - 31}' width='10' height='10' fill='{COLORS[name]}'/>")
        out.append(f"<text x='{x + 14}' y='{top - 22}'>{name}</text>")
    for at, line in enumerate(table):
        x = left + at * group + gap / 2
        for i, name in enumerate(engines):
            if name in line:
                place = y(line[name])
                size = top + height - place
                out.append(
                    f"<rect x='{x + i * bar:.1f}' y='{place:.1f}' width='{bar - 1}' height='{size:.1f}' "
                    f"fill='{COLORS[name]}'><title>{line['cell']}, {name}: {line[name]:.1f}</title></rect>"
                )
        middle, below = x + bar * len(engines) / 2, top + height + 12
        out.append(
            f"<text x='{middle:.1f}' y='{below}' text-anchor='end' "
            f"transform='rotate(-45 {middle:.1f} {below})'>{line['cell']}</text>"
        )
    return "\n".join([*out, "</svg>"]) + "\n"
