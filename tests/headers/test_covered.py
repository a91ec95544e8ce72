# SPDX-License-Identifier: Apache-2.0
"""Each header of these folders has a unit test: tests/<folder>/<name>.cpp for <folder>/<name>.hpp, or a test that names the header
in a comment of its own, and no test names one that is not there:

    // covers: weft/operations/views.hpp weft/operations/rows.hpp

A test includes what it covers: a name alone is no test. The header of a thing that only another's test can show (a mark, a macro) is named
there.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDERS = ["core", "engine", "context", "autograd", "operations", "nn", "device", "mesh", "kernels", "tensor", "data", "dtensor", "optim", "models",
           "generation", "inference", "checkpoint", "elastic", "c_interface", "hugging_face", "runtime", "plan", "trace", "testing", "comm", "pipeline", "parallel"]
NOT_HERE = re.compile(r"/cuda/")  # of GPUs alone: tests/gpu


def included(text):
    return set(re.findall(r'^#include [<"](weft/[^>"]+)[>"]', text, re.MULTILINE))


headers = {str(path.relative_to(ROOT / "include")) for folder in FOLDERS for path in (ROOT / "include/weft" / folder).rglob("*.hpp")}
headers = {header for header in headers if not NOT_HERE.search(header) and not header.endswith("_impl.hpp")}  # tested with their header
if len(headers) < 40:
    sys.exit(f"only {len(headers)} headers in {', '.join(FOLDERS)}: is the list of folders right?")
covered, wrong = set(), []
for test in sorted([*(ROOT / "tests").rglob("*.cpp"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "tests").rglob("test_*.sh")]):
    text, place = test.read_text(), test.relative_to(ROOT / "tests")
    if place.parts[0] == "support":
        continue
    named = {header for line in re.findall(r"^(?://|#) covers: (.*)", text, re.MULTILINE) for header in line.split()}
    own = f"weft/{place.with_suffix('.hpp')}"
    if own in headers and test.suffix == ".cpp":
        named.add(own)
    for header in sorted(named):
        if not (ROOT / "include" / header).exists():
            wrong.append(f"tests/{place} covers {header}, which is not there")
        elif test.suffix == ".cpp" and header not in included(text):
            wrong.append(f"tests/{place} covers {header} and does not include it")
    covered |= named
wrong += [f"{header} has no test: write tests/{header.removeprefix('weft/').removesuffix('.hpp')}.cpp, or name it in the test that covers it: // covers: {header}"
          for header in sorted(headers - covered)]
if wrong:
    sys.exit("\n".join(wrong))
print(f"{len(headers)} headers")
