# SPDX-License-Identifier: Apache-2.0
"""The classifiers of examples/06_classify beside PyTorch's DistributedDataParallel (compared_models.py), 100 images of 28 x 28 a step.
Started by ./bench/run images."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from compared_models import Comparison, median_ms, median_of

WANTED = 1.2
MODELS = ["cnn", "vit"]


def line(name, values, ratio):
    print(f"{name:16}{values['weft']:9,.0f}{values['PyTorch']:10,.0f}{values['channels last']:16,.0f}{ratio:8.2f}{WANTED:8.1f}")


def main():
    compared = Comparison("images", "image classifiers beside PyTorch over Gloo", HERE / "pytorch_images.py", MODELS, MODELS)
    compared.print_head("Images a second")
    for model, runs in compared.runs.items():
        speed = median_of(runs, lambda run: run["images"] / (median_ms(run) / 1e3))
        spent = median_of(runs, lambda run: 1e3 * run["processor_ms"])
        ratio = speed["weft"] / max(speed["PyTorch"], speed["channels last"])
        ratio_spent = min(spent["PyTorch"], spent["channels last"]) / spent["weft"]
        compared.report["models"][model] = {"images_per_s": speed, "ratio": ratio, "wanted_ratio": WANTED, "processor_us_of_a_step": spent,
                                            "ratio_of_processor_time": ratio_spent, "runs": runs}
        line(model, speed, ratio)
        line("  processor, us", spent, ratio_spent)
    compared.write()


main()
