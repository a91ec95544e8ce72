# SPDX-License-Identifier: Apache-2.0
"""weft's models beside PyTorch's DistributedDataParallel: the same batch, optimizer and number of ranks, in runs that alternate.
Imported by compare.py of fields and images.

Both get the same batch in each step, made before the clock starts, on 2 ranks of one thread. In PyTorch's runs MKL uses the processor's
full instruction set, and networks of 2-dim convolutions run as they come and with images in channels-last order; ratios are to the
faster of the two. A run's speed is that of its median step; the table shows the median over the runs. The processor time of a step is
that of both ranks; it is more reliable than the speed on a busy machine.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys

import torch_ranks

WARM_UP = 10


class Comparison:
    """The runs of each model and kind: "weft", "PyTorch", and for models of `channels_last` "channels last"."""

    def __init__(self, name, description, script, models, channels_last):
        self.name = name
        p = argparse.ArgumentParser(prog=f"./bench/run {name}", description=description)
        for option in ("program", "libraries", "unlock", "source"):
            p.add_argument(f"--{option}", required=True, help=argparse.SUPPRESS)
        p.add_argument("--rounds", type=int, default=3, help="runs of each, interleaved")
        p.add_argument("--steps", type=int, default=60, help="timed steps of a run")
        p.add_argument("--only", nargs="+", choices=models, default=models)
        p.add_argument("--output", default=None, help=f"JSON (default: build/bench/{name}.json)")
        self.arguments = a = p.parse_args()
        load = torch_ranks.note_load()
        pytorch = lambda model, *options: torch_ranks.run(
            script, ["--model", model, "--steps", str(a.steps), "--warmup", str(WARM_UP), *options], a.libraries, a.unlock)
        kinds = {"weft": lambda model: json.loads(subprocess.run([a.program, model, str(a.steps), str(WARM_UP)], check=True, stdout=subprocess.PIPE, text=True).stdout),
                 "PyTorch": pytorch, "channels last": lambda model: pytorch(model, "--channels-last")}
        self.runs = {model: {kind: [] for kind in kinds if model in channels_last or kind != "channels last"} for model in a.only}
        for index in range(a.rounds):
            for model in a.only:
                print(f"round {index + 1} of {a.rounds}: {model}", file=sys.stderr, flush=True)
                for kind, results in self.runs[model].items():
                    results.append(kinds[kind](model))
        self.report = {"date": datetime.date.today().isoformat(), "processor": torch_ranks.processor(), "load_before": load, "rounds": a.rounds,
                       "steps": a.steps, "torch": self.runs[a.only[0]]["PyTorch"][0]["torch"], "models": {}}

    def print_head(self, unit):
        print(f"\n{unit} on 2 data-parallel ranks of one thread, {self.report['processor']}; PyTorch {self.report['torch']} over Gloo, MKL "
              f"unlocked; medians of {self.arguments.rounds} runs\n")
        print(f"{'':16}{'weft':>9}{'PyTorch':>10}{'channels last':>16}{'ratio':>8}{'wanted':>8}")

    def write(self):
        output = pathlib.Path(self.arguments.output or pathlib.Path(self.arguments.source) / f"build/bench/{self.name}.json")
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(self.report, indent=1) + "\n")
        print(f"written: {output}")


def median_of(runs, value):
    """The median over the runs of each kind."""
    return {kind: statistics.median(map(value, results)) for kind, results in runs.items()}


def median_ms(run):
    return statistics.median(run["ms"])
