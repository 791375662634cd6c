"""Instructions of each stage under callgrind, held against benches/counts-baseline.csv.

    python3 perf-reports/scripts/counts.py             compares; exit code 1 if a stage needs more than it did
    python3 perf-reports/scripts/counts.py --bless     writes the baseline
    python3 perf-reports/scripts/counts.py --report    writes perf-reports/DATE-counts as well

Installs what it needs: valgrind with apt-get where that can be, gungraun-runner (the version of the crate) below
target/. Exit code 3 if they cannot be had: then nothing was measured.
"""
import argparse
import csv
import json
import os
import platform
import re
import shutil
import subprocess
import sys

from report import ROOT, Report

BASELINE = ROOT / "benches" / "counts-baseline.csv"
TOOLS = ROOT / "target" / "tools"
# More than the baseline by this share is a regression; less than it is worth a new baseline.
TOLERANCE = 0.02
# Rows of each bench, by the start of its name; see benches/counts.rs.
ROWS = {"kernel_": 8192, "batch_": 8192, "sketch_": 8192, "ring_": 8192, "table_insert": 65536, "table_update": 65536}
ROWS |= {"table_": 10_000, "engine_": 262_144}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bless", action="store_true")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    counts = measure(tools())
    compiler = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if options.bless:
        with open(BASELINE, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["bench", "instructions", "compiler"])
            writer.writerows([name, count, compiler] for name, count in counts.items())
        print(f"written: {BASELINE.relative_to(ROOT)}")
    with open(BASELINE, newline="") as file:
        baseline = {line["bench"]: line for line in csv.DictReader(file)}
    if options.report:
        write_report(counts, baseline)
    same_compiler = all(line["compiler"] == compiler for line in baseline.values())
    if not compare(counts, {name: int(line["instructions"]) for name, line in baseline.items()}):
        return
    if not same_compiler:
        print(f"the baseline was made with another compiler, so this is no failure; bless it with {compiler}")
        return
    print("if the change is worth it, write the baseline anew: just bench-counts --bless")
    sys.exit(1)


def tools():
    """The environment in which benches find their runner, or the end."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        give_up("the baseline is of x86-64 Linux")
    if not shutil.which("valgrind") and shutil.which("apt-get") and os.geteuid() == 0:
        for command in (["apt-get", "-qq", "update"], ["apt-get", "-qq", "install", "-y", "valgrind"]):
            subprocess.run(command, capture_output=True, check=False)
    if not shutil.which("valgrind"):
        give_up("valgrind is not installed and cannot be; on Debian: apt-get install valgrind")
    manifest = (ROOT / "benches" / "Cargo.toml").read_text()
    version = re.search(r'gungraun = "=([^"]+)"', manifest).group(1)
    runner = TOOLS / "bin" / "gungraun-runner"
    mark = TOOLS / f"gungraun-runner-{version}"
    if not runner.exists() or not mark.exists():
        command = ["cargo", "install", "--quiet", "--locked", "--force", "--root", str(TOOLS)]
        if subprocess.run([*command, f"gungraun-runner@{version}"], check=False).returncode:
            give_up(f"gungraun-runner {version} cannot be installed")
        mark.touch()
    return os.environ | {"GUNGRAUN_RUNNER": str(runner)}


def give_up(why):
    print(f"instructions not counted: {why}")
    sys.exit(3)


def measure(environment):
    """Instructions by name of the bench, in the order of the file."""
    command = ["cargo", "bench", "--quiet", "--manifest-path", "benches/Cargo.toml", "--bench", "counts"]
    command += ["--", "--output-format=json"]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    counts = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            told = json.loads(line)
            counts[f"{told['function_name']} {told['id']}"] = instructions(told)
    if done.returncode or not counts:
        raise SystemExit("the benches failed; what they said stands above")
    return counts


def compare(counts, baseline):
    """Prints every stage; whether one needs more than it may, or is not in both."""
    missed = False
    print(f"{'bench':44} {'instructions':>12} {'a row':>9} {'baseline':>9}")
    for name in dict.fromkeys([*baseline, *counts]):
        count, before = counts.get(name), baseline.get(name)
        if count is None or before is None:
            missed = True
            print(f"{name:44} {'no longer measured' if count is None else 'not in the baseline'}")
            continue
        change = count / before - 1
        word = ""
        if change > TOLERANCE:
            missed, word = True, "more than it may"
        elif change < -TOLERANCE:
            word = "better; bless it"
        print(f"{name:44} {count:12,} {count / rows(name):9.2f} {change:+9.1%} {word}")
    return missed


def rows(name):
    return next(rows for start, rows in ROWS.items() if name.startswith(start))


def write_report(counts, baseline):
    report = Report(
        "counts",
        "instructions of each stage",
        "just bench-counts",
        f"No stage needs more than {TOLERANCE:.0%} over benches/counts-baseline.csv.",
    )
    lines = []
    for name, count in counts.items():
        before = baseline.get(name)
        change = f"{count / int(before['instructions']) - 1:+.1%}" if before else ""
        report.raw.append({"bench": name, "instructions": count, "rows": rows(name)})
        lines.append([name, f"{count:,}", f"{count / rows(name):.2f}", change])
    report.say("Under callgrind, which knows AVX2 and not AVX-512. `engine_inline` is a whole engine of two shards on one thread.")
    report.table(["bench", "instructions", "a row", "against the baseline"], lines)
    report.write()


def instructions(told):
    """The number of instructions in a summary of gungraun."""
    profile = next(profile for profile in told["profiles"] if profile["tool"] == "Callgrind")
    return profile["data"]["total"]["metrics"]["Ir"]["values"]["new"]


if __name__ == "__main__":
    main()
