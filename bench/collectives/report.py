# SPDX-License-Identifier: Apache-2.0
"""Collectives of float32 between two ranks: weft's threads beside the memory's limit, its processes beside raw MPI calls and beside
torch.distributed over Gloo. Started by ./bench/run collectives. The ways take turns. Against the memory's limit the fastest round of each
counts, against other libraries the median; the JSON has both."""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

WAYS = {  # name: under mpirun
    "limit": False,
    "threads": False,
    "weft_mpi": True,
    "mpi": True,
    "gloo": False,
}
HEADINGS = {"limit": "memory limit", "threads": "weft threads", "weft_mpi": "weft over MPI", "mpi": "OpenMPI", "gloo": "Gloo (TCP)"}


def arguments():
    p = argparse.ArgumentParser(prog="./bench/run collectives", description=__doc__)
    p.add_argument("--program", required=True, help=argparse.SUPPRESS)
    p.add_argument("--mpirun", required=True, help=argparse.SUPPRESS)
    for hidden in ("--beside-mpi", "--over-tcp", "--torchrun", "--python", "--libraries"):
        p.add_argument(hidden, required=True, help=argparse.SUPPRESS)
    p.add_argument("--default-output", required=True, help=argparse.SUPPRESS)
    p.add_argument("--rounds", type=int, default=3, help="runs of each way, interleaved")
    p.add_argument("--output", default=None, help="JSON (default: build/bench/collectives.json)")
    return p.parse_args()


def measure(a, way):
    """Seconds by bytes, or None where this way is not there."""
    command = ([a.mpirun, "2"] if WAYS[way] else []) + [a.program, way]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        print(f"{HEADINGS[way]}: no end after 300 s, left out", file=sys.stderr)
        return None
    if done.returncode != 0:
        print(f"{HEADINGS[way]}: left out: {done.stderr.strip().splitlines()[-1:] or done.returncode}", file=sys.stderr)
        return None
    return {int(line.split()[0]): float(line.split()[1]) for line in done.stdout.splitlines()}


def size(bytes_):
    return f"{bytes_ >> 20} MiB" if bytes_ >= 1 << 20 else f"{bytes_ >> 10} KiB"


def time(seconds):
    return "-" if seconds is None else f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def lines_of(name, command, **environment):
    """The words of each line, or nothing where the way is not there."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600, env=dict(os.environ, **environment))
    except subprocess.TimeoutExpired:
        print(f"{name}: no end after 600 s, left out", file=sys.stderr)
        return []
    if done.returncode != 0:
        print(f"{name}: left out: {done.stderr.strip().splitlines()[-1:] or done.returncode}", file=sys.stderr)
        return []
    return [line.split() for line in done.stdout.splitlines()]


class Table:
    """Times by operation, bytes and way: the fastest, and the median of the runs' medians."""

    def __init__(self):
        self.times = {}

    def add(self, operation, bytes_, way, median, fastest):
        found = self.times.setdefault((operation, int(bytes_)), {}).setdefault(way, {"fastest": float(fastest), "medians": []})
        found["fastest"] = min(found["fastest"], float(fastest))
        found["medians"].append(float(median))

    def show(self, title, headings, compared):
        """headings: way -> heading; compared: way -> the way that its time is divided by."""
        print(f"\n{title}\n")
        print("| operation | message | " + " | ".join(headings.values()) + " | " + " | ".join(f"{headings[way]} / {headings[to]}" for way, to in compared.items()) + " |")
        print("|---" * (2 + len(headings) + len(compared)) + "|")
        rows = []
        for (operation, bytes_), ways in self.times.items():
            row = {"operation": operation, "bytes": bytes_}
            for way, found in ways.items():
                row[way] = {"fastest": found["fastest"], "median": statistics.median(found["medians"])}
            ratios = [f"{row[way]['median'] / row[to]['median']:.2f}" if way in row and to in row else "-" for way, to in compared.items()]
            print(f"| {operation} | {size(bytes_)} | " + " | ".join(time(row[way]["median"] if way in row else None) for way in headings) + " | " + " | ".join(ratios) + " |")
            rows.append(row)
        return rows


