# SPDX-License-Identifier: Apache-2.0
"""Whether a process of this machine has a connection to a port: connected(process, port)."""
import os


def connected(process, port):
    """True if a connection of the process to the port exists."""
    try:
        sockets = {os.readlink(f"/proc/{process.pid}/fd/{name}") for name in os.listdir(f"/proc/{process.pid}/fd")}
    except OSError:
        return False
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return any(row[3] == "01" and int(row[2].split(":")[1], 16) == port and f"socket:[{row[9]}]" in sockets for row in rows)
