# SPDX-License-Identifier: Apache-2.0
"""comm::Tcp between two hosts: two network namespaces joined by a virtual cable, each with processes of its own, so that neither
sees the other's loopback or memory. Needs root and iproute2, and is skipped without them."""
import os
import subprocess
import sys
import time

tests = os.path.join(os.environ["WEFT_BUILD"], "tests")
program, conformance = os.path.join(tests, "program_ending"), os.path.join(tests, "test_comm_conformance_tcp")
hosts = [f"weft{os.getpid()}{letter}" for letter in "ab"]
addresses = ["10.77.0.1", "10.77.0.2"]


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True).returncode == 0


def make_hosts():
    cables = [f"w{os.getpid()}{letter}"[:15] for letter in "ab"]
    good = all(ip("netns", "add", host) for host in hosts) and ip("link", "add", cables[0], "type", "veth", "peer", "name", cables[1])
    for host, cable, address in zip(hosts, cables, addresses):
        good = good and ip("link", "set", cable, "netns", host) and ip("-n", host, "addr", "add", address + "/24", "dev", cable)
        good = good and ip("-n", host, "link", "set", "lo", "up") and ip("-n", host, "link", "set", cable, "up")
    return good and subprocess.run(["ip", "netns", "exec", hosts[0], "unshare", "-pf", "--mount-proc", "true"], capture_output=True).returncode == 0


bad = 0
launchers = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC", "WEFT_SECRET", "WEFT_STORE", "WEFT_R", "WEFT_T")
clean = {k: v for k, v in os.environ.items() if not k.startswith(launchers)}
secret = "0123456789abcdef0123456789abcdef"


def start(ranks, world, host, command, changes=None):
    """Processes of these ranks on that host; they print their exit codes on standard output."""
    environment = clean | {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(len(ranks)), "MASTER_ADDR": addresses[0], "MASTER_PORT": "29511",
                           "WEFT_SECRET": secret, "WEFT_RENDEZVOUS_S": "3", "WEFT_TIMEOUT_S": "20"} | (changes or {})
    environment = {k: v for k, v in environment.items() if v is not None}
    body = "".join(f'RANK={rank} "$@" & ' for rank in ranks) + 'for job in $(jobs -p); do wait $job; echo "code $?"; done'
    return subprocess.Popen(["ip", "netns", "exec", hosts[host], "unshare", "-pf", "--kill-child", "--mount-proc", "bash", "-c", body, "-", *command],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def expect(what, processes, code, text, most_s, limit=60):
    global bad
    begin, outputs = time.monotonic(), []
    for process in processes:
        try:
            outputs.append(process.communicate(timeout=limit))
        except subprocess.TimeoutExpired:
            process.kill()
            outputs.append(("hangs", ""))
    took = time.monotonic() - begin
    said = "".join(out + err for out, err in outputs)
    codes = [line for out, _ in outputs for line in out.splitlines() if line.startswith("code ")]
    if text not in said or not codes or any(found != f"code {code}" for found in codes) or took > most_s:
        bad += 1
        print(f"failed: {what}: expected code {code} and '{text}' within {most_s} s, took {took:.1f} s: {said}")


try:
    if not make_hosts():
        print("skipped: network namespaces cannot be made here")
        sys.exit(77)
    well = [program, "well"]
    expect("two hosts of two ranks", [start([0, 1], 4, 0, well), start([2, 3], 4, 1, well)], 0, "4 ranks as tcp", 10)
    every = [conformance, "-tc=TCP: every operation*"]
    expect("every operation between two hosts", [start([0, 1], 4, 0, every, {"MASTER_PORT": "29513"}), start([2, 3], 4, 1, every, {"MASTER_PORT": "29513"})], 0, "SUCCESS", 90)
    expect("no secret", [start([0], 2, 0, well, {"WEFT_SECRET": None}), start([1], 2, 1, well, {"WEFT_SECRET": None})], 2, "WEFT_SECRET", 3)
    expect("another secret", [start([0], 2, 0, well), start([1], 2, 1, well, {"WEFT_SECRET": "another secret, long enough"})], 1, "another secret", 8)
    expect("an address that is not rank 0's", [start([0], 2, 0, well, {"MASTER_ADDR": "10.77.0.3"})], 1, "10.77.0.3", 8)
    expect("loopback between hosts", [start([1], 2, 1, well, {"MASTER_ADDR": "127.0.0.1"})], 1, "no store at 127.0.0.1", 8)
    expect("a host that nobody answers for", [start([1], 2, 1, well, {"MASTER_ADDR": "10.77.0.9"})], 1, "10.77.0.9", 8)
    expect("a rank that never comes", [start([0], 2, 0, well)], 1, "rank 1 of a world of 2 did not come", 9)
    cut = [start([0], 2, 0, [program, "interrupt"]), start([1], 2, 1, [program, "interrupt"])]
    time.sleep(1.5)
    cut[1].kill()  # the first process of its namespace: the kernel ends the others with it
    cut[1].communicate()
    expect("the other host's process is killed", cut[:1], 1, "rank 1 is lost", 5)
finally:
    for host in hosts:
        subprocess.run(["ip", "netns", "del", host], capture_output=True)
sys.exit(1 if bad else 0)
