# SPDX-License-Identifier: Apache-2.0
"""Each foo_impl.hpp is included by foo.hpp where weft is header-only, and by one file of src/ where it is compiled: those of the MPI
backend by src/mpi/, which is weft::compiled_mpi."""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
INCLUDE = ROOT / "include"
wrong = []
compiled = collections.Counter()
for source in (ROOT / "src").rglob("*.cpp"):
    compiled.update(re.findall(r"^#include <(weft/\S*_impl\.hpp)>", source.read_text(), re.MULTILINE))
definitions = sorted(str(path.relative_to(INCLUDE)) for path in INCLUDE.rglob("*_impl.hpp"))
for name in definitions:
    header = INCLUDE / name.replace("_impl.hpp", ".hpp")
    if not header.exists():
        wrong.append(f"{name} has no header {header.name} beside it")
    elif f"#ifndef WEFT_COMPILED{'_MPI' if name.startswith('weft/comm/mpi') else ''}\n#include <{name}>\n#endif\n" not in header.read_text():
        wrong.append(f"{header.name} does not include {name} where weft is header-only")
    if compiled[name] != 1:
        wrong.append(f"{name} is included by {compiled[name]} files of src/, not by 1")
wrong += [f"src/ includes {name}, which is not there" for name in compiled if name not in definitions]
if len(definitions) < 50:
    wrong.append(f"only {len(definitions)} files end in _impl.hpp; is the scan right?")
if wrong:
    sys.exit("\n".join(wrong))
print(f"{len(definitions)} files of definitions")
