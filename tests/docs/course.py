#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The code of the lessons in docs/course. Blocks of a lesson:

    ```cpp              a part of its program; its functions of a World are called by their names
    ```cpp refused      the same; the function ends with the error that the next block of text has
    ```cpp wrong NAME   part of the section NAME of tests/compile_fail/course.cpp; the next block of text has the compiler's message
    ```text output      the output of the last function above
    ```sh run           a command with the program; the next block of text, `text part`, has lines of its output

    python3 tests/docs/course.py LESSON.md PROGRAM.cpp     writes the program of a lesson
"""
import dataclasses
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LESSONS = sorted((ROOT / "docs/course").glob("[0-9]_*.md"))
FUNCTION = re.compile(r"^void (\w+)\(World& \w+\)", re.MULTILINE)


@dataclasses.dataclass
class Block:
    kind: str  # of C++: "", "refused", "wrong NAME"; of others with the language: "text output"
    code: str

    @property
    def functions(self):
        return FUNCTION.findall(self.code) if self.kind in ("", "refused") else []


def blocks(path):
    """The blocks of C++ and of text in a lesson, in order."""
    found = re.findall(r"^```(cpp|text|sh)([^\n]*)\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    return [Block((extra.strip() if language == "cpp" else language + extra), code) for language, extra, code in found]


def program(path):
    """A lesson's blocks as one program, whose argument is the function to call on four thread ranks."""
    code = "\n".join(block.code for block in blocks(path) if block.kind in ("", "refused"))
    includes = sorted({"#include <string>", "#include <weft/runtime/rehearse.hpp>", *re.findall(r"^#include .*", code, re.MULTILINE)})
    code = re.sub(r"^#include .*\n", "", code, flags=re.MULTILINE)
    calls = "".join(f'    if (name == "{name}") {name}(world);\n' for name in FUNCTION.findall(code))
    main = f"""
int main(int argc, char** argv) {{
  const std::string name = argc > 1 ? argv[1] : "";
  return run<comm::Threads>(RunOptions{{.ranks = 4, .threads_per_rank = 1}}, [&](World& world) {{
{calls}  }});
}}
"""
    return "\n".join(includes) + "\n" + code + main


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).write_text(program(pathlib.Path(sys.argv[1])))
