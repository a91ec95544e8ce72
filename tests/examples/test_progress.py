# SPDX-License-Identifier: Apache-2.0
"""The progress bar of examples that train: on standard error if that is a terminal, of rank 0 only, and nothing of it elsewhere. Standard output
is the same with a terminal and without."""
import fcntl
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from checks import check, finish

EXAMPLES, SOURCE = os.environ["WEFT_EXAMPLES"], os.environ["WEFT_SOURCE"]
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-progress-"))


def read(descriptor):
    """All that comes through a pseudo-terminal until the program has closed it."""
    pieces = []
    while True:
        try:
            piece = os.read(descriptor, 1 << 16)
        except OSError:
            return b"".join(pieces).decode(errors="replace")
        if not piece:
            return b"".join(pieces).decode(errors="replace")
        pieces.append(piece)


def run(command, out_too, width=100, **more):
    """The program with standard error on a terminal, with or without standard output: exit code, output, what the terminal got."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    file = scratch / "out"
    with open(file, "w") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=slave if out_too else out, stderr=slave, env=os.environ | {"LC_ALL": "C", "WEFT_RANKS": "2"} | more)
    os.close(slave)
    text = read(master)
    os.close(master)
    return process.wait(), file.read_text(errors="replace"), text


def screen(text):
    """The lines that a terminal shows: a carriage return goes back to the begin of the line, and ESC [K clears the rest."""
    lines, at = [""], 0
    for part in re.split(r"(\n|\r|\033\[K)", text):
        if part == "\n":
            lines.append("")
        if part in ("\n", "\r"):
            at = 0
        elif part == "\033[K":
            lines[-1] = lines[-1][:at]
        else:
            lines[-1] = lines[-1][:at] + part + lines[-1][at + len(part):]
            at += len(part)
    return lines


def still(text):
    """Without numbers that differ between runs, speeds, and without gpt_60's sample, which has any bytes."""
    text = text.split("The ")[0]
    return re.sub(r"[\d.,]+ (images/s|GFLOP/s|tokens/s)|, [\d.]+ images/s|\d+:\d+(:\d+)?|\d+ s\b| % of peak", "#", text)


programs = {"gpt_60": (["--steps", "6", "--data", f"{SOURCE}/LICENSE"], 6, "tokens"), "06_classify": (["--steps", "6", "--batch", "20", "--print-every", "4"], 6, "images"),
            "in_situ": (["--steps", "120"], 120, "plates")}
for name, (words, steps, unit) in programs.items():
    program = os.path.join(EXAMPLES, name)
    if not os.path.exists(program) or (name == "06_classify" and not os.path.exists("/usr/share/datasets/fashion-mnist")):
        continue
    plain = subprocess.run([program, *words], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=300, env=os.environ | {"LC_ALL": "C", "WEFT_RANKS": "2"})
    check(plain.returncode == 0 and plain.stderr == "" and "\r" not in still(plain.stdout) and "[=" not in still(plain.stdout), f"{name} without a terminal: {plain}")
    code, out, drawn = run([program, *words], out_too=False)
    check(code == 0 and still(out) == still(plain.stdout), f"{name}: standard output differs beside a terminal: {out!r}, not {plain.stdout!r}")
    shown = [line for line in screen(drawn) if line]
    check(len(shown) == 1 and re.fullmatch(rf"step {steps}/{steps}  \[=+\]  loss \d+\.\d{{4}}  [\d,]+ {unit}/s  (\d+ s|[\d:]+)", shown[0]), f"{name}: the bar at the end: {shown}")
    check(drawn.count("\n") == 1, f"{name}: the bar has one line: {drawn[-300:]!r}")
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d{4})", drawn)]
    check(len(losses) >= 2 and all(len(part) <= 100 for part in drawn.replace("\033[K", "").split("\r")), f"{name}: what was drawn: {drawn[:300]!r}")
    code, _, drawn = run([program, *words], out_too=True, width=60)
    lines = screen(still(drawn))
    check(code == 0 and [line for line in lines if line and not line.startswith(f"step {steps}/")] == [line for line in still(plain.stdout).split("\n") if line],
          f"{name}: lines and bar on one terminal: {lines}, not {plain.stdout!r}")
    check(re.search(rf"step {steps}/{steps}  (\[=+\]  )?loss [^\r\n]+{unit}/s [^\r\n]+\r?\n$", drawn.replace("\033[K", "")), f"{name}: the bar below its lines: {drawn[-200:]!r}")

# The trainer prints lines beside a bar only if they are not on the bar's terminal; an error begins on a line of its own.
train = [os.path.join(EXAMPLES, "04_train_gpt"), *f"--data {SOURCE}/LICENSE --layers 1 --width 16 --heads 2 --sequence 16 --global-batch 4 --sample 0 --output {scratch}/run".split()]
code, out, drawn = run([*train, "--steps", "6"], out_too=False)
check(code == 0 and "step 0/6\n" in out and "step 6/6  loss" in out and [line for line in screen(drawn) if line][0].startswith("step 6/6  ["), f"train_gpt: {out!r} {drawn!r}")
code, _, drawn = run([*train, "--steps", "6"], out_too=True)
lines = screen(drawn)
check(code == 0 and sum(line.startswith("step 6/6") for line in lines) == 1 and not any(line == "step 0/6" for line in lines), f"train_gpt on one terminal: {lines}")
code, _, drawn = run([*train, "--steps", "40", "--learning-rate", "1e30", "--warmup", "0", "--clip", "0"], out_too=True)
check(code == 3 and any(line.startswith("weft: training diverged") for line in screen(drawn)), f"train_gpt diverges: {screen(drawn)}")

shutil.rmtree(scratch)
finish()
