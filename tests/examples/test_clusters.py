# SPDX-License-Identifier: Apache-2.0
"""The scripts of examples/clusters on two nodes: network namespaces with an address, a host name and processes of their own, joined by a
virtual cable. The launchers are those of tests/support/fake_launchers.py, mpirun is the real one. A rank of the second node is killed, ranks are
preempted, the cable is cut: each run ends with the losses of an undisturbed one. Needs root and iproute2, and is skipped without
them."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

source, examples = pathlib.Path(os.environ["WEFT_SOURCE"]), pathlib.Path(os.environ["WEFT_EXAMPLES"])
program, tool = examples / "04_train_gpt", examples / "checkpoint"
scripts = source / "examples/clusters"
if not tool.exists():
    print("skipped: built without xxhash.h: no checkpoints")
    sys.exit(77)
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-clusters-"))
hosts = {"node1": f"weftc{os.getpid()}a", "node2": f"weftc{os.getpid()}b"}
cables = {node: f"c{os.getpid()}{letter}" for node, letter in zip(hosts, "ab")}
addresses = {"node1": "10.77.1.1", "node2": "10.77.1.2"}
STEPS, EVERY = 60, 5
failures = 0
keepers = []


def check(good, what):
    global failures
    if not good:
        failures += 1
        print("failed:", what, flush=True)


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True).returncode == 0


def make_nodes():
    good = all(ip("netns", "add", host) for host in hosts.values())
    good = good and ip("link", "add", cables["node1"], "type", "veth", "peer", "name", cables["node2"])
    for node, host in hosts.items():
        good = good and ip("link", "set", cables[node], "netns", host) and ip("-n", host, "addr", "add", addresses[node] + "/24", "dev", cables[node])
        good = good and ip("-n", host, "link", "set", "lo", "up") and ip("-n", host, "link", "set", cables[node], "up")
    (scratch / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{address} {node}\n" for node, address in addresses.items()))
    # A node has processes of its own, so that no rank finds the memory of another node. The script of a job runs outside of them, since it starts
    # processes on both nodes.
    if not good:
        return False
    started = []
    for node, host in hosts.items():
        keeper = subprocess.Popen(["ip", "netns", "exec", host, "unshare", "-m", "-u", "-p", "-f", "--kill-child", "--mount-proc", "bash", "-c",
                                   f"hostname {node} && mount --bind {scratch}/hosts /etc/hosts && echo && exec sleep infinity"], stdout=subprocess.PIPE)
        good = keeper.stdout.readline() == b"\n"
        keepers.append(keeper)
        started.append(subprocess.run(["pgrep", "-P", str(keeper.pid)], capture_output=True, text=True).stdout.strip())
        if not good or not started[-1]:
            return False
    enter, batch = scratch / "on_node", scratch / "job_on"
    enter.write_text(f"""#!/bin/bash
case $1 in node1) first={started[0]} ;; node2) first={started[1]} ;; *) echo "no node $1"; exit 255 ;; esac
shift
exec nsenter -t "$first" -m -u -n -p bash -c 'cd "$1"; shift; exec "$@"' - "$PWD" "$@"
""")
    batch.write_text(f"""#!/bin/bash
node=$1; shift
exec ip netns exec {hosts["node1"]} unshare -m -u bash -c 'hostname "$1"; mount --bind {scratch}/hosts /etc/hosts; shift; exec "$@"' - "$node" "$@"
""")
    enter.chmod(0o755)
    batch.chmod(0o755)
    (scratch / "bin").mkdir()
    for name in ("sbatch", "srun", "scontrol", "flux", "ssh", "torchrun"):
        command = scratch / "bin" / name
        command.write_text(f'#!/bin/bash\nexec {sys.executable} -B {source}/tests/support/fake_launchers.py {name} "$@"\n')
        command.chmod(0o755)
    return good and subprocess.run([enter, "node2", "hostname"], capture_output=True, text=True).stdout == "node2\n"


launchers = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC", "WEFT_SECRET", "WEFT_STORE", "WEFT_R", "WEFT_JOB", "WEFT_H")
user = {k: v for k, v in os.environ.items() if not k.startswith(launchers)}
user |= {"PATH": f"{scratch}/bin:{os.environ['PATH']}", "FAKE_NODES": str(scratch), "TRAIN_GPT": str(program), "EVERY": str(EVERY)}
text = scratch / "text.txt"
text.write_bytes(bytes(random.Random(0).choices(b"abcdefgh \n", k=20000)))
training = (f"--tp 2 --optimizer adamw --data {text} --layers 2 --width 64 --heads 2 --sequence 64 --validation-fraction 0 --sample 0 --steps {STEPS} --zero 1 "
            "--seed 5 --reproducible --json").split()
RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


def ranks_of(name):
    """The processes that train in this run, by rank."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text() == program.name[:15] + "\n":
                of = dict(word.split("=", 1) for word in (entry / "environ").read_text().split("\0") if "=" in word)
                if of.get("FAKE_RUN") == f"{scratch}/{name}" and any(key in of for key in RANK_NAMES):
                    found[int(next(of[key] for key in RANK_NAMES if key in of))] = int(entry.name)
        except (OSError, ValueError):
            pass  # it has ended
    return found


