# SPDX-License-Identifier: Apache-2.0
"""Checks of a test that is a script: each failure is printed, and the exit code is that of all of them.

    check(found == wanted, f"the losses: {found}")
    finish()
"""
import sys

_failures = 0


def check(condition, what):
    global _failures
    if not condition:
        _failures += 1
        print("FAILED:", what, flush=True)


def finish(passed=0):
    """`passed`: the exit code without a failure; 77 is a test that was left out."""
    sys.exit(1 if _failures else passed)
