# SPDX-License-Identifier: Apache-2.0
"""The measurements of decode.cpp, by `transformers` on one thread: generate(), and a loop over the model's forward without its
extras. Started by compare.py; also makes the folders, with random weights."""
import json
import sys
import time

import torch
import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def make(folder, sizes):
    torch.manual_seed(1)
    layers, width, heads, kv_heads, inner, vocabulary = sizes
    config = transformers.LlamaConfig(vocab_size=vocabulary, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
                                      num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=1024,
                                      bos_token_id=None, eos_token_id=None)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def measure(folder, length, more, rounds, sequences):
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    vocabulary = model.config.vocab_size
    prompts = torch.tensor([[(1 + 7 * i + 13 * s) % vocabulary for i in range(length)] for s in range(sequences)])
    options = dict(do_sample=False, use_cache=True, eos_token_id=None, pad_token_id=0)
    result = {}
    with torch.inference_mode():
        for _ in range(rounds):
            times = []
            for count in (1, more):
                begin = time.perf_counter()
                tokens = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=count, **options)
                times.append(time.perf_counter() - begin)
            keep(result, "generate", times[0], (times[1] - times[0]) / (more - 1))
            begin = time.perf_counter()
            out = model(prompts, use_cache=True)
            chosen = [out.logits[:, -1:].argmax(-1)]
            first = time.perf_counter() - begin
            for _ in range(more - 1):
                out = model(chosen[-1], past_key_values=out.past_key_values, use_cache=True)
                chosen.append(out.logits[:, -1:].argmax(-1))
            keep(result, "loop", first, (time.perf_counter() - begin - first) / (more - 1))
    result["tokens"] = tokens[0, length:].tolist()
    result["versions"] = f"transformers {transformers.__version__}, PyTorch {torch.__version__}"
    print(json.dumps(result))


def keep(result, kind, first, each):
    best = result.setdefault(kind, {"first_s": first, "each_s": each})
    best["first_s"], best["each_s"] = min(best["first_s"], first), min(best["each_s"], each)


if sys.argv[1] == "make":
    make(sys.argv[2], [int(size) for size in sys.argv[3:]])
else:
    measure(sys.argv[1], *map(int, sys.argv[2:]))
