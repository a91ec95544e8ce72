# SPDX-License-Identifier: Apache-2.0
"""Bytes of another program in the connections between honest ranks: every rank ends with exit code 1 and an error, and one of them names the rank
whose connection delivered the bytes. The same holds for the connections of the heartbeats to the store; there all ranks give the reason.
`--runs 220` is the long form."""
import argparse
import ctypes
import os
import random
import re
import sys
import time

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
import ranks
from ranks import check, check_in_time, finish, free_port, start

arguments = argparse.ArgumentParser()
arguments.add_argument("--runs", type=int, default=12)
arguments.add_argument("--seed", type=int, default=1)
arguments = arguments.parse_args()
generator = random.Random(arguments.seed)
library = ctypes.CDLL(None, use_errno=True)
PIDFD_GETFD = 438


def sockets(pid):
    """Inodes of the sockets of a process, and their descriptors."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            inode = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
        if inode:
            found[inode[1]] = int(name)
    return found


def connection(processes, of, to, store_port, store):
    """The descriptor, in rank `of`, of its connection to rank `to`: that of its messages, or the one of which rank 0's store is an end."""
    with open("/proc/net/tcp") as table:
        lines = [line.split() for line in table.readlines()[1:]]
    established = {(words[1], words[2]): words[9] for words in lines if words[3] == "01"}
    mine, theirs = sockets(processes[of].pid), sockets(processes[to].pid)
    for (local, remote), inode in established.items():
        ports = {int(address.split(":")[1], 16) for address in (local, remote)}
        other_end = established.get((remote, local))
        if inode in mine and other_end in theirs and (store_port in ports) == (store is not None):
            if store is None or (int(local.split(":")[1], 16) == store_port) == (store == "from the store"):
                return mine[inode]
    return None


def inject(pid, descriptor, data):
    """Writes to a socket of another process; False where the system does not let this one."""
    process = os.pidfd_open(pid)
    copy = library.syscall(PIDFD_GETFD, process, descriptor, 0)
    os.close(process)
    if copy < 0:
        return False
    try:
        while data:
            try:
                data = data[os.write(copy, data):]
            except BlockingIOError:
                time.sleep(0.001)
    except OSError:  # the connection has ended: the first bytes were enough
        pass
    os.close(copy)
    return True


slowest = 0
for run in range(arguments.runs):
    port, world = free_port(), generator.choice((2, 3))
    how = generator.choice(("messages", "collectives", "slow", "long"))
    changes = generator.choice(({"WEFT_SHARED_MEMORY": "0"}, {}))  # with shared memory, collectives leave the connections idle
    processes = [start(rank, world, [how], port, changes) for rank in range(world)]
    for process in processes:
        process.stdout.readline()  # it has met the others
    time.sleep(generator.random() * 0.2)
    victim, source = generator.sample(range(world), 2)
    store = generator.choice((None, None, "to the store", "from the store"))
    if store is not None:  # the member may be rank 0 itself
        member = generator.randrange(world)
        source, victim = (member, 0) if store == "to the store" else (0, member)
    data = generator.choice((generator.randbytes(generator.randrange(48, 500)), b"\xff" * 65536, bytes(200), b"tfew" + generator.randbytes(100), b"\x05",
                             b"\x00" + generator.randbytes(generator.randrange(47))))  # less than a head
    if store is not None and generator.random() < 0.3:
        data = b"t"  # the first byte of a frame: found with the next heartbeat
    descriptor = connection(processes, source, victim, port, store)
    if descriptor is None or not inject(processes[source].pid, descriptor, data):
        for process in processes:
            process.kill()
        finish(processes)
        print("skipped: this process may not write to the sockets of others (pidfd_getfd)")
        sys.exit(77)
    begin = time.monotonic()
    results = finish(processes, 40)
    slowest = max(slowest, time.monotonic() - begin)
    what = f"run {run}: {how}, {len(data)} bytes {data[:6]} from rank {source} to rank {victim} of {world}, {store}, {changes}"
    check(all(code == 1 for code, _, _ in results), what, results)
    check("terminate called" not in str(results), what, results)
    check(any(f"bytes from rank {source} are no valid frame" in err for _, _, err in results), what, results)
    if store == "to the store":
        check(all(f"bytes from rank {source} are no valid frame" in out for _, out, _ in results), what, results)
check_in_time(slowest < 10, "the slowest end", f"{slowest:.1f} s")
print(f"{arguments.runs} runs, the slowest ended {slowest:.2f} s after the bytes came")
sys.exit(1 if ranks.bad else 0)
