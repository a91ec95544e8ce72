# SPDX-License-Identifier: Apache-2.0
# The plan tool from its command line: JSON, tables, and one line with exit code 2 for what cannot be.

import json
import os
import subprocess
import sys

PLAN = os.path.join(os.environ["WEFT_EXAMPLES"], "plan")
failures = 0


def run(arguments):
    return subprocess.run([PLAN, *arguments.split()], capture_output=True, text=True, timeout=60)


def check(condition, text):
    global failures
    if not condition:
        failures += 1
        print("FAILED:", text)


def as_json(arguments):
    result = run(arguments + " --json")
    check(result.returncode == 0 and result.stderr == "", f"{arguments}: {result.returncode} {result.stderr}")
    return json.loads(result.stdout)


def refused(arguments, *parts):
    result = run(arguments)
    text = result.stderr
    check(result.returncode == 2, f"{arguments}: exit code {result.returncode}")
    check(result.stdout == "" and text.count("\n") == 1 and text.startswith("weft: "), f"{arguments}: not one line: {text!r}")
    for part in parts:
        check(part in text, f"{arguments}: {part!r} not in {text!r}")


groups = as_json("groups --world 16 --tp 2 --pp 4")
check(set(groups) == {"dp", "tp", "pp", "cp", "ep", "etp", "edp", "dp-cp", "tp-pp"}, "keys of groups")
check(groups["tp"] == [[r, r + 1] for r in range(0, 16, 2)], "tp")
check(groups["dp"] == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]], "dp")
check(groups["pp"] == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]], "pp")
check(groups["tp-pp"] == [[0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]], "tp-pp")
check(groups["dp-cp"] == groups["dp"] and groups["cp"] == [[r] for r in range(16)], "dp-cp, cp")
groups = as_json("groups --world 16 --tp 2 --pp 4 --order tp-cp-ep-pp-dp")
check(groups["pp"] == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]], "pp before dp")
groups = as_json("groups --world 16 --tp 2 --cp 2 --pp 2 --ep 4 --etp 1")
check(groups["ep"][0] == [0, 1, 2, 3] and groups["edp"][0] == [0, 4] and groups["etp"][3] == [3], "expert groups")
check(groups["dp-cp"][0] == [0, 2, 4, 6], "dp-cp varies cp first")
table = run("groups --world 16 --tp 2 --pp 4")
check(table.returncode == 0 and "tp(2) * dp(2) * pp(4)" in table.stdout and "[0 4 8 12]" in table.stdout, "table of groups")

layout = "validate --nodes 2 --ranks-per-node 8 --tp 2 --etp 1 --cp 2 --ep 4 --pp 2 --vpp 3 --global-batch 32 --micro-batch 2 --layers 12 --heads 8 --kv-heads 2"
check(as_json(layout + " --sequence-parallel --overlap-p2p") == {"dp": 2, "edp": 2, "micro_batches": 8}, "validate")
table = run(layout)
check(table.returncode == 0 and "micro batches" in table.stdout, "table of validate")

refused("", "groups and validate")
refused("frobnicate", "unknown command 'frobnicate'")
refused("groups", "--world is required")
refused("groups --world", "--world")
refused("groups --world abc", "--world", "'abc' is not a whole number")
refused("groups --world 2.5", "'2.5' is not a whole number")
refused("groups --world 99999999999999999999", "too large")
refused("groups --world 4294967296", "at most 1048576 ranks")
refused("groups --world -4", "world(-4): must be at least 1")
refused("groups --world 0", "world(0)")
refused("groups --world 16 --unknown 3", "--unknown")
refused("groups --world 16 extra", "extra")
refused("groups --world 16 --tp 2 --tp 4", "--tp")
refused("groups --world 16 --tp 3", "world(16) % (tp(3)")
refused("groups --world 16 --tp 0", "tp(0)")
refused("groups --world 16 --ep 3", "world(16) % (etp(1) * pp(1) * ep(3))")
refused("groups --world 16 --order tp-xx", "unknown axis 'xx'")
refused("groups --world 16 --order tp-tp", "twice")
refused("groups --world 16 --order tp-dp --pp 2", "add 'pp'")
refused("groups --world 16 --ep 2 --pp 2 --order tp-pp-cp-ep-dp", "dp(8) != edp(4)")
refused("validate --nodes 1", "--ranks-per-node is required")
refused("validate --ranks-per-node 8 --tp 4 --heads 6", "heads(6) % tp(4) != 0", "1, 2, 3 or 6")
refused("validate --ranks-per-node 8 --sequence-parallel", "tp(1)")
refused("validate --ranks-per-node 8 --overlap-p2p", "vpp(1)")

sys.exit(1 if failures else 0)
