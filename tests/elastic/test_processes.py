# SPDX-License-Identifier: Apache-2.0
# covers: weft/elastic/processes.hpp weft/elastic/rendezvous.hpp
"""Processes over TCP are killed by SIGKILL and started again while a run goes on: its losses and its whole state are bitwise those of an undisturbed run.
The time from a kill to the next step is printed. `--kills 1000` is the long form; `--ranks 8 --width 900` has 100 MB of state."""
import argparse
import os
import queue
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from connected import connected
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
    """The processes of one run and the lines that they print. They are killed at the end of a `with` block."""

    def __init__(self, stage, steps, ranks, least, pause_ms, changes=None):
        self.port = free_port(2)  # the store's, and the one at which the ranks of an elastic run meet
        self.ranks, self.changes = ranks, changes or {}
        self.command = [program, *map(str, (steps, least, arguments.width, stage, pause_ms))]
        self.job = f"elastic {os.getpid()} {self.port}"
        self.lines, self.errors, self.processes, self.all = queue.Queue(), [], {}, []

    def __enter__(self):
        for rank in range(self.ranks):
            self.start(rank)
        return self

    def __exit__(self, *_):
        for process in self.all:
            process.kill()
            process.wait()

    def start(self, rank):
        world = str(self.ranks)
        environment = clean | {"RANK": str(rank), "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1",
                               "MASTER_PORT": str(self.port), "WEFT_RENDEZVOUS_S": "30", "WEFT_JOB": self.job} | self.changes
        process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        self.processes[rank] = process
        self.all.append(process)
        for pipe, to in ((process.stdout, self.lines.put), (process.stderr, self.errors.append)):
            threading.Thread(target=lambda pipe=pipe, to=to: [to(line.rstrip()) for line in pipe], daemon=True).start()
        return process

    def next_line(self, limit=60):
        try:
            return self.lines.get(timeout=limit)
        except queue.Empty:
            return None

    def has_error(self, pattern, limit=10):
        """True once a line of standard error matches."""
        end = time.monotonic() + limit
        while not any(re.search(pattern, line) for line in list(self.errors)):
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    def end(self):
        codes = []
        for process in self.processes.values():
            try:
                codes.append(process.wait(60))
            except subprocess.TimeoutExpired:
                codes.append(None)
        return codes


step_line = re.compile(r"step (\d+) loss (\S+) ranks (\d+) at (\S+) copies (\d+)")


def train(stage, seed, kills):
    with Run(stage, arguments.steps, arguments.ranks, arguments.least, arguments.pause_ms) as run:
        return train_in(run, stage, seed, kills)


def train_in(run, stage, seed, kills):
    """The losses and the digest of a run with so many kills, the times from each kill to the next step, and the numbers of ranks."""
    generator = random.Random(seed)
    losses, times, sizes, digest, killed, join_at = {}, [], set(), None, None, None
    all_kills = kills
    next_kill = generator.randrange(2, 6)
    while digest is None:
        line = run.next_line()
        if line is None:
            check(False, f"stage {stage}, seed {seed}: no line for 60 s", run.errors[-20:])
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
    if all_kills > kills:
        check(run.has_error(r"^weft: elastic: rank \d was lost \(its process ended or its connection broke\) after step \d+: \d ranks go on$"),
              "the line about a lost rank", run.errors[-20:])
    check(all(code in (0, -signal.SIGKILL) for code in codes), f"stage {stage}, seed {seed}: exit codes", (codes, run.errors[-20:]))
    return losses, digest, times, sizes


def lose_one_in_a_rendezvous(expected):
    """A process that joins is stopped before the new world meets, and killed while the others wait for it: they go on without it
    after a third of WEFT_HEARTBEAT_S, and not after WEFT_RENDEZVOUS_S."""
    losses, joining, times = {}, None, []
    with Run(0, 8, 3, 2, 1000, {"WEFT_HEARTBEAT_S": "9"}) as run:
        while (line := run.next_line()) and not line.startswith("digest"):
            found = step_line.match(line)
            step, loss, ranks, at = int(found[1]), found[2], int(found[3]), float(found[4])
            check(losses.setdefault(step, loss) == loss, f"rendezvous: step {step} was done again with another loss")
            if ranks == 3 and run.processes[2].poll() is None and joining is None:
                run.processes[2].kill()
            elif joining is None and ranks == 2:
                joining = run.start(2)
                while not connected(joining, run.port + 1) and joining.poll() is None:
                    time.sleep(0.002)
                time.sleep(0.1)  # it waits for the next generation
                joining.send_signal(signal.SIGSTOP)
                check(run.has_error(r"^weft: elastic: ranks join after step \d+: 3 ranks go on$"), "rendezvous: ranks join", run.errors[-20:])
                time.sleep(0.5)
                killed = time.monotonic()
                joining.kill()
            elif joining and at > killed:
                times.append(at - killed)
        codes = [run.processes[rank].wait(60) for rank in (0, 1)] if line else None
        check(codes == [0, 0], "rendezvous: exit codes", (codes, run.errors[-20:]))
        print(f"from a kill in a rendezvous to the next step {times[0] if times else float('nan'):.2f} s")
        check(times and times[0] < 15, "rendezvous: from the kill to the next step", times[:1])
        check(all(expected[0].get(step) == loss for step, loss in losses.items()) and len(losses) == 8, "rendezvous: other losses", losses)
        check(run.has_error(r"rank 2 was lost .* after step \d+: 2 ranks go on$"), "rendezvous: the line about the lost rank", run.errors[-20:])


