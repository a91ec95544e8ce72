#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The code of docs/guide.md compiles as one program, and each of its functions of a World runs on four ranks, and is rehearsed. A
block that is marked as a program, one that owns MPI, is compiled by itself, runs under mpirun, and is rehearsed."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
text = (ROOT / "docs/guide.md").read_text()

missing = [link for link in re.findall(r"\]\(([^):#]*)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)) if not (ROOT / "docs" / link).exists()]
if missing:
    sys.exit("the guide names what is not there: " + ", ".join(missing))

code = "\n".join(re.findall(r"```cpp\n(.*?)```", text, re.DOTALL) + re.findall(r"```cpp main\n(.*?)```", text, re.DOTALL)).replace("int main(", "int its_main(")
includes = ["#include <weft/runtime/rehearse.hpp>", *sorted(set(re.findall(r"#include .*", code)))]
code = re.sub(r"#include .*", "", code)
functions = re.findall(r"^void (\w+)\(World& ", code, re.MULTILINE)
if len(functions) < 7:
    sys.exit(f"the guide has {len(functions)} functions of a World; is the pattern right?")
calls = " ".join(f'if (only.empty() || only == "{name}") {name}(world);' for name in functions)
main = f"""int main(int argc, char** argv) {{
  const std::string only = argc > 1 ? argv[1] : "";
  return run<comm::Threads>(RunOptions{{.ranks = 4, .threads_per_rank = 1}}, [&](World& world) {{ {calls} }});
}}"""
libraries = pathlib.Path(os.environ["Kokkos_DIR"]).parent.parent
if not any((libraries / f"libkokkoscore.{kind}").exists() for kind in ("so", "a")):
    print(f"skipped: libkokkoscore is not in {libraries}")
    sys.exit(77)
programs = re.findall(r"```cpp program\n(.*?)```", text, re.DOTALL)
if len(programs) != 1:
    sys.exit(f"the guide has {len(programs)} whole programs; is the pattern right?")


def build(source, program, libraries_of_mpi=()):
    paths = [flag for path in os.environ["WEFT_INCLUDES"].split(":") if path for flag in ("-isystem", path)]
    command = [os.environ["WEFT_CXX"], "-std=c++20", "-fopenmp", "-Wall", "-Wextra", "-I", str(ROOT / "include"), *paths, str(source), "-o", str(program),
               f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lkokkoscore", "-ldnnl", "-ldl", *libraries_of_mpi]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or "warning:" in done.stderr:
        sys.exit("the guide's code does not compile as it should:\n" + done.stderr[:4000])


with tempfile.TemporaryDirectory(prefix="weft_guide_") as folder:
    source, program = pathlib.Path(folder) / "guide.cpp", pathlib.Path(folder) / "guide"
    source.write_text("\n".join([*includes, code, main]))
    (pathlib.Path(folder) / "corpus.txt").write_text(text)   # the text on which its first example trains
    build(source, program)
    done = subprocess.run([program], capture_output=True, text=True, timeout=120, env=os.environ | {"OMP_PROC_BIND": "false"}, cwd=folder)
    print(done.stdout, done.stderr)
    if done.returncode:
        sys.exit(done.returncode)
    for name in functions:
        done = subprocess.run([program, name], capture_output=True, text=True, timeout=120, env=os.environ | {"OMP_PROC_BIND": "false", "WEFT_REHEARSE": "4"}, cwd=folder)
        if done.returncode or "rehearsal of " not in done.stdout:
            sys.exit(f"{name} is not rehearsed: {done.returncode}, {done.stdout[-2000:]}, {done.stderr}")
    mpi = [library for library in os.environ.get("WEFT_MPI_LIBRARIES", "").split(":") if library]
    for whole in programs if mpi else []:
        source.write_text("#include <weft/runtime/rehearse.hpp>\n" + whole)
        build(source, program, mpi)
        done = subprocess.run([os.environ["WEFT_MPIRUN"], "2", program], capture_output=True, text=True, timeout=120, env=os.environ | {"OMP_NUM_THREADS": "1"})
        print(done.stdout, done.stderr)
        losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", done.stdout)]
        if done.returncode or len(losses) != 2 or not losses[1] < losses[0]:
            sys.exit("the guide's program that owns MPI does not train")
        done = subprocess.run([os.environ["WEFT_MPIRUN"], "1", program], capture_output=True, text=True, timeout=120, env=os.environ | {"OMP_NUM_THREADS": "1", "WEFT_REHEARSE": "64"})
        if done.returncode or "rehearsal of rank 0, which stands for all 64\n" not in done.stdout:
            sys.exit(f"the guide's program that owns MPI is not rehearsed: {done.returncode}, {done.stdout[-2000:]}, {done.stderr}")
