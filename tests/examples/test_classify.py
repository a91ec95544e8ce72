# SPDX-License-Identifier: Apache-2.0
"""classify from its command line: both models learn, in every layout with the losses and the accuracy of one rank, on images that
are made here; and how it ends where it cannot start."""

import gzip
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from checks import check, finish

PROGRAM = os.path.join(os.environ["WEFT_EXAMPLES"], "06_classify")
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-classify-"))


def write(folder, part, count, classes=10):
    """Images of a bright square in noise, whose place is the class."""
    source = random.Random(part)
    labels = bytes(source.randrange(classes) for _ in range(count))
    images = bytearray(source.randrange(80) for _ in range(count * 28 * 28))
    for number, label in enumerate(labels):
        for row in range(6):
            start = (number * 28 + 4 + 12 * (label % 2) + row) * 28 + 5 * (label // 2)
            images[start : start + 5] = bytes([230]) * 5
    folder.mkdir(exist_ok=True)
    for name, header, content in [
        ("images-idx3", struct.pack(">BBBBIII", 0, 0, 8, 3, count, 28, 28), bytes(images)),
        ("labels-idx1", struct.pack(">BBBBI", 0, 0, 8, 1, count), labels),
    ]:
        (folder / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(header + content))


def run(arguments):
    return subprocess.run([PROGRAM, *arguments.split()], capture_output=True, text=True, timeout=120)


def results(arguments):
    """Losses, the last test accuracy."""
    found = run(f"--data {scratch}/images --batch 20 --print-every 1 {arguments}")
    check(found.returncode == 0, f"{arguments}: exit code {found.returncode}: {found.stderr}")
    losses = [float(loss) for loss in re.findall(r"^step \d+: loss (\S+)$", found.stdout, re.M)]
    accuracies = [float(part) for part in re.findall(r"^epoch \d+: test accuracy (\S+) %, \d+ images/s$", found.stdout, re.M)]
    check(accuracies, f"{arguments}: no accuracy: {found.stdout}")
    return losses, accuracies


write(scratch / "images", "train", 400)
write(scratch / "images", "t10k", 80)

for model, epochs, right, layouts in [
    ("cnn", 1, 60, ["--dp 2", "--dp 1 --tp 2", "--dp 1 --pp 2", "--dp 2 --tp 2 --zero 3"]),
    ("vit", 3, 40, ["--dp 2 --zero 2", "--dp 1 --tp 4", "--dp 1 --tp 2 --pp 2"]),
]:
    one, accuracy = results(f"--model {model} --dp 1 --epochs {epochs}")
    check(len(one) == 20 * epochs and one[-1] < 0.7 * one[0], f"{model}: the loss falls: {one}")
    check(len(accuracy) == epochs and accuracy[-1] >= right, f"{model}: the accuracy of each epoch: {accuracy}")
    # BatchNorm's statistics are those of the global batch, so that rounding is all that differs.
    for layout in layouts:
        other, other_accuracy = results(f"--model {model} {layout} --epochs {epochs}")
        check(len(other) == len(one) and all(abs(a - b) <= 2e-3 * max(1, b) for a, b in zip(other, one)),
              f"{model} {layout}: losses {other} are not those of one rank {one}")
        check(other_accuracy and abs(other_accuracy[-1] - accuracy[-1]) <= 2.5, f"{model} {layout}: {other_accuracy}, not {accuracy}")

# Statistics of half the batch give other losses by more than the tolerance above, which would therefore see them.
halves, _ = results("--model cnn --dp 1 --steps 3 --micro-batches 2")
whole, _ = results("--model cnn --dp 1 --steps 3")
check(len(halves) == 3 and abs(halves[0] - whole[0]) > 4e-3, f"statistics of half the batch: {halves}, of the whole {whole}")

write(scratch / "labelled", "train", 400, 11)
write(scratch / "labelled", "t10k", 80)
for arguments, part in [
    ("--data /no/such/folder", "cannot read '/no/such/folder/train-images-idx3-ubyte.gz': there is no such file"),
    (f"--data {scratch}/labelled", "field label"),
    (f"--data {scratch}/images --batch 41", "global batch(41)"),
    (f"--data {scratch}/images --batch 500", "global batch(500) > samples(400)"),
    (f"--data {scratch}/images --dp 1 --tp 3", "tp(3)"),
    ("--model forest", "forest"),
    ("--zero 4", "--zero"),
]:
    found = run(arguments)
    lines = [line for line in found.stderr.splitlines() if line.strip()]
    check(found.returncode == 2 and part in found.stderr + found.stdout, f"{arguments}: {found.returncode} {found.stderr} {found.stdout}")
    check(len(lines) == 1, f"{arguments}: more than the message: {lines}")

finish()
