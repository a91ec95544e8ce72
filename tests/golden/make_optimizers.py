# SPDX-License-Identifier: Apache-2.0
"""Parameters after 100 steps of optimizers in double, for tests/optim/home_rules.cpp: Adafactor as torch.optim has it, SOAP as algorithm 3 of its
paper with the first step of the authors' code, AdamW with moments in blocks of 256 numbers of dynamic quantization (arXiv:2110.02861).

    .deps/torch/bin/python tests/golden/make_optimizers.py
"""
import math

import torch

torch.set_default_dtype(torch.float64)


def adafactor(**options):
    matrix = torch.nn.Parameter(torch.tensor([[math.sin(1.0 + r * 5 + c) for c in range(5)] for r in range(7)]))
    vector = torch.nn.Parameter(torch.tensor([math.cos(1.0 + i) for i in range(11)]))
    optimizer = torch.optim.Adafactor([matrix, vector], **options)
    for s in range(1, 101):
        matrix.grad = torch.tensor([[math.sin(0.7 * (r * 5 + c) + 1.3 * s) * (1 + 0.1 * r) for c in range(5)] for r in range(7)])
        vector.grad = torch.tensor([math.sin(0.7 * i + 1.1 * s) for i in range(11)])
        optimizer.step()
    return matrix.detach().flatten().tolist()[::6], vector.detach().tolist()[::3]


def soap(rate, beta1, beta2, epsilon, shampoo_beta, decay, every):
    rows, columns = 6, 5  # one eigenvalue of L is 0 at first, so its vector is unique up to a sign
    w = torch.tensor([[math.sin(1.0 + r * columns + c) for c in range(columns)] for r in range(rows)])
    m, v = torch.zeros(rows, columns), torch.zeros(rows, columns)
    left, right = torch.zeros(rows, rows), torch.zeros(columns, columns)
    for s in range(1, 101):
        g = torch.tensor([[math.sin(0.37 * (r * columns + c) ** 2 + (1.3 + 0.11 * (r * columns + c)) * s) for c in range(columns)] for r in range(rows)])
        if s > 1:
            t = s - 1
            m = beta1 * m + (1 - beta1) * g
            rotated = q_left.T @ g @ q_right
            v = beta2 * v + (1 - beta2) * rotated ** 2
            step = (q_left.T @ m @ q_right) / (v.sqrt() + epsilon)
            w = w - rate * math.sqrt(1 - beta2 ** t) / (1 - beta1 ** t) * (q_left @ step @ q_right.T)
            w = w - rate * decay * w
        left = shampoo_beta * left + (1 - shampoo_beta) * g @ g.T
        right = shampoo_beta * right + (1 - shampoo_beta) * g.T @ g
        if s == 1:
            q_left, q_right = (torch.linalg.eigh(x)[1].flip(1) for x in (left, right))
        elif t % every == 0:
            order = torch.argsort(torch.diag(q_left.T @ left @ q_left), descending=True)
            v, q_left = v[order], torch.linalg.qr(left @ q_left[:, order])[0]
            order = torch.argsort(torch.diag(q_right.T @ right @ q_right), descending=True)
            v, q_right = v[:, order], torch.linalg.qr(right @ q_right[:, order])[0]
    return w.flatten().tolist()[::4]


def dynamic(signed):
    numbers = [0.0, 1.0]
    for decade in range(7):
        parts = 2 ** decade * (1 if signed else 2)
        for part in range(parts):
            number = 10.0 ** (decade - 6) * (0.1 + 0.9 * (part + 0.5) / parts)
            numbers += [number, -number] if signed else [number]
    return torch.tensor(sorted(numbers))


def rounded(x, numbers, least=0):
    """Each block of 256 in numbers times its largest magnitude; elements that are not 0 have at least the number `least`."""
    out = torch.empty_like(x)
    for block, to in zip(x.split(256), out.split(256)):
        scale = block.abs().max()
        codes = torch.bucketize(block / scale, (numbers[1:] + numbers[:-1]) / 2)
        to.copy_(numbers[torch.where(block != 0, codes.clamp(min=least), codes)] * scale)
    return out


def adamw_8bit(rate, beta1, beta2, epsilon, decay):
    i = torch.arange(600, dtype=torch.float64)
    w, m, v = torch.sin(1.0 + i), torch.zeros(600), torch.zeros(600)
    for s in range(1, 101):
        g = torch.sin(0.37 * i * i + (1.3 + 0.011 * i) * s) / (1 + (i % 7) ** 3)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        w = (1 - rate * decay) * w - rate * (m / (1 - beta1 ** s)) / ((v / (1 - beta2 ** s)).sqrt() + epsilon)
        m, v = rounded(m, dynamic(True)), rounded(v, dynamic(False), least=1)
    return w.tolist()[::71]


def adamw_16bit(rate, beta1, beta2, epsilon, decay):
    """Moments rounded to bfloat16 after each step; the step itself has them before."""
    i = torch.arange(600, dtype=torch.float64)
    w, m, v = torch.sin(1.0 + i), torch.zeros(600), torch.zeros(600)
    for s in range(1, 101):
        g = torch.sin(0.37 * i * i + (1.3 + 0.011 * i) * s) / (1 + (i % 7) ** 3)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        w = (1 - rate * decay) * w - rate * (m / (1 - beta1 ** s)) / ((v / (1 - beta2 ** s)).sqrt() + epsilon)
        m, v = m.to(torch.bfloat16).double(), v.to(torch.bfloat16).double()
    return w.tolist()[::71]


def lbfgs(steps, **options):
    """A chain of Rosenbrock's functions: the parameters after each call of step, every ninth, and the loss before it."""
    x = torch.nn.Parameter(torch.tensor([math.sin(1.0 + i) for i in range(35)] + [math.cos(1.0 + i) for i in range(11)]))
    optimizer = torch.optim.LBFGS([x], **options)

    def closure():
        optimizer.zero_grad()
        loss = (10 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
        loss.backward()
        return loss
    losses = [optimizer.step(closure).item() for _ in range(steps)]
    return losses, x.detach().tolist()[::9]


print("lbfgs", lbfgs(20, lr=0.1, max_iter=1, history_size=5))
print("lbfgs", lbfgs(2, lr=0.05, max_iter=10, history_size=3))
print("lbfgs", lbfgs(2, lr=1, max_iter=10, max_eval=40, history_size=5, line_search_fn="strong_wolfe"))
print("lbfgs", lbfgs(1, lr=30, max_iter=20, max_eval=100, line_search_fn="strong_wolfe"))
print("adafactor", adafactor(lr=0.02, weight_decay=0.1))
print("adafactor", adafactor(lr=0.5, d=1.5, beta2_decay=-0.7, eps=(1e-3, 0.1)))
print("soap", soap(0.01, 0.95, 0.9, 1e-8, 0.93, 0.1, 10))
print("adamw_8bit", adamw_8bit(0.01, 0.9, 0.99, 1e-6, 0.1))
print("adamw_16bit", adamw_16bit(0.01, 0.9, 0.95, 1e-6, 0.1))
print("soap", soap(0.02, 0.9, 0.95, 1e-6, 0.95, 0.0, 3))
