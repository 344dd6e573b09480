#!/usr/bin/env python3
"""Lists the resources of kernels as reported by ptxas.

Usage: list_registers.py FILE...     (standard error of nvcc -Xptxas=-v)

Prints one line for each kernel and architecture.
Exit codes: 0 no kernel of the project spills, 1 one does, 2 wrong usage.
"""

import re
import subprocess
import sys

COMPILING = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def kernels(lines):
    """Yields (name, architecture, registers, shared bytes, stack bytes, spilled bytes)."""
    name = architecture = None
    stack = spilled = 0
    for line in lines:
        if match := COMPILING.search(line):
            name, architecture = match.groups()
        elif match := SPILLS.search(line):
            stack, spilled = int(match.group(1)), int(match.group(2)) + int(match.group(3))
        elif (match := USED.search(line)) and name is not None:
            shared = SHARED.search(line)
            shared_bytes = int(shared.group(1)) if shared else 0
            yield name, architecture, int(match.group(1)), shared_bytes, stack, spilled
            name = None


def readable(names):
    """Demangles the names and removes their common parts."""
    result = subprocess.run(["c++filt"], input="\n".join(names), stdout=subprocess.PIPE,
                            encoding="utf-8", check=True)
    for name in result.stdout.splitlines():
        name = name.replace("(anonymous namespace)::", "").replace("pawl::cuda::", "")
        # Cut off the parameter types behind the template arguments.
        depth = 0
        for at, letter in enumerate(name):
            depth += {"<": 1, ">": -1}.get(letter, 0)
            if letter == "(" and depth == 0:
                name = name[:at]
                break
        yield re.sub(r"^void ", "", name)


def main(arguments):
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    found = []
    for path in arguments:
        with open(path, encoding="utf-8") as file:
            found += kernels(file)
    rows = sorted(zip(readable([kernel[0] for kernel in found]), found),
                  key=lambda row: (row[0], row[1][1]))
    print("%-60s %-6s %9s %7s %6s %7s" %
          ("kernel", "for", "registers", "shared", "stack", "spilled"))
    failed = False
    for name, (_, architecture, registers, shared, stack, spilled) in rows:
        is_ours = "cub::" not in name
        if not is_ours:
            name = re.sub(r"<.*", "", name)
        print("%-60s %-6s %9d %7d %6d %7d" %
              (name, architecture, registers, shared, stack, spilled))
        if is_ours and spilled > 0:
            failed = True
            print("%s spills %d bytes on %s" % (name, spilled, architecture), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
