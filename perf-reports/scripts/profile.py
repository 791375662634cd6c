"""Where the time goes on one stream: the functions by share, and a flame graph. perf where the kernel allows it, else
callgrind (instructions instead of time, without AVX-512). Options after -- go to `saltmill bench`:

    just profile h80 20M -- --skew off
"""
import argparse
import os
import shutil
import subprocess
from pathlib import Path

import fold_callgrind
from report import ROOT, SALTMILL, STREAMS, WINDOWS, Report, count, output, stream

RAW = ROOT / "target" / "profile"
TOOLS = ROOT / "target" / "tools"
LISTED = 25


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stream", choices=STREAMS)
    parser.add_argument("rows", nargs="?", default="20M")
    parser.add_argument("more", nargs="*", help="further options of saltmill bench, after --")
    options = parser.parse_args()
    RAW.mkdir(parents=True, exist_ok=True)
    command = [SALTMILL, "bench", stream(options.stream, count(options.rows)), *WINDOWS, "--progress", "never"]
    command = [str(word) for word in [*command, *options.more]]
    report = Report(
        f"profile-{options.stream}",
        f"where the time goes on {options.stream}",
        " ".join(["just profile", options.stream, options.rows, *(["--", *options.more] if options.more else [])]),
        "On streams of many keys the look-ups and updates of the table, which wait for memory; on skewed ones the reduction "
        "of hot rows and the pass that finds them.",
    )
    how, told, functions, folded = by_perf(command) if perf_works() else by_callgrind(command)
    (report.folder / "bench.txt").write_text(told)
    (report.folder / "functions.txt").write_text(functions)
    flame = [inferno("inferno-flamegraph"), "--title", f"saltmill bench, {options.stream}"]
    (report.folder / "flame.svg").write_text(output(flame, input=folded))
    report.say(f"{how}. `flame.svg` is the flame graph, `functions.txt` the functions by their own share, `bench.txt` the runs.")
    report.say("```text\n" + "\n".join(functions.splitlines()[:LISTED]) + "\n```")
    report.write()


def perf_works():
    if not shutil.which("perf"):
        return False
    probe = ["perf", "record", "--quiet", "-e", "cpu-clock", "-o", str(RAW / "probe"), "true"]
    return subprocess.run(probe, capture_output=True).returncode == 0


def by_perf(command):
    data = str(RAW / "perf.data")
    record = ["perf", "record", "--quiet", "-F", "999", "-e", "cpu-clock", "--call-graph", "dwarf,8192", "-o", data]
    told = output([*record, *command, "--runs", "3"])
    lines = output(["perf", "report", "--stdio", "--no-children", "-g", "none", "--percent-limit", "0.3", "-i", data])
    lines = [line.rstrip() for line in lines.splitlines() if line.strip() and not line.startswith("#")]
    script = subprocess.run(["perf", "script", "-i", data], capture_output=True, text=True, errors="replace").stdout
    folded = output([inferno("inferno-collapse-perf")], input=script)
    return "perf record, samples of the processor clock", told, "\n".join(lines) + "\n", folded


def by_callgrind(command):
    if not shutil.which("valgrind"):
        raise SystemExit("neither perf nor valgrind can be used; on Debian: apt-get install valgrind")
    data = RAW / "callgrind.out"
    told = output(["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={data}", *command, "--runs", "1"])
    functions = output(["callgrind_annotate", data])
    folded = "\n".join(fold_callgrind.fold(data)) + "\n"
    return "callgrind, as the kernel does not allow perf: instructions, not time", told, functions, folded


def inferno(name):
    """A program of the crate inferno, installed below target/ if it is nowhere."""
    found = shutil.which(name) or TOOLS / "bin" / name
    if not Path(found).exists():
        output(["cargo", "install", "--quiet", "--locked", "--root", TOOLS, "inferno"], env=os.environ)
    return found


if __name__ == "__main__":
    main()
