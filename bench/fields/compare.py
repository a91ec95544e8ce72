# SPDX-License-Identifier: Apache-2.0
"""weft beside PyTorch's DistributedDataParallel: the models of examples/fields, the same samples, optimizer and number of ranks, in runs
that alternate. Started by ./bench/run fields.

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

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import torch_ranks

WANTED, WARM_UP = 1.2, 10
MODELS = ["unet2", "unet3", "fno", "mesh", "potential", "pinn", "diffusion"]
LAST = {"unet2", "diffusion"}  # models that PyTorch may run in channels-last order


def arguments():
    p = argparse.ArgumentParser(prog="./bench/run fields", description="models of fields beside PyTorch over Gloo")
    for name in ("program", "libraries", "unlock", "source"):
        p.add_argument(f"--{name}", required=True, help=argparse.SUPPRESS)
    p.add_argument("--rounds", type=int, default=3, help="runs of each, interleaved")
    p.add_argument("--steps", type=int, default=60, help="timed steps of a run")
    p.add_argument("--only", nargs="+", choices=MODELS, default=MODELS)
    p.add_argument("--output", default=None, help="JSON (default: build/bench/fields.json)")
    return p.parse_args()


def main():
    a = arguments()
    load = torch_ranks.note_load()
    pytorch = lambda model, *options: torch_ranks.run(
        HERE / "pytorch_fields.py", ["--model", model, "--steps", str(a.steps), "--warmup", str(WARM_UP), *options], a.libraries, a.unlock)
    kinds = {"weft": lambda model: json.loads(subprocess.run([a.program, model, str(a.steps), str(WARM_UP)], check=True, stdout=subprocess.PIPE, text=True).stdout),
             "PyTorch": pytorch, "channels last": lambda model: pytorch(model, "--channels-last")}
    runs = {model: {kind: [] for kind in kinds if model in LAST or kind != "channels last"} for model in a.only}
    for index in range(a.rounds):
        for model in a.only:
            print(f"round {index + 1} of {a.rounds}: {model}", file=sys.stderr, flush=True)
            for kind, results in runs[model].items():
                results.append(kinds[kind](model))

    report = {"date": datetime.date.today().isoformat(), "processor": torch_ranks.processor(), "load_before": load, "rounds": a.rounds,
              "steps": a.steps, "torch": runs[a.only[0]]["PyTorch"][0]["torch"], "models": {}}
    print(f"\nMilliseconds of a step on 2 data-parallel ranks of one thread, {report['processor']}; PyTorch {report['torch']} over Gloo, MKL "
          f"unlocked; medians of {a.rounds} runs\n")
    print(f"{'':16}{'weft':>9}{'PyTorch':>10}{'channels last':>16}{'ratio':>8}{'wanted':>8}")

    def line(name, values):
        ratio = min(value for kind, value in values.items() if kind != "weft") / values["weft"]
        last = f"{values['channels last']:16.2f}" if "channels last" in values else f"{'-':>16}"
        print(f"{name:16}{values['weft']:9.2f}{values['PyTorch']:10.2f}{last}{ratio:8.2f}{WANTED:8.1f}")
        return ratio

    for model, kinds_of_run in runs.items():
        step = {kind: statistics.median(statistics.median(run["ms"]) for run in results) for kind, results in kinds_of_run.items()}
        spent = {kind: statistics.median(run["processor_ms"] for run in results) for kind, results in kinds_of_run.items()}
        report["models"][model] = {"ms": step, "ratio": line(model, step), "wanted_ratio": WANTED, "processor_ms": spent,
                                   "ratio_of_processor_time": line("  processor", spent), "runs": kinds_of_run}
    output = pathlib.Path(a.output) if a.output else pathlib.Path(a.source) / "build/bench/fields.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written: {output}")


main()
