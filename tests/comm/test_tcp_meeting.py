# SPDX-License-Identifier: Apache-2.0
# covers: weft/comm/store/links.hpp weft/comm/store/server.hpp
"""Processes under torchrun's environment meet and end: one clear line and an exit code, within the deadline."""
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from free_port import free_port

program = os.path.join(os.environ["WEFT_BUILD"], "tests", "program_ending")
bad = 0
launchers = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC", "WEFT_SECRET", "WEFT_STORE", "WEFT_R", "WEFT_T")
clean = {k: v for k, v in os.environ.items() if not k.startswith(launchers) or k.startswith("WEFT_TORCHRUN")}


def check(good, what, detail="", word="failed"):
    global bad
    if not good:
        bad += 1
        print(f"{word}: {what} {detail}")


def start(rank, world, how, port, changes=None):
    environment = clean | {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                           "MASTER_PORT": str(port), "WEFT_RENDEZVOUS_S": "3", "WEFT_TIMEOUT_S": "20"} | (changes or {})
    environment = {k: v for k, v in environment.items() if v is not None}
    return subprocess.Popen([program, *how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(processes, limit=15):
    begin, results = time.monotonic(), []
    for process in processes:
        try:
            out, err = process.communicate(timeout=max(0.1, limit - (time.monotonic() - begin)))
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            check(False, "it hangs:", err)
        results.append((process.returncode, out, err))
    return results


def expect(what, processes, code, text, lines=None, limit=15):
    """Every process ends with `code`; The program prints `text`, on `lines` lines in all if given, and nothing else."""
    results = finish(processes, limit)
    errors = [line for _, _, err in results for line in err.splitlines() if line.strip()]
    check(all(c == code for c, _, _ in results), what, f"exit codes {[c for c, _, _ in results]}, expected {code}: {errors}")
    check(any(text in line for line in errors), what, f"expected '{text}' in {errors}")
    check(lines is None or len(errors) == lines, what, f"expected {lines} lines: {errors}")


def world(size, how, changes=None):
    port = free_port()
    return [start(rank, size, how, port, changes) for rank in range(size)]


for size in (1, 2, 4):
    results = finish(world(size, ["well"]))
    check(all(c == 0 and not e for c, _, e in results) and results[0][1] == f"{size} ranks as tcp\n", f"a good end of {size}", results)

one = ["well"]
expect("MASTER_ADDR is missing", [start(0, 2, one, 1, {"MASTER_ADDR": None})], 2, "MASTER_ADDR is missing", 1)
expect("MASTER_PORT is missing", [start(0, 2, one, 1, {"MASTER_PORT": None})], 2, "MASTER_PORT is missing", 1)
expect("RANK is missing", [start(0, 2, one, 1, {"RANK": None})], 2, "RANK is missing", 1)
expect("RANK is no number", [start(0, 2, one, 1, {"RANK": "one"})], 2, "RANK is 'one'", 1)
expect("a port beyond all", [start(0, 2, one, 70000)], 2, "MASTER_PORT is '70000', expected a number from 1 to 65535", 1)
expect("no time to meet", [start(0, 2, one, 1, {"WEFT_RENDEZVOUS_S": "0"})], 2, "WEFT_RENDEZVOUS_S is '0', expected a number from 0.001 to", 1)
expect("a file without a secret", [start(0, 2, one, 1, {"WEFT_SECRET_FILE": "/dev/null"})], 2, "WEFT_SECRET_FILE: cannot read '/dev/null'", 1)
with tempfile.NamedTemporaryFile() as empty:
    expect("an empty file for a secret", [start(0, 2, one, 1, {"WEFT_SECRET_FILE": empty.name})], 2, "holds no secret", 1)
expect("a folder for a secret", [start(0, 2, one, 1, {"WEFT_SECRET_FILE": "/"})], 2, "WEFT_SECRET_FILE: cannot read '/': it is a folder", 1)
expect("RANK beyond the world", [start(2, 2, one, 1)], 2, "RANK(2) is not in a world of WORLD_SIZE(2)", 1)
expect("MASTER_ADDR is no address", [start(0, 2, one, free_port(), {"MASTER_ADDR": "no.such.name.invalid"})], 2, "no.such.name.invalid", 1)
expect("not loopback, no secret", [start(r, 2, one, free_port(), {"MASTER_ADDR": "0.0.0.0"}) for r in (0, 1)], 2, "WEFT_SECRET", 2)
expect("a secret that is too short", [start(0, 2, one, free_port(), {"MASTER_ADDR": "0.0.0.0", "WEFT_SECRET": "short"})], 2, "WEFT_SECRET", 1)
expect("nobody serves", [start(1, 2, one, free_port())], 1, "(Connection refused)", 1)
expect("a rank that never comes", [start(0, 3, one, port := free_port()), start(1, 3, one, port)], 1, "rank 2 of a world of 3 did not come")

with socket.socket() as taken:
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    port = taken.getsockname()[1]
    expect("the port is taken", [start(0, 2, one, port)], 1, "cannot serve the store at", 1)
    expect("another program's port", [start(1, 2, one, port)], 1, "is MASTER_PORT the port of another program?", 1)

port = free_port()
expect("worlds disagree", [start(0, 2, one, port), start(1, 3, one, port)], 1, "WORLD_SIZE is 3 on rank 1 and 2 on rank 0", 2)
port = free_port()
expect("a rank twice", [start(0, 3, one, port), start(1, 3, one, port), start(1, 3, one, port)], 1, "rank 1 has come twice")
port = free_port()
expect("another secret", [start(0, 2, one, port, {"WEFT_SECRET": "a" * 16}), start(1, 2, one, port, {"WEFT_SECRET": "b" * 16})], 1, "another secret")

# srun's and mpirun's own variables, with MASTER_ADDR beside them.
def under(names, rank, size, port):
    return start(rank, size, one, port, {"RANK": None, "WORLD_SIZE": None, "LOCAL_WORLD_SIZE": None} | dict(zip(names, (str(rank), str(size)))))


for names in (("SLURM_PROCID", "SLURM_NTASKS"), ("PMI_RANK", "PMI_SIZE")):
    if names[0] == "PMI_RANK" and "comm::Mpi" in subprocess.run(["nm", "-C", program], capture_output=True, text=True).stdout:
        continue  # that is MPI's
    port = free_port()
    results = finish([under(names, rank, 2, port) for rank in (0, 1)])
    check(all(c == 0 and not e for c, _, e in results) and results[0][1] == "2 ranks as tcp\n", names[0], results)
    expect(f"{names[0]} beyond the world", [under(names, 5, 2, port)], 2, f"{names[0]}(5) is not in a world of {names[1]}(2)", 1)

expect("more ranks than were started", world(4, ["well", "8"]), 2, "ranks(8) > 4 started by the launcher", 1)
expect("arguments refused by all", world(4, ["usage"]), 2, "heads(6) % tp(4) != 0", 1)
expect("fewer ranks than were started", world(2, ["well", "1"]), 2, "ranks(1) < 2 started by the launcher", 1)

for size in (2, 4):
    results = finish(world(size, ["throw"]))
    errors = [line for _, _, err in results for line in err.splitlines()]
    check(all(c == 1 for c, _, _ in results) and len(errors) == 1 and "boom in two lines" in errors[0], f"one of {size} throws", results)
expect("ranks call different operations", world(2, ["mismatch"]), 1, "disagree")
expect("a wait passes its deadline", world(2, ["deadline"], {"WEFT_TIMEOUT_S": "0.5"}), 1, "longer than the deadline of 0.5")

# A rank that is killed is named by every other, soon.
for size, how in ((2, "interrupt"), (4, "interrupt"), (3, "long")):
    processes = world(size, [how])
    processes[0].stdout.readline()
    time.sleep(0.2)
    processes[size - 1].send_signal(signal.SIGKILL)
    begin = time.monotonic()
    results = finish(processes[:-1])
    processes[-1].communicate()
    check(time.monotonic() - begin < 2, f"killed one of {size}, {how}", f"the others took {time.monotonic() - begin:.1f} s", "late")
    errors = [line for _, _, err in results for line in err.splitlines()]
    check(all(c == 1 for c, _, _ in results) and len(errors) >= 1 and all(f"rank {size - 1} is lost" in e for e in errors), f"killed one of {size}, {how}", results)

sys.exit(1 if bad else 0)
