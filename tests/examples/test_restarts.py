# SPDX-License-Identifier: Apache-2.0
"""train_gpt --restarts: ranks killed at random moments are started again from the last checkpoint, and the run ends with the losses and with the
parameters and optimizer state of an undisturbed one, bit for bit. As threads, as processes over TCP, under mpirun, and under torchrun's
own restart. `--runs N`: how often; `--seed S`."""
import argparse
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
from checks import check, finish
from free_port import free_port

options = argparse.ArgumentParser()
options.add_argument("--runs", type=int, default=3)
options.add_argument("--seed", type=int, default=1)
options = options.parse_args()
EXAMPLES = os.environ["WEFT_EXAMPLES"]
TOOL, TRAIN = os.path.join(EXAMPLES, "checkpoint"), os.path.join(EXAMPLES, "04_train_gpt")
if not os.path.exists(TOOL):
    print("built without xxhash.h: no checkpoints")
    sys.exit(77)
symbols = subprocess.run(["nm", "-C", TRAIN], capture_output=True, text=True).stdout
mpirun = os.environ.get("WEFT_MPIRUN") if "comm::Mpi::" in symbols else None
STEPS = 60
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-restarts-"))
text = scratch / "text.txt"
text.write_bytes(bytes(random.Random(0).choices(b"abcdefgh \n", k=20000)))
training = (f"--optimizer adamw --data {text} --layers 2 --width 64 --heads 2 --sequence 64 --validation-fraction 0 --sample 0 --steps {STEPS} --zero 1 --seed 5 "
            "--every 4 --json").split()
MARK = f"WEFT_TEST_RESTARTS={scratch.name}"  # in the environment of every process that this test starts
environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "WEFT_RANKS")}
environment |= dict([MARK.split("=")])


def processes():
    """Every living process of this test by its number, with its command line and its parent."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and MARK.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = ((entry / "cmdline").read_bytes().split(b"\0"), int((entry / "stat").read_text().rpartition(")")[2].split()[1]))
        except (OSError, ValueError, IndexError):
            pass  # it has ended
    return found


def ranks_below(parent):
    """The processes that train: this program, and not the parent itself."""
    return sorted(pid for pid, (words, _) in processes().items() if pid != parent and words[0] == TRAIN.encode())


def losses(folder):
    """The loss of each step; a step that was done again must have one loss."""
    found = {}
    path = folder / "metrics.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        entry = json.loads(line)
        if "loss" in entry and "step" in entry:
            if found.setdefault(entry["step"], entry["loss"]) != entry["loss"]:
                sys.exit(f"step {entry['step']}: {found[entry['step']]} and {entry['loss']}")
    return found


def digest(folder):
    """Digest of the whole training state at the end, parameters and optimizer, as one file."""
    verified = subprocess.run([TOOL, "verify", str(folder / "saved")], capture_output=True, text=True, timeout=60)
    merged = folder / "all.safetensors"
    made = subprocess.run([TOOL, "merge", str(folder / "saved"), str(merged), "--all"], capture_output=True, text=True, timeout=60)
    if verified.returncode != 0 or made.returncode != 0 or f"step-{STEPS:08}" not in made.stdout:
        sys.exit(f"{verified} {made}")
    return hashlib.sha256(merged.read_bytes()).hexdigest()


def words_of(folder):
    return [TRAIN, *training, "--output", str(folder), "--checkpoint", str(folder / "saved")]


class Run:
    """A run of two ranks, its output and its times: both streams in one, as a terminal has them."""

    def __init__(self, folder, words, more=()):
        self.process = subprocess.Popen([*words_of(folder), *words], env=environment | dict(more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)
        self.pid, self.lines = self.process.pid, []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line))

    def ended(self):
        return self.process.poll() is not None

    def finish(self, limit=120):
        try:
            self.code = self.process.wait(limit)
        finally:
            self.process.kill()
            self.reader.join()
        self.text = "".join(line for _, line in self.lines)
        return self.code

    def restarts(self):
        return [i for i, (_, line) in enumerate(self.lines) if line.startswith("weft: restart ")]

    def first_step_after(self, moment):
        """When the first step after the restart that came after this moment ended, if it did."""
        begun = [i for i in self.restarts() if self.lines[i][0] >= moment]
        steps = [when for when, line in self.lines[begun[0]:] if '"event": "step"' in line] if begun else []
        return steps[0] if steps else None


def saved_step(folder):
    try:
        return int((folder / "saved/latest").read_text().strip()[5:])
    except (OSError, ValueError):
        return 0


def shared_memory():
    """All but the files of MPI's libraries, which OpenMPI removes only if mpirun itself is not killed."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith(("vader_segment", "sm_segment", "mpich", "psm3", "ucx"))}


