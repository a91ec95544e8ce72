# SPDX-License-Identifier: Apache-2.0
"""The figures of docs/reliability.md: runs the tests that reach them, in their long forms, and prints a table.

    ./bench/run reliability [--short] [--json FILE] [FIGURE...]        --short: as long as in the tests

Each row is a test of CTest; its environment is CTest's, its time limit is not. A line "figure N: ..." of its output is the
figure that it reached."""
import argparse
import json
import os
import re
import subprocess
import sys
import time

# figure, test of CTest, what it needs to be built, arguments of the long form, environment of the long form, what is wanted
RUNS = "WEFT_TEST_RUNS"
ROWS = [
    (1, "comm/failure", "test_comm_failure", [], {}, "1,000 runs; all ranks end within 2 s with the first error"),
    (1, "comm/kills", "program_meeting", ["--runs", "1000"], {}, "1,000 runs; 0 hangs; every other rank ends within 2 s and names the lost one"),
    (2, "examples/restarts", "04_train_gpt", ["--runs", "200"], {}, "200 runs killed again and again; the same state bit for bit; back within 5 s (figure 20)"),
    (3, "checkpoint/resume", "test_checkpoint_resume", [], {"WEFT_TEST_LONG": "1"}, "24 layouts resumed; every byte of the state equal"),
    (4, "checkpoint/crashes", "test_checkpoint_crashes", [], {}, "a save ends at its k-th call, for every k; a load gives exactly old or new"),
    (5, "checkpoint/damage", "test_checkpoint_damage", [], {RUNS: "10000", "WEFT_TEST_LONG": "1"}, "every length, 10,000 random cuts; a typed error for all"),
    (7, "fuzz/fuzz", "", ["--runs", "100000000"], {}, "100 million executions each; 0 findings"),
    (8, "checkpoint/reference", "program_read_files", ["100000"], {}, "100,000 mutated files; 0 accepted that the reference rejects"),
    (9, "comm/disagree", "program_disagree", ["--long"], {}, "all ordered pairs found within 1 s; both ranks and calls named"),
    (9, "comm/mismatch", "test_comm_mismatch", [], {}, "the same among thread ranks, in the suite"),
    (10, "mesh/layout", "test_mesh_layout", [], {RUNS: "8"}, "all layouts that do not divide are refused, with the axis"),
    (11, "mesh/rank_order", "test_mesh_rank_order", [], {}, "9,000 partitions equal to the oracle's"),
    (12, "optim/optimizer", "test_optim_optimizer", [], {RUNS: "4"}, "1,000 spoilt gradients; every rank skips the step, no bit changes"),
    (14, "examples/stops", "04_train_gpt", ["--runs", "500"], {}, "500 random moments; one checkpoint, exit code 130; killed and resumed: the same losses"),
    (15, "checkpoint/between_mpi_mpi2", "test_checkpoint_between_mpi", [], {}, "saved by threads and loaded by MPI processes, and the other way round, bitwise"),
    (15, "checkpoint/between_mpi_mpi4", "test_checkpoint_between_mpi", [], {}, "the same, 4 processes"),
    (16, "parallel/parity_gpt", "test_parallel_parity_gpt", [], {RUNS: "100"}, "100 steps in every layout; 1e-12 in double, 1e-5 in float"),
    (17, "examples/launchers", "04_train_gpt", [], {RUNS: "100"}, "100 repeats; the same bits over threads, MPI and TCP"),
    (18, "checkpoint/soak", "test_checkpoint_soak", [], {RUNS: "2000"}, "2,000 failures in one process; the bits of an undisturbed run; memory within 1 %, as many descriptors and threads"),
    (19, "comm/hostile_store", "program_meeting", ["--connections", "10000"], {}, "10,000 connections; 0 believed; the job at most 1 % slower"),
    (21, "comm/thread_sanitizer", "program_sanitized_comm", ["1000"], {}, "1,000 iterations; 0 reports"),
    (22, "comm/misuse", "program_meeting", [], {}, "all cases end with a typed error"),
    (23, "elastic/run", "test_elastic_run", [], {RUNS: "1000"}, "1,000 kills and joins of thread ranks; the bits of an undisturbed run"),
    (23, "elastic/processes", "program_elastic", ["--kills", "1000"], {}, "1,000 processes killed and started again; the bits of an undisturbed run; the next step within 2 s"),
    (25, "parallel/recheck", "test_parallel_recheck", [], {"WEFT_TEST_LONG": "1"}, "1,000 flipped bits in one product of one rank; all found, the rank named"),
    (0, "comm/deadlock", "test_comm_deadlock", [], {RUNS: "10000"}, "1,000 runs of right programs; 0 accused"),
]

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--short", action="store_true")
parser.add_argument("--json")
parser.add_argument("figures", nargs="*", type=int)
options = parser.parse_args()
ALSO = {"checkpoint/resume": [15], "checkpoint/damage": [6], "checkpoint/crashes": [13]}  # further figures that a row's test reaches
rows = [row for row in ROWS if not options.figures or {row[0], *ALSO.get(row[1], [])} & set(options.figures)]


