# SPDX-License-Identifier: Apache-2.0
"""weft beside PyTorch: the same GPT, batch, optimizer and number of ranks, in runs that alternate. Started by ./bench/run training.

The GPT has 6 layers, width 384, 6 heads, sequence 256, vocabulary 256; a step has 16 sequences on 2 ranks of one thread, AdamW and
clipping at 1.0. weft is the trainer itself, with its loader, metrics and checks. PyTorch runs as it comes ("stock") and with MKL
using the processor's full instruction set ("unlocked"); ratios are to the faster of the two. A run's speed is that of its median
step; the table shows the median over the runs.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import torch_ranks

MODES = {  # name: what weft's trainer is told, what PyTorch is told, the wanted ratio
    "dp-fp32": ("--dp 2", "--mode dp", 1.2),
    "dp-bf16": ("--dp 2 --precision bf16", "--mode dp --precision bf16", 1.5),
    "zero3-fp32": ("--dp 2 --zero 3", "--mode fsdp", 1.4),
    "tp-fp32": ("--tp 2", "--mode tp", 1.6),
    "pp-fp32": ("--pp 2 --schedule 1f1b --micro-batch 4", "--mode pp --micro-batches 4", 1.3),
}
PEAK = {"dp-fp32": 0.82, "dp-bf16": 0.72}
GPT = "--layers 6 --width 384 --heads 6 --sequence 256"


def arguments():
    p = argparse.ArgumentParser(prog="./bench/run training", description="weft beside PyTorch over Gloo on the same GPT")
    for name in ("trainer", "libraries", "unlock", "wrappers", "source"):
        p.add_argument(f"--{name}", required=True, help=argparse.SUPPRESS)
    p.add_argument("--rounds", type=int, default=3, help="runs of each, interleaved")
    p.add_argument("--steps", type=int, default=8, help="timed steps of a run")
    p.add_argument("--only", nargs="+", choices=list(MODES), default=list(MODES))
    p.add_argument("--quick", action="store_true", help="one round of three steps")
    p.add_argument("--output", default=None, help="JSON (default: build/bench/training.json)")
    return p.parse_args()


WARM_UP = 2


def weft(a, mode, data):
    with tempfile.TemporaryDirectory() as folder:
        command = [a.trainer, *GPT.split(), "--ranks", "2", "--global-batch", "16", "--steps", str(WARM_UP + a.steps), "--validate-every", "0",
                   "--validation-fraction", "0", "--sample", "0", "--quiet", "--learning-rate", "3e-4", "--data", data, "--output", folder,
                   *MODES[mode][0].split()]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"WEFT_RANKS": "2"})
        records = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
        layout = json.loads((pathlib.Path(folder) / "layout.json").read_text())
    speed = 16 * 256 / (statistics.median(r["ms"] for r in records[WARM_UP:]) / 1e3)
    return {"tokens_per_s": speed, "losses": [r["loss"] for r in records], "peak_gflops": layout["peak_flops"] / 1e9,
            "flops_per_token": layout["flops_per_token"], "share_of_peak": speed * layout["flops_per_token"] / layout["peak_flops"]}


def pytorch(a, mode, data, unlocked):
    options = [*GPT.split(), *MODES[mode][1].split(), "--data", data, "--steps", str(a.steps), "--warmup", str(WARM_UP)]
    result = torch_ranks.run(HERE / "pytorch_training.py", options, a.libraries, a.unlock if unlocked else None)
    return {"tokens_per_s": result["tokens"] / (statistics.median(result["ms"]) / 1e3), "losses": result["losses"], "torch": result["torch"]}


def main():
    a = arguments()
    load = torch_ranks.note_load()
    if a.quick:
        a.rounds, a.steps = 1, 3
    source = pathlib.Path(a.source)
    with tempfile.NamedTemporaryFile(suffix=".txt") as data:
        for path in sorted((source / "include").rglob("*.hpp")):
            data.write(path.read_bytes())
        data.flush()
        runs = {mode: {"weft": [], "stock": [], "unlocked": []} for mode in a.only}
        for index in range(a.rounds):
            for mode in a.only:
                print(f"round {index + 1} of {a.rounds}: {mode}", file=sys.stderr, flush=True)
                runs[mode]["weft"].append(weft(a, mode, data.name))
                runs[mode]["stock"].append(pytorch(a, mode, data.name, False))
                runs[mode]["unlocked"].append(pytorch(a, mode, data.name, True))

    median = lambda values: statistics.median(values)
    report = {"date": datetime.date.today().isoformat(), "processor": torch_ranks.processor(), "load_before": load, "torch": runs[a.only[0]]["stock"][0]["torch"],
              "rounds": a.rounds, "steps": a.steps, "model": GPT, "modes": {}}
    print(f"\nTokens a second on 2 ranks of one thread, {report['processor']}; PyTorch {report['torch']} over Gloo; medians of {a.rounds} runs\n")
    print(f"{'':10}{'weft':>9}{'share of peak':>16}{'PyTorch stock':>16}{'unlocked':>11}{'ratio':>8}{'wanted':>8}")
    for mode, kinds in runs.items():
        speed = {kind: median(r["tokens_per_s"] for r in results) for kind, results in kinds.items()}
        share = median(r["share_of_peak"] for r in kinds["weft"])
        ratio = speed["weft"] / max(speed["stock"], speed["unlocked"])
        wanted = MODES[mode][2]
        report["modes"][mode] = {"tokens_per_s": speed, "ratio": ratio, "wanted_ratio": wanted, "share_of_peak": share, "wanted_share": PEAK.get(mode),
                                 "peak_gflops": median(r["peak_gflops"] for r in kinds["weft"]), "runs": kinds}
        wanted_share = f" ({100 * PEAK[mode]:.0f})" if mode in PEAK else ""
        print(f"{mode:10}{speed['weft']:9,.0f}{f'{100 * share:.0f} %{wanted_share}':>16}{speed['stock']:16,.0f}{speed['unlocked']:11,.0f}{ratio:8.2f}{wanted:8.1f}")
    peaks = {mode.split("-")[1]: entry["peak_gflops"] for mode, entry in report["modes"].items()}
    print("\nThe peak is what oneDNN reaches in products of 1024 x 1024 on both ranks at once: "
          + ", ".join(f"{peak:,.0f} GFLOP/s in {precision}" for precision, peak in peaks.items()) + ".")
    if "zero3-fp32" in report["modes"] and "dp-fp32" in report["modes"]:
        report["zero3_of_dp"] = median(z["tokens_per_s"] / d["tokens_per_s"] for z, d in zip(runs["zero3-fp32"]["weft"], runs["dp-fp32"]["weft"]))
        print(f"ZeRO-3 reaches {100 * report['zero3_of_dp']:.0f} % of weft's own data parallelism (wanted: at least 92 %).")
    report["wrappers"] = json.loads(subprocess.run([a.wrappers, "4" if a.quick else "20"], check=True, capture_output=True, text=True).stdout)
    print(f"Three wrappers over axes of degree 1 cost {100 * report['wrappers']['cost']:+.2f} % of a step against the bare model (wanted: at most 1 %).")
    output = pathlib.Path(a.output) if a.output else source / "build/bench/training.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written: {output}")


main()
