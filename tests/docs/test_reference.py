#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each public name has a comment, or is listed in undocumented.txt, a list that only shrinks: a name of it that has a comment, or is gone,
fails too. Each name has a passage of compiled code that uses it, or is listed in without_passage.txt, which only shrinks as well. Every name of
tests/headers/root_names.txt is in the reference. Without Doxygen the script ends with 77."""
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
    entries = reference.names(folder)
    found = {entry.name for entry in entries}
    without = set(reference.undocumented(folder))
    passages = reference.passages_of(entries)
    pages = dict(reference.pages(folder))
known = set((SOURCE / "tests/docs/undocumented.txt").read_text().split())
check(without <= known, f"public names without a comment (///): {', '.join(sorted(without - known))}")
check(known <= without, f"take out of tests/docs/undocumented.txt, which only shrinks: {', '.join(sorted(known - without))}")
# Passages: whole statements as they stand in their files, from the documents where they have one.
bare = {name for name, passage in passages.items() if passage is None}
listed = set((SOURCE / "tests/docs/without_passage.txt").read_text().split())
check(bare <= listed, f"public names that no compiled code uses; use them in a document, an example or a test: {', '.join(sorted(bare - listed))}")
check(listed <= bare, f"take out of tests/docs/without_passage.txt, which only shrinks: {', '.join(sorted(listed - bare))}")
files = {}
for name, passage in passages.items():
    if passage is None:
        continue
    lines = passage.code.splitlines()
    there = files.setdefault(passage.path, (SOURCE / passage.path).read_text().splitlines())[passage.line - 1:][:len(lines)]
    check([line.strip() for line in there] == [line.strip() for line in lines], f"{name}: the passage is not at {passage.path}, line {passage.line}")
    code = reference.passages.hidden(passage.code)
    check(len(lines) <= reference.passages.MOST_LINES and all(code.count(a) == code.count(b) for a, b in ("()", "[]", "{}")), f"{name}: no whole statement:\n{passage.code}")
    word = name.rpartition("::")[2]
    check(re.search(rf"\b{word}\b", code) or re.search(r"\.\w+ = ", code), f"{name} is not in its passage:\n{passage.code}")
for name, text in (("optim::AdamW", "optim::AdamW optimizer(model, {"), ("checkpoint::SaveOptions", "checkpoint::Saver saver("), ("Mixture", "const Mixture layer"),
                   ("dtensor::sqrt", "[](const D& x) { return sqrt("), ("operations::max", "max<1>("), ("run", "weft::run<comm::Threads>("),
                   ("call", "weft::call("), ("cast", "cast<"), ("linear", "linear<0>(")):
    check(passages[name] and text in passages[name].code, f"the passage of {name}: {passages[name]}")
check("parameters[" not in passages["operations::relu"].code, f"a passage of DTensors is none of tensors: {passages['operations::relu']}")
adamw_text = pages["reference/optim.md"].split("### `optim::AdamW` ")[1].split("\n### ")[0]
check(re.search(r"For example, in \[.*\]\(\.\./[\w./]*md#[\w-]+\):\n\n```cpp\n(.*\n)*optim::AdamW optimizer\(model, ", adamw_text), f"a passage with its place: {adamw_text}")
roots = set((SOURCE / "tests/headers/root_names.txt").read_text().split())
spaces = {name for name in roots if any(other.startswith(name + "::") for other in found)} | {"calls", "detail", "fields", "kernels", "mesh_layout", "nn", "runtime", "zero"}
check(roots - found - spaces - USING == set(), f"names of weft that are not in the reference: {sorted(roots - found - spaces - USING)}")
check(len(found) > 900 and not any("detail" in name or "engine" in name for name in found), f"{len(found)} names")
adamw = pages["reference/optim.md"].split("### `optim::AdamWOptions`")[1].split("\n## ")[0]
check("- `double clip = 0;`<br>maximum global gradient norm; 0: no clipping" in adamw, f"a member with its comment: {adamw[:800]}")
mesh = pages["reference/mesh.md"]
check("template <Axis A>" in mesh and re.search(r"\bcomm\(", mesh), "a member that a concept of detail constrains: Mesh::comm")
check("using Block = ...;" in pages["reference/models.md"], "an alias of an internal type: BasicGpt::Block")
shown = [(entry.name, line) for entry in entries for line in [*entry.declarations, *(line for line, _ in entry.members)]]
check(len(shown) > 3000 and not [(name, line) for name, line in shown if "detail::" in line], f"internal names in {len(shown)} declarations: {[(name, line) for name, line in shown if 'detail::' in line][:5]}")
linear = pages["reference/nn.md"].split("### `Linear` ")[1].split("\n### ")[0]
check("LayerArguments" not in linear and "std::size_t" in linear, f"a constructor that only refuses wrong arguments: {linear}")
check("In [`weft/nn/linear.hpp`](../../include/weft/nn/linear.hpp)." in linear, "an entry links to its header")
check({"comm::mpi::over", "comm::nccl::over"} <= found, "the communicators over MPI's and NCCL's")
functions = re.findall(r"^\w[\w* ]* \*?(weft_\w+)\(", (SOURCE / "include/weft/c_interface/weft.h").read_text(), re.MULTILINE)
check(len(functions) == 29 and set(functions) <= found, f"functions of weft.h that are not in the reference: {set(functions) - found} of {len(functions)}")
# weft's rules update elements; UpdatesSlots is for rules of programs.
lonely = [entry.name for entry in entries if entry.kind == "concept" and entry.name != "optim::UpdatesSlots" and "Satisfied by `" not in pages[f"reference/{entry.header.split('/')[0]}.md"].split(f"### `{entry.name}` ")[1].split("\n### ")[0]]
check(not lonely, f"no test or header asserts what satisfies {lonely}")
check("Satisfied by `schedule::DualPipeV`, `schedule::GPipe`, " in pages["reference/pipeline.md"], "types that satisfy a concept")
check("Invariant&lt;tp>" in pages["reference/parallel.md"] and not any("\\<" in text for text in pages.values()), "types in prose: Python-Markdown has no escape of <")
# The events that UserPolicy's comment lists are events of a wrapper, with their arguments.
events = (SOURCE / "include/weft/engine/hooks.hpp").read_text()
listed = re.findall(r"^void (\w+)\(([^)]*)\);", pages["reference/parallel.md"].split("### `UserPolicy`")[1].split("\n### ")[0], re.MULTILINE)
check(len(listed) == 4 and all(f"virtual void {name}({arguments.partition(' ')[0]}" in events for name, arguments in listed), f"events of UserPolicy: {listed}")

print(f"{len(found)} public names, {len(without)} without a comment, {len(bare)} without a passage")
finish()
