# SPDX-License-Identifier: Apache-2.0
"""The MLP of mlp.cpp beside PyTorch, eager and compiled, on one rank and on two data-parallel ranks of one thread, in runs that alternate.
Started by ./bench/run small.

In PyTorch's runs MKL uses the processor's full instruction set. A run's time is that of its median window of steps; the table shows
the median over the runs, and the best window of all, the fair comparison on a busy machine.
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

WANTED = {"eager": 8, "compiled": 6}
KINDS = {"eager": ["eager"], "compiled": ["compiled", "all compiled"]}


def main():
    p = argparse.ArgumentParser(prog="./bench/run small", description=__doc__.split("\n")[0])
    for name in ("program", "libraries", "unlock", "source"):
        p.add_argument(f"--{name}", required=True, help=argparse.SUPPRESS)
    p.add_argument("--rounds", type=int, default=1, help="runs of each, interleaved")
    p.add_argument("--output", default=None, help="JSON (default: build/bench/small_mlp.json)")
    a = p.parse_args()
    load = torch_ranks.note_load()
    runs = {ranks: {} for ranks in (1, 2)}
    for _ in range(a.rounds):
        for ranks, of in runs.items():
            line = subprocess.run([a.program, "one" if ranks == 1 else "dp2"], check=True, stdout=subprocess.PIPE, text=True).stdout
            measured = json.loads(line)
            of.setdefault("weft", []).append([measured["step_us"], measured["best_us"]])
            for kind in sum(KINDS.values(), []):
                result = torch_ranks.run(HERE / "pytorch_mlp.py", ["--kind", kind], a.libraries, a.unlock, ranks)
                of.setdefault(kind, []).append([statistics.median(result["us"]), min(result["us"])])

    print(f"\nMicroseconds a step of an MLP 16-64-64-1, batch 64, {torch_ranks.processor()}; PyTorch {result['torch']}, MKL unlocked; median (best)\n")
    print(f"{'':8}{'weft':>16}{'eager':>18}{'compiled':>18}{'ratios':>26}{'wanted':>10}")
    report = {"date": datetime.date.today().isoformat(), "processor": torch_ranks.processor(), "load_before": load, "torch": result["torch"], "ranks": {}}
    for ranks, of in runs.items():
        times = {kind: (statistics.median(r[0] for r in results), min(r[1] for r in results)) for kind, results in of.items()}
        best_of = {kind: tuple(min(times[one][i] for one in names) for i in range(2)) for kind, names in KINDS.items()}
        ratios = {kind: [best_of[kind][i] / times["weft"][i] for i in range(2)] for kind in KINDS}
        report["ranks"][ranks] = {"us": times, "ratios": ratios, "wanted": WANTED, "runs": of}
        shown = lambda pair: f"{pair[0]:.1f} ({pair[1]:.1f})"
        print(f"{'dp ' + str(ranks):8}{shown(times['weft']):>16}{shown(best_of['eager']):>18}{shown(best_of['compiled']):>18}"
              f"{', '.join(shown(r) for r in ratios.values()):>26}{', '.join(map(str, WANTED.values())):>10}")
    output = pathlib.Path(a.output) if a.output else pathlib.Path(a.source) / "build/bench/small_mlp.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written: {output}\n")


main()
