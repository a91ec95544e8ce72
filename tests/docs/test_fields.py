# SPDX-License-Identifier: Apache-2.0
"""The code of docs/fields.md is part of a test, which compiles and runs it.

    python3 tests/docs/test_fields.py
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TEST = "tests/parallel/domain_parallel.cpp"


def words(code):
    return " ".join(code.split())


source = words((ROOT / TEST).read_text())
blocks = re.findall(r"```cpp\n(.*?)```", (ROOT / "docs/fields.md").read_text(), re.DOTALL)
missing = [block for block in blocks if words(block) not in source]
if len(blocks) < 3:
    sys.exit("docs/fields.md has few blocks of code")
if missing:
    sys.exit(f"not in {TEST}:\n" + "\n".join(missing))
print(f"{len(blocks)} blocks of code are in {TEST}")
