# SPDX-License-Identifier: Apache-2.0
"""The files of a run's folder, read and checked. A file that is not there is None; one that cannot be read is a ReportError with
the file and the remedy.

    run = read_run("runs/train_gpt")
    run.steps[0]["loss"], run.layout["tp"], run.ranks[0].events
"""
import csv
import json
import math
import pathlib
import platform
import re
import shlex

METRICS = ("metrics.jsonl", "metrics.csv")
MOST_BYTES = 1 << 30  # of one file: json.loads needs about ten times as much memory


class ReportError(Exception):
    pass


def versions(program):
    """The answer to --version."""
    header = pathlib.Path(__file__).resolve().parents[2] / "include/weft/core/version.hpp"
    weft = ".".join(re.findall(r"#define WEFT_VERSION_\w+ (\d+)", header.read_text(encoding="utf-8")))
    return f"{program}, weft {weft} (Python {platform.python_version()})"


class Rank:
    """The trace of one rank: events (name, category, begin, duration), in microseconds, memory (time, {category: bytes}), and
    sent[name, begin]: the bytes of a message. A call within a group of one rank sends nothing and has none."""

    def __init__(self):
        self.events, self.memory, self.sent = [], [], {}


class Run:
    def __init__(self, folder):
        self.folder, self.name = folder.resolve(), folder.resolve().name
        self.given = shlex.quote(str(folder))  # as in a command
        self.steps, self.validations = [], []  # records of steps and of validations, in the order of steps
        self.metrics = self.layout = self.timeline = self.certificate = None
        self.ranks = {}  # traces by rank
        self.arrows = []  # (rank that was waited for, its time, rank that waited, the end of its wait), in microseconds
        self.flights = []  # flight records, in the order of ranks


def number(value):
    """A finite number, or None."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None


def text_of(path):
    try:
        if not path.is_file():
            raise ReportError(f"{path}: it is no regular file: remove it, or name another folder")
        if path.stat().st_size > MOST_BYTES:
            raise ReportError(f"{path}: it has more than {MOST_BYTES >> 30} GiB: trace fewer steps (WEFT_TRACE=FOLDER:2-4), or remove it")
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ReportError(f"{path}: it cannot be read: {error.strerror}") from None


def json_of(path, expected, remedy):
    """The JSON object of a file. `expected`: a member that it has, and that member's type."""
    try:
        value = json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: it is no JSON: {error}: {remedy}") from None
    name, kind = expected
    if not isinstance(value, dict) or not isinstance(value.get(name), kind):
        raise ReportError(f"{path}: it has no member '{name}', or of another type: {remedy}")
    return value


def read_metrics(run, path):
    run.metrics = path
    text, records = text_of(path), []
    if path.suffix == ".csv":
        for row in csv.DictReader(text.splitlines()):
            values = {}
            for key, value in row.items():
                try:
                    values[key] = int(value) if key == "step" else float(value)
                except (TypeError, ValueError):
                    pass
            records.append({key: value for key, value in values.items() if key != "skipped" or value == 1})
    else:
        lines = text.split("\n")
        for k, line in enumerate(lines[:-1]):  # the last line has no end: it is empty, or the program was killed in it
            try:
                records.append(json.loads(line) if line.strip() else None)
            except (ValueError, RecursionError):
                raise ReportError(f"{path}: line {k + 1} is no JSON: remove this line, or the file") from None
        records = [one for one in records if one is not None]
    for k, record in enumerate(records):
        if not isinstance(record, dict) or not isinstance(record.get("step"), int) or isinstance(record["step"], bool):
            raise ReportError(f"{path}: record {k + 1} has no number 'step': remove it, or the file")
        if "validation_loss" in record:
            run.validations.append(record)
        if "loss" in record or "ms" in record:
            run.steps.append(record)
    # A resumed run may have written a step again: the last record of a step stays.
    run.steps, run.validations = ([of[step] for step in sorted(of)] for of in ({r["step"]: r for r in some} for some in (run.steps, run.validations)))


