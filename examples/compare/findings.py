# SPDX-License-Identifier: Apache-2.0
"""Where a measured step and a rehearsed one part: the largest differences, with their meaning.

    for finding in findings(step, rehearsal, least_ms=0.1):
        print(finding.ms, finding.text)
"""
import collections
import statistics

from measured import AFTER, HOST

from read import ReportError

SLOW = 1.1  # a rank's time over the median of its stage that is called slow
SHOWN = 0.005  # milliseconds from which the table has a part
KERNELS = ("product", "attention")  # their number a step is that of the program and its layout


class Finding:
    def __init__(self, ms, text):
        self.ms, self.text = ms, text


def stages_of(step, rehearsal):
    """The ranks of each stage."""
    of = collections.defaultdict(list)
    for rank in step.ms:
        of[rehearsal.stage_of(rank)].append(rank)
    return of


def require_same_program(step, rehearsal, trace, path):
    """Throws ReportError, with the first difference, for a rehearsal of another program or layout."""
    ranks = len(step.ms)
    if ranks != rehearsal.ranks:
        raise ReportError(f"{path}: it is a rehearsal of {rehearsal.ranks} ranks, and {trace} has traces of {ranks}: rehearse the layout that was traced")
    again = "rehearse the program, the options and the layout that were traced"
    for stage, members in stages_of(step, rehearsal).items():
        rank = members[0]
        for kind in KERNELS:
            rehearsed, seen = rehearsal.kernels[stage].get(kind, 0), step.kernels[rank][kind]
            if rehearsed != seen:
                raise ReportError(f"{path}: a step of rank {rank} has {rehearsed} kernels of the kind {kind}, and {seen} in {trace}: {again}")
        for call in sorted({*rehearsal.calls[stage], *step.calls[rank]}):
            axis, operation = call
            rehearsed, seen = rehearsal.calls[stage].get(call, 0), step.calls[rank][call]
            if rehearsed != seen:
                raise ReportError(f"{path}: a step of rank {rank} calls {operation} over {axis} {rehearsed} times, and {seen} times in {trace}: {again}")
            rehearsed, seen = rehearsal.sent[stage][call], step.sent[rank][call]
            if rehearsed != seen and not operation.endswith("_v"):  # lengths of _v may depend on the data
                raise ReportError(f"{path}: a step of rank {rank} sends {rehearsed:g} bytes by {operation} over {axis}, and {seen:g} in {trace}: {again}")


def require_same_units(step, rehearsal, trace, path):
    """Throws ReportError, with the names, if the model of the rehearsal has other units than the traced one."""
    for stage, members in stages_of(step, rehearsal).items():
        for rank in members:
            rehearsed, seen = rehearsal.units[stage], step.units[rank]
            if rehearsed == seen:
                continue
            only = [f"only {where} has {', '.join(repr(name) for name in sorted(names)[:3])}{' and others' if len(names) > 3 else ''}"
                    for where, names in ((path, rehearsed - seen), (trace, seen - rehearsed)) if names]
            raise ReportError(f"{path}: rank {rank} trains units of other names than in {trace}: {'; '.join(only)}: rehearse the program that was traced")


def computing(ms):
    return sum(time for part, time in ms.items() if not part.startswith("messages") and part not in (AFTER, HOST))


def slow_ranks(step, of_stage, least_ms):
    """Ranks that compute longer than the others of their stage: {rank: milliseconds above the median}."""
    found = {}
    for members in of_stage.values():
        times = {rank: computing(step.ms[rank]) for rank in members}
        for rank, time in times.items():
            others = [other for name, other in times.items() if name != rank]
            if others and time > SLOW * statistics.median(others) and time - statistics.median(others) >= least_ms:
                found[rank] = time - statistics.median(others)
    return found


def ratio(measured, rehearsed):
    return f"{measured / rehearsed:.1f} times the rehearsed time" if rehearsed > 0 else "the rehearsal has none"


