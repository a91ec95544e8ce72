#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compile time and peak memory of the compiler for a training program in 0 to 3 wrappers, medians of interleaved runs: header-only, with
weft::compiled, with weft::compiled and a precompiled header, and in turns with them, with --beside DIR, of another checkout, header-only, and, with
--libtorch, of a program of two layers in libtorch; then the object code of layers that know an axis, compiled without it, beside that of a layer that does not know it.

Time is the compiler's processor time (user and system): it differs from wall time only where other programs run. Instructions,
where perf counts them, do not depend on other programs.
"""
import argparse
import collections
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
BUDGET_FULL_S, BUDGET_LEVEL_S = 8.0, 0.7


def cache(build):
    return dict(re.findall(r"^([\w.-]+):\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE))


def flags_of(build):
    """The compiler and its options, as the build itself gives them for a program."""
    found = cache(build)
    kokkos = pathlib.Path(found["Kokkos_DIR"]).parents[2]
    include = next(p for p in (kokkos / "include/kokkos", kokkos / "include") if (p / "Kokkos_Core.hpp").exists())
    flags = ["-std=c++20", "-O2", "-march=native", "-fopenmp", "-I", str(SOURCE / "include"), "-isystem", str(include)]
    if found.get("oneDNN_INCLUDE_DIR", "/usr/include") != "/usr/include":
        flags += ["-isystem", found["oneDNN_INCLUDE_DIR"]]
    return found["CMAKE_CXX_COMPILER"], flags


def counts_instructions():
    try:
        return subprocess.run(["perf", "stat", "-x,", "-e", "instructions:u", "true"], capture_output=True, text=True).stderr.split(",")[0].isdigit()
    except OSError:
        return False


def compile_once(command, perf=False):
    """Seconds of processor time, peak memory in MB and billions of instructions (or None), of the driver and the compiler that it starts."""
    if perf:
        with tempfile.NamedTemporaryFile("r", suffix=".csv") as counted:
            seconds, peak, _ = compile_once(["perf", "stat", "-x,", "-e", "instructions:u", "-o", counted.name, *command])
            return seconds, peak, float(next(line for line in counted if "instructions" in line).split(",")[0]) / 1e9
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "CCACHE_DISABLE": "1"})
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"error: {' '.join(command)}\n{errors}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, None


FULL = "DataParallel<TensorParallel<PipelineParallel>>"


def modes(compiler, flags, folder, beside):
    """The full composition in each way to compile it; flags name this checkout's headers."""
    output = ["-c", "-o", str(folder / "object.o"), "-DDEPTH=3", str(HERE / "program.cpp")]
    compiled = [compiler, *flags, "-DWEFT_COMPILED"]
    header = folder / "weft_precompiled.hpp"
    header.write_text("#include <weft/weft.hpp>\n")
    rows = {}
    if beside:
        of_other = [str(beside / "include") if flag == str(SOURCE / "include") else flag for flag in flags]
        rows[f"beside: {beside}"] = [compiler, *of_other, *output[:-1], str(beside / "bench/compile_time/program.cpp")]  # as its names are
    rows["weft::compiled"] = [*compiled, *output]
    precompiled = [*compiled, "-x", "c++-header", str(header), "-o", f"{header}.gch"]
    rows["weft::compiled, precompiled header"] = [*compiled, "-include", str(header), "-Winvalid-pch", "-Werror=invalid-pch", *output]
    return rows, precompiled


def programs(compiler, flags, build, folder, with_trainer):
    output = ["-c", "-o", str(folder / "object.o")]
    kokkos = folder / "kokkos.cpp"
    kokkos.write_text("#include <Kokkos_Core.hpp>\n")
    rows = {"Kokkos_Core.hpp alone": [compiler, *flags, *output, str(kokkos)]}
    names = ["weft/weft.hpp alone", "no wrapper", "DataParallel", "DataParallel<TensorParallel>", FULL]
    for depth, name in enumerate(names, start=-1):
        rows[name] = [compiler, *flags, f"-DDEPTH={depth}", *output, str(HERE / "program.cpp")]
    if with_trainer:
        listed = subprocess.run(["ninja", "-C", str(build), "-t", "commands", "04_train_gpt"], capture_output=True, text=True).stdout
        for line in listed.splitlines():
            if " -c " in line and "04_train_gpt" in line:
                words = line.split(" && ")[-1].split()
                words = words[words.index(cache(build)["CMAKE_CXX_COMPILER"]):]
                words[words.index("-o") + 1] = str(folder / "object.o")
                dependencies = [i for i, word in enumerate(words) if word in ("-MT", "-MF")]
                words = [word for i, word in enumerate(words) if word != "-MD" and not any(i in (d, d + 1) for d in dependencies)]
                source = pathlib.Path(words[-1])
                rows[f"04_train_gpt: {source.name}"] = [re.sub(r'\\"', '"', word) for word in words]
    return rows


def libtorch(compiler, folder):
    """A program of libtorch, by the headers of the package that the bench's PyTorch has."""
    package = pathlib.Path(os.environ["WEFT_LIBTORCH"])
    includes = [package / "include", package / "include/torch/csrc/api/include"]
    return {"libtorch, two layers": [compiler, "-std=c++20", "-O2", *(flag for path in includes for flag in ("-isystem", str(path))),
                                     "-c", "-o", str(folder / "object.o"), str(HERE / "libtorch.cpp")]}


