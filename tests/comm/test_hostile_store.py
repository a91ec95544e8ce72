# SPDX-License-Identifier: Apache-2.0
# covers: weft/comm/store/listener.hpp weft/comm/store/connector.hpp weft/comm/store/protocol.hpp weft/comm/store/socket.hpp
"""Figure 19: strangers at every port of a job, while its ranks meet and while it runs. The job is not disturbed, nothing is read or written without
the secret, and a connection costs next to nothing. `--connections 10000` is the long form."""
import argparse
import os
import random
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
import ranks
from ranks import check, check_in_time, finish, free_port, hello, job, listening_ports, receive, secret, start

arguments = argparse.ArgumentParser()
arguments.add_argument("--connections", type=int, default=300)
arguments.add_argument("--seed", type=int, default=1)
arguments = arguments.parse_args()
generator = random.Random(arguments.seed)
genuine = {"WEFT_SECRET": secret, "WEFT_JOB": job}
CHALLENGE = 28


def connect(port):
    s = socket.create_connection(("127.0.0.1", port), timeout=8)
    s.settimeout(8)
    return s


leaked = 0
recorded = []


def attack(port, kind, held):
    """One stranger. Every answer after the challenge must be a refusal that proves nothing."""
    global leaked
    try:
        s = connect(port)
        if kind == "leaves":
            return s.close()
        if kind == "half open":
            held.append(s)
            return None
        challenge = receive(s, CHALLENGE)
        nonce = challenge[12:]
        if kind == "garbage":
            s.sendall(generator.randbytes(generator.randrange(1, 500)))
        elif kind == "0xff":
            s.sendall(b"\xff" * 65536)
        elif kind == "wrong secret":
            s.sendall(hello(generator.randrange(4), 3, nonce, key="another secret of 32 characters!"))
        elif kind == "no secret":
            s.sendall(hello(generator.randrange(4), 3, nonce, key=""))
        elif kind == "replay":  # what opened one connection opens no other
            recorded.append(hello(1, 3, nonce))
            s.close()
            s = connect(port)
            receive(s, CHALLENGE)
            s.sendall(recorded[-1])
        elif kind == "other port":  # proved to the store, sent to a rank, and the reverse
            s.sendall(hello(1, 3, nonce, to=generator.randrange(3), key="x" * 32))
        elif kind == "huge lengths":  # a request before the handshake
            s.sendall(b"\x01" + struct.pack("<III", 1, 0xffffffff, 0xffffffff) + b"x" * 200)
        elif kind == "slow":
            for byte in hello(1, 3, nonce, key="y" * 32)[:20]:
                s.sendall(bytes([byte]))
            held.append(s)
            return None
        s.shutdown(socket.SHUT_WR)
        answer = receive(s, 4096)
        if answer and (answer[0] == 0 or len(answer) < 41 or answer[9:41] != bytes(32)):
            leaked += 1
        s.close()
    except OSError:
        pass
    return None


kinds = ["garbage", "0xff", "wrong secret", "no secret", "replay", "other port", "huge lengths", "slow", "half open", "leaves"]


