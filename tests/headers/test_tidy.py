# SPDX-License-Identifier: Apache-2.0
"""The checks of .clang-tidy hold: on every header as it stands, and on the templates that a training program in three wrappers
instantiates. For tests, examples and your own programs: clang-tidy-14 FILE -- FLAGS.

    ctest --test-dir build/release -R headers/tidy -V
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
INCLUDE = ROOT / "include"

tidy = next(filter(None, map(shutil.which, ("clang-tidy-14", "clang-tidy"))), None)
if tidy is None:
    print("skipped: clang-tidy is not installed (Debian: clang-tidy-14)")
    sys.exit(77)
folders = [path for path in os.environ["WEFT_INCLUDES"].split(":") if path and pathlib.Path(path) != INCLUDE]


def is_here(header):
    return any((pathlib.Path(folder) / header).exists() for folder in [*folders, "/usr/include"])


def check(source, *flags):
    started = time.monotonic()
    command = [tidy, "--quiet", f"--config-file={ROOT}/.clang-tidy", str(source), "--", "-std=c++20", "-fopenmp", *flags, "-I", str(INCLUDE)]
    for path in folders:
        command += ["-isystem", path]
    done = subprocess.run([*command, "-idirafter", str(folder)], capture_output=True, text=True)
    found = sorted(set(re.findall(r"^.*(?:error|warning): .*$", done.stdout, re.MULTILINE)))
    print(f"{source}: {len(found)} findings ({time.monotonic() - started:.0f} s)")
    if done.returncode and not found:
        sys.exit(done.stderr)
    return found


with tempfile.TemporaryDirectory(prefix="weft_tidy_") as scratch:
    folder = pathlib.Path(scratch)
    omp = subprocess.run(["g++", "-print-file-name=include/omp.h"], capture_output=True, text=True).stdout.strip()
    if os.path.isfile(omp):
        shutil.copy(omp, folder)  # clang comes without
    wrong = folder / "wrong.cpp"
    wrong.write_text("struct A { virtual void f(); virtual ~A(); };\nstruct B : A { virtual void f(); };\n")
    if not any("modernize-use-override" in line for line in check(wrong)):
        sys.exit("clang-tidy does not do what .clang-tidy says: it misses a function that overrides and does not say so")
    # Backends' headers where their libraries are.
    absent = [name for name, header in (("nccl", "nccl.h"), ("cud[an]", "cuda_runtime.h"), ("mpi", "mpi.h"), ("(checkpoint|elastic|c_interface)", "xxhash.h"), ("hugging_face/tokenizer", "utf8proc.h"), ("data/hdf5", "hdf5.h"), ("mesh/metis", "metis.h")) if not is_here(header)]
    headers = [str(path.relative_to(INCLUDE)) for path in sorted(INCLUDE.glob("weft/**/*.hpp"))]
    headers = [header for header in headers if not any(re.search(name, header) for name in absent)]
    if len(headers) < 150:
        sys.exit(f"only {len(headers)} headers: is the list right?")
    every = folder / "every_header.cpp"
    every.write_text("".join(f"#include <{header}>\n" for header in headers))
    found = check(every) + check(ROOT / "bench/compile_time/program.cpp", "-DDEPTH=3")
if found:
    sys.exit("\n".join(found))
