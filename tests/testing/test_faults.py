# SPDX-License-Identifier: Apache-2.0
"""testing::inject_faults over every backend: delayed, late and reordered operations give the same results, the same is injected
again by the same seed, and a rank that throws ends all ranks with its error, without a touch of the memory that it has given
back."""
import os
import re
import subprocess
import sys
import time

program = os.path.join(os.environ["WEFT_BUILD"], "tests", "program_faults")
symbols = subprocess.run(["nm", "-C", program], capture_output=True, text=True).stdout
launchers = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC", "WEFT_RANKS", "WEFT_SHARED")
clean = {k: v for k, v in os.environ.items() if not k.startswith(launchers)}
backends = {"threads": ([], {"WEFT_TEST_THREADS": "3"})}
if "comm::Mpi::" in symbols:
    backends["shared memory"] = ([os.environ["WEFT_MPIRUN"], "3"], {})
    backends["MPI"] = ([os.environ["WEFT_MPIRUN"], "3"], {"WEFT_SHARED_MEMORY": "0"})
backends["TCP"] = ([os.environ["WEFT_TORCHRUN"], "3"], {"WEFT_SHARED_MEMORY": "0"})
failed = 0


def run(name, *words):
    launcher, changes = backends[name]
    begin = time.monotonic()
    done = subprocess.run([*launcher, program, *words], capture_output=True, text=True, env=clean | changes, timeout=100)
    return done, time.monotonic() - begin


def check(good, *what):
    global failed
    if not good:
        failed += 1
        print("FAILED:", *what)


for name in backends:
    said = set()
    for _ in range(2):
        done, _ = run(name, "conformance", "5")
        check(done.returncode == 0, name, done)
        said.update(line for line in done.stdout.splitlines() if line.startswith("faults: "))
    check(len(said) == 1, f"{name}: the same seed has injected {said}")
    line = next(iter(said), "")
    numbers = [int(number) for number in re.findall(r"(\d+) (?:calls|delays|late|reordered)", line)]
    check(len(numbers) == 4 and numbers[0] > 300 and min(numbers[1:]) > 5, f"{name}: {line}")
    print(line)
    for seed, call, rank in ((2, 8, 1), (5, 29, 1), (3, 57, 2)):
        texts = set()
        for _ in range(2):
            done, took = run(name, "fail", str(seed), str(call), str(rank))
            told = [text for text in done.stderr.splitlines() if f" the rank's call {call} (seed {seed})" in text]
            check(done.returncode == 1 and told, name, seed, call, rank, done)
            check(took < 20, name, f"took {took:.1f} s")
            # Other ranks report that a rank has failed, perhaps before it.
            texts.update(re.findall(rf"weft: rank {rank}, axis world, .*seed {seed}\)", "\n".join(told)))
        check(len(texts) <= 1, f"{name}: the same seed has thrown {texts}")
if "MPI" in backends:  # which may touch the buffers as long as it runs
    backends["caught"] = (backends["MPI"][0], {"WEFT_SHARED_MEMORY": "0", "WEFT_FINGERPRINTS": "0"})
    done, took = run("caught", "caught", "0")
    check(done.returncode == 1 and took < 20, "MPI, caught", done)
    check("barrier()" in done.stderr and "was under way on this rank when an error came" in done.stderr, "MPI, caught", done)
sys.exit(1 if failed else 0)
