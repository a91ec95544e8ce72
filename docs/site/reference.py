#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reference: a page for each folder of include/weft, from the headers' comments.

    python3 docs/site/reference.py --read build/doxygen             # Doxygen's XML of the headers
    python3 docs/site/reference.py --undocumented build/doxygen     # public names without a comment, a line each
    python3 docs/site/reference.py --without-passage build/doxygen  # public names of which no compiled code was found

A page has a section for each header: its opening comment with the smallest use, then its public names with their declarations, comments
and a passage of compiled code that uses them (passages.py). Public names are those in the namespaces below, the functions of C in weft.h, and
the names in namespace weft that tests/headers/root_names.txt lists. Internal names (`detail::`) in a declaration lose their namespace, or are
shown as `...`. Overloads that only refuse wrong arguments are not shown."""
import collections
import dataclasses
import itertools
import pathlib
import posixpath
import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree

import passages

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NAMESPACES = ("c_interface checkpoint comm cudnn data dtensor elastic generation gpu hook hugging_face inference models operations optim plan runtime schedule "
              "testing trace zero").split()
INNER = {"comm::mpi::over", "comm::nccl::over", "comm::nccl::Options"}  # public names of namespaces that are otherwise internal
REFUSED = re.compile(r"AlreadyRefused|AnyArgument=|WrongArguments|NoContext")  # overloads that only print an error


@dataclasses.dataclass
class Name:
    """A public name: all declarations of it in one header."""
    name: str  # with its namespaces, without weft::
    header: str
    kind: str
    declarations: list = dataclasses.field(default_factory=list)
    texts: list = dataclasses.field(default_factory=list)
    members: list = dataclasses.field(default_factory=list)  # (declaration, text)

    @property
    def anchor(self):
        return re.sub(r"[^A-Za-z0-9_]+", "-", (self.header + "-" + self.name).replace("operator", "operator_" + "".join(f"{ord(c):x}" for c in self.name if c in "+-*/<>=!&|^"))).strip("-")


def read(folder):
    """Doxygen's XML in `folder`/xml, made anew if a header has changed."""
    folder.mkdir(parents=True, exist_ok=True)
    newest = max(path.stat().st_mtime for path in [*(ROOT / "include").rglob("*.h*"), ROOT / "docs/site/Doxyfile", ROOT / "docs/site/comments.sed"])
    index = folder / "xml/index.xml"
    if index.exists() and index.stat().st_mtime > newest:
        return
    options = (ROOT / "docs/site/Doxyfile").read_text() + f'OUTPUT_DIRECTORY = "{folder.resolve()}"\n'
    subprocess.run(["doxygen", "-"], input=options, text=True, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def words(element):
    """The text of an element in one line, without markup."""
    return " ".join("".join(element.itertext()).split()) if element is not None else ""


def markdown(element):
    """A comment's text as Markdown."""
    if element is None:
        return ""
    parts = [element.text or ""]
    for child in element:
        inside = markdown(child)
        if child.tag == "computeroutput":
            inside = f"`{''.join(child.itertext())}`"
        elif child.tag == "para":
            inside = inside.strip() + "\n\n"
        elif child.tag == "listitem":
            inside = "- " + inside.strip() + "\n"
        elif child.tag in ("itemizedlist", "orderedlist"):
            inside = "\n\n" + inside + "\n"
        elif child.tag in ("verbatim", "programlisting"):
            code = "\n".join("".join(line.itertext()) for line in child) if child.tag == "programlisting" else child.text
            inside = f"\n\n```cpp\n{textwrap.dedent(code).strip()}\n```\n\n"
        elif child.tag == "sp":
            inside = " "
        parts += [inside, child.tail or ""]
    return "".join(parts)


def escaped(text):
    """A comment's prose, in which only code between backquotes is markup."""
    return "".join(part if part[:1] in ("`", "*") and len(part) > 1 else re.sub(r"[<*_\[\]|#]", lambda m: "&lt;" if m[0] == "<" else "\\" + m[0], part) for part in re.split(r"(`[^`]*`|\*\w+\*)", text))


def comment(member):
    text = (markdown(member.find("briefdescription")).strip() + "\n\n" + markdown(member.find("detaileddescription")).strip()).replace("&lt;", "<")
    return "".join(part if part.startswith("```") else escaped(part) for part in re.split(r"(```.*?```)", text, flags=re.DOTALL)).strip()


def template(element):
    """The template<...> of a declaration, or nothing."""
    parameters = element.find("templateparamlist")
    if parameters is None:
        return ""
    names = []
    for parameter in parameters:
        text = words(parameter.find("type"))
        name, default = words(parameter.find("declname")), words(parameter.find("defval"))
        names.append(text + (f" {name}" if name and name not in text.split() else "") + (f" = {default}" if default else ""))
    clause = words(element.find("requiresclause"))
    return f"template <{', '.join(names)}>" + (f"\nrequires {clause}" if clause else "") + "\n"


def spaced(code):
    """Doxygen's code as clang-format writes it, nearly."""
    code = re.sub(r"< (?=\S)", "<", code)
    code = re.sub(r"(?<=\S) >", ">", code)
    return re.sub(r"\s*([&*]+) ?(?=\w)(?<! )", r"\1 ", code)


def declaration(member):
    kind, name = member.get("kind"), words(member.find("name"))
    text, arguments = words(member.find("type")), words(member.find("argsstring"))
    start = words(member.find("initializer"))
    if kind == "enum":
        values = ", ".join(words(value.find("name")) for value in member.iter("enumvalue"))
        return f"enum {'class ' if member.get('strong') == 'yes' else ''}{name} {{ {values} }};"
    if kind == "typedef" and text.startswith("struct "):
        return f"typedef {text} {name};"  # of C
    if kind == "typedef":
        return template(member) + f"using {name} = {spaced(text.removeprefix('using ').removeprefix('typedef '))};"
    if kind == "variable":
        return template(member) + spaced(f"{text} {name}{arguments} {start if len(start) < 60 else ''}".rstrip()) + ";"
    return template(member) + spaced(f"{text} {name}{arguments}".strip()) + ";"


def without_detail(line):
    """A declaration as readers see it: an internal alias, definition or default as `...`, other internal names without their namespace."""
    line = re.sub(r"^((?:template ?<.*>\s+)?(?:using|concept) [\w:]+ = )(?:typename )?(?:\w+::)*detail::.*", r"\1...;", line, flags=re.DOTALL)
    line = re.sub(r"(?<![!<>=]) ?= ?(?:\w+::)*detail::[^,;()]*(?:\([^()]*\))?", " = ...", line)
    return re.sub(r"\b(?:\w+::)*detail::", "", line)


def public(name, listed):
    """A name without weft::, or None for one that is internal."""
    if name.removeprefix("weft::") in INNER:
        return name.removeprefix("weft::")
    parts = re.sub(r"<.*", "", name).split("::")
    if parts[0] != "weft" or len(parts) < 2 or "<" in name and "operator" not in name or parts[-1].startswith("WEFT_") or any(part in ("detail", "engine", "calls") or part.startswith("@") for part in parts):
        return None
    if parts[1] in NAMESPACES:
        inside = parts[2] if len(parts) == 3 else None
        return inside if parts[1] == "runtime" and inside in listed else inside and f"{parts[1]}::{inside}"   # runtime's names are in weft by using
    return parts[1] if len(parts) == 2 and (parts[1] in listed or parts[1].startswith("operator")) else None


def header_of(element):
    """The header that declares a name, or nothing if it declares no public names: one that only refuses wrong calls."""
    location = element.find("location")
    header = location.get("file", "").removeprefix("include/weft/") if location is not None else ""
    return "" if re.search(r"(^|/)refused", header) else header


def members(compound):
    """The members that a class shows: (declaration, text). Internal concepts may constrain them."""
    found = []
    for section in compound.findall("sectiondef"):
        if not section.get("kind").startswith(("public", "user-defined")):
            continue
        for member in section.findall("memberdef"):
            line = declaration(member)
            if member.get("kind") in ("typedef", "variable"):
                line = re.sub(r" = .*detail::.*;$", " = ...;", line, flags=re.DOTALL)
            if member.get("prot") == "public" and not REFUSED.search(line) and "detail::" not in line.removeprefix(template(member)) and "@" not in line and "friend" not in member.get("kind") and not re.search(r"= ?delete;$", line) and member.get("kind") != "friend":
                found.append((without_detail(line), comment(member)))
    return found


def names(folder):
    """All public names, by header."""
    listed = set((ROOT / "tests/headers/root_names.txt").read_text().split())
    found = {}

    def add(name, header, kind, line, text, parts=()):
        entry = found.setdefault((header, name), Name(name, header, kind))
        line = without_detail(line)
        entry.declarations += [line] if line not in entry.declarations else []
        entry.texts += [text] if text and text not in entry.texts else []
        entry.members += parts

    for entry in ElementTree.parse(folder / "xml/index.xml").getroot():
        if entry.get("kind") not in ("class", "struct", "namespace", "concept", "file") or any(part in words(entry.find("name")) for part in ("detail", "@")):
            continue
        compound = ElementTree.parse(folder / f"xml/{entry.get('refid')}.xml").getroot().find("compounddef")
        full = words(compound.find("compoundname"))
        kind = compound.get("kind")
        if kind == "file":
            for member in compound.iter("memberdef") if full.endswith(".h") else ():
                if member.get("kind") != "define":
                    add(words(member.find("name")), header_of(member), member.get("kind"), declaration(member), comment(member))
            continue
        if kind != "namespace":
            name = public(full, listed)
            if name and header_of(compound):
                line = words(compound.find("initializer")) if kind == "concept" else template(compound) + f"{kind} {name.split('::')[-1]};"
                add(name, header_of(compound), kind, spaced(line), comment(compound), members(compound) if kind != "concept" else ())
            continue
        for member in compound.iter("memberdef"):
            name = public(f"{full}::{words(member.find('name'))}", listed)
            line = declaration(member)
            if name and header_of(member) and member.get("static") == "no" and not REFUSED.search(line):
                add(name, header_of(member), member.get("kind"), line, comment(member))
    return sorted(found.values(), key=lambda n: (n.header, n.name.lower()))


def opening(header):
    """The comment with which a header opens, as Markdown: lines that are indented by three are code."""
    lines = []
    for line in (ROOT / "include/weft" / header).read_text().split("#pragma once\n")[-1].splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[2:].removeprefix(" ") if not line.startswith("//   ") else "\t" + line[5:])
    parts, code = [], []
    for line in [*lines, ""]:
        if line.startswith("\t"):
            code.append(line[1:])
            continue
        if code:
            parts.append("\n```cpp\n" + "\n".join(code) + "\n```\n")
            code = []
        parts.append(escaped(line))
    return "\n".join(parts).strip()


