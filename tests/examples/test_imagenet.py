# SPDX-License-Identifier: Apache-2.0
"""imagenet from its command line, on pictures that are drawn here: it learns, in every layout with the losses of one rank; a resumed
run has the bits of one that nothing happened to; torchvision's parameters load; and it refuses unreadable files in one line."""

import json
import math
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from checks import check, finish

PROGRAM = os.path.join(os.environ["WEFT_EXAMPLES"], "08_imagenet")
GOLDEN = pathlib.Path(os.environ["WEFT_SOURCE"]) / "tests/golden/pictures"
if not os.path.exists(PROGRAM):
    print("skipped: imagenet is not built, since libjpeg or libpng is not here")
    sys.exit(77)
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-imagenet-"))
CLASSES = ["ant", "bee", "cat"]


def png(width, height, colour_at):
    rows = b"".join(b"\0" + bytes(value for x in range(width) for value in colour_at(x, y)) for y in range(height))
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content)) for kind, content in parts)


def draw(folder, count):
    """Stripes, whose direction and colour are the class."""
    source = random.Random(str(folder.name))
    for number, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            width, height, phase = source.randrange(36, 60), source.randrange(36, 60), source.randrange(8)

            def colour(x, y):
                bright = 200 if ((x, y, x + y)[number] + phase) // 4 % 2 else 40
                return [max(0, min(255, (bright if channel == number else 90) + source.randrange(-20, 20))) for channel in range(3)]

            (folder / name / f"{i}.png").write_bytes(png(width, height, colour))
    # A JPEG among them.
    shutil.copy(GOLDEN / "full.jpg", folder / "ant" / "z.jpg")


def run(arguments, data=True, launcher=()):
    given = f"--train {scratch}/train --validation {scratch}/val --model resnet10 --size 32 --batch 12 " if data else ""
    return subprocess.run([*launcher, PROGRAM, *(given + arguments).split()], capture_output=True, text=True, timeout=300)


def records(output):
    return [json.loads(line) for line in (pathlib.Path(output) / "metrics.jsonl").read_text().splitlines()]


def trained(name, arguments, launcher=()):
    found = run(f"--output {scratch}/{name} {arguments}", launcher=launcher)
    check(found.returncode == 0, f"{arguments}: exit code {found.returncode}: {found.stderr}")
    return found.stdout, records(scratch / name) if found.returncode == 0 else []


def losses(of):
    return [record["loss"] for record in of if "loss" in record]


def facts(of):
    """All that must not depend on time."""
    return [{key: value for key, value in record.items() if key not in ("images_per_s", "waited_s")} for record in of]


draw(scratch / "train", 16)
draw(scratch / "val", 5)

# It learns, prints its progress, and draws the curves.
printed, one = trained("one", "--dp 1 --epochs 3 --learning-rate 0.01 --schedule cosine --warmup-epochs 1 --label-smoothing 0.1 --ema 0.8 "
                              "--colour-jitter 0.2 --hue 0.02")
check(re.search(r"^resnet10, 3 classes, 49 training and 16 validation pictures, batch 12 on 1 rank \(dp 1, pp 1\)$", printed, re.M), printed)
check(re.search(r"^epoch 1/3  step 1/12  loss \d\.\d{4}  [\d.]+ images/s  \S+( s)? left$", printed, re.M), printed)
check(len(re.findall(r"^epoch \d: training loss .* top-1 \S+ %, top-5 100\.00 %, \S+ images/s$", printed, re.M)) == 3, printed)
evaluations = [record for record in one if "top1" in record]
check(len(losses(one)) == 12 and len(evaluations) == 3, f"records: {one}")
check(evaluations and evaluations[-1]["top1"] >= 60, f"the accuracy: {evaluations}")
rates = [record["learning_rate"] for record in one if "learning_rate" in record]
check(rates and rates[0] < rates[3] == max(rates) and rates[-1] == 0, f"warm-up and cosine: {rates}")
for picture, text in [("loss.svg", "cross-entropy"), ("accuracy.svg", "top-1")]:
    check(text in (scratch / "one" / picture).read_text(), picture)

