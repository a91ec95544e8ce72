# SPDX-License-Identifier: Apache-2.0
# covers: weft/comm/store/heartbeat.hpp
"""Figure 1: a random rank is killed (processes) or throws (threads) at a random moment: while ranks meet, in a collective, in messages between two
ranks. Every other rank ends within 2 s with an error that names the one that is gone; one that is stopped is named once its heartbeats have been missing for
WEFT_HEARTBEAT_S. `--runs 1000` is the long form."""
import argparse
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
import ranks
from ranks import check, check_in_time, finish, free_port, program, start

arguments = argparse.ArgumentParser()
arguments.add_argument("--runs", type=int, default=24)
arguments.add_argument("--seed", type=int, default=1)
arguments = arguments.parse_args()
longest = {"kill": 0.0, "meeting": 0.0, "stop": 0.0, "mpi": 0.0}
hangs = 0


def wait_for_met(processes):
    return all("has met" in process.stdout.readline() for process in processes)


def end(processes, victim, sent, what, named, most_s, kind, never_came=False):
    """The survivors' output and the time of their ends. TCP lets one rank report; the error of each is on its standard output."""
    global hangs
    survivors = [p for rank, p in enumerate(processes) if rank != victim]
    results = finish(survivors, most_s + 15)
    took = time.monotonic() - sent
    hangs += sum(code is None for code, _, _ in results)
    if processes[victim].poll() is None:
        processes[victim].kill()
    processes[victim].communicate()
    good = all(code == 1 for code, _, _ in results) and all(any(text in out + err for text in named) for _, out, err in results)
    check(good, what, results)
    if not never_came:
        check_in_time(took < most_s, what, f"took {took:.2f} s: {results}")
        longest[kind] = max(longest[kind], took)


backends = [("tcp", {}), ("tcp", {"WEFT_SHARED_MEMORY": "0"})]


def one_run(seed):
    generator = random.Random(seed)
    name, changes = backends[generator.randrange(len(backends))]
    world = generator.choice((2, 3, 4))
    victim = generator.randrange(world)
    moment = generator.choice(("meeting", "meeting", "collectives", "collectives", "messages", "long"))
    port = free_port()
    what = f"seed {seed}: {name} {changes} world {world}, rank {victim} killed, {moment}"
    if moment == "meeting":
        # At a moment from before main to after the first calls.
        changes = changes | {"WEFT_RENDEZVOUS_S": "3"}
        processes = [start(rank, world, ["slow"], port, changes) for rank in range(world)]
        time.sleep(generator.random() * 0.12)
        processes[victim].kill()
        sent = time.monotonic()
        survivors = [p for rank, p in enumerate(processes) if rank != victim]
        results = finish(survivors, 12)
        took = time.monotonic() - sent
        processes[victim].communicate()
        text = "".join(out + err for _, out, err in results)
        # Before it has sent its rank, no rank can miss it: then the others wait for it as long as for one that was never
        # started.
        never_came = "did not come" in text
        named = ("rank 0 is lost", "is gone with rank 0", "no store at", "rank 0 of a world") if victim == 0 else (
            f"rank {victim} is lost", f"rank {victim} of a world")
        global hangs
        hangs += sum(code is None for code, _, _ in results)
        # Ranks that had met let one of them report.
        check(all(code == 1 for code, _, _ in results) and any(n in text for n in named), what, results)
        if not never_came:
            check_in_time(took < 2, what, f"took {took:.2f} s: {results}")
            longest["meeting"] = max(longest["meeting"], took)
        return "never came" if never_came else "meeting"
    processes = [start(rank, world, [moment], port, changes) for rank in range(world)]
    check(wait_for_met(processes), what, "did not meet")
    time.sleep(generator.random() * 0.15)
    processes[victim].kill()
    sent = time.monotonic()
    end(processes, victim, sent, what, (f"rank {victim} is lost",), 2, "kill")
    return moment


counts = {}
for run in range(arguments.runs):
    kind = one_run(arguments.seed * 1000003 + run)
    counts[kind] = counts.get(kind, 0) + 1

# Ranks that wait for a third one, which never comes, miss each other at once; one that stands still is missed by its heartbeats.
for name, changes in backends:
    for victim in (0, 1):
        for sig, kind, most_s, why in ((signal.SIGKILL, "meeting", 2, "its process ended"), (signal.SIGSTOP, "stop", 4, "nothing was heard of it for 1 s")):
            port = free_port()
            processes = [start(rank, 3, ["slow"], port, changes | {"WEFT_HEARTBEAT_S": "1"}) for rank in (0, 1)]
            time.sleep(0.7)
            processes[victim].send_signal(sig)
            end(processes, victim, time.monotonic(), f"{name}: rank {victim} of two that wait for a third, signal {sig}",
                (f"rank {victim} is lost, {why}",) + (("is gone with rank 0",) if victim == 0 else ()), most_s, kind)


def reached(process, port):
    """Waits until the process has a connection to the store."""
    for _ in range(1000):
        links = set()
        for descriptor in os.scandir(f"/proc/{process.pid}/fd"):
            try:
                links.add(os.readlink(descriptor.path))
            except OSError:  # closed meanwhile
                pass
        with open(f"/proc/{process.pid}/net/tcp") as table:
            for line in table.read().splitlines()[1:]:
                words = line.split()
                if words[2].endswith(f":{port:04X}") and words[3] == "01" and f"socket:[{words[9]}]" in links:
                    return
        time.sleep(0.01)
    check(False, "did not reach the store", process.args)


