#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The lessons of docs/course: each function runs and prints what the lesson shows (numbers within 5 %), a refused one ends with the error that
follows it, and a wrong turn is a part of its case in tests/compile_fail/course.cpp, whose expected error the lesson's message has. CMake has
built the programs from the lessons (tests/docs/course.py)."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, PROGRAMS = pathlib.Path(os.environ["WEFT_SOURCE"]), pathlib.Path(os.environ["WEFT_BUILD"]) / "tests"
sys.path[:0] = [str(SOURCE / "tests/support"), str(SOURCE / "tests/docs")]
import course
from checks import check, finish

NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+|(?<![\w.])\d+(?![\w.])")
cases = {}
for section in (SOURCE / "tests/compile_fail/course.cpp").read_text().split("// section: ")[1:]:
    name, body = section.split("\n", 1)
    cases[name] = (" ".join(re.search(r"#ifdef WEFT_FAIL\n(.*?)(#else|#endif)", body, re.DOTALL)[1].split()), " ".join(body.split()), re.search(r"// expect: (.*)", body)[1])


def words(text):
    return " ".join(text.split())


def same(printed, shown):
    """The same lines, but for numbers, which differ by 5 % or one digit in the last place."""
    if NUMBER.sub("#", printed.strip()) != NUMBER.sub("#", shown.strip()):
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown))
    return all(abs(float(a) - float(b)) <= max(0.05 * abs(float(b)), 10.0 ** -len(b.partition(".")[2]) if "." in b else 0) for a, b in pairs)


environment = os.environ | {"OMP_NUM_THREADS": "4", "OMP_PROC_BIND": "false"}


def run(program, name, folder):
    return subprocess.run([program, name], capture_output=True, text=True, timeout=300, cwd=folder, env=environment)


ran, wrong = 0, set()
check(same("loss 2.87, 4 ranks\n", "loss 2.88, 4 ranks") and not same("loss 3.1", "loss 2.88") and not same("loss of 2.88", "loss 2.88") and not same("5 ranks", "4 ranks"), "the comparison of outputs")
for path in course.LESSONS:
    program = PROGRAMS / f"course_{path.stem.split('_')[0]}"
    blocks = course.blocks(path)
    if not program.exists():
        print(f"{path.name} is left out: CMake has not built {program} (weft::checkpoint is missing)")
        continue
    with tempfile.TemporaryDirectory(prefix="weft_course_") as folder:
        shutil.copy(SOURCE / "LICENSE", pathlib.Path(folder) / "corpus.txt")
        printed = ""
        for block, after in zip(blocks, [*blocks[1:], course.Block("", "")]):
            if block.kind == "text output":
                check(same(printed, block.code), f"{path.name}: {function} prints\n{printed}and the lesson shows\n{block.code}")
            elif block.kind == "sh run":
                command = block.code.replace("./program", str(program))
                done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300, cwd=folder, env=environment)
                absent = [line for line in after.code.splitlines() if line not in done.stdout + done.stderr]
                check(done.returncode == 0 and after.kind == "text part" and not absent, f"{path.name}: {block.code}{done.returncode} {done.stdout} {done.stderr}")
            elif block.kind.startswith("wrong "):
                name = block.kind.split()[1]
                wrong.add(name)
                failing, whole, expected = cases[name]
                check(words(block.code) in failing or words(block.code) in whole, f"{path.name}: the wrong turn {name} is not in tests/compile_fail/course.cpp")
                check(re.search(expected, words(after.code)), f"{path.name}: the message of {name} is not '{expected}'")
            for function in block.functions:
                done = run(program, function, folder)
                printed = done.stdout
                ran += 1
                for picture in pathlib.Path(folder).glob("*.svg"):
                    check(picture.read_bytes() == (path.parent / picture.name).read_bytes(), f"{path.name}: {function} draws another {picture.name} than docs/course has")
                right = done.returncode != 0 and words(after.code) in words(done.stderr) if block.kind == "refused" else done.returncode == 0
                check(right, f"{path.name}: {function}: {done.returncode} {done.stdout} {done.stderr}")
check(wrong == set(cases), f"cases that no lesson shows: {set(cases) - wrong}")
check(len(course.LESSONS) >= 3 and ran >= 16, f"{len(course.LESSONS)} lessons, {ran} functions; is the pattern right?")
print(f"{len(course.LESSONS)} lessons, {ran} functions, {len(wrong)} wrong turns of the compiler")
finish()
