# SPDX-License-Identifier: Apache-2.0
"""fake_launchers.py NAME ARGUMENTS: the commands of Slurm, Flux and torchrun, and ssh, as far as examples/clusters uses them, for the two
nodes that examples/test_clusters.py makes. Each task has the environment of the caller and the variables that the real launcher sets, no others.
FAKE_NODES is a folder with the state of jobs and two commands: on_node NODE COMMAND runs it among that node's processes, job_on NODE COMMAND as the
script of a job, which can start processes on all nodes."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

NODES = ["node1", "node2"]
folder = pathlib.Path(os.environ["FAKE_NODES"])
name, words = sys.argv[1], sys.argv[2:]
environment = dict(os.environ)


def options_of(words, flags=()):
    """The launcher's options before the program, and the program with its arguments."""
    found = {}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if "=" in word and word.startswith("--"):
            key, value = word.split("=", 1)
        else:
            key, value = word, None if word in flags else words.pop(0)
        found[key] = value
    return found, words


def directives(script, mark):
    found = {}
    for line in pathlib.Path(script).read_text().splitlines():
        if line.startswith(mark + " --"):
            key, _, value = line[len(mark) + 1:].partition("=")
            found[key] = value
    return found


def on(node, command, variables, how="on_node"):
    return subprocess.Popen([folder / how, node, *command], env=environment | {key: str(value) for key, value in variables.items()})


def finish(tasks):
    """The highest exit code, 128 + N for signal N, as srun and flux run return it. Signals go to all tasks."""
    def forward(number, _):
        for task in tasks:
            if task.poll() is None:
                task.send_signal(number)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    return max(128 - code if code < 0 else code for code in [task.wait() for task in tasks])


def sbatch():
    """Runs the script on the first node, again after each `scontrol requeue`, until it ends; the real one returns at once."""
    script, arguments = words[0], words[1:]
    asked = directives(script, "#SBATCH")
    nodes, tasks = int(asked["--nodes"]), int(asked["--ntasks-per-node"])
    job = int(os.environ.get("FAKE_JOB", "4711"))
    marker = folder / f"requeue-{job}"
    for restart in range(10):
        marker.unlink(missing_ok=True)
        variables = {"SLURM_JOB_ID": job, "SLURM_JOBID": job, "SLURM_JOB_NAME": asked["--job-name"], "SLURM_JOB_NODELIST": "node[1-2]",
                     "SLURM_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": nodes, "SLURM_NNODES": nodes, "SLURM_NTASKS": nodes * tasks,
                     "SLURM_NPROCS": nodes * tasks, "SLURM_NTASKS_PER_NODE": tasks, "SLURM_TASKS_PER_NODE": f"{tasks}(x{nodes})",
                     "SLURM_CPUS_PER_TASK": asked["--cpus-per-task"], "SLURM_SUBMIT_DIR": os.getcwd(), "SLURM_SUBMIT_HOST": "login",
                     "SLURM_PROCID": 0, "SLURM_LOCALID": 0, "SLURM_NODEID": 0, "SLURM_GTIDS": 0, "SLURMD_NODENAME": "node1"}
        if restart > 0:
            variables["SLURM_RESTART_COUNT"] = restart
        code = on("node1", ["bash", script, *arguments], variables, "job_on").wait()
        if not marker.exists():
            return code
        print(f"fake slurm: job {job} is requeued", flush=True)
    return 99


def scontrol():
    if words[:2] == ["show", "hostnames"] and words[2] == "node[1-2]":
        print("\n".join(NODES))
        return 0
    if words[0] == "requeue":
        (folder / f"requeue-{words[1]}").touch()
        return 0
    return 1


