#!/usr/bin/env python3
"""Prints the figures of a report that tools/gpu-test --gpus N left, as a table. Usage: gpu_table.py REPORT"""
import json
import os
import re
import statistics
import sys

LINK = 450.0  # GB/s of a GPU's links one way


def objects(folder, name):
    """The JSON objects of an output, each from the beginning of a line; [] when it is not there."""
    path = os.path.join(folder, name + ".txt")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as file:
        text = "\n" + file.read()
    found = []
    at = text.find("\n{")
    while at >= 0:
        try:
            value, at = json.JSONDecoder().raw_decode(text, at + 1)
            found.append(value)
        except ValueError:
            at += 1
        at = text.find("\n{", at)
    return found


def refit_seconds(run):
    """The median of the refits between the first and the last."""
    seconds = run["seconds"]
    return statistics.median(seconds[1:-1] if len(seconds) > 2 else seconds)


def print_wires(folder):
    print("\nplain NCCL             channels  GB/s of a GPU  of the link")
    for name in ("one", "both", "large", "nano", "moe", "colo"):
        for wire in objects(folder, "wire-" + name):
            rate = wire["busiest_bytes"] / wire["seconds"] / 1e9
            print(f"{name:22} {wire['ctas'] or 'default':>8}  {rate:13.1f}  {rate / LINK:11.2f}")


def print_runs(folder):
    print("\nsluice                        seconds  GB/s of a GPU  of the link  of plain NCCL")
    names = sorted(name[:-4] for name in os.listdir(folder) if name.startswith("run-") and name.endswith(".txt"))
    for name in names:
        _, plan, ctas, *_ = name.split("-")
        wires = objects(folder, "wire-" + plan)
        wire = next((wire for wire in wires if wire["ctas"] == int(ctas)), None)
        wire = wire or next((wire for wire in objects(folder, "wire-one") if wire["ctas"] == int(ctas)), None)
        for run in objects(folder, name):
            seconds = refit_seconds(run)
            busiest = wires[0]["busiest_bytes"] if wires else run["bytes"]
            rate = busiest / seconds / 1e9
            ratio = rate / (wire["busiest_bytes"] / wire["seconds"] / 1e9) if wire else float("nan")
            print(f"{name[4:]:28} {seconds:9.5f}  {rate:13.1f}  {rate / LINK:11.2f}  {ratio:13.2f}")


def print_gaps(folder):
    for name in sorted(name for name in os.listdir(folder) if name.startswith("gaps-")):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            print("\n" + file.read().rstrip())


def print_torch(folder):
    for plan in ("moe", "colo"):
        torch = objects(folder, "torch-" + plan)
        run = objects(folder, f"run-{plan}-32-packed")
        if torch and run:
            ours = refit_seconds(run[0])
            print(f"\n{plan}: batch_isend_irecv of {torch[0]['operations_of_a_rank']} operations a rank "
                  f"{torch[0]['seconds_median']:.4f} s, sluice {ours:.4f} s: {torch[0]['seconds_median'] / ours:.1f} times")


def print_overlap(folder):
    for name in ("overlap-all-speed", "overlap-50-GB"):
        for found in objects(folder, name):
            print(f"\n{name}: matrix products lose {found['lost'] * 100:.1f} % beside refits of "
                  f"{found['bytes'] / 1e9:.2f} GB in {found['refit_seconds']:.5f} s each")


def print_last_lines(folder):
    names = sorted(name[:-4] for name in os.listdir(folder) if re.match(r"(plans-.*|loss-.*|going-on|recover-.*)\.txt", name))
    for name in names:
        with open(os.path.join(folder, name + ".txt"), encoding="utf-8", errors="replace") as file:
            print(f"\n{name}: {(file.read().strip().splitlines() or ['nothing'])[-1]}")


def main():
    folder = sys.argv[1]
    print_wires(folder)
    print_runs(folder)
    print_gaps(folder)
    print_torch(folder)
    print_overlap(folder)
    print_last_lines(folder)
    print('\nsteps with another end than "passed":')
    with open(os.path.join(folder, "steps"), encoding="utf-8") as file:
        bad = [line.rstrip()[:110] for line in file if "passed" not in line]
    print("\n".join(bad) if bad else "none")


if __name__ == "__main__":
    main()
