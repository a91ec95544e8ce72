# SPDX-License-Identifier: Apache-2.0
"""GPT-2 124M in PyTorch on one GPU, as fast as PyTorch's own parts make it: torch.compile, scaled_dot_product_attention, bfloat16
by autocast over float32 weights (as weft keeps master weights) or as the weights' own type, fused AdamW, clipping. Prints JSON."""

import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.c_attn(self.ln_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).flatten(-2))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary=50304, layers=12, width=768, heads=12, length=1024):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("micro_batch", type=int)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--eager", action="store_true")
    p.add_argument("--weights", choices=["float32", "bfloat16"], default="float32")
    a = p.parse_args()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Gpt().cuda().to(getattr(torch, a.weights))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    compiled = model if a.eager else torch.compile(model)
    index = torch.arange(a.micro_batch * 1024 + 1, device="cuda") * 2654435761 % 2**32
    tokens = (index >> 8) % 50257
    x, y = tokens[:-1].view(a.micro_batch, 1024), tokens[1:].view(a.micro_batch, 1024)

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=a.weights == "float32"):
            loss = compiled(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    seconds = []
    for index in range(5 + a.steps):
        torch.cuda.synchronize()
        started = time.perf_counter()
        loss = step().item()
        torch.cuda.synchronize()
        if index >= 5:
            seconds.append(time.perf_counter() - started)
    median, count = statistics.median(seconds), a.micro_batch * 1024
    operations = count * (6 * (12 * 12 * 768 * 768 + 50304 * 768) + 6 * 12 * 768 * 1024)
    print(json.dumps({"framework": "torch " + torch.__version__, "weights": a.weights, "compiled": not a.eager, "micro_batch": a.micro_batch,
                      "tokens_per_s": round(count / median), "ms": round(1e3 * median, 3), "tflops": round(operations / median / 1e12, 1),
                      "loss": loss, "bytes": torch.cuda.max_memory_reserved(), "gpu": torch.cuda.get_device_name()}))


main()
