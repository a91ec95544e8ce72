# SPDX-License-Identifier: Apache-2.0
# covers: weft/comm/mpi/call_limit.hpp weft/comm/store/secret.hpp
"""Figure 22: misuse ends with a typed error within the deadline, or does not disturb the job at all: a rank twice, two masters, a port taken, a late
joiner, another job, another version, another user, damaged secrets, a communicator whose world has ended, a throw in a user's callback."""
import hashlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ.get("WEFT_SOURCE", "."), "tests", "support"))
import ranks
from ranks import check, finish, free_port, hello, job, receive, secret, start

cases = 0
few = {"WEFT_RENDEZVOUS_S": "5"}  # a busy machine may stand still for a second or two
genuine = {"WEFT_SECRET": secret, "WEFT_JOB": job}


def wait_for_met(process):
    return "has met" in process.stdout.readline()


def expect(what, processes, expected, limit=12):
    """Each process ends with its exit code and, if given, prints this text."""
    global cases
    cases += 1
    results = finish(processes, limit)
    for (code, out, err), (wanted, text) in zip(results, expected):
        check(code == wanted and (text is None or text in out + err), what, f"expected {wanted} and '{text}': {results}")
    return results


port = free_port()
expect("a rank twice", [start(0, 3, ["slow"], port, few), start(1, 3, ["slow"], port, few),
                                 start(1, 3, ["slow"], port, few)], [(1, "rank 1 has come twice"), (1, None), (1, None)])

# Two unnamed masters: the second finds the port taken and reports it to the first, whose ranks may belong to either job.
port = free_port()
first = start(0, 2, ["slow"], port, few)
time.sleep(0.4)
expect("two masters", [start(0, 2, ["slow"], port, few), first],
       [(1, "another process of this job has RANK 0 and serves it"), (1, "rank 0 has come twice")])

# Named jobs do not disturb each other: B's rank 0 finds the port taken, its rank 1 is refused, job A continues.
port = free_port()
a, b = ({"WEFT_JOB": letter} | few for letter in "AB")
first = start(0, 2, ["slow", "100"], port, a)
time.sleep(0.4)
others = [start(0, 2, ["slow", "100"], port, b), start(1, 2, ["slow", "100"], port, b)]
time.sleep(0.4)
last = start(1, 2, ["slow", "100"], port, a)
expect("two jobs on one port", [first, last, *others], [(0, "rank 0 took"), (0, "rank 1 took"), (1, "cannot serve the store"), (1, None)])
check("belongs to another job, this one is A" in others[1].communicate()[1] if not others[1].stderr.closed else True, "two jobs")

