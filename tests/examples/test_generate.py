# SPDX-License-Identifier: Apache-2.0
"""The example generate: each token is the largest logit of the whole forward, every layout and seed gives the same, and texts come
back."""
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
TRAIN, GENERATE = os.path.join(EXAMPLES, "04_train_gpt"), os.path.join(EXAMPLES, "generate")
if not os.path.exists(GENERATE):
    print("skipped: built without xxhash.h")
    sys.exit(77)
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-generate-"))


def run(program, *words, expected=0):
    ran = subprocess.run([program, *map(str, words)], capture_output=True, text=True, errors="replace", timeout=120)
    check(ran.returncode == expected, f"{words}: {ran.returncode} {ran.stderr}")
    return ran


def generate(folder, *words, expected=0):
    return run(GENERATE, "--load", folder, "--quiet", *words, expected=expected)


def ids(text):
    return [[int(token) for token in line.split(",")] for line in text.splitlines()]


def floats_of(path):
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        assert entry["dtype"] == "F32"
        begin, end = entry["data_offsets"]
        numbers = struct.unpack(f"<{(end - begin) // 4}f", data[8 + length + begin : 8 + length + end])
        rows, columns = entry["shape"]
        tensors[name] = [numbers[row * columns : (row + 1) * columns] for row in range(rows)]
    return tensors


text = scratch / "text.txt"
text.write_bytes(b"a token is one row of each layer, and the rows before it are kept\n" * 60)
prompts = scratch / "prompts.txt"
PROMPTS = [[97, 32, 116, 111], [116], [114, 111, 119]]
prompts.write_text("\n".join(" ".join(map(str, prompt)) for prompt in PROMPTS) + "\n\n")
COUNT = 8
for model in ("gpt", "llama", "mixtral"):
    folder, tokens, logits = scratch / model, scratch / "tokens.txt", scratch / "logits.safetensors"
    sizes = f"--model {model} --layers 2 --width 16 --heads 4 --sequence 16".split() + (["--kv-heads", 2] if model != "gpt" else [])
    run(TRAIN, *f"--data {text} --validation-fraction 0 --output {scratch / 'run'} --quiet --steps 3 --sample 0".split(), *sizes,
        "--export", folder)
    made = ids(generate(folder, "--token-file", prompts, "--max-new-tokens", COUNT).stdout)
    check([len(one) for one in made] == [COUNT] * 3, made)
    tokens.write_text("\n".join(",".join(map(str, prompt + one)) for prompt, one in zip(PROMPTS, made)))
    generate(folder, "--token-file", tokens, "--logits", logits)
    of = floats_of(logits)
    check(sorted(of) == ["logits.0", "logits.1", "logits.2"] and len(of["logits.0"][0]) == 256, sorted(of))
    for i, (prompt, one) in enumerate(zip(PROMPTS, made)):
        rows = of[f"logits.{i}"]
        check(len(rows) == len(prompt) + COUNT, f"{model}: {len(rows)} rows")
        for at, token in enumerate(one):
            row = rows[len(prompt) - 1 + at]
            check(row[token] >= max(row) - 1e-5, f"{model}: token {at} of prompt {i} is not the largest logit")
    split = floats_of(logits)
    generate(folder, "--token-file", tokens, "--logits", logits, "--tp", 2, "--pp", 2)
    worst = max(abs(a - b) for name, rows in floats_of(logits).items() for x, y in zip(rows, split[name]) for a, b in zip(x, y))
    check(worst < 1e-4, f"{model}: logits of other layouts differ by {worst}")
    draws = ["--token-file", prompts, "--max-new-tokens", COUNT, "--temperature", 1.2, "--top-k", 40, "--top-p", 0.95]
    drawn = ids(generate(folder, *draws).stdout)
    check(drawn == ids(generate(folder, *draws, "--tp", 2, "--pp", 2).stdout), f"{model}: other tokens over 2 x 2 ranks")
    check(drawn == ids(generate(folder, *draws, "--pp", 2).stdout), f"{model}: other tokens over pp 2")
    check(drawn != ids(generate(folder, *draws, "--seed", 2).stdout), f"{model}: the same tokens for another seed")

folder = scratch / "llama"
made = ids(generate(folder, "--token-file", prompts, "--max-new-tokens", COUNT).stdout)
alone = ids(generate(folder, "--tokens", "97,32,116,111", "--max-new-tokens", COUNT).stdout)
check(alone == made[:1], f"a prompt alone: {alone} {made}")
stopped = ids(generate(folder, "--tokens", "97,32,116,111", "--max-new-tokens", COUNT, "--stop", made[0][2]).stdout)
check(stopped == [made[0][: made[0].index(made[0][2]) + 1]], f"stop: {stopped} {made}")
config = json.loads((folder / "config.json").read_text())
(folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [made[0][0]]}))
check(ids(generate(folder, "--tokens", "97,32,116,111", "--max-new-tokens", COUNT).stdout) == [made[0][:1]], "eos_token_id of generation_config.json")
check(ids(generate(folder, "--tokens", "97,32,116,111", "--stop", "", "--max-new-tokens", COUNT).stdout) == made[:1], "--stop ''")
for words, code, said in [
    (("--tokens", "1", "--max-new-tokens", 99), 2, "prompt 0 of 1 tokens and max_new_tokens(99) are more than the 16 tokens"),
    (("--tokens", "1,a"), 2, "--tokens: 'a' is no token"),
    (("--tokens", "1,256", "--max-new-tokens", 2), 2, "token(256) at place 1 is not in the vocabulary(256)"),
    (("--tokens", ""), 2, "an empty prompt"),
    ((), 2, "one of --prompt TEXT, --tokens 1,2,3 and --token-file FILE is needed"),
    (("--token-file", scratch / "none"), 2, "there is no such file"),
    (("--tokens", "1", "--top-p", 0), 2, "top_p"),
    (("--tokens", "1", "--tp", 3), 2, "tp(3)"),
]:
    ran = generate(folder, *words, expected=code)
    check(said in ran.stderr, f"{words}: {ran.stderr}")

# Text: a tokenizer of the 256 bytes, of which each is a token of its number.
shown = [byte for byte in range(256) if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte]
letters = {byte: chr(byte) for byte in shown}
letters.update({byte: chr(256 + i) for i, byte in enumerate(byte for byte in range(256) if byte not in letters)})
tokenizer = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "post_processor": None,
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
              "fuse_unk": False, "byte_fallback": False, "vocab": {letters[byte]: byte for byte in range(256)}, "merges": []},
}
(folder / "tokenizer.json").write_text(json.dumps(tokenizer))
for words in ((), ("--tp", 2, "--pp", 2)):
    said = generate(folder, "--prompt", "a to", "--max-new-tokens", COUNT, "--stop", "", *words).stdout
    expected = "a to" + bytes(made[0]).decode(errors="replace") + "\n"
    check(said == expected, f"text: {said!r} {expected!r}")
said = generate(folder, "--prompt", "a to", "--prompt", "t", "--max-new-tokens", COUNT, "--stop", "").stdout
check(said.startswith("a to") and "\nt" in said, f"texts: {said!r}")
shutil.rmtree(scratch)
finish()
