"""Folds a callgrind profile into lines `caller;function count`, for a flame graph of two levels: callgrind keeps who
called whom, not whole stacks."""
import re


def fold(path):
    names, own, calls = {}, {}, {}
    function = caller = called = None
    with open(path) as file:
        for line in file:
            line = line.rstrip("\n")
            if line.startswith(("fn=", "cfn=")):
                number, name = re.match(r"c?fn=(\(\d+\))\s*(.*)", line).groups()
                if name:
                    names[number] = name
                if line.startswith("fn="):
                    function = names[number]
                else:
                    called = names[number]
            elif line.startswith("calls="):
                caller = function
            elif re.match(r"[+\-*\d]", line):
                count = int(line.split()[-1])
                if caller:
                    calls.setdefault(called, {}).setdefault(caller, 0)
                    calls[called][caller] += count
                    caller = None
                elif function:
                    own[function] = own.get(function, 0) + count
    for function, count in own.items():
        callers = calls.get(function, {"start": 1})
        total = sum(callers.values()) or 1
        for name, share in callers.items():
            part = count * share // total
            if part:
                yield f"{name.replace(';', ':')};{function.replace(';', ':')} {part}"
