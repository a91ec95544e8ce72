# SPDX-License-Identifier: Apache-2.0
"""The floor plan of docs/architecture.md is the house: its folders, lowest last, are those of include/weft, each includes only from the
folders that its line names, and these stand below it. Declarations of a header are defined in its folder or below. Files that the
page names exist.

    python3 tests/headers/test_folders.py
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEADERS = ROOT / "include/weft"
PAGE = ROOT / "docs/architecture.md"
SILENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def floor_plan(page):
    """Folder -> the folders in its line of the picture, in the order of the page."""
    picture = re.search(r"```floor-plan\n(.*?)```", page, re.DOTALL)
    rows = [re.split(r"\s{2,}|\s*\|\s*", line.strip()) for line in picture.group(1).splitlines() if line.strip()]
    return {row[0]: set() if row[-1] == "-" else set(row[-1].split()) for row in rows}


def folder_of(path):
    return path.relative_to(HEADERS).parts[0]


def includes(text):
    return re.findall(r"^[ \t]*#[ \t]*include <weft/(\w+)/", text, re.MULTILINE)


def statements(text):
    """The declarations at namespace scope, each as one line up to its `;` or `{`: in this tree they begin in column 0."""
    text = SILENT.sub("", text)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.MULTILINE)
    for match in re.finditer(r"^(?=[\w\[:~])[^;{}]*(?:\{\}[^;{}]*)*[;{]", text, re.MULTILINE):
        yield re.sub(r"\s+", " ", match.group())


TYPE = re.compile(r"^(?:template <.*> )?(?:requires .*? )?(?:friend )?(?:class|struct|enum class|enum) (?:\[\[\w+\]\] )?(?:alignas\(.*?\) )?(\w+)")
FUNCTION = re.compile(r"^(?!using|static_assert|namespace|extern|typedef|return|friend|else|template class|template struct).*?(?<![\w:.>])(\w+) ?\([^=]*\)(?: const| noexcept)*(?: ?->.*)? ?[;{]$")


def names(text):
    """(kind, name, defined) of types and functions at namespace scope."""
    for line in statements(text):
        found = TYPE.match(line)
        if found:
            yield "type", found.group(1), "{" in line[found.end() :]  # "{};" defines one, too
            continue
        found = FUNCTION.match(re.sub(r"^template <.*?> (?=\w)", "", line))
        if found and " " in line[: line.index("(")].strip():
            yield "function", found.group(1), line.endswith("{")


def main():
    faults = []
    page = PAGE.read_text()
    plan = floor_plan(page)
    height = {folder: -place for place, folder in enumerate(plan)}
    there = {path.name for path in HEADERS.iterdir() if path.is_dir()}
    faults += [f"docs/architecture.md: the floor plan has {folder}, include/weft has not" for folder in plan if folder not in there]
    faults += [f"docs/architecture.md: the floor plan lacks include/weft/{folder}" for folder in sorted(there) if folder not in plan]
    if faults:
        sys.exit("\n".join(faults))

    used = {folder: set() for folder in plan}
    declared, defined = [], {}
    for path in sorted(p for p in HEADERS.rglob("*") if p.suffix in (".hpp", ".cuh") and p.parent != HEADERS and "compat" not in p.parts):
        text, folder, name = path.read_text(), folder_of(path), path.relative_to(HEADERS)
        for other in includes(text):
            if other == folder:
                continue
            used[folder].add(other)
            if height[other] > height[folder]:
                faults.append(f"{name} includes from {other}, which stands above {folder}: move what it needs down, or the header up")
        for kind, what, is_definition in names(text):
            if is_definition:
                defined.setdefault((kind, what), set()).add(folder)
            else:
                declared.append((kind, what, folder, name))
    for kind, what, folder, name in declared:
        homes = defined.get((kind, what), set())
        if homes and all(height[home] > height[folder] for home in homes):
            faults.append(f"{name} declares {kind} {what}, which is defined above it, in {', '.join(sorted(homes))}: an include that goes up, hidden")
    for folder, others in used.items():
        if others != plan[folder]:
            faults.append(f"docs/architecture.md: {folder} uses {' '.join(sorted(others, key=height.get)) or '-'}; the floor plan says {' '.join(sorted(plan[folder], key=height.get)) or '-'}")
    for named in re.findall(r"`([\w./]+/[\w.]+\.(?:hpp|cuh|cpp|py|md|sh|txt))`", page):
        if not any((base / named).exists() for base in (ROOT, HEADERS, ROOT / "docs")):
            faults.append(f"docs/architecture.md names {named}, which does not exist")
    if faults:
        sys.exit("\n".join(faults))
    print(f"{len(plan)} folders, {sum(map(len, used.values()))} uses, all downwards; {len(declared)} declarations, none of them defined above")


if __name__ == "__main__":
    main()
