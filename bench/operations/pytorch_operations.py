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
complex_x = torch.view_as_complex(x.reshape(8, 64, 64, 32, 2))
report("fft", lambda: torch.fft.fft(complex_x, dim=2))
F = torch.nn.functional
w3, grouped, each, up = filled(64, 64, 3, 3), filled(64, 16, 3, 3), filled(64, 1, 3, 3), filled(64, 32, 4, 4)
line, of_line, volume, of_volume = filled(8, 64, 4096), filled(64, 64, 3), filled(2, 16, 32, 32, 32), filled(16, 16, 3, 3, 3)
report("conv2d", lambda: F.conv2d(x, w3, padding=1))
report("conv2d_input", lambda: torch.nn.grad.conv2d_input(x.shape, w3, x, padding=1))
report("conv2d_weight", lambda: torch.nn.grad.conv2d_weight(x, w3.shape, x, padding=1))
report("strided", lambda: F.conv2d(x, w3, stride=2, padding=1))
report("dilated", lambda: F.conv2d(x, w3, padding=2, dilation=2))
report("grouped", lambda: F.conv2d(x, grouped, padding=1, groups=4))
report("depthwise", lambda: F.conv2d(x, each, padding=1, groups=64))
report("transposed", lambda: F.conv_transpose2d(x, up, stride=2, padding=1))
report("conv1d", lambda: F.conv1d(line, of_line, padding=1))
report("conv3d", lambda: F.conv3d(volume, of_volume, padding=1))
report("max_pool2d", lambda: F.max_pool2d(x, 3, stride=2, padding=1))
report("avg_pool2d", lambda: F.avg_pool2d(x, 2))
report("nearest", lambda: F.interpolate(x, scale_factor=2))
report("linear", lambda: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False))
edges, nodes = 100000, 20000
messages, states, ids = filled(edges, 64), filled(nodes, 64), torch.arange(edges) * 7919 % nodes
counts = torch.bincount(ids, minlength=nodes).clamp(min=1).float().unsqueeze(1)
report("sin", lambda: x.sin())
report("erf", lambda: x.erf())
report("softplus", lambda: F.softplus(x))
report("elu", lambda: F.elu(x))
report("mish", lambda: F.mish(x))
report("index_select", lambda: states.index_select(0, ids))
report("scatter_add", lambda: torch.zeros(nodes, 64).index_add_(0, ids, messages))
report("segment_mean", lambda: torch.zeros(nodes, 64).index_add_(0, ids, messages) / counts)
