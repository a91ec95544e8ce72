# SPDX-License-Identifier: Apache-2.0
"""The code of docs/fields.md is part of a test or of the example fields, which are compiled and run.

    python3 tests/docs/test_fields.py
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SOURCES = [*(ROOT / "tests/parallel" / f"domain_{name}.cpp" for name in ("parallel", "stencil")), ROOT / "tests/mesh/graph_parts.cpp", ROOT / "tests/mesh/metis.cpp", ROOT / "tests/operations/cut_pieces.cpp", *sorted((ROOT / "examples/fields").glob("*.hpp"))]


def words(code):
    return " ".join(code.split())


source = words("\n".join(path.read_text() for path in SOURCES))
blocks = re.findall(r"```cpp\n(.*?)```", (ROOT / "docs/fields.md").read_text(), re.DOTALL)
missing = [block for block in blocks if words(block) not in source]
if len(blocks) < 3:
    sys.exit("docs/fields.md has few blocks of code")
if missing:
    sys.exit("not in tests/{parallel/domain_{parallel,stencil},mesh/graph_parts,mesh/metis,operations/cut_pieces}.cpp or examples/fields:\n" + "\n".join(missing))
print(f"{len(blocks)} blocks of code are in tests and examples/fields")