def known_tests():
    shown = subprocess.run(["ctest", "--test-dir", options.build, "--show-only=json-v1"], capture_output=True, text=True)
    tests = json.loads(shown.stdout)["tests"] if shown.returncode == 0 else []
    return {test["name"]: test for test in tests}


def build(targets):
    """Builds the targets that exist; those that do not compile are not measured."""
    for target in sorted(targets):
        done = subprocess.run(["cmake", "--build", options.build, "--parallel", os.environ.get("WEFT_JOBS", str(os.cpu_count())), "--target", target],
                              capture_output=True, text=True)
        if done.returncode:
            print(f"{target} is not built: {done.stdout[-300:]}", file=sys.stderr)


def run(test, arguments, environment):
    """The figures that the test printed, whether it passed, and its seconds."""
    properties = {p["name"]: p["value"] for p in test.get("properties", [])}
    own = dict(entry.split("=", 1) for entry in properties.get("ENVIRONMENT", []))
    started = time.monotonic()
    done = subprocess.run([*test["command"], *arguments], env=os.environ | own | {"WEFT_TEST_DEADLINE_S": "7200"} | environment,
                          capture_output=True, text=True, errors="replace", cwd=properties.get("WORKING_DIRECTORY"))
    lines = [line for line in (done.stdout + done.stderr).splitlines() if re.match(r"(figure \d+|disagree|deadlock): ", line)]
    if done.returncode not in (0, 77):
        print((done.stdout + done.stderr)[-4000:], file=sys.stderr)
    state = {0: "reached", 77: "skipped"}.get(done.returncode, f"FAILED ({done.returncode})")
    return lines, state, time.monotonic() - started


build({row[2] for row in rows if row[2]})
tests, table, good = known_tests(), [], True
for figure, name, _, arguments, environment, wanted in rows:
    entry = {"figure": figure, "test": name, "wanted": wanted, "reached": [], "state": "not measured", "seconds": 0}
    if name in tests and tests[name].get("command"):
        lines, entry["state"], entry["seconds"] = run(tests[name], [] if options.short else arguments, {} if options.short else environment)
        entry["reached"] = [re.sub(rf"^(figure {figure}|disagree|deadlock): ", "", line) for line in lines]
        if figure == 12:  # each case prints what all before it reached, too
            entry["reached"] = entry["reached"][-1:]
        good = good and not entry["state"].startswith("FAILED")
    table.append(entry)
    print(f"figure {figure or '-'}: {name}: {entry['state']}, {entry['seconds']:.0f} s", file=sys.stderr, flush=True)

print("| figure | wanted | reached | test | s |\n|---|---|---|---|---|")
for entry in table:
    reached = "; ".join(entry["reached"]) or "passed"
    text = reached if entry["state"] == "reached" else f"{entry['state']}: {reached}" if entry["reached"] else entry["state"]
    print(f"| {entry['figure'] or 'deadlock'} | {entry['wanted']} | {text} | `{entry['test']}` | {entry['seconds']:.0f} |")
if options.json:
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump(table, file, indent=1)
sys.exit(0 if good else 1)