def memory(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def run(turns, strangers):
    """A world of three, disturbed while it runs. Returns the seconds of its work and the growth of rank 0 in MiB."""
    port, held = free_port(), []
    processes = [start(rank, 3, ["slow", str(turns)], port, genuine) for rank in range(3)]
    ok = processes[0].stdout.readline().startswith("rank 0 has met 3")
    before, sent, end = memory(processes[0].pid), 0, time.monotonic() + 120
    begin = time.monotonic()
    while sent < strangers and processes[0].poll() is None and time.monotonic() < end:
        attack(port, kinds[sent % len(kinds)], held)
        sent += 1
        while len(held) > 40:
            held.pop(0).close()
    rate = sent / max(time.monotonic() - begin, 1e-9)
    after = memory(processes[0].pid) if processes[0].poll() is None else before
    results = finish(processes, 120)
    for s in held:
        s.close()
    check(ok and all(code == 0 for code, _, _ in results), f"a job among {sent} strangers", results)
    said = [line for _, _, err in results for line in err.splitlines()]
    check(strangers == 0 or 1 <= len(said) <= 1 + (time.monotonic() - begin) / 60, "one line about strangers", said)
    took = [float(line.split()[-1]) for _, out, _ in results for line in out.splitlines() if " took " in line]
    return max(took, default=0), after - before, sent, rate


# Strangers at the store's port while the job runs.
turns = max(200, int(arguments.connections / 2))
alone = min(run(turns, 0)[0] for _ in range(2))
beside, growth, sent, rate = run(turns, arguments.connections)
check(growth <= 8, "memory beside strangers", f"{growth:.1f} MiB")
check_in_time(beside < 2 * alone + 1, "time beside strangers", f"{beside:.2f} s instead of {alone:.2f} s")
check(leaked == 0, "a stranger was believed", leaked)


# Slots held: idle connections, and such as are renewed, while ranks meet.
def meet_beside(disturb, what, most_s=8):
    """Seconds that the last of three ranks takes for everything, if the other two wait for it among strangers."""
    port = free_port()
    processes = [start(rank, 3, ["collectives", "20"], port, genuine) for rank in (0, 1)]
    time.sleep(0.4)
    stop = threading.Event()
    stranger = threading.Thread(target=disturb, args=(port, processes, stop))
    stranger.start()
    time.sleep(1.2)
    begin = time.monotonic()
    processes.append(start(2, 3, ["collectives", "20"], port, genuine))
    results = finish(processes, 25)
    took = time.monotonic() - begin
    stop.set()
    stranger.join()
    good = all(code == 0 for code, _, _ in results) and took < most_s
    check(good, what, f"took {took:.1f} s: {results}")
    said = [line.split(": a stranger")[0] for _, _, err in results for line in err.splitlines()]
    check(len(said) == len(set(said)), what + ": each port reports strangers once", said)
    return took


def idle(port, processes, stop):
    held = [connect(port) for _ in range(36)]
    stop.wait(60)
    for s in held:
        s.close()


def renewed(port, processes, stop):
    held = []
    while not stop.is_set():
        fresh = []
        for _ in range(40):
            try:
                fresh.append(connect(port))
            except OSError:
                pass
        for s in held:
            s.close()
        held = fresh
        stop.wait(2)
    for s in held:
        s.close()


def many(port, processes, stop):  # more than any cap
    held = []
    while not stop.is_set():
        try:
            held.append(connect(port))
        except OSError:
            pass
        if len(held) > 400:
            held.pop(0).close()


found = set()


def everywhere(kind):
    def disturb(port, processes, stop):
        held = []
        while not stop.is_set():
            for other in listening_ports([p.pid for p in processes]):
                found.add(other)
                attack(other, kind, held)
            stop.wait(0.01)
        for s in held:
            s.close()
    return disturb


slots = max(meet_beside(idle, "36 idle connections"), meet_beside(renewed, "40 connections renewed every 2 s"), meet_beside(many, "400 connections"))
ports = 0
longest = 0
for kind in ("0xff", "leaves", "garbage", "replay", "wrong secret", "half open"):
    found.clear()
    longest = max(longest, meet_beside(everywhere(kind), f"a stranger ({kind}) on every listening port"))
    check(len(found) >= 2, "ports were found", found)
    ports += len(found)
check(leaked == 0, "a stranger was believed while ranks met", leaked)
print(f"figure 19: strangers {sent} per_s {rate:.0f} job_slower_percent {100 * (beside / alone - 1):.1f} growth_MiB {growth:.2f} believed {leaked} "
      f"slots_held_meeting_s {slots:.2f} ports_disturbed {ports} meeting_s {longest:.2f} failed {ranks.bad}")
sys.exit(1 if ranks.bad else 0)
