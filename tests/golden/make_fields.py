#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes fields.json, PyTorch's losses of the models of examples/fields over 20 steps of SGD with momentum, in double precision.

    .deps/torch/bin/python tests/golden/make_fields.py      # the file was made with torch 2.11

Parameters and samples are a formula of their place (fields_models.py), so that the file holds only losses.
"""

import json
import pathlib

import numpy
import torch

import fields_models as models

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
SAMPLES, STEPS, RATE, MOMENTUM = models.Samples(0, 8), 20, 0.02, 0.9


def losses(shapes, loss):
    p = models.parameters(shapes)
    optimizer = torch.optim.SGD(p.values(), lr=RATE, momentum=MOMENTUM)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        now = loss(p)
        now.backward()
        optimizer.step()
        found.append(now.item())
    print(found[0], found[-1])
    return found


def philox_normal(key, count):
    """weft's Philox::normal(key, 0 ... count - 1)."""
    with numpy.errstate(over="ignore"):
        low, high = numpy.uint64(0xFFFFFFFF), numpy.uint64(32)
        index = numpy.arange(count, dtype=numpy.uint64)
        c = [index & low, index >> high, numpy.zeros_like(index), numpy.zeros_like(index)]
        k = [numpy.uint64(key & 0xFFFFFFFF), numpy.uint64(key >> 32)]
        for _ in range(10):
            a, b = numpy.uint64(0xD2511F53) * c[0], numpy.uint64(0xCD9E8D57) * c[2]
            c = [(b >> high) ^ c[1] ^ k[0], b & low, (a >> high) ^ c[3] ^ k[1], a & low]
            k = [(k[0] + numpy.uint64(0x9E3779B9)) & low, (k[1] + numpy.uint64(0xBB67AE85)) & low]
    u, v = ((word.astype(numpy.float64) + 0.5) * 2.0**-32 for word in c[:2])
    return torch.from_numpy(numpy.sqrt(-2 * numpy.log(u)) * numpy.cos(2 * numpy.pi * v))


def site_of(name):
    value = 14695981039346656037
    for letter in name.encode():
        value = (value ^ letter) * 1099511628211 % 2**64
    return value


def key_of(*parts):
    value = 0
    for part in parts:
        x = ((value ^ part) + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        value = x ^ (x >> 31)
    return value


def noise_of_steps(seed=1):
    """weft's noise of the layer "first.noise", another one in each call."""
    step = 0

    def noise(*shape):
        nonlocal step
        step += 1
        return philox_normal(key_of(seed, site_of("first.noise"), step - 1), int(numpy.prod(shape))).reshape(shape)

    return noise


found = {
    "fno": losses(*models.fno(SAMPLES)),
    "mesh": losses(*models.mesh(SAMPLES)),
    "potential": losses(*models.potential(SAMPLES)),
    "diffusion": losses(*models.diffusion(SAMPLES, noise_of=noise_of_steps())),
    "unet2": losses(*models.unet(SAMPLES, 2)),
    "unet3": losses(*models.unet(SAMPLES, 3)),
    "pinn": losses(*models.pinn(SAMPLES)),
}
pathlib.Path(__file__).with_name("fields.json").write_text(json.dumps(found, indent=0) + "\n")