def floor_plan():
    text = (ROOT / "docs/architecture.md").read_text()
    rows = re.search(r"```floor-plan\n(.*?)```", text, re.DOTALL)[1].splitlines()
    return [(row.split("|")[0].strip(), row.split("|")[1].strip()) for row in rows]


def passages_of(entries):
    """By name: a passage of compiled code that uses it, or None."""
    found = passages.Passages(entries)
    return {name: found.of(name) for name in {entry.name for entry in entries}}


def example(passage):
    """A passage with a link to its place, which is relative to docs/reference."""
    link = posixpath.relpath(passage.path, "docs/reference")
    if passage.heading:
        link, place = link + "#" + re.sub(r"[^\w -]", "", passage.heading.lower()).replace(" ", "-"), passage.heading.replace("`", "")
    else:
        place = f"{passage.path}, line {passage.line}"
    return f"For example, in [{place}]({link}):\n\n```cpp\n{passage.code}\n```\n"


def section(entry, passage=None):
    code = "\n".join(entry.declarations)
    header = f"In [`weft/{entry.header}`]({posixpath.relpath('include/weft/' + entry.header, 'docs/reference')})."
    lines = [f"### `{entry.name}` {{#{entry.anchor}}}", "", f"```cpp\n{code}\n```", "", header, "", "\n\n".join(entry.texts), ""]
    lines += [example(passage)] if passage else []
    lines += [f"- `{line.replace(chr(10), ' ')}`" + (f"<br>{text.replace(chr(10) * 2, ' ').replace(chr(10), ' ')}" if text else "") for line, text in entry.members if text]
    rest = [line for line, text in entry.members if not text and not line.endswith("=default;")]
    if rest:
        lines += ["", "Other members:" if len(rest) < len(entry.members) else "Members:", "", "```cpp", *rest, "```"]
    return "\n".join(lines) + "\n"


