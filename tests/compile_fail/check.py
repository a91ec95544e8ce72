#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wrong programs must not compile, and one error must give the reason.

A file beside this one holds the cases of one topic, a section each:

    #include <weft/weft.hpp>
    ... lines that begin each section (optional) ...

    // section: name
    // expect: a regular expression that the text of the error matches
    // mention: one that matches anywhere in the compiler's output (optional, as often as you like)
    // needs: a header without which the case is left out (optional)
    #ifdef WEFT_FAIL
    ... the wrong program ...
    #else
    ... its twin, the same program put right ...
    #endif

    // after each section
    ... lines that end each section (optional) ...

The case is called file/name. A file without sections is one case. Sections do not see each other. Both programs are compiled with -fsyntax-only. The twin must pass: so the wrong one fails for the reason that it shows and not for a
typo. The wrong one must print exactly one error, and that one must match.

Most of a compiler's time goes into instantiations of weft's headers themselves, whatever the case. So cases are compiled several at
a time, each in a namespace of its own, against the headers as weft::compiled gives them. Twins that do not pass together are
compiled again one by one. Each error of wrong programs must name a line or the namespace of exactly one of them. A program without exactly the
expected error is compiled again by itself. Errors that name no case must be those of the programs that showed none, which are
compiled by themselves. Where they are not, and after an error that names several cases, all are compiled in halves, and at last
one by one. Cases that are named are always compiled by themselves.

Each case of a whole list is compiled by one of the two compilers, and by the other one with another commit; WEFT_TEST_LONG=1: by
both.

    check.py --compiler g++ [--show] [NAME...]       --show prints each error, to be read as a user would read it

NAME is a file (all of its sections) or file/name.
"""
import argparse
import dataclasses
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
SPECIALISATION = re.compile(r"^(template <.*>\ninline constexpr \w+ weft::\w+<)(.*> = .*;)$", re.MULTILINE)
ERROR = re.compile(r"^(?P<where>.*?): (?:fatal )?error: (?P<text>.*)$", re.MULTILINE)
NAMESPACE = re.compile(r"\bcase_(\d+)::")
SECTION = re.compile(r"// section: (\S+)$")
AFTER_EACH = "// after each section"
BEFORE_AN_ERROR = re.compile(r"^In file included from |^ +from |^[^ ].*: In |^[^ ].*:   +(required|recursively required|in ) ?|^[^ ].*:   +\[ skipping ")  # where g++ says it


@dataclasses.dataclass(frozen=True)
class Case:
    """A wrong program and its twin: one section of a file with what the file has before and after all sections."""
    name: str
    path: pathlib.Path
    first: int  # its lines in the file, from 1
    last: int
    source: str  # with #line directives, so that a compiler prints places in the file

    def lines(self, key):
        return re.findall(rf"^// {key}: (.*\S)", self.source, re.MULTILINE)

    def is_at(self, printed):
        return any(self.first <= int(line) <= self.last for line in re.findall(rf"{re.escape(str(self.path))}:(\d+)", printed))

    def compile(self, command, folder):
        """The compiler's output for this case by itself."""
        alone = folder / "alone.cpp"
        alone.write_text(self.source)
        return subprocess.run([*command, str(alone)], capture_output=True, text=True)


def cases_of(path):
    """The sections of a file, or the whole file as one case."""
    lines = path.read_text().splitlines()
    end = lines.index(AFTER_EACH) if AFTER_EACH in lines else len(lines)
    starts = [number for number, line in enumerate(lines[:end]) if SECTION.match(line)]

    def source(*spans):
        return "".join(f'#line {first + 1} "{path}"\n' + "".join(line + "\n" for line in lines[first:last]) for first, last in spans)

    if not starts:
        return [Case(path.stem, path, 1, len(lines), source((0, len(lines))))]
    spans = zip(starts, [*starts[1:], end])
    return [Case(f"{path.stem}/{SECTION.match(lines[first])[1]}", path, first + 1, last,
                 source((0, starts[0]), (first, last), (end, len(lines)))) for first, last in spans]


def find_compiler(name):
    candidates = {"g++": ["g++", "g++-12"], "clang++": ["clang++-14", "clang++"]}.get(name, [name])
    return next((found for found in map(shutil.which, candidates) if found), None)


