# SPDX-License-Identifier: Apache-2.0
"""The models of examples/fields in PyTorch over Gloo (tests/golden/fields_models.py), as DistributedDataParallel trains them. Started by
compare.py, one process a rank.

Choices, each the faster one where there are several: AdamW(fused=True), gradient_as_bucket_view, functions in place of modules;
--channels-last is compare.py's to choose.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"))
import fields_models as models

# The sizes of the examples: samples of a step over both ranks, and the model of some samples.
KINDS = {
    "unet2": (16, lambda samples: models.unet(samples, 2, channels=16, side=32)),
    "unet3": (16, lambda samples: models.unet(samples, 3, channels=16, side=16)),
    "fno": (16, lambda samples: models.fno(samples, width=16, modes=6, layers=3, side=32)),
    "mesh": (8, lambda samples: models.mesh(samples, width=32, layers=4, nodes=96, neighbours=6)),
    "potential": (32, lambda samples: models.potential(samples, width=32, atoms=6)),
    "pinn": (128, lambda samples: models.pinn(samples, width=32)),
    "diffusion": (32, lambda samples: models.diffusion(samples, width=24, blocks=4, side=12)),
}


class Model(nn.Module):
    def __init__(self, shapes, loss, layout):
        super().__init__()
        self.names = sorted(shapes)
        place = lambda value: value.to(memory_format=layout) if value.dim() == 4 else value
        self.values = nn.ParameterList(place(value.detach()) for value in models.parameters(shapes).values())
        self.loss = loss

    def forward(self):
        return self.loss(dict(zip(self.names, self.values)))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", choices=KINDS, required=True)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--warmup", type=int, default=5)
    p.add_argument("--channels-last", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    layout = torch.channels_last if a.channels_last else torch.contiguous_format
    count, make = KINDS[a.model]
    bare = Model(*make(models.Samples(rank * count // ranks, count // ranks)), layout)
    model = nn.parallel.DistributedDataParallel(bare, gradient_as_bucket_view=True, broadcast_buffers=False)
    optimizer = torch.optim.AdamW(bare.parameters(), lr=1e-3, weight_decay=0.0, fused=True)

    times, losses = [], []
    for step in range(a.warmup + a.steps):
        dist.barrier()
        if step == a.warmup:
            busy = time.process_time()
        started = time.perf_counter()
        loss = model()
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
        print(json.dumps({"samples": count, "processor_ms": busy.item(), "ms": times, "losses": losses, "torch": torch.__version__}))
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


main()