def drop_one_that_stands_still(expected):
    """A process is stopped and another one killed, which together hold no part's two copies: the run goes on without both, and the
    stopped one ends with the reason."""
    with Run(0, 12, 4, 1, 200, {"WEFT_HEARTBEAT_S": "2", "WEFT_RENDEZVOUS_S": "3"}) as run:
        check(run.next_line() is not None, "stands still: no first step", run.errors[-20:])
        run.processes[1].send_signal(signal.SIGSTOP)
        run.processes[2].kill()
        check(run.has_error(r"rank 1 was lost \(it stands still\).* after step \d+: 2 ranks go on$", 20), "stands still: the line", run.errors[-20:])
        run.processes[1].send_signal(signal.SIGCONT)
        text = "elastic: rank 1 stands still: it made no call for 3 s after another rank was lost or had returned, so the others go on without it"
        check(run.processes[1].wait(30) == 1 and run.has_error(text), "stands still: the reason", run.errors[-20:])
        check([run.processes[rank].wait(30) for rank in (0, 3)] == [0, 0], "stands still: the end", run.errors[-20:])
        losses = {}
        while (line := run.next_line(5)) and not line.startswith("digest"):
            losses[int(step_line.match(line)[1])] = step_line.match(line)[2]
        check(losses and all(expected[0].get(step) == loss for step, loss in losses.items()), "stands still: other losses", losses)


def lose_the_rendezvous():
    """The process of the rendezvous is killed: the run goes on and says so, and the next lost rank ends it."""
    with Run(0, 1000, 3, 1, 100) as run:
        check(run.next_line() is not None, "no rendezvous: no first step", run.errors[-20:])
        with open(f"/proc/{run.processes[0].pid}/task/{run.processes[0].pid}/children") as children:
            rendezvous = [int(child) for child in children.read().split()]
        check(len(rendezvous) == 1, "no rendezvous: rank 0 has one process", rendezvous)
        os.kill(rendezvous[0], signal.SIGKILL)
        check(run.has_error("elastic: the process of the rendezvous has ended: the run goes on, but the next lost rank ends it$", 20), "no rendezvous: the warning",
              run.errors[-20:])
        while run.lines.qsize():
            run.next_line()
        check(run.next_line(20) is not None, "no rendezvous: the run goes on", run.errors[-20:])
        run.processes[1].kill()
        codes = [run.processes[rank].wait(60) for rank in (0, 2)]
        check(codes == [1, 1] and run.has_error("elastic: the rendezvous of the ranks is lost: its process ended"), "no rendezvous: the end", (codes, run.errors[-20:]))


def meet_at_a_held_port():
    with socket.socket() as other:
        run = Run(0, 1, 1, 1, 0, {"WEFT_RENDEZVOUS_S": "1"})
        other.bind(("127.0.0.1", run.port + 1))
        other.listen()
        with run:
            check(run.processes[0].wait(30) == 1, "a held port: exit code", run.errors[-20:])
            check(run.has_error(f"elastic: rank 0 cannot serve the store at 127.0.0.1:{run.port + 1}: Address already in use"), "a held port",
                  run.errors[-20:])


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
meet_at_a_held_port()
lose_the_rendezvous()
if expected.get(0) and bad == 0:
    drop_one_that_stands_still(expected[0])
    lose_one_in_a_rendezvous(expected[0])
if times:
    seconds = sorted(one for one, _ in times)
    check(seconds[-1] < arguments.limit_s, "from a kill to the next step", f"{seconds[-1]:.2f} s")
    print(f"figure 23: {len(times)} processes killed in {runs} runs, {joined} runs with several sizes, {bad} runs with other bits")
    print(f"figure 23: from a kill to the next step at most {seconds[-1]:.2f} s, median {seconds[len(seconds) // 2]:.2f} s, "
          f"{times[-1][1] / 1e6:.1f} MB of copies a rank, {arguments.ranks} ranks")
sys.exit(1 if bad else 0)
