#!/usr/bin/env python3
"""Kills one rank of `sluice run --recover`: the others have to go on without it or with it.

Usage: kill_child.py [--rank R] COMMAND...

COMMAND is `sluice run PLAN --recover WHO --repeat N --json`, which starts the ranks itself. When its first three refits are
over, rank R (default the last) is killed. The command has to end with success and to count one loss. The last line of the
output says what was seen.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time

from with_parent import die_with_parent


def children_of(pid):
    """Its children, the oldest first: the ranks from 0 on."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rank", type=int, default=-1)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    process = subprocess.Popen(options.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=die_with_parent)
    killed = None
    for line in process.stderr:
        if not re.match(r"refit \d+ of", line):
            print(line.rstrip())
        elif killed is None and line.startswith("refit 3 of"):
            killed = time.monotonic()
            os.kill(children_of(process.pid)[options.rank], signal.SIGKILL)
    out = process.stdout.read()
    status = process.wait()
    report = json.loads(out) if status == 0 else {}
    good = killed is not None and report.get("losses") == 1
    print(f"kill_child: status {status}: "
          f"{'the others went on' if good else 'they did NOT go on' if killed else 'it ended before the kill'}, "
          f"{time.monotonic() - killed if killed else 0:.1f} s, left out {report.get('left_out')}, "
          f"moved twice {report.get('moved_twice_bytes')} bytes, verified {report.get('verified_bytes')}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
