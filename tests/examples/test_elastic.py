# SPDX-License-Identifier: Apache-2.0
"""train_gpt --elastic: processes over TCP are killed by SIGKILL in the middle of a run, rank 0 too, and one is started again; the losses of every
step are bitwise those of a run that nothing happened to. The flight recorder's folder names the lost ranks. Ranges that cannot be are refused."""
import json
import os
import pathlib
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from checks import check, finish
from connected import connected
from free_port import free_port

EXAMPLES = os.environ["WEFT_EXAMPLES"]
TRAIN, FLIGHT, TOOL = (os.path.join(EXAMPLES, name) for name in ("04_train_gpt", "flight", "checkpoint"))
if not os.path.exists(TOOL):
    print("built without xxhash.h: no copies")
    sys.exit(77)
STEPS = 24
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-elastic-"))
text = scratch / "text.txt"
text.write_bytes(bytes(random.Random(0).choices(b"abcdefgh \n", k=20000)))
training = (f"--optimizer adamw --data {text} --layers 2 --width 96 --heads 2 --sequence 64 --global-batch 12 --validation-fraction 0 --sample 0 --steps {STEPS} "
            "--zero 2 --dropout 0.1 --seed 5 --json --reproducible").split()
launchers = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC", "WEFT_")
clean = {k: v for k, v in os.environ.items() if not k.startswith(launchers)} | {"WEFT_RENDEZVOUS_S": "60"}


def run(words, environment=None):
    return subprocess.run([TRAIN, *words], capture_output=True, text=True, errors="replace", timeout=300, env=clean | (environment or {}), cwd=scratch)


def losses(folder):
    """The loss and the norm of the gradient of each step, as the file has them; each step is there once."""
    found = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if "loss" in record:
            check(record["step"] not in found, f"{folder.name}: step {record['step']} is there twice")
            found[record["step"]] = (record["loss"], record["gradient_norm"])
    return found


ended = run([*training, "--ranks", "2", "--output", str(scratch / "plain")])
check(ended.returncode == 0, f"the undisturbed run: {ended.returncode}: {ended.stderr}")
expected = losses(scratch / "plain")
check(len(expected) == STEPS, f"the undisturbed run has {len(expected)} steps")

# Thread ranks, without a loss.
ended = run([*training, "--elastic", "1:3", "--output", str(scratch / "threads")])
check(ended.returncode == 0 and losses(scratch / "threads") == expected, f"threads: {ended.returncode}: {ended.stderr}")
check('"world":3' in ended.stdout, f"threads: MAX ranks start: {ended.stdout[:300]}")


class Processes:
    """The ranks of one run over TCP, and the events that they print."""

    def __init__(self, folder, ranks, words):
        self.command = [TRAIN, *training, *words, "--output", str(folder)]
        self.port = free_port(2)
        self.environment = clean | {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port),
                                    "WEFT_HEARTBEAT_S": "60", "WEFT_JOB": folder.name, "WEFT_FLIGHT_DIR": str(folder) + "-flight"}
        self.lines, self.errors, self.processes, self.all = queue.Queue(), [], {}, []
        for rank in range(ranks):
            self.start(rank)

    def start(self, rank):
        process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", cwd=scratch,
                                   env=self.environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        self.processes[rank] = process
        self.all.append(process)
        for pipe, to in ((process.stdout, self.lines.put), (process.stderr, self.errors.append)):
            threading.Thread(target=lambda pipe=pipe, to=to: [to(line) for line in pipe], daemon=True).start()
        return process

    def wait_for(self, world, steps):
        """Returns once a world of so many ranks has done so many steps; False if the run ends before."""
        done = None
        while True:
            try:
                event = json.loads(self.lines.get(timeout=120))
            except (queue.Empty, ValueError):
                return False
            if event.get("event") == "layout":
                done = 0 if event["world"] == world else None
            elif event.get("event") == "step" and done is not None:
                done += 1
                if done >= steps:
                    return True
            elif event.get("event") == "end":
                return False

    def start_again(self, rank):
        """The others stand still until the new process waits at the rendezvous, so that their steps do not end before."""
        others = [process for process in self.processes.values() if process.poll() is None]
        for process in others:
            process.send_signal(signal.SIGSTOP)
        process = self.start(rank)
        end = time.monotonic() + 30
        while not connected(process, self.port + 1) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(0.2)
        for process in others:
            process.send_signal(signal.SIGCONT)

    def kill(self, rank):
        self.processes[rank].send_signal(signal.SIGKILL)
        self.processes[rank].wait()

    def end(self):
        codes = {}
        for rank, process in self.processes.items():
            try:
                codes[rank] = process.wait(120)
            except subprocess.TimeoutExpired:
                codes[rank] = None
        for process in self.all:
            process.kill()
            process.wait()
        return codes


