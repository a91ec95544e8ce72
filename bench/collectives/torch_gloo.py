# SPDX-License-Identifier: Apache-2.0
"""torch.distributed's Gloo, under torchrun's environment, beside bench/collectives/over_tcp.cpp: the same operations and sizes,
measured in the same way. Each line of the output is "OPERATION BYTES MEDIAN FASTEST" in seconds a call."""

import statistics
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.set_num_threads(1)
rank, n = dist.get_rank(), dist.get_world_size()
for size in (4096, 1 << 20, 64 << 20):
    x = torch.zeros(size // 4)
    wide = torch.zeros(size // 4 * n)
    pieces = list(wide.chunk(n))
    steps = {
        "all_reduce": lambda: dist.all_reduce(x),
        "all_gather": lambda: dist.all_gather(pieces, x),
        "reduce_scatter": lambda: dist.reduce_scatter(x, pieces),
        "broadcast": lambda: dist.broadcast(x, 0),
    }
    for operation, step in steps.items():
        repetitions = min(max((32 << 20) // size, 1), 200)
        seconds = []
        try:
            for round_ in range(-1, 7):
                dist.barrier()
                start = time.perf_counter()
                for _ in range(repetitions):
                    step()
                dist.barrier()
                if round_ >= 0:
                    seconds.append((time.perf_counter() - start) / repetitions)
        except RuntimeError:  # not in this version
            continue
        if rank == 0:
            print(operation, size, f"{statistics.median(seconds):.9f} {min(seconds):.9f}", flush=True)
dist.destroy_process_group()
