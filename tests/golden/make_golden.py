#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference files that weft's models are held to: PyTorch's logits, loss and gradients in double precision.

    python make_golden.py            # needs torch; the files beside this script were made with torch 2.11

Each file is JSON: `config`, `tokens` and `targets` [sequences, length] (a target of -1 is not counted), `logits`
[sequences, length, vocabulary], `loss` (mean over the counted targets), and `parameters` and `gradients` by Hugging Face's names
with shapes as Hugging Face stores them: GPT-2's c_attn, c_proj and c_fc are Conv1D, [in, out]; Llama's projections are
Linear, [out, in]. `training` holds the losses and gradient norms (before clipping) of a few AdamW steps on the same batch, with
weight decay on parameters of two dims only. Parameters are multiples of 1/4096, so that float and double hold them exactly; they
are far from an initial state on purpose: biases and norms differ from 0 and 1, or errors in them would not be seen.
The models are written out in plain tensor operations, so that nothing is taken from a library that could change.
"""

import json
import math
import pathlib

import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def parameters_of(shapes, generator):
    out = {}
    for name, shape in shapes.items():
        scale = 0.1 if len(shape) == 1 else 0.3
        value = scale * torch.randn(shape, generator=generator)
        if len(shape) == 1 and name.endswith("weight"):
            value = value + 1
        out[name] = (torch.round(value * 4096) / 4096).requires_grad_(True)
    return out


def attention(q, k, v):
    """q [B, H, T, D], k and v [B, G, T, D] with H % G == 0; head h reads group h // (H / G)."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(-2)


# --- GPT-2: pre-norm, learned positions, biases, GELU by tanh, the head tied to the embedding -----------------------------


def gpt_shapes(c):
    w, shapes = c["width"], {}
    shapes["transformer.wte.weight"] = (c["vocabulary"], w)
    shapes["transformer.wpe.weight"] = (c["sequence"], w)
    for layer in range(c["layers"]):
        h = f"transformer.h.{layer}."
        shapes |= {h + "ln_1.weight": (w,), h + "ln_1.bias": (w,)}
        shapes |= {h + "attn.c_attn.weight": (w, 3 * w), h + "attn.c_attn.bias": (3 * w,)}
        shapes |= {h + "attn.c_proj.weight": (w, w), h + "attn.c_proj.bias": (w,)}
        shapes |= {h + "ln_2.weight": (w,), h + "ln_2.bias": (w,)}
        shapes |= {h + "mlp.c_fc.weight": (w, c["hidden"]), h + "mlp.c_fc.bias": (c["hidden"],)}
        shapes |= {h + "mlp.c_proj.weight": (c["hidden"], w), h + "mlp.c_proj.bias": (w,)}
    shapes |= {"transformer.ln_f.weight": (w,), "transformer.ln_f.bias": (w,)}
    return shapes