folder = scratch / "processes"
run_of_three = Processes(folder, 3, ["--elastic", "2:3"])
check(run_of_three.wait_for(3, 3), f"three ranks do three steps: {run_of_three.errors}")
run_of_three.kill(1)
check(run_of_three.wait_for(2, 2), f"two ranks go on: {run_of_three.errors}")
run_of_three.start_again(1)
check(run_of_three.wait_for(3, 2), f"rank 1 joins: {run_of_three.errors}")
run_of_three.kill(0)
codes = run_of_three.end()
check(codes == {0: -signal.SIGKILL, 1: 0, 2: 0}, f"exit codes {codes}: {run_of_three.errors}")
found = losses(folder)
check(found == expected, f"killed processes: {[step for step in expected if found.get(step) != expected[step]]} differ: {run_of_three.errors}")
changes = [json.loads(line) for line in (scratch / "processes-flight" / "weft_worlds.jsonl").read_text().splitlines()]
check([(change["world"], change["ranks"], change["lost"]) for change in changes] == [(2, 2, [1]), (3, 3, []), (4, 2, [0])], f"the changes: {changes}")
check(all(re.search(r"^(rank \d was lost \(.*\)|ranks join) after step \d+: \d ranks go on$", change["text"]) for change in changes), f"their texts: {changes}")
if os.path.exists(FLIGHT):
    shown = subprocess.run([FLIGHT, str(scratch / "processes-flight")], capture_output=True, text=True, timeout=60)
    lines = shown.stdout.splitlines()
    check(shown.returncode == 0 and len(lines) == 4, f"flight: {shown}")
    check(re.search(r"^world 2: rank 1 was lost \(its process ended or its connection broke\) after step \d+: 2 ranks go on \(files of the ranks before: .*/world_1\)$",
                    lines[0]), f"flight: {lines}")
    check(lines[-1] == "no rank of the last world has a file: none has failed", f"flight: {lines}")
    former = subprocess.run([FLIGHT, str(scratch / "processes-flight" / "world_1")], capture_output=True, text=True, timeout=60)
    check(former.returncode == 1 and "rank 1 has no file: it was lost" in former.stdout, f"flight of the first world: {former}")

# Both holders of a part are lost: one line names the checkpoint.
folder = scratch / "lost"
run_of_four = Processes(folder, 4, ["--elastic", "1:4", "--checkpoint", str(scratch / "saved")])
check(run_of_four.wait_for(4, 3), f"four ranks do three steps: {run_of_four.errors}")
for rank in (1, 3):
    run_of_four.processes[rank].send_signal(signal.SIGSTOP)  # neither is there when the other one is missed
for rank in (1, 3):
    run_of_four.kill(rank)
codes = run_of_four.end()
advice = f"held all copies of a part of the state: restart from the newest checkpoint in {scratch / 'saved'}"
check([codes[0], codes[2]] == [1, 1], f"lost copies: exit codes {codes}: {run_of_four.errors}")
check(sum(advice in line for line in run_of_four.errors) == 1, f"lost copies: one line: {run_of_four.errors}")

for words, what in [
        ("--elastic 2", "--elastic '2': write MIN:MAX, the least and the most ranks that train, as 2:4"),
        ("--elastic 2:", "--elastic '2:': write MIN:MAX"),
        ("--elastic 0:2", "--elastic '0:2': write MIN:MAX"),
        ("--elastic 2:4x", "--elastic '2:4x': write MIN:MAX"),
        ("--elastic 4:2", "--elastic 4:2: the least number of ranks is above the most: write --elastic 2:4"),
        ("--elastic 5:5", "elastic 5:5: no number of ranks in the range serves the batch: it is a multiple of 1, and its data ranks divide the step's 12 shares"),
        ("--elastic 1:4 --ranks 2", "elastic 1:4: the run has only 2 ranks: start more, or give a smaller range"),
        ("--elastic 1:2 --dp 2", "--elastic beside --dp: the data parallel degree follows from the ranks that are left"),
        ("--elastic 2:4 --tp 3", "tp(3)"),
        ("--elastic 1:2 --checkpoint c --every 1 --restarts 1", "--elastic beside --restarts: the ranks go on by themselves; leave one out")]:
    ended = run([*training, *words.split()])
    lines = ended.stderr.splitlines()
    check(ended.returncode == 2 and len(lines) == 1 and what in lines[0], f"{words}: {ended.returncode}: {ended.stderr}")
mpirun, symbols = os.environ.get("WEFT_MPIRUN"), subprocess.run(["nm", "-C", TRAIN], capture_output=True, text=True).stdout
if mpirun and "comm::Mpi::" in symbols:
    ended = subprocess.run([mpirun, "2", TRAIN, *training, "--elastic", "1:2", "--output", str(scratch / "mpi")], capture_output=True, text=True,
                           timeout=300, env=clean, cwd=scratch)
    told = [line for line in ended.stderr.splitlines() if "weft: elastic: over mpi the ranks stay as they are" in line]
    check(ended.returncode == 0 and len(told) == 1 and "restarts" in told[0], f"mpi: {ended.returncode}: {ended.stderr}")
shutil.rmtree(scratch)
finish()
