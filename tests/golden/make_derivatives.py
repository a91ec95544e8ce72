#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes derivatives.json: PyTorch's losses and gradients of four models with derivatives inside of their losses, in double precision.

    .deps/torch/bin/python tests/golden/make_derivatives.py      # the file was made with torch 2.11

Burgers is a physics-informed network, whose residual has first and second derivatives of the network's output; Potential has
energies and forces of atoms; Field is a network of convolutions whose loss has the slopes by its images, Spectral one with a group norm,
pooling and Fourier transforms. Parameters and samples are in the file. Three steps of SGD follow the first gradients.
"""

import json
import pathlib

import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
SAMPLES, HIDDEN, ATOMS, RATE, STEPS = 8, 8, 4, 0.05, 3


def numbers(key, *shape):
    """Multiples of 1/500 in [-1, 1], which float holds up to rounding and the file as text."""
    count = torch.Size(shape).numel()
    return torch.tensor([((i * i * 37 + i * 101 + key * 389) % 1001 - 500) / 500 for i in range(count)]).reshape(shape).float().double()


def slope(y, x):
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


class Burgers:
    def __init__(self):
        self.parameters = {
            "in": numbers(1, HIDDEN, 2),
            "in_bias": numbers(2, HIDDEN) / 2,
            "middle": numbers(3, HIDDEN, HIDDEN) * 0.7,
            "middle_bias": numbers(4, HIDDEN) / 2,
            "out": numbers(5, 1, HIDDEN),
        }
        self.fields = {"points": numbers(6, SAMPLES, 2), "wanted": numbers(7, SAMPLES, 1)}

    def u(self, x):
        p = self.parameters
        inside = torch.tanh(x @ p["in"].T + p["in_bias"])
        return torch.tanh(inside @ p["middle"].T + p["middle_bias"]) @ p["out"].T

    def loss(self):
        x = self.fields["points"].clone().requires_grad_()
        u = self.u(x)
        slopes = slope(u, x)
        second = slope(slopes[:, :1], x)
        residual = slopes[:, 1:] + u * slopes[:, :1] - 0.3 * second[:, :1]
        return (residual.square() + (u - self.fields["wanted"]).square()).sum() / SAMPLES


class Potential:
    """Energies of pairs by a network of the distance, summed over atoms; forces are minus the slopes."""

    def __init__(self):
        self.parameters = {
            "in": numbers(11, HIDDEN, 1),
            "in_bias": numbers(12, HIDDEN) / 2,
            "out": numbers(13, 1, HIDDEN),
        }
        self.fields = {"positions": numbers(14, SAMPLES, ATOMS, 3) * 2, "forces": numbers(15, SAMPLES, ATOMS, 3)}
        self.pairs = [(a, b) for a in range(ATOMS) for b in range(ATOMS) if a != b]

    def loss(self):
        p = self.parameters
        positions = self.fields["positions"].reshape(-1, 3).clone().requires_grad_()
        first = torch.tensor([s * ATOMS + a for s in range(SAMPLES) for a, _ in self.pairs])
        second = torch.tensor([s * ATOMS + b for s in range(SAMPLES) for _, b in self.pairs])
        distance = (positions[first] - positions[second]).square().sum(1, keepdim=True).add(0.1).sqrt()
        pair = torch.nn.functional.silu(distance @ p["in"].T + p["in_bias"]) @ p["out"].T * torch.exp(-distance)
        atoms = torch.zeros(SAMPLES * ATOMS, 1).index_add(0, first, pair)
        forces = -slope(atoms, positions)
        wrong = (forces - self.fields["forces"].reshape(-1, 3)).square().sum(1) + atoms.square().sum(1)
        return wrong.sum() / SAMPLES


class Field:
    """Convolutions, a gain, a layer norm and choices; the loss has the slopes by the images."""

    def __init__(self):
        self.parameters = {
            "in.weight": numbers(21, 4, 2, 3, 3) * 0.3,
            "in.bias": numbers(22, 4) / 2,
            "middle.weight": numbers(23, 4, 4, 2, 2) * 0.3,
            "middle.bias": numbers(24, 4) / 2,
            "gain": numbers(25, 4, 1, 1) + 1.5,
            "norm.weight": numbers(26, 36) / 2 + 1,
            "norm.bias": numbers(27, 36) / 2,
            "out.weight": numbers(28, 4, 1, 2, 2) / 2,
        }
        self.fields = {"images": numbers(29, SAMPLES, 2, 4, 4), "slopes": numbers(30, SAMPLES, 2, 4, 4)}

    def energies(self, x):
        p, f = self.parameters, torch.nn.functional
        inside = torch.tanh(f.conv2d(f.pad(x, (1, 1, 1, 1), "circular"), p["in.weight"], p["in.bias"]))
        hidden = torch.tanh(f.conv2d(inside, p["middle.weight"], p["middle.bias"])) * p["gain"]
        rows = f.layer_norm(hidden.flatten(1), (36,), p["norm.weight"], p["norm.bias"], 0.1)
        chosen = rows * rows.clamp(-0.8, 0.9) - torch.maximum(rows, 0.3 * rows.square())
        image = f.conv_transpose2d(hidden, p["out.weight"]).flatten(1)
        return chosen.sum(1) + (torch.log_softmax(image, 1) * image).sum(1)

    def loss(self):
        x = self.fields["images"].clone().requires_grad_()
        energies = self.energies(x)
        wrong = slope(energies, x) - self.fields["slopes"]
        return (wrong.square().sum() + energies.square().sum() * 0.1) * 0.01 / SAMPLES


class Spectral(Field):
    """A group norm, both kinds of pooling, Fourier transforms, moved elements and choices; the loss is that of Field."""

    def __init__(self):
        self.parameters = {
            "in.weight": numbers(31, 4, 2, 3, 3) * 0.3,
            "in.bias": numbers(32, 4) / 2,
            "norm.weight": numbers(33, 4) / 2 + 1,
            "norm.bias": numbers(34, 4) / 2,
            "mix": numbers(35, 4, 4),
        }
        self.fields = {"images": numbers(36, SAMPLES, 2, 4, 4), "slopes": numbers(37, SAMPLES, 2, 4, 4)}

    def energies(self, x):
        p, f = self.parameters, torch.nn.functional
        inside = f.conv2d(f.pad(x, (1, 1, 1, 1), "reflect"), p["in.weight"], p["in.bias"])
        normed = torch.tanh(f.group_norm(inside, 2, p["norm.weight"], p["norm.bias"], 0.1))
        pooled = f.avg_pool2d(normed, 3, 1, 1) + f.max_pool2d(normed, 3, 1, 1)
        spectrum = torch.view_as_real(torch.fft.rfft2(pooled))
        mixed = torch.einsum("nixyc,io->noxyc", spectrum, p["mix"]).contiguous()
        image = torch.fft.irfft2(torch.view_as_complex(mixed), s=(4, 4))
        moved = image.roll(1, 2) * image.flip(3) + image.cumsum(3) * 0.3
        rows = moved.flatten(1)
        return (torch.softmax(rows, -1) * rows).sum(1) + moved.flatten(2).max(2).values.square().sum(1)


def results(model):
    for name in model.parameters:
        model.parameters[name].requires_grad_()
    start = {name: value.detach().clone() for name, value in model.parameters.items()}
    losses, gradients = [], {}
    for step in range(STEPS):
        loss = model.loss()
        losses.append(loss.item())
        found = torch.autograd.grad(loss, list(model.parameters.values()))
        if step == 0:
            gradients = {name: value.flatten().tolist() for name, value in zip(model.parameters, found)}
        with torch.no_grad():
            for value, gradient in zip(model.parameters.values(), found):
                value -= RATE * gradient
    return {
        "parameters": {name: value.flatten().tolist() for name, value in start.items()},
        "fields": {name: value.flatten().tolist() for name, value in model.fields.items()},
        "losses": losses,
        "gradients": gradients,
    }


file = pathlib.Path(__file__).with_name("derivatives.json")
file.write_text(json.dumps({"Burgers": results(Burgers()), "Potential": results(Potential()), "Field": results(Field()), "Spectral": results(Spectral())}, indent=0) + "\n")
