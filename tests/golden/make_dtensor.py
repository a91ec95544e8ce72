# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/dtensor.txt from PyTorch 2.11: for the operations of tests/dtensor/operations_support.hpp, values and gradients
in float64, and for random layouts of 2 and of 2 x 2 ranks, the placements of the result of torch.distributed.tensor's operation and the
bytes that a rank receives in its redistributions, by the formulas of dtensor::moved_bytes. tests/golden/dtensor.cpp compares.

    .deps/torch/bin/python tests/golden/make_dtensor.py
"""
import math
import os
import pathlib
import random
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor import _dispatch, _redistribute

FILE = pathlib.Path(__file__).with_name("dtensor.txt")
MASK = (1 << 64) - 1


def key_of(*numbers):
    """weft::key_of."""
    key = 0
    for number in numbers:
        x = (key ^ number) + 0x9E3779B97F4A7C15 & MASK
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
        x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
        key = x ^ x >> 31
    return key


def values(number, shape):
    n = math.prod(shape)
    return torch.tensor([(key_of(number, i) % 129 - 64) / 64 for i in range(n)], dtype=torch.float64).reshape(shape)


two = {
    "add": ((5, 3), (5, 3), lambda x, y: x + y),
    "add row": ((5, 3), (3,), lambda x, y: x + y),
    "add column": ((5, 1), (1, 3), lambda x, y: x + y),
    "subtract": ((3, 2, 5), (2, 1), lambda x, y: x - y),
    "multiply": ((5, 3), (5, 3), lambda x, y: x * y),
    "multiply row": ((5, 3), (3,), lambda x, y: x * y),
    "multiply number": ((), (5, 3), lambda x, y: x * y),
    "divide": ((5, 3), (5, 1), lambda x, y: x / (y * y + 1)),
    "maximum": ((5, 3), (5, 3), torch.maximum),
    "minimum": ((5, 3), (3,), torch.minimum),
    "greater": ((5, 3), (5, 3), lambda x, y: torch.where(x > y, x, y * 2.0)),
    "matmul": ((5, 3), (3, 7), torch.matmul),
    "matmul even": ((4, 8), (8, 4), torch.matmul),
    "matmul of rows": ((3, 5, 3), (3, 2), torch.matmul),
    "batched matmul": ((3, 5, 2), (3, 2, 3), torch.bmm),
    "batched matmul 4": ((2, 3, 2, 5), (2, 3, 5, 3), torch.matmul),
    "concat": ((5, 3), (2, 3), lambda x, y: torch.cat([x, y], 0)),
    "concat columns": ((5, 3), (5, 4), lambda x, y: torch.cat([x, y], 1)),
}
one = {
    "neg": ((5, 3), lambda x: -x),
    "exp": ((5, 3), torch.exp),
    "log": ((5, 3), lambda x: torch.log(x * x + 0.5)),
    "tanh": ((7,), torch.tanh),
    "sigmoid": ((5, 3), torch.sigmoid),
    "sqrt": ((5, 3), lambda x: torch.sqrt(x * x + 0.25)),
    "relu": ((5, 3), torch.relu),
    "gelu": ((3, 2, 5), F.gelu),
    "silu": ((5, 3), F.silu),
    "pow": ((5, 3), lambda x: torch.pow(x, 3)),
    "scale": ((5, 3), lambda x: 2.5 * x / 4),
    "shift": ((5, 3), lambda x: 1.5 - (x + 2 - 0.25)),
    "reciprocal": ((5, 3), lambda x: 2 / (x * x + 1)),
    "cast": ((5, 3), lambda x: (x.float() * 2.0).double()),
    "expand": ((5, 1), lambda x: x.expand(2, 5, 3)),
    "sum": ((5, 3), torch.sum),
    "sum rows": ((5, 3), lambda x: x.sum(0)),
    "sum two dims": ((3, 2, 5), lambda x: x.sum((0, -1), keepdim=True)),
    "mean": ((5, 3), torch.mean),
    "mean columns": ((5, 3), lambda x: x.mean(1, keepdim=True)),
    "max": ((5, 3), lambda x: x.amax((0, 1))),
    "max rows": ((5, 3), lambda x: x.amax(0)),
    "min columns": ((3, 2, 5), lambda x: x.amin(-1, keepdim=True)),
    "softmax": ((5, 3), lambda x: x.softmax(-1)),
    "softmax rows": ((5, 3), lambda x: x.softmax(0)),
    "log_softmax": ((3, 5, 2), lambda x: x.log_softmax(1)),
    "norm": ((5, 3), lambda x: torch.linalg.vector_norm(x)),
    "norm rows": ((5, 3), lambda x: torch.linalg.vector_norm(x, dim=1)),
    "transpose": ((5, 3), lambda x: x.transpose(0, 1)),
    "permute": ((3, 2, 5), lambda x: x.permute(2, 0, 1)),
    "reshape": ((5, 3), lambda x: x.reshape(15)),
    "reshape even": ((4, 2, 4), lambda x: x.reshape(8, 2, 2)),
    "reshape apart": ((15, 2), lambda x: x.reshape(5, 3, 2)),
    "reshape ones": ((5, 3), lambda x: x.reshape(1, 5, 1, 3)),
    "slice": ((5, 3), lambda x: x[1:4]),
    "slice columns": ((5, 3), lambda x: x[:, 0:2]),
}
# The order of operation_cases: the seed of a case's values is its place.
ORDER = """neg exp log tanh sigmoid sqrt relu gelu silu pow scale shift reciprocal add|add row|add column|subtract multiply|multiply row|multiply number|divide maximum minimum where greater cast expand
matmul|matmul even|matmul of rows|batched matmul|batched matmul 4|sum|sum rows|sum two dims|mean|mean columns|max|max rows|min columns|softmax|softmax rows|log_softmax|norm|norm rows|transpose permute
reshape|reshape even|reshape apart|reshape ones|slice|slice columns|concat|concat columns|index_select embedding cross_entropy"""


def names():
    known = [*one, *two, "where", "index_select", "embedding", "cross_entropy"]
    text = ORDER.replace("\n", " ").replace("|", " ")
    found, at = [], 0
    words = text.split()
    while at < len(words):
        for length in (4, 3, 2, 1):
            name = " ".join(words[at : at + length])
            if name in known and name not in found:
                found.append(name)
                at += length
                break
        else:
            raise ValueError(words[at:])
    assert sorted(found) == sorted(known), set(known) ^ set(found)
    return found


def case(name):
    """Shapes of the operands, of ids, and the function of (operands, ids, condition)."""
    if name in one:
        return [one[name][0]], (7,), lambda x, ids, c: one[name][1](x[0])
    if name in two:
        return list(two[name][:2]), (7,), lambda x, ids, c: two[name][2](x[0], x[1])
    if name == "where":
        return [(5, 3), (3,)], (5, 3), lambda x, ids, c: torch.where(c, x[0], x[1])
    if name == "index_select":
        return [(5, 3)], (7,), lambda x, ids, c: torch.index_select(x[0], 0, ids)
    if name == "embedding":
        return [(5, 6)], (2, 3), lambda x, ids, c: F.embedding(ids, x[0])
    return [(7, 5)], (7,), lambda x, ids, c: F.cross_entropy(x[0], ids)


def operands(number, name):
    shapes, of_ids, call = case(name)
    n = math.prod(of_ids)
    ids = torch.tensor([key_of(number, 7, i) % 5 for i in range(n)]).reshape(of_ids)
    condition = torch.tensor([key_of(number, 9, i) % 2 for i in range(n)], dtype=torch.bool).reshape(of_ids)
    return [values(key_of(number, k), shape) for k, shape in enumerate(shapes)], ids, condition, call


def placement(random_numbers, rank, terms):
    choice = random_numbers.randrange(5)
    if choice == 0 or (rank == 0 and choice > 1) or (choice == 1 and not terms):
        return Replicate()
    return Partial() if choice == 1 else Shard(random_numbers.randrange(rank))


def text_of(placements):
    def letter(p):
        if isinstance(p, Shard):
            return f"S{p.dim}"
        if isinstance(p, Replicate):
            return "R"
        return {"sum": "P", "avg": "A", "max": "M", "min": "N"}.get(getattr(p, "reduce_op", "sum"), "?")

    return ",".join(letter(p) for p in placements)


moved = [0.0]
plain_redistribute = _dispatch.redistribute_local_tensor


def counted(local, current, target, **options):
    itemsize = local.element_size()
    for info in _redistribute._gen_transform_infos(current, target):
        before, after = info.src_dst_placements
        n = current.mesh.size(info.mesh_dim)
        whole = math.prod(info.logical_shape) * itemsize
        if before == after:
            continue
        share = (n - 1) / n
        if before.is_shard() and after.is_replicate():
            moved[0] += share * whole
        elif before.is_shard() and after.is_shard():
            extents = list(info.logical_shape)
            parts = []
            for dim in (before.dim, after.dim):
                own = list(extents)
                own[dim] = -(-own[dim] // n)
                parts.append(math.prod(own) * itemsize)
            moved[0] += share * max(parts)
        elif before.is_partial() and after.is_shard():
            own = list(info.logical_shape)
            own[after.dim] = -(-own[after.dim] // n)
            moved[0] += (n - 1) * math.prod(own) * itemsize
        elif before.is_partial():
            moved[0] += 2 * share * whole
    return plain_redistribute(local, current, target, **options)


def distributed(mesh, whole, placements):
    """Terms are the value on the first rank, and zeros."""
    local = whole
    if any(p.is_partial() for p in placements):
        keep = all(mesh.get_local_rank(d) == 0 for d, p in enumerate(placements) if p.is_partial())
        local = whole if keep else torch.zeros_like(whole)
    start = DTensor.from_local(local, mesh, [p if p.is_partial() else Replicate() for p in placements], run_check=False)
    return start.redistribute(mesh, placements)


def layouts(world):
    axes = 1 if world == 2 else 2
    numbers = random.Random(world)
    for number, name in enumerate(names()):
        shapes, of_ids, _ = case(name)
        for _ in range(5):
            all_of = [[placement(numbers, len(shape), True) for _ in range(axes)] for shape in shapes]
            all_of.append([placement(numbers, len(of_ids), False) for _ in range(axes)])
            if name in ("index_select", "embedding", "cross_entropy", "where") and numbers.randrange(2):
                all_of[-1] = [Replicate() for _ in range(axes)]
            yield number, name, all_of


def worker(rank, world, path, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (2,) if world == 2 else (2, 2))
    _dispatch.redistribute_local_tensor = counted
    lines, wrong = [], []
    for number, name, all_of in layouts(world):
        x, ids, condition, call = operands(number, name)
        expected = call(x, ids, condition)
        placed = [distributed(mesh, one_of, p) for one_of, p in zip(x, all_of)]
        moved[0] = 0.0
        try:
            y = call(placed, distributed(mesh, ids, all_of[-1]), distributed(mesh, condition, all_of[-1]))
            bytes_moved, result = moved[0], text_of(y.placements)
            if not torch.allclose(y.full_tensor(), expected, rtol=1e-12, atol=1e-12):
                wrong.append((name, [text_of(p) for p in all_of]))
                result = "-"
        except Exception as error:  # PyTorch has no strategy for it, or refuses uneven shards
            bytes_moved, result = 0.0, "-"
            if rank == 0:
                print(name, [text_of(p) for p in all_of], str(error).split("\n")[0][:100], file=sys.stderr)
        lines.append(f"layout|{name}|{world}|{' '.join(text_of(p) for p in all_of)}|{result}|{bytes_moved:g}")
    if rank == 0:
        print(world, "ranks: PyTorch itself is wrong for", wrong, file=sys.stderr)
        pathlib.Path(out).write_text("\n".join(lines) + "\n")
    dist.barrier()
    dist.destroy_process_group()


def main():
    lines = []
    for number, name in enumerate(names()):
        x, ids, condition, call = operands(number, name)
        for one_of in x:
            one_of.requires_grad_()
        y = call(x, ids, condition)
        y.backward(values(number + 1000, tuple(y.shape)))
        for result in (y.detach(), *(one_of.grad for one_of in x)):
            lines.append(f"value|{name}|" + " ".join(f"{v:.17g}" for v in result.flatten().tolist()))
    text = "\n".join(lines) + "\n"
    for world in (2, 4):
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(worker, (world, f"{folder}/store", f"{folder}/out"), world)
            text += pathlib.Path(f"{folder}/out").read_text()
    FILE.write_text(text)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
