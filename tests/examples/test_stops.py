# SPDX-License-Identifier: Apache-2.0
"""train_gpt stopped or killed at random moments: one whole checkpoint that all ranks agree on, a documented exit code, and a
resumed run with the losses of an uninterrupted one, to the last digit. `--runs N`: how often; `--seed S`."""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from free_port import free_port

options = argparse.ArgumentParser()
options.add_argument("--runs", type=int, default=6)
options.add_argument("--seed", type=int, default=1)
options = options.parse_args()
EXAMPLES = os.environ["WEFT_EXAMPLES"]
TOOL, TRAIN = os.path.join(EXAMPLES, "checkpoint"), os.path.join(EXAMPLES, "04_train_gpt")
if not os.path.exists(TOOL):
    print("built without xxhash.h: no checkpoints")
    sys.exit(77)
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-stops-"))
text = scratch / "text.txt"
text.write_bytes(bytes(random.Random(0).choices(b"abcdefgh \n", k=20000)))
training = f"--optimizer adamw --data {text} --dp 2 --layers 2 --width 64 --heads 2 --sequence 64 --validation-fraction 0 --sample 0 --steps 60 --zero 1 --seed 5".split()
environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "WEFT_RANKS")}


def start(over_tcp, words):
    """The processes of a run of two ranks: one process of threads, or two."""
    if not over_tcp:
        return [subprocess.Popen([TRAIN, *training, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "WEFT_JOB": "stops",
               "WEFT_RENDEZVOUS_S": "15"}  # for a rank that is killed before the others have heard of it
    return [subprocess.Popen([TRAIN, *training, *words], env=environment | meeting | {"RANK": str(rank)}, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True) for rank in range(2)]


def finish(processes, limit):
    try:
        return [process.communicate(timeout=limit) + (process.returncode,) for process in processes]
    finally:
        for process in processes:
            process.kill()


def losses(folder):
    """The loss of each step; a step that a killed run has done and a resumed one does again must have one loss."""
    found = {}
    path = folder / "metrics.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        entry = json.loads(line)
        if "loss" in entry and "step" in entry:
            if found.setdefault(entry["step"], entry["loss"]) != entry["loss"]:
                sys.exit(f"step {entry['step']}: {found[entry['step']]} and {entry['loss']}")
    return found


begin = time.monotonic()
whole = finish(start(False, ["--output", str(scratch / "whole")]), 300)
duration = time.monotonic() - begin
expected = losses(scratch / "whole")
if whole[0][2] != 0 or len(expected) != 60:
    sys.exit(f"the run that nobody stops: {whole}")
kinds = [(over_tcp, number) for over_tcp in (False, True) for number in (signal.SIGTERM, signal.SIGKILL)]
chance = random.Random(options.seed)
stopped = killed = before = slowest = 0
for run in range(options.runs):
    over_tcp, number = kinds[run % len(kinds)]
    folder = scratch / f"run{run}"
    words = ["--output", str(folder), "--checkpoint", str(folder / "saved"), "--every", "7"]
    moment = chance.uniform(0, 1.2 * duration)
    processes = start(over_tcp, words)
    time.sleep(moment)
    asked = time.monotonic()
    target = chance.choice(processes)  # one rank of those is enough
    if target.poll() is None:
        target.send_signal(number)
    ends = finish(processes, 30)
    slowest = max(slowest, time.monotonic() - asked)
    codes = [code for _, _, code in ends]
    where = f"run {run}, {'tcp' if over_tcp else 'threads'}, {signal.Signals(number).name} after {moment:.3f} s: {ends}"
    done = losses(folder)
    listed = subprocess.run([TOOL, "list", str(folder / "saved")], capture_output=True, text=True, timeout=60)
    steps = [int(line.split()[0]) for line in listed.stdout.splitlines()[2:]] if listed.returncode == 0 else []
    if steps:
        verified = subprocess.run([TOOL, "verify", str(folder / "saved")], capture_output=True, text=True, timeout=60)
        if verified.returncode != 0:
            sys.exit(f"{where}: {verified}")
    if number == signal.SIGTERM and 130 in codes:
        # All ranks end with the step of the checkpoint, whichever was signalled; ranks that had not met yet have none.
        if set(codes) != {130} or (done and (not steps or steps[-1] != max(done) + 1)):
            sys.exit(f"{where}: checkpoints {steps}, steps done {len(done)}")
        stopped += 1
    elif -number in codes:
        before += number == signal.SIGTERM  # in the first moments the program has no handler yet
        killed += number == signal.SIGKILL
    elif codes != [0] * len(codes):
        sys.exit(where)
    resumed = finish(start(over_tcp, [*words, "--resume"]), 300)
    if [code for _, _, code in resumed] != [0] * len(processes) or losses(folder) != expected:
        sys.exit(f"{where}: resumed: {resumed}")
    shutil.rmtree(folder)
print(f"figure 14: {stopped} runs asked to stop ended with 130 and one whole checkpoint of the step that they did, at most {slowest:.1f} s after; "
      f"{before} before they began")
print(f"figure 2: {killed} runs killed, {options.runs} resumed: {options.runs} with all losses of a run that nobody stopped")
shutil.rmtree(scratch)
