# SPDX-License-Identifier: Apache-2.0
"""train_gpt as threads, under mpirun and under torchrun's environment: the same losses, to the last digit. WEFT_TEST_RUNS: how often, then on any
number of threads a rank (--reproducible). Ranks that were started with other options do not train."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from free_port import free_port

program = os.path.join(os.environ["WEFT_EXAMPLES"], "04_train_gpt")
scratch = tempfile.TemporaryDirectory()
corpus = shutil.copy(os.path.join(os.environ["WEFT_SOURCE"], "README.md"), scratch.name)  # an edit meanwhile would change the bits
layout = ["--tp", "2", "--steps", "3", "--layers", "2", "--width", "64", "--sequence", "64", "--seed", "3", "--data", corpus]
environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "WEFT_RANKS")}
symbols = subprocess.run(["nm", "-C", program], capture_output=True, text=True).stdout
starts = {"threads": [program, "--ranks", "4"]}
if "comm::Mpi::" in symbols:
    starts["mpi"] = [os.environ["WEFT_MPIRUN"], "4", program]
starts["tcp"] = [os.environ["WEFT_TORCHRUN"], "4", program]
repeats = int(os.environ.get("WEFT_TEST_RUNS", "1"))  # by hand: 100
cores = os.cpu_count() or 1


def bits(name, start, threads):
    """The losses and gradient norms of a run, to the last digit, with so many threads for each rank."""
    with tempfile.TemporaryDirectory() as folder:
        found = subprocess.run([*start, *layout, *(["--reproducible"] if repeats > 1 else []), "--output", folder],
                               env=environment | {"OMP_NUM_THREADS": str(threads)}, capture_output=True, text=True, timeout=120)
        if found.returncode != 0:
            sys.exit(f"{name}: exit code {found.returncode}: {found.stderr}")
        if name not in found.stdout:
            sys.exit(f"{name} is not what ran: {found.stdout}")
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as lines:
            return [(entry["loss"], entry.get("gradient_norm")) for entry in map(json.loads, lines) if "loss" in entry]


expected = bits("threads", starts["threads"], 1)
print(expected)
runs = different = 0
for repeat in range(repeats):
    for name, start in starts.items():
        found = bits(name, start, 1 + repeat % min(cores, 4))
        runs += 1
        if found != expected:
            different += 1
            print(f"{name}, {1 + repeat % min(cores, 4)} threads: {found}")
print(f"figure 17: {runs} runs over {', '.join(starts)} on up to {min(repeats, cores, 4)} threads a rank, {different} with other bits")
meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
ranks = []
for rank, seed in enumerate(("1", "2")):
    command = [program, *layout[:-4], "--seed", seed, *layout[-2:], "--output", scratch.name]
    ranks.append(subprocess.Popen(command, env=environment | meeting | {"RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
ends = [rank.communicate(timeout=60) + (rank.returncode,) for rank in ranks]
text = "".join(err for _, err, _ in ends)
told = "weft: ranks disagree about --seed: rank 0 has 1, rank 1 has 2: all ranks of a run are started with the same options and data\n"
if text != told or [code for _, _, code in ends] != [2, 2]:
    sys.exit(f"--seed 1 beside --seed 2: {ends}")
sys.exit(0 if len(expected) == 3 and different == 0 else 1)
