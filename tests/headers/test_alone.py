# SPDX-License-Identifier: Apache-2.0
"""Each header compiles alone: as the first and only header of a program, one after another.

Most of the compile time of such a program is Kokkos, the same in each, so headers that come to Kokkos get it precompiled. That
hides nothing but its place among a header's includes; the headers that do not come to Kokkos are compiled with nothing before them.
They are taken as weft::compiled takes them: foo_impl.hpp, which only it leaves out, lends foo.hpp no include.

All of them cost twelve minutes of a slow core. So a run takes a sixth, which the commit selects; WEFT_TEST_LONG=1 takes all.

    python3 tests/headers/test_alone.py [HEADER...]       by hand, with WEFT_INCLUDES as support/environment.sh has it
"""
import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from share import share_of

INCLUDE = pathlib.Path(__file__).resolve().parent.parent.parent / "include"
COMPILER = os.environ.get("WEFT_CXX", "g++")
folders = [path for name in ("WEFT_INCLUDES", "WEFT_NCCL_INCLUDES") for path in os.environ.get(name, "").split(":") if path]
folders = [path for path in folders if pathlib.Path(path) != INCLUDE]


def is_here(header):
    return any((pathlib.Path(folder) / header).exists() for folder in [*folders, "/usr/include"])


# The foreign headers that a backend needs; if they are not installed, the backend's headers are left out.
NEEDS = {"weft/comm/nccl": "nccl.h", r"weft/(\w+/)?cuda": "cuda_runtime.h", "weft/kernels/cudnn": "cudnn.h", "weft/comm/mpi": "mpi.h",
         "weft/(checkpoint|elastic|hugging_face|c_interface)": "xxhash.h", "weft/c_interface/mpi": "mpi.h", "weft/hugging_face/tokenizer": "utf8proc.h",
         "weft/data/hdf5": "hdf5.h", "weft/mesh/metis": "metis.h"}


@functools.cache
def included(header):
    return re.findall(r"^[ \t]*#[ \t]*include <(weft/[^>]*|Kokkos_Core.hpp)>", (INCLUDE / header).read_text(), re.MULTILINE)


def comes_to_kokkos(header):
    known, left = {header}, [header]
    while left:
        for name in included(left.pop()):
            if name == "Kokkos_Core.hpp":
                return True
            if name not in known:
                known.add(name)
                left.append(name)
    return False


def main():
    absent = [place for place, needed in NEEDS.items() if not is_here(needed)]
    # name_impl.hpp is compiled after name.hpp, where weft is header-only and in src/.
    headers = sorted(str(path.relative_to(INCLUDE)) for path in INCLUDE.glob("weft/**/*.hpp") if not path.name.endswith("_impl.hpp"))
    headers = [header for header in headers if not any(re.match(rf"{place}[./_]", header) for place in absent)]
    if len(headers) < 250:
        sys.exit(f"only {len(headers)} headers: is the list right?")
    headers = sys.argv[1:] or share_of(headers, 6)
    flags = ["-std=c++20", "-DWEFT_COMPILED", "-fopenmp", "-fsyntax-only", "-Wall", "-Wextra", "-I", str(INCLUDE)]
    for path in folders:
        flags += ["-isystem", path]
    with tempfile.TemporaryDirectory(prefix="weft_alone_") as scratch:
        kokkos = pathlib.Path(scratch) / "kokkos.hpp"
        kokkos.write_text("#include <Kokkos_Core.hpp>\n")
        precompiled = [flag for flag in flags if flag != "-fsyntax-only"]
        subprocess.run([COMPILER, *precompiled, "-x", "c++-header", str(kokkos), "-o", f"{kokkos}.gch"], check=True)

        def wrong_with(header):
            before = ["-include", str(kokkos)] if comes_to_kokkos(header) else []
            program = f"#include <{header}>\n"
            done = subprocess.run([COMPILER, *flags, *before, "-x", "c++", "-"], input=program, capture_output=True, text=True)
            return f"{header}:\n{done.stderr}" if done.returncode or "warning: " in done.stderr else None

        # A check that cannot fail is none: this one is to find a name that nothing declares.
        undeclared = subprocess.run([COMPILER, *flags, "-include", str(kokkos), "-x", "c++", "-"], input="weft::Tensor<float, 2> t;\n", capture_output=True, text=True)
        if undeclared.returncode == 0:
            sys.exit("a program that includes none of weft knows weft::Tensor: what is precompiled hides what headers lack")
        wrong = [found for found in map(wrong_with, headers) if found]
    print(f"{len(headers)} headers, {sum(map(comes_to_kokkos, headers))} of them come to Kokkos")
    if wrong:
        sys.exit("do not compile alone:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