def kill_node(node, name):
    """Kills all processes of a run on a node, its launcher's too."""
    for pid in subprocess.run(["ip", "netns", "pids", hosts[node]], capture_output=True, text=True).stdout.split():
        try:
            if f"FAKE_RUN={scratch}/{name}\0" in pathlib.Path(f"/proc/{pid}/environ").read_text():
                os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass  # it has ended


class Run:
    """A script as a user starts it, with both streams in one."""

    def __init__(self, name, command, more=()):
        self.name, self.folder = name, scratch / name
        self.process = subprocess.Popen(command, env=user | {"RUN": str(self.folder), "FAKE_RUN": str(self.folder)} | dict(more), cwd=scratch,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stdout))
        self.reader.start()

    def text(self):
        return "".join(line for line in list(self.lines) if not line.startswith('{"event": "step"'))

    def wait_for(self, condition, what, limit=60):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if condition():
                return True
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        check(False, f"{self.name}: {what} does not come: {self.text()}")
        return False

    def step(self):
        steps = [json.loads(line)["step"] for line in list(self.lines) if line.startswith('{"event": "step"')]
        return steps[-1] if steps else -1

    def saved(self):
        try:
            return int((self.folder / "checkpoints/latest").read_text().strip()[5:])
        except (OSError, ValueError):
            return 0

    def disturb(self, ranks, number, after):
        """Sends a signal to these ranks once a checkpoint after this step is there; its moment."""
        if self.wait_for(lambda: self.saved() > after and len(ranks_of(self.name)) == 4, f"a checkpoint after step {after}"):
            here = ranks_of(self.name)
            for rank in ranks:
                os.kill(here[rank], number)
        return time.monotonic()

    def finish(self, limit=90):
        try:
            self.code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.code = "hangs"
        for pid in ranks_of(self.name).values() if self.code == "hangs" else ():
            os.kill(pid, signal.SIGKILL)
        self.reader.join()
        return self.code


def losses(folder):
    """The loss of each step; a step that was done again must have one loss."""
    found = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if "loss" in entry and "step" in entry and found.setdefault(entry["step"], entry["loss"]) != entry["loss"]:
            check(False, f"{folder.name}: step {entry['step']} has the losses {found[entry['step']]} and {entry['loss']}")
    return found


def check_whole(run, restarts):
    """The run ended well, with the losses of the undisturbed one, and began as often as it was disturbed."""
    check(run.finish() == 0, f"{run.name}: exit code {run.code}: {run.text()}")
    begun = sum(line.startswith('{"event":"layout"') for line in run.lines)
    check(begun == restarts + 1, f"{run.name}: it began {begun} times, not {restarts + 1}: {run.text()}")
    check(losses(run.folder) == expected, f"{run.name}: other losses")
    print(f"{run.name}: after {time.monotonic() - began:.0f} s", flush=True)


def check_secret(run):
    secret = run.folder / "secret"
    check(stat.S_IMODE(secret.stat().st_mode) == 0o600 and len(secret.read_text()) >= 32, f"{run.name}: the secret's mode or size")


