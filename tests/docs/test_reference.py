#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each public name has a comment, or is listed in undocumented.txt, a list that only shrinks: a name of it that has a comment, or is gone,
fails too. Every name of tests/headers/root_names.txt is in the reference. Without Doxygen the script ends with 77."""
import os
import pathlib
import re
import shutil
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
sys.path[:0] = [str(SOURCE / "tests/support"), str(SOURCE / "docs/site")]
import reference
from checks import check, finish

if shutil.which("doxygen") is None:
    print("skipped: no Doxygen (./tests/run installs Debian's package doxygen)")
    finish(77)
# Names of other namespaces that are in weft by a using-declaration stand under their own, and namespaces have no entry.
USING = {"PaddingMode", "UpsampleMode", "Signals"}
with tempfile.TemporaryDirectory(prefix="weft_reference_") as folder:
    folder = pathlib.Path(folder)
    reference.read(folder)
    found = {entry.name for entry in reference.names(folder)}
    without = set(reference.undocumented(folder))
    pages = dict(reference.pages(folder))
known = set((SOURCE / "tests/docs/undocumented.txt").read_text().split())
check(without <= known, f"public names without a comment (///): {', '.join(sorted(without - known))}")
check(known <= without, f"take out of tests/docs/undocumented.txt, which only shrinks: {', '.join(sorted(known - without))}")
roots = set((SOURCE / "tests/headers/root_names.txt").read_text().split())
spaces = {name for name in roots if any(other.startswith(name + "::") for other in found)} | {"calls", "detail", "fields", "kernels", "mesh_layout", "nn", "runtime", "zero"}
check(roots - found - spaces - USING == set(), f"names of weft that are not in the reference: {sorted(roots - found - spaces - USING)}")
check(len(found) > 900 and not any("detail" in name or "engine" in name for name in found), f"{len(found)} names")
adamw = pages["reference/optim.md"].split("### `optim::AdamWOptions`")[1].split("\n## ")[0]
check("- `double clip = 0;`<br>maximum global gradient norm; 0: no clipping" in adamw, f"a member with its comment: {adamw[:800]}")
mesh = pages["reference/mesh.md"]
check("template <detail::Axis A>" in mesh and re.search(r"\bcomm\(", mesh), "a member that a concept of detail constrains: Mesh::comm")
check("using Block = ...;" in pages["reference/models.md"], "an alias of an internal type: BasicGpt::Block")
check("Invariant&lt;tp>" in pages["reference/parallel.md"] and not any("\\<" in text for text in pages.values()), "types in prose: Python-Markdown has no escape of <")
# The events that UserPolicy's comment lists are events of a wrapper, with their arguments.
events = (SOURCE / "include/weft/engine/hooks.hpp").read_text()
listed = re.findall(r"^void (\w+)\(([^)]*)\);", pages["reference/parallel.md"].split("### `UserPolicy`")[1].split("\n### ")[0], re.MULTILINE)
check(len(listed) == 4 and all(f"virtual void {name}({arguments.partition(' ')[0]}" in events for name, arguments in listed), f"events of UserPolicy: {listed}")

print(f"{len(found)} public names, {len(without)} without a comment")
finish()