def folders():
    """The folders of other libraries' headers, those of optional libraries last."""
    return [path for name in ("WEFT_INCLUDES", "WEFT_NCCL_INCLUDES") for path in os.environ.get(name, "").split(":") if path]


def left_out(case):
    """The header that a case needs and that is not here."""
    places = [pathlib.Path(path) for path in [*folders(), "/usr/include", "/usr/local/include"]]
    return next((header for header in case.lines("needs") if not any((place / header).exists() for place in places)), None)


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
    return len(case.lines("expect")) == 1 and "WEFT_FAIL" in case.source


def check_twin(case, command, folder):
    """Returns the fault of a case's twin, or nothing."""
    twin = case.compile(command, folder)
    return f"the right twin does not compile:\n{twin.stderr}" if twin.returncode != 0 else None


def compile_together(cases, command, folder):
    """The compiler's output for some cases in one translation unit, each in its own namespace."""
    includes, bodies = [], []
    for number, case in enumerate(cases):
        includes += re.findall(r"^#include .*$", case.source, re.MULTILINE)
        body = re.sub(r"^#include .*$", "", case.source, flags=re.MULTILINE)
        body = SPECIALISATION.sub(rf"}} \1case_{number}::\2 namespace case_{number} {{", body)  # not allowed within that namespace
        bodies.append(f"namespace case_{number} {{\n{body}\n}}")
    together = folder / "together.cpp"
    together.write_text("\n".join([*includes, *bodies]) + "\n")
    return subprocess.run([*command, str(together)], capture_output=True, text=True)


def check_twins(cases, command, folder):
    """Returns the faults of the twins of some cases, by case; twins that pass are not in it."""
    if len(cases) > 1 and compile_together(cases, command, folder).returncode == 0:
        return {}
    return {case: wrong for case in cases if (wrong := check_twin(case, command, folder))}


def judge(case, printed):
    """Returns the fault of the compiler's output for a case's wrong program, or nothing."""
    expected = case.lines("expect")[0]
    errors = list(ERROR.finditer(printed))
    if len(errors) != 1:
        return f"{len(errors)} errors instead of one:\n{printed}"
    if not re.search(expected, errors[0]["text"]):
        return f"the error does not match '{expected}':\n{printed}"
    for mention in case.lines("mention"):
        if not re.search(mention, printed):
            return f"nothing that the compiler prints matches '{mention}':\n{printed}"
    return None


def check_wrong(case, command, folder, show):
    """Returns the fault of a case's wrong program, or nothing."""
    wrong = case.compile([*command, "-DWEFT_FAIL"], folder)
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
    printed = compile_together(cases, [*command, "-DWEFT_FAIL"], folder).stderr
    said = {case: "" for case in cases}
    unnamed, of_several = [], False
    for part in errors_apart(printed):
        numbers = {int(number) for number in NAMESPACE.findall(part)}
        named = [case for number, case in enumerate(cases) if number in numbers or case.is_at(part)]
        part = NAMESPACE.sub("", part)
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
            alone = {case: case.compile([*command, "-DWEFT_FAIL"], folder).stderr for case in silent}
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
    cases = [case for path in sorted(HERE.glob("*.cpp")) for case in cases_of(path)]
    cases = [case for case in cases if not options.names or case.name in options.names or case.path.stem in options.names]
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
                print(f"left out {case.name}: no {missing}")
            elif not well_formed(case):
                failures += 1
                print(f"FAILED {case.name}\n  a case needs one line '// expect: regular expression' and an '#ifdef WEFT_FAIL'")
            else:
                here.append(case)
        at_once = 1 if options.names else AT_ONCE
        for some in [here[first : first + at_once] for first in range(0, len(here), at_once)]:
            started = time.monotonic()
            wrong_twins = check_twins(some, command, folder)
            right = wrong_together(some, command, folder) if len(some) > 1 else []
            if len(some) > 1:
                print(f"{some[0].name} to {some[-1].name} together ({time.monotonic() - started:.1f} s)")
                started = time.monotonic()
            for case in some:
                wrong = wrong_twins.get(case) or (None if case in right else check_wrong(case, command, folder, options.show))
                print(f"{'FAILED' if wrong else 'passed'} {case.name} ({time.monotonic() - started:.1f} s)")
                if wrong:
                    failures += 1
                    print(f"  {wrong}")
                started = time.monotonic()
    print(f"{compiler}: {failures} of {len(cases)} cases failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
