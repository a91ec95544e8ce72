# SPDX-License-Identifier: Apache-2.0
"""A run of train_gpt with --tensorboard --csv, interrupted and resumed: TensorBoard's own reader finds the numbers of metrics.jsonl, and
metrics.csv has them, too. Without TensorBoard from PyPI only the CSV is compared, and the script ends with 77."""
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests/support"))
from checks import check, finish

TENSORBOARD = "2.18.0"
TRAIN = os.path.join(os.environ["WEFT_EXAMPLES"], "04_train_gpt")
READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""


def reader():
    """A Python with TensorBoard in .deps, or None."""
    own = SOURCE / ".deps/tensorboard"
    python, stamp = own / "bin/python", own / f"installed-{TENSORBOARD}"
    if not stamp.exists():
        steps = [[sys.executable, "-m", "venv", "--clear", own],
                 [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-q", f"tensorboard=={TENSORBOARD}", "setuptools<80"]]
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True)
            if done.returncode != 0:
                print(f"no TensorBoard {TENSORBOARD}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
                return None
        stamp.touch()
    return python


scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-tensorboard-"))
text = scratch / "text.txt"
text.write_bytes(b"".join(b"%d times %d is %d.\n" % (a, b, a * b) for a in range(40) for b in range(40)))
folder = scratch / "run"
words = (f"--data {text} --layers 2 --width 16 --heads 2 --sequence 16 --global-batch 4 --validate-every 2 --sample 0 --ranks 2 "
         f"--tensorboard --csv --output {folder} --checkpoint {scratch}/kept --every 3")
for more in ("--steps 4", "--steps 7 --resume"):
    done = subprocess.run([TRAIN, *words.split(), *more.split()], capture_output=True, text=True)
    check(done.returncode == 0, f"{more}: {done.stderr}")

records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
steps = [r for r in records if "loss" in r]
check([r["step"] for r in steps] == list(range(7)), f"the steps of metrics.jsonl: {steps}")
rows = list(csv.DictReader((folder / "metrics.csv").open()))
check([(int(r["step"]), float(r["loss"] or r["validation_loss"])) for r in rows] == [(r["step"], r.get("loss", r.get("validation_loss"))) for r in records],
      f"metrics.csv has other records: {rows}")
check(all(float(a["learning_rate"]) == b["learning_rate"] and a["skipped"] == "0" for a, b in zip([r for r in rows if r["loss"]], steps)), f"rates: {rows}")
axes = list(steps[0]["waiting_ms"])
check("dp" in axes and all(float(a[f"{name}.{axis}"]) == b[name][axis] for a, b in zip([r for r in rows if r["loss"]], steps) for name in ("waiting_ms", "message_bytes") for axis in axes)
      and all(float(a["computing_ms"]) == b["computing_ms"] for a, b in zip([r for r in rows if r["loss"]], steps)), f"waits and bytes by axis: {rows}")

python = reader()
if python is None:
    shutil.rmtree(scratch)
    finish(77)
read = subprocess.run([python, "-c", READ, folder], capture_output=True, text=True)
check(read.returncode == 0, f"TensorBoard does not read the files: {read.stderr[-2000:]}")
scalars = json.loads(read.stdout) if read.returncode == 0 else {}
near = lambda a, b: len(a) == len(b) and all(s == t and abs(x - y) <= 1e-6 * abs(y) for (s, x), (t, y) in zip(a, b))
for tag, name in (("train/loss", "loss"), ("train/gradient_norm", "gradient_norm"), ("train/learning_rate", "learning_rate"),
                  ("speed/tokens_per_s", "tokens_per_s"), ("speed/step_ms", "ms")):
    check(near(scalars.get(tag, []), [(r["step"], r[name]) for r in steps]), f"{tag}: {scalars.get(tag)}")
for name in ("waiting_ms", "message_bytes"):
    for axis in axes:
        check(near(scalars.get(f"{name}/{axis}", []), [(r["step"], r[name][axis]) for r in steps]), f"{name}/{axis}: {scalars.get(f'{name}/{axis}')}")
check(near(scalars.get("speed/computing_ms", []), [(r["step"], r["computing_ms"]) for r in steps]), f"computing: {scalars.get('speed/computing_ms')}")
check(near(scalars.get("validation/loss", []), [(r["step"], r["validation_loss"]) for r in records if "validation_loss" in r]), f"validation: {scalars}")
shutil.rmtree(scratch)
finish()
