# SPDX-License-Identifier: Apache-2.0
"""The MLP of mlp.cpp in PyTorch over Gloo, eager and compiled. Started by compare.py, one process a rank.

Choices, each the faster one where there are several: AdamW(fused=True); eager clipping by clip_grad_norm_ with foreach; compiled is
the faster of two: the model and its loss alone, or clipping and AdamW, too ("all compiled", whose learning rate is a constant of the code).
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

INPUTS, WIDTH, BATCH = 16, 64, 64


def features(examples):
    return (examples[:, None] * 37 + torch.arange(INPUTS) * 11) % 101 / 101 - 0.5


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--kind", choices=["eager", "compiled", "all compiled"], required=True)
    p.add_argument("--windows", type=int, default=11)
    p.add_argument("--steps", type=int, default=100)
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    bare = nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.GELU("tanh"), nn.Linear(WIDTH, WIDTH), nn.GELU("tanh"), nn.Linear(WIDTH, 1))
    model = bare if ranks == 1 else nn.parallel.DistributedDataParallel(bare, gradient_as_bucket_view=True)
    parameters = list(bare.parameters())
    whole = a.kind == "all compiled"
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=not whole, foreach=whole)
    share = BATCH // ranks
    examples = rank * share + torch.arange(share)
    x, y = features(examples), (examples * 7 % 50 / 100)[:, None]

    loss_of = lambda x, y: F.mse_loss(model(x), y)

    def update():
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()

    if a.kind != "eager":
        loss_of = torch.compile(loss_of)
    if whole:
        update = torch.compile(update)

    def step():
        loss = loss_of(x, y)
        loss.backward()
        update()
        optimizer.zero_grad(set_to_none=ranks == 1 and not whole)
        return loss.item()

    windows = []
    for window in range(-1, a.windows):  # the first one warms up
        dist.barrier()
        started = time.perf_counter()
        for _ in range(a.steps):
            loss = step()
        if window >= 0:
            windows.append(1e6 * (time.perf_counter() - started) / a.steps)
    if rank == 0:
        print(json.dumps({"us": windows, "loss": loss, "torch": torch.__version__}))
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


main()