def functions(path):
    """The disassembly of each function with addresses and names of symbols taken out, counted."""
    text = subprocess.run(["objdump", "-dr", "--no-show-raw-insn", str(path)], capture_output=True, text=True, check=True).stdout
    bodies = collections.Counter()
    for block in re.split(r"\n\n(?=[0-9a-f]+ <)", text)[1:]:
        lines = []
        for line in block.split("\n")[1:]:
            if "R_X86_64" in line or "R_AARCH64" in line:
                lines.append(line.split()[1])  # the kind of relocation, not the name
                continue
            code = line.split(":", 1)[-1].strip()
            lines.append(re.sub(r"<[^>]*>|\b[0-9a-f]{2,}\b(?= <)|# [0-9a-f]+.*", "", code).strip())
        bodies["\n".join(lines).strip()] += 1
    return bodies


def absent_axis(compiler, flags, folder):
    found = {}
    for mode in ("Whole", "Column", "Row"):
        output = folder / f"{mode}.o"
        compile_once([compiler, *flags, f"-DLAYER=Linear<{mode},StoredAs::out_in,false>", "-c", "-o", str(output), str(HERE / "absent_axis.cpp")])
        size = subprocess.run(["size", str(output)], capture_output=True, text=True, check=True).stdout.split("\n")[1].split()[0]
        found[mode] = (int(size), functions(output))
    plain_bytes, plain = found["Whole"]
    return [{"layer": f"Linear<{mode}>", "text_bytes": size, "functions": sum(bodies.values()),
             "functions_that_differ": sum(((bodies - plain) + (plain - bodies)).values()), "same": bodies == plain and size == plain_bytes}
            for mode, (size, bodies) in found.items()]


def main():
    parser = argparse.ArgumentParser(prog="./bench/run compile_time", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build/release", help=argparse.SUPPRESS)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each program")
    parser.add_argument("--beside", type=pathlib.Path, help="another checkout, whose headers compile the full composition, too: figures are given as parts of its")
    parser.add_argument("--libtorch", action="store_true", help="a program of two layers in libtorch too (installs PyTorch for the bench)")
    parser.add_argument("--trainer", action="store_true", help="the examples' trainer too")
    parser.add_argument("--json", type=pathlib.Path, help="where the figures go (default: build/bench/compile_time.json)")
    options = parser.parse_args()
    compiler, flags = flags_of(options.build)
    with tempfile.TemporaryDirectory(prefix="weft_compile_time_") as scratch:
        folder = pathlib.Path(scratch)
        perf = counts_instructions()
        rows = programs(compiler, flags, options.build, folder, options.trainer)
        of_modes, precompiled = modes(compiler, flags, folder, options.beside.resolve() if options.beside else None)
        rows.update(of_modes)
        if options.libtorch:
            rows.update(libtorch(compiler, folder))
        precompiled_s = compile_once(precompiled)[0]
        runs = collections.defaultdict(list)
        for index in range(options.repeat):
            for name, command in rows.items():
                if sys.stderr.isatty():
                    print(f"\rrun {index + 1} of {options.repeat}: {name}\033[K", end="", file=sys.stderr, flush=True)
                runs[name].append(compile_once(command, perf))
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        medians = {name: {"s": statistics.median(v[0] for v in values), "mb": statistics.median(v[1] for v in values),
                          "instructions_g": statistics.median(v[2] for v in values) if perf else None} for name, values in runs.items()}
        layers = absent_axis(compiler, flags, folder)

    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    print(f"{version}, -O2 -march=native, median of {options.repeat}\n")
    print(f"{'program':<48}{'compiler s':>11}{'peak MB':>9}{'10^9 instructions':>19}")
    for name, figures in medians.items():
        print(f"{name:<48}{figures['s']:>11.2f}{figures['mb']:>9.0f}" + (f"{figures['instructions_g']:>19.2f}" if perf else ""))
    first = f"beside: {options.beside.resolve()}" if options.beside else FULL
    print(f"\nfull composition, as parts of {first if options.beside else 'the header-only one'}; the precompiled header itself took {precompiled_s:.2f} s")
    shares = {}
    for name in (FULL, "weft::compiled", "weft::compiled, precompiled header"):
        shares[name] = {unit: medians[name][unit] / medians[first][unit] for unit in (("s", "instructions_g") if perf else ("s",))}
        print(f"{'header-only' if name == FULL else name:<48}{shares[name]['s']:>11.2f}{'':>9}" + (f"{shares[name]['instructions_g']:>19.2f}" if perf else ""))
    depths = [medians[name]["s"] for name in list(rows)[2:6]]
    level = (depths[3] - depths[0]) / 3
    print(f"\nfull composition {depths[3]:.2f} s (budget {BUDGET_FULL_S:g} s), one more level {level:.2f} s on average (budget {BUDGET_LEVEL_S:g} s)")
    print(f"\nan axis that is not in the type, forward and backward of a layer\n{'layer':<48}{'text bytes':>11}{'functions':>11}{'differ':>8}  same code as Linear<Whole>")
    for layer in layers:
        print(f"{layer['layer']:<48}{layer['text_bytes']:>11}{layer['functions']:>11}{layer['functions_that_differ']:>8}  {'yes' if layer['same'] else 'no'}")

    output = options.json or SOURCE / "build/bench/compile_time.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({
        "date": datetime.date.today().isoformat(), "compiler": version, "cpu": cpu[1] if cpu else platform.processor(), "cores": os.cpu_count(),
        "repeat": options.repeat, "programs": medians, "parts_of": first, "parts": shares, "precompiled_header_s": precompiled_s, "one_more_level_s": level, "absent_axis": layers}, indent=1) + "\n")
    print(f"\n{output}")


if __name__ == "__main__":
    main()
