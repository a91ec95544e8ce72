# SPDX-License-Identifier: Apache-2.0
"""The same GPT in PyTorch over Gloo, as fast as PyTorch's own parts make it. Started by compare.py, one process a rank.

Choices, each the faster one where there are several: fused query, key and value; scaled_dot_product_attention; AdamW(fused=True);
gradient_as_bucket_view; bf16 as bfloat16 parameters, activations and optimizer state (faster than autocast, and less work than
weft's, which keeps float32 master weights). TP shards attention and MLP with torch.distributed.tensor.parallel, and leaves the
embedding (256 rows) whole; FSDP2 shards every block and the rest, each parameter gathered again for backward; PP unties the head, which spares PyTorch an exchange. Every mode sees 16 sequences a step.
"""

import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.head = width // heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)  # rows ordered by head, so that whole heads can be sharded
        self.c_proj = nn.Linear(width, width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.mlp_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.c_attn(self.ln_1(x)).unflatten(-1, (-1, 3, self.head)).permute(3, 0, 2, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).flatten(-2))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Layers [first, last) of the model, with the embedding if first is 0 and the head if last is the last."""

    def __init__(self, a, first, last, tied=True):
        super().__init__()
        self.embed = first == 0
        self.final = last == a.layers
        if self.embed:
            self.wte, self.wpe = nn.Embedding(a.vocabulary, a.width), nn.Embedding(a.sequence, a.width)
        self.blocks = nn.ModuleList(Block(a.width, a.heads) for _ in range(first, last))
        if self.final:
            self.ln_f = nn.LayerNorm(a.width)
            self.head = nn.Linear(a.width, a.vocabulary, bias=False)
        if tied and self.embed and self.final:
            self.head.weight = self.wte.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, x):
        if self.embed:
            x = self.wte(x) + self.wpe.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x)) if self.final else x


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--mode", choices=["dp", "fsdp", "tp", "pp"], required=True)
    p.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    p.add_argument("--data", required=True)
    for name, value in [("steps", 8), ("warmup", 2), ("layers", 6), ("width", 384), ("heads", 6), ("sequence", 256),
                        ("sequences", 8), ("vocabulary", 256), ("micro-batches", 4), ("seed", 1)]:
        p.add_argument(f"--{name}", type=int, default=value)
    a = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(a.seed)
    dtype = torch.bfloat16 if a.precision == "bf16" else torch.float32
    text = torch.frombuffer(bytearray(open(a.data, "rb").read()), dtype=torch.uint8).long()
    sampler = torch.Generator().manual_seed(a.seed)
    batch = a.sequences * world

    def load():
        """This rank's tokens and targets: its share under dp, the whole batch otherwise."""
        starts = torch.randint(len(text) - a.sequence - 1, (batch,), generator=sampler)
        if a.mode in ("dp", "fsdp"):
            starts = starts[rank * a.sequences : (rank + 1) * a.sequences]
        x = torch.stack([text[s : s + a.sequence + 1] for s in starts])
        return x[:, :-1].contiguous(), x[:, 1:].contiguous()

    if a.mode == "pp":
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        cut = [a.layers * r // world for r in range(world + 1)]
        model = Gpt(a, cut[rank], cut[rank + 1], tied=False).to(dtype)
        stage = PipelineStage(model, rank, world, torch.device("cpu"))
        schedule = Schedule1F1B(stage, a.micro_batches, loss_fn=loss_of)
    else:
        model = Gpt(a, 0, a.layers).to(dtype)
        if a.mode == "tp":
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

            mesh = init_device_mesh("cpu", (world,))
            for block in model.blocks:
                parallelize_module(block, mesh, {"c_attn": ColwiseParallel(), "c_proj": RowwiseParallel(),
                                                 "c_fc": ColwiseParallel(), "mlp_proj": RowwiseParallel()})
        elif a.mode == "fsdp":
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh("cpu", (world,))
            for block in model.blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(model, mesh=mesh)
        else:
            model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    parameters = list(model.parameters())
    # foreach and fused kernels refuse DTensors beside plain tensors: give each kind its own group
    plain = [q for q in parameters if type(q.data) is torch.Tensor]
    sharded = [q for q in parameters if type(q.data) is not torch.Tensor]
    optimizers = [torch.optim.AdamW(group, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True) for group in (plain, sharded) if group]

    def clip():
        if a.mode in ("dp", "fsdp"):
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            return
        # one number is summed over the ranks; a parameter that is whole on every rank counts once
        local = lambda q: q.grad.to_local() if hasattr(q.grad, "to_local") else q.grad
        own = [local(q) for q in (parameters if a.mode == "pp" else sharded)]
        whole = [local(q) for q in plain] if a.mode == "tp" else []
        square = lambda grads: sum(n.float() ** 2 for n in torch._foreach_norm(grads)) if grads else torch.zeros(())
        total = square(own)
        dist.all_reduce(total)
        norm = (total + square(whole)).sqrt()
        torch._foreach_mul_([*own, *whole], min(1.0, 1.0 / (norm.item() + 1e-6)))

    def step():
        tokens, targets = load()
        if a.mode == "pp":
            losses = []
            if rank == 0:
                schedule.step(tokens)
            else:
                schedule.step(target=targets, losses=losses)
            loss = torch.stack(losses).mean() if losses else torch.zeros(())
        else:
            loss = loss_of(model(tokens), targets)
            loss.backward()
        clip()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=a.mode != "dp")
        return loss.item()

    seconds, losses = [], []
    for index in range(a.warmup + a.steps):
        dist.barrier()
        start = time.perf_counter()
        losses.append(step())
        dist.barrier()
        if index >= a.warmup:
            seconds.append(time.perf_counter() - start)
    if rank == world - 1:  # the last stage of a pipeline knows the loss
        print(json.dumps({"ms": [1000 * s for s in seconds], "losses": losses, "tokens": batch * a.sequence, "torch": torch.__version__}))
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


main()