# The same without names, each started from a session of its own, as two terminals are.
port = free_port()
scripts = []
for _ in range(2):
    environment = ranks.clean | {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} | few
    scripts.append(subprocess.Popen(["bash", "-c", 'for r in 1 0; do RANK=$r "$@" & done; for j in $(jobs -p); do wait $j; echo code $?; done', "-",
                                     ranks.program, "slow", "100"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                                    start_new_session=True))
    time.sleep(0.05)
codes = [[line for line in out.splitlines() if line.startswith("code")] for _, out, _ in finish(scripts)]
cases += 1
check(sorted(codes) == [["code 0", "code 0"], ["code 1", "code 1"]], "two jobs of two sessions on one port", codes)

# A rank that connects after the rendezvous is refused until its deadline; the job continues.
port = free_port()
processes = [start(rank, 2, ["slow", "800"], port) for rank in range(2)]
check(all(wait_for_met(p) for p in processes), "late joiner", "did not meet")
expect("a late joiner", [start(1, 2, ["slow"], port, {"WEFT_RENDEZVOUS_S": "1"}), *processes],
       [(1, "rank 1 has come twice"), (0, None), (0, None)])

port = free_port()
expect("worlds disagree", [start(0, 2, ["slow"], port, few), start(1, 3, ["slow"], port, few)],
       [(1, "WORLD_SIZE is 3 on rank 1 and 2 on rank 0"), (1, "WORLD_SIZE is 3 on rank 1 and 2 on rank 0")])

# The rank that gives up at its deadline is not the missing one.
for patience in ((3, 4), (4, 3)):
    port = free_port()
    expect("a rank that never comes", [start(rank, 3, ["slow"], port, {"WEFT_RENDEZVOUS_S": str(patience[rank])}) for rank in (0, 1)],
           [(1, "rank 2 of a world of 3 did not come"), (1, "rank 2 of a world of 3 did not come")])

# A rank that is refused tries again: the port belongs to another for a while.
port = free_port()
taken = socket.create_server(("127.0.0.1", port))
late = start(1, 2, ["slow", "5"], port)
time.sleep(0.5)
taken.close()
expect("the port is another's at first", [late, start(0, 2, ["slow", "5"], port)], [(0, None), (0, None)])

port = free_port()
expect("a callback throws", [start(rank, 2, ["callback"], port) for rank in range(2)], [(1, None), (1, "the callback's own error")])
port = free_port()
expect("a world that has ended", [start(rank, 2, ["kept", "3"], port, {"WEFT_TIMEOUT_S": "3"}) for rank in range(2)],
       [(0, "rank 0, axis world, barrier()"), (0, None)], 20)

with socket.create_server(("127.0.0.1", 0)) as taken:
    expect("the port is taken", [start(0, 2, ["slow"], taken.getsockname()[1], few)], [(1, "cannot serve the store")])

# Another version, on either side.
with socket.create_server(("127.0.0.1", 0)) as other:
    rank = start(1, 2, ["slow"], other.getsockname()[1], few | genuine)
    for _ in range(3):
        s, _ = other.accept()
        s.sendall(b"weftstor" + struct.pack("<I", 9) + os.urandom(16))
        s.close()
    expect("a store of another version", [rank], [(1, "speaks version 9 of its protocol")])
port = free_port()
processes = [start(0, 2, ["slow"], port, few | genuine)]
time.sleep(0.4)
with socket.create_connection(("127.0.0.1", port)) as s:
    s.sendall(hello(1, 2, receive(s, 28)[12:], version=9))
    check(b"speaks version 9" in receive(s, 200), "a rank of another version")
expect("a rank of another version", processes, [(1, "rank 1 speaks version 9")])

# Another user of this machine, without any secret given: needs root to become one.
if os.getuid() == 0 and shutil.which("setpriv"):
    user = 54321
    folder = f"/tmp/weft-{user}"
    shutil.rmtree(folder, ignore_errors=True)
    probe = subprocess.run([ranks.program, "throws", "1"], capture_output=True, user=user, group=user)
    if probe.returncode == 0:
        port = free_port()
        mine = start(0, 2, ["slow", "20"], port, few)
        time.sleep(0.3)
        theirs = start(1, 2, ["slow", "20"], port, few, user=user, group=user)
        time.sleep(0.5)
        expect("another user", [mine, start(1, 2, ["slow", "20"], port, few), theirs], [(0, None), (0, None), (1, "another secret")])
        kept = os.stat(folder + "/secret")
        check(kept.st_mode & 0o777 == 0o600 and kept.st_uid == user and os.stat(folder).st_mode & 0o777 == 0o700, "the secret's file", kept)
        for damage, text in ((lambda: os.chmod(folder + "/secret", 0o644), "is not a file of this user's alone"),
                             (lambda: os.truncate(folder + "/secret", 3), "is damaged"),
                             (lambda: (os.chmod(folder, 0o755), os.chown(folder, 0, 0)), "is not this user's alone"),
                             (lambda: (shutil.rmtree(folder), os.symlink("/tmp", folder)), folder)):
            damage()
            expect("a secret that is not one's own", [start(0, 2, ["slow"], free_port(), few, user=user, group=user)], [(1, text)])
            if not os.path.islink(folder):
                os.chmod(folder + "/secret", 0o600)
        os.unlink(folder)
    else:
        print("another user cannot run the program here: left out")

# A rank that is stopped before MPI_Init or MPI_Finalize, and splits that must leave nothing behind.
if ranks.has("Mpi") and os.environ.get("WEFT_MPIRUN"):
    for mode, call in ("stopped", "MPI_Init"), ("stopped-at-end", "MPI_Finalize"):
        cases += 1
        ended = subprocess.run([os.environ["WEFT_MPIRUN"], "2", ranks.program, mode, "1"], capture_output=True, text=True, timeout=60,
                               env=ranks.clean | {"WEFT_RENDEZVOUS_S": "2"})
        check(ended.returncode != 0 and f"weft: {call} waited longer than the 2 s of WEFT_RENDEZVOUS_S" in ended.stderr, f"a rank stopped before {call}", ended)
    cases += 1
    ended = subprocess.run([os.environ["WEFT_MPIRUN"], "2", ranks.program, "splits", "4000"], capture_output=True, text=True, timeout=120,
                           env=ranks.clean | {"WEFT_SHARED_MEMORY": "0"})
    kib = [int(word) for line in ended.stdout.splitlines() if " KiB" in line for word in line.split() if word.isdigit() and int(word) > 100]
    print("splits over mpi:", kib)
    check(ended.returncode == 0 and len(kib) == 4 and max(kib) - min(kib) < 0.25 * min(kib), "3,000 splits", ended)

print(f"figure 22: cases {cases} failed {ranks.bad}")
sys.exit(1 if ranks.bad else 0)
