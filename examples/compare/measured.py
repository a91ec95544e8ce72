# SPDX-License-Identifier: Apache-2.0
"""The time of a traced step on each rank by the parts that an estimate has: kinds of kernels, messages by axis, and waits for ranks
that came late.

    step = measured(run)
    step.ms[0]["products"], step.late[0]["tp", 3]     # milliseconds of a step on rank 0; waits over tp for rank 3
"""
import bisect
import collections
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "report"))
from analyse import ACTION, MESSAGE, self_times

STEP = re.compile(r"step \d+")
AFTER = "after the pipeline"
HOST = "between kernels"


class Measured:
    """steps: how many were traced. Of a step on each rank: length[rank], ms[rank][part], late[rank][axis, other rank], behind[rank][axis]
    (milliseconds in waits for messages that had been started before), kernels[rank][kind] and calls[rank][axis, operation]."""

    def __init__(self):
        self.steps, self.length, self.ms, self.late, self.behind, self.kernels, self.calls = 0, {}, {}, {}, {}, {}, {}


def part_of(name, kind):
    if kind == "kernel":
        return {"product": "products"}.get(name, name)
    return "copies and fences" if kind in ("copy", "fence") else HOST


def step_bounds(events):
    """(begin, end) of each step, and the end of its last forward or backward."""
    begins = sorted(begin for name, kind, begin, _ in events if kind == "region" and STEP.fullmatch(name))
    ends = sorted(begin + time for name, kind, begin, time in events if kind == "region" and name == "optimizer step")
    actions = sorted(begin + time for name, kind, begin, time in events if kind == "region" and ACTION.fullmatch(name))
    for k, begin in enumerate(begins):
        following = begins[k + 1] if k + 1 < len(begins) else float("inf")
        end = next((end for end in reversed(ends) if begin < end <= following), None)
        last = next((end for end in reversed(actions) if begin < end <= following), None)
        if end is not None and last is not None:
            yield begin, end, last


def axis_of(name):
    message = MESSAGE.fullmatch(name)
    return message[1] if message else None


def started_axes(trace):
    """The times at which a rank called an operation, in their order, and the axes."""
    calls = sorted((begin, axis_of(name)) for name, kind, begin, _ in trace.events if kind == "region" and axis_of(name))
    return [at for at, _ in calls], [axis for _, axis in calls]


def measured(run):
    """None if no whole step was traced on all ranks."""
    out = Measured()
    arrows = collections.defaultdict(list)
    for other, called, rank, returned in run.arrows:
        arrows[rank].append((returned, called, other))
    started = {rank: started_axes(trace) for rank, trace in run.ranks.items()}
    for rank, trace in run.ranks.items():
        bounds = list(step_bounds(trace.events))
        if not bounds:
            return None
        ends = sorted(arrows[rank])
        times = [end[0] for end in ends]
        ms, late, behind, kernels, calls = (collections.Counter() for _ in range(5))
        pending = []  # axes of messages that were started, in their order
        for (name, kind, begin, length), own in sorted(self_times(trace.events), key=lambda one: one[0][2]):
            place = bisect.bisect_right([first for first, _, _ in bounds], begin) - 1
            if place < 0 or begin >= bounds[place][1]:
                continue
            axis = axis_of(name) if kind == "region" else None
            if kind == "kernel":
                kernels[name] += 1
            elif axis:
                calls[axis, name.removeprefix("start ").split()[0]] += 1
                if name.startswith("start "):
                    pending.append(axis)
            if axis is None and not (kind == "region" and name == "wait"):
                ms[AFTER if begin >= bounds[place][2] else part_of(name, kind)] += own
                continue
            # A message or a wait: the time before the last rank called the operation is that rank's, the rest is the link's.
            waits, lateness = axis is None, 0
            for at in range(bisect.bisect_left(times, begin), bisect.bisect_right(times, begin + length + 5)):
                _, called, other = ends[at]
                before = min(max(0, called - begin), own)
                if before > lateness:
                    lateness, blamed = before, other
                if axis is None:
                    of_other, axes = started[other]
                    place_of_call = bisect.bisect_right(of_other, called + 5) - 1
                    axis = axes[place_of_call] if place_of_call >= 0 else None
            if waits:
                axis = axis or (pending[0] if pending else "?")  # a rank that called last is waited for by nobody: no arrow
                if axis in pending:
                    pending.remove(axis)
                behind[axis] += own - lateness
            if lateness > 0:
                late[axis, blamed] += lateness
            ms[f"messages, {axis}"] += own - lateness
        steps = len(bounds)
        out.steps = steps
        out.length[rank] = sum(end - begin for begin, end, _ in bounds) / 1000 / steps
        for to, of in ((out.ms, ms), (out.late, late), (out.behind, behind)):
            to[rank] = {key: value / 1000 / steps for key, value in of.items()}
        out.kernels[rank] = {key: value / steps for key, value in kernels.items()}
        out.calls[rank] = {key: value / steps for key, value in calls.items()}
    return out
