# SPDX-License-Identifier: Apache-2.0
"""The declarations of namespace weft itself, its nested namespaces too, are those of root_names.txt: a program `using namespace
weft` must not use any of these names at global scope, so a new one is a decision. Names that programs do not use belong into
weft::detail or the namespace of their topic.

    python3 tests/headers/test_root_names.py [--write]
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIST = pathlib.Path(__file__).with_name("root_names.txt")
SILENT = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((?:.*?)\)"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.DOTALL | re.MULTILINE)
TOKEN = re.compile(r"\w+|::|&&|\|\||\S")
BRACKETS = {"(": ")", "{": "}", "[": "]", "<": ">"}


def behind(tokens, at):
    """The place behind the bracket that opens at `at`; of < and > only those outside of other brackets count."""
    opening, closing, depth = tokens[at], BRACKETS[tokens[at]], 0
    while at < len(tokens):
        if tokens[at] == opening:
            depth += 1
        elif tokens[at] == closing:
            depth -= 1
            if depth == 0:
                return at + 1
        elif opening == "<" and tokens[at] in "({[":
            at = behind(tokens, at) - 1
        at += 1
    return at


def declarations(tokens):
    """Cuts the text of a namespace into declarations."""
    start = at = 0
    while at < len(tokens):
        block = tokens[at] == "{"
        end = tokens[at] == ";"
        at = behind(tokens, at) if tokens[at] in "({[" else at + 1
        if end or (block and (at == len(tokens) or tokens[at] not in (";", "&&", "||", ",", ")", "=", "{"))):
            yield tokens[start:at]
            start = at


def name_of(tokens):
    at = 0
    while True:
        if tokens[at] == "template":
            at = behind(tokens, at + 1)
        elif tokens[at] == "requires":
            at = behind(tokens, at + 1)
        elif tokens[at] == "[":
            at = behind(tokens, at)
        elif tokens[at] in ("inline", "constexpr", "WEFT_COLD", "WEFT_OUT_OF_LINE", "KOKKOS_INLINE_FUNCTION"):
            at += 1
        else:
            break
    if tokens[at] in ("struct", "class", "enum", "union"):
        at += 2 if tokens[at + 1] in ("class", "struct") else 1
        while tokens[at] == "[":
            at = behind(tokens, at)
        return tokens[at]
    if tokens[at] == "using":
        return tokens[at + 1] if tokens[at + 2] == "=" else tokens[-2]
    if tokens[at] == "concept":
        return tokens[at + 1]
    last, qualified = None, False
    while at < len(tokens) and tokens[at] not in ("{", "=", ";"):
        if tokens[at] == "operator":
            return None
        if tokens[at] == "<":
            at = behind(tokens, at)
        elif tokens[at] == "(" and last == "decltype":
            at = behind(tokens, at)
        elif tokens[at] == "(":
            break
        else:
            if re.match(r"[A-Za-z_]", tokens[at]):
                last, qualified = tokens[at], at > 0 and tokens[at - 1] == "::"
            at += 1
    return None if qualified else last  # a member that is defined outside of its class, or no declaration


def collect(tokens, inside, names):
    """inside: these tokens stand in namespace weft."""
    for declaration in declarations(tokens):
        if declaration[0] == ";" or "static_assert" in declaration[:1]:
            continue
        if declaration[0] == "namespace":
            body = declaration.index("{")
            path = [part for part in declaration[:body] if re.match(r"\w", part)][1:]
            if inside:
                names.add(path[0])
            elif path == ["weft"]:
                collect(declaration[body + 1:-1], True, names)
            elif path[0] == "weft":
                names.add(path[1])
        elif inside:
            name = name_of(declaration)
            if name:
                names.add(name)


found = set()
headers = [path for path in (ROOT / "include/weft").rglob("*") if path.suffix in (".hpp", ".cuh")]
for header in headers:
    text = SILENT.sub(lambda match: '""' if match[0][0] in "\"'R" else " ", header.read_text())
    collect(TOKEN.findall(text), False, found)
if "--write" in sys.argv:
    LIST.write_text("\n".join(sorted(found, key=lambda name: (name.lower(), name))) + "\n")
if not {"Tensor", "Mesh", "run", "zeros", "DataParallel", "tp", "bfloat16", "contract"} <= found:
    sys.exit(f"{len(headers)} headers seem to declare {len(found)} names; is the scan right?")
allowed = set(LIST.read_text().split())
if found - allowed:
    sys.exit("namespace weft has new names, which programs can then not use beside `using namespace weft`: " + ", ".join(sorted(found - allowed)) +
             ". Put them into weft::detail or the namespace of their topic, or, if programs name them, add them to tests/headers/root_names.txt.")
if allowed - found:
    sys.exit("tests/headers/root_names.txt lists what namespace weft does not have any more: " + ", ".join(sorted(allowed - found)))
print(f"{len(found)} names")