def srun():
    asked, command = options_of(words)
    if asked["--mpi"] != "none" or asked["--cpus-per-task"] != os.environ["SLURM_CPUS_PER_TASK"]:
        return 1
    count, each = int(os.environ["SLURM_NTASKS"]), int(os.environ["SLURM_NTASKS_PER_NODE"])
    tasks = [on(NODES[rank // each], command,
                {"SLURM_PROCID": rank, "SLURM_LOCALID": rank % each, "SLURM_NODEID": rank // each, "SLURM_STEP_ID": 0, "SLURM_STEPID": 0,
                 "SLURM_STEP_NUM_TASKS": count, "SLURM_STEP_NUM_NODES": len(NODES), "SLURM_STEP_NODELIST": "node[1-2]",
                 "SLURM_STEP_TASKS_PER_NODE": f"{each}(x2)", "SLURM_GTIDS": f"{rank // each * each},{rank // each * each + 1}",
                 "SLURMD_NODENAME": NODES[rank // each], "SLURM_LAUNCH_NODE_IPADDR": "10.77.1.1"}) for rank in range(count)]
    return finish(tasks)


def flux():
    if words == ["getattr", "jobid"]:
        print("f3ETxsR9H")
    elif words == ["hostlist", "--nth=0", "instance"]:
        print(NODES[0])
    elif words[0] == "batch":
        return on("node1", ["bash", *words[1:]], {"FLUX_URI": "local:///run/flux/local"}, "job_on").wait()
    elif words[0] == "run":
        asked, command = options_of(words[1:])
        count, nodes = int(asked["--ntasks"]), int(asked["--nodes"])
        number = len(list(folder.glob("flux-*")))
        (folder / f"flux-{number}").touch()
        pmi = {} if asked.get("-o") == "pmi=off" else {"PMI_SIZE": count, "PMI_FD": 5, "PMI_SPAWNED": 0}
        tasks = [on(NODES[rank * nodes // count], command,
                    {"FLUX_JOB_ID": f"f{number}", "FLUX_JOB_SIZE": count, "FLUX_JOB_NNODES": nodes, "FLUX_TASK_RANK": rank,
                     "FLUX_TASK_LOCAL_ID": rank % (count // nodes)} | pmi | ({"PMI_RANK": rank} if pmi else {})) for rank in range(count)]
        return finish(tasks)
    else:
        return 1
    return 0


def ssh():
    """As sshd: the command in a shell of the other node, without the caller's variables except those of the nodes themselves."""
    while words[0].startswith("-"):
        words.pop(0)
    kept = {key: value for key, value in environment.items() if key in ("PATH", "HOME", "USER") or key.startswith(("FAKE_", "OMPI_"))}
    os.execve(folder / "on_node", ["on_node", words[0], "bash", "-c", " ".join(words[1:])], kept)


def rendezvous(place, least, most, last_call_s=2):
    """The nodes of one round, the same for all: as soon as the most are there, or some time after the last of at least the least. `place` is a folder."""
    place.mkdir(parents=True, exist_ok=True)
    (place / socket.gethostname()).touch()
    closed = place / "closed"
    while not closed.exists():
        here = [node for node in NODES if (place / node).exists()]
        waited = time.time() - max((place / node).stat().st_mtime for node in here)
        if len(here) == most or (len(here) >= least and waited > last_call_s):
            draft = place / f"draft-{socket.gethostname()}"
            draft.write_text(" ".join(here))
            try:
                os.link(draft, closed)  # by one of them
            except FileExistsError:
                pass
        time.sleep(0.05)
    return closed.read_text().split()


def torchrun():
    """An agent with the rendezvous c10d: it listens on MASTER_PORT itself, and starts all its ranks again when one fails, with the nodes that are left if
    --nnodes is a range MIN:MAX. A node that is lost does not come back."""
    asked, command = options_of(words, ("--no-python",))
    least, _, most_nodes = asked["--nnodes"].partition(":")
    least, most_nodes = int(least), int(most_nodes or least)
    each, most = int(asked["--nproc-per-node"]), int(asked["--max-restarts"])
    host, port = asked["--rdzv-endpoint"].split(":")
    here = socket.gethostname()
    if here == host:
        listener = socket.create_server((host, int(port)))
    for restart in range(most + 1):
        nodes = rendezvous(folder / f"torchrun-{asked['--rdzv-id']}" / str(restart), least, most_nodes)
        group = nodes.index(here)
        tasks = []
        for local in range(each):
            rank = group * each + local
            variables = {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": len(nodes) * each, "LOCAL_WORLD_SIZE": each, "GROUP_RANK": group,
                         "GROUP_WORLD_SIZE": len(nodes), "ROLE_RANK": rank, "ROLE_WORLD_SIZE": len(nodes) * each, "ROLE_NAME": "default", "MASTER_ADDR": host,
                         "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": asked["--rdzv-id"], "TORCHELASTIC_MAX_RESTARTS": most,
                         "TORCHELASTIC_RESTART_COUNT": restart if group == 0 else 0, "TORCHELASTIC_USE_AGENT_STORE": True}
            tasks.append(subprocess.Popen(command, env=environment | {key: str(value) for key, value in variables.items()}))
        while all(task.poll() is None for task in tasks) or (any(task.poll() is None for task in tasks) and not any(task.poll() for task in tasks)):
            time.sleep(0.05)
        if not any(task.wait() for task in tasks if task.poll() is not None):
            return 0
        time.sleep(3)  # weft's ranks name the lost one within 2 s; the agent then kills the others
        for task in tasks:
            task.kill()
            task.wait()
    return 1


sys.exit({"sbatch": sbatch, "scontrol": scontrol, "srun": srun, "flux": flux, "ssh": ssh, "torchrun": torchrun}[name]())