def satisfying(entries):
    """By concept: the public types, and those of std and Kokkos, that a header or a test asserts to satisfy it."""
    types = {entry.name for entry in entries if entry.kind != "function"}
    concepts = collections.defaultdict(set)  # by last word
    for entry in entries:
        if entry.kind == "concept":
            concepts[entry.name.rpartition("::")[2]].add(entry.name)
    found = collections.defaultdict(set)
    for path in [*(ROOT / "include/weft").rglob("*.hpp"), *(ROOT / "tests").rglob("*.[ch]pp")]:
        for asserted in re.findall(r"^static_assert\((?:[^;\"]|\n)*", path.read_text(), re.MULTILINE) if "compile_fail" not in path.parts else ():
            for space, word, argument in re.findall(r"(?<![!\w:])((?:\w+::)*)(\w+)<((?:const )?[\w:]+(?:<(?:[^<>]|<[^<>]*>)*>)?)&?[,>]", asserted):
                for concept in concepts[word] if word in concepts else ():
                    inside = concept.rpartition("::")[0]
                    head = re.match(r"(?:const )?([\w:]+)", argument)[1]
                    name = next((name for name in (f"{inside}::{head}", head) if name in types), None)
                    if space in ("", inside + "::") and (name or head.startswith(("std::", "Kokkos::"))):
                        found[concept].add(argument.replace(head, name or head, 1))
    return found


