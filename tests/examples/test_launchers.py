# SPDX-License-Identifier: Apache-2.0
"""train_gpt as threads, under mpirun and under torchrun's environment: the same losses, to the last digit."""
import json
import os
import subprocess
import sys
import tempfile

program = os.path.join(os.environ["WEFT_EXAMPLES"], "04_train_gpt")
layout = ["--tp", "2", "--steps", "3", "--layers", "2", "--width", "64", "--sequence", "64", "--seed", "3", "--data", os.path.join(os.environ["WEFT_SOURCE"], "README.md")]
environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "WEFT_RANKS")}
symbols = subprocess.run(["nm", "-C", program], capture_output=True, text=True).stdout
starts = {"threads": [program, "--ranks", "4"]}
if "comm::Mpi::" in symbols:
    starts["mpi"] = [os.environ["WEFT_MPIRUN"], "4", program]
if "comm::Gloo::" in symbols:
    starts["gloo"] = [os.environ["WEFT_TORCHRUN"], "4", program]
losses = {}
for name, start in starts.items():
    with tempfile.TemporaryDirectory() as folder:
        found = subprocess.run([*start, *layout, "--output", folder], env=environment, capture_output=True, text=True, timeout=120)
        if found.returncode != 0:
            sys.exit(f"{name}: exit code {found.returncode}: {found.stderr}")
        if name not in found.stdout:
            sys.exit(f"{name} is not what ran: {found.stdout}")
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as lines:
            losses[name] = [entry["loss"] for entry in map(json.loads, lines) if "loss" in entry]
print(losses)
sys.exit(0 if len(losses["threads"]) == 3 and all(found == losses["threads"] for found in losses.values()) else 1)
