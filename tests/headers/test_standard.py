# SPDX-License-Identifier: Apache-2.0
# covers: weft/core/standard.hpp
"""With an older standard than C++20 the compiler's first error gives this reason, whichever header of weft is included first: every
header comes to core/standard.hpp before any other text of weft, since those that include no other header of weft include that
one."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

INCLUDE = pathlib.Path(__file__).resolve().parent.parent.parent / "include"
FIRST = "weft/core/standard.hpp"
ENTRIES = ["weft/weft.hpp", "weft/runtime/run.hpp", "weft/core/error.hpp"]
EXPECTED = "weft: needs C++20 or newer: compile with -std=c++20"
bare = {FIRST, "weft/core/version.hpp"}  # macros alone, for any language

without = []
for header in sorted(INCLUDE.glob("weft/**/*.hpp")):
    name = str(header.relative_to(INCLUDE))
    if name not in bare and not re.search(r"^#include [<\"]weft/(?!core/version)", header.read_text(), re.MULTILINE):
        without.append(name)
if without:
    sys.exit(f"these headers include no other header of weft, so each must include <{FIRST}>: " + ", ".join(without))

paths = [flag for path in os.environ["WEFT_INCLUDES"].split(":") if path for flag in ("-isystem", path)]
with tempfile.TemporaryDirectory(prefix="weft_standard_") as folder:
    source = pathlib.Path(folder) / "program.cpp"
    omp = subprocess.run(["g++", "-print-file-name=include/omp.h"], capture_output=True, text=True).stdout.strip()
    if os.path.isfile(omp):
        shutil.copy(omp, folder)  # clang comes without
    for compiler in filter(None, (os.environ.get("WEFT_CXX", "g++"), shutil.which("clang++-14"))):
        for header in ENTRIES:
            source.write_text(f"#include <{header}>\nint main() {{}}\n")
            command = [compiler, "-std=c++17", "-fopenmp", "-fsyntax-only", "-w", "-Wfatal-errors", "-I", str(INCLUDE), *paths, "-idirafter", folder, str(source)]
            done = subprocess.run(command, capture_output=True, text=True)
            errors = re.findall(r"(?:error|warning): (.*)", done.stderr)
            if done.returncode == 0 or not errors or EXPECTED not in errors[0]:
                sys.exit(f"{' '.join(command)}\nits first error should say '{EXPECTED}':\n{done.stderr[:3000]}")
            print(f"{compiler}, {header}: {errors[0]}")