def pages(folder):
    """(path, Markdown) of the reference's pages. Links to files are relative to docs/reference. A name that several headers declare has its
    passage once."""
    by_folder = collections.defaultdict(lambda: collections.defaultdict(list))
    all_names = names(folder)
    for entry in all_names:
        by_folder[entry.header.split("/")[0] if "/" in entry.header else "weft"][entry.header].append(entry)
    plan = [(name, text) for name, text in floor_plan() if name in by_folder]
    satisfies, examples = satisfying(all_names), passages_of(all_names)
    result = []
    for name, text in plan:
        lines = [f"# {name}", "", text[0].upper() + text[1:] + ".", ""]
        for header, entries in sorted(by_folder[name].items()):
            lines += [f"## `weft/{header}`", "", opening(header), ""]
            for entry in entries:
                if entry.kind == "concept" and satisfies.get(entry.name):
                    entry.texts.append("Satisfied by " + ", ".join(f"`{x}`" for x in sorted(satisfies[entry.name])) + ".")
                lines.append(section(entry, examples.pop(entry.name, None)))
        result.append((f"reference/{name}.md", "\n".join(lines)))
    lines = ["# Reference", "", f"The {len({entry.name for entry in all_names})} public names of weft, from the headers' comments. Names in `weft::detail` are internal.", "",
             "| folder | contents |", "|---|---|", *(f"| [{name}]({name}.md) | {text} |" for name, text in plan), ""]
    for title, wanted in (("Concepts", lambda e: e.kind == "concept"), ("All names", lambda e: e.kind != "concept")):
        listed = sorted((e for e in all_names if wanted(e)), key=lambda e: ("::" in e.name, e.name.lower()))
        groups = itertools.groupby(listed, lambda e: e.name.rpartition("::")[0] + "::" if "::" in e.name else e.name[0].upper())  # a paragraph each
        lines += [f"## {title}", "", *(", ".join(f"[`{e.name}`]({e.header.split('/')[0]}.md#{e.anchor})" for e in group) + "\n" for _, group in groups), ""]
    return [("reference/index.md", "\n".join(lines)), *result]


def undocumented(folder):
    """Public names for which no declaration has a comment."""
    texts = collections.defaultdict(list)
    for entry in names(folder):
        texts[entry.name] += entry.texts
    return sorted(name for name, some in texts.items() if not some)


def without_passage(folder):
    return sorted(name for name, passage in passages_of(names(folder)).items() if not passage)


if __name__ == "__main__":
    command, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    read(folder)
    for option, listed in (("--undocumented", undocumented), ("--without-passage", without_passage)):
        if command == option:
            print("\n".join(listed(folder)))
