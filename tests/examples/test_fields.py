# SPDX-License-Identifier: Apache-2.0
"""fields from its command line: each model learns and draws, in every layout with the losses of one rank; wrong options are refused."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from checks import check, finish

PROGRAM = os.path.join(os.environ["WEFT_EXAMPLES"], "fields")
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-fields-"))


def run(arguments):
    return subprocess.run([PROGRAM, "--output", str(scratch / "out"), *arguments.split()], capture_output=True, text=True, timeout=200)


def losses_of(arguments):
    found = run(arguments)
    check(found.returncode == 0, f"{arguments}: exit code {found.returncode}: {found.stderr}")
    losses = [float(loss) for loss in re.findall(r"^step \d+: loss (\S+)$", found.stdout, re.M)]
    check(re.search(r"^.* after \d+ steps: loss of unseen samples \d+\.\d+, .* \d+\.\d+$", found.stdout, re.M), f"{arguments}: no result: {found.stdout[-300:]}")
    return losses


def mean(losses):
    return sum(losses) / max(1, len(losses))


STACK = ["--dp 2 --zero 1", "--dp 1 --tp 2", "--dp 1 --pp 2 --micro-batches 2 --schedule zb-h1", "--dp 2 --tp 2 --zero 3"]
# A program without METIS refuses its parts.
METIS = "built without METIS" not in run("--model mesh --dp 1 --partition metis --steps 1").stderr
METIS_PARTS = ["--dp 1 --dx 4 --partition metis", "--dp 2 --dx 2 --tp 2 --zero 3 --partition metis"] if METIS else []
MODULE = ["--dp 2 --zero 2 --micro-batches 2", "--dp 1 --tp 2", "--dp 2 --tp 2 --zero 3"]
for model, steps, falls, layouts in [
    ("unet", 24, 0.9, [*STACK, "--dp 1 --dx 2 --dy 2", "--dp 2 --dy 2 --pp 2 --zero 2"]),
    ("unet --dims 3 --batch 4", 5, 0.99, ["--dp 2 --tp 2", "--dp 1 --dx 2 --dy 2 --dz 2"]),
    ("pinn", 60, 0.8, MODULE),
    ("mesh", 24, 0.8, [*MODULE, "--dp 1 --dx 4", "--dp 2 --dx 2 --tp 2 --zero 3", *METIS_PARTS]),
    ("fno", 24, 0.9, [*STACK, "--dp 1 --dx 2 --dy 2"]),
    ("potential", 60, 0.9, [*MODULE, "--dp 1 --dx 3 --micro-batches 2"]),
    ("diffusion", 40, 0.9, [*STACK, "--dp 1 --dx 2 --dy 2", "--dp 1 --dx 3 --tp 2 --pp 2 --micro-batches 2", "--dp 2 --dy 2 --zero 3"]),
]:
    one = losses_of(f"--model {model} --dp 1 --steps {steps}")
    some = max(1, steps // 6)
    check(len(one) == steps and mean(one[-some:]) < falls * mean(one[:some]), f"{model}: the loss falls: {one}")
    records = [json.loads(line) for line in (scratch / "out/metrics.jsonl").read_text().splitlines()]
    check(len(records) == steps + 1 and all(abs(record["loss"] - loss) < 1e-5 * max(1, loss) for record, loss in zip(records, one)) and "error" in records[-1],
          f"{model}: metrics.jsonl: {records[-2:]}")
    for picture, shapes in [("loss.svg", 1), ("result.svg", 20)]:
        text = (scratch / "out" / picture).read_text()
        check(text.startswith("<svg") and text.count("<path") + text.count("<circle") + text.count("<polyline") + text.count("<rect") >= shapes and "nan" not in text and "#000000" not in text, f"{model}: {picture}")
    for layout in layouts:
        few = losses_of(f"--model {model} {layout} --steps 4")
        start = losses_of(f"--model {model} --dp 1 --steps 4")
        check(len(few) == 4 and all(abs(a - b) <= 1e-4 * max(1, b) for a, b in zip(few, start)), f"{model} {layout}: losses {few} are not those of one rank {start}")

shutil.rmtree(scratch / "out")
for arguments in ["--model pinn --rehearse 2", "--model fno --rehearse 4 --dx 2"]:
    found = run(arguments)
    check(found.returncode == 0 and re.search(r"^  steps of an optimizer +3$", found.stdout, re.M) and not re.search(r"loss \S", found.stdout),
          f"{arguments}: {found.returncode} {found.stderr} {found.stdout[:300]}")
for arguments, part in [
    ("--model forest", "forest"),
    ("--model pinn --pp 2", "--pp 2: --model pinn is one Module, which no pipeline cuts into stages"),
    ("--model pinn --schedule zbv", "--schedule zbv: --model pinn is one Module, which no pipeline cuts into stages"),
    ("--schedule zb", "'zb' is not one of gpipe, 1f1b"),
    ("--model mesh --dims 3", "--dims 3 is of the U-Net"),
    ("--model pinn --dx 2", "--dx 2: --model pinn trains on points, which have no space to cut: --dp cuts the samples"),
    ("--model diffusion --dp 1 --dx 5", "--dx 5: 12 points are not equal pieces"),
    ("--model diffusion --dp 1 --dy 24", "--dy 24: 12 points are not equal pieces"),
    ("--model diffusion --dp 1 --tp 5", "--tp 5: groups(4) % tp(5) != 0: each rank has whole groups of channels"),
    ("--dp 1 --tp 8", "--tp 8: groups(4) % tp(8) != 0: each rank has whole groups of channels"),
    ("--model fno --dp 1 --tp 4 --dx 8", "--dx 8: 32 points and 4 channels of a rank of tp(4) are not both equal pieces"),
    ("--model fno --dp 1 --tp 5", "16 elements cannot be cut by tp(5)"),
    ("--model pinn --dp 1 --tp 5", "32 elements cannot be cut by tp(5)"),
    ("--model mesh --dp 1 --tp 5", "32 elements cannot be cut by tp(5)"),
    ("--model potential --dp 1 --tp 5", "32 elements cannot be cut by tp(5)"),
    ("--model mesh --dp 1 --dx 5", "--dx 5: 96 nodes are not equal parts"),
    ("--model fno --dx 3", "--dx 3: 32 points and 16 channels are not both equal pieces"),
    ("--model mesh --dy 2", "--dy 2: --model mesh cuts its nodes by --dx"),
    ("--model potential --dp 1 --dx 4", "--dx 4: 6 atoms are not equal parts"),
    ("--model pinn --partition metis", "--partition metis is of meshes, --model mesh"),
    ("--model mesh --partition scotch", "--partition: scotch not in"),
    ("--dz 2", "--dz 2 is of three dims, --dims 3"),
    ("--dx 3", "--dx 3: 32 points are not equal pieces of 4, 8, ... points"),
    ("--dims 4", "--dims"),
    ("--dp 3 --batch 4", "--batch 4 is not divisible by dp(3) * micro-batches(1)"),
    ("--zero 4", "--zero"),
    ("--dp 1 --tp 3", "tp(3)"),
]:
    found = run(arguments)
    lines = [line for line in found.stderr.splitlines() if line.strip()]
    check(found.returncode == 2 and part in found.stderr, f"{arguments}: {found.returncode} {found.stderr} {found.stdout}")
    check(len(lines) == 1, f"{arguments}: more than the message: {lines}")
    check(not (scratch / "out").exists(), f"{arguments}: it worked before it refused")

finish()