def gpt(c, p, tokens):
    def norm(x, name):
        x = x - x.mean(-1, keepdim=True)
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + c["norm_epsilon"]) * p[name + ".weight"] + p[name + ".bias"]

    def linear(x, name):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    def gelu(x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][: tokens.shape[1]]
    for layer in range(c["layers"]):
        h = f"transformer.h.{layer}."
        q, k, v = (heads(y, c["heads"]) for y in linear(norm(x, h + "ln_1"), h + "attn.c_attn").chunk(3, dim=-1))
        x = x + linear(joined(attention(q, k, v)), h + "attn.c_proj")
        x = x + linear(gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc")), h + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ p["transformer.wte.weight"].T


# --- Llama: pre-norm RMS, rotary positions (rotate_half), grouped-query attention, SwiGLU, no biases ------------------------


def llama_shapes(c):
    w, d, shapes = c["width"], c["width"] // c["heads"], {}
    shapes["model.embed_tokens.weight"] = (c["vocabulary"], w)
    for layer in range(c["layers"]):
        h = f"model.layers.{layer}."
        shapes[h + "input_layernorm.weight"] = (w,)
        shapes[h + "self_attn.q_proj.weight"] = (w, w)
        shapes[h + "self_attn.k_proj.weight"] = (c["kv_heads"] * d, w)
        shapes[h + "self_attn.v_proj.weight"] = (c["kv_heads"] * d, w)
        shapes[h + "self_attn.o_proj.weight"] = (w, w)
        shapes[h + "post_attention_layernorm.weight"] = (w,)
        shapes[h + "mlp.gate_proj.weight"] = (c["hidden"], w)
        shapes[h + "mlp.up_proj.weight"] = (c["hidden"], w)
        shapes[h + "mlp.down_proj.weight"] = (w, c["hidden"])
    shapes["model.norm.weight"] = (w,)
    if not c["tied"]:
        shapes["lm_head.weight"] = (c["vocabulary"], w)
    return shapes


def llama(c, p, tokens):
    def norm(x, name):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + c["norm_epsilon"]) * p[name + ".weight"]

    def linear(x, name):
        return x @ p[name + ".weight"].T

    d = c["width"] // c["heads"]
    angle = torch.outer(torch.arange(tokens.shape[1]).double(), c["rope_base"] ** (-torch.arange(0, d, 2).double() / d))
    cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()

    def rotated(x):
        half = torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1)
        return x * cos + half * sin

    x = p["model.embed_tokens.weight"][tokens]
    for layer in range(c["layers"]):
        h = f"model.layers.{layer}."
        y = norm(x, h + "input_layernorm")
        q = rotated(heads(linear(y, h + "self_attn.q_proj"), c["heads"]))
        k = rotated(heads(linear(y, h + "self_attn.k_proj"), c["kv_heads"]))
        v = heads(linear(y, h + "self_attn.v_proj"), c["kv_heads"])
        x = x + linear(joined(attention(q, k, v)), h + "self_attn.o_proj")
        y = norm(x, h + "post_attention_layernorm")
        x = x + linear(torch.nn.functional.silu(linear(y, h + "mlp.gate_proj")) * linear(y, h + "mlp.up_proj"), h + "mlp.down_proj")
    return linear(norm(x, "model.norm"), "model.embed_tokens" if c["tied"] else "lm_head")


# --- files ---------------------------------------------------------------------------------------------------------------


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def tensors(named):
    return {name: {"shape": list(value.shape), "values": value.flatten().tolist()} for name, value in named.items()}


def write(name, config, shapes, model, seed):
    generator = torch.Generator().manual_seed(seed)
    parameters = parameters_of(shapes(config), generator)
    size = (config["sequences"], config["sequence"])
    tokens = torch.randint(config["vocabulary"], size, generator=generator)
    targets = torch.randint(config["vocabulary"], size, generator=generator)
    targets[0, 2] = targets[1, -1] = -1
    logits = model(config, parameters, tokens)
    loss = loss_of(logits, targets)
    loss.backward()
    out = {
        "source": f"make_golden.py, torch {torch.__version__.split('+')[0]}, float64",
        "config": config,
        "tokens": tokens.tolist(),
        "targets": targets.tolist(),
        "loss": loss.item(),
        "logits": logits.tolist(),
        "parameters": tensors(parameters),
        "gradients": tensors({n: p.grad.clone() for n, p in parameters.items()}),
    }

    settings = {"steps": 5, "learning_rate": 1e-2, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1, "clip": 1.0}
    decayed = [p for p in parameters.values() if p.dim() > 1]
    others = [p for p in parameters.values() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": settings["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=settings["learning_rate"], betas=(settings["beta1"], settings["beta2"]), eps=settings["epsilon"])
    losses, norms = [], []
    for _ in range(settings["steps"]):
        optimizer.zero_grad()
        loss = loss_of(model(config, parameters, tokens), targets)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(list(parameters.values()), settings["clip"]).item())
        losses.append(loss.item())
        optimizer.step()
    out["training"] = settings | {"losses": losses, "gradient_norms": norms, "loss_after": loss_of(model(config, parameters, tokens), targets).item()}
    path = pathlib.Path(__file__).resolve().parent / f"{name}.json"
    path.write_text(json.dumps(out, separators=(",", ":")) + "\n")
    print(path.name, path.stat().st_size, "bytes, loss", out["loss"], "after", out["training"]["loss_after"])


def main():
    common = {"vocabulary": 32, "layers": 2, "width": 16, "heads": 4, "sequence": 8, "sequences": 4, "norm_epsilon": 1e-5}
    write("gpt", common | {"kv_heads": 4, "hidden": 64, "tied": True}, gpt_shapes, gpt, seed=1)
    llama_config = common | {"kv_heads": 2, "hidden": 32, "rope_base": 10000.0}
    write("llama", llama_config | {"tied": False}, llama_shapes, llama, seed=2)
    write("llama_tied", llama_config | {"tied": True}, llama_shapes, llama, seed=3)


if __name__ == "__main__":
    main()
