# SPDX-License-Identifier: Apache-2.0
"""Timed steps of a PyTorch model under DistributedDataParallel over Gloo, one process a rank. Imported by the scripts that
compared_models.py starts.

    torch_steps.main(["cnn", "vit"], make)    # make(name, rank, ranks, layout) returns a Job

Choices, each the faster one where there are several: AdamW(fused=True), gradient_as_bucket_view; --channels-last is
compared_models.py's to choose.
"""

import argparse
import json
import os
import sys
import time
import typing

import torch
import torch.distributed as dist
import torch.nn as nn


class Job(typing.NamedTuple):
    module: nn.Module
    groups: list  # of parameters, with their weight decay
    loss: typing.Callable  # of the wrapped module and the batch that prepare(step) returns before the clock starts
    counted: dict  # such as {"images": 100}: of a step over all ranks
    prepare: typing.Callable = lambda step: None


def main(models, make):
    p = argparse.ArgumentParser()
    p.add_argument("--model", choices=models, required=True)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--warmup", type=int, default=5)
    p.add_argument("--channels-last", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    job = make(a.model, rank, ranks, torch.channels_last if a.channels_last else torch.contiguous_format)
    model = nn.parallel.DistributedDataParallel(job.module, gradient_as_bucket_view=True, broadcast_buffers=False)
    optimizer = torch.optim.AdamW(job.groups, lr=1e-3, fused=True)

    times, losses = [], []
    for step in range(a.warmup + a.steps):
        batch = job.prepare(step)
        dist.barrier()
        if step == a.warmup:
            busy = time.process_time()
        started = time.perf_counter()
        loss = job.loss(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        losses.append(loss.item())
        dist.barrier()
        if step >= a.warmup:
            times.append(1000 * (time.perf_counter() - started))
    busy = torch.tensor([1000 * (time.process_time() - busy) / a.steps])
    dist.all_reduce(busy)
    if rank == 0:
        print(json.dumps(job.counted | {"processor_ms": busy.item(), "ms": times, "losses": losses, "torch": torch.__version__}))
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)
