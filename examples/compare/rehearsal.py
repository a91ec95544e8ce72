# SPDX-License-Identifier: Apache-2.0
"""A rehearsal of all stages with an estimate, as WEFT_REHEARSE_JSON writes it, in the parts that measured.py has."""
import collections
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "report"))
from read import ReportError, json_of, number

AGAIN = "write it anew: WEFT_REHEARSE=RANKS WEFT_MACHINE=this WEFT_REHEARSE_JSON=FILE ./program, with the options of the run"


class Rehearsal:
    """ranks, seconds of a step, machine. Each stage has ms[stage][part], bubble[stage] (ms), kernels[stage][kind], and
    calls[stage][axis, operation] and sent[stage][axis, operation], in bytes, and units[stage], the names of its units. distance: between ranks of neighbouring stages."""

    def __init__(self):
        self.ms, self.bubble, self.kernels, self.calls, self.sent, self.units, self.distance = [], [], [], [], [], [], None

    def stage_of(self, rank):
        return rank // self.distance % len(self.ms)

    def add(self, parts, kinds, notes):
        """A stage: its parts and kinds of other kernels in the estimate, in seconds, and the notes of its first rank."""
        last = notes["last_step"]
        ms = collections.Counter({name: 1000 * float(seconds) for name, seconds in parts.items() if name not in ("other kernels", "bubble")})
        for name, seconds in kinds.items():
            ms["copies and fences" if name == "host copies" else name] += 1000 * float(seconds)
        self.ms.append({name: value for name, value in ms.items() if value > 0})
        self.bubble.append(1000 * float(parts.get("bubble", 0)))
        self.kernels.append({one["kind"]: one["launches"] for one in last["kernels"]})
        self.calls.append({(one["axis"], one["operation"]): one["calls"] for one in last["messages"]})
        self.sent.append({(one["axis"], one["operation"]): one["bytes"] for one in last["messages"]})
        self.units.append(set(notes["units"]))


def first_of_stages(ranks):
    """The first rehearsed rank of each stage, to which the estimate belongs."""
    first = []
    for one in ranks:
        if not first or first[-1]["stage"] != one["stage"]:
            first.append(one)
    return first


def read_rehearsal(path):
    content = json_of(path, ("stages", list), AGAIN)
    estimate = content.get("estimate")
    if not isinstance(estimate, dict):
        raise ReportError(f"{path}: it has no estimate of a step's time: {AGAIN}")
    out = Rehearsal()
    try:
        out.ranks, out.seconds, out.machine = int(estimate["ranks"]), float(estimate["seconds"]), str(estimate["machine"])
        first = first_of_stages(content["stages"])
        for parts, kinds, stage in zip(estimate["stages"], estimate["kernels"], first, strict=True):
            out.add(parts, kinds, stage)
        out.distance = first[1]["rank"] - first[0]["rank"] if len(first) > 1 else 1
        if out.ranks < 1 or not out.ms or out.distance < 1 or number(out.seconds) is None or out.seconds <= 0:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise ReportError(f"{path}: it is no rehearsal of all stages of this version: {AGAIN}") from None
    return out
