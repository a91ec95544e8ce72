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
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "report"))
from analyse import ACTION, MESSAGE, self_times, unit_calls

STEP = re.compile(r"step \d+")
AFTER = "after the pipeline"
HOST = "between kernels"
TARGETS = "all_reduce", 16  # a step's first call, if its targets lie on several ranks: two numbers in double


class Measured:
    """steps: how many were traced. Medians of the steps on each rank: length[rank], ms[rank][part],
    late[rank][axis, other rank], behind[rank][axis] (milliseconds in waits for messages that had been started before). The last
    step has kernels[rank][kind], and calls[rank][axis, operation] and sent[rank][axis, operation], in bytes.
    units[rank]: the names of the units that the traced steps call."""

    def __init__(self):
        self.steps, self.length, self.ms, self.late, self.behind, self.kernels, self.calls, self.sent, self.units = 0, {}, {}, {}, {}, {}, {}, {}, {}


class Step:
    """One step of a rank: times in microseconds, and counts."""

    def __init__(self):
        self.ms, self.late, self.behind, self.kernels, self.calls, self.sent = (collections.Counter() for _ in range(6))
        self.pending = []  # axes of messages that were started, in their order
        self.begun = False  # the rehearsed step begins after the sum that counts the batch's targets

    def count(self, axis, name, sent):
        operation = name.removeprefix("start ").split()[0]
        begun, self.begun = self.begun, True
        if begun or (operation, sent) != TARGETS:
            self.calls[axis, operation] += 1
            self.sent[axis, operation] += sent


def medians(counters):
    """Milliseconds of each key, from microseconds."""
    return {key: statistics.median(counter[key] for counter in counters) / 1000 for key in set().union(*counters)}


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


def axis_of(trace, name, begin):
    message = MESSAGE.fullmatch(name)
    return message[1] if message and (name, begin) in trace.sent else None


def started_axes(trace):
    """The times at which a rank called an operation, in their order, and the axes."""
    calls = sorted((begin, axis_of(trace, name, begin)) for name, kind, begin, _ in trace.events if kind == "region" and axis_of(trace, name, begin))
    return [at for at, _ in calls], [axis for _, axis in calls]


def steps_of(trace, bounds, arrows, started):
    """The steps of a rank. arrows: (end of a wait, call, rank that called last), sorted; started: started_axes of each rank."""
    steps, times = [Step() for _ in bounds], [end for end, _, _ in arrows]
    for (name, kind, begin, length), own in sorted(self_times(trace.events), key=lambda one: one[0][2]):
        place = bisect.bisect_right([first for first, _, _ in bounds], begin) - 1
        if place < 0 or begin >= bounds[place][1]:
            continue
        step, axis = steps[place], axis_of(trace, name, begin) if kind == "region" else None
        if kind == "kernel":
            step.kernels[name] += 1
        elif axis:
            step.count(axis, name, trace.sent[name, begin])
            if name.startswith("start "):
                step.pending.append(axis)
        if axis is None and not (kind == "region" and name == "wait"):
            step.ms[AFTER if begin >= bounds[place][2] else part_of(name, kind)] += own
            continue
        # A message or a wait: the time before the last rank called the operation is that rank's, the rest is the link's.
        waits, lateness, blamed = axis is None, 0, None
        for _, called, other in arrows[bisect.bisect_left(times, begin):bisect.bisect_right(times, begin + length + 5)]:
            before = min(max(0, called - begin), own)
            if before > lateness:
                lateness, blamed = before, other
            if axis is None:
                of_other, axes = started[other]
                place_of_call = bisect.bisect_right(of_other, called + 5) - 1
                axis = axes[place_of_call] if place_of_call >= 0 else None
        if waits:
            axis = axis or (step.pending[0] if step.pending else None)  # a rank that called last is waited for by nobody: no arrow
            if axis is None:  # the end of a call within one rank
                step.ms[part_of(name, kind)] += own
                continue
            if axis in step.pending:
                step.pending.remove(axis)
            step.behind[axis] += own - lateness
        if lateness > 0:
            step.late[axis, blamed] += lateness
        step.ms[f"messages, {axis}"] += own - lateness
    return steps


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
        steps = steps_of(trace, bounds, sorted(arrows[rank]), started)
        out.steps = len(bounds)
        out.length[rank] = statistics.median(end - begin for begin, end, _ in bounds) / 1000
        out.ms[rank], out.late[rank], out.behind[rank] = (medians([getattr(step, name) for step in steps]) for name in ("ms", "late", "behind"))
        out.units[rank] = {name for name, _, at, _ in unit_calls(trace.events) if any(begin <= at < end for begin, end, _ in bounds)}
        out.kernels[rank], out.calls[rank], out.sent[rank] = steps[-1].kernels, steps[-1].calls, steps[-1].sent
    return out
