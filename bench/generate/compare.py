# SPDX-License-Identifier: Apache-2.0
"""Greedy generation with key-value caches beside `transformers`, in float on one core: Llamas of random weights, in runs that alternate.
Started by ./bench/run generate. The table shows the best time of all rounds, the fair comparison on a busy machine."""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import torch_ranks

# Layers, width, heads, key-value heads, width of the MLP, vocabulary.
MODELS = {"15M": (6, 288, 6, 6, 768, 32000), "42M": (8, 512, 8, 8, 1376, 32000), "135M": (30, 576, 9, 3, 1536, 49152)}
WANTED = 1.5


def main():
    p = argparse.ArgumentParser(prog="./bench/run generate", description=__doc__.split("\n")[0])
    for name in ("program", "python", "libraries", "unlock", "source"):
        p.add_argument(f"--{name}", required=True, help=argparse.SUPPRESS)
    p.add_argument("--models", nargs="+", default=["15M", "42M"], choices=MODELS)
    p.add_argument("--prompt", type=int, default=64, help="tokens")
    p.add_argument("--tokens", type=int, default=64, help="new ones")
    p.add_argument("--sequences", type=int, nargs="+", default=[1, 4])
    p.add_argument("--rounds", type=int, default=2, help="of processes, and of generations in each")
    p.add_argument("--output", default=None, help="JSON (default: build/bench/generate.json)")
    a = p.parse_args()
    load = torch_ranks.note_load()
    there = dict(os.environ, LD_LIBRARY_PATH=a.libraries, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", OMP_PROC_BIND="false")
    preload = dict(there, LD_PRELOAD=a.unlock) if a.unlock else there
    report = {"date": datetime.date.today().isoformat(), "processor": torch_ranks.processor(), "load_before": load, "results": {}}

    def run(words, environment):
        ran = subprocess.run([*map(str, words)], check=True, stdout=subprocess.PIPE, text=True, env=environment)
        return json.loads(ran.stdout) if ran.stdout else None

    print(f"\nMilliseconds, float, one core, prompts of {a.prompt} tokens and {a.tokens} new ones, {torch_ranks.processor()}\n")
    print(f"{'model':8}{'sequences':>10}{'weft: prompt':>14}{'a token':>9}{'generate():':>13}{'':>9}{'own loop:':>11}{'':>9}{'ratios (wanted ' + str(WANTED) + ')':>24}")
    with tempfile.TemporaryDirectory() as scratch:
        for model in a.models:
            folder = f"{scratch}/{model}"
            run([a.python, HERE / "transformers_decode.py", "make", folder, *MODELS[model]], there)
            for sequences in a.sequences:
                best = {}
                for _ in range(a.rounds):
                    words = [folder, a.prompt, a.tokens, a.rounds, sequences]
                    ours = run([a.program, *words], there)
                    theirs = run([a.python, HERE / "transformers_decode.py", *words], preload)
                    if ours["tokens"] != theirs["tokens"]:
                        print(f"{model}: other tokens: {ours['tokens']} {theirs['tokens']}")
                    for kind, times in [("weft", ours), ("generate", theirs["generate"]), ("loop", theirs["loop"])]:
                        to = best.setdefault(kind, dict(times))
                        for key in ("first_s", "each_s"):
                            to[key] = min(to[key], times[key])
                ratios = {kind: best[kind]["each_s"] / best["weft"]["each_s"] for kind in ("generate", "loop")}
                report["results"][f"{model} x {sequences}"] = {"best": best, "ratios": ratios, "wanted": WANTED}
                report["versions"] = theirs["versions"]
                ms = lambda kind, key: f"{best[kind][key] * 1e3:.2f}"
                print(f"{model:8}{sequences:>10}{ms('weft', 'first_s'):>14}{ms('weft', 'each_s'):>9}{ms('generate', 'first_s'):>13}{ms('generate', 'each_s'):>9}"
                      f"{ms('loop', 'first_s'):>11}{ms('loop', 'each_s'):>9}{ratios['generate']:>14.2f}, {ratios['loop']:.2f}", flush=True)
    output = pathlib.Path(a.output) if a.output else pathlib.Path(a.source) / "build/bench/generate.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\n{report['versions']}, MKL unlocked\nwritten: {output}\n")


main()
