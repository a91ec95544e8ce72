# SPDX-License-Identifier: Apache-2.0
"""The samples that bench_hdf5_read reads, by h5py into the memory of a batch; the same arguments and output."""
import json
import sys
import time

import h5py
import numpy

path, name, part, parts, order, rounds = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7])
BATCH = 16
with h5py.File(path) as file:
    data = file[name]
    count = len(data) // parts
    first = part * count
    batch = numpy.empty((BATCH, *data.shape[1:]), numpy.float32)
    seconds = []
    for _ in range(rounds):
        total = 0.0
        begin = time.perf_counter()
        if order == 0:  # whole batches, which h5py reads faster than samples
            for i in range(0, count, BATCH):
                rows = min(BATCH, count - i)
                data.read_direct(batch, numpy.s_[first + i:first + i + rows], numpy.s_[:rows])
                total += float(batch[:rows].reshape(rows, -1)[:, 0].sum(dtype=numpy.float64))
        else:
            for i in range(count):
                data.read_direct(batch, numpy.s_[first + i * 389 % count], numpy.s_[i % BATCH])
                total += float(batch[i % BATCH].flat[0])
        seconds.append(time.perf_counter() - begin)
print(json.dumps({"seconds": seconds, "sum": total}))
