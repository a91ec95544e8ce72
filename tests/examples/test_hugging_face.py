# SPDX-License-Identifier: Apache-2.0
"""train_gpt --export and --load: a model comes back from its folder with the same bits, in another layout and in bf16; what does not fit
is refused."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TRAIN = os.path.join(os.environ["WEFT_EXAMPLES"], "04_train_gpt")
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-hugging-face-"))
failures = 0


def check(condition, what):
    global failures
    if not condition:
        failures += 1
        print("FAILED:", what)


text = scratch / "text.txt"
text.write_bytes(b"a folder is a model of many files\n" * 100)


def train(*words, expected=0):
    common = f"--data {text} --validation-fraction 0 --output {scratch / 'run'} --quiet".split()
    ran = subprocess.run([TRAIN, *common, *map(str, words)], capture_output=True, text=True, errors="replace", timeout=120)
    check(ran.returncode == expected, f"{words}: {ran.returncode} {ran.stderr}")
    return ran


first = train("--steps", 1, "--sample", 0, "--layers", 2, "--width", 16, "--heads", 2, "--sequence", 16, "--export", scratch / "gpt")
if "built without" in first.stderr:
    print("skipped: built without xxhash.h")
    sys.exit(77)
for model in ("gpt", "llama", "mixtral"):
    sizes = f"--model {model} --layers 2 --width 16 --heads 4 --sequence 16".split() + (["--kv-heads", 2] if model != "gpt" else [])
    folder, again, narrow = scratch / model, scratch / f"{model}-again", scratch / f"{model}-narrow"
    train(*sizes, "--steps", 3, "--sample", 0, "--tp", 2, "--export", folder)
    config = json.loads((folder / "config.json").read_text())
    check(config["model_type"] == ("gpt2" if model == "gpt" else model) and config["dtype"] == "float32", config)
    # A step of rate 0 changes nothing. Shorter sequences than the model has learned, and a sample.
    train("--load", folder, "--export", again, "--steps", 1, "--learning-rate", 0, "--sequence", 8, "--sample", 4, "--dp", 2, "--zero", 3)
    check((again / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes(), f"{model}: the same bits")
    check(json.loads((again / "config.json").read_text()) == config, f"{model}: the same config")
    train("--load", folder, "--export", narrow, "--steps", 1, "--learning-rate", 0, "--sample", 0, "--precision", "bf16")
    check(json.loads((narrow / "config.json").read_text())["dtype"] == "bfloat16", f"{model}: bf16")
for words, expected in [(("--width", 32), "--width beside --load"), (("--model", "llama"), "--model beside --load"),
                        (("--sequence", 32), "--sequence 32 is longer than the 16 positions")]:
    said = train("--load", scratch / "gpt", *words, expected=2).stderr
    check(expected in said, said)
check("cannot be opened" in train("--load", scratch / "no", expected=2).stderr, "a folder that is not there")
path = scratch / "gpt/config.json"
config = json.loads(path.read_text())
path.write_text(json.dumps({**config, "vocab_size": 50257}))
said = train("--load", scratch / "gpt", expected=2).stderr
check("its vocabulary is of 50257 tokens, and a text's of 256: it needs --data FILE.bin --vocabulary 50257" in said, said)
path.write_text(json.dumps({**config, "qk_norm": True}))
said = train("--load", scratch / "gpt", expected=2).stderr
check("does not know: qk_norm" in said, said)
shutil.rmtree(scratch)
sys.exit(1 if failures else 0)
