# SPDX-License-Identifier: Apache-2.0
"""Runs a PyTorch script on ranks over Gloo, one process of one thread each. Imported by the benchmarks that compare with PyTorch.

    result = torch_ranks.run("pytorch_training.py", ["--mode", "dp"], libraries=..., unlock=...)

Intel's MKL takes a slow path on other makers' processors; `unlock` names the library that makes it take Intel's path, and
None leaves PyTorch as it comes.
"""

import json
import os
import pathlib
import platform
import socket
import subprocess
import sys


def run(script, options, libraries, unlock=None, ranks=2, timeout_s=900):
    """The JSON object that one of the ranks prints."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    started = []
    for rank in range(ranks):
        environment = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                                    "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
                                    "LD_LIBRARY_PATH": libraries + ":" + os.environ.get("LD_LIBRARY_PATH", "")}
        if unlock:
            environment["LD_PRELOAD"] = unlock
        started.append(subprocess.Popen([sys.executable, str(script), *options], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True))
    outputs = [rank.communicate(timeout=timeout_s) for rank in started]
    lines = [line for out, _ in outputs for line in out.splitlines() if line.startswith("{")]
    if len(lines) != 1:
        raise SystemExit("PyTorch failed:\n" + "\n".join(error[-3000:] for _, error in outputs))
    return json.loads(lines[0])


def processor():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        facts = {line.split(":")[0].strip(): line.split(":")[1].strip() for line in lines if ":" in line}
        wide = "AVX-512" if "avx512f" in facts.get("flags", "") else "AVX2" if "avx2" in facts.get("flags", "") else ""
        return f"{facts.get('model name', platform.machine())} (family {facts.get('cpu family', '?')}, model {facts.get('model', '?')}{', ' + wide if wide else ''}), {os.cpu_count()} cores"
    except OSError:
        return platform.machine()


def note_load():
    """The load average, with a note if other programs keep the machine busy."""
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"note: other programs keep this machine busy (load average {load:.1f}): speeds and ratios will not be those of a quiet one", file=sys.stderr)
    return load
