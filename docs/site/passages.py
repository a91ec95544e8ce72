# SPDX-License-Identifier: Apache-2.0
"""Passages of compiled code that show a use of a public name: from the documentation's blocks of code, the examples, the tests, or weft.

    found = Passages(reference.names(folder))
    found.of("optim::AdamW")   # the best passage, or None

A passage is a whole statement that uses the name, after the definitions of its variables. Uses are found by their text, so the rules are
strict. The file includes the name's header, and defines nothing of the same name. Types of inner namespaces are qualified; functions are
called; of several public names that end alike, one must be qualified. A type is used, too, by `.member = ` beside a function or class that
takes the type; in documents also elsewhere, if no other type has the member."""
import collections
import dataclasses
import functools
import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LESSONS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/course").glob("[0-9]_*.md"))
GROUPS = (["docs/guide.md", "docs/fields.md", "docs/start.md", "README.md", *LESSONS], ["examples"], ["tests"], ["include/weft"])  # the first ones are preferred
BLOCK = re.compile(r"^```cpp(?: main| program)?\n(.*?)^```", re.MULTILINE | re.DOTALL)  # compiled, and without an intended error
MOST_LINES = 12
WORD = re.compile(r"\w+|(?<=[ {(])\.\w+(?= = )")  # or a member in an initializer
BRACKET = re.compile(r"[(\[{}\])]")
HIDDEN = re.compile(r'//[^\n]*|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
# Lines that name something without a use of it.
NO_USE = re.compile(r"\s*(#|using (?!\w+ =)|namespace |friend |TEST_CASE|extern template|(template <.*> ?)?(struct|class|enum class) [\w:]+;)")
# A data member's declaration, as Doxygen has it.
MEMBER = re.compile(r"(?!using |static |template|friend )[^()=]*\b(\w+)(?: ?=.*|\{.*\})?;$")
# The definition of a type, a concept or a variable {0}.
DEFINITION = r"\b(struct|class|enum|concept|using) ([\w:]+::)?{0}\b(?!<)|^ *(explicit |constexpr |WEFT_COLD |WEFT_INLINE |virtual |~)*{0}\(|operator==?\(.*= |\b(inline|static|extern) .*\b{0}( = |;)"
# Fewer of these in a passage are better.
POOR = re.compile(r"\b(CHECK\w*|REQUIRE\w*|weft_test|Exec|INFO|decltype|detail)\b|{}|static_assert\(!")
# A passage that only names something.
BARE = re.compile(r" *(using \w+ = [\w:]+;|[^({=]*)$")
# Names that a file defines: types, lambdas and functions with a body; variables and parameters.
DEFINED = re.compile(r"\b(?:struct|class|concept|enum|using) (\w+)\b(?!;)|\b(\w+) = \[|^(?! *(?:return|else|throw|new)\b).*[\w>&*] (\w+)\(.*\{(?:.*\})? *$", re.MULTILINE)
DEFINED_VARIABLE = re.compile(r"[\w>](?:[&*]+ ?|(?<!return)(?<!throw)(?<!else) )(\w+) ?[;,={)]")
# Namespaces and names that code uses without a qualification.
OPENED = re.compile(r"using namespace (?:weft::)?([\w:]+);|namespace (?:weft::)?(\w+) \{|using ((?:\w+::)+\w+(?:, (?:\w+::)+\w+)*);")
# The definition of local variables.
VARIABLE = re.compile(r"^ *(?!return\b|throw\b|else\b|using\b)(?:static |const |constexpr |auto )*(?:auto[&*]*|[\w:]+(?:<.*>)?[&*]*) \[?((?:\w+, )*\w+)\]?(?: ?[={(;:]|$)")


@dataclasses.dataclass
class Source:
    """A file of code, or a block of a document."""
    path: str
    first: int  # the number of lines before it in its file
    group: int  # of GROUPS
    text: str
    defined: set  # names that its file defines
    opened: set  # namespaces whose names its file uses without them, and names that it imports
    headers: set  # of weft, that its file includes, also through others

    def __post_init__(self):
        self.lines = self.text.splitlines()
        self.code = hidden(self.text).splitlines()
        self.with_dtensor = "dtensor" in self.path or re.search("dtensor::|DTensor", self.text) is not None

    @functools.cached_property
    def brackets(self):
        """The open brackets before each line."""
        found, opened = [], ""
        for line in self.code:
            found.append(opened)
            for bracket in BRACKET.findall(line):
                opened = opened + bracket if bracket in "([{" else opened[:-1]
        return [*found, opened]

    def depth(self, number):
        return len(self.brackets[number])

    def begins(self, number):
        """Whether a statement begins on a line."""
        before = next((line.strip() for line in reversed(self.code[:number]) if line.strip()), ";")
        return self.brackets[number][-1:] in ("", "{") and re.match(r"\s*(?!else\b)[^\s})\].:&|<>?=+,]", self.code[number]) is not None and re.search(r"[;}]$|(^| ){$|^#|^(public|private):$", before) is not None

    def statement(self, number):
        """The lines [begin, end) of the innermost statement with a line."""
        depth = self.depth(number) - bool(re.match(r"\s*[})\]]", self.code[number]))
        begin = number
        while begin and not (self.begins(begin) and self.depth(begin) <= depth):
            begin -= 1
        end = number + 1
        while end < len(self.code) and (self.depth(end) > self.depth(begin) or not self.code[end - 1].rstrip().endswith((";", "}")) or re.match(" *else\\b", self.code[end])):
            end += 1
        return begin, end

    def passage(self, number):
        """The lines [begin, end) to show for a use on a line: a variable without arguments is shown in the class that has it."""
        begin, end = self.statement(number)
        if begin and end == begin + 1 and BARE.match(self.code[begin]):
            outer = next((line for line in range(begin - 1, -1, -1) if self.depth(line) < self.depth(begin)), begin)
            around = self.statement(outer)
            return around if around[1] - around[0] <= MOST_LINES else (begin, end)
        return begin, end

    def with_variables(self, begin, end):
        """The passage after the definitions of its variables, if these stand directly before it."""
        while begin:
            before, until = self.statement(begin - 1)
            variable = VARIABLE.match(self.code[before])
            used = set(re.findall(r"\w+", " ".join(self.code[begin:end])))
            if until != begin or end - before > MOST_LINES // 2 or self.depth(before) != self.depth(begin) or not variable or not used & set(variable[1].split(", ")):
                break
            begin = before
        return begin, end


@dataclasses.dataclass
class Passage:
    path: str
    line: int  # in its file, counted from 1
    code: str

    @property
    def heading(self):
        """The last heading before a passage of a document, or nothing."""
        lines = (ROOT / self.path).read_text().splitlines()[:self.line] if self.path.endswith(".md") else []
        return next((line.lstrip("# ") for line in reversed(lines) if re.match("#+ [A-Z]", line)), "")


def hidden(text):
    """The text with empty comments and literals, and the same lines."""
    return HIDDEN.sub(lambda match: ("" if match[0][0] == "/" else '""') + "\n" * match[0].count("\n"), text)


def headers_of(text, folder, known):
    """The headers of weft that a text in a folder includes, also through others. `known`: those of each file."""
    found = set()
    for name in re.findall(r'^#include [<"]([^>"]+)', text, re.MULTILINE):
        places = [f"{ROOT}/include/{name}"] if name.startswith("weft/") else [f"{folder}/{name}", f"{ROOT}/tests/{name}", f"{ROOT}/examples/{name}"]
        file = next(filter(os.path.isfile, places), None)
        if file and file not in known:
            known[file] = set()
            known[file] |= headers_of(pathlib.Path(file).read_text(), os.path.dirname(file), known)
        found |= {name.removeprefix("weft/")} | known[file] if file else set()
    return found


def sources():
    known = {}
    for group, places in enumerate(GROUPS):
        for place in places:
            for path in sorted([*(ROOT / place).rglob("*.[ch]pp"), *(ROOT / place).rglob("*.c")]) if (ROOT / place).is_dir() else [ROOT / place]:
                if "compile_fail" in path.parts or "programs" in path.parts and path.suffix != ".c":
                    continue
                text = path.read_text()
                blocks = [(text[:match.start(1)].count("\n"), match[1]) for match in BLOCK.finditer(text)] if path.suffix == ".md" else [(0, text)]
                whole = hidden("\n".join(code for _, code in blocks))
                defined = {name for names in DEFINED.findall(whole) for name in names if name} | set(DEFINED_VARIABLE.findall(whole))
                opened = {name.removeprefix("weft::") for names in OPENED.findall(whole) for some in names for name in some.split(", ") if name}
                itself = "#include <weft/weft.hpp>" if path.suffix == ".md" else f"#include <{path.relative_to(ROOT / 'include')}>" if place == "include/weft" else ""
                headers = headers_of(text + "\n" + itself, path.parent, known)
                for first, code in blocks:
                    yield Source(str(path.relative_to(ROOT)), first, group, code, defined, opened, headers)


class Passages:
    def __init__(self, names):
        """`names`: reference.Name of each public name."""
        self.kinds = {name.name: name.kind for name in names}
        self.headers = collections.defaultdict(set)
        self.alike = collections.defaultdict(set)  # by last word: the namespaces
        self.members = collections.defaultdict(set)  # of data, by type
        for name in names:
            space, _, word = name.name.rpartition("::")
            self.alike[word].add(space)
            self.headers[name.name].add(name.header)
            self.members[name.name] |= {match[1] for line, _ in name.members if (match := MEMBER.match(line))}
        types = collections.Counter(member for some in self.members.values() for member in some)
        self.alone = {name: {member for member in some if types[member] == 1} for name, some in self.members.items()}
        self.takers = collections.defaultdict(set)  # by last word of a type
        for name in names:
            for word in re.findall(r"\w+(?=& \w+[,) ])", " ".join([*name.declarations, *(line for line, _ in name.members)])):
                self.takers[word].add(name.name)
        words = self.alike.keys() | {"." + member for some in self.alone.values() for member in some}
        self.uses = collections.defaultdict(list)  # by word, or by member with a dot: (source, line)
        for source in sources():
            for number, line in enumerate(source.code):
                there = words.intersection(WORD.findall(line)) if line else ()
                for word in there if there and not NO_USE.match(line) else ():
                    self.uses[word].append((source, number))

    def used(self, name, source, line):
        """Whether a line of a source uses the name."""
        space, _, word = name.rpartition("::")
        function = self.kinds[name] == "function"
        if not self.headers[name] & source.headers or not function and re.search(DEFINITION.format(word), line):
            return False
        called = r"(\(|<[^;]*>?\()" if function else r"\b(?! = )"
        if re.search(rf"\b{space or 'weft'}::{word}{called}", line):
            return True
        opened = {space, name} & source.opened
        others = self.alike[word] - {space}
        in_weft = source.group == len(GROUPS) - 1 and (opened or not space)  # which may use what it defines
        if word in source.defined and not in_weft or space and not opened and not function:
            return False
        if function and not opened and space not in ("", "operations", "dtensor") or function and space == "dtensor" and not source.with_dtensor:
            return False
        if (others | {"kernels"}) & source.opened and not opened:
            return False
        if function and others and not opened:   # functions of tensors and of DTensors differ by their arguments only
            if space != "dtensor" and not others <= {"operations", "dtensor"} or source.with_dtensor != (space == "dtensor"):
                return False
        before = r"(?<![\w:.>])(?<!> )(?<![\w>][&*] )(?:(?<!\w )|(?<=return )|(?<=else ))" if function else r"(?<![\w:.])(?<!->)"
        return re.search(rf"{before}(?:weft::)?{word}{called}", line) is not None

    def candidates(self, name):
        """The uses of a name: (source, line)."""
        word = name.rpartition("::")[2]
        for source, number in self.uses[word]:
            if self.used(name, source, source.code[number]):
                yield source, number
        for member in sorted(self.alone[name]):
            yield from ((source, number) for source, number in self.uses["." + member] if source.group == 0)
        for taker in sorted(self.takers[word]) if self.members[name] else ():
            for source, number in self.uses[taker.rpartition("::")[2]]:
                if self.members[name] & set(re.findall(r"\.(\w+) = ", source.code[number])) and self.used(taker, source, source.code[number]):
                    yield source, number

    def of(self, name):
        """The best passage for a name, or None."""
        best = None
        for source, number in self.candidates(name):
            if best and best[0] < (False, False, source.group):
                continue  # no better one
            begin, end = source.passage(number)
            text = "\n".join(source.code[begin:end])
            if end - begin > MOST_LINES or NO_USE.match(text):
                continue
            score = source.group == len(GROUPS) - 1, BARE.match(text) is not None, source.group, len(POOR.findall(text)), len(text)
            if not best or score < best[0]:
                best = score, source, begin, end
        if not best:
            return None
        _, source, begin, end = best
        begin, end = source.with_variables(begin, end)
        lines = source.lines[begin:end]
        indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
        return Passage(source.path, source.first + begin + 1, "\n".join(line[indent:].rstrip() for line in lines))
