# SPDX-License-Identifier: Apache-2.0
"""The tool for checkpoints: its contents, whether it is whole, and one file for other programs, read here without weft."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from checks import check, finish

EXAMPLES = os.environ["WEFT_EXAMPLES"]
TOOL, TRAIN = os.path.join(EXAMPLES, "checkpoint"), os.path.join(EXAMPLES, "04_train_gpt")
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-checkpoint-"))


def tool(*words):
    return subprocess.run([TOOL, *map(str, words)], capture_output=True, text=True, errors="replace", timeout=60)


def tensors_of(path):
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return {name: (entry["dtype"], entry["shape"], data[8 + length + entry["data_offsets"][0] : 8 + length + entry["data_offsets"][1]])
            for name, entry in header.items() if name != "__metadata__"}


if not os.path.exists(TOOL):
    print("built without xxhash.h: no tool")
    sys.exit(77)
text = scratch / "text.txt"
text.write_bytes(b"a checkpoint is a folder of files\n" * 100)
small = f"--optimizer adamw --data {text} --layers 2 --width 16 --heads 2 --sequence 16 --validation-fraction 0 --sample 0 --steps 3 --every 1 --output {scratch / 'run'}".split()
merged = []
for layout in ("--dp 2 --zero 3", "--tp 2"):
    folder = scratch / layout.replace(" ", "")
    made = subprocess.run([TRAIN, *small, *layout.split(), "--checkpoint", str(folder)], capture_output=True, text=True, timeout=120)
    check(made.returncode == 0, made.stderr)
    listed = tool("list", folder)
    check(listed.returncode == 0 and [line.split()[0] for line in listed.stdout.splitlines()[2:]] == ["2", "3"], f"list: {listed}")
    shown = tool("show", folder)
    check("step 3, written by 2 ranks, seed 1" in shown.stdout and "[256, 16]" in shown.stdout and "optimizer: 3 steps" in shown.stdout
          and "global-batch: 8" in shown.stdout and "config.heads: 2" in shown.stdout and "layout.tp: " in shown.stdout, f"show: {shown}")
    alone = tool("list", folder / "step-00000003")
    check(alone.returncode == 0 and [line.split()[0] for line in alone.stdout.splitlines()[2:]] == ["3"], f"list of one: {alone}")
    verified = tool("verify", folder)
    check(verified.returncode == 0 and "is whole" in verified.stdout, f"verify: {verified}")
    file = scratch / f"{folder.name}.safetensors"
    check(tool("merge", folder, file).returncode == 0, "merge")
    merged.append(tensors_of(file))
    check(merged[-1]["transformer.wte.weight"][:2] == ("F32", [256, 16]) and len(merged[-1]["transformer.wte.weight"][2]) == 16384,
          f"merge: {list(merged[-1])}")
    everything = scratch / "all.safetensors"
    check(tool("merge", folder, everything, "--all").returncode == 0, "merge --all")
    check(len(tensors_of(everything)) == 3 * len(merged[-1]), "merge --all has two moments beside each parameter")
    # xxhsum prints the checksums that the index has.
    index = json.loads((folder / "step-00000003/index.json").read_text())
    if shutil.which("xxhsum"):
        for entry in index["files"]:
            said = subprocess.run(["xxhsum", "-H3", entry["name"]], cwd=folder / "step-00000003", capture_output=True, text=True).stdout
            check(entry["xxh3"] in said, f"xxhsum: {said}, not {entry}")
    # One bit.
    damaged = folder / "step-00000003" / index["files"][0]["name"]
    data = bytearray(damaged.read_bytes())
    data[-5] ^= 4
    damaged.write_bytes(data)
    found = tool("verify", folder)
    check(found.returncode == 2 and "is damaged: checksum" in found.stderr and damaged.name in found.stderr, f"verify damaged: {found}")
    broken = tool("merge", folder, scratch / "broken.safetensors", "--all")
    check(broken.returncode == 2 and not [path for path in scratch.iterdir() if path.name.startswith("broken")], f"merge damaged: {broken}")
# Another function of the same tensors, a name that a script left empty, and a place that cannot be: before the first step.
for words, expected in [(["--heads", "4", "--checkpoint", str(scratch / "--tp2"), "--resume"], "is of a model with heads 2, and this one has 4"),
                        (["--heads", "2", "--checkpoint", ""], "--checkpoint is empty: it needs a name"),
                        (["--heads", "2", "--checkpoint", str(scratch / "unused"), "--export", f"{text}/deep/folder"], "Not a directory")]:
    without = [word for i, word in enumerate(small) if word != "--heads" and small[i - 1] != "--heads"]
    bad = subprocess.run([TRAIN, *without, "--tp", "2", *words], capture_output=True, text=True, timeout=120)
    check(bad.returncode == 2 and expected in bad.stderr and bad.stderr.count("\n") == 1, f"{words}: {bad}")
check(sorted(merged[0]) == sorted(merged[1]), "two layouts have the same tensors")
check(max(abs(a - b) for name in merged[0] for a, b in zip(*(struct.unpack(f"<{len(m[name][2]) // 4}f", m[name][2]) for m in merged))) < 1e-4,
      "two layouts have learnt the same")
for words, expected in [((), "the commands are list FOLDER"), (("list",), "the commands are"), (("list", scratch / "no"), "is no folder"),
                        (("show", scratch), "holds no checkpoint"), (("merge", "a", "b", "c"), "the commands are"),
                        (("list", "x", "--stop-after", "4"), "checkpoint: unknown option '--stop-after': the commands are list"),
                        (("merge", folder, "/nonexistent/x"), "cannot write '/nonexistent/x': ")]:
    bad = tool(*words)
    check(bad.returncode == 2 and bad.stdout == "" and expected in bad.stderr, f"{words}: {bad}")
shutil.rmtree(scratch)
finish()
