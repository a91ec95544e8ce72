# SPDX-License-Identifier: Apache-2.0
"""./examples/run compare: traces made here with one fault each, which it names with its cause and its size; a trace as rehearsed, of which it
says nothing; files that do not fit, each refused in one line; and a run of train_gpt beside its rehearsal."""
import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests/support"))
from checks import check, finish

TRAIN = os.path.join(os.environ["WEFT_EXAMPLES"], "04_train_gpt")
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-compare-"))
RANKS, STEPS = 4, 3


def compare(*words):
    return subprocess.run([SOURCE / "examples/run", "compare", *map(str, words)], capture_output=True, text=True, errors="replace", timeout=60)


class Trace:
    """A clock for each rank; collectives end on all ranks at once."""

    def __init__(self):
        self.now, self.events, self.arrows = [0.0] * RANKS, [], 0

    def add(self, rank, name, kind, begin, end, **more):
        self.events.append({"name": name, "cat": kind, "ph": "X", "pid": rank, "tid": 0, "ts": begin, "dur": end - begin, **more})

    def kernel(self, rank, name, microseconds):
        self.add(rank, name, "kernel", self.now[rank], self.now[rank] + microseconds)
        self.now[rank] += microseconds

    def region(self, rank, name, begin, sent=None):
        self.add(rank, name, "region", begin, self.now[rank], **({} if sent is None else {"args": {"bytes": sent}}))

    def arrow(self, other, at, rank, end):
        self.arrows += 1
        self.events += [{"name": "collective", "cat": "flow", "ph": ph, "id": self.arrows, "pid": pid, "tid": 0, "ts": ts} for ph, pid, ts in (("s", other, at), ("f", rank, end))]

    def collective(self, name, microseconds):
        begins = list(self.now)
        last = begins.index(max(begins))
        for rank in range(RANKS):
            self.now[rank] = begins[last] + microseconds
            self.region(rank, name, begins[rank], 8)
            if rank != last:
                self.arrow(last, begins[last], rank, self.now[rank])

    def started(self, name, microseconds, work):
        """A collective that is started, `work` in a product on each rank, and the wait for it."""
        begins = list(self.now)
        for rank in range(RANKS):
            self.region(rank, f"start {name}", begins[rank], 8)
        end = max(begins) + microseconds
        for rank in range(RANKS):
            self.kernel(rank, "product", work)
            begin = self.now[rank]
            self.now[rank] = max(begin, end)
            self.region(rank, "wait", begin)


def trace(folder, slow={}, product=1000, tp=300, late={}, hidden=200, slow_steps=range(STEPS)):
    """Steps of 2 products, a norm, a sum over tp, a gather over dp behind a product, and the optimizer. slow[rank]: a factor of its kernels in slow_steps;
    late[rank]: microseconds on the host before the sum. A step begins with the count of targets, and with a call and a wait within one rank."""
    of = Trace()
    for step in range(STEPS):
        begins = list(of.now)
        for rank in range(RANKS):
            of.region(rank, "all_reduce dp", of.now[rank], 16)
            of.region(rank, "start all_reduce cp", of.now[rank])
            of.region(rank, "wait", of.now[rank])
            factor = slow.get(rank, 1) if step in slow_steps else 1
            of.kernel(rank, "product", product * factor)
            of.kernel(rank, "norm", 400 * factor)
            of.now[rank] += late.get(rank, 0)
        of.collective("all_reduce tp", tp)
        of.started("all_gather dp", hidden, 1000)
        for rank in range(RANKS):
            for name in (f"step {step + 1}", "backward 0", "block 0"):  # from the outermost on
                of.region(rank, name, begins[rank])
        optimizer = list(of.now)
        of.collective("all_reduce world", 20)
        for rank in range(RANKS):
            of.kernel(rank, "optimizer", 500)
            of.region(rank, "optimizer step", optimizer[rank])
    where = scratch / folder
    where.mkdir(exist_ok=True)
    (where / "trace.json").write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": of.events}))
    return where


rehearsal = {"stages": [{"rank": 0, "stage": 0, "axes": [], "units": ["block 0"], "last_step": {
    "kernels": [{"kind": "product", "launches": 2, "bytes": 1}, {"kind": "norm", "launches": 1, "bytes": 1}, {"kind": "optimizer", "launches": 1, "bytes": 1}],
    "messages": [{"axis": "tp", "operation": "all_reduce", "calls": 1, "bytes": 8}, {"axis": "dp", "operation": "all_gather", "calls": 1, "bytes": 8},
                 {"axis": "world", "operation": "all_reduce", "calls": 1, "bytes": 8}]}}],
    "estimate": {"machine": "a test", "ranks": RANKS, "seconds": 3.22e-3, "stages": [{"products": 2e-3, "attention": 0, "other kernels": 4e-4, "after the pipeline": 5e-4,
                                                                                        "messages, tp": 3e-4, "messages, world": 2e-5, "bubble": 0}], "kernels": [{"norm": 4e-4, "host copies": 1e-7}]}}
