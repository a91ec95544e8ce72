# SPDX-License-Identifier: Apache-2.0
# One HTML file about one or several runs: curves, where a step's time goes, pipeline, memory, layout, certificate, hardware
"""
    ./examples/run report runs/train_gpt                       writes runs/train_gpt/report.html
    ./examples/run report runs/a runs/b --out compared.html    curves of both in one figure

A RUN is a folder with files that programs of weft write: metrics.jsonl or metrics.csv, layout.json, timeline.json (--output of
train_gpt), trace.json (WEFT_TRACE=RUN/trace), certificate.json (prove --certificate RUN/certificate.json), and flight records
(WEFT_FLIGHT_DIR=RUN/flight). A part whose file is missing is left out, with the command that writes it. The page needs neither a
server nor a network, and has no script.
"""
import argparse
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from page import page
from read import ReportError, read_run, versions


def distinct_names(runs):
    """Names of folders, with as many folders above as make them different."""
    for depth in range(2, 20):
        if len({run.name for run in runs}) == len(runs):
            return
        for run in runs:
            if sum(other.name == run.name for other in runs) > 1:
                run.longer = "/".join(run.folder.parts[-depth:])
        for run in runs:
            run.name = getattr(run, "longer", run.name)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise ReportError(f"{message}: ./examples/run report RUN... [--out FILE]")


def main():
    parser = Parser(prog="report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=versions("report"))
    parser.add_argument("runs", metavar="RUN", nargs="+", help="folder of a run")
    parser.add_argument("--out", metavar="FILE", help="the page (default: report.html in the folder of the run, or here if there are several)")
    try:
        arguments = parser.parse_args()
        runs = [read_run(name) for name in arguments.runs]
        if len({run.folder for run in runs}) < len(runs):
            raise ReportError("a RUN is named twice: name each folder once")
        distinct_names(runs)
        out = pathlib.Path(arguments.out or (pathlib.Path(arguments.runs[0]) / "report.html" if len(runs) == 1 else "report.html"))
        text = page(runs)
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ReportError(f"--out {out}: it cannot be written: {error.strerror}: name a file in a folder that exists") from None
    except ReportError as error:
        print(f"weft: report: {error}", file=sys.stderr)
        return 2
    print(f"{out} is the report: open it in a browser")
    return 0


sys.exit(main())