# Rounding is all that differs between layouts: every rank has its pictures of the same batch, with the same pixels.
_, single = trained("single", "--dp 1 --steps 4 --learning-rate 0.002")
for number, layout in enumerate(["--dp 2", "--dp 4 --zero 3 --loader-threads 2", "--dp 2 --pp 2 --zero 1"]):
    _, other = trained(f"layout{number}", f"{layout} --steps 4 --learning-rate 0.002")
    check(len(losses(other)) == 4 and all(abs(a - b) < 2e-3 for a, b in zip(losses(single), losses(other))),
          f"{layout}: losses {losses(other)} are not those of one rank {losses(single)}")
_, seeded = trained("seeded", "--dp 1 --steps 4 --learning-rate 0.002 --seed 2")
check(seeded and abs(losses(seeded)[0] - losses(single)[0]) > 1e-2, "another seed has other pictures")

# With --reproducible they have the same bits for every stage of ZeRO and every pp; without, the gradients' norms differ in their
# last digits. Another dp divides the sums over a batch otherwise.
_, plain = trained("plain", "--dp 2 --reproducible --steps 4 --learning-rate 0.002")
for number, layout in enumerate(["--zero 3 --loader-threads 2", "--pp 2 --zero 1"]):
    _, other = trained(f"same{number}", f"--dp 2 {layout} --reproducible --steps 4 --learning-rate 0.002")
    check(len(losses(other)) == 4 and facts(other) == facts(plain), f"--reproducible {layout}: {facts(other)}, not {facts(plain)}")

# Two processes have the bits of two threads, with pictures that each process decodes by itself.
launchers = {"tcp": [os.environ["WEFT_TORCHRUN"], "2"]}
if "comm::Mpi::" in subprocess.run(["nm", "-C", PROGRAM], capture_output=True, text=True).stdout:
    launchers["mpi"] = [os.environ["WEFT_MPIRUN"], "2"]
for backend, launcher in launchers.items():
    _, other = trained(backend, "--dp 2 --reproducible --steps 4 --learning-rate 0.002", launcher)
    check(len(losses(other)) == 4 and facts(other) == facts(plain), f"over {backend}: {facts(other)}, not {facts(plain)}")

# A run that goes on has the bits of one that was not interrupted, in the middle of an epoch, too.
same = "--dp 2 --ema 0.9 --zero 2 --colour-jitter 0.3"
_, whole = trained("whole", f"{same} --steps 7")
trained("parts", f"{same} --steps 3 --checkpoint {scratch}/checkpoint")
_, parts = trained("parts", f"{same} --steps 7 --checkpoint {scratch}/checkpoint --resume")
ends = [record for record in whole if record["step"] >= 3]
check(len(ends) == 6 and facts(ends) == facts([record for record in parts if record["step"] >= 3]), f"resumed: {facts(parts)}, not {facts(whole)}")
check([record["step"] for record in parts if "loss" in record] == list(range(7)), f"records of both parts: {parts}")
other = run(f"{same} --steps 9 --hue 0.1 --checkpoint {scratch}/checkpoint --resume --output {scratch}/other")
check(other.returncode == 2 and "hue" in other.stderr and not (scratch / "other").exists(), f"another --hue: {other.stderr}")
moved = run(f"--dp 1 --ema 0.9 --colour-jitter 0.3 --steps 8 --checkpoint {scratch}/checkpoint --resume --output {scratch}/moved")
check(moved.returncode == 0 and "goes on after step 7" in moved.stdout, f"in another layout: {moved.stderr}")


# torchvision's state_dict() of this network; with a head of zeros all classes are equally likely.


