#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each message of the headers has an entry in docs/errors.md, or is listed in messages_without_entry.txt, a list that only shrinks. Messages are
the texts of static_assert that begin with `weft:`, and the texts of statements that throw an error or refuse a call. A message has an entry if
docs/errors.md has four words of it in their order, since numbers and names differ. Shorter texts are not checked."""
import os
import pathlib
import re
import sys

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests/support"))
from checks import check, finish

RUN = 4
LITERAL = r'"((?:[^"\\]|\\.)*)"'
ASSERTED = re.compile(r'static_assert\((?:[^;"]|\n)*?((?:"(?:[^"\\]|\\.)*"\s*)+)\)')
THROWN = re.compile(r"(?:throw_error<\w+>\(\s*\{|throw \w*Error\(|refuse\w*\(\{)([^;]{0,700})")


def words(text):
    return re.sub(r"[^a-z_]+", " ", text.lower().replace("\\n", " ")).split()


def runs(text):
    found = words(text)
    return {tuple(found[i:i + RUN]) for i in range(len(found) - RUN + 1)}


def messages(text):
    """(text, parts): the message with `|` for its values, and its literals."""
    for match in ASSERTED.finditer(text):
        parts = ["".join(re.findall(LITERAL, match[1])).removeprefix("weft: ")]
        if match[1].startswith('"weft') and len(words(parts[0])) >= RUN:
            yield parts[0], parts
    for match in THROWN.finditer(text):
        parts = re.findall(LITERAL, match[1])
        if any(len(words(part)) >= RUN for part in parts):
            yield "|".join(parts), [part for part in parts if len(words(part)) >= RUN]


document = runs((SOURCE / "docs/errors.md").read_text())
check(tuple("the summed dims differ".split()) in document, "words of docs/errors.md")
count, without = 0, set()
for path in sorted((SOURCE / "include/weft").rglob("*.hpp")):
    for message, parts in messages(path.read_text()):
        count += 1
        if not any(runs(part) & document for part in parts):
            without.add(f"{path.relative_to(SOURCE / 'include/weft')}: {message[:100].strip()}")
known = set((SOURCE / "tests/docs/messages_without_entry.txt").read_text().splitlines())
for line in sorted(without - known):
    check(False, f"docs/errors.md has no entry with four words of this message: {line}")
for line in sorted(known - without):
    check(False, f"take out of tests/docs/messages_without_entry.txt, which only shrinks: {line}")
check(count > 1000, f"{count} messages; are the patterns right?")
print(f"{count} messages, {len(without)} without an entry")
finish()
