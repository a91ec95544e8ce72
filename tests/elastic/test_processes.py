# SPDX-License-Identifier: Apache-2.0
# covers: weft/elastic/processes.hpp weft/elastic/meeting.hpp
"""Processes over TCP are killed by SIGKILL and started again while a run goes on: its losses and its whole state are bitwise those of an undisturbed run.
The time from a kill to the next step is printed. `--kills 1000` is the long form; `--ranks 8 --width 900` has 100 MB of state."""
import argparse
import os
import queue
import random
import re
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from free_port import free_port

arguments = argparse.ArgumentParser()
arguments.add_argument("--kills", type=int, default=1000 if os.environ.get("WEFT_TEST_LONG") == "1" else 6)
arguments.add_argument("--ranks", type=int, default=4)
arguments.add_argument("--least", type=int, default=2)
arguments.add_argument("--width", type=int, default=16)
arguments.add_argument("--steps", type=int, default=40)
arguments.add_argument("--pause-ms", type=int, default=20)
arguments.add_argument("--limit-s", type=float, default=20, help="from a kill to the next step")
arguments.add_argument("--seed", type=int, default=1)
arguments = arguments.parse_args()
program = os.environ.get("WEFT_ELASTIC_PROGRAM") or os.path.join(os.environ["WEFT_BUILD"], "tests", "program_elastic")
if not os.path.exists(program):
    print("skipped: this build has no weft::checkpoint")
    sys.exit(77)
launchers = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC", "WEFT_SECRET", "WEFT_STORE", "WEFT_R", "WEFT_T", "WEFT_JOB")
clean = {k: v for k, v in os.environ.items() if not k.startswith(launchers)}
bad = 0


def check(good, what, detail=""):
    global bad
    if not good:
        bad += 1
        print(f"failed: {what} {detail}", flush=True)
    return good


class Run:
    """The processes of one run and the lines that they print."""

    def __init__(self, stage, steps):
        self.port, self.stage, self.steps = free_port(), stage, steps
        self.job = f"elastic {os.getpid()} {self.port}"
        self.lines, self.errors, self.processes = queue.Queue(), [], {}
        for rank in range(arguments.ranks):
            self.start(rank)

    def start(self, rank):
        world = str(arguments.ranks)
        environment = clean | {"RANK": str(rank), "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1",
                               "MASTER_PORT": str(self.port), "WEFT_RENDEZVOUS_S": "30", "WEFT_JOB": self.job}
        command = [program, *map(str, (self.steps, arguments.least, arguments.width, self.stage, arguments.pause_ms))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        self.processes[rank] = process
        for pipe, to in ((process.stdout, self.lines.put), (process.stderr, self.errors.append)):
            threading.Thread(target=lambda pipe=pipe, to=to: [to(line.rstrip()) for line in pipe], daemon=True).start()

    def next_line(self, limit=60):
        try:
            return self.lines.get(timeout=limit)
        except queue.Empty:
            return None

    def end(self):
        codes = []
        for process in self.processes.values():
            try:
                codes.append(process.wait(60))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(None)
        return codes


step_line = re.compile(r"step (\d+) loss (\S+) ranks (\d+) at (\S+) copies (\d+)")


def train(stage, seed, kills):
    """The losses and the digest of a run with so many kills, the times from each kill to the next step, and the numbers of ranks."""
    generator = random.Random(seed)
    run, losses, times, sizes, digest, killed, join_at = Run(stage, arguments.steps), {}, [], set(), None, None, None
    next_kill = generator.randrange(2, 6)
    while digest is None:
        line = run.next_line()
        if line is None:
            check(False, f"stage {stage}, seed {seed}: no line for 60 s", run.errors[-20:])
            for process in run.processes.values():
                process.kill()
            return None
        if line.startswith("digest"):
            digest = line
            break
        found = step_line.match(line)
        if not found:
            continue
        step, loss, ranks, at, copies = int(found[1]), found[2], int(found[3]), float(found[4]), int(found[5])
        sizes.add(ranks)
        check(losses.setdefault(step, loss) == loss, f"stage {stage}, seed {seed}: step {step} was done again with another loss")
        if killed is not None and at > killed[0]:
            times.append((at - killed[0], copies))
            join_at, killed = (killed[1], step + generator.randrange(1, 3)), None
        if join_at and step >= join_at[1]:
            run.start(join_at[0])
            next_kill, join_at = None, None
        if next_kill is None and ranks == arguments.ranks:
            next_kill = step + generator.randrange(2, 5)  # all are there again
        if kills > 0 and next_kill is not None and killed is None and join_at is None and step >= next_kill:
            victim = generator.randrange(arguments.ranks)
            time.sleep(generator.random() * arguments.pause_ms * 2e-3)
            killed, next_kill = (time.monotonic(), victim), None
            kills -= 1
            run.processes[victim].send_signal(signal.SIGKILL)
            run.processes[victim].wait()
    codes = run.end()
    check(all(code in (0, -signal.SIGKILL) for code in codes), f"stage {stage}, seed {seed}: exit codes", (codes, run.errors[-20:]))
    return losses, digest, times, sizes


expected, times, runs, joined = {}, [], 0, 0
while len(times) < arguments.kills and bad == 0:
    stage = runs % 4
    if stage not in expected:
        expected[stage] = train(stage, 0, 0)
    found = train(stage, arguments.seed + runs, 3)
    runs += 1
    if expected[stage] is None or found is None:
        break
    check(found[0] == expected[stage][0] and found[1] == expected[stage][1], f"stage {stage}: other losses or another state", (found[1], expected[stage][1]))
    if not found[2]:
        check(False, "no rank was killed")
    times += found[2]
    joined += len(found[3]) > 1
if times:
    seconds = sorted(one for one, _ in times)
    check(seconds[-1] < arguments.limit_s, "from a kill to the next step", f"{seconds[-1]:.2f} s")
    print(f"figure 23: {len(times)} processes killed in {runs} runs, {joined} runs with several sizes, {bad} runs with other bits")
    print(f"figure 23: from a kill to the next step at most {seconds[-1]:.2f} s, median {seconds[len(seconds) // 2]:.2f} s, "
          f"{times[-1][1] / 1e6:.1f} MB of copies a rank, {arguments.ranks} ranks")
sys.exit(1 if bad else 0)
