# SPDX-License-Identifier: Apache-2.0
"""The models of examples/fields in PyTorch: imported by make_fields.py, which writes their losses, and by bench/fields, which times them.

    shapes, loss = unet(Samples(0, 8), dims=2)     # the shapes of the parameters, by weft's names
    p = parameters(shapes)
    loss(p).backward()

Parameters and samples are a formula of their place, in PyTorch's default type.
"""

import numpy
import torch
import torch.nn.functional as F


def numbers(key, *shape):
    """Multiples of 2^-20 in [-1, 1): a hash of the key and the place."""
    mixed = (numpy.arange(int(numpy.prod(shape)), dtype=numpy.uint64) * 2654435761 + numpy.uint64(key) * 40503 * 65537) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 3266489917) & 0xFFFFFFFF
    return torch.from_numpy(((mixed >> 11).astype(numpy.float64) - 2**20) / 2**20).reshape(shape).to(torch.get_default_dtype())


class Samples:
    """`count` samples from `first` on, such as those of a rank. Losses are means over them."""

    def __init__(self, first, count):
        self.first, self.count = first, count

    def __call__(self, key, *shape):
        return numbers(key, self.first + self.count, *shape)[self.first:].contiguous()


def parameters(shapes):
    def value(key, name, shape):
        plain = numbers(key, *shape)
        if len(shape) > 1:
            return plain * (3 * shape[0] / plain.numel()) ** 0.5
        return 1 + plain / 4 if name.endswith("weight") else plain / 4

    return {name: value(key, name, shapes[name]).requires_grad_() for key, name in enumerate(sorted(shapes))}


def slope(y, x):
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def unet(samples, dims, channels=8, side=8, groups=4):
    now, later = samples(1000, 1 + dims, *[side] * dims), samples(1001, 1, *[side] * dims)
    kernel = (3,) * dims
    blocks = {"first": (1 + dims, channels), "down1": (channels, 2 * channels), "down2": (2 * channels, 4 * channels),
              "up2": (6 * channels, 2 * channels), "up1": (3 * channels, channels)}
    shapes = {"last.out.weight": (1, channels) + (1,) * dims, "last.out.bias": (1,)}
    for name, (inputs, outputs) in blocks.items():
        shapes |= {f"{name}.conv1.weight": (outputs, inputs) + kernel, f"{name}.conv2.weight": (outputs, outputs) + kernel}
        shapes |= {f"{name}.norm{i}.{part}": (outputs,) for i in (1, 2) for part in ("weight", "bias")}
    conv, pool = [(F.conv2d, F.avg_pool2d), (F.conv3d, F.avg_pool3d)][dims - 2]

    def loss(p):
        def block(name, x):
            for i in (1, 2):
                x = conv(F.pad(x, (1, 1) * dims, mode="circular"), p[f"{name}.conv{i}.weight"])
                x = F.silu(F.group_norm(x, groups, p[f"{name}.norm{i}.weight"], p[f"{name}.norm{i}.bias"]))
            return x

        first = block("first", now)
        down1 = block("down1", pool(first, 2))
        x = block("down2", pool(down1, 2))
        x = block("up2", torch.cat([F.interpolate(x, scale_factor=2), down1], 1))
        x = block("up1", torch.cat([F.interpolate(x, scale_factor=2), first], 1))
        return F.mse_loss(conv(x, p["last.out.weight"], p["last.out.bias"]), later)

    return shapes, loss