plan = scratch / "rehearsal.json"
plan.write_text(json.dumps(rehearsal))


def found(folder, **faults):
    """The findings: (milliseconds, text), the largest first."""
    done = compare(trace(folder, **faults), plan)
    check(done.returncode == 0 and done.stderr == "", f"{folder}: {done}")
    lines = [line for line in done.stdout.splitlines() if re.match(r"  +-?[\d.]+  \S", line) and ":" in line]
    return [(float(line.split()[0]), line.split("  ")[-1].strip()) for line in lines], done.stdout


findings, text = found("alike")
check(findings == [] and text.endswith("no part differs by more than 2 % of the step\n") and "a step of 4 ranks: 3.22 ms measured (median of 3), 3.22 ms rehearsed on a test" in text, f"alike: {text}")

findings, text = found("slow", slow={2: 1.2})
check(len(findings) == 2 and abs(findings[0][0] - 0.28) < 0.01 and all("rank 2" in text for _, text in findings), f"a slow rank: {text}")
check(any(one.startswith("a slow rank: rank 2 computes 2.68 ms, and the other ranks of stage 0 2.40") for _, one in findings)
      and any("over tp until all take part, for rank 2 above all, the slow rank" in one for _, one in findings), f"a slow rank: {text}")

# A rank that was held up in one step of three is not slow.
findings, text = found("hiccup", slow={2: 5}, slow_steps=[1])
check(findings == [], f"one slow step: {text}")

findings, text = found("link", tp=900)
check(len(findings) == 1 and abs(findings[0][0] - 0.6) < 0.01 and findings[0][1].startswith("messages, tp on stage 0: 0.90 ms, 0.30 rehearsed (3.0 times the rehearsed time): a slow link"), f"a slow link: {text}")

findings, text = found("late", late={1: 350})
check(len(findings) == 1 and abs(findings[0][0] - 0.35) < 0.01 and "over tp until all take part, for rank 1 above all, which had more to do before" in findings[0][1], f"a late message: {text}")

findings, text = found("kernels", product=1500)
check(len(findings) == 1 and abs(findings[0][0] - 0.5) < 0.01 and findings[0][1].startswith("products on stage 0: 2.50 ms, 2.00 rehearsed (1.2 times"), f"slower products: {text}")

findings, text = found("faster", product=500)
check(len(findings) == 1 and abs(findings[0][0] + 0.5) < 0.01 and findings[0][1].startswith("products on stage 0: 1.50 ms, 2.00 rehearsed (0.8 times") and "faster" in findings[0][1], f"faster products: {text}")

findings, text = found("hidden", hidden=1700)
check(len(findings) == 1 and abs(findings[0][0] - 0.7) < 0.01 and findings[0][1].startswith("messages, dp on stage 0: 0.70 ms, 0.00 rehearsed (the rehearsal has none): work that was not hidden"), f"not hidden: {text}")

findings, text = found("both", tp=600, slow={0: 1.5})
check([round(ms, 1) for ms, _ in findings] == [0.7, 0.7, 0.3] and "messages, tp" in findings[2][1], f"two faults: {text}")
done = compare(trace("both", tp=600, slow={0: 1.5}), plan, "--least", "0.1")
check(done.returncode == 0 and "messages, tp on" not in done.stdout, f"--least: {done}")


def refused(words, expected):
    done = compare(*words)
    check(done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1 and done.stderr.startswith("weft: compare: ") and expected in done.stderr, f"{words}: {done}")


def changed(change):
    other = copy.deepcopy(rehearsal)
    change(other)
    path = scratch / "changed.json"
    path.write_text(json.dumps(other))
    return path


alike = trace("alike")
refused([alike], "the following arguments are required: REHEARSAL: ./examples/run compare RUN REHEARSAL")
refused([scratch / "nobody", plan], "there is no such folder")
refused([alike, scratch / "none.json"], "it is no regular file")
refused([alike, plan, "--least", "2"], "--least 2.0: it is a share of the step, from 0 to 1")
(scratch / "empty").mkdir()
(scratch / "empty/layout.json").write_text('{"world": 4}')
refused([scratch / "empty", plan], "it has no trace: WEFT_TRACE=")
(scratch / "no_step").mkdir()
(scratch / "no_step/trace.json").write_text(json.dumps({"traceEvents": [{"name": "product", "cat": "kernel", "ph": "X", "pid": 0, "ts": 0, "dur": 1}]}))
refused([scratch / "no_step", plan], "its trace has no whole step on every rank")
refused([alike, changed(lambda of: of["estimate"].update(ranks=8))], "it is a rehearsal of 8 ranks, and")
refused([alike, changed(lambda of: of["stages"][0]["last_step"]["kernels"][0].update(launches=7))], "a step of rank 0 has 7 kernels of the kind product, and 2 in")
refused([alike, changed(lambda of: of["stages"][0]["last_step"]["messages"].append({"axis": "cp", "operation": "send", "calls": 1, "bytes": 1}))], "a step of rank 0 calls send over cp 1 times, and 0 times in")
refused([alike, changed(lambda of: of["stages"][0]["last_step"]["messages"].pop(1))], "a step of rank 0 calls all_gather over dp 0 times, and 1 times in")
refused([alike, changed(lambda of: of["stages"][0]["last_step"]["messages"][0].update(bytes=9))], "a step of rank 0 sends 9 bytes by all_reduce over tp, and 8 in")
refused([alike, changed(lambda of: of["stages"][0].update(units=["layer 0"]))],
        f"rank 0 trains units of other names than in {alike}: only {scratch}/changed.json has 'layer 0'; only {alike} has 'block 0': rehearse the program that was traced")
