#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wrong programs must not compile, and one error must give the reason.

A case is a file beside this one:

    // expect: a regular expression that the text of the error matches
    // mention: one that matches anywhere in the compiler's output (optional, as often as you like)
    // needs: a header without which the case is left out (optional)
    #include <weft/weft.hpp>
    #ifdef WEFT_FAIL
    ... the wrong program ...
    #else
    ... its twin, the same program put right ...
    #endif

Both are compiled with -fsyntax-only. The twin must pass: so the wrong one fails for the reason that it shows and not for a
typo. The wrong one must print exactly one error, and that one must match.

Most of a compiler's time goes into instantiations of weft's headers themselves, whatever the case. So cases are compiled several at
a time, each in a namespace of its own, against the headers as weft::compiled gives them. Twins that do not pass together are
compiled again one by one. Each error of wrong programs must name the file of exactly one of them. A program without exactly the
expected error is compiled again by itself. Errors that name no file must be those of the programs that showed none, which are
compiled by themselves. Where they are not, and after an error that names several files, all are compiled in halves, and at last
one by one. Cases that are named are always compiled by themselves.

Each case of a whole list is compiled by one of the two compilers, and by the other one with another commit; WEFT_TEST_LONG=1: by
both.

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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from share import share_of

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
AT_ONCE = 16  # a compiler that took all at once would want gigabytes
SPECIALISES = re.compile(r"^inline constexpr \w+ weft::\w+<.*> =", re.MULTILINE)  # not allowed within a namespace of its own
ERROR = re.compile(r"^(?P<where>.*?): (?:fatal )?error: (?P<text>.*)$", re.MULTILINE)
NAMESPACE = re.compile(r"\bcase_\d+::")
BEFORE_AN_ERROR = re.compile(r"^In file included from |^ +from |^[^ ].*: In |^[^ ].*:   +(required|recursively required|in ) ?|^[^ ].*:   +\[ skipping ")  # where g++ says it


def find_compiler(name):
    candidates = {"g++": ["g++", "g++-12"], "clang++": ["clang++-14", "clang++"]}.get(name, [name])
    return next((found for found in map(shutil.which, candidates) if found), None)


def folders():
    """The folders of other libraries' headers, those of optional libraries last."""
    return [path for name in ("WEFT_INCLUDES", "WEFT_NCCL_INCLUDES") for path in os.environ.get(name, "").split(":") if path]


def left_out(case):
    """The header that a case needs and that is not here."""
    needs = re.findall(r"^// needs: (\S+)", case.read_text(), re.MULTILINE)
    places = [pathlib.Path(path) for path in [*folders(), "/usr/include", "/usr/local/include"]]
    return next((header for header in needs if not any((place / header).exists() for place in places)), None)


def base_flags(compiler, is_clang, folder):
    flags = ["-std=c++20", "-fopenmp", "-w", "-DWEFT_COMPILED", "-I", str(HERE.parent.parent / "include")]
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
    """Kokkos and weft parsed once: a case then costs a fraction of a second instead of several. clang also instantiates the
    templates that the headers use only once; g++ has no such option and does so in every case."""
    prefix = folder / "prefix.hpp"
    headers = [h for h in ("weft/weft.hpp",) if (HERE.parent.parent / "include" / h).exists()]
    prefix.write_text("".join(f"#include <{h}>\n" for h in ["Kokkos_Core.hpp", *headers]))
    output = folder / ("prefix.pch" if is_clang else "prefix.hpp.gch")
    once = ["-fpch-instantiate-templates"] if is_clang else []
    command = [compiler, *flags, *once, "-x", "c++-header", str(prefix), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"weft's headers do not compile with {compiler}:\n{done.stderr[:8000]}")
    return ["-include-pch", str(output)] if is_clang else ["-include", str(prefix)]


def well_formed(case):
    text = case.read_text()
    return len(re.findall(r"^// expect: (.*\S)", text, re.MULTILINE)) == 1 and "WEFT_FAIL" in text


def check_twin(case, command):
    """Returns the fault of a case's twin, or nothing."""
    twin = subprocess.run([*command, str(case)], capture_output=True, text=True)
    return f"the right twin does not compile:\n{twin.stderr}" if twin.returncode != 0 else None


def compile_together(cases, command, folder):
    """The compiler's output for some cases in one translation unit, each in its own namespace and with its file's name."""
    includes, bodies = [], []
    for number, case in enumerate(cases):
        text = case.read_text()
        includes += re.findall(r"^#include .*$", text, re.MULTILINE)
        body = re.sub(r"^#include .*$", "", text, flags=re.MULTILINE)
        bodies.append(f'namespace case_{number} {{\n#line 1 "{case}"\n{body}\n}}')
    together = folder / "together.cpp"
    together.write_text("\n".join([*includes, *bodies]) + "\n")
    return subprocess.run([*command, str(together)], capture_output=True, text=True)


