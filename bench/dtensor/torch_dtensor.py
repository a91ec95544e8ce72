# SPDX-License-Identifier: Apache-2.0
"""The operations of operations.cpp on PyTorch's DTensor and on plain tensors of a rank's part, over Gloo. Started by `main`, one process a rank."""
import json
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

windows = int(sys.argv[1]) if len(sys.argv) > 1 else 41
torch.set_num_threads(1)
torch.manual_seed(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))


def meter(form, operation, extent, f):
    times, repeats = [], 200 if extent <= 64 else 4
    for window in range(-1, windows):  # the first one warms up
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(repeats):
            f()
        if window >= 0:
            times.append((time.perf_counter() - begin) / repeats * 1e6)
    times.sort()
    if dist.get_rank() == 0:
        print(json.dumps({"form": form, "operation": operation, "extent": extent, "best_us": round(times[0], 2), "median_us": round(times[len(times) // 2], 2)}), flush=True)


for extent in (64, 1024):
    drawn = lambda placement: distribute_tensor(torch.randn(extent, extent), mesh, [placement])
    x, y, w, columns = drawn(Shard(0)), drawn(Shard(0)), drawn(Replicate()), drawn(Shard(1))
    px, py, pw = x.to_local(), y.to_local(), w.to_local()
    with torch.no_grad():
        meter("torch, plain", "x + y", extent, lambda: px + py)
        meter("torch, DTensor", "x + y", extent, lambda: x + y)
        meter("torch, plain", "relu(x)", extent, lambda: torch.relu(px))
        meter("torch, DTensor", "relu(x)", extent, lambda: torch.relu(x))
        meter("torch, plain", "x w", extent, lambda: px @ pw)
        meter("torch, DTensor", "x w", extent, lambda: x @ w)
    a, b = drawn(Shard(0)).requires_grad_(), drawn(Replicate()).requires_grad_()

    def backward():
        torch.relu(a @ b).sum().backward()
        a.grad = b.grad = None

    meter("torch, DTensor, backward too", "sum(relu(a b))", extent, backward)
    with torch.no_grad():
        meter("torch, DTensor, one message", "columns x, added", extent, lambda: (columns @ x).redistribute(mesh, [Replicate()]))
dist.destroy_process_group()
