# SPDX-License-Identifier: Apache-2.0
# covers: weft/runtime/ending.hpp
"""The ends of programs: exit code, one line on standard error, and soon; as threads and under mpirun.

The programs mostly wait, for each other or for a limit, so several run at a time."""
import concurrent.futures
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from free_port import free_port

program = os.path.join(os.environ["WEFT_BUILD"], "tests", "program_ending")
mpirun = os.environ["WEFT_MPIRUN"]
torchrun = os.environ["WEFT_TORCHRUN"]
with_mpi = bool(os.environ.get("WEFT_MPIRUN_EXECUTABLE")) and "NOTFOUND" not in os.environ["WEFT_MPIRUN_EXECUTABLE"]
launchers = ("WEFT_RANKS", "WEFT_TIMEOUT_S", "WEFT_STOP_S", "RANK", "WORLD_SIZE", "MASTER_", "OMPI_COMM", "PMI", "SLURM_", "TORCHELASTIC")
clean = {k: v for k, v in os.environ.items() if not k.startswith(launchers)}
AT_ONCE = 4
bad = 0
pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
begun = []


def check(good, what, detail="", word="failed"):
    global bad
    if not good:
        bad += 1
        print(f"{word}: {what} {detail}", flush=True)


def begin(case, *arguments, **named):
    """Runs a case beside others; `ended` waits for all of them."""
    begun.append(pool.submit(case, *arguments, **named))


def ended():
    for case in begun:
        case.result()  # an exception of a case ends the script
    begun.clear()


def start(command, environment=None):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean | (environment or {}), start_new_session=True)


def sessions(leader):
    """The session of a process, and those that its children have made: mpirun's do."""
    found = {leader}
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and int(open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()[1]) in found:
                found.add(os.getsid(int(entry)))
        except OSError:
            pass
    return found


def processes(leader):
    """Those of the program that run below `leader`, a launcher or the program itself."""
    within = sessions(leader)
    found = []
    for entry in os.listdir("/proc"):
        try:  # (what has ended and waits for its parent has no executable any more)
            if entry.isdigit() and os.getsid(int(entry)) in within and os.readlink(f"/proc/{entry}/exe") == os.path.realpath(program):
                found.append(int(entry))
        except OSError:
            pass
    return found