def check_twins(cases, command, folder):
    """Returns the faults of the twins of some cases, by case; twins that pass are not in it."""
    if len(cases) > 1 and compile_together(cases, command, folder).returncode == 0:
        return {}
    return {case: wrong for case in cases if (wrong := check_twin(case, command))}


def judge(case, printed):
    """Returns the fault of the compiler's output for a case's wrong program, or nothing."""
    text = case.read_text()
    expected = re.findall(r"^// expect: (.*\S)", text, re.MULTILINE)
    mentions = re.findall(r"^// mention: (.*\S)", text, re.MULTILINE)
    errors = list(ERROR.finditer(printed))
    if len(errors) != 1:
        return f"{len(errors)} errors instead of one:\n{printed}"
    if not re.search(expected[0], errors[0]["text"]):
        return f"the error does not match '{expected[0]}':\n{printed}"
    for mention in mentions:
        if not re.search(mention, printed):
            return f"nothing that the compiler prints matches '{mention}':\n{printed}"
    return None


def check_wrong(case, command, show):
    """Returns the fault of a case's wrong program, or nothing."""
    wrong = subprocess.run([*command, "-DWEFT_FAIL", str(case)], capture_output=True, text=True)
    if show:
        print(wrong.stderr)
    return "the wrong program compiles" if wrong.returncode == 0 else judge(case, wrong.stderr)


def errors_apart(printed):
    """A compiler's output, cut at its errors. clang prints the origin of an error after it, g++ before it."""
    parts = [[]]
    for line in printed.splitlines(keepends=True):
        part = parts[-1]
        if ERROR.match(line) and any(ERROR.match(other) for other in part):
            first = len(part)
            while BEFORE_AN_ERROR.match(part[first - 1]):
                first -= 1
            parts[-1], part = part[:first], part[first:]
            parts.append(part)
        part.append(line)
    return ["".join(part) for part in parts]


def error_lines(printed):
    return sorted(error.group() for error in ERROR.finditer(printed))


def wrong_together(cases, command, folder):
    """The cases whose wrong programs show their one error also beside each other."""
    printed = NAMESPACE.sub("", compile_together(cases, [*command, "-DWEFT_FAIL"], folder).stderr)
    said = {case: "" for case in cases}
    unnamed, of_several = [], False
    for part in errors_apart(printed):
        named = [case for case in cases if f"{case}:" in part]
        if len(named) == 1:
            said[named[0]] += part
        elif named:
            of_several = True
        else:
            unnamed.append(part)
    if unnamed and not of_several:
        # They must be, one for one, those of the cases that showed none: each is compiled alone.
        silent = [case for case in cases if not said[case]]
        if len(silent) <= len(unnamed):
            alone = {case: subprocess.run([*command, "-DWEFT_FAIL", str(case)], capture_output=True, text=True).stderr for case in silent}
            if error_lines("".join(unnamed)) == error_lines("".join(alone.values())):
                said |= alone
                unnamed = []
    if unnamed or of_several:  # whose are they? In halves fewer are in doubt
        half = len(cases) // 2
        return wrong_together(cases[:half], command, folder) + wrong_together(cases[half:], command, folder) if half > 1 else []
    return [case for case in cases if judge(case, said[case]) is None]


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
    if not options.names:
        cases = share_of(cases, 2, turn=int(is_clang))
    failures = 0
    with tempfile.TemporaryDirectory(prefix="weft_compile_fail_") as scratch:
        folder = pathlib.Path(scratch)
        flags = base_flags(compiler, is_clang, folder)
        command = [compiler, *flags, "-fsyntax-only", *precompile(compiler, is_clang, flags, folder)]
        here = []
        for case in cases:
            if missing := left_out(case):
                print(f"left out {case.stem}: no {missing}")
            elif not well_formed(case):
                failures += 1
                print(f"FAILED {case.stem}\n  a case needs one line '// expect: regular expression' and an '#ifdef WEFT_FAIL'")
            else:
                here.append(case)
        together = [case for case in here if not SPECIALISES.search(case.read_text())]
        groups = [together[first : first + AT_ONCE] for first in range(0, len(together), AT_ONCE)]
        if options.names:
            groups, together = [], []
        for some in [*groups, *([case] for case in here if case not in together)]:
            started = time.monotonic()
            wrong_twins = check_twins(some, command, folder)
            right = wrong_together(some, command, folder) if len(some) > 1 else []
            if len(some) > 1:
                print(f"{some[0].stem} to {some[-1].stem} together ({time.monotonic() - started:.1f} s)")
                started = time.monotonic()
            for case in some:
                wrong = wrong_twins.get(case) or (None if case in right else check_wrong(case, command, options.show))
                print(f"{'FAILED' if wrong else 'passed'} {case.stem} ({time.monotonic() - started:.1f} s)")
                if wrong:
                    failures += 1
                    print(f"  {wrong}")
                started = time.monotonic()
    print(f"{compiler}: {failures} of {len(cases)} cases failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
