# SPDX-License-Identifier: Apache-2.0
"""Ranks of tests/comm/programs/meeting.cpp as processes that a test starts, stops and kills itself, without a launcher."""
import hashlib
import hmac
import os
import re
import select
import struct
import subprocess
import sys
import time

from free_port import free_port

program = os.path.join(os.environ["WEFT_BUILD"], "tests", "program_meeting")
secret, job = "0123456789abcdef0123456789abcdef", "the job"
launchers = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC", "WEFT_SECRET", "WEFT_STORE", "WEFT_R", "WEFT_T",
             "WEFT_JOB", "WEFT_HEARTBEAT", "WEFT_SHARED")
clean = {k: v for k, v in os.environ.items() if not k.startswith(launchers) or k.startswith("WEFT_TORCHRUN")}
bad = 0


def has(backend):
    return "comm::" + backend in subprocess.run(["nm", "-C", program], capture_output=True, text=True).stdout


def check(good, what, detail="", word="failed"):
    global bad
    if not good:
        bad += 1
        print(f"{word}: {what} {detail}", flush=True)
    return good


def check_in_time(good, what, detail):
    """For limits in seconds only: a test that is only late runs a second time (failed_tests.py)."""
    return check(good, what, detail, "late")


def start(rank, world, how, port, changes=None, **options):
    environment = clean | {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                           "MASTER_PORT": str(port), "WEFT_RENDEZVOUS_S": "20", "WEFT_TIMEOUT_S": "60"} | (changes or {})
    environment = {k: v for k, v in environment.items() if v is not None}
    return subprocess.Popen([program, *how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **options)


def finish(processes, limit=30):
    """Exit code, output and errors of each; a process that does not end within the limit is killed and has the code None."""
    begin, results = time.monotonic(), []
    for process in processes:
        try:
            out, err = process.communicate(timeout=max(0.1, limit - (time.monotonic() - begin)))
            results.append((process.returncode, out, err))
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            results.append((None, out, err))
    return results


# --- the protocol of comm/store/protocol.hpp, as a stranger, or another job of the same user, would speak it --------------------
THE_STORE = 0xffffffff


def receive(s, count):
    got = b""
    while len(got) < count:
        more = s.recv(count - len(got))
        if not more:
            break
        got += more
    return got


def hello(rank, world, nonce, key=secret, name=job, to=THE_STORE, version=5):
    text = b"weftstor" + struct.pack("<IIII", version, rank, to, world) + hashlib.sha256(name.encode()).digest() + os.urandom(16)
    return text + hmac.new(key.encode(), text + nonce, hashlib.sha256).digest()


def listening_ports(pids):
    """The TCP ports on which these processes listen now."""
    inodes = set()
    for pid in pids:
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                found = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}"))
                if found:
                    inodes.add(found.group(1))
        except OSError:
            pass
    ports = set()
    with open("/proc/net/tcp") as table:
        for line in table.readlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                ports.add(int(words[1].split(":")[1], 16))
    return ports


def readable(descriptors, seconds):
    return select.select(descriptors, [], [], seconds)[0]
