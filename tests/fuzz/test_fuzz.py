# SPDX-License-Identifier: Apache-2.0
"""Readers of foreign bytes, under libFuzzer with AddressSanitizer and UBSan: each program of tests/fuzz/programs for 30 s, two at a
time. It starts from the inputs that the program makes itself; an input that fails is printed in Base64, to become one of them.

    python3 tests/fuzz/test_fuzz.py [--seconds N | --runs N] [--corpus FOLDER] [NAME...]

By hand, for long: --runs 100000000, with a folder in which the inputs found so far are kept."""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=int, default=30)
parser.add_argument("--runs", type=int, default=-1)
parser.add_argument("--corpus", type=pathlib.Path)
parser.add_argument("names", nargs="*")
options = parser.parse_args()

clang = shutil.which("clang++-14") or shutil.which("clang++")
if clang is None:
    print("skipped: clang is not installed")
    sys.exit(77)
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft_fuzz_"))
includes = []
for folder in filter(None, os.environ.get("WEFT_INCLUDES", "").split(":")):
    includes += ["-isystem", folder] if pathlib.Path(folder) != ROOT / "include" else []
# clang comes without omp.h; gcc's declares what Kokkos' header calls. No program here starts OpenMP.
omp = subprocess.run(["g++", "-print-file-name=include/omp.h"], capture_output=True, text=True).stdout.strip()
if os.path.isfile(omp):
    (scratch / "omp.h").write_text(re.sub(r"__malloc__ \([^()]*\)", "__malloc__", pathlib.Path(omp).read_text()))
flags = ["-std=c++20", "-D_OPENMP=201511", "-Wall", "-Wextra", "-O1", "-g1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all",
         "-I", str(ROOT / "include"), "-I", str(ROOT / "tests"), *includes, "-idirafter", str(scratch)]


# Programs that read into weft's models include Kokkos.
kokkos = pathlib.Path(os.environ.get("Kokkos_DIR", "/nowhere")).parent.parent
libraries = ["-Wl,--as-needed", f"-Wl,-rpath,{kokkos}", *map(str, sorted(kokkos.glob("libkokkoscore.*"))), "-lpthread"]


def fuzz(name):
    """A line of figures, and whether nothing was found."""
    program, corpus = scratch / name, (options.corpus or scratch) / f"{name}_corpus"
    source = HERE / "programs" / f"{name}.cpp"
    links = re.search(r"^// links: (.*)", source.read_text(), re.MULTILINE)
    wanted = links[1].split() if links else []
    if wanted:
        (scratch / f"{name}_links.cpp").write_text("int main() {}\n")
        if subprocess.run([clang, str(scratch / f"{name}_links.cpp"), "-o", str(scratch / f"{name}_links"), *wanted], capture_output=True).returncode:
            return f"left out: {name}, there is no {' '.join(wanted)}", True
    built = subprocess.run([clang, *flags, str(source), "-o", str(program), *libraries, *wanted], capture_output=True, text=True)
    if built.returncode:
        return f"fuzz: {name} does not compile:\n{built.stderr[:4000]}", False
    corpus.mkdir(parents=True, exist_ok=True)
    limit = [f"-runs={options.runs}"] if options.runs >= 0 else [f"-max_total_time={options.seconds}"]
    # No input may make one allocation of more than 64 MiB, or take 5 s.
    done = subprocess.run([str(program), *limit, "-max_len=4096", "-timeout=5", "-malloc_limit_mb=64", "-print_final_stats=1", str(corpus)],
                          capture_output=True, text=True, errors="replace", cwd=scratch, env=os.environ | {"WEFT_FUZZ_SEEDS": str(corpus)})
    ran = re.search(r"Done (\d+) runs in (\d+) second", done.stderr)
    peak = re.search(r"peak_rss_mb:\s+(\d+)", done.stderr)
    if done.returncode or ran is None or int(ran[1]) == 0:
        return f"fuzz: {name} returned {done.returncode}\n" + done.stderr[-4000:], False
    return f"figure 7: {ran[1]} executions of {name} ({ran[2]} s, at most {peak[1] if peak else '?'} MiB), 0 findings", True


names = options.names or sorted(path.stem for path in (HERE / "programs").glob("*.cpp"))
if not names:
    sys.exit("no programs")
probe = scratch / "probe.cpp"  # it must find a mistake that is there, or it finds none at all
probe.write_text('#include <cstdint>\n#include <cstddef>\nextern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) '
                 '{ volatile char x[4] = {}; return size > 4 && data[4] == 0 ? x[size] * 0 : 0; }\n')
if subprocess.run([clang, *flags, str(probe), "-o", str(scratch / "probe")], capture_output=True).returncode:
    print("skipped: this clang has no libFuzzer")
    sys.exit(77)
if subprocess.run([str(scratch / "probe"), "-runs=10000"], capture_output=True, cwd=scratch).returncode == 0:
    sys.exit("a read past the end of an array was not found: the sanitizer does nothing here")
good = True
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for text, passed in pool.map(fuzz, names):
        print(text, flush=True)
        good = good and passed
shutil.rmtree(scratch, ignore_errors=True)
sys.exit(0 if good else 1)
