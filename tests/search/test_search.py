#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small part of the random search (search.py): programs of fixed seeds, on the first layouts of the list, which have every axis. Those without
a mistake must equal one rank everywhere; those with one must be refused by the compiler or when they run, or be right after all."""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import generate
import search
from share import share_of

LAYOUTS = 18
PROGRAMS = [(504, "right"), (506, "right"), (507, "right"), (509, "right"), (8, "to_dropped_backward"), (9, "gradient_without_placement")]

libraries = pathlib.Path(os.environ["Kokkos_DIR"]).parent.parent
if not any((libraries / f"libkokkoscore.{kind}").exists() for kind in ("so", "a")):
    print(f"skipped: libkokkoscore is not in {libraries}")
    sys.exit(77)

# The same seed is the same program everywhere; each mistake can be made.
one = subprocess.run([sys.executable, "-B", str(search.HERE / "generate.py"), "5"], capture_output=True, text=True, check=True).stdout
assert one == generate.Program(5).text() + "\n", "generate.py: another text the second time"
for mistake in generate.MISTAKES:
    assert generate.Program(1, mistake).text() != generate.Program(1).text(), mistake

with tempfile.TemporaryDirectory(prefix="weft_search_") as folder:
    compiler, rows = search.Compiler(folder), []
    programs = share_of(PROGRAMS, 2)
    for seed, mistake in programs:
        program = generate.Program(seed, mistake)
        binary, error = compiler.compile(program.text(), program.name)
        rows += [(program.name, *row) for row in ([("compiler", "compiler: " + error)] if binary is None else search.outcomes(binary, program.name, LAYOUTS))]
    findings = search.table(rows)
    compared = len({row[:2] for row in rows if search.kind_of(row[2]) == "equal"})
    print(f"{compared} compositions equal one rank")
    sys.exit(1 if findings or compared < 15 * sum(mistake == "right" for _, mistake in programs) else 0)
