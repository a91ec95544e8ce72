# SPDX-License-Identifier: Apache-2.0
# covers: weft/comm/watch.hpp weft/comm/ledger.hpp weft/comm/tcp/watch.hpp weft/comm/mpi/watch.hpp
"""Every ordered pair of calls that differ is found, on every backend (comm/programs/disagree.cpp).

    test_disagree.py            all pairs once among three threads and three processes that share memory, samples elsewhere
    test_disagree.py --long     all pairs of worlds of 2, 3 and 5, with either odd rank, short and long messages: an hour

A program mostly waits for its pairs to be found, so several run at a time. Prints a line of figures for each world, and one for all:
"disagree: 2456 pairs, 2456 found, 0 silent, 0 late, 0 others".
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import threading

program = os.path.join(os.environ["WEFT_BUILD"], "tests", "program_disagree")
with_mpi = bool(os.environ.get("WEFT_MPIRUN_EXECUTABLE")) and "NOTFOUND" not in os.environ["WEFT_MPIRUN_EXECUTABLE"]
launchers = ([os.environ["WEFT_MPIRUN"]] if with_mpi else []) + [os.environ["WEFT_TORCHRUN"]]
clean = {k: v for k, v in os.environ.items() if not k.startswith(("RANK", "WORLD_SIZE", "MASTER_", "OMPI_COMM", "PMI", "SLURM_"))}
total = dict.fromkeys(("pairs", "found", "silent", "late", "others"), 0)
AT_ONCE = 4
bad = 0
figures = threading.Lock()


def failed(what):
    global bad
    with figures:
        bad += 1
    print(f"failed: {what}", flush=True)


def run(world, arguments, launcher=None, shared=True):
    """One run of the program; its figures are added to `total`."""
    with tempfile.TemporaryDirectory() as folder:
        more = {"WEFT_TEST_BOARD": os.path.join(folder, "board"), "WEFT_TEST_WORLD": str(world)}
        if not shared:
            more["WEFT_SHARED_MEMORY"] = "0"
        command = ([launcher, str(world)] if launcher else []) + [program, *map(str, arguments)]
        ended = subprocess.run(command, env=clean | more, capture_output=True, text=True, timeout=1500)
    line = re.search(r"disagree: (\S+) world \d+: .*", ended.stdout)
    if line is None and launcher and ended.returncode == 0:
        return print(f"disagree: {os.path.basename(launcher)}: this build has no such backend")
    if ended.returncode != 0 or line is None:
        failed(f"{' '.join(command)}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr[-8000:]}")
    if line is not None:
        print(line.group(0), flush=True)
        with figures:
            for number, name in re.findall(r"(\d+) (pairs|found|silent|late|others)", line.group(0)):
                total[name] += int(number)


def naps(world, programs, launcher, shared):
    """Correct programs whose ranks are late: no rank is named."""
    with tempfile.TemporaryDirectory() as folder:
        more = {"WEFT_TEST_BOARD": os.path.join(folder, "board"), **({} if shared else {"WEFT_SHARED_MEMORY": "0"})}
        ended = subprocess.run([launcher, str(world), program, "--naps", str(programs)], env=clean | more, capture_output=True, text=True, timeout=1500)
    print(ended.stdout, end="", flush=True)
    if ended.returncode != 0 or ("correct programs, 0 alarms" not in ended.stdout and "threads" not in ended.stdout):
        failed(f"naps on {launcher}: exit code {ended.returncode}\n{ended.stderr[-8000:]}")


if "--long" in sys.argv:
    for world in (2, 3, 5):
        for launcher in launchers:
            for shared in (True, False):
                naps(world, 250, launcher, shared)
        run(world, [])
        for launcher in launchers:
            for shared in (True, False):
                for first in range(16):  # MPI's communicators are used up: some hundred trials for each start
                    run(world, ["--every", 16, "--first", first], launcher, shared)
else:
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        # The longest first; all pairs in parts.
        parts = [["--once", "--every", 3, "--first", first] for first in range(3)]
        begun = [pool.submit(run, 3, part, launcher) for part in parts for launcher in (launchers[0], None)]
        begun += [pool.submit(run, world, ["--every", 61]) for world in (2, 5)]
        for launcher in launchers:
            begun += [pool.submit(naps, 3, 8, launcher, shared) for shared in (True, False)]
            if launcher != launchers[0]:
                begun.append(pool.submit(run, 3, ["--every", 61], launcher))
            begun += [pool.submit(run, world, ["--every", every], launcher, False) for world, every in ((3, 31), (2, 89), (5, 127))]
        for one in begun:
            one.result()
print("disagree: " + ", ".join(f"{number} {name}" for name, number in total.items()))
if bad or total["pairs"] == 0 or total["pairs"] != total["found"]:
    sys.exit(1)