def nothing_left(what, before):
    for _ in range(100):
        if not (left := processes()) and shared_memory() <= before:
            return
        time.sleep(0.05)
    check(False, f"{what}: left are {left} and {shared_memory() - before}")


def wait_until(condition, run, limit=60):
    """True if it came true before the run ended."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if condition():
            return True
        if run.ended():
            return False
        time.sleep(0.005)
    sys.exit("nothing happens")


begin = time.monotonic()
whole = Run(scratch / "whole", ["--ranks", "2"])
whole.finish()
duration = time.monotonic() - begin
expected = losses(scratch / "whole")
if whole.code != 0 or len(expected) != STEPS:
    sys.exit(f"the undisturbed run: {whole.code} {whole.text}")
state = digest(scratch / "whole")


apart = 0


def check_same(where, folder):
    global apart
    same_losses, same_state = losses(folder) == expected, digest(folder) == state
    apart += not (same_losses and same_state)
    check(same_losses, f"{where}: other losses")
    check(same_state, f"{where}: other parameters or optimizer state")


# Killed at random moments, as often as restarts mend it.
kinds = {"threads": [], "tcp": ["--launch", "tcp"]}
if mpirun:
    kinds["mpirun"] = ["--launch", f"{mpirun} {{ranks}}"]
chance = random.Random(options.seed)
kills = mended = 0
recoveries = []
for number in range(options.runs):
    name = list(kinds)[number % len(kinds)]
    folder, before = scratch / f"run{number}", shared_memory()
    run = Run(folder, ["--ranks", "2", "--restarts", "5", *kinds[name]])
    moments = []
    for kill in range(3):
        # The first one comes at any moment, the others when something has been gained since: else there is no restart.
        here = saved_step(folder)
        if kill > 0 and not wait_until(lambda: saved_step(folder) > here, run):
            break
        time.sleep(chance.uniform(0, duration / 2 if kill == 0 else duration / 5))
        ranks = ranks_below(run.pid)
        if ranks and not run.ended():
            try:
                moment = time.monotonic()
                os.kill(chance.choice(ranks), signal.SIGKILL)
                moments.append(moment)
            except ProcessLookupError:  # it has just ended
                continue
            if not wait_until(lambda: len(run.restarts()) == len(moments), run, 30):
                break
    run.finish()
    where = f"run {number}, {name}, {len(moments)} kills"
    told = [run.lines[i][1] for i in run.restarts()]
    # A rank that was killed when all had been done is not missed by mpirun or by the parent's other ranks.
    check(run.code == 0 and len(moments) - 1 <= len(told) <= len(moments), f"{where}: {run.code}: {run.text}")
    for place, line in enumerate(told):
        reason = r"(04_train_gpt|rank [01]) was killed by signal 9 \(SIGKILL\)" if name != "mpirun" else "mpirun ended with exit code 137"
        check(re.fullmatch(rf"weft: restart {place + 1} of 5 from (step \d+|the beginning): {reason}\n", line), f"{where}: {line}")
    for place in run.restarts():  # it goes on from where the line says, and does not start over
        steps = [json.loads(line)["step"] for _, line in run.lines[place:] if line.startswith('{"event": "step"')]
        from_step = re.search(r"from step (\d+)", run.lines[place][1])
        check(not steps or steps[0] == int(from_step.group(1) if from_step else 0), f"{where}: {run.lines[place]} and then step {steps[:1]}")
    check_same(where, folder)
    nothing_left(where, before)
    recoveries += [(after - moment, name) for moment in moments if (after := run.first_step_after(moment))]
    kills += len(moments)
    mended += len(told)
    shutil.rmtree(folder)
check(mended > 0, "no kill came before a run's end")
check(max(recoveries, default=(0, ""))[0] <= 5, f"recoveries: {recoveries}")
print(f"figure 2: {options.runs} runs over {', '.join(kinds)}, {kills} kills and {mended} restarts: "
      f"{options.runs - apart} with the losses, parameters and optimizer state of an undisturbed one, bit for bit")
for name in kinds:
    times = [seconds for seconds, kind in recoveries if kind == name]
    if times:
        print(f"figure 20: {name}: from the kill to the next step at most {max(times):.2f} s, mean {sum(times) / len(times):.2f} s, of {len(times)}")


def after_first_checkpoint(run, folder):
    if not wait_until(lambda: saved_step(folder) > 0, run):
        sys.exit(f"no checkpoint: {run.text}")
    return ranks_below(run.pid)


# Killed again before it has gained anything: it stops, with fewer ranks only if the layout allows (--dp is not given).


def killed_at_once(name, words, restarts_expected):
    """Kills each attempt after the second one as soon as it is there; returns the parent's output and exit code."""
    folder, before = scratch / name, shared_memory()
    run = Run(folder, words)
    first = after_first_checkpoint(run, folder)
    os.kill(first[0], signal.SIGKILL)
    known = set(first)
    wait_until(lambda: len(run.restarts()) == 1, run)
    wait_until(lambda: set(ranks_below(run.pid)) - known, run)
    for pid in set(ranks_below(run.pid)) - known:
        os.kill(pid, signal.SIGKILL)
    run.finish()
    check(len(run.restarts()) == restarts_expected, f"{name}: {run.text}")
    nothing_left(name, before)
    return run, folder


