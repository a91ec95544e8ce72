#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the pictures that examples/08_imagenet decodes and transforms in the tests, and Pillow's results.

    python make_pictures.py         # needs numpy, Pillow and torchvision; the files were made with Pillow 13.0 and torchvision 0.26

Beside each `name.jpg` or `name.png` lies `name.ppm`, the pixels of Image.open(...).convert("RGB"). `transforms.ppm` holds the
results of transforms of `colours.png`, one below the other, 24 x 24 pixels each, in the order of the list below.
"""

import io
import pathlib

import numpy
import torchvision.transforms.functional as functional
from PIL import Image

FOLDER = pathlib.Path(__file__).resolve().parent
generator = numpy.random.default_rng(7)


def picture(height, width):
    y, x = numpy.mgrid[0:height, 0:width]
    waves = [128 + 110 * numpy.sin(x / (5 + k) + k) * numpy.cos(y / (6 - k) + 0.5 * k) for k in range(3)]
    noisy = numpy.stack(waves, -1) + generator.normal(0, 12, (height, width, 3))
    return Image.fromarray(numpy.clip(noisy, 0, 255).astype(numpy.uint8))


def write_ppm(path, image):
    path.write_bytes(b"P6\n%d %d\n255\n" % image.size + image.tobytes())


colours, wide = picture(50, 37), picture(29, 64)
alpha = colours.copy()
alpha.putalpha(Image.fromarray(generator.integers(0, 256, (50, 37), dtype=numpy.uint8)))
made = {
    "colours.png": (colours, {}),
    "alpha.png": (alpha, {}),
    "palette.png": (colours.quantize(11), {}),
    "palette_transparent.png": (colours.quantize(11), {"transparency": 3}),
    "grey.png": (colours.convert("L"), {}),
    "grey_alpha.png": (alpha.convert("LA"), {}),
    "two.png": (colours.convert("1"), {}),
    "full.jpg": (colours, {"quality": 90, "subsampling": 0}),
    "half.jpg": (wide, {"quality": 85, "subsampling": 1}),
    "quarter.jpg": (wide, {"quality": 80, "subsampling": 2}),
    "progressive.jpg": (colours, {"quality": 85, "progressive": True}),
    "grey.jpg": (colours.convert("L"), {"quality": 85}),
    "cmyk.jpg": (colours.convert("CMYK"), {"quality": 90}),
    "one.jpg": (colours.crop((0, 0, 1, 1)), {}),
}
for name, (image, options) in made.items():
    image.save(FOLDER / name, **options)
    write_ppm(FOLDER / (name + ".ppm"), Image.open(FOLDER / name).convert("RGB"))

bilinear = functional.InterpolationMode.BILINEAR
small = functional.resize(colours, [24, 24], bilinear)
transforms = [
    functional.resized_crop(colours, 3, 5, 40, 30, [24, 24], bilinear),  # smaller: antialiased
    functional.resized_crop(colours, 30, 20, 9, 11, [24, 24], bilinear),  # larger
    functional.center_crop(functional.resize(colours, 27, bilinear), 24),  # evaluation: --resize 27 --size 24
    functional.center_crop(functional.resize(wide, 27, bilinear), 24),  # of half.jpg's source
    functional.adjust_brightness(small, 1.3),
    functional.adjust_contrast(small, 0.6),
    functional.adjust_contrast(small, 1.7),
    functional.adjust_saturation(small, 0.2),
    functional.adjust_saturation(small, 1.8),
    functional.adjust_hue(small, 0.3),
    functional.adjust_hue(small, -0.2),
    functional.hflip(small),
    small,
]
wide.save(FOLDER / "wide.png")
write_ppm(FOLDER / "transforms.ppm", Image.fromarray(numpy.concatenate([numpy.asarray(image) for image in transforms])))
