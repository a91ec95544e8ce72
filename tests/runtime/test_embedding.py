# SPDX-License-Identifier: Apache-2.0
"""weft in a program that owns MPI and Kokkos: it works between their starts and their ends; elsewhere it is an error."""
import os
import subprocess
import sys

program = os.path.join(os.environ["WEFT_BUILD"], "tests", "program_embedding")
if not os.path.exists(program):
    print("skipped: there is no MPI here")
    sys.exit(77)
bad = 0
KOKKOS = "weft: World: Kokkos is not running: a program that makes a World itself has a Kokkos::ScopeGuard, which outlives it"
MPI = "weft: mpi::over: MPI {}: it is called between the program's MPI_Init and MPI_Finalize"
for when, expected in [
    ("between", ["the ranks sum to 3"] * 4),
    ("run", ["rank 0 of run", "rank 1 of run"] + ["the ranks sum to 3"] * 2),
    ("before-mpi", [MPI.format("is not running yet")] * 2),
    ("after-mpi", [MPI.format("has ended")] * 2),
    ("before-kokkos", [KOKKOS] * 2),
    ("after-kokkos", [KOKKOS] * 2),
]:
    done = subprocess.run([os.environ["WEFT_MPIRUN"], "2", program, when], capture_output=True, text=True, timeout=60)
    if done.returncode or sorted(done.stdout.splitlines()) != sorted(expected):
        bad += 1
        print(f"failed: {when}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
sys.exit(1 if bad else 0)
