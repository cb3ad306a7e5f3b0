#!/usr/bin/env python3
"""Moves a plan with PyTorch's batch_isend_irecv: what a program does without Sluice.

Usage: torch_p2p.py PLAN.json [--backend nccl|gloo] [--rounds N] [--chunk N]

One process a rank, one GPU each (nccl) or plain memory (gloo). Every rank has a buffer per parameter and role. Tasks go
in windows of `chunk` task ids (default 256): within one the rank's sends and receives are one batch_isend_irecv, since
one batch of everything can hang. Slices with gaps are copied through contiguous tensors, as programs have to. Tasks
within a rank are copies. Prints one JSON object: the median seconds of the rounds behind two that warm up, from when the
last rank began until the last one had everything. Destinations are compared with what was sent, after the last round.
"""
import argparse
import json
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

WARM_ROUNDS = 2


def region(end):
    """(offset, row bytes, rows, pitch) of one end of a task."""
    if "bytes" in end:
        return end.get("offset", 0), end["bytes"], 1, end["bytes"]
    return end.get("offset", 0), end["row_bytes"], end.get("rows", 1), end.get("pitch", end["row_bytes"])


def view(buffer, end):
    offset, row_bytes, rows, pitch = region(end)
    return torch.as_strided(buffer, (rows, row_bytes), (pitch, 1), offset)


def length(end):
    offset, row_bytes, rows, pitch = region(end)
    return offset + (rows - 1) * pitch + row_bytes if rows > 0 and row_bytes > 0 else offset


def fill_of(param, source):
    return (param * 31 + source * 7 + 1) % 251


def make_buffers(tasks, rank, role, device):
    """One buffer a parameter, as large as its tasks need."""
    sizes = {}
    for task in tasks:
        if task[role]["rank"] == rank:
            sizes[task["param"]] = max(sizes.get(task["param"], 0), length(task[role]))
    return {param: torch.full((size,), fill_of(param, rank) if role == "from" else 255, dtype=torch.uint8, device=device)
            for param, size in sizes.items()}


class Mover:
    """The rank's tasks as windows of prepared operations."""

    def __init__(self, plan, rank, chunk, device):
        self.tasks = [task for task in plan["tasks"] if rank in (task["from"]["rank"], task["to"]["rank"])]
        self.rank = rank
        self.sources = make_buffers(self.tasks, rank, "from", device)
        self.destinations = make_buffers(self.tasks, rank, "to", device)
        self.operations = 0
        windows = {}
        for task in self.tasks:
            windows.setdefault(task["id"] // chunk, []).append(task)
        self.windows = [self.prepare(windows[number]) for number in sorted(windows)]

    def prepare(self, tasks):
        """(copies before, operations, copies after), each copy as (to, from)."""
        before, operations, after = [], [], []
        for task in sorted(tasks, key=lambda task: task["id"]):
            source, destination = task["from"]["rank"], task["to"]["rank"]
            here = view(self.sources[task["param"]], task["from"]) if source == self.rank else None
            there = view(self.destinations[task["param"]], task["to"]) if destination == self.rank else None
            if source == destination:
                before.append((there, here))
            elif here is not None:
                flat = here if here.is_contiguous() else torch.empty(here.shape, dtype=here.dtype, device=here.device)
                if flat is not here:
                    before.append((flat, here))
                operations.append(dist.P2POp(dist.isend, flat.view(-1), destination))
            else:
                flat = there if there.is_contiguous() else torch.empty(there.shape, dtype=there.dtype,
                                                                       device=there.device)
                if flat is not there:
                    after.append((there, flat))
                operations.append(dist.P2POp(dist.irecv, flat.view(-1), source))
        self.operations += len(operations)
        return before, operations, after

    def run(self):
        for before, operations, after in self.windows:
            for to, origin in before:
                to.copy_(origin.reshape(to.shape))
            for work in dist.batch_isend_irecv(operations) if operations else []:
                work.wait()
            for to, origin in after:
                to.copy_(origin)

    def wrong_tasks(self):
        return sum(1 for task in self.tasks if task["to"]["rank"] == self.rank and
                   bool((view(self.destinations[task["param"]], task["to"]) !=
                         fill_of(task["param"], task["from"]["rank"])).any()))


def be_rank(rank, plan_path, options, port, results):
    with open(plan_path, encoding="utf-8") as file:
        plan = json.load(file)
    cuda = options.backend == "nccl"
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group(options.backend, rank=rank, world_size=plan["world"], device_id=device if cuda else None)
    mover = Mover(plan, rank, options.chunk, device)
    times = []
    for _ in range(WARM_ROUNDS + options.rounds):
        dist.barrier()
        if cuda:
            torch.cuda.synchronize()
        begin = time.monotonic()
        mover.run()
        if cuda:
            torch.cuda.synchronize()
        times.append((begin, time.monotonic()))
    results.put((rank, times[WARM_ROUNDS:], mover.operations, mover.wrong_tasks()))
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("plan")
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chunk", type=int, default=256)
    options = parser.parse_args()
    with open(options.plan, encoding="utf-8") as file:
        plan = json.load(file)
    world = plan["world"]
    if options.backend == "nccl" and torch.cuda.device_count() < world:
        print(f"torch_p2p: skipped: {world} ranks need as many GPUs, there are {torch.cuda.device_count()}")
        return 77
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    ranks = multiprocessing.start_processes(be_rank, (options.plan, options, free_port(), results), world, join=False,
                                            start_method="spawn")
    reports = []
    while len(reports) < world:
        if ranks.join(timeout=0.2) and results.empty():
            break
        while not results.empty():
            reports.append(results.get())
    while not ranks.join():
        pass
    seconds = [max(report[1][i][1] for report in reports) - max(report[1][i][0] for report in reports)
               for i in range(options.rounds)]
    wrong = sum(report[3] for report in reports)
    print(json.dumps({"torch": torch.__version__, "plan": options.plan, "world": world, "chunk": options.chunk,
                      "operations_of_a_rank": max(report[2] for report in reports),
                      "seconds_median": statistics.median(seconds), "seconds_min": min(seconds),
                      "seconds_max": max(seconds), "wrong_tasks": wrong}))
    return 0 if wrong == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
