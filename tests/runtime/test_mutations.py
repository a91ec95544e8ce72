#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proofs of programs with a mutated weft: one collective of a training step left out, or made twice. Each mutation is found, or has a reason
why nothing changes. A copy of the headers has all of them (programs/mutations/mutate.py), so each program is compiled once.

Each mutation is a run of a fraction of a second, but a program takes the compiler as long as a large test. Without WEFT_TEST_LONG=1 only the
first program is compiled. By hand, for chosen programs:  python3 test_mutations.py gpt/sequence experts
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent / "programs/mutations"
ROOT = HERE.parents[3]
sys.path.insert(0, str(HERE))
import mutate

PROGRAMS = {"net": ["net", "loop", "muon"], "gpt": ["gpt", "sequence", "copies", "secondary", "ulysses"], "experts": ["experts", "balance", "data"],
            "fields": ["images", "domain", "graph"],
            "language": ["pieces", "rows", "sequence", "recomputed", "degree", "adapters"]}
# What changes no tensor of a training step, by the place and what is done.
EQUIVALENT = [
    (r".* idempotent twice$", "the extreme of extremes is the same"),
    (r"parallel/same_parameters(_impl)?\.hpp", "compares parameters, which are the same"),
    (r"pipeline/loss_check_impl\.hpp", "all ranks find the loss to be a sum"),
    (r"engine/gradient_accumulator\.hpp", "all stages have gradients of the parameter that they share"),
    (r"pipeline/unreduced_gradients\.hpp", "all ranks have the same gradients to sum"),
    (r"pipeline/trainable_parameters\.hpp", "all ranks train the same parameters"),
    (r"nn/router\.hpp:\d+ \w+ all_reduce twice", "a factor of all counts cancels"),
    (r"nn/router\.hpp:\d+ tp all_reduce left_out", "ranks of tp count the same rows, and a factor of all counts cancels"),
    (r"pipeline/stages_impl\.hpp:\d+ (?!pp )\w+ all_reduce twice", "a factor of all sums of a layer cancels: they become means, or signs of differences"),
]


def compiler(folder, source, program):
    libraries = pathlib.Path(os.environ["Kokkos_DIR"]).parent.parent
    includes = [f"-I{path}" for path in os.environ["WEFT_INCLUDES"].split(":") if path]
    return [*os.environ.get("WEFT_CXX", "g++").split(), "-std=c++20", "-O0", "-g0", "-fopenmp", "-DWEFT_PROVE_IN_DOUBLE", f"-I{folder}", f"-I{HERE}", *includes, str(source), "-o", str(program), f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lkokkoscore", "-ldnnl", "-lz", "-ldl", "-lpthread"]


def prove(program, name, ranks, mutation="", reached=""):
    """(outcome, text): "agrees", "found", "refused" by an error of weft, or "crashed"."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WEFT_PROVE")}
    environment |= {"WEFT_PROVE": str(ranks), "WEFT_PROVE_PROCESSES": "1", "WEFT_PROVE_LAYOUT_SECONDS": "60", "OMP_PROC_BIND": "false", "OMP_WAIT_POLICY": "passive"}
    environment |= {key: value for key, value in (("WEFT_MUTATION", mutation), ("WEFT_MUTATIONS_REACHED", reached)) if value}
    done = subprocess.run([str(program), name], capture_output=True, text=True, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("prove: differs", "prove: fails", "prove: NOT"))]
    if done.returncode == 0 and "prove: proven" in done.stdout:
        return "agrees", ""
    return ("found" if lines else "refused" if "weft:" in done.stderr else "crashed"), (lines or [done.stderr.strip() or f"ended with {done.returncode}"])[0]


def reason_of(mutation):
    return next((reason for pattern, reason in EQUIVALENT if re.match(pattern, mutation)), "")


def mutations_of(program, name, ranks):
    with tempfile.NamedTemporaryFile(mode="r") as reached:
        outcome, text = prove(program, name, ranks, reached=reached.name)
        if outcome != "agrees":
            sys.exit(f"failed: {program.name}/{name} without a mutation: {text}")
        return sorted(set(reached.read().splitlines()))


def outcome_of(program, name, mutation):
    """With 2 ranks first: most mutations are found in those few layouts."""
    outcome, text = prove(program, name, 2, mutation)
    return prove(program, name, 4, mutation) if outcome == "agrees" and not reason_of(mutation) else (outcome, text)


def main():
    start, chosen = time.time(), sys.argv[1:] or ([] if os.environ.get("WEFT_TEST_LONG") == "1" else [next(iter(PROGRAMS))])
    keep = os.environ.get("WEFT_MUTATIONS_FOLDER")
    with tempfile.TemporaryDirectory(prefix="weft_mutations_") as temporary:
        folder = pathlib.Path(keep or temporary)
        print(f"{mutate.mutate(ROOT / 'include', folder)} places", flush=True)
        rows = []
        for source, names in PROGRAMS.items():
            wanted = [name for name in names if not chosen or source in chosen or f"{source}/{name}" in chosen]
            if not wanted:
                continue
            program = folder / source
            if not keep or not program.exists():
                subprocess.run(compiler(folder, HERE / f"{source}.cpp", program), check=True)
            print(f"{source}: compiled after {time.time() - start:.0f} s", flush=True)
            for name in wanted:
                known = {row[1] for row in rows if row[2] != "agrees" or reason_of(row[1])}  # others may be found by another program
                left = [one for one in mutations_of(program, name, 4) if one not in known]
                with concurrent.futures.ThreadPoolExecutor(2) as pool:
                    for mutation, (outcome, text) in zip(left, pool.map(lambda one: outcome_of(program, name, one), left)):
                        rows.append((f"{source}/{name}", mutation, outcome, text))
                        print(f"{source}/{name} | {mutation} | {outcome} | {reason_of(mutation) if outcome == 'agrees' else text[:200]}", flush=True)
        found = {row[1] for row in rows if row[2] not in ("agrees", "crashed")}
        missed = [row for row in rows if row[1] not in found and (row[2] == "crashed" or not reason_of(row[1]))]
        wrong = [row for row in rows if row[2] != "agrees" and reason_of(row[1])]
        all_missed, unchanged = {row[1] for row in missed}, {row[1] for row in rows if row[2] == "agrees" and reason_of(row[1])}
        print(f"{len(found)} of {len(found | all_missed)} mutations found, {len(unchanged)} change nothing, after {time.time() - start:.0f} s")
        for row in missed + wrong:
            print("failed:", " | ".join(row))
        sys.exit(1 if missed or wrong or not rows else 0)


main()