def shapes(classes=3):
    def norm(name, channels):
        return {f"{name}.{part}": [channels] for part in ("weight", "bias", "running_mean", "running_var")} | {f"{name}.num_batches_tracked": []}

    out = {"conv1.weight": [64, 3, 7, 7], "fc.weight": [classes, 512], "fc.bias": [classes]} | norm("bn1", 64)
    before = 64
    for stage in range(4):
        width, block = 64 << stage, f"layer{stage + 1}.0"
        out |= {f"{block}.conv1.weight": [width, before, 3, 3], f"{block}.conv2.weight": [width, width, 3, 3]}
        out |= norm(f"{block}.bn1", width) | norm(f"{block}.bn2", width)
        if stage:
            out |= {f"{block}.downsample.0.weight": [width, before, 1, 1]} | norm(f"{block}.downsample.1", width)
        before = width
    return out


def write_safetensors(path, of, values=None):
    """Zeros, except for the float32 numbers `values` of the parameters named there."""
    header, at, body = {}, 0, b""
    for name, shape in of.items():
        tracked = name.endswith("num_batches_tracked")
        size = (8 if tracked else 4) * math.prod(shape)
        header[name] = {"dtype": "I64" if tracked else "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
        numbers = (values or {}).get(name)
        body += bytes(size) if numbers is None else struct.pack(f"<{len(numbers)}f", *numbers)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def read_safetensors(path):
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    return {name: entry for name, entry in json.loads(data[8 : 8 + length]).items() if name != "__metadata__"}


write_safetensors(scratch / "zero.safetensors", shapes())
found = run(f"--load {scratch}/zero.safetensors --evaluate --dp 2")
check(found.returncode == 0 and f"validation loss {math.log(3):.4f}" in found.stdout, f"--load: {found.stdout} {found.stderr}")

# The accuracies of seven classes equal plain counts. With weights of zeros the scores of every picture are the head's biases.
score_of = {"ant": 0.5, "bee": -1.0, "cat": 2.0, "dog": 0.25, "eel": 1.0, "fox": -0.5, "gnu": -0.25}
count_of = {"ant": 1, "bee": 6, "cat": 4, "dog": 2, "eel": 5, "fox": 3, "gnu": 7}
for name, count in count_of.items():
    (scratch / "seven" / name).mkdir(parents=True)
    for i in range(count):
        (scratch / "seven" / name / f"{i}.png").write_bytes(png(40, 36, lambda x, y: [10 * i, x, y]))
write_safetensors(scratch / "seven.safetensors", shapes(7), {"fc.bias": list(score_of.values())})
best, total = sorted(score_of, key=score_of.get, reverse=True), sum(count_of.values())
top1, top5 = (100 * sum(count_of[name] for name in best[:k]) / total for k in (1, 5))
for layout in ["--dp 1", "--dp 2"]:
    found = run(f"--validation {scratch}/seven --model resnet10 --size 32 --batch 12 --load {scratch}/seven.safetensors --evaluate {layout}", data=False)
    check(found.returncode == 0 and f"top-1 {top1:.2f} %, top-5 {top5:.2f} %" in found.stdout,
          f"{layout}: not top-1 {top1:.2f} %, top-5 {top5:.2f} %: {found.stdout} {found.stderr}")

# --export writes torchvision's names, shapes and types from every layout; the file has the parameters that were evaluated last.
for number, layout in enumerate(["--dp 1", "--dp 2 --zero 3 --ema 0.5", "--dp 2 --pp 2 --zero 1"]):
    exported = scratch / f"exported{number}.safetensors"
    printed, of = trained(f"exporting{number}", f"{layout} --steps 3 --learning-rate 0.01 --export {exported}")
    check(f"exported to {exported}" in printed and not list(scratch.glob("*.tmp")), f"{layout}: {printed}")
    if not exported.exists():
        continue
    stored = read_safetensors(exported)
    check({name: entry["shape"] for name, entry in stored.items()} == shapes(), f"{layout}: {stored}")
    check(all(entry["dtype"] == ("I64" if name.endswith("tracked") else "F32") for name, entry in stored.items()), f"{layout}: {stored}")
    at = stored["bn1.num_batches_tracked"]["data_offsets"][0]
    tracked = exported.read_bytes()[-sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in stored.values()):][at : at + 8]
    check(tracked == struct.pack("<q", 3), f"{layout}: num_batches_tracked {tracked}")
    found = run(f"--load {exported} --evaluate --dp 1")
    check(found.returncode == 0 and f"validation loss {of[-1]['validation_loss']:.4f}" in found.stdout, f"{layout}: {of[-1]}, not {found.stdout} {found.stderr}")