def pinn(samples, width=8, viscosity=0.05, border_weight=4):
    inside, border, given = samples(1000, 2), samples(1001, 2), samples(1002, 1)
    layers = {"first.up": (width, 2), "first.down": (width, width), "second.up": (width, width), "second.down": (width, width), "last": (1, width)}
    shapes = {f"{name}.{part}": shape if part == "weight" else shape[:1] for name, shape in layers.items() for part in ("weight", "bias")}

    def loss(p):
        linear = lambda name, x: F.linear(x, p[name + ".weight"], p[name + ".bias"])

        def u(x):
            for name in ("first.up", "first.down", "second.up", "second.down"):
                x = torch.tanh(linear(name, x))
            return linear("last", x)

        x = inside.clone().requires_grad_()
        slopes = slope(u(x), x)
        second = slope(slopes[:, :1], x)
        residual = slopes[:, 1:] + u(x) * slopes[:, :1] - viscosity * second[:, :1]
        return residual.square().sum() / samples.count + border_weight * F.mse_loss(u(border), given)

    return shapes, loss


def fno(samples, width=8, modes=2, layers=3, side=8):
    now, later = samples(1000, 3, side, side), samples(1001, 1, side, side)
    shapes = {f"layers.{i}.spectral.{end}.{part}": (width, width, modes, modes)
              for i in range(layers) for end in ("ahead", "back") for part in ("real", "imaginary")}
    points = {"first.lift": (3, width), "last.inside": (width, 2 * width), "last.out": (2 * width, 1)}
    points |= {f"layers.{i}.point": (width, width) for i in range(layers)}
    for name, (inputs, outputs) in points.items():
        shapes |= {f"{name}.weight": (outputs, inputs, 1, 1), f"{name}.bias": (outputs,)}

    def loss(p):
        point = lambda name, x: F.conv2d(x, p[name + ".weight"], p[name + ".bias"])
        gelu = lambda x: F.gelu(x, approximate="tanh")

        def spectral(name, x):
            z = torch.fft.rfft2(x)
            out = torch.zeros(samples.count, width, side, side // 2 + 1, dtype=z.dtype)
            for end, rows in (("ahead", slice(0, modes)), ("back", slice(side - modes, side))):
                weights = torch.complex(p[f"{name}.{end}.real"], p[f"{name}.{end}.imaginary"])
                out[:, :, rows, :modes] = torch.einsum("nixy,ioxy->noxy", z[:, :, rows, :modes], weights)
            return torch.fft.irfft(torch.fft.ifft(out, dim=2), n=side, dim=3)

        x = point("first.lift", now)
        for i in range(layers):
            x = gelu(spectral(f"layers.{i}.spectral", x) + point(f"layers.{i}.point", x))
        return F.mse_loss(point("last.out", gelu(point("last.inside", x))), later)

    return shapes, loss


def mlp(name, inputs, width):
    return {f"{name}.up.weight": (width, inputs), f"{name}.up.bias": (width,), f"{name}.down.weight": (width, width),
            f"{name}.down.bias": (width,), f"{name}.norm.weight": (width,), f"{name}.norm.bias": (width,)}


def mesh(samples, width=8, layers=2, nodes=5, neighbours=2):
    value, later = samples(1000, nodes, 1).reshape(-1, 1), samples(1001, nodes, 1).reshape(-1, 1)
    pairs = [(a, (a + far) % nodes) for a in range(nodes) for far in range(1, neighbours + 1)]
    edge = samples(1002, len(pairs), 3).reshape(-1, 3)
    sender, receiver = (torch.tensor([s * nodes + pair[end] for s in range(samples.count) for pair in pairs]) for end in (0, 1))
    shapes = {"decode.weight": (1, width), "decode.bias": (1,)} | mlp("encode_nodes", 1, width) | mlp("encode_edges", 3, width)
    for i in range(layers):
        shapes |= mlp(f"layers.{i}.edges", 3 * width, width) | mlp(f"layers.{i}.nodes", 2 * width, width)

    def loss(p):
        linear = lambda name, x: F.linear(x, p[name + ".weight"], p[name + ".bias"])

        def perceptron(name, x):
            x = linear(name + ".down", F.silu(linear(name + ".up", x)))
            return F.layer_norm(x, (width,), p[name + ".norm.weight"], p[name + ".norm.bias"])

        n, e = perceptron("encode_nodes", value), perceptron("encode_edges", edge)
        for i in range(layers):
            e = e + perceptron(f"layers.{i}.edges", torch.cat([e, n[sender], n[receiver]], 1))
            n = n + perceptron(f"layers.{i}.nodes", torch.cat([n, torch.zeros_like(n).index_add(0, receiver, e)], 1))
        return F.mse_loss(value + linear("decode", n), later)

    return shapes, loss


def potential(samples, width=8, atoms=4, energy_weight=0.1):
    position, force = 2 * samples(1000, atoms, 3).reshape(-1, 3), samples(1001, atoms, 3).reshape(-1, 3)
    energy = samples(1002)
    pairs = [(a, b) for a in range(atoms) for b in range(atoms) if a != b]
    of, beside = (torch.tensor([s * atoms + pair[end] for s in range(samples.count) for pair in pairs]) for end in (0, 1))
    layers = {"near": (width, 1), "close": (width, 1), "dense": (width, width), "last": (1, width)}
    shapes = {f"{name}.{part}": shape if part == "weight" else shape[:1] for name, shape in layers.items() for part in ("weight", "bias")}

    def loss(p):
        linear = lambda name, x: F.linear(x, p[name + ".weight"], p[name + ".bias"])
        x = position.clone().requires_grad_()
        distance = (x[of] - x[beside]).square().sum(1, keepdim=True).add(1e-4).sqrt()
        pair = torch.tanh(linear("near", distance)) * torch.exp(-F.softplus(linear("close", distance)))
        density = torch.zeros(samples.count * atoms, width).index_add(0, of, pair)
        energies = linear("last", F.silu(linear("dense", density)))
        wrong = energies.reshape(samples.count, atoms).sum(1) - energy
        pulled = -slope(energies, x) - force
        return (energy_weight * wrong.square().sum() + pulled.square().sum()) / samples.count

    return shapes, loss



def diffusion(samples, width=8, blocks=2, side=6, features=16, groups=4, noise_of=torch.randn):
    picture, moment = samples(1000, 1, side, side), samples(1003, features)
    signal, spread = samples(1001, 1, 1, 1), samples(1002, 1, 1, 1)
    kernel = (width, width, 3, 3)
    shapes = {"first.lift.weight": (width, 1, 3, 3), "first.lift.bias": (width,), "last.out.weight": (1, width, 3, 3), "last.out.bias": (1,)}
    norms = ["last.norm"]
    for i in range(blocks):
        shapes |= {f"blocks.{i}.up.weight": kernel, f"blocks.{i}.down.weight": kernel, f"blocks.{i}.shift.weight": (width, features), f"blocks.{i}.shift.bias": (width,)}
        norms += [f"blocks.{i}.norm", f"blocks.{i}.inside_norm"]
    shapes |= {f"{norm}.{part}": (width,) for norm in norms for part in ("weight", "bias")}
    def loss(p):
        noise = noise_of(samples.count, 1, side, side)
        normed = lambda name, x: F.group_norm(x, groups, p[name + ".weight"], p[name + ".bias"])
        x = F.conv2d(picture * signal + noise * spread, p["first.lift.weight"], p["first.lift.bias"], padding=1)
        for i in range(blocks):
            name, wide = f"blocks.{i}", 1 + i % 2
            shift = F.linear(moment, p[name + ".shift.weight"], p[name + ".shift.bias"])[:, :, None, None]
            inside = F.conv2d(F.silu(normed(name + ".norm", x)), p[name + ".up.weight"], padding=wide, dilation=wide) + shift
            x = x + F.conv2d(F.silu(normed(name + ".inside_norm", inside)), p[name + ".down.weight"], padding=wide, dilation=wide)
        return F.mse_loss(F.conv2d(F.silu(normed("last.norm", x)), p["last.out.weight"], p["last.out.bias"], padding=1), noise)

    return shapes, loss
