# SPDX-License-Identifier: Apache-2.0
# A traced run beside its rehearsal: where a step takes longer than planned, on which rank, and what that means
"""
    WEFT_TRACE=run/trace:10-13 ./program                                                    a run
    WEFT_REHEARSE=8 WEFT_MACHINE=this WEFT_REHEARSE_JSON=rehearsal.json ./program           its plan
    ./examples/run compare run rehearsal.json

RUN is a folder with trace.json, or with trace/trace.json. REHEARSAL is the rehearsal of the same program, options and layout, on the
figures of the machine that it ran on. All times are milliseconds of a step, medians of the traced steps.
"""
import argparse
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from measured import measured
from rehearsal import read_rehearsal

from findings import findings, require_same_program, require_same_units, table
from read import ReportError, read_run, versions


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise ReportError(f"{message}: ./examples/run compare RUN REHEARSAL")


def main():
    parser = Parser(prog="compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=versions("compare"))
    parser.add_argument("run", metavar="RUN", help="folder of a traced run")
    parser.add_argument("rehearsal", metavar="REHEARSAL", help="file that WEFT_REHEARSE_JSON names")
    parser.add_argument("--least", metavar="SHARE", type=float, default=0.02, help="differences from this share of the measured step on (default: 0.02)")
    try:
        arguments = parser.parse_args()
        if not 0 <= arguments.least <= 1:
            raise ReportError(f"--least {arguments.least}: it is a share of the step, from 0 to 1")
        run, rehearsal = read_run(arguments.run), read_rehearsal(pathlib.Path(arguments.rehearsal))
        if not run.ranks:
            raise ReportError(f"{arguments.run}: it has no trace: WEFT_TRACE={arguments.run}/trace:10-13 ./program writes one")
        step = measured(run)
        if step is None:
            raise ReportError(f"{arguments.run}: its trace has no whole step on every rank: trace steps that the run reaches (WEFT_TRACE=FOLDER:FIRST-LAST)")
        require_same_program(step, rehearsal, arguments.run, arguments.rehearsal)
        require_same_units(step, rehearsal, arguments.run, arguments.rehearsal)
    except ReportError as error:
        print(f"weft: compare: {error}", file=sys.stderr)
        return 2
    longest = max(step.length.values())
    print(f"a step of {rehearsal.ranks} ranks: {longest:.2f} ms measured (median of {step.steps}), {1000 * rehearsal.seconds:.2f} ms rehearsed on {rehearsal.machine}")
    print(f"  {'stage':<7}{'part':<26}{'measured':>10}{'rehearsed':>11}")
    for stage, part, seen, expected in table(step, rehearsal):
        print(f"  {stage:<7}{part:<26}{seen:>10.2f}{expected:>11.2f}")
    found = findings(step, rehearsal, arguments.least * longest)
    if not found:
        print(f"no part differs by more than {100 * arguments.least:g} % of the step")
        return 0
    print("where they part, in ms of a step:")
    for one in found:
        print(f"  {one.ms:7.2f}  {one.text}")
    return 0


sys.exit(main())