refused([alike, changed(lambda of: of["stages"][0]["units"].append("block 1"))], "changed.json has 'block 1': rehearse")
refused([alike, changed(lambda of: of["stages"][0].pop("units"))], "it is no rehearsal of all stages of this version")
refused([alike, changed(lambda of: of.pop("estimate"))], "it has no estimate of a step's time: write it anew: WEFT_REHEARSE=RANKS WEFT_MACHINE=this")
refused([alike, changed(lambda of: of["estimate"].update(seconds=0))], "it is no rehearsal of all stages of this version")
refused([alike, changed(lambda of: of["estimate"].update(kernels=[]))], "it is no rehearsal of all stages of this version")
refused([alike, changed(lambda of: of["stages"].append(of["stages"][0] | {"stage": 1, "rank": 2}))], "it is no rehearsal of all stages of this version")
# Several ranks of a stage are rehearsed if they differ: the estimate is of the first one.
done = compare(alike, changed(lambda of: of["stages"].append(of["stages"][0] | {"rank": 3})))
check(done.returncode == 0 and "no part differs" in done.stdout, f"two ranks of a stage: {done}")
(scratch / "text.json").write_text("{")
refused([alike, scratch / "text.json"], "it is no JSON")

# --- a run of two ranks beside its rehearsal: the kinds of its kernels, its messages, and a second layout that is refused
options = "--layers 2 --width 32 --heads 2 --sequence 32 --global-batch 4 --steps 8 --validate-every 8 --sample 0 --quiet"
environment = os.environ | {"OMP_NUM_THREADS": "2", "OMP_PROC_BIND": "false"}
text = scratch / "text.txt"
text.write_bytes(b"".join(b"%d times %d is %d.\n" % (a, b, a * b) for a in range(40) for b in range(40)))


def train(more, **extra):
    done = subprocess.run([TRAIN, "--data", str(text), *options.split(), *more.split()], capture_output=True, text=True, timeout=120, env=environment | extra)
    check(done.returncode == 0, f"train_gpt {more}: {done.stderr}")


train(f"--tp 2 --ranks 2 --output {scratch}/real", WEFT_TRACE=f"{scratch}/real/trace:3-6")
train("--tp 2 --rehearse 2 --machine this", WEFT_REHEARSE_JSON=f"{scratch}/real.json")
done = compare(scratch / "real", scratch / "real.json")
parts = {line.split()[1] for line in done.stdout.splitlines() if re.match(r"  0  ", line)}
check(done.returncode == 0 and {"products", "attention", "norm", "messages,", "after"} <= parts and "a step of 2 ranks" in done.stdout and "median of 4" in done.stdout, f"a run: {done}")
train("--rehearse 2 --machine this", WEFT_REHEARSE_JSON=f"{scratch}/other.json")
refused([scratch / "real", scratch / "other.json"], "a step of rank 0 calls all_reduce over dp 3 times, and 0 times in")
train("--tp 2 --rehearse 2:0", WEFT_REHEARSE_JSON=f"{scratch}/other.json")
refused([scratch / "real", scratch / "other.json"], "it has no member 'stages'")
train("--dp 4 --rehearse 4 --machine this", WEFT_REHEARSE_JSON=f"{scratch}/other.json")
refused([scratch / "real", scratch / "other.json"], "it is a rehearsal of 4 ranks, and")
# Two stages, data ranks and ZeRO: calls and bytes are those of the rehearsal, and each stage has its part.
train(f"--pp 2 --zero 1 --micro-batch 1 --ranks 4 --output {scratch}/stages", WEFT_TRACE=f"{scratch}/stages/trace:3-6")
train("--pp 2 --zero 1 --micro-batch 1 --rehearse 4 --machine this", WEFT_REHEARSE_JSON=f"{scratch}/stages.json")
done = compare(scratch / "stages", scratch / "stages.json")
units = {one["stage"]: one["units"] for one in json.loads((scratch / "stages.json").read_text())["stages"]}
check(units == {0: ["front", "block 0"], 1: ["block 1", "back"]}, f"units of stages: {units}")
stages = {tuple(line.split()[:2]) for line in done.stdout.splitlines() if re.match(r"  [01]  ", line)}
check(done.returncode == 0 and {("0", "products"), ("1", "products"), ("0", "messages,"), ("1", "messages,")} <= stages, f"two stages: {done}")
finish()
