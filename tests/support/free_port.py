# SPDX-License-Identifier: Apache-2.0
"""A port of this machine that nobody has and that nobody is likely to get: below those that the system gives to connections, which come and go by
the thousand while other tests run. As a program it prints one."""
import random
import socket


def free_port():
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as limits:
            first_of_connections = int(limits.read().split()[0])
    except OSError:
        first_of_connections = 32768
    for _ in range(1000):
        port = random.SystemRandom().randrange(min(10000, first_of_connections - 1000), first_of_connections)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise OSError("no free port")


if __name__ == "__main__":
    print(free_port())
