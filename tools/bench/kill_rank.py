#!/usr/bin/env python3
"""Kills one rank in the middle of refits: every other rank has to report it in time.

Usage: kill_rank.py [--victim R] [--after SECONDS] [--within SECONDS] WORLD COMMAND...

Starts COMMAND (`sluice run PLAN ... --repeat 100000`) as the WORLD ranks of a launcher, kills rank R (default the last)
with SIGKILL, and waits for the others. Each has to end by itself, with an error that names a rank, within the time
(default 20 s: five missed heartbeats, a stalled group and an abort), and one at least with words of a refit that
failed in a window or could not begin, which shows that refits were under way. The last line of the output says what was seen.
"""
import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import time

from with_parent import die_with_parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(command, world, rank, port):
    environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank),
                       LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            preexec_fn=die_with_parent)


def finish(process, deadline):
    """(exit status or None when it had to be killed, seconds since the epoch of the clock, error text)."""
    try:
        out, error = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
        return process.returncode, time.monotonic(), (error.strip() or out.strip())
    except subprocess.TimeoutExpired:
        process.kill()
        error = process.communicate()[1]
        return None, time.monotonic(), error.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--victim", type=int)
    parser.add_argument("--after", type=float, default=10)
    parser.add_argument("--within", type=float, default=20)
    parser.add_argument("world", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    victim = options.world - 1 if options.victim is None else options.victim
    port = free_port()
    ranks = [start(options.command, options.world, rank, port) for rank in range(options.world)]
    time.sleep(options.after)
    early = [rank for rank, process in enumerate(ranks) if process.poll() is not None]
    if early:
        for process in ranks:
            process.kill()
        print(ranks[early[0]].communicate()[1])
        print(f"kill_rank: rank {early[0]} had ended {options.after} s after the start, before any was killed")
        return 1
    ranks[victim].send_signal(signal.SIGKILL)
    begin = time.monotonic()
    good, midway, slowest = True, False, 0.0
    for rank, process in enumerate(ranks):
        status, ended, text = finish(process, begin + options.within)
        if rank == victim:
            continue
        slowest = max(slowest, ended - begin)
        good = good and status == 1 and re.search(r"rank \d", text) is not None
        midway = midway or re.search("window|recover the runtime", text) is not None
        print(f"rank {rank}: {'status ' + str(status) if status is not None else 'had to be killed'}: {text}")
    print(f"kill_rank: rank {victim} of {options.world} killed {'amid' if midway else 'NOT amid'} refits: the others "
          f"{'reported it' if good else 'did NOT end as they should'}, the last after {slowest:.1f} s")
    return 0 if good and midway else 1


if __name__ == "__main__":
    sys.exit(main())