lacking = shapes()
del lacking["layer2.0.bn1.running_var"]
write_safetensors(scratch / "lacking.safetensors", lacking)
write_safetensors(scratch / "classes.safetensors", shapes() | {"fc.weight": [5, 512], "fc.bias": [5]})

# Bad input: one line with the file and the remedy, and nothing half-done.
shutil.copytree(scratch / "train", scratch / "truncated")
cut = (GOLDEN / "full.jpg").read_bytes()[:700]
(scratch / "truncated/bee/0.jpg").write_bytes(cut)
shutil.copytree(scratch / "train", scratch / "cmyk")
for path in (scratch / "cmyk").glob("*/*"):
    shutil.copy(GOLDEN / "cmyk.jpg", path)
shutil.copytree(scratch / "train", scratch / "empty_class")
(scratch / "empty_class/dog").mkdir()
shutil.copytree(scratch / "val", scratch / "more_classes")
shutil.copytree(scratch / "val/ant", scratch / "more_classes/dog")
start = f"--train {scratch}/train --model resnet10 --size 32 --batch 12 --output {scratch}/refused"
for arguments, parts in [
    ("", ["--train FOLDER is missing"]),
    ("--evaluate", ["--evaluate needs --validation"]),
    ("--train /no/such/folder", ["'/no/such/folder': there is no such folder"]),
    (f"--train {scratch}/train/ant", ["it has no sub-folders"]),
    (f"--train {scratch}/empty_class", [f"{scratch}/empty_class/dog': this class has no picture"]),
    (f"{start} --validation {scratch}/more_classes", ["has the class 'dog'", "3 classes"]),
    (f"{start} --validation {scratch}/val --resize 20", ["--resize"]),
    (f"{start} --batch 50", ["--batch is given 2 times"]),
    (f"{start} --dp 5", ["global batch(12)", "dp(5)"]),
    (f"{start} --ema 1", ["--ema"]),
    (f"{start} --resume", ["it needs --checkpoint"]),
    (f"--validation {scratch}/val --evaluate --export {scratch}/x", ["--export beside --evaluate"]),
    (f"{start} --export {scratch}", ["imagenet: --export", "it is a folder, a regular file is needed"]),
    (f"{start} --load {scratch}/lacking.safetensors", ["'layer2.0.bn1.running_var' of 128 numbers"]),
    (f"{start} --load {scratch}/classes.safetensors", ["fc.bias"]),
    (f"--train {scratch}/cmyk --model resnet10 --size 32 --batch 12 --output {scratch}/bad", [" cannot read '", "rank ", "CMYK", "--convert-cmyk"]),
    (f"--train {scratch}/truncated --model resnet10 --size 32 --batch 50 --output {scratch}/bad", ["truncated/bee/0.jpg'", "the file is truncated"]),
]:
    found = run(arguments, data=False)
    lines = [line for line in found.stderr.splitlines() if line.strip()]
    check(found.returncode in (1, 2) and all(part in found.stderr for part in parts), f"{arguments}: {found.returncode} {found.stderr} {found.stdout}")
    check(len(lines) == 1, f"{arguments}: more than the message: {lines}")
check(not (scratch / "refused").exists(), "a refused run leaves no folder")
found = run(f"--train {scratch}/cmyk --model resnet10 --size 32 --batch 12 --steps 1 --convert-cmyk --output {scratch}/inks", data=False)
check(found.returncode == 0, f"--convert-cmyk: {found.stderr}")

shutil.rmtree(scratch)
finish()
