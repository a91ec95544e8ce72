# SPDX-License-Identifier: Apache-2.0
"""weft beside PyTorch's DistributedDataParallel: the classifiers of examples/06_classify, the same batch, optimizer and number of ranks, in
runs that alternate. Started by ./bench/run images.

Both get 100 images of 28 x 28 a step, made before the clock starts, on 2 ranks of one thread. In PyTorch's runs MKL uses the
processor's full instruction set, as it comes and with images in channels-last order; ratios are to the faster of the two. A run's
speed is that of its median step; the table shows the median over the runs. The processor time of a step is that of both ranks; it
is more reliable than the speed on a busy machine.
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

WANTED = 1.2


def arguments():
    p = argparse.ArgumentParser(prog="./bench/run images", description="image classifiers beside PyTorch over Gloo")
    for name in ("program", "libraries", "unlock", "source"):
        p.add_argument(f"--{name}", required=True, help=argparse.SUPPRESS)
    p.add_argument("--rounds", type=int, default=3, help="runs of each, interleaved")
    p.add_argument("--steps", type=int, default=60, help="timed steps of a run")
    p.add_argument("--only", nargs="+", choices=["cnn", "vit"], default=["cnn", "vit"])
    p.add_argument("--output", default=None, help="JSON (default: build/bench/images.json)")
    return p.parse_args()


def main():
    a = arguments()
    load = torch_ranks.note_load()
    warm_up = 10
    pytorch = lambda model, *options: torch_ranks.run(
        HERE / "pytorch_images.py", ["--model", model, "--steps", str(a.steps), "--warmup", str(warm_up), *options], a.libraries, a.unlock)
    kinds = {"weft": lambda model: json.loads(subprocess.run([a.program, model, str(a.steps), str(warm_up)], check=True, stdout=subprocess.PIPE, text=True).stdout),
             "PyTorch": pytorch, "channels last": lambda model: pytorch(model, "--channels-last")}
    runs = {model: {kind: [] for kind in kinds} for model in a.only}
    for index in range(a.rounds):
        for model in a.only:
            print(f"round {index + 1} of {a.rounds}: {model}", file=sys.stderr, flush=True)
            for kind, start in kinds.items():
                runs[model][kind].append(start(model))

    speed_of = lambda run: run["images"] / (statistics.median(run["ms"]) / 1e3)
    report = {"date": datetime.date.today().isoformat(), "processor": torch_ranks.processor(), "load_before": load, "rounds": a.rounds,
              "steps": a.steps, "torch": runs[a.only[0]]["PyTorch"][0]["torch"], "models": {}}
    print(f"\nImages a second on 2 data-parallel ranks of one thread, {report['processor']}; PyTorch {report['torch']} over Gloo, MKL unlocked; "
          f"medians of {a.rounds} runs\n")
    line = lambda name, values, ratio: print(f"{name:16}{values['weft']:9,.0f}{values['PyTorch']:10,.0f}{values['channels last']:16,.0f}{ratio:8.2f}{WANTED:8.1f}")
    print(f"{'':16}{'weft':>9}{'PyTorch':>10}{'channels last':>16}{'ratio':>8}{'wanted':>8}")
    for model, kinds_of_run in runs.items():
        speed = {kind: statistics.median(map(speed_of, results)) for kind, results in kinds_of_run.items()}
        spent = {kind: 1e3 * statistics.median(run["processor_ms"] for run in results) for kind, results in kinds_of_run.items()}
        ratio = speed["weft"] / max(speed["PyTorch"], speed["channels last"])
        ratio_spent = min(spent["PyTorch"], spent["channels last"]) / spent["weft"]
        report["models"][model] = {"images_per_s": speed, "ratio": ratio, "wanted_ratio": WANTED, "processor_us_of_a_step": spent,
                                   "ratio_of_processor_time": ratio_spent, "runs": kinds_of_run}
        line(model, speed, ratio)
        line("  processor, us", spent, ratio_spent)
    output = pathlib.Path(a.output) if a.output else pathlib.Path(a.source) / "build/bench/images.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written: {output}")


main()