def late_messages(step, rehearsal, of_stage, slow):
    """The waits of each axis for ranks that call later: one finding an axis, of the rank that waits longest beyond the bubble."""
    found = []
    stage = {rank: stage for stage, members in of_stage.items() for rank in members}
    for axis in sorted({axis for late in step.late.values() for axis, _ in late}):
        waits = {rank: sum(ms for (one, _), ms in late.items() if one == axis) for rank, late in step.late.items()}
        more = {rank: ms - (rehearsal.bubble[stage[rank]] if axis == "pp" else 0) for rank, ms in waits.items()}
        longest = max(more, key=more.get)
        blamed = collections.Counter()
        for late in step.late.values():
            for (one, other), ms in late.items():
                if one == axis:
                    blamed[other] += ms
        other, ms = blamed.most_common(1)[0]
        if axis == "pp" and more[longest] < 0:
            why = f"less than the {rehearsal.bubble[stage[longest]]:.2f} ms that are rehearsed as the bubble"
        elif axis == "pp":
            why = f"{rehearsal.bubble[stage[longest]]:.2f} rehearsed as the bubble: another stage has more work than planned, or sends late"
        elif ms < 2 / 3 * sum(blamed.values()):
            why = "ranks wait for each other in turns: they share cores, or their work differs from call to call"
        elif other in slow:
            why = f"for rank {other} above all, the slow rank"
        else:
            why = f"for rank {other} above all, which had more to do before, or was held up: look at its events in the trace"
        found.append(Finding(more[longest], f"late messages: rank {longest} waits {waits[longest]:.2f} ms over {axis} until all take part, {why}"))
    return found


def findings(step, rehearsal, least_ms):
    """All of at least `least_ms` milliseconds a step, longer or shorter than rehearsed, the largest first."""
    of_stage, found = stages_of(step, rehearsal), []
    slow = slow_ranks(step, of_stage, least_ms)
    for rank, ms in slow.items():
        stage = rehearsal.stage_of(rank)
        found.append(Finding(ms, f"a slow rank: rank {rank} computes {computing(step.ms[rank]):.2f} ms, and the other ranks of stage {stage} "
                                 f"{computing(step.ms[rank]) - ms:.2f}: look at its core or GPU (other programs, its clock, its temperature)"))
    found += late_messages(step, rehearsal, of_stage, slow)
    for stage, members in sorted(of_stage.items()):
        rehearsed = rehearsal.ms[stage]
        steady = [rank for rank in members if rank not in slow] or members
        parts = set(rehearsed).union(*(step.ms[rank] for rank in steady))
        for part in sorted(parts):
            seen, expected = statistics.median(step.ms[rank].get(part, 0) for rank in steady), rehearsed.get(part, 0)
            more = seen - expected
            text = f"{part} on stage {stage}: {seen:.2f} ms, {expected:.2f} rehearsed ({ratio(seen, expected)}): "
            if more < 0:
                text += "faster than the machine's figures, which may be of a busy machine: the plan had this time to spare"
            elif part.startswith("messages, "):
                axis = part.removeprefix("messages, ")
                behind = statistics.median(step.behind[rank].get(axis, 0) for rank in steady)
                if behind > 0.5 * seen:
                    text += "work that was not hidden: they were started early, and are waited for all the same; the link is slower, or less work lies between"
                else:
                    text += "a slow link, or ranks that share cores while they send"
            elif part == HOST:
                text += "the host's own work between kernels, which the rehearsal leaves out: it matters for small kernels"
            elif part == AFTER:
                text += "the optimizer, the norm and what is sent after the last backward"
            else:
                text += "these kernels are slower here than the machine's figures say, or ranks share cores"
            found.append(Finding(more, text))
    return sorted((one for one in found if abs(one.ms) >= least_ms), key=lambda one: -abs(one.ms))


def table(step, rehearsal):
    """Rows (stage, part, measured, rehearsed) in milliseconds; measured: the median of the stage's ranks."""
    rows = []
    for stage, members in sorted(stages_of(step, rehearsal).items()):
        parts = {part: rehearsal.ms[stage].get(part, 0) for part in set(rehearsal.ms[stage]).union(*(step.ms[rank] for rank in members))}
        seen = {part: statistics.median(step.ms[rank].get(part, 0) for rank in members) for part in parts}
        shown = [part for part in parts if max(seen[part], parts[part]) >= SHOWN]
        rows += [(stage, part, seen[part], parts[part]) for part in sorted(shown, key=lambda part: -max(seen[part], parts[part]))]
        late = statistics.median(sum(step.late[rank].values()) for rank in members)
        rows.append((stage, "waits for late ranks", late, rehearsal.bubble[stage]))
    return rows