def read_events(path, remedy):
    """The events of a file in Chrome's trace format that have all that their kind needs."""
    needed = {"X": ("ts", "dur"), "C": ("ts",), "s": ("ts", "id"), "f": ("ts", "id")}
    for event in json_of(path, ("traceEvents", list), remedy)["traceEvents"]:
        if not isinstance(event, dict) or not isinstance(event.get("ph"), str):
            raise ReportError(f"{path}: it holds something that is no trace event: {remedy}")
        if event["ph"] not in needed:
            continue
        if any(number(event.get(key)) is None for key in needed[event["ph"]]) or not all(isinstance(event.get(key), int) for key in ("pid",)):
            raise ReportError(f"{path}: an event lacks a number (ts, dur, id or pid): {remedy}")
        yield event


def read_trace(run, paths):
    for path in paths:
        starts = {}
        for event in read_events(path, "remove it, and trace the run again"):
            rank = run.ranks.setdefault(event["pid"], Rank())
            if event["ph"] == "s":
                starts[event["id"]] = (event["pid"], event["ts"])
            elif event["ph"] == "f":
                if event["id"] in starts:
                    run.arrows.append((*starts[event["id"]], event["pid"], event["ts"]))
            elif event["ph"] == "X":
                rank.events.append((str(event.get("name", "")), str(event.get("cat", "")), event["ts"], event["dur"]))
                if isinstance(event.get("args"), dict) and number(event["args"].get("bytes")) is not None:
                    rank.sent[rank.events[-1][0], event["ts"]] = event["args"]["bytes"]
            elif isinstance(event.get("args"), dict):
                rank.memory.append((event["ts"], {str(key): value for key, value in event["args"].items() if number(value) is not None}))
    run.ranks = {rank: run.ranks[rank] for rank in sorted(run.ranks)}


def read_timeline(run, path):
    """Actions (rank, operation, micro-batch, chunk or None, begin, duration), in microseconds."""
    run.timeline = []
    for event in read_events(path, "remove it, and run again"):
        if event["ph"] == "X":
            arguments = event.get("args") if isinstance(event.get("args"), dict) else {}
            run.timeline.append((event.get("tid", 0), str(event.get("cat", "")), arguments.get("micro_batch"), arguments.get("stage"), event["ts"], event["dur"]))


def read_run(name):
    folder = pathlib.Path(name)
    if not folder.is_dir():
        why = "it is a file, and a RUN is the folder that holds it" if folder.exists() else "there is no such folder"
        raise ReportError(f"{name}: {why}: name the folder of a run (--output of train_gpt)")
    run, traces, flights = Run(folder), [], []
    for place in (folder, folder / "trace"):
        traces = traces or ([place / "trace.json"] if (place / "trace.json").exists() else sorted(place.glob("rank-*.json")))
    for place in (folder, folder / "flight"):
        flights += sorted(place.glob("weft_flight_*.json"))
    there = {path: folder / path for path in (*METRICS, "layout.json", "timeline.json", "certificate.json") if (folder / path).exists()}
    if not (there or traces or flights):
        raise ReportError(f"{name}: it has no file of a run (metrics.jsonl, metrics.csv, layout.json, trace.json, timeline.json, certificate.json): "
                          f"./examples/run train_gpt --output {run.given} writes some")
    metrics = next((there[path] for path in METRICS if path in there), None)
    if metrics:
        read_metrics(run, metrics)
    if "layout.json" in there:
        run.layout = json_of(there["layout.json"], ("world", int), "remove it, and run again")
    if "timeline.json" in there:
        read_timeline(run, there["timeline.json"])
    if "certificate.json" in there:
        run.certificate = json_of(there["certificate.json"], ("layouts", list), "remove it, and prove the program again")
    read_trace(run, traces)
    run.flights = sorted((json_of(path, ("rank", int), "remove it") for path in flights), key=lambda flight: flight["rank"])
    return run
