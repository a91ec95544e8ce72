# SPDX-License-Identifier: Apache-2.0
"""A Llama's folder, float and bfloat16, into a model of weft and into the tensors of PyTorch by safetensors' own reader, in turns. Started by ./bench/run load."""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import safetensors
import safetensors.torch
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_ranks


def python_reader(path, tensors):
    begin = time.perf_counter()
    for name, tensor in safetensors.torch.load_file(path).items():
        tensors[name].copy_(tensor)
    return time.perf_counter() - begin


def main():
    p = argparse.ArgumentParser(prog="./bench/run load", description=__doc__.split("\n")[0])
    for name in ("program", "source"):
        p.add_argument(f"--{name}", required=True, help=argparse.SUPPRESS)
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--width", type=int, default=1024)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    p.add_argument("--output", default=None, help="JSON (default: build/bench/load.json)")
    a = p.parse_args()
    report = {"date": datetime.date.today().isoformat(), "processor": torch_ranks.processor(), "load_before": torch_ranks.note_load(),
              "versions": f"safetensors {safetensors.__version__}, PyTorch {torch.__version__}", "results": {}}
    print(f"\nSeconds, medians of {a.rounds}, a Llama of {a.layers} layers, width {a.width}, from the system's cache, {torch_ranks.processor()}\n")
    print(f"{'stored as':12}{'MB':>8}{'reader, 1 thread':>18}{'2 threads':>12}" + "".join(f"{f'weft, {ranks} ranks':>16}{'ratio':>8}" for ranks in a.ranks))
    config = transformers.LlamaConfig(vocab_size=32000, hidden_size=a.width, intermediate_size=a.width * 11 // 4, num_hidden_layers=a.layers, num_attention_heads=8,
                                      max_position_embeddings=1024, bos_token_id=None, eos_token_id=None)
    for kind in (torch.float32, torch.bfloat16):
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(1)
            transformers.LlamaForCausalLM(config).to(kind).save_pretrained(folder)
            path = pathlib.Path(folder) / "model.safetensors"
            tensors = {name: torch.zeros_like(tensor, dtype=torch.float32) for name, tensor in safetensors.torch.load_file(path).items()}
            seconds = {name: [] for name in ("1 thread", "2 threads", *a.ranks)}
            for _ in range(a.rounds):
                for threads in (1, 2):
                    torch.set_num_threads(threads)
                    seconds["1 thread" if threads == 1 else "2 threads"].append(python_reader(path, tensors))
                for ranks in a.ranks:
                    ran = subprocess.run([a.program, folder, "2", str(ranks)], check=True, stdout=subprocess.PIPE, text=True, env=os.environ | {"LD_LIBRARY_PATH": ""})
                    seconds[ranks].append(min(json.loads(ran.stdout)))
            medians = {name: statistics.median(times) for name, times in seconds.items()}
            megabytes = path.stat().st_size / 1e6
            report["results"][str(kind)] = {"megabytes": megabytes, "seconds": seconds, "medians": medians}
            print(f"{str(kind).removeprefix('torch.'):12}{megabytes:>8.0f}{medians['1 thread']:>18.3f}{medians['2 threads']:>12.3f}" +
                  "".join(f"{medians[ranks]:>16.3f}{medians['1 thread' if ranks == 1 else '2 threads'] / medians[ranks]:>8.2f}" for ranks in a.ranks), flush=True)
    output = pathlib.Path(a.output) if a.output else pathlib.Path(a.source) / "build/bench/load.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\n{report['versions']}\nwritten: {output}\n")


main()
