# SPDX-License-Identifier: Apache-2.0
"""The C++ of these folders is laid out as clang-format 14 does with .clang-format, and no line is longer than its 130 columns. Another
version lays the same text out otherwise, so without 14 the test is skipped.

    python3 tests/headers/test_format.py [--write]
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDERS = ["include", "tests", "examples", "bench", "test_package"]
ENDINGS = [".hpp", ".cpp", ".cuh", ".cu", ".h"]
COLUMNS = int(re.search(r"ColumnLimit: (\d+)", (ROOT / ".clang-format").read_text())[1])


def find_formatter():
    for name in ("clang-format-14", "clang-format"):
        found = shutil.which(name)
        if found and " version 14." in subprocess.run([found, "--version"], capture_output=True, text=True).stdout:
            return found
    print("skipped: clang-format 14 is not installed (./tests/run does that)")
    sys.exit(77)


def formatted(text):
    done = subprocess.run([formatter, "--assume-filename", str(ROOT / "include/weft/one.hpp")], input=text, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(f".clang-format does not parse:\n{done.stderr}")
    return done.stdout


def long_lines(path):
    """Lines that clang-format leaves too long: a word of a comment or a literal that it cannot break. Lines that check.py reads,
    raw strings and text laid out by hand (clang-format off) may be."""
    by_hand = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        by_hand = (by_hand or "clang-format off" in line) and "clang-format on" not in line
        if len(line) > COLUMNS and not by_hand and not re.search(r'^// (expect|mention|needs):|R"\w*\(|^#include ', line):
            yield f"{path.relative_to(ROOT)}:{number}: {len(line)} columns"


formatter = find_formatter()
if formatted("int  x ;\n") != "int x;\n" or "\n" in formatted("void f() { return; }").strip():
    sys.exit("clang-format does not do what .clang-format says")
files = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in ENDINGS)
if len(files) < 500:
    sys.exit(f"only {len(files)} files of C++ in {', '.join(FOLDERS)}: is the list of folders right?")
if "--write" in sys.argv:
    for _ in range(3):  # a layout may need a second look before it stays
        subprocess.run([formatter, "-i", *map(str, files)], check=True)
done = subprocess.run([formatter, "--dry-run", "-Werror", "--ferror-limit=1", *map(str, files)], capture_output=True, text=True)
wrong = sorted({os.path.relpath(name, ROOT) for name in re.findall(r"^(.*?):\d+:\d+: error: ", done.stderr, re.MULTILINE)})
if done.returncode and not wrong:
    sys.exit(done.stderr)
if wrong:
    shown = "\n".join(wrong[:40] + (["..."] if len(wrong) > 40 else []))
    sys.exit(f"{len(wrong)} of {len(files)} files are not laid out as .clang-format says:\n{shown}\npython3 tests/headers/test_format.py --write mends them")
too_long = [line for path in files for line in long_lines(path)]
if too_long:
    sys.exit(f"longer than {COLUMNS} columns, which clang-format cannot break:\n" + "\n".join(too_long))
print(f"{len(files)} files")
