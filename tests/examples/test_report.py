# SPDX-License-Identifier: Apache-2.0
"""The report of runs. Its errors: one line with file and remedy. Its page in Chromium: the numbers are those of the files; no message on the
console and no request; light, dark, 360 pixels wide, by keyboard, and without colours. Without Chromium only the errors are tested, and the
script ends with 77."""
import collections
import csv
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests/support"))
from browser import Browser, chromium
from checks import check, finish

TRAIN = os.path.join(os.environ["WEFT_EXAMPLES"], "04_train_gpt")
scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-report-"))
text = scratch / "text.txt"
text.write_bytes(b"".join(b"%d times %d is %d.\n" % (a, b, a * b) for a in range(40) for b in range(40)))


def report(*words, **where):
    return subprocess.run([SOURCE / "examples/run", "report", *map(str, words)], capture_output=True, text=True, errors="replace", timeout=60, **where)


def train(folder, more, **environment):
    words = f"--data {text} --layers 2 --width 16 --heads 2 --sequence 16 --global-batch 4 --validate-every 4 --sample 0 --quiet --output {folder} {more}"
    done = subprocess.run([TRAIN, *words.split()], capture_output=True, text=True, timeout=120, env=os.environ | environment)
    check(done.returncode == 0, f"train_gpt {more}: {done.stderr}")


# --- two runs: one of four ranks with all files, one with metrics and layout only
full, bare = scratch / "full", scratch / "bare"
train(full, "--steps 12 --ranks 4 --tp 2 --pp 2 --micro-batch 1", WEFT_TRACE=f"{full}/trace:3-5")
train(bare, "--steps 9 --ranks 2 --csv --seed 2")
certificate = {"program": "train_gpt 98343d78fb4ad723", "weft": "0.1.0", "compiler": "12.2.0", "proven": False, "ranks": 4, "steps": 2, "in_double": True,
               "largest": {"loss": 1.5e-16, "gradient": 0},
               "layouts": [{"layout": "dp 2", "ranks": 2, "verdict": "agrees"}, {"layout": "tp 2", "ranks": 2, "verdict": "agrees"},
                           {"layout": "tp 4", "ranks": 4, "verdict": "differs", "text": "step 0, forward, blocks.1.mlp"}], "not_compared": [], "hash": "16c8ab8362739198"}
(full / "certificate.json").write_text(json.dumps(certificate))
one = report(full)
check(one.returncode == 0 and one.stdout == f"{full}/report.html is the report: open it in a browser\n" and one.stderr == "", f"one run: {one}")
both = scratch / "both.html"
check(report(full, bare, "--out", both).returncode == 0, "two runs")

# --- hostile names and numbers: nothing becomes markup, and no number that is not finite is drawn
odd = scratch / 'a<script>alert(1)</script>&"b'.replace("/", "_")
odd.mkdir()
lines = [{"step": k, "loss": None if k == 3 else 1e300 if k == 4 else 5 - k / 20000, "ms": 1, "tokens_per_s": 1e4} for k in range(30000)]
(odd / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines if line["step"] != 4) + '{"step": 30000, "lo')
(odd / "layout.json").write_text(json.dumps({"world": 1, "model": "<script>alert(2)</script>", "hardware": {"processor": "<b>x"}}))
made = report(odd)
page = (odd / "report.html").read_text() if made.returncode == 0 else ""
check(made.returncode == 0 and "<script" not in page and "alert(2)" in page and "NaN" not in page and len(page) < 1 << 20, f"odd names: {made.stderr} {len(page)} bytes")

# --- errors: one line with the file and the remedy, and no page
broken = scratch / "broken"
cases = [((), None, None, "arguments are required: RUN: ./examples/run report RUN... [--out FILE]"), ((scratch / "none",), None, None, "there is no such folder: name the folder of a run"),
         ((full / "metrics.jsonl",), None, None, "a RUN is the folder that holds it"), ((full, full), None, None, "named twice: name each folder once"),
         ((full, "--out", scratch / "no" / "x.html"), None, None, "cannot be written: No such file or directory: name a file in a folder that exists"),
         ((full, "--colour"), None, None, "unrecognized arguments: --colour"), ((broken,), "README", "", "has no file of a run")]
