#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes resnet.json, torchvision's results for the networks of examples/08_imagenet, in double precision.

    python make_resnet.py            # needs torchvision; the file was made with torch 2.11 and torchvision 0.26

Parameters and pictures are a formula of their place, so that the file holds only results: for each network the loss of a training
step with label smoothing, the logits of an evaluation after it (with the running statistics of that step), and of each parameter's
gradient the sum, the sum of squares, and the elements at three places.
"""

import json
import pathlib

import numpy
import torch
import torchvision.models.resnet as resnet

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
CLASSES, SAMPLES, SIZE, SMOOTHING = 7, 4, 32, 0.1


def numbers(key, count):
    """Multiples of 2^-20 in [-1, 1): a hash of the key and the place."""
    mixed = (numpy.arange(count, dtype=numpy.uint64) * 2654435761 + numpy.uint64(key) * 40503 * 65537) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 3266489917) & 0xFFFFFFFF
    return torch.from_numpy(((mixed >> 11).astype(numpy.float64) - 2**20) / 2**20)


def value(key, name, shape):
    count = int(numpy.prod(shape))
    plain = numbers(key, count).reshape(shape)
    if len(shape) == 4:
        return plain * (6.0 / (shape[1] * shape[2] * shape[3])) ** 0.5
    if len(shape) == 2:
        return plain / 8
    return 1 + plain / 4 if name.endswith("weight") else plain / 4


def results(block, layers):
    model = resnet.ResNet(block, layers, num_classes=CLASSES)
    names = sorted(name for name, _ in model.named_parameters())
    with torch.no_grad():
        for key, name in enumerate(names):
            parameter = model.get_parameter(name)
            parameter.copy_(value(key, name, parameter.shape))
    images = numbers(1000, SAMPLES * 3 * SIZE * SIZE).reshape(SAMPLES, 3, SIZE, SIZE)
    labels = torch.tensor([i * 3 % CLASSES for i in range(SAMPLES)])
    loss = torch.nn.functional.cross_entropy(model(images), labels, label_smoothing=SMOOTHING)
    loss.backward()
    model.eval()
    with torch.no_grad():
        logits = model(images)
    gradients = {}
    for name in names:
        gradient = model.get_parameter(name).grad.flatten()
        places = [0, gradient.numel() // 3, gradient.numel() - 1]
        gradients[name] = [gradient.sum().item(), gradient.square().sum().item(), *(gradient[place].item() for place in places)]
    return {"loss": loss.item(), "logits": logits.flatten().tolist(), "gradients": gradients}


found = {
    "18": results(resnet.BasicBlock, [2, 2, 2, 2]),
    "14": results(resnet.Bottleneck, [1, 1, 1, 1]),
}
pathlib.Path(__file__).with_name("resnet.json").write_text(json.dumps(found, indent=0) + "\n")