LOST = r"weft: rank \d+.*: rank 2 is lost, "
try:
    if not make_nodes():
        print("skipped: network namespaces cannot be made here")
        sys.exit(77)
    began = time.monotonic()
    whole = subprocess.run([program, "--ranks", "4", *training, "--output", scratch / "whole"], env=user, capture_output=True, text=True, timeout=60)
    expected = losses(scratch / "whole")
    check(whole.returncode == 0 and len(expected) == STEPS, f"the undisturbed run: {whole}")

    # Slurm: a rank of the second node is killed, then the job is preempted (SIGTERM to all ranks): two requeues.
    run = Run("slurm", ["sbatch", str(scripts / "slurm.sh"), *training])
    killed = run.disturb([2], signal.SIGKILL, 0)
    run.wait_for(lambda: "is requeued" in run.text(), "a requeue", 20)
    check(time.monotonic() - killed < 10, f"slurm: {time.monotonic() - killed:.1f} s from the kill to the requeue")
    check(len(re.findall(LOST, run.text())) == 1, f"slurm: the lost rank is not named once: {run.text()}")
    run.disturb([0, 1, 2, 3], signal.SIGTERM, run.saved())
    check_whole(run, 2)
    check(run.text().count("interrupted") == 1, f"slurm: {run.text()}")
    check_secret(run)

    # The cable is cut: each side names a rank of the other one after WEFT_HEARTBEAT_S; once it is mended, the requeued job continues.
    run = Run("cut", ["sbatch", str(scripts / "slurm.sh"), *training], {"WEFT_HEARTBEAT_S": "2", "FAKE_JOB": "4712"})
    if run.wait_for(lambda: run.saved() > 0, "a checkpoint"):
        ip("-n", hosts["node2"], "link", "set", cables["node2"], "down")
        cut = time.monotonic()
        run.wait_for(lambda: "is requeued" in run.text(), "a requeue", 30)
        took = time.monotonic() - cut
        check(2 <= took < 10, f"cut: {took:.1f} s from the cut to the requeue")
        check(re.search(r"rank [23] is lost, nothing was heard of it for 2 s \(WEFT_HEARTBEAT_S\)", run.text())
              and re.search(r"rank 0 is lost, nothing was heard of it for 2 s \(WEFT_HEARTBEAT_S\)", run.text()), f"cut: {run.text()}")
        ip("-n", hosts["node2"], "link", "set", cables["node2"], "up")
    check_whole(run, 1)

    # An elastic job: a rank of the second node is killed, and the three others go on; the cable is cut, and the two of the first node go on. All in the same
    # processes, without a file. The last rank of the second node ends by itself. Then Slurm starts the job again, since a task failed, and nothing is left to do.
    longer = [*("600" if word == str(STEPS) else word for word in training[2:]), "--global-batch", "12"]
    whole = subprocess.run([program, "--ranks", "2", *longer, "--output", scratch / "longer"], env=user, capture_output=True, text=True, timeout=120)
    run = Run("elastic", ["sbatch", str(scripts / "slurm.sh"), *longer, "--elastic", "1:4"], {"WEFT_HEARTBEAT_S": "2", "FAKE_JOB": "4715", "EVERY": "600"})
    go_on = [r"elastic: rank 2 was lost \(its process ended or its connection broke\) after step \d+: 3 ranks go on",
             r"elastic: rank 3 was lost \(its process ended or its connection broke\) after step \d+: 2 ranks go on"]
    if run.wait_for(lambda: run.step() >= 3, "the third step"):
        os.kill(ranks_of(run.name)[2], signal.SIGKILL)
    if run.wait_for(lambda: re.search(go_on[0], run.text()), "the line about rank 2") and run.wait_for(lambda at=run.step(): run.step() > at + 2, "a step of three"):
        ip("-n", hosts["node2"], "link", "set", cables["node2"], "down")
        cut, at = time.monotonic(), run.step()
        run.wait_for(lambda: re.search(go_on[1], run.text()) and run.step() > at + 2, "a step of two", 20)
        took = time.monotonic() - cut
        check(2 <= took < 12, f"elastic: {took:.1f} s from the cut to the next steps")
        print(f"elastic: {took:.1f} s from the cut to the next steps, WEFT_HEARTBEAT_S is 2")
        run.wait_for(lambda: 3 not in ranks_of(run.name), "the end of rank 3", 20)
        ip("-n", hosts["node2"], "link", "set", cables["node2"], "up")
    check(run.finish() == 0, f"elastic: exit code {run.code}: {run.text()}")
    check("elastic: the rendezvous of the ranks is lost: its process ended or its connection broke" in run.text(), f"elastic: the end of rank 3: {run.text()}")
    check(run.text().count("is requeued") == 1, f"elastic: {run.text()}")
    check(whole.returncode == 0 and losses(run.folder) == losses(scratch / "longer"), f"elastic: other losses than those of {whole}")

    # The other launchers: a rank of the second node is killed.
    for name, command, more in [("flux", ["flux", "batch", str(scripts / "flux.sh"), *training], {}),
                                ("torchrun", ["bash", str(scripts / "torchrun.sh"), *training], {"NODES": "node1 node2"})]:
        if name == "torchrun":  # from the first node, since no other machine reaches these addresses
            command = [str(scratch / "job_on"), "node1", *command]
        run = Run(name, command, more)
        run.disturb([2], signal.SIGKILL, 0)
        check_whole(run, 1)
        check(len(re.findall(LOST, run.text())) == 1, f"{name}: the lost rank is not named once: {run.text()}")
        check_secret(run)

    # torchrun --nnodes 1:2: all processes of the second node are killed, and the first one goes on alone from the newest checkpoint.
    run = Run("torchrun-range", [str(scratch / "job_on"), "node1", "bash", str(scripts / "torchrun.sh"), *training], {"NODES": "node1 node2", "NNODES": "1:2"})
    if run.wait_for(lambda: run.saved() > 0 and len(ranks_of(run.name)) == 4, "a checkpoint"):
        kill_node("node2", run.name)
    check_whole(run, 1)
    worlds = [json.loads(line)["world"] for line in run.lines if line.startswith('{"event":"layout"')]
    check(worlds == [4, 2], f"torchrun --nnodes 1:2: worlds of {worlds} ranks")

    # PBS, with the mpirun of OpenMPI: only its ssh is not the real one.
    symbols = subprocess.run(["nm", "-C", program], capture_output=True, text=True).stdout
    mpirun = os.environ.get("WEFT_MPIRUN_EXECUTABLE") or "mpirun"
    if "comm::Mpi::" in symbols and shutil.which(mpirun) and "Open MPI" in subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout:
        (scratch / "nodefile").write_text("node1\nnode1\nnode2\nnode2\n")
        pbs = {"PBS_JOBID": "4711.server", "PBS_NODEFILE": str(scratch / "nodefile"), "PBS_O_WORKDIR": str(scratch), "PBS_JOBNAME": "train_gpt",
               "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_TASKNUM": "1", "PBS_NODENUM": "0", "OPTIONS": " ".join(training)}
        site = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm_rsh_agent": str(scratch / "bin/ssh"),
                "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_mpi_yield_when_idle": "1"}
        site["PATH"] = f"{scratch}/bin:{pathlib.Path(shutil.which(mpirun)).parent}:{os.environ['PATH']}"
        run = Run("pbs", [str(scratch / "job_on"), "node1", "bash", str(scripts / "pbs.sh")], pbs | site)
        run.disturb([2], signal.SIGKILL, 0)
        check_whole(run, 1)
        check("weft: restart 1 of 5 from step " in run.text(), f"pbs: {run.text()}")
    else:
        print("pbs.sh is left out: train_gpt is built without OpenMPI")

    # Another version of weft on the second node: one line, exit code 2, and no requeue. A type has another name in this copy of the program.
    (scratch / "versions").mkdir()
    other = scratch / "versions" / program.name
    other.write_bytes(program.read_bytes().replace(b"\0float64\0", b"\0float65\0"))
    other.chmod(0o755)
    chosen = scratch / "by_node"
    chosen.write_text(f'#!/bin/bash\nif [ "$(hostname)" = node2 ]; then exec {other} "$@"; fi\nexec {program} "$@"\n')
    chosen.chmod(0o755)
    run = Run("versions", ["sbatch", str(scripts / "slurm.sh"), *training], {"TRAIN_GPT": str(chosen), "FAKE_JOB": "4713"})
    check(run.finish() == 2 and re.fullmatch(r"weft: ranks disagree about the scalar types: rank 0 has .* float64, rank 2 has .* float65: .*\n", run.text()),
          f"two versions: {run.code}: {run.text()}")
    check(not (run.folder / "metrics.jsonl").exists(), "two versions: something was trained")
finally:
    for keeper in keepers:
        keeper.kill()
        keeper.wait()
    for host in hosts.values():
        for pid in subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True).stdout.split():
            os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", host], capture_output=True)
    shutil.rmtree(scratch, ignore_errors=True)
sys.exit(1 if failures else 0)