cases += [((broken,), name, content, expected) for name, content, expected in
          [("metrics.jsonl", '{"step": 0, "loss": 1}\n{"step": \n{"step": 2}\n', "line 2 is no JSON: remove this line, or the file"),
           ("metrics.jsonl", '{"loss": 1}\n', "record 1 has no number 'step'"), ("metrics.jsonl", "[1]\n", "record 1 has no number 'step'"), ("metrics.csv", "a,b\n1,2\n", "record 1 has no number 'step'"),
           ("layout.json", "{", "it is no JSON: "), ("layout.json", "[]", "no member 'world'"), ("layout.json", '{"world": "2"}', "no member 'world'"), ("layout.json", "[" * 100000, "it is no JSON: "),
           ("trace.json", "{}", "no member 'traceEvents'"), ("trace.json", '{"traceEvents": [1]}', "no trace event"), ("trace.json", '{"traceEvents": [{"ph": "X", "ts": NaN, "dur": 1, "pid": 0}]}', "an event lacks a number"),
           ("timeline.json", '{"traceEvents": [{"ph": "X", "ts": 1, "pid": 0}]}', "an event lacks a number"), ("certificate.json", '{"layouts": 3}', "no member 'layouts'"),
           ("weft_flight_0.json", "x", "it is no JSON: "), ("weft_flight_0.json", '{"rank": "0"}', "no member 'rank'")]]
for words, name, content, expected in cases:
    shutil.rmtree(broken, ignore_errors=True)
    broken.mkdir()
    if name:
        (broken / name).write_text(content)
    bad = report(*words)
    check(bad.returncode == 2 and bad.stderr.count("\n") == 1 and bad.stderr.startswith("weft: report: ") and expected in bad.stderr and bad.stdout == "", f"{words} {name}: {bad}")
    check(name in (None, "README") or name in bad.stderr, f"{name} is not named: {bad.stderr}")
    check(not (broken / "report.html").exists(), f"{words} {name}: a page was written")

# --- files of other shapes, which are right
for name, content in [("metrics.jsonl", ""), ("layout.json", '{"world": 3}'), ("trace.json", '{"traceEvents": []}'), ("timeline.json", '{"traceEvents": []}'), ("certificate.json", '{"layouts": []}'),
                      ("weft_flight_0.json", '{"rank": 0}'), ("trace.json", '{"traceEvents": [{"ph": "X", "ts": 1, "dur": 0, "pid": 0, "cat": "region", "name": "step 1"}]}'),
                      ("metrics.jsonl", '{"step": 7, "loss": 2}\n'), ("metrics.jsonl", '{"step": 0, "validation_loss": null}\n')]:
    shutil.rmtree(broken)
    broken.mkdir()
    (broken / name).write_text(content)
    good = report(broken)
    check(good.returncode == 0, f"{name} {content}: {good.stderr}")

if chromium() is None:
    shutil.rmtree(scratch)
    print("skipped: no Chromium (./tests/run installs Debian's package chromium)")
    finish(77)
browser = Browser()

# --- the numbers of the page
TABLES = """[...document.querySelectorAll('table')].map(t => [t.closest('section').id, t.dataset.name,
  [...t.rows].map(r => [...r.cells].map(c => (c.querySelector('data') || {}).value || c.textContent.trim()))])"""
CURVES = """[...document.querySelectorAll('.plot')].map(p => ({title: p.closest('figure').querySelector('h4').textContent,
  y: [...p.querySelectorAll('text.tick.y')].map(t => [parseFloat(t.getAttribute('y')), t.textContent]),
  x: [...p.querySelectorAll('text.tick.x')].map(t => [parseFloat(t.getAttribute('x')), t.textContent]),
  lines: [...p.querySelectorAll('polyline')].map(l => [l.dataset.series, l.getAttribute('class').split(' ')[0], l.getAttribute('points')])}))"""


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def value(text):
    return float(text.replace(",", "").split()[0])


