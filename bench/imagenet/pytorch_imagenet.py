# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of the benchmark `imagenet`: torchvision's ImageFolder, transforms and ResNet, as in PyTorch's ImageNet example.

    python pytorch_imagenet.py draw FOLDER CLASSES IMAGES        JPEGs of 500 x 375 pixels, ImageNet's usual size, as a data set
    python pytorch_imagenet.py loader FOLDER WORKERS             images/s of DataLoader alone, the best of three epochs
    python pytorch_imagenet.py train FOLDER MODEL RANKS BATCH STEPS [SIZE]    DistributedDataParallel over Gloo, one thread a rank
    python pytorch_imagenet.py save MODEL CLASSES FILE           random parameters and running statistics, as safetensors
    python pytorch_imagenet.py evaluate FOLDER MODEL FILE        loss, top-1 and top-5 of them, as imagenet --evaluate prints

`evaluate` is the side-by-side check of decoding, transforms and network in float32.
"""

import json
import os
import pathlib
import struct
import sys
import time

import numpy
import torch
import torchvision
from torchvision import transforms

NORMALISE = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def draw(folder, classes, images):
    from PIL import Image

    generator = numpy.random.default_rng(0)
    for number in range(int(classes)):
        place = pathlib.Path(folder) / f"class_{number:04}"
        place.mkdir(parents=True, exist_ok=True)
        for i in range(int(images)):
            coarse = [generator.integers(0, 256, (size, size * 4 // 3, 3)).astype(numpy.uint8) for size in (6, 24, 96)]
            layers = [numpy.asarray(Image.fromarray(part).resize((500, 375), Image.BICUBIC), dtype=numpy.float32) for part in coarse]
            mixed = 0.5 * layers[0] + 0.3 * layers[1] + 0.2 * layers[2]
            Image.fromarray(mixed.clip(0, 255).astype(numpy.uint8)).save(place / f"{i:05}.jpg", quality=90)


def training_set(folder, size=224):
    return torchvision.datasets.ImageFolder(folder, transforms.Compose(
        [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor(), NORMALISE]))


def loader(folder, workers):
    best = 0
    batches = torch.utils.data.DataLoader(training_set(folder), 32, shuffle=True, num_workers=int(workers), drop_last=True,
                                          persistent_workers=True)
    for _ in range(3):
        start, images = time.perf_counter(), 0
        for pictures, _labels in batches:
            images += len(pictures)
        best = max(best, images / (time.perf_counter() - start))
    print(json.dumps({"images_per_s": round(best, 1)}))


def rank(number, folder, model, ranks, batch, steps, size):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29713")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=number, world_size=ranks)
    data = training_set(folder, size)
    sampler = torch.utils.data.distributed.DistributedSampler(data)
    batches = torch.utils.data.DataLoader(data, batch // ranks, sampler=sampler, num_workers=1, drop_last=True, persistent_workers=True)
    network = torchvision.models.get_model(model, num_classes=len(data.classes))
    network = torch.nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
    times, step = [], 0
    while step < steps:
        start = time.perf_counter()
        for pictures, labels in batches:
            loss = torch.nn.functional.cross_entropy(network(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            now = time.perf_counter()
            times.append(now - start)
            start, step = now, step + 1
            if step == steps:
                break
    if number == 0:
        seen = sorted(times[2:])
        print(json.dumps({"images_per_s": round(batch / seen[len(seen) // 2], 2), "best": round(batch / seen[0], 2)}))
    torch.distributed.destroy_process_group()


def train(folder, model, ranks, batch, steps, size=224):
    torch.multiprocessing.spawn(rank, (folder, model, int(ranks), int(batch), int(steps), int(size)), int(ranks))


def save(model, classes, path):
    torch.manual_seed(0)
    network = torchvision.models.get_model(model, num_classes=int(classes))
    for name, buffer in network.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(0, 0.1)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
    header, parts, at = {}, [], 0
    for name, tensor in network.state_dict().items():
        content = tensor.contiguous().numpy().tobytes()
        kind = {torch.float32: "F32", torch.int64: "I64"}[tensor.dtype]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [at, at + len(content)]}
        parts.append(content)
        at += len(content)
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def evaluate(folder, model, path):
    content = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    state = {}
    for name, entry in json.loads(content[8 : 8 + length]).items():
        begin, end = entry["data_offsets"]
        kind = {"F32": numpy.float32, "I64": numpy.int64}[entry["dtype"]]
        state[name] = torch.from_numpy(numpy.frombuffer(content[8 + length + begin : 8 + length + end], kind).copy().reshape(entry["shape"]))
    data = torchvision.datasets.ImageFolder(folder, transforms.Compose(
        [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(), NORMALISE]))
    network = torchvision.models.get_model(model, num_classes=len(data.classes))
    network.load_state_dict(state)
    network.eval()
    loss = first = five = 0
    with torch.no_grad():
        for pictures, labels in torch.utils.data.DataLoader(data, 32):
            scores = network(pictures)
            loss += torch.nn.functional.cross_entropy(scores, labels, reduction="sum").item()
            best = scores.topk(5).indices == labels[:, None]
            first, five = first + best[:, 0].sum().item(), five + best.sum().item()
    count = len(data)
    print(f"validation loss {loss / count:.4f}, top-1 {100 * first / count:.2f} %, top-5 {100 * five / count:.2f} %")


if __name__ == "__main__":
    {"draw": draw, "loader": loader, "train": train, "save": save, "evaluate": evaluate}[sys.argv[1]](*sys.argv[2:])
