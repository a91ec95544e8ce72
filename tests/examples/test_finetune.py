# SPDX-License-Identifier: Apache-2.0
"""finetune: a folder that train_gpt wrote is tuned, whole or by adapters in two layouts; adapters alone come back, merged ones are a folder
that train_gpt loads; a run goes on from its checkpoint with the same losses; folders and options that do not fit are refused."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from checks import check, finish

FINETUNE, TRAIN = (os.path.join(os.environ["WEFT_EXAMPLES"], name) for name in ("07_finetune", "04_train_gpt"))
if not os.path.exists(FINETUNE):
    print("skipped: finetune needs what checkpoints need: weft::checkpoint")
    sys.exit(77)
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-finetune-"))
text = scratch / "text.txt"
text.write_bytes(b"a low rank is enough\n" * 200)


def run(program, *words, expected=0, output="run"):
    common = f"--data {text} --validation-fraction 0 --validate-every 0 --output {scratch / output} --quiet --sequence 16".split()
    ran = subprocess.run([program, *common, *map(str, words)], capture_output=True, text=True, errors="replace", timeout=120)
    check(ran.returncode == expected, f"{words}: {ran.returncode} {ran.stderr}")
    return ran.stderr


def losses(output):
    return [json.loads(line)["loss"] for line in (scratch / output / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]


for model, layers in (("gpt", "attn.c_attn"), ("llama", "q_proj")):
    base, adapters, again, merged, whole = (scratch / f"{model}-{name}" for name in ("base", "adapters", "again", "merged", "whole"))
    run(TRAIN, *f"--model {model} --layers 2 --width 16 --heads 4 --steps 1 --sample 0 --dp 1".split(), "--export", base)
    rank = f"--lora 2 --lora-alpha 4 --lora-layers {layers} --learning-rate 1e-2".split()
    run(FINETUNE, "--load", base, *rank, *"--steps 20 --dp 2 --tp 2 --zero 3".split(), "--export-adapters", adapters, "--export", merged, output="spread")
    run(FINETUNE, "--load", base, *rank, *"--steps 20 --dp 1".split(), output="alone")
    spread, alone = losses("spread"), losses("alone")
    check(len(spread) == 20 and max(abs(a - b) for a, b in zip(spread, alone)) < 1e-4, f"{model}: layouts differ: {spread} {alone}")
    config = json.loads((adapters / "adapter_config.json").read_text())
    check(config["r"] == 2 and config["lora_alpha"] == 4, config)
    check((merged / "model.safetensors").stat().st_size == (base / "model.safetensors").stat().st_size, f"{model}: adapters are left in the folder")
    check((merged / "model.safetensors").read_bytes() != (base / "model.safetensors").read_bytes(), f"{model}: nothing was merged")
    # A step of rate 0 changes nothing: adapters come back as they were.
    run(FINETUNE, "--load", base, "--adapters", adapters, *"--steps 1 --learning-rate 0 --pp 2 --dp 1".split(), "--export-adapters", again, output="first")
    check((again / "adapter_model.safetensors").read_bytes() == (adapters / "adapter_model.safetensors").read_bytes(), f"{model}: adapters differ")
    run(TRAIN, "--load", merged, *"--steps 1 --learning-rate 0 --sample 0 --dp 1".split(), output="by-merged")
    check(abs(losses("first")[0] - losses("by-merged")[0]) < 1e-5, f"{model}: merged weights compute something else")
    # All parameters, and a run that is begun again.
    run(FINETUNE, "--load", base, *"--steps 4 --dp 1".split(), "--export", whole, output="whole")
    check((whole / "config.json").read_text() == (base / "config.json").read_text(), f"{model}: another config")
    place = scratch / f"{model}-checkpoint"
    state = ["--load", base, *rank, "--checkpoint", place, *"--every 2 --dp 2 --steps 6".split()]
    run(FINETUNE, *state, output="steps")
    want = losses("steps")
    for newer in sorted(place.glob("step-*"))[-1:]:
        shutil.rmtree(newer)
    run(FINETUNE, *state, "--resume", output="steps")
    check(losses("steps")[-2:] == want[-2:], f"{model}: other losses after resuming: {losses('steps')} {want}")

base = scratch / "gpt-base"
for words, expected in [((), "finetune: --load FOLDER is missing"),
                        (("--load", base, "--lora-alpha", 4), "finetune: --lora-alpha is of adapters: it needs --lora RANK"),
                        (("--load", base, "--adapters", scratch / "gpt-adapters", "--lora", 2), "--lora beside --adapters"),
                        (("--load", base, "--lora", 2, "--lora-layers", "q_proj"), "ModelOptions::lora.match"),
                        (("--load", base, "--precision", "fp16"), "--precision is fp32 or bf16")]:
    said = run(FINETUNE, *words, expected=2)
    check(expected in said, said)
shutil.rmtree(scratch)
finish()
