# SPDX-License-Identifier: Apache-2.0
"""The image classifiers of examples/06_classify in PyTorch over Gloo, as fast as PyTorch's own parts make them. Started by compare.py,
one process a rank.

Choices, each the faster one where there are several: fused query, key and value; scaled_dot_product_attention. BatchNorm takes the
statistics of a rank's own images, which is less work than weft's, whose statistics are those of all ranks: PyTorch's SyncBatchNorm runs
on GPUs only.
"""

import pathlib
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import torch_steps

GLOBAL_BATCH, BATCHES = 100, 8


def convolution(inputs, outputs):
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)


class Cnn(nn.Module):
    def __init__(self, channels=16, stages=2, side=28, classes=10):
        super().__init__()
        layers = [convolution(1, channels), nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        for stage in range(stages):
            inside, outside = channels << stage, channels << (stage + 1)
            layers += [convolution(inside, outside), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
                       convolution(outside, outside), nn.BatchNorm2d(outside), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        self.layers = nn.Sequential(*layers)
        self.last = nn.Linear((channels << stages) * (side >> (stages + 1)) ** 2, classes)

    def forward(self, x):
        return self.last(self.layers(x).flatten(1))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.into(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class VisionTransformer(nn.Module):
    def __init__(self, side=28, patch=4, width=64, heads=4, layers=4, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(1, width, patch, stride=patch)
        self.positions = nn.Parameter(torch.randn((side // patch) ** 2, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.last(self.norm(x).mean(1))


def batches_of(rank, ranks):
    """Pixels and labels are a function of the image's number, the same as in step.cpp."""
    share = GLOBAL_BATCH // ranks
    number = (torch.arange(BATCHES)[:, None] * GLOBAL_BATCH + rank * share + torch.arange(share)[None])[..., None]
    labels = number * 7 % 10
    pixels = (number * 37 + torch.arange(784) * (1 + labels)) % 101 / 50 - 1
    return pixels.view(BATCHES, share, 1, 28, 28), labels[..., 0]


def make(name, rank, ranks, layout):
    module = {"cnn": Cnn, "vit": VisionTransformer}[name]().to(memory_format=layout)
    matrices = [q for q in module.parameters() if q.dim() > 1]
    vectors = [q for q in module.parameters() if q.dim() <= 1]
    images, labels = batches_of(rank, ranks)
    return torch_steps.Job(
        module, [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}],
        lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]), {"images": GLOBAL_BATCH},
        lambda step: (images[step % BATCHES].contiguous(memory_format=layout), labels[step % BATCHES]))


torch_steps.main(["cnn", "vit"], make)
