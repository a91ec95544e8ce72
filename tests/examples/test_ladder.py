# SPDX-License-Identifier: Apache-2.0
"""gpt_60 and in_situ in a short form: they learn, on one rank as on several, and refuse wrong options in one line."""
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from checks import check, finish

EXAMPLES, SOURCE, MPIRUN = (os.environ[name] for name in ("WEFT_EXAMPLES", "WEFT_SOURCE", "WEFT_MPIRUN"))


def run(command, timeout=120, **environment):
    clean = {k: v for k, v in os.environ.items() if k != "WEFT_RANKS"}
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, env=clean | environment)


def numbers(pattern, text):
    return [float(found) for found in re.findall(pattern, text)]


def close(a, b, tolerance):
    return len(a) == len(b) and all(abs(x - y) <= tolerance for x, y in zip(a, b))


# --- gpt_60: as many lines as in its name, the same losses in every layout
gpt = os.path.join(EXAMPLES, "gpt_60")
check(len(pathlib.Path(SOURCE, "examples/gpt_60/main.cpp").read_text().splitlines()) <= 60, "gpt_60 has more than 60 lines")
short = [gpt, "--steps", "30", "--data", os.path.join(SOURCE, "LICENSE")]
one = run(short, WEFT_RANKS="1")
losses = numbers(r"(?:loss|validation) ([0-9.]+)", one.stdout)
check(one.returncode == 0 and len(losses) == 4 and losses[2] < losses[0] - 1 and losses[3] < losses[1] - 1, f"gpt_60 learns: {one.returncode} {one.stdout} {one.stderr}")
check(len(one.stdout.split("The ", 1)[-1]) >= 61, f"gpt_60 writes a sample: {one.stdout}")
for layout in (["--tp", "2"], ["--tp", "2", "--pp", "2"]):
    other = run([*short, *layout], WEFT_RANKS="4")
    check(close(numbers(r"(?:loss|validation) ([0-9.]+)", other.stdout), losses, 2e-2), f"gpt_60 {layout}: {other.stdout} {other.stderr}, not {one.stdout}")
for arguments, text in [(["--tp"], "gpt_60: options are --data, --steps, --tp and --pp, each with a value, not --tp"), (["--dp", "2"], "gpt_60: options are --data, --steps, --tp and --pp, each with a value, not --dp"),
                        (["--tp", "x"], "weft: --tp is 'x', expected a whole number from 1 to 1048576"), (["--data", "/no/such/file"], "there is no such file"), (["--tp", "3"], "tp(3)")]:
    bad = run([gpt, *arguments], WEFT_RANKS="2")
    check(bad.returncode == 2 and bad.stderr.count("\n") == 1 and text in bad.stderr and bad.stdout == "", f"gpt_60 {arguments}: {bad.returncode} {bad.stderr!r}")

asked = run([gpt, "--tp", "2", "--rehearse", "8", "--steps", "2", "--pp", "2"])
check(asked.returncode == 0 and "rehearsal of the ranks that differ, of 8\n" in asked.stdout and "ranks along dp 2, tp 2, pp 2" in asked.stdout, f"gpt_60 is rehearsed: {asked.returncode} {asked.stdout} {asked.stderr}")

# One step: two take twice the time, and tests/runtime/prove.cpp proves several.
proof = run(short, timeout=600, WEFT_PROVE="2", WEFT_PROVE_STEPS="1", WEFT_PROVE_LAYOUT_SECONDS="300", OMP_WAIT_POLICY="passive", OMP_PROC_BIND="false")
check(proof.returncode == 0 and "prove: proven: 9 of 9 possible layouts of up to 2 ranks agree with one rank, 1 step," in proof.stdout, f"gpt_60 is proven: {proof.returncode} {proof.stdout} {proof.stderr}")

# --- the examples that need no files: rehearsed as any rank of any number
for name in ("01_hello_mesh", "02_collectives", "03_custom_layer", "05_dtensor"):
    for ranks in ("8", "8:5", "7:6"):
        asked = run([os.path.join(EXAMPLES, name), "--rehearse", ranks])
        refused = name in ("01_hello_mesh", "05_dtensor") and ranks == "7:6"  # meshes of other degrees
        check(asked.returncode == (2 if refused else 0) and (refused or "rehearsal of" in asked.stdout), f"{name} --rehearse {ranks}: {asked.returncode} {asked.stdout} {asked.stderr}")

# --- in_situ: on one rank, under mpirun and rehearsed
solver = os.path.join(EXAMPLES, "in_situ")
if os.path.exists(solver):
    alone = run([solver, "--steps", "201"])
    errors = numbers(r"surrogate ([0-9.]+)", alone.stdout)
    check(alone.returncode == 0 and len(errors) == 3 and errors[-1] < errors[0] / 4, f"in_situ learns: {alone.returncode} {alone.stdout} {alone.stderr}")
    for ranks in ("2", "3"):
        found = run([MPIRUN, ranks, solver, "--steps", "201"], OMP_NUM_THREADS="1")
        check(numbers(r"cell ([0-9.]+)", found.stdout) == numbers(r"cell ([0-9.]+)", alone.stdout), f"in_situ on {ranks} ranks solves something else: {found.stdout} {found.stderr}")
        check(close(numbers(r"surrogate ([0-9.]+)", found.stdout), errors, 2e-3), f"in_situ on {ranks} ranks: {found.stdout}, not {alone.stdout}")
    for asked in (run([solver, "--steps", "3"], WEFT_REHEARSE="1024"), run([solver, "--rehearse", "1024", "--steps", "3"])):
        check(asked.returncode == 0 and "rehearsal of rank 0, which stands for all 1024\n" in asked.stdout and "dp all_reduce" in asked.stdout, f"in_situ is rehearsed: {asked.returncode} {asked.stdout} {asked.stderr}")
    for arguments in (["--steps"], ["--steps", "0"], ["--steps", "x"], ["more"]):
        bad = run([solver, *arguments])
        check(bad.returncode == 2 and bad.stderr.startswith("weft: in_situ: ") and bad.stderr.count("\n") == 1, f"in_situ {arguments}: {bad.returncode} {bad.stderr!r}")
finish()
