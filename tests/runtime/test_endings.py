# SPDX-License-Identifier: Apache-2.0
"""How programs end: exit code, one line on standard error, and soon; as threads and under mpirun."""
import os
import signal
import subprocess
import sys
import time

program = os.path.join(os.environ["WEFT_BUILD"], "tests", "program_ending")
mpirun = os.environ["WEFT_MPIRUN"]
with_mpi = bool(os.environ.get("WEFT_MPIRUN_EXECUTABLE")) and "NOTFOUND" not in os.environ["WEFT_MPIRUN_EXECUTABLE"]
bad = 0


def check(good, what, detail=""):
    global bad
    if not good:
        bad += 1
        print(f"failed: {what} {detail}")


def start(arguments, ranks=0, environment=None):
    """Under mpirun with `ranks`, or as threads."""
    command = ([mpirun, str(ranks)] if ranks else []) + [program, *arguments]
    launchers = ("WEFT_RANKS", "WEFT_TIMEOUT_S", "RANK", "WORLD_SIZE", "MASTER_", "OMPI_COMM", "PMI", "SLURM_", "TORCHELASTIC")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(launchers)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean | (environment or {}))


def run(arguments, ranks=0, environment=None):
    begin = time.monotonic()
    process = start(arguments, ranks, environment)
    try:
        out, err = process.communicate(timeout=50)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        check(False, "it hangs:", " ".join(arguments))
    return process.returncode, out, err, time.monotonic() - begin


def lines(err):
    return [line for line in err.splitlines() if line.strip()]


def expect(arguments, code, text, ranks=0, environment=None, usual=0.0):
    found, out, err, seconds = run(arguments, ranks, environment)
    what = " ".join(arguments) + (f" under mpirun with {ranks}" if ranks else "")
    check(found == code, what, f"exit code {found}, expected {code}: {err}")
    check(sum(text in line for line in lines(err)) == 1, what, f"expected one line with '{text}':\n{err}")
    check(seconds - usual < 2.5, what, f"took {seconds:.2f} s, a good end {usual:.2f} s")
    if not ranks:
        check(len(lines(err)) == 1, what, f"expected one line on standard error:\n{err}")
    return out


for ranks in (0, 2, 4) if with_mpi else (0,):
    count = [] if ranks else ["3"]
    code, out, err, usual = run(["well", *count], ranks)
    what = f"a good end with {ranks or 3} ranks"
    check(code == 0, what, f"exit code {code}: {err}")
    check(f"{ranks or 3} ranks as {'mpi' if ranks else 'threads'}" in out, what, out)
    check(not lines(err), what, f"nothing should be on standard error:\n{err}")
    expect(["throw", *count], 1, "boom in two lines", ranks, usual=usual)
    expect(["throw-first", *count], 3, "weft: ten steps in a row", ranks, usual=usual)
    expect(["full", *count], 1, "weft: out of memory: the host has no room", ranks, usual=usual)
    expect(["usage", *count], 2, "weft: heads(6) % tp(4) != 0", ranks, usual=usual)
    expect(["busy", *count], 1, "weft: boom", ranks, usual=usual)
    checked = {"WEFT_FINGERPRINTS": "1"} if ranks else {}
    expect(["mismatch", *count], 1, "ranks disagree: rank 0", ranks, checked, usual=usual)
    expect(["deadline", *count], 1, "waited longer than the deadline of 0.3", ranks, {"WEFT_TIMEOUT_S": "0.3"}, usual=usual + 2)
    code, out, err, _ = run(["return", *count], ranks)
    check(code == 7, "the code that one rank returns", f"is {code}: {err}")

    process = start(["interrupt", *count], ranks)
    process.stdout.readline()
    process.send_signal(signal.SIGINT if not ranks else signal.SIGTERM)
    try:
        out, err = process.communicate(timeout=20)
        if not ranks:  # (mpirun itself decides what a signal to it means for its processes)
            check(process.returncode == 0 and "stopped cleanly" in out, "an interrupt", f"{process.returncode} {out} {err}")
    except subprocess.TimeoutExpired:
        process.kill()
        check(False, "an interrupt does not end the program")

expect(["well", "-1"], 2, "weft: ranks(-1) must be at least 1")
expect(["well"], 2, "environment variable WEFT_RANKS is 'many'", environment={"WEFT_RANKS": "many"})
expect(["well", "2"], 2, "environment variable WEFT_TIMEOUT_S is '-3'", environment={"WEFT_TIMEOUT_S": "-3"})
code, out, _, _ = run(["well"], environment={"WEFT_RANKS": "5"})
check("5 ranks as threads" in out, "WEFT_RANKS", out)
# Processes that a launcher started and that nothing connects do not go on each for itself.
expect(["well"], 2, "SLURM_STEP_NUM_TASKS is 4: srun started as many processes", environment={"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1"})
code, out, err, _ = run(["well", "2"], environment={"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"})
check(code == 0 and "2 ranks as threads" in out, "a shell inside an allocation", err)
if with_mpi:
    for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"):
        expect(["well"], 2, f"weft: {name} is 4, but MPI connects 1 process", environment={name: "4"}, usual=1)
    expect(["well"], 2, "weft: WORLD_SIZE is 4, but MPI connects 2 processes", 2, {"WORLD_SIZE": "4"}, usual=1)
    expect(["well", "3"], 2, "weft: ranks(3) > 2 started by the launcher: ask it for more (mpirun -np or torchrun --nproc-per-node 3)", 2, usual=1)

sys.exit(1 if bad else 0)