# One that was slow to come learns of a rank that was lost before, instead of waiting for a store that ended with the meeting;
# and a rank that waits in vain names the rank that did not come, not rank 0, the first with this error.
for name, changes in backends:
    port = free_port()
    changes = changes | {"WEFT_RENDEZVOUS_S": "20"}
    processes = [start(rank, 3, ["slow"], port, changes) for rank in range(2)]
    reached(processes[1], port)
    time.sleep(0.3)
    processes[1].kill()
    sent = time.monotonic()
    time.sleep(0.2)
    processes.append(start(2, 3, ["slow"], port, changes))
    results = finish([processes[0], processes[2]], 25)
    took = time.monotonic() - sent
    processes[1].communicate()
    check(all(code == 1 and "rank 1 is lost" in out + err for code, out, err in results) and took < 4, f"{name} {changes}: a late rank", f"took {took:.2f} s: {results}")
    port = free_port()
    changes = changes | {"WEFT_RENDEZVOUS_S": "2"}
    processes = [start(0, 3, ["slow"], port, changes)]
    time.sleep(0.3)
    processes.append(start(2, 3, ["slow"], port, changes))
    results = finish(processes, 10)
    check(all(code == 1 and "rank 1 of a world of 3 did not come" in out + err for code, out, err in results), f"{name} {changes}: rank 1 never came", results)

# Stopped: no connection closes, so only heartbeats show it. Rank 0 with the store, and another.
stops = 0
for name, changes in backends:
    for world, victim in ((2, 1), (3, 0)):
        port = free_port()
        processes = [start(rank, world, ["slow"], port, changes | {"WEFT_HEARTBEAT_S": "1"}) for rank in range(world)]
        check(wait_for_met(processes), f"{name} {changes}", "did not meet")
        time.sleep(0.2)
        processes[victim].send_signal(signal.SIGSTOP)
        end(processes, victim, time.monotonic(), f"{name} {changes}: rank {victim} of {world} stopped",
            (f"rank {victim} is lost, nothing was heard of it for 1 s",), 4, "stop")
        stops += 1

# A rank that computes for longer than that is not taken for lost: its heart goes on.
port = free_port()
processes = [start(rank, 2, ["compute"], port, {"WEFT_HEARTBEAT_S": "1"}) for rank in range(2)]
check(all(code == 0 for code, _, _ in finish(processes, 20)), "a rank that computes for 3 s")

# MPI between processes: mpirun ends a job whose rank was killed, and hearts name one that stands still.
if ranks.has("Mpi") and os.environ.get("WEFT_MPIRUN"):
    for number, (sig, changes) in enumerate(((signal.SIGSTOP, {}), (signal.SIGSTOP, {"WEFT_SHARED_MEMORY": "0"}), (signal.SIGKILL, {}))):
        job = subprocess.Popen([os.environ["WEFT_MPIRUN"], "2", program, "slow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=ranks.clean | {"WEFT_HEARTBEAT_S": "1"} | changes, start_new_session=True)
        lines = [job.stdout.readline(), job.stdout.readline()]
        children = subprocess.run(["ps", "-o", "pid=,args=", "--sid", str(job.pid)], capture_output=True, text=True).stdout.splitlines()
        victims = []
        for line in children:
            pid = line.split()[0]
            with open(f"/proc/{pid}/environ") as environment:
                words = environment.read().split("\0")
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "program_meeting" and ("OMPI_COMM_WORLD_RANK=1" in words or "PMI_RANK=1" in words):
                victims.append(int(pid))
        if not check(len(victims) == 1, "mpirun's rank 1 was not found", children):
            os.killpg(job.pid, signal.SIGKILL)
            continue
        time.sleep(0.2)
        begin = time.monotonic()
        os.kill(victims[0], sig)
        said = ""
        if sig == signal.SIGSTOP:
            # The error is printed at once; MPI_Abort then takes a second or two of mpirun's.
            while "is lost" not in said and ranks.readable([job.stdout], 10):
                said += job.stdout.readline() or "is lost, it ended without a word"
            longest["mpi"] = max(longest["mpi"], time.monotonic() - begin)
            check("rank 1 is lost, nothing was heard of it for 1 s" in said and time.monotonic() - begin < 3, f"mpirun {changes}", said)
        try:
            out, err = job.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            hangs += 1
            os.killpg(job.pid, signal.SIGKILL)
            out, err = job.communicate()
        if sig == signal.SIGKILL:
            check(job.returncode != 0 and ("rank 1" in out + err or "signal 9" in err), "mpirun's rank killed", out + err)

# Threads: throws, with nothing left behind.
threads = subprocess.run([program, "throws", str(max(50, arguments.runs)), str(arguments.seed)], capture_output=True, text=True, timeout=600)
check(threads.returncode == 0, "threads", threads.stdout + threads.stderr)
check(hangs == 0, "hangs", hangs)
print(f"figure 1: kills {arguments.runs} {counts} hangs {hangs} longest_s " + " ".join(f"{k} {v:.2f}" for k, v in longest.items()) +
      f" stops {stops} | {threads.stdout.strip()} | failed {ranks.bad}")
sys.exit(1 if ranks.bad else 0)
