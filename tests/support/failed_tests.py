# SPDX-License-Identifier: Apache-2.0
"""failed_tests.py BUILD_FOLDER: the last lines of each test that failed in ctest's last run, once more, so that they need not be
found among hundreds. Ends with 3 where all of them were only late: lines that begin with "late: ", of limits in seconds, and none
of another failure."""
import os
import re
import sys

LINES, COLUMNS = 12, 600
logs = os.path.join(sys.argv[1], "Testing", "Temporary")
if not os.path.exists(os.path.join(logs, "LastTestsFailed.log")):
    sys.exit()  # none has run
with open(os.path.join(logs, "LastTestsFailed.log")) as names:
    failed = [line.strip().split(":", 1)[1] for line in names if ":" in line]
with open(os.path.join(logs, "LastTest.log"), errors="replace") as log:
    tests = re.split(r"^\d+/\d+ Testing: ", log.read(), flags=re.MULTILINE)[1:]
late = 0
for test in tests:
    name = test.split("\n", 1)[0].strip()
    output = re.search(r"^Output:\n-+\n(.*?)\n<end of output>", test, re.DOTALL | re.MULTILINE)
    if name not in failed or not output:
        continue
    lines = [line[:COLUMNS] for line in output.group(1).splitlines() if line.strip()]
    telling = [line for line in lines if re.search("^late: |fail|error", line, re.IGNORECASE)][:LINES]
    print(f"\n{name}:", *telling, *[line for line in lines[-LINES:] if line not in telling], sep="\n  ")
    late += any(line.startswith("late: ") for line in lines) and not any(re.match("failed|Traceback", line, re.IGNORECASE) for line in lines)
if failed and late == len(failed):
    sys.exit(3)
