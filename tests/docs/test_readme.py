#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs that README.md and docs/start.md show compile as they stand, and the commands that README.md and the guide name exist, with their
options."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
text = (ROOT / "README.md").read_text()

program, start = (re.search(r"```cpp\n(.*?)```", shown, re.DOTALL).group(1) for shown in (text, (ROOT / "docs/start.md").read_text()))
if "comm/mpi.hpp" in program and not os.environ.get("WEFT_MPIRUN_EXECUTABLE"):
    print("without MPI the program cannot be compiled")
    sys.exit(77)
with tempfile.TemporaryDirectory(prefix="weft_readme_") as folder:
    source = pathlib.Path(folder) / "readme.cpp"
    includes = [flag for path in os.environ.get("WEFT_INCLUDES", "").split(":") if path for flag in ("-isystem", path)]
    command = [os.environ.get("WEFT_CXX", "g++"), "-std=c++20", "-fopenmp", "-fsyntax-only", "-I", str(ROOT / "include"), *includes, str(source)]
    for place, code in (("README.md", program), ("docs/start.md", start)):
        source.write_text(code)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"{place}'s program does not compile:\n" + done.stderr)
            sys.exit(1)

prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
missing = [link for link in re.findall(r"\]\(([A-Za-z][^):#]*)\)", prose) if not (ROOT / link).exists()]
missing += [command for command in re.findall(r"^(?:mpirun -np \d+ )?\./(\w+/run)", text, re.MULTILINE) if not os.access(ROOT / command, os.X_OK)]
if missing:
    print("README names what is not there:", ", ".join(missing))
    sys.exit(1)

# A command's options are in the help of its program, or in the text of one that has none.
examples = pathlib.Path(os.environ["WEFT_EXAMPLES"])
commands = re.findall(r"\./examples/run (?:prove )?(\w+)(?: --certificate \S+)?([^\n`#]*)", text + (ROOT / "docs/guide.md").read_text())
texts, unknown = {}, []
for name, words in commands:
    folders = [path for path in (ROOT / "examples").iterdir() if re.fullmatch(rf"(\d+_)?{name}(\.cpp)?", path.name)]
    if not folders and name != "NAME":
        unknown.append(name)
    programs = [path for path in examples.iterdir() if re.fullmatch(rf"(\d+_)?{name}", path.name) and path.is_file()]
    command = re.match(r" (\w+)", words).group(1) if name == "plan" and re.match(r" (\w+)", words) else ""
    if programs and (name, command) not in texts:
        done = subprocess.run([programs[0], *command.split(), "--help"], capture_output=True, text=True)
        source = folders[0] if folders[0].suffix else folders[0] / "main.cpp"
        texts[name, command] = done.stdout if done.returncode == 0 else source.read_text()
    unknown += [f"{name} {command} {option}" for option in re.findall(r"--[a-z][\w-]*", words) if programs and option not in texts[name, command]]
if unknown or len(commands) < 20:
    print("commands or options that are not there:", ", ".join(unknown), len(commands))
    sys.exit(1)
