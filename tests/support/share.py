# SPDX-License-Identifier: Apache-2.0
"""The share of an expensive list that a run checks: the commit selects it, so that several runs together check all.

    python3 tests/support/share.py PARTS ITEM...       prints the share, for scripts of the shell
"""
import os
import subprocess
import sys


def share_of(items, parts, turn=0):
    """Every `parts`-th of the items; all with WEFT_TEST_LONG=1 and outside of git. `turn` 0 to parts - 1 give disjoint shares, together all."""
    commit = subprocess.run(["git", "-C", os.path.dirname(__file__), "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    if os.environ.get("WEFT_TEST_LONG") == "1" or not commit:
        return items
    return items[(int(commit, 16) + turn) % parts :: parts]


if __name__ == "__main__":
    print(*share_of(sys.argv[2:], int(sys.argv[1])), sep="\n")
