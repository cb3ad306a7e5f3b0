#!/usr/bin/env python3
"""What refits cost a loop of matrix products on every GPU.

Usage: torch_overlap.py [--gpus N] [--device cuda|cpu] [--size N] -- COMMAND...

COMMAND is `sluice run PLAN --repeat R --verify ends --json`: between its first and its last refit nothing else of it runs.
Products run alone first, then beside the refits; both need MPS to share a GPU. Prints one JSON object: products a second
of all GPUs alone and beside, what they lost, and the median of the refits' seconds.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
import time

import torch
import torch.multiprocessing as multiprocessing

from with_parent import die_with_parent

BATCH = 10
ALONE_SECONDS = 3.0


def multiply(index, device, size, done, stop):
    """Counts products until it is told to stop; no more than a batch is ever enqueued."""
    die_with_parent()
    torch.set_num_threads(1)
    place = torch.device(device, index) if device == "cuda" else torch.device("cpu")
    a = torch.randn(size, size, device=place, dtype=torch.bfloat16)
    b = torch.randn(size, size, device=place, dtype=torch.bfloat16)
    out = torch.empty_like(a)
    while not stop.is_set():
        for _ in range(BATCH):
            torch.matmul(a, b, out=out)
        if device == "cuda":
            torch.cuda.synchronize(place)
        done[index] += BATCH


def moment(done):
    return time.monotonic(), sum(done)


def rate(begin, end):
    return (end[1] - begin[1]) / (end[0] - begin[0])


def watch(command, done):
    """Runs the command; the moments at which its first and its last but one refit were seen to be over, and its report."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=die_with_parent)
    begin = end = None
    for line in process.stderr:
        found = re.match(r"refit (\d+) of (\d+):", line)
        if found is None:
            print(line.rstrip(), file=sys.stderr)
            continue
        number, count = int(found.group(1)), int(found.group(2))
        if number == 2:
            begin = moment(done)
        if number == count - 1:
            end = moment(done)
    out = process.stdout.read()
    if process.wait() != 0 or begin is None or end is None or end[0] <= begin[0]:
        sys.exit(f"torch_overlap: the command failed ({process.returncode}) or did too few refits")
    return begin, end, json.loads(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = [word for word in options.command if word != "--"]
    context = multiprocessing.get_context("spawn")
    done, stop = context.Array("Q", options.gpus), context.Event()
    loops = [context.Process(target=multiply, args=(index, options.device, options.size, done, stop), daemon=True)
             for index in range(options.gpus)]
    for loop in loops:
        loop.start()
    while min(done) < 3 * BATCH:
        if not all(loop.is_alive() for loop in loops):
            sys.exit("torch_overlap: a loop of products has failed")
        time.sleep(0.01)
    begin = moment(done)
    time.sleep(ALONE_SECONDS)
    alone = rate(begin, moment(done))
    begin, end, report = watch(command, done)
    beside = rate(begin, end)
    stop.set()
    for loop in loops:
        loop.join()
    seconds = statistics.median(report["seconds"][1:-1])
    print(json.dumps({"gpus": options.gpus, "products_alone": round(alone, 2), "products_beside": round(beside, 2),
                      "lost": round(1 - beside / alone, 4), "refit_seconds": seconds, "bytes": report["bytes"],
                      "beside_seconds": round(end[0] - begin[0], 2)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
