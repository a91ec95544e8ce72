#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wrong programs must not compile, and the compiler must say why in one error.

A case is a file beside this one:

    // expect: a regular expression that the text of the error matches
    // mention: one that matches anywhere in what the compiler prints (optional, as often as you like)
    // needs: a header without which the case is left out (optional)
    #include <weft/weft.hpp>
    #ifdef WEFT_FAIL
    ... the wrong program ...
    #else
    ... its twin, the same program put right ...
    #endif

Both are compiled with -fsyntax-only. The twin must pass: so the wrong one fails for the reason that it shows and not for a
typo. The wrong one must print exactly one error, and that one must match.

    check.py --compiler g++ [--show] [NAME...]       --show prints each error, to be read as a user would read it
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
ERROR = re.compile(r"^(?P<where>.*?): (?:fatal )?error: (?P<text>.*)$", re.MULTILINE)


def find_compiler(name):
    candidates = {"g++": ["g++", "g++-12"], "clang++": ["clang++-14", "clang++"]}.get(name, [name])
    return next((found for found in map(shutil.which, candidates) if found), None)


def folders():
    """Where the headers of others are, those of optional libraries last."""
    return [path for name in ("WEFT_INCLUDES", "WEFT_NCCL_INCLUDES") for path in os.environ.get(name, "").split(":") if path]


def left_out(case):
    """The header that a case needs and that is not here."""
    needs = re.findall(r"^// needs: (\S+)", case.read_text(), re.MULTILINE)
    places = [pathlib.Path(path) for path in [*folders(), "/usr/include", "/usr/local/include"]]
    return next((header for header in needs if not any((place / header).exists() for place in places)), None)


def base_flags(compiler, is_clang, folder):
    flags = ["-std=c++20", "-fopenmp", "-w", "-I", str(HERE.parent.parent / "include")]
    for path in folders():
        flags += ["-isystem", path]
    if is_clang:
        # clang comes without omp.h; gcc's declares what Kokkos' header calls.
        gcc_header = subprocess.run(["g++", "-print-file-name=include/omp.h"], capture_output=True, text=True).stdout.strip()
        if os.path.isfile(gcc_header):
            # It names functions in an attribute, which newer versions of clang refuse.
            text = pathlib.Path(gcc_header).read_text()
            (folder / "omp.h").write_text(re.sub(r"__malloc__ \([^()]*\)", "__malloc__", text))
            flags += ["-idirafter", str(folder)]
    return flags


def precompile(compiler, is_clang, flags, folder):
    """Kokkos and weft parsed once: a case then costs a fraction of a second instead of several."""
    prefix = folder / "prefix.hpp"
    headers = [h for h in ("weft/weft.hpp",) if (HERE.parent.parent / "include" / h).exists()]
    prefix.write_text("".join(f"#include <{h}>\n" for h in ["Kokkos_Core.hpp", *headers]))
    output = folder / ("prefix.pch" if is_clang else "prefix.hpp.gch")
    done = subprocess.run([compiler, *flags, "-x", "c++-header", str(prefix), "-o", str(output)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"weft's headers do not compile with {compiler}:\n{done.stderr[:8000]}")
    return ["-include-pch", str(output)] if is_clang else ["-include", str(prefix)]


def check(case, command, show):
    """Returns what is wrong with a case, or nothing."""
    text = case.read_text()
    expected = re.findall(r"^// expect: (.*\S)", text, re.MULTILINE)
    mentions = re.findall(r"^// mention: (.*\S)", text, re.MULTILINE)
    if len(expected) != 1 or "WEFT_FAIL" not in text:
        return "a case needs one line '// expect: regular expression' and an '#ifdef WEFT_FAIL'"
    twin = subprocess.run([*command, str(case)], capture_output=True, text=True)
    if twin.returncode != 0:
        return f"the right twin does not compile:\n{twin.stderr}"
    wrong = subprocess.run([*command, "-DWEFT_FAIL", str(case)], capture_output=True, text=True)
    if wrong.returncode == 0:
        return "the wrong program compiles"
    errors = list(ERROR.finditer(wrong.stderr))
    if show:
        print(wrong.stderr)
    if len(errors) != 1:
        return f"{len(errors)} errors instead of one:\n{wrong.stderr}"
    if not re.search(expected[0], errors[0]["text"]):
        return f"the error does not match '{expected[0]}':\n{wrong.stderr}"
    for mention in mentions:
        if not re.search(mention, wrong.stderr):
            return f"nothing that the compiler prints matches '{mention}':\n{wrong.stderr}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    compiler = find_compiler(options.compiler)
    if compiler is None:
        print(f"{options.compiler} is not installed")
        return SKIPPED
    cases = sorted(path for path in HERE.glob("*.cpp") if not options.names or path.stem in options.names)
    if not cases:
        print("no such case")
        return 1
    is_clang = "clang" in os.path.basename(compiler)
    failures = 0
    with tempfile.TemporaryDirectory(prefix="weft_compile_fail_") as scratch:
        folder = pathlib.Path(scratch)
        flags = base_flags(compiler, is_clang, folder)
        command = [compiler, *flags, "-fsyntax-only", *precompile(compiler, is_clang, flags, folder)]
        for case in cases:
            if missing := left_out(case):
                print(f"left out {case.stem}: no {missing}")
                continue
            started = time.monotonic()
            wrong = check(case, command, options.show)
            print(f"{'FAILED' if wrong else 'passed'} {case.stem} ({time.monotonic() - started:.1f} s)")
            if wrong:
                failures += 1
                print(f"  {wrong}")
    print(f"{compiler}: {failures} of {len(cases)} cases failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
