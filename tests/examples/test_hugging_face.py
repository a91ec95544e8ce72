# SPDX-License-Identifier: Apache-2.0
"""train_gpt --export and --load: a model comes back from its folder with the same bits, in another layout and in bf16; folders and
options that do not fit are refused."""
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from checks import check, finish

TRAIN = os.path.join(os.environ["WEFT_EXAMPLES"], "04_train_gpt")
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-hugging-face-"))
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
    # A folder with the shards of an earlier model: readers follow the index.
    for name in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json", "model-00001-of-2.safetensors", "mine.safetensors"):
        (again / name).write_text("earlier")
    train("--load", folder, "--export", again, "--steps", 1, "--learning-rate", 0, "--sample", 0)
    check(sorted(path.name for path in again.iterdir()) == ["config.json", "mine.safetensors", "model-00001-of-2.safetensors", "model.safetensors"], f"{model}: shards that stay: {list(again.iterdir())}")
    check((again / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes(), f"{model}: the same bits in place of shards")
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
check("transformer.wte.weight: is [256, 16], and [50257, 16] by config.json" in said, said)
(scratch / "alone").mkdir()
(scratch / "alone/config.json").write_text(path.read_text())  # without weights
said = train("--load", scratch / "alone", expected=2).stderr
check("its vocabulary is of 50257 tokens, and a text's of 256: it needs --data FILE.bin --vocabulary 50257" in said, said)
path.write_text(json.dumps({**config, "qk_norm": True}))
said = train("--load", scratch / "gpt", expected=2).stderr
check("does not read: qk_norm" in said, said)

# Heads of 8 values in a model of 20 and 5 heads; 20 / 4 is odd. Token ids stay.
for heads in (4, 5):
    shapes = {"model.embed_tokens": (256, 20), "lm_head": (256, 20), "model.norm": (20,)}
    at = "model.layers.0."
    shapes |= {at + norm: (20,) for norm in ("input_layernorm", "post_attention_layernorm")}
    shapes |= {at + f"self_attn.{head}_norm": (8,) for head in "qk"}
    shapes |= {at + f"self_attn.{name}_proj": (heads * 8, 20) for name in "qkv"} | {at + "self_attn.o_proj": (20, heads * 8)}
    shapes |= {at + "mlp.gate_proj": (12, 20), at + "mlp.up_proj": (12, 20), at + "mlp.down_proj": (20, 12)}
    header, place = {}, 0
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name + ".weight"] = {"dtype": "F32", "shape": shape, "data_offsets": (place, place + size)}
        place += size
    packed = json.dumps(header).encode()
    folder = scratch / f"apart-{heads}"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(packed)) + packed + struct.pack("<f", 0.1) * (place // 4))
    apart = dict(model_type="qwen3", vocab_size=256, hidden_size=20, num_hidden_layers=1, num_attention_heads=heads, num_key_value_heads=heads,
                 head_dim=8, intermediate_size=12, max_position_embeddings=16, eos_token_id=[3, 4], pad_token_id=1)
    (folder / "config.json").write_text(json.dumps(apart))
    train("--load", folder, "--export", folder / "again", "--steps", 1, "--learning-rate", 0, "--sample", 0)
    check((folder / "again/config.json").exists(), f"{heads} heads of a width of their own")
    written = json.loads((folder / "again/config.json").read_text())
    check({name: written.get(name) for name in apart} == apart, written)
shutil.rmtree(scratch)
finish()
