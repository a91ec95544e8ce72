# SPDX-License-Identifier: Apache-2.0
"""A port of this machine that no program has or is likely to get: below those that the system gives to connections, which come and go by
the thousand while other tests run. With a count: the first of so many consecutive ports. As a program it prints one."""
import contextlib
import random
import socket


def free_port(count=1):
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as limits:
            first_of_connections = int(limits.read().split()[0])
    except OSError:
        first_of_connections = 32768
    for _ in range(1000):
        port = random.SystemRandom().randrange(min(10000, first_of_connections - 1000), first_of_connections - count + 1)
        with contextlib.ExitStack() as probes:
            try:
                for each in range(port, port + count):
                    probes.enter_context(socket.socket()).bind(("127.0.0.1", each))
                return port
            except OSError:
                pass
    raise OSError("no free port")


if __name__ == "__main__":
    print(free_port())
