#!/usr/bin/env python3
"""Runs the HTTP service under mixed load and checks that it loses nothing and does not grow.

Hot and cold keys, bad requests, clients that stall or go away in the middle of a request, questions for keys and metrics,
and restarts in the middle of it all, from a savepoint each. Checked: every event that was acknowledged in any life is
in the service's report when it ends, and no other one; what it answers for a sample of keys at the end; resident memory
within 5 % from the middle to the end of each life (of 32 MiB at least, below which allocators' caches decide).

    python3 examples/http_service/soak.py --seconds 60 --restarts 5
"""
import argparse
import http.client
import json
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent.parent / "target"
KEYS = 10_000
FLAT = 0.05
MEMORY_MIN_KIB = 32 * 1024


class Life:
    """One start of the service, and what its clients know."""

    def __init__(self, binary, port, state, before):
        self.port = port
        self.process = subprocess.Popen(
            [binary, f"127.0.0.1:{port}", state], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.process.stderr.readline()
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.acknowledged = Counter(before.acknowledged if before else {})
        self.values = Counter(before.values if before else {})
        self.unknown = before.unknown if before else 0
        self.answers = Counter()
        self.memory = []
        self.wrong = []

    def connect(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def count(self, status):
        with self.lock:
            self.answers[status] += 1


def events(rng, rows):
    keys = ["hot" if rng.random() < 0.8 else f"key-{rng.randrange(KEYS)}" for _ in range(rows)]
    return [(key, rng.randrange(100)) for key in keys]


def produce(life, seed):
    rng = random.Random(seed)
    connection = life.connect()
    while not life.stopping.is_set():
        batch = events(rng, rng.choice([1, 20, 200, 1000]))
        body = "\n".join(json.dumps({"key": key, "value": value}) for key, value in batch)
        try:
            connection.request("POST", "/events", body)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            # It may have been taken or not: it is not known.
            with life.lock:
                life.unknown += len(batch)
            if life.stopping.is_set():
                return
            connection = life.connect()
            continue
        life.count(answer.status)
        if answer.status != 200 or int(text) != len(batch):
            life.wrong.append(f"good events were answered with {answer.status} {text[:100]}")
            continue
        with life.lock:
            for key, value in batch:
                life.acknowledged[key] += 1
                life.values[key] += value
        if answer.will_close:
            connection = None if life.stopping.is_set() else life.connect()
            if connection is None:
                return


BAD = [
    b"not json",
    b'{"key":"a"}',
    b'{"key":5,"value":1}',
    b'{"key":"a","value":1}\n{"key":"b","value":"x"}',
    b'{"key":"a","value":99999999999999999999}',
    b"\xff\xfe\x00",
]


def misbehave(life, seed):
    """Bad events, wrong paths, bodies that are too large, never end, or come drop by drop."""
    rng = random.Random(seed)
    while not life.stopping.is_set():
        try:
            kind = rng.randrange(5)
            if kind < 2:
                connection = life.connect()
                headers = {"Content-Type": "application/vnd.apache.arrow.stream"} if rng.random() < 0.3 else {}
                connection.request("POST", "/events", rng.choice(BAD), headers)
                status = connection.getresponse().status
                life.count(status)
                if status != 400:
                    life.wrong.append(f"bad events were answered with {status}")
            elif kind == 2:
                connection = life.connect()
                connection.request("GET", rng.choice(["/", "/keys/no-such-key", "/events"]))
                life.count(connection.getresponse().status)
            else:
                # Announces more than it sends; then goes away, or keeps the connection for a while.
                stalled = socket.create_connection(("127.0.0.1", life.port), timeout=30)
                head = b"POST /events HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
                stalled.sendall(head)
                for _ in range(rng.randrange(5)):
                    stalled.sendall(b'{"key":"stalled","value":1}\n')
                    time.sleep(0.02)
                stalled.close()
                life.count("gone")
        except (OSError, http.client.HTTPException):
            if life.stopping.is_set():
                return
        time.sleep(0.005)


def ask(life, seed):
    rng = random.Random(seed)
    connection = life.connect()
    while not life.stopping.is_set():
        try:
            connection.request("GET", rng.choice(["/metrics", "/keys/hot", f"/keys/key-{rng.randrange(KEYS)}"]))
            answer = connection.getresponse()
            answer.read()
            life.count(answer.status)
        except (OSError, http.client.HTTPException):
            if life.stopping.is_set():
                return
            connection = life.connect()
        time.sleep(0.002)


def watch(life):
    while not life.stopping.is_set():
        status = Path(f"/proc/{life.process.pid}/status").read_text()
        life.memory.append(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")))
        time.sleep(0.1)


def check_keys(life):
    """Totals of a sample of keys, which appear a moment after the last event."""
    time.sleep(1)
    connection = life.connect()
    for key in ["hot", *random.sample(sorted(life.acknowledged), min(50, len(life.acknowledged)))]:
        connection.request("GET", f"/keys/{key}")
        answer = json.loads(connection.getresponse().read())
        expected = {"key": key, "count": life.acknowledged[key], "sum": life.values[key]}
        if answer != expected and not life.unknown:
            life.wrong.append(f"asked for {key}: {answer}, not {expected}")


def live(binary, port, state, before, seconds, last):
    life = Life(binary, port, state, before)
    clients = [threading.Thread(target=produce, args=(life, seed)) for seed in range(3)]
    clients += [threading.Thread(target=misbehave, args=(life, 100 + seed)) for seed in range(2)]
    clients += [threading.Thread(target=ask, args=(life, 200)), threading.Thread(target=watch, args=(life,))]
    for client in clients:
        client.start()
    time.sleep(seconds)
    if last:
        # The last life ends quietly, so that what it answers can be compared.
        life.stopping.set()
        for client in clients:
            client.join()
        check_keys(life)
        life.process.send_signal(signal.SIGTERM)
    else:
        # The others end in the middle of their load.
        life.stopping.set()
        life.process.send_signal(signal.SIGTERM)
        for client in clients:
            client.join()
    out, err = life.process.communicate(timeout=60)
    if life.process.returncode:
        life.wrong.append(f"it ended with {life.process.returncode}: {err[-2000:]}")
        return life, None
    return life, json.loads(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--binary", default=str(TARGET / "release" / "saltmill-http-service"))
    options = parser.parse_args()
    port = options.port
    if not port:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    wrong, answers, life = [], Counter(), None
    state = tempfile.TemporaryDirectory()
    for number in range(options.restarts + 1):
        last = number == options.restarts
        seconds = options.seconds / (options.restarts + 1)
        life, report = live(options.binary, port, state.name, life, seconds, last)
        acknowledged = sum(life.acknowledged.values())
        answers.update({str(status): count for status, count in life.answers.items()})
        if report:
            rows = report["rows_in"]
            if not acknowledged <= rows <= acknowledged + life.unknown or rows != report["rows_aggregated"]:
                life.wrong.append(f"{acknowledged} events acknowledged, {life.unknown} unknown, but it says {report}")
        middle = statistics.median(life.memory[len(life.memory) // 3 : len(life.memory) * 2 // 3])
        end = statistics.median(life.memory[-max(len(life.memory) // 6, 1) :])
        growth = (end - middle) / max(middle, MEMORY_MIN_KIB)
        if abs(growth) > FLAT:
            life.wrong.append(f"memory went from {middle:.0f} KiB to {end:.0f} KiB: {growth:+.1%}")
        print(
            f"life {number + 1}: {acknowledged} events acknowledged, {life.unknown} unknown, report {report}, "
            f"memory {middle:.0f} KiB, then {end:.0f} KiB ({growth:+.1%})",
            flush=True,
        )
        wrong += [f"life {number + 1}: {what}" for what in life.wrong[:5]]
    print(f"{acknowledged} events, answers {dict(sorted(answers.items()))}")
    for what in wrong:
        print(f"WRONG: {what}", file=sys.stderr)
    if not acknowledged or wrong:
        sys.exit(1)
    print("rows conserved, memory flat")


if __name__ == "__main__":
    main()
