# SPDX-License-Identifier: Apache-2.0
"""failed_tests.py BUILD_FOLDER: the last lines of each test that failed in ctest's last run, once more, where nobody has to look for them among hundreds.
Ends with 3 where all that failed are tests of seconds (label `timed`)."""
import os
import re
import subprocess
import sys

LINES, COLUMNS = 12, 600
logs = os.path.join(sys.argv[1], "Testing", "Temporary")
if not os.path.exists(os.path.join(logs, "LastTestsFailed.log")):
    sys.exit()  # none has run
with open(os.path.join(logs, "LastTestsFailed.log")) as names:
    failed = [line.strip().split(":", 1)[1] for line in names if ":" in line]
with open(os.path.join(logs, "LastTest.log"), errors="replace") as log:
    tests = re.split(r"^\d+/\d+ Testing: ", log.read(), flags=re.MULTILINE)[1:]
for test in tests:
    name = test.split("\n", 1)[0].strip()
    output = re.search(r"^Output:\n-+\n(.*?)\n<end of output>", test, re.DOTALL | re.MULTILINE)
    if name not in failed or not output:
        continue
    lines = [line[:COLUMNS] for line in output.group(1).splitlines() if line.strip()]
    telling = [line for line in lines if re.search("fail|error", line, re.IGNORECASE)][:LINES]
    print(f"\n{name}:", *telling, *[line for line in lines[-LINES:] if line not in telling], sep="\n  ")
timed = subprocess.run(["ctest", "--test-dir", sys.argv[1], "-N", "-L", "timed"], capture_output=True, text=True).stdout
if failed and set(failed) <= set(re.findall(r"Test +#\d+: (\S+)", timed)):
    sys.exit(3)
