# SPDX-License-Identifier: Apache-2.0
"""The models of examples/fields beside PyTorch's DistributedDataParallel (compared_models.py). Started by ./bench/run fields."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from compared_models import Comparison, median_ms, median_of

WANTED = 1.2
MODELS = ["unet2", "unet3", "fno", "mesh", "potential", "pinn", "diffusion"]
LAST = {"unet2", "diffusion"}  # models that PyTorch may run in channels-last order


def line(name, values):
    ratio = min(value for kind, value in values.items() if kind != "weft") / values["weft"]
    last = f"{values['channels last']:16.2f}" if "channels last" in values else f"{'-':>16}"
    print(f"{name:16}{values['weft']:9.2f}{values['PyTorch']:10.2f}{last}{ratio:8.2f}{WANTED:8.1f}")
    return ratio


def main():
    compared = Comparison("fields", "models of fields beside PyTorch over Gloo", HERE / "pytorch_fields.py", MODELS, LAST)
    compared.print_head("Milliseconds of a step")
    for model, runs in compared.runs.items():
        step, spent = median_of(runs, median_ms), median_of(runs, lambda run: run["processor_ms"])
        compared.report["models"][model] = {"ms": step, "ratio": line(model, step), "wanted_ratio": WANTED, "processor_ms": spent,
                                            "ratio_of_processor_time": line("  processor", spent), "runs": runs}
    compared.write()


main()
