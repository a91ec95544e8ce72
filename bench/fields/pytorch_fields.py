# SPDX-License-Identifier: Apache-2.0
"""The models of examples/fields in PyTorch over Gloo (tests/golden/fields_models.py), as DistributedDataParallel trains them. Started by
compare.py, one process a rank. The models are functions, which are faster than modules.
"""

import pathlib
import sys

import torch.nn as nn

BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH.parent / "tests" / "golden")]
import fields_models as models
import torch_steps

# The sizes of the examples: samples of a step over both ranks, and the model of some samples.
KINDS = {
    "unet2": (16, lambda samples: models.unet(samples, 2, channels=16, side=32)),
    "unet3": (16, lambda samples: models.unet(samples, 3, channels=16, side=16)),
    "fno": (16, lambda samples: models.fno(samples, width=16, modes=6, layers=3, side=32)),
    "mesh": (8, lambda samples: models.mesh(samples, width=32, layers=4, nodes=96, neighbours=6)),
    "potential": (32, lambda samples: models.potential(samples, width=32, atoms=6)),
    "pinn": (128, lambda samples: models.pinn(samples, width=32)),
    "diffusion": (32, lambda samples: models.diffusion(samples, width=24, blocks=4, side=12)),
}


class Model(nn.Module):
    def __init__(self, shapes, loss, layout):
        super().__init__()
        self.names = sorted(shapes)
        place = lambda value: value.to(memory_format=layout) if value.dim() == 4 else value
        self.values = nn.ParameterList(place(value.detach()) for value in models.parameters(shapes).values())
        self.loss = loss

    def forward(self):
        return self.loss(dict(zip(self.names, self.values)))


def make(name, rank, ranks, layout):
    count, model = KINDS[name]
    module = Model(*model(models.Samples(rank * count // ranks, count // ranks)), layout)
    return torch_steps.Job(module, [{"params": module.parameters(), "weight_decay": 0.0}], lambda model, batch: model(), {"samples": count})


torch_steps.main(KINDS, make)