def beside_mpi(a):
    table = Table()
    for round_ in range(a.rounds):
        # OpenMPI copies through memory that it shares, or once, from the other process's: which is faster depends on the size.
        for copies, suffix in (("none", ""), ("cma", "_cma")):
            print(f"round {round_ + 1} of {a.rounds}: raw MPI calls and weft over MPI, by turns (single copy: {copies})", file=sys.stderr)
            for operation, bytes_, way, median, fastest in lines_of("MPI", [a.mpirun, "2", a.beside_mpi], OMPI_MCA_btl_vader_single_copy_mechanism=copies):
                table.add(operation, bytes_, way + suffix, median, fastest)
    headings = {"raw": "raw MPI", "weft": "weft", "tensors": "weft, tensors", "messages": "weft, by messages"}
    headings |= {way + "_cma": heading + " (CMA)" for way, heading in headings.items()}
    compared = {"weft": "raw", "tensors": "raw", "messages": "raw", "weft_cma": "raw_cma", "tensors_cma": "raw_cma", "messages_cma": "raw_cma"}
    return table.show("Processes under mpirun (send_recv: there and back); medians", headings, compared)


def beside_torch(a):
    table = Table()
    torch = [a.torchrun, "2", a.python, os.path.join(os.path.dirname(__file__), "torch_gloo.py")]
    ways = {
        "torch": (torch, {"LD_LIBRARY_PATH": a.libraries, "OMP_NUM_THREADS": "1"}),
        "tcp": ([a.torchrun, "2", a.over_tcp], {"WEFT_SHARED_MEMORY": "0"}),
        "weft": ([a.torchrun, "2", a.over_tcp], {}),
    }
    for round_ in range(a.rounds):
        for way, (command, environment) in ways.items():
            print(f"round {round_ + 1} of {a.rounds}: TCP, {way}", file=sys.stderr)
            for operation, bytes_, median, fastest in lines_of(way, command, **environment):
                table.add(operation, bytes_, way, median, fastest)
    headings = {"torch": "torch.distributed", "tcp": "weft over TCP", "weft": "weft, one machine"}
    return table.show("Processes over TCP; medians", headings, {"tcp": "torch", "weft": "torch"})


def main():
    a = arguments()
    if (os.cpu_count() or 1) > 1:
        os.environ.setdefault("WEFT_MPIRUN_BIND", "core")  # the figures are those of ranks that have a core each
    best, absent = {way: {} for way in WAYS}, set()
    for round_ in range(a.rounds):
        for way in WAYS:
            if way in absent:
                continue
            print(f"round {round_ + 1} of {a.rounds}: {HEADINGS[way]}", file=sys.stderr)
            found = measure(a, way)
            if found is None:
                absent.add(way)
                continue
            for bytes_, seconds in found.items():
                best[way][bytes_] = min(seconds, best[way].get(bytes_, seconds))
    sizes = sorted(best["threads"])
    rows = []
    for bytes_ in sizes:
        row = {"bytes": bytes_, **{way: best[way].get(bytes_) for way in WAYS}}
        row["share_of_limit"] = row["limit"] / row["threads"]
        row["times_gloo"] = row["gloo"] / row["threads"] if row["gloo"] else None
        row["times_mpi"] = row["mpi"] / row["threads"] if row["mpi"] else None
        rows.append(row)

    def beside(ratio):
        return "-" if ratio is None else f"{ratio:.1f} x"

    print(f"\nall_reduce(sum) of float32 in place, two ranks, {os.cpu_count()} cores ({platform.processor() or platform.machine()}); fastest round\n")
    print("| message | " + " | ".join(HEADINGS[way] for way in WAYS) + " | share of the limit | OpenMPI / weft | Gloo / weft |")
    print("|---" * (len(WAYS) + 4) + "|")
    for row in rows:
        print(f"| {size(row['bytes'])} | " + " | ".join(time(row[way]) for way in WAYS) +
              f" | {100 * row['share_of_limit']:.0f} % | {beside(row['times_mpi'])} | {beside(row['times_gloo'])} |")
    by_size = {row["bytes"]: row for row in rows}
    goals = [("4 KiB in at most 1 us", by_size[4096]["threads"] <= 1e-6)]
    goals += [(f"{size(b)} at 70 % of the limit or more", by_size[b]["share_of_limit"] >= 0.7) for b in sizes if b >= 1 << 20]
    if by_size[64 << 20]["times_gloo"]:
        goals.append(("64 MiB 5 times as fast as Gloo or more", by_size[64 << 20]["times_gloo"] >= 5))
    print("\n" + "\n".join(f"{'reached' if good else 'missed '}  {goal}" for goal, good in goals))
    mpi, gloo = beside_mpi(a), beside_torch(a)
    output = pathlib.Path(a.output or a.default_output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"bench": "collectives/all_reduce", "unit": "s", "ranks": 2, "rows": rows, "beside_mpi": mpi, "beside_torch": gloo}, indent=1) + "\n")
    print(f"\nwritten: {output}", file=sys.stderr)


main()