run, folder = killed_at_once("gained nothing", ["--ranks", "2", "--dp", "2", "--restarts", "5"], 1)
check(run.code == 137 and re.search(r"^weft: no restart: 04_train_gpt was killed by signal 9 \(SIGKILL\); restart 1 from step \d+ has gained no checkpoint$",
                                    run.text, re.MULTILINE), f"gained nothing: {run.code}: {run.text}")
run, folder = killed_at_once("fewer", ["--ranks", "2", "--restarts", "5", "--reproducible"], 2)
check(run.code == 0 and re.search(r"^weft: restart 2 of 5 from step \d+ with fewer ranks: ", run.text, re.MULTILINE)
      and json.loads((folder / "layout.json").read_text())["world"] == 1 and len(losses(folder)) == STEPS, f"fewer: {run.code}: {run.text}")

# A limit; a signal for the parent goes to the ranks, which save and end with 130; and no rank outlives a parent that is killed.
folder, before = scratch / "limit", shared_memory()
run = Run(folder, ["--ranks", "2", "--restarts", "0"])
os.kill(after_first_checkpoint(run, folder)[0], signal.SIGKILL)
check(run.finish() == 137 and "was killed by signal 9 (SIGKILL); 0 restarts are used up, the last checkpoint is of step " in run.text,
      f"limit: {run.code}: {run.text}")
for name, words in kinds.items():
    for number in (signal.SIGTERM, signal.SIGKILL):
        folder, where = scratch / f"{name} {number}", f"{name}, {number!r} for the parent"
        run = Run(folder, ["--ranks", "2", "--restarts", "5", *words])
        after_first_checkpoint(run, folder)
        os.kill(run.pid, number)
        run.finish()
        check(not run.restarts(), f"{where}: {run.text}")
        if number == signal.SIGKILL:
            check(run.code == -9 and len(losses(folder)) < STEPS, f"{where}: {run.code}, ranks went on to step {len(losses(folder))}")
        elif name != "mpirun":  # whose own exit code it is
            check(run.code == 130 and '"event":"interrupted"' in run.text, f"{where}: {run.code}: {run.text}")
        nothing_left(where, before)

# torchrun's own restart: the same port and job, another count; `--resume` from the start.
folder = scratch / "torchrun"
meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
           "TORCHELASTIC_RUN_ID": "restarts", "TORCHELASTIC_MAX_RESTARTS": "3"}
for count in range(3):
    ranks = [Run(folder, ["--resume"], meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": str(count)})
             for rank in range(2)]
    if count < 2:
        here = saved_step(folder)
        wait_until(lambda: saved_step(folder) > here, ranks[0])
        os.kill(ranks[count].pid, signal.SIGKILL)
    codes = [rank.finish() for rank in ranks]
    check((codes == [0, 0]) if count == 2 else (codes[count] == -9 and codes[1 - count] not in (0, 2)), f"torchrun, {count} restarts: {codes}")
check_same("torchrun", folder)

# Impossible options.
for words, more, expected_text in [
        (["--restarts", "3"], {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())},
         "--restarts beside a launcher"),
        (["--restarts", "3", "--every", "0"], {}, "--every is given 2 times"),
        (["--launch", "tcp"], {}, "--launch chooses the launcher of --restarts: it needs --restarts N"),
        (["--restarts", "3", "--launch", " "], {}, "--launch is empty: it needs tcp or a command"),
        (["--restarts", "3", "--launch", "no-such-launcher"], {}, "restarts: cannot start 'no-such-launcher': No such file or directory"),
        (["--restarts", "3", "--tp", "3"], {}, "tp(3)")]:
    if more is not None:
        run = Run(scratch / "never", words, more)
        check(run.finish() == 2 and expected_text in run.text and not run.restarts(), f"{words}: {run.code}: {run.text}")
run = Run(scratch / "whole", ["--restarts", "3"])
check(run.finish() == 2 and "holds a checkpoint of step 60 of an earlier run" in run.text, f"an earlier run: {run.code}: {run.text}")
alone = subprocess.run([TRAIN, "--restarts", "3", "--checkpoint", str(scratch / "never")], capture_output=True, text=True, timeout=60)
check(alone.returncode == 2 and "--restarts beside --every 0" in alone.stderr, f"--every: {alone}")
shutil.rmtree(scratch)
finish()