def near(a, b, tolerance):
    return len(a) == len(b) and all(abs(x - y) <= tolerance for x, y in zip(a, b))


def read_back(ticks, place):
    """The value at a percentage, from the first and the last tick of an axis."""
    (a, first), (b, last) = (ticks[0][0], value(ticks[0][1])), (ticks[-1][0], value(ticks[-1][1]))
    return first + (place - a) * (last - first) / (b - a)


browser.open(both)
tables = {(section, name): rows for section, name, rows in browser.evaluate(TABLES)}
for k, folder in enumerate((full, bare)):
    all_records, layout = records(folder), json.loads((folder / "layout.json").read_text())
    steps, validations = [r for r in all_records if "loss" in r], [r for r in all_records if "validation_loss" in r]
    name, ranks, count, loss, validation, best, rate, share, ms, skipped = tables["curves", "summary"][k + 1]
    middle = sorted(r["tokens_per_s"] for r in steps[1:])
    middle = (middle[(len(middle) - 1) // 2] + middle[len(middle) // 2]) / 2
    check((name, int(ranks), int(count), int(skipped)) == (folder.name, layout["world"], len(steps), 0), f"summary: {tables['curves', 'summary']}")
    check(near([value(loss), value(validation), value(best)], [steps[-1]["loss"], validations[-1]["validation_loss"], min(r["validation_loss"] for r in validations)], 1e-4), f"losses: {tables['curves', 'summary']}")
    check(abs(value(rate) - middle) <= 1 and rate.endswith("tokens/s") and abs(value(share) - 100 * middle * layout["flops_per_token"] / layout["peak_flops"]) <= 0.06, f"rate: {rate} {share} {middle}")
    for title, key, some in (("Training loss", "loss", steps), ("Validation loss", "validation_loss", validations), ("Learning rate", "learning_rate", steps), ("Gradient norm", "gradient_norm", steps)):
        found = {int(row[0]): row[k + 1] for row in tables["curves", title][1:] if row[k + 1] != "–"}
        check(list(found) == [r["step"] for r in some] and all(abs(value(found[r["step"]]) - r[key]) <= 1e-5 * abs(r[key]) for r in some), f"{folder.name}: {title}: {found}")
figures = {figure["title"]: figure for figure in browser.evaluate(CURVES)}
for folder in (full, bare):
    for title, key in (("Learning rate", "learning_rate"), ("Validation loss", "validation_loss")):
        figure, wanted = figures[title], [r for r in records(folder) if key in r]
        drawn = [tuple(map(float, point.split(","))) for name, _, points in figure["lines"] if name == folder.name for point in points.split()]
        size = max(r[key] for r in wanted)
        check(near([read_back(figure["x"], x) for x, _ in drawn], [r["step"] for r in wanted], 0.02) and near([read_back(figure["y"], y) for _, y in drawn], [r[key] for r in wanted], 2e-3 * size),
              f"{folder.name}: the line of {title}: {figure}")
browser.open(full / "report.html")
thin = next(points for figure in browser.evaluate(CURVES) if figure["title"] == "Training loss" for _, kind, points in figure["lines"] if kind == "thin")
figure = next(figure for figure in browser.evaluate(CURVES) if figure["title"] == "Training loss")
check(near([read_back(figure["y"], float(point.split(",")[1])) for point in thin.split()], [r["loss"] for r in records(full) if "loss" in r], 5e-3), f"the thin line: {figure}")

# A CSV of the same run gives the same numbers.
from_csv = scratch / "csv"
from_csv.mkdir()
shutil.copy(bare / "metrics.csv", from_csv)
report(from_csv)
browser.open(from_csv / "report.html")
rows = {name: rows for _, name, rows in browser.evaluate(TABLES)}
check([row[1] for row in rows["Training loss"][1:]] == [found[2] for found in tables["curves", "Training loss"][1:] if found[2] != "–"], f"metrics.csv: {rows['Training loss']}")

# Time: kernels do not nest, so their sums are those of the file; "outside" is what no event covers.
events = [e for e in json.loads((full / "trace/trace.json").read_text())["traceEvents"]]
time = tables["run0", "time of a step"]
for column, rank in enumerate(range(4)):
    mine = sorted((e for e in events if e["ph"] == "X" and e["pid"] == rank), key=lambda e: e["ts"])
    begin = min(e["ts"] for e in mine if re.fullmatch(r"step \d+", e["name"]))
    mine = [e for e in mine if e["ts"] >= begin]
    covered, end = 0.0, begin
    for e in mine:
        covered += max(0.0, e["ts"] + e["dur"] - max(end, e["ts"]))
        end = max(end, e["ts"] + e["dur"])
    of = {row[0]: float(row[3 + column]) for row in time[1:]}
    kernels = collections.Counter({"product": "products", "attention": "attention"}.get(e["name"], "other kernels") for e in mine if e["cat"] == "kernel")
    for name in kernels:
        wanted = sum(e["dur"] for e in mine if e["cat"] == "kernel" and {"product": "products", "attention": "attention"}.get(e["name"], "other kernels") == name) / 3000
        check(abs(of[name] - wanted) <= 2e-3, f"rank {rank}: {name}: {of[name]}, not {wanted}")
    check(abs(of["all"] - (end - begin) / 3000) <= 3e-3 and abs(of["outside of named events"] - (end - begin - covered) / 3000) <= 5e-3, f"rank {rank}: all, outside: {of}")
    check(abs(sum(of.values()) - 2 * of["all"]) <= 2e-2 and any(name == "communication over tp" for name in of), f"rank {rank}: the sum of categories: {of}")
units = {row[0]: row for row in tables["run0", "time by unit"][1:]}
check({"block 0", "block 1"} <= set(units) and all(units[name][1] == "2" for name in units), f"units: {units}")
unit = [e for e in events if e["ph"] == "X" and e["name"] == "block 0"]
check(abs(float(units["block 0"][2]) + float(units["block 0"][3]) - sum(e["dur"] for e in unit) / 3000 / 2) <= 2e-3, f"block 0: {units}")
peaks = {rank: max((e["args"] for e in events if e["ph"] == "C" and e["pid"] == rank), key=lambda use: sum(use.values())) for rank in range(4)}
for rank, row in enumerate(tables["run0", "memory"][1:]):
    head = tables["run0", "memory"][0][1:-1]
    check(set(head) == {name for peak in peaks.values() for name, value in peak.items() if value > 0} and [int(cell) for cell in row[1:-1]] == [peaks[rank][name] for name in head],
          f"memory: {row}, not {peaks[rank]}")

# The picture of the pipeline: its boxes, length and idle share.
browser.open(both)
timeline = [e for e in json.loads((full / "timeline.json").read_text())["traceEvents"] if e["ph"] == "X"]
boxes = browser.evaluate("[...document.querySelectorAll('#run0 .pipeline g title')].map(t => t.textContent)")
first, length = min(e["ts"] for e in timeline), max(e["ts"] + e["dur"] for e in timeline) - min(e["ts"] for e in timeline)
wanted = sorted(f"rank {e['tid']}, {e['cat']} of micro-batch {e['args']['micro_batch']}, stage {e['args']['stage']}: {(e['ts'] - first) / 1000:.3f} to {(e['ts'] - first + e['dur']) / 1000:.3f} ms" for e in timeline)
check(sorted(boxes) == wanted and len(wanted) == 16, f"the pipeline: {boxes}, not {wanted}")
shown = browser.evaluate("['length', 'idle'].map(n => document.querySelector(`#run0 [data-name=${n}]`).textContent)")
check(near(list(map(float, shown)), [length / 1000, 100 * (1 - sum(e["dur"] for e in timeline) / 2 / length)], 0.06), f"length and idle share: {shown}")

# The layout, the certificate, and one line for each part that is missing.
layout = {row[0]: row[1] for row in tables["run0", "layout"][1:]}
check((layout["tp"], layout["pp"], layout["schedule"], layout["stage layers"]) == ("2", "2", "1f1b", "1, 1"), f"layout: {layout}")
hardware = json.loads((full / "layout.json").read_text())["hardware"]
rows = {row[0]: row[1] for row in tables["run0", "hardware"][1:]}
check((hardware["machines"], hardware["cores"], hardware["host"]) == (1, len(os.sched_getaffinity(0)), socket.gethostname()) and hardware["memory_bytes"] > 1 << 28
      and rows["cores"] == str(hardware["cores"]) and rows["host"] == hardware["host"] and rows["compiler"] == hardware["compiler"] and len(rows) == len(hardware), f"hardware: {rows}, {hardware}")
check(tables["run0", "verdicts"][1:] == [["agrees", "2"], ["differs", "1"]] and tables["run0", "largest differences"][1:] == [["loss", "1.5e-16"], ["gradient", "0"]], "certificate: verdicts")
proof = browser.evaluate("document.querySelector('#run0 [data-part=certificate]').textContent")
check("✗ NOT proven" in proof and "computed in double" in proof and "16c8ab8362739198" in proof and "blocks.1.mlp" in proof, f"certificate: {proof}")
lacking = browser.evaluate("[...document.querySelectorAll('#run1 .missing')].map(m => m.textContent)")
check(lacking[:3] == [f"No trace of a step: WEFT_TRACE={bare}/trace:2-4 PROGRAM", f"No pipeline's picture: WEFT_TRACE={bare}/trace:2-4 PROGRAM", f"No memory by category: WEFT_TRACE={bare}/trace:2-4 PROGRAM"]
      and f"No certificate: ./examples/run prove NAME --certificate {bare}/certificate.json" in lacking, f"missing parts: {lacking}")

# --- light and dark, wide and narrow
LOOK = r"""(() => {
  const rgb = c => (c.match(/[\d.]+/g) || []).map(Number), found = {texts: [], graphics: [], overflow: [], small: []};
  const light = c => [0, 1, 2].map(i => c[i] / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
  for (const d of document.querySelectorAll('details')) d.open = true;
  const width = document.documentElement.clientWidth;
  for (const e of document.querySelectorAll('body *')) {
    const box = e.getBoundingClientRect(), own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (box.width === 0 || e.closest('defs') || e.localName === 'title') continue;
    if (!e.closest('.scroll') && (box.right > width + 0.5 || box.left < -0.5)) found.overflow.push(e.outerHTML.slice(0, 100));
    if (!own) continue;
    const style = getComputedStyle(e), svg = e.namespaceURI.endsWith('svg');
    if (parseFloat(style.fontSize) < 12) found.small.push(e.outerHTML.slice(0, 100));
    const ratio = contrast(rgb(svg ? style.fill : style.color), svg && style.paintOrder.startsWith('stroke') ? rgb(style.stroke) : behind(svg ? e.closest('svg').parentElement : e));
    if (!(ratio >= 4.5)) found.texts.push([ratio, e.outerHTML.slice(0, 100)]);
  }
  const paper = behind(document.body);
  for (const e of document.querySelectorAll('polyline, .marker, pattern rect, .axis, .box')) {
    const style = getComputedStyle(e), c = rgb(e.matches('.axis, .box') ? style.stroke : e.matches('pattern rect') ? style.fill : style.color), ratio = contrast(c, paper);
    if (!(ratio >= 3)) found.graphics.push([ratio, e.outerHTML.slice(0, 80)]);
  }
  return {...found, count: document.querySelectorAll('body *').length, paper, width, scroll: document.documentElement.scrollWidth};
})()"""
papers = set()
for path in (both, odd / "report.html"):
    for dark in (False, True):
        for width in (1200, 360):
            browser.open(path, width=width, dark=dark)
            look = browser.evaluate(LOOK)
            where = f"{path.name}, {'dark' if dark else 'light'}, {width} pixels"
            check(look["width"] == width and look["scroll"] <= width and look["overflow"] == [], f"{where}: overflow: {look['scroll']} {look['overflow']}")
            check(look["texts"] == [] and look["graphics"] == [] and look["small"] == [], f"{where}: contrast or size: {look['texts'][:5]} {look['graphics'][:5]} {look['small'][:5]}")
            check(browser.messages == [] and browser.requests == [pathlib.Path(path).as_uri()], f"{where}: messages {browser.messages}, requests {browser.requests}")
            papers.add((dark, tuple(look["paper"][:3])))
check(len(papers) == 2 and min(papers)[1] == (255, 255, 255), f"one background in light, another in dark: {papers}")

# Letters do not lie on each other.
OVERLAP = """[...document.querySelectorAll('.plot, .pipeline, .bar > svg')].flatMap(p => { const t = [...p.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]);
  return t.flatMap(([a, r], i) => t.slice(i + 1).filter(([b, s]) => r.left < s.right - 1 && s.left < r.right - 1 && r.top < s.bottom - 3 && s.top < r.bottom - 3).map(([b]) => [a, b])); })"""
for width in (1200, 360):
    browser.open(both, width=width)
    check(browser.evaluate(OVERLAP) == [], f"texts on each other at {width} pixels: {browser.evaluate(OVERLAP)}")

# Without colours: lines differ by their dashes, boxes of one picture by their hatchings, and each legend has a letter.
browser.open(both)
dashes = browser.evaluate("[...document.querySelectorAll('.plot')].map(p => [...p.querySelectorAll('.line')].map(l => l.getAttribute('stroke-dasharray')))")
check(len(dashes) == 5 and all(len(set(of)) == len(of) == 2 for of in dashes), f"dashes: {dashes}")
fills = browser.evaluate("[...document.querySelectorAll('.bars + .legend')].map(l => [...l.children].map(i => [i.querySelector('rect').getAttribute('fill'), i.querySelector('b').textContent]))")
check(len(fills) == 2 and all(len({fill for fill, _ in of}) == len(of) == len({mark for _, mark in of}) for of in fills), f"hatchings: {fills}")

# By keyboard: each link, each summary and each region that scrolls is reached, and Enter opens.
browser.open(both, width=360)
check(browser.evaluate("[...document.querySelectorAll('.scroll')].every(s => s.tabIndex === 0 && s.getAttribute('aria-label'))"), "a region that scrolls is not in the order of Tab")
focusable = browser.evaluate("document.querySelectorAll('a, summary, [tabindex]').length - document.querySelectorAll('details:not([open]) [tabindex]').length")
reached = 0
for _ in range(focusable):
    browser.press("Tab")
    reached += browser.evaluate("document.activeElement !== document.body && getComputedStyle(document.activeElement).outlineStyle === 'solid'")
check(reached == focusable > 12, f"Tab reaches {reached} of {focusable}")
browser.evaluate("document.querySelector('summary').focus()")
browser.press("Enter")
check(browser.evaluate("document.querySelector('details').open"), "Enter opens the numbers")

# A run that failed.
failed = scratch / "failed"
(failed / "flight").mkdir(parents=True)
subprocess.run([TRAIN, *f"--data {text} --layers 1 --width 16 --heads 2 --sequence 16 --global-batch 4 --steps 40 --learning-rate 1e30 --warmup 0 --clip 0 --ranks 2 --quiet --output {failed}".split()],
               capture_output=True, timeout=120, env=os.environ | {"WEFT_FLIGHT_DIR": str(failed / "flight")})
check(report(failed).returncode == 0, "a run that failed")
browser.open(failed / "report.html")
ends = {name: rows for _, name, rows in browser.evaluate(TABLES)}
check([row[0] for row in ends["failure"][1:]] == ["rank 0", "rank 1"] and "training diverged" in ends["failure"][1][1] and int(ends["summary"][1][-1]) == 10, f"a run that failed: {ends.get('failure')} {ends['summary']}")
browser.close()
shutil.rmtree(scratch)
finish()
