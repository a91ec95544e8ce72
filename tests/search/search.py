#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The random search for programs that compile, run and train something else than one rank.

  search.py --seeds 0-79 --folder FOLDER          # half of the programs right, half with a mistake each, on 50 layouts each
  search.py --seeds 7 --mistakes to_dropped_backward

Each program is compiled once and run on the layouts of harness.hpp. A program without a mistake must compile, and equal one rank wherever it
runs; one with a mistake may be refused by the compiler or when it runs, or be right after all. Findings are differences, and right
programs that are refused: exit code 1. Results are kept in FOLDER/results.csv, from which a search goes on; --table prints them.
WEFT_SOURCE, WEFT_CXX, WEFT_INCLUDES and Kokkos_DIR are as in the tests (tests/CMakeLists.txt)."""
import argparse
import collections
import concurrent.futures
import csv
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(os.path.abspath(__file__)).parent
sys.path.insert(0, str(HERE))
import generate  # noqa: E402


class Compiler:
    """Compiles programs at -O0 with harness and parts precompiled."""

    def __init__(self, folder, jobs_flags=()):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        includes = [flag for path in os.environ["WEFT_INCLUDES"].split(":") if path for flag in ("-isystem", path)]
        self.libraries = pathlib.Path(os.environ["Kokkos_DIR"]).parent.parent
        self.command = [os.environ.get("WEFT_CXX", "g++"), "-std=c++20", "-O0", "-w", "-fopenmp", "-I", str(HERE.parent.parent / "include"), "-I", str(HERE.parent), *includes, *jobs_flags]
        header = self.folder / "precompiled.hpp"
        header.write_text('#include "search/parts.hpp"\n')
        done = subprocess.run([*self.command, "-x", "c++-header", str(header), "-o", f"{header}.gch"], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr[:4000])
        self.command += ["-include", str(header)]

    def compile(self, text, name):
        """The program's path, or None and the compiler's first error."""
        source, program = self.folder / f"{name}.cpp", self.folder / name
        source.write_text(text)
        done = subprocess.run([*self.command, str(source), "-o", str(program), f"-L{self.libraries}", f"-Wl,-rpath,{self.libraries}", "-lkokkoscore", "-ldnnl", "-ldl"], capture_output=True, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error:" in line]
            own = [line for line in errors if "weft:" in line]
            return None, re.sub(r".*error: (static assertion failed: )?", "", (own or errors or ["?"])[0])
        return program, ""


def outcomes(program, name, count, first=0, deadline=600):
    """[(layout, outcome)] of a compiled program."""
    environment = os.environ | {"OMP_PROC_BIND": "false", "OMP_WAIT_POLICY": "passive"}
    try:
        done = subprocess.run([str(program), str(count), str(first)], capture_output=True, text=True, timeout=deadline, env=environment)
        out, ended = done.stdout, "" if done.returncode in (0, 1) else f"ended with {done.returncode}: {done.stderr[-300:]}"
    except subprocess.TimeoutExpired as expired:
        out, ended = (expired.stdout or b"").decode(), f"did not end within {deadline} s"
    rows = [tuple(part.strip() for part in line.split(" | ", 2)[1:]) for line in out.splitlines() if line.startswith(name + " | ")]
    if ended:
        rows.append(("?", ended))
    return rows


def kind_of(outcome):
    return outcome.split(":")[0].split(" ")[0]


def table(rows):
    """Programs and compositions by mistake; the findings."""
    by_mistake, findings, compositions, programs = collections.defaultdict(collections.Counter), [], set(), set()
    for name, layout, outcome in rows:
        mistake = name.split("-", 1)[1]
        programs.add(name)
        kind = kind_of(outcome)
        by_mistake[mistake][kind] += 1
        compositions.add((name, layout)) if layout not in ("compiler", "one rank", "?") else None
        if kind == "DIFFERS" or (mistake == "right" and kind != "equal") or kind == "ended":
            findings.append((name, layout, outcome))
    kinds = ["compiler", "refused", "equal", "DIFFERS"]
    print(f"{len(programs)} programs, {len(compositions)} (model, layout) compositions")
    print(f"{'mistake':36}" + "".join(f"{kind:>10}" for kind in kinds) + "   other")
    for mistake, counter in sorted(by_mistake.items()):
        print(f"{mistake:36}" + "".join(f"{counter[kind]:10}" for kind in kinds) + "   " + " ".join(f"{k}:{v}" for k, v in counter.items() if k not in kinds))
    print(f"{len(findings)} findings")
    for name, layout, outcome in findings:
        print(f"  {name} | {layout} | {outcome[:300]}")
    return findings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-79")
    parser.add_argument("--mistakes", nargs="*", choices=[*generate.MISTAKES, "right"], help="one for each seed, in turn; without: every other program is right, and the others have each mistake in turn")
    parser.add_argument("--layouts", type=int, default=1000, help="of the list, for a program without a mistake")
    parser.add_argument("--layouts-of-mistakes", type=int, default=20)
    parser.add_argument("--runners", type=int, default=1, help="programs that run at the same time, beside the compiler")
    parser.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "weft_search"))
    parser.add_argument("--table", action="store_true", help="only print what results.csv has")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    folder = pathlib.Path(arguments.folder)
    results = folder / "results.csv"
    rows = [tuple(row) for row in csv.reader(results.open())] if results.exists() else []
    if not arguments.table:
        compiler, done = Compiler(folder), {row[0] for row in rows}
        with results.open("a", newline="") as file, concurrent.futures.ThreadPoolExecutor(arguments.runners) as runner:
            writer, running = csv.writer(file), []

            def take(name, seconds, binary, new, start):
                rows.extend((name, *row) for row in new)
                writer.writerows((name, *row) for row in new)
                file.flush()
                if binary:
                    binary.unlink()
                print(f"{name}: compiled in {seconds:.0f} s, done in {time.time() - start:.0f} s: "
                      + ", ".join(f"{count} {kind}" for kind, count in collections.Counter(kind_of(outcome) for _, outcome in new).items())
                      + next((" | " + layout + " | " + outcome[:200] for layout, outcome in new if kind_of(outcome) != "equal"), ""), flush=True)

            for seed in range(int(first), int(last or first) + 1):
                mistake = arguments.mistakes[(seed - int(first)) % len(arguments.mistakes)] if arguments.mistakes else ("right" if seed % 2 == 0 else generate.MISTAKES[seed // 2 % len(generate.MISTAKES)])
                program = generate.Program(seed, mistake)
                if program.name in done:
                    continue
                start = time.time()
                binary, error = compiler.compile(program.text(), program.name)
                seconds = time.time() - start
                while len(running) >= arguments.runners:  # programs run while the next compiles
                    name, before, its, future, began = running.pop(0)
                    take(name, before, its, future.result(), began)
                if binary is None:
                    take(program.name, seconds, None, [("compiler", "compiler: " + error)], start)
                else:
                    count = arguments.layouts if mistake == "right" else arguments.layouts_of_mistakes
                    running.append((program.name, seconds, binary, runner.submit(outcomes, binary, program.name, count), start))
            for name, before, its, future, began in running:
                take(name, before, its, future.result(), began)
    sys.exit(1 if table(rows) else 0)


if __name__ == "__main__":
    main()