def wait(process, limit_s, what):
    """Standard output and error, and when the last process of the program was there: OpenMPI's mpirun itself takes up to 2 s more to end
    after an exit code that is not 0, whatever the program was."""
    last = time.monotonic()
    ended = threading.Event()

    def watch():
        nonlocal last
        while not ended.is_set():
            if processes(process.pid):
                last = time.monotonic()
            ended.wait(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        check(False, "it does not end:", what)
    ended.set()
    watcher.join()
    return out, err, last


def run(arguments, ranks=0, environment=None):
    """Under mpirun with `ranks`, or as threads."""
    begin = time.monotonic()
    process = start(([mpirun, str(ranks)] if ranks else []) + [program, *arguments], environment)
    out, err, end = wait(process, 50, " ".join(arguments))
    return process.returncode, out, err, end - begin


def lines(err):
    return [line for line in err.splitlines() if line.strip()]


def expect(arguments, code, text, ranks=0, environment=None, usual=0.0):
    found, out, err, seconds = run(arguments, ranks, environment)
    what = " ".join(arguments) + (f" under mpirun with {ranks}" if ranks else "")
    check(found == code, what, f"exit code {found}, expected {code}: {err}")
    check(sum(text in line for line in lines(err)) == 1, what, f"expected one line with '{text}':\n{err}")
    check(seconds - usual < 2.5, what, f"took {seconds:.2f} s, a good end {usual:.2f} s", "late")
    if not ranks:
        check(len(lines(err)) == 1, what, f"expected one line on standard error:\n{err}")
    return out


def returned(ranks):
    code, out, err, _ = run(["return", *([] if ranks else ["3"])], ranks)
    check(code == 7, "the code that one rank returns", f"is {code}: {err}")


def interrupted(ranks):
    process = start(([mpirun, str(ranks)] if ranks else []) + [program, "interrupt", *([] if ranks else ["3"])])
    process.stdout.readline()
    process.send_signal(signal.SIGINT if not ranks else signal.SIGTERM)
    try:
        out, err = process.communicate(timeout=20)
        if not ranks:  # (mpirun itself decides what a signal to it means for its processes)
            check(process.returncode == 0 and "stopped cleanly" in out, "an interrupt", f"{process.returncode} {out} {err}")
    except subprocess.TimeoutExpired:
        process.kill()
        check(False, "an interrupt does not end the program")


for ranks in ((0, 2, 4) if os.environ.get("WEFT_TEST_LONG") == "1" else (0, 3)) if with_mpi else (0,):
    count = [] if ranks else ["3"]
    code, out, err, usual = run(["well", *count], ranks)
    what = f"a good end with {ranks or 3} ranks"
    check(code == 0, what, f"exit code {code}: {err}")
    check(f"{ranks or 3} ranks as {'mpi' if ranks else 'threads'}" in out, what, out)
    check(not lines(err), what, f"nothing should be on standard error:\n{err}")
    begin(expect, ["throw", *count], 1, "boom in two lines", ranks, usual=usual)
    begin(expect, ["throw-first", *count], 3, "weft: ten steps in a row", ranks, usual=usual)
    begin(expect, ["full", *count], 1, "weft: out of memory: the host could not allocate the requested memory", ranks, usual=usual)
    begin(expect, ["usage", *count], 2, "weft: heads(6) % tp(4) != 0", ranks, usual=usual)
    begin(expect, ["busy", *count], 1, "weft: boom", ranks, usual=usual)
    for environment in ({}, {"WEFT_SHARED_MEMORY": "0"}) if ranks else ({},):
        begin(expect, ["mismatch", *count], 1, "ranks disagree: rank 0", ranks, environment, usual=usual)
        begin(expect, ["circle", *count], 1, "ranks wait for each other and none can go on: ", ranks, environment, usual=usual)
        begin(expect, ["short-of-one", *count], 1, "all_reduce(sum) of 20000 float32", ranks, environment, usual=usual)
        begin(expect, ["lost", *count], 1, f"rank 0 called send of 3 int32 with tag 7 to rank {(ranks or 3) - 1} on world, which never received it", ranks,
               environment, usual=usual)
        begin(expect, ["seeds", *count], 2, f"ranks disagree about --seed: rank 0 has 1, rank {(ranks or 3) - 1} has 2", ranks, environment, usual=usual)
        begin(expect, ["degrees", *count], 2, "ranks disagree about the mesh: rank 0 has axes dp-tp, tp(", ranks, environment, usual=usual)
    begin(expect, ["deadline", *count], 1, "waited longer than the deadline of 0.3", ranks, {"WEFT_TIMEOUT_S": "0.3"}, usual=usual + 2)
    begin(returned, ranks)
    begin(interrupted, ranks)
    ended()  # before the next good end is measured


def stopped(how, launcher, number, environment, texts, limit_s):
    """Every process of the program gets the signal; exit code 130, within the limit, with these texts in the lines of one rank."""
    command = launcher + [program, how] + ([] if launcher else ["3"])
    process = start(command, environment)
    process.stdout.readline()
    time.sleep(0.5)
    what = f"{' '.join(os.path.basename(word) for word in command)} after {number.name} {environment or ''}"
    for found in processes(process.pid):  # (mpirun itself would decide what a signal to it means for its processes)
        try:
            os.kill(found, number)
        except ProcessLookupError:
            pass
    begin = time.monotonic()
    out, err, end = wait(process, 30, what)
    seconds = end - begin
    check(process.returncode == 130, what, f"exit code {process.returncode}: {err}")
    check(any(all(text in line for text in texts) for line in lines(err)) or not texts, what, f"no line with {texts}:\n{err}")
    check(seconds < limit_s, what, f"took {seconds:.2f} s", "late")
    if not launcher:
        check(len(lines(err)) == (1 if texts else 0), what, f"expected one line on standard error:\n{err}")


kinds = [[]] + ([[mpirun, "3"]] if with_mpi else [])
with_tcp = subprocess.run([torchrun, "2", program, "well"], capture_output=True, text=True, env=clean).stdout.count("2 ranks as tcp") == 1
if with_tcp:
    kinds.append([torchrun, "3"])
for launcher in kinds:
    waits = 3.5 if not launcher else 5.5  # 1 s of the wait, 1.5 s for ranks that compute; those that are processes end 4 s after the signal
    ways = [{}] + ([{"WEFT_SHARED_MEMORY": "0"}] if launcher else [])
    for environment in ways:
        by_mpi = launcher and launcher[0] == mpirun and environment
        begin(stopped, "absent", launcher, signal.SIGTERM, environment, ["axis world, barrier() #", "interrupted by SIGTERM", "the other ranks" if by_mpi else "rank 2"], waits)
        begin(stopped, "absent-message", launcher, signal.SIGTERM, environment, ["recv of 20000 float32 with tag 3 from rank 2", "more for rank 2"], waits)
        begin(stopped, "absent-split", launcher, signal.SIGTERM, environment, ["interrupted by SIGTERM", "the other ranks" if by_mpi else "rank 2"], waits)
    begin(stopped, "unheeded", launcher, signal.SIGTERM, {}, ["interrupted by SIGTERM, and the program does not ask world.interrupted()"], 3)
    begin(stopped, "deaf", launcher, signal.SIGTERM, {}, ["interrupted by SIGTERM, and the program neither ended nor asked"], 8)
    begin(stopped, "stop", launcher, signal.SIGTERM, {}, [], 2)
begin(stopped, "absent", [], signal.SIGINT, {}, ["interrupted by SIGINT (Ctrl-C)", "rank 2"], 3.5)
begin(stopped, "stop", [], signal.SIGINT, {}, [], 2)
begin(stopped, "absent-heeded", [], signal.SIGTERM, {"WEFT_STOP_S": "2.5"}, ["interrupted by SIGTERM and waited 2500 ms more for rank 2, in vain"], 5)


def alone(rank, part):
    process = subprocess.Popen([program, "well"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=clean | {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())})
    time.sleep(0.7)
    process.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    out, err = process.communicate(timeout=30)
    check(process.returncode == 130 and part in err and "interrupted by SIGTERM" in err and time.monotonic() - begin < 2.5, f"rank {rank} of 2, alone:", f"{process.returncode} {err}")


# Ranks that meet.
if with_tcp:
    for rank, part in (("0", "of rank 1"), ("1", "rank 0 did not come")):
        begin(alone, rank, part)
ended()
pool.shutdown()

# Output that standard output did not accept, a file beyond its limit, and a program's exit code.
with open("/dev/full", "w") as full:
    result = subprocess.run([program, "lines", "2"], stdout=full, stderr=subprocess.PIPE, text=True, env=clean)
    check(result.returncode == 1 and result.stderr == "weft: standard output was not written: No space left on device\n", "a full disk", str(result))
reading, writing = os.pipe()
os.close(reading)
result = subprocess.run([program, "lines", "2"], stdout=writing, stderr=subprocess.PIPE, text=True, env=clean)
os.close(writing)
check(result.returncode == 1 and result.stderr == "weft: standard output was not written: Broken pipe\n", "a closed pipe", str(result))
with tempfile.TemporaryFile() as file:
    result = subprocess.run([program, "lines", "2"], stdout=file, stderr=subprocess.PIPE, text=True, env=clean,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
    check(result.returncode == 1 and result.stderr == "weft: standard output was not written: File too large\n", "a limit of the file's size", str(result))

# Threads that cannot be started, and more of them than Kokkos supports.
result = subprocess.run([program, "well", "300"], capture_output=True, text=True, env=clean,
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)))
check(result.returncode == 2 and len(lines(result.stderr)) == 1 and "weft: ranks(300) of 1 thread: this process can start " in result.stderr, "300 ranks in 1 GiB", str(result))
code, out, err, _ = run(["well", "600"])
check(code == 0 and "600 ranks as threads" in out, "600 ranks", f"{code} {out} {err}")

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
