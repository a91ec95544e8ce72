# SPDX-License-Identifier: Apache-2.0
"""A set of an HDF5 file read by weft and by h5py, by one process and by two with a half each, in turns. Started by ./bench/run hdf5."""
import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import h5py
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_ranks

SETS = {"contiguous": {}, "chunked": {"chunks": True}, "gzip": {"chunks": True, "compression": "gzip", "compression_opts": 4, "shuffle": True}}


def write(path, samples):
    """Smooth fields [samples, 4, 128, 128] of float32 in each storage."""
    x = numpy.linspace(0, 1, 128, dtype=numpy.float32)
    with h5py.File(path, "w") as file:
        for name, options in SETS.items():
            if options:
                options = options | {"chunks": (1, 4, 128, 128)}
            file.create_dataset(name, (samples, 4, 128, 128), numpy.float32, **options)
        for i in range(samples):
            field = numpy.stack([numpy.sin((k + 1) * x[:, None] + i) * numpy.cos((i % 7 + 1) * x[None, :]) for k in range(4)])
            for name in SETS:
                file[name][i] = field


def read(command, path, name, parts, order, rounds):
    """The slowest process's seconds of each round but the first, and the sum of all."""
    started = [subprocess.Popen([*command, path, name, str(part), str(parts), str(order), str(rounds + 1)], stdout=subprocess.PIPE, text=True) for part in range(parts)]
    results = [json.loads(process.communicate()[0]) for process in started]
    if any(process.returncode != 0 for process in started):
        raise SystemExit(f"{command[0]} failed")
    return [max(times) for times in zip(*(result["seconds"][1:] for result in results))], sum(result["sum"] for result in results)


def main():
    p = argparse.ArgumentParser(prog="./bench/run hdf5", description=__doc__.split("\n")[0])
    for name in ("program", "source"):
        p.add_argument(f"--{name}", required=True, help=argparse.SUPPRESS)
    p.add_argument("--samples", type=int, default=1000, help="262 kB each, three times")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--output", default=None, help="JSON (default: build/bench/hdf5.json)")
    a = p.parse_args()
    if a.samples < 2 or a.samples % 2 or a.samples % 389 == 0:
        p.error("--samples is even, so that two processes have a half each, and no multiple of 389, the step of the shuffled order")
    readers = {"weft": [a.program], "h5py": [sys.executable, str(pathlib.Path(__file__).with_name("h5py_read.py"))]}
    versions = f"h5py {h5py.__version__} with HDF5 {h5py.version.hdf5_version}"
    report = {"date": datetime.date.today().isoformat(), "processor": torch_ranks.processor(), "load_before": torch_ranks.note_load(), "versions": versions, "results": []}
    megabytes = a.samples * 4 * 128 * 128 * 4 / 1e6
    print(f"\nMB/s, medians of {2 * a.rounds}, {megabytes:.0f} MB, from the system's cache, {versions}, {torch_ranks.processor()}\n")
    print(f"{'storage':12}{'order':>10}{'processes':>11}{'weft':>8}{'h5py':>8}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/set.h5"
        write(path, a.samples)
        for name in SETS:
            for order in (0, 1):
                for parts in (1, 2):
                    seconds, sums = {}, {}
                    for _ in range(2):  # in turns
                        for reader, command in readers.items():
                            times, sums[reader] = read(command, path, name, parts, order, a.rounds)
                            seconds.setdefault(reader, []).extend(times)
                    if abs(sums["weft"] - sums["h5py"]) > 1e-5 * a.samples:
                        raise SystemExit(f"the readers found different values: {sums}")
                    speed = {reader: megabytes / statistics.median(times) for reader, times in seconds.items()}
                    report["results"].append({"set": name, "order": order, "processes": parts, "seconds": seconds})
                    print(f"{name:12}{('shuffled' if order else 'file'):>10}{parts:>11}{speed['weft']:>8.0f}{speed['h5py']:>8.0f}{speed['weft'] / speed['h5py']:>8.2f}", flush=True)
    output = pathlib.Path(a.output) if a.output else pathlib.Path(a.source) / "build/bench/hdf5.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nwritten: {output}\n")


main()
