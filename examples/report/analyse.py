# SPDX-License-Identifier: Apache-2.0
"""What a run's trace and its records come to: seconds of a step by category, memory at its peak, the pipeline's idle share.

    shares = step_shares(run.ranks)
    shares.ms[0]["products"]      # milliseconds of a step on rank 0
"""
import collections
import re
import statistics

OPERATIONS = ("all_reduce", "all_gather", "all_gather_v", "reduce_scatter", "reduce_scatter_v", "broadcast", "reduce", "gather", "scatter", "all_to_all",
              "all_to_all_v", "barrier", "split", "send", "recv")
MESSAGE = re.compile(rf"(?:start )?(?:{'|'.join(OPERATIONS)}) (.+)")
ACTION = re.compile(r"(forward|backward|weight) (\d+)(?: chunk (\d+))?")
MOST_AXES = 3


def category_of(name, kind):
    if kind == "kernel":
        return {"product": "products", "attention": "attention"}.get(name, "other kernels")
    if kind in ("copy", "fence"):
        return "copies and fences"
    message = MESSAGE.fullmatch(name)
    if message:
        return f"communication over {message[1]}"
    return "waits for messages" if name == "wait" else "between kernels"


def self_times(events):
    """(event, its duration without the events inside of it), for the events of one rank."""
    open_events, done = [], []
    for event in sorted(events, key=lambda one: (one[2], -one[3])):
        while open_events and open_events[-1][0][2] + open_events[-1][0][3] <= event[2]:
            done.append(open_events.pop())
        if open_events:
            open_events[-1][1] -= event[3]
        open_events.append([event, event[3]])
    return done + open_events


class Shares:
    """steps: the numbers of the traced steps. ms[rank][category]: milliseconds a step. categories: in the order of drawing."""


def step_shares(ranks):
    """The time of the traced steps of each rank, from the begin of the first to its last event; None without a step."""
    shares = Shares()
    shares.ms, shares.total = {}, {}
    names = [{int(name[5:]) for name, kind, _, _ in rank.events if kind == "region" and re.fullmatch(r"step \d+", name)} for rank in ranks.values()]
    shares.steps = sorted(set().union(*names))
    if not shares.steps:
        return None
    for rank, trace in ranks.items():
        first = min((begin for name, kind, begin, _ in trace.events if kind == "region" and re.fullmatch(r"step \d+", name)), default=None)
        if first is None:
            continue
        events = [event for event in trace.events if event[2] >= first]
        of = collections.Counter()
        for event, time in self_times(events):
            of[category_of(event[0], event[1])] += time
        end = max(begin + time for _, _, begin, time in events)
        of["outside of named events"] = max(0, end - first - sum(of.values()))
        shares.ms[rank] = {name: time / 1000 / len(shares.steps) for name, time in of.items()}
        shares.total[rank] = sum(shares.ms[rank].values())
    merge_axes(shares.ms)
    total = collections.Counter()
    for of in shares.ms.values():
        total.update(of)
    order = ["products", "attention", "other kernels", "copies and fences", "between kernels"]
    messages = sorted((name for name in total if name.startswith("communication")), key=lambda name: (name.endswith("other axes"), -total[name]))
    shares.categories = [name for name in [*order, *messages, "waits for messages", "outside of named events"] if total[name] > 0]
    return shares


def merge_axes(of_ranks):
    """Keeps the axes with the most time, and adds up the others."""
    total = collections.Counter()
    for of in of_ranks.values():
        total.update({name: time for name, time in of.items() if name.startswith("communication")})
    kept = {name for name, _ in total.most_common(MOST_AXES)}
    if len(total) <= MOST_AXES + 1:
        return
    for of in of_ranks.values():
        for name in [name for name in of if name.startswith("communication") and name not in kept]:
            other = "communication over other axes"
            of[other] = of.get(other, 0) + of.pop(name)


COMPUTING = ("products", "attention", "other kernels")


def slowest(shares):
    """The rank that computes longest, its milliseconds a step, and those of the median rank."""
    of = {rank: sum(ms.get(name, 0) for name in COMPUTING) for rank, ms in shares.ms.items()}
    rank = max(of, key=of.get)
    return rank, of[rank], statistics.median(of.values())


def unit_calls(events):
    """(unit, action, begin, duration) of each call of a unit in a rank's forwards and backwards; action: "forward", "backward" or "weight"."""
    end, unit_end, operation = -1, -1, ""
    for name, _, begin, time in sorted((event for event in events if event[1] == "region"), key=lambda one: (one[2], -one[3])):
        action = ACTION.fullmatch(name)
        if action:
            operation, end, unit_end = action[1], begin + time, -1
        elif begin + time <= end and begin >= unit_end and not MESSAGE.fullmatch(name) and name != "wait":
            unit_end = begin + time
            yield name, operation, begin, time


def unit_times(ranks, steps):
    """Milliseconds a step of each unit of the model in forward and backward, on the ranks that have it, in the order of their first call."""
    of, holders = {}, {}
    for rank, trace in ranks.items():
        for name, operation, _, time in unit_calls(trace.events):
            of.setdefault(name, collections.Counter())["forward" if operation == "forward" else "backward"] += time
            holders.setdefault(name, set()).add(rank)
    return [(name, len(holders[name]), *(times[one] / 1000 / len(steps) / len(holders[name]) for one in ("forward", "backward"))) for name, times in of.items()]


def memory_peaks(ranks):
    """Of each rank, the bytes by category at the sample with the largest sum."""
    return {rank: max((use for _, use in trace.memory), key=lambda use: sum(use.values())) for rank, trace in ranks.items() if trace.memory}


def traced_actions(ranks):
    """The forwards and backwards of the last traced step, as read_timeline has them."""
    actions = []
    for rank, trace in ranks.items():
        steps = [(begin, time) for name, kind, begin, time in trace.events if kind == "region" and re.fullmatch(r"step \d+", name)]
        if not steps:
            continue
        first, length = max(steps)
        for name, kind, begin, time in trace.events:
            action = ACTION.fullmatch(name) if kind == "region" else None
            if action and first <= begin <= first + length:
                actions.append((rank, {"weight": "weight gradient"}.get(action[1], action[1]), int(action[2]), int(action[3]) if action[3] else None, begin, time))
    return actions


def smoothed(values):
    """The exponential mean over a fortieth of the values, with the bias of its start corrected, as in weft::trace::LossCurve."""
    keep, total, weight, out = 1 - 1 / max(1.0, len(values) / 40), 0.0, 0.0, []
    for value in values:
        total, weight = keep * total + value, keep * weight + 1
        out.append(total / weight)
    return out
