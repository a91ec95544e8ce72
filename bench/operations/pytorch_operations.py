# SPDX-License-Identifier: Apache-2.0
"""The operations of bench/operations/operations.cpp in PyTorch, on one thread; lines "NAME MILLISECONDS"."""
import math
import time

import torch

torch.set_num_threads(1)


def filled(*shape):
    n = math.prod(shape)
    i = torch.arange(n, dtype=torch.int64)
    return (torch.sin(1.7 * (i * i % 10007).double()) + 1.5).float().reshape(shape)


def report(name, f):
    best = 1e9
    for _ in range(30):
        start = time.perf_counter()
        result = f()
        best = min(best, time.perf_counter() - start)
        del result
    print(f"{name} {1e3 * best:.3f}")


x, gain, w, rows = filled(8, 64, 64, 64), filled(64, 1, 1), filled(64, 64), filled(2048, 1000)
report("gain", lambda: x * gain)
report("gain_gradient", lambda: x.sum((0, 2, 3), keepdim=True))
report("cumsum", lambda: rows.cumsum(1))
report("sort", lambda: rows.sort(stable=True, dim=1))
report("topk", lambda: rows.topk(10, 1))
report("rfft2", lambda: torch.fft.rfft2(x))
report("einsum", lambda: torch.einsum("bixy,io->boxy", x, w))
report("pad", lambda: torch.nn.functional.pad(x, (1, 1, 1, 1), "circular"))
report("roll", lambda: x.roll(5, 2))
report("flip", lambda: x.flip(3))
report("less", lambda: x < 1.0)
