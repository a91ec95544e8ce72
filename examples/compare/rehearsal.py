# SPDX-License-Identifier: Apache-2.0
"""A rehearsal of all stages with an estimate, as WEFT_REHEARSE_JSON writes it, in the parts that measured.py has."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "report"))
from read import ReportError, json_of, number

AGAIN = "write it anew: WEFT_REHEARSE=RANKS WEFT_MACHINE=this WEFT_REHEARSE_JSON=FILE ./program, with the options of the run"


class Rehearsal:
    """ranks, seconds of a step, machine. Of each stage: ms[stage][part], bubble[stage] (ms), kernels[stage][kind], calls[stage][axis, operation]."""


def read_rehearsal(path):
    content = json_of(path, ("stages", list), AGAIN)
    estimate = content.get("estimate")
    if not isinstance(estimate, dict):
        raise ReportError(f"{path}: it has no estimate of a step's time: {AGAIN}")
    out = Rehearsal()
    try:
        out.ranks, out.seconds, out.machine = int(estimate["ranks"]), float(estimate["seconds"]), str(estimate["machine"])
        out.ms, out.bubble, out.kernels, out.calls = [], [], [], []
        for parts, kinds, stage in zip(estimate["stages"], estimate["kernels"], content["stages"], strict=True):
            ms = {name: 1000 * float(seconds) for name, seconds in parts.items() if name not in ("other kernels", "bubble")}
            ms |= {name: 1000 * float(seconds) for name, seconds in kinds.items() if name != "host copies"}
            out.ms.append({name: value for name, value in ms.items() if value > 0})
            out.bubble.append(1000 * float(parts.get("bubble", 0)))
            last = stage["last_step"]
            out.kernels.append({one["kind"]: one["launches"] for one in last["kernels"]})
            out.calls.append({(one["axis"], one["operation"]): one["calls"] for one in last["messages"]})
        if out.ranks < 1 or not out.ms or number(out.seconds) is None or out.seconds <= 0:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise ReportError(f"{path}: it is no rehearsal of all stages of this version: {AGAIN}") from None
    return out


def stage_of(rank, ranks, stages):
    """The pipeline is the slowest axis of the mesh."""
    return rank * stages // ranks
