#!/usr/bin/env python3
"""Where the time of refits goes, from a trace of `sluice run --repeat N --trace FILE`.

Usage: trace_gaps.py TRACE...

Of each refit and rank: from its first node to its first group (fill), groups, between groups (gaps), from the last group
to the last node (drain). Prints the medians over the refits between the first and the last, in milliseconds, a line a
rank. Groups of a rank run one after the other; a group that waits for its peer counts as one that runs.
"""
import json
import statistics
import sys

NODES = ("pack", "group", "unpack", "local")


def spans(path):
    """{rank: {run: [(begin, end, name)]}} in milliseconds."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    found = {}
    for event in events:
        if event.get("name") in NODES:
            begin = event["ts"] / 1e3
            found.setdefault(event["pid"], {}).setdefault(event["args"]["run"], []).append(
                (begin, begin + event["dur"] / 1e3, event["name"]))
    return found


def parts(nodes):
    """(whole, fill, groups, gaps, drain, packs, unpacks) of one refit of one rank; None without a group."""
    groups = sorted(node for node in nodes if node[2] == "group")
    if not groups:
        return None
    begin, end = min(node[0] for node in nodes), max(node[1] for node in nodes)
    busy, at = 0.0, groups[0][0]
    for first, last, _ in groups:
        busy += max(0.0, last - max(first, at))
        at = max(at, last)
    return (end - begin, groups[0][0] - begin, busy, at - groups[0][0] - busy, end - at,
            sum(node[1] - node[0] for node in nodes if node[2] == "pack"),
            sum(node[1] - node[0] for node in nodes if node[2] == "unpack"))


def main():
    print("rank refits   whole    fill  groups    gaps   drain |   packs unpacks  (ms, medians)")
    for path in sys.argv[1:]:
        print(path)
        for rank, runs in sorted(spans(path).items()):
            middle = sorted(runs)[1:-1] or sorted(runs)
            found = [part for part in (parts(runs[run]) for run in middle) if part is not None]
            if found:
                columns = [statistics.median(column) for column in zip(*found)]
                print(f"{rank:4} {len(found):6} " + " ".join(f"{value:7.3f}" for value in columns[:5]) + " | " +
                      " ".join(f"{value:7.3f}" for value in columns[5:]))


if __name__ == "__main__":
    main()
