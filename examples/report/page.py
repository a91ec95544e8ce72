# SPDX-License-Identifier: Apache-2.0
"""The page: its style and its parts, as HTML without script and without any other file.

    text = page([read_run("runs/a"), read_run("runs/b")])
"""
import analyse
from draw import bars, bytes_shown, curves, definitions, escape, line_swatch, pipeline, shown
from read import number

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1f24; --faint: #4d5661; --rule: #8b949e; --soft: #d8dee4; --field: #f3f5f7; --link: #0550ae;
  --c0: #0b5cad; --c1: #b3470a; --c2: #14735a; --c3: #8a3b8f; --c4: #7a5c00; --c5: #b01e50; }
@media (prefers-color-scheme: dark) { :root { --paper: #11151a; --ink: #e8ecf1; --faint: #aab4bf; --rule: #76818d; --soft: #333b45; --field: #1a2027; --link: #8ab8ff;
  --c0: #6cb2ff; --c1: #ff9e64; --c2: #5fd0a8; --c3: #dd9be2; --c4: #e2c044; --c5: #ff8fb0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 16px; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif;
  overflow-wrap: break-word; }
h1 { font-size: 24px; margin: 8px 0; } h2 { font-size: 20px; margin: 36px 0 8px; border-top: 1px solid var(--soft); padding-top: 14px; } h3 { font-size: 16px; margin: 22px 0 4px; }
h4 { font-size: 15px; margin: 0; }
p { margin: 6px 0; max-width: 80ch; } .faint { color: var(--faint); } a { color: var(--link); }
code { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; background: var(--field); padding: 1px 4px; border-radius: 3px; }
nav ul, ul.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 18px; padding: 0; margin: 8px 0; }
.scroll { overflow-x: auto; max-width: 100%; } :focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 6px 0; }
th, td { padding: 3px 12px 3px 0; text-align: left; border-bottom: 1px solid var(--soft); vertical-align: top; } td.number, th.number { text-align: right; }
thead th, .numbers th, .numbers td { white-space: nowrap; } td { overflow-wrap: anywhere; min-width: 9ch; } .key { display: inline-flex; gap: 8px; align-items: center; } summary { cursor: pointer; color: var(--link); padding: 3px 0; }
figure { margin: 10px 0; min-width: 0; } .figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 6px 28px; }
svg { display: block; overflow: visible; font: 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; } svg.definitions { position: absolute; }
svg text { fill: var(--ink); } svg text.tick { fill: var(--faint); font-size: 12px; } .plot { padding: 10px 96px 46px 60px; } .pipeline { box-sizing: content-box; padding: 0 6px 0 64px; }
.plot > svg, .bar > svg, .pipeline > svg { width: 100%; }
.grid { stroke: var(--soft); } .axis { stroke: var(--rule); } polyline { fill: none; stroke: currentColor; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
.line { stroke-width: 2; } .thin { stroke-width: 1; opacity: 0.45; } .marker { fill: currentColor; stroke: var(--paper); stroke-width: 1; } .marker .cross { stroke: currentColor; stroke-width: 2; }
.colour0 { color: var(--c0); } .colour1 { color: var(--c1); } .colour2 { color: var(--c2); } .colour3 { color: var(--c3); } .colour4 { color: var(--c4); } .colour5 { color: var(--c5); }
.fill0 { fill: var(--c0); } .fill1 { fill: var(--c1); } .fill2 { fill: var(--c2); } .fill3 { fill: var(--c3); } .fill4 { fill: var(--c4); } .fill5 { fill: var(--c5); }
.hatching { stroke: var(--paper); stroke-width: 1.6; fill: var(--paper); fill-opacity: 0.9; } .box { stroke: var(--ink); stroke-width: 1; } .idle { fill: var(--field); stroke: var(--rule); }
.halo { font-weight: 700; paint-order: stroke; stroke: var(--paper); stroke-width: 5px; stroke-linejoin: round; }
.bar { display: grid; grid-template-columns: minmax(56px, auto) 1fr minmax(76px, auto); gap: 10px; align-items: center; margin: 5px 0; } .total { text-align: right; font-variant-numeric: tabular-nums; }
.legend li { display: flex; gap: 6px; align-items: center; } .badge { border: 2px solid currentColor; border-radius: 4px; padding: 0 8px; font-weight: 700; }
@media print { details { display: none; } }
"""
MOST_ROWS = 60
MEMORY = ("parameters", "gradients", "optimizer state", "activations", "other")


def table(head, rows, name, numbers=True):
    """A table in a region that scrolls by itself. Cells are text; all but the first are numbers, set right."""
    kind, wide = (' class="number"', ' class="numbers"') if numbers else ("", "")
    cells = lambda row, one: "".join(f"<{one}{'' if k == 0 else kind}>{cell}</{one}>" for k, cell in enumerate(row))  # noqa: E731
    top = "".join(f'<th scope="col"{"" if k == 0 else kind}>{cell}</th>' for k, cell in enumerate(head))
    body = "".join(f'<tr><th scope="row">{row[0]}</th>{cells(["", *row[1:]], "td")[9:]}</tr>' for row in rows)
    return (f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}"><table{wide} data-name="{escape(name)}"><thead><tr>{top}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")


def details(summary, content):
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def missing(part, command):
    return f'<p class="faint missing">No {escape(part)}: <code>{escape(command)}</code></p>'


def points_of(records, name):
    return [(record["step"], number(record.get(name))) for record in records if number(record.get(name)) is not None]


def some(points, count=MOST_ROWS):
    every = max(1, -(-len(points) // count))
    return [point for k, point in enumerate(points) if k % every == 0 or k + 1 == len(points)]


def curve_figure(runs, title, name, records, smooth=False, from_zero=False, unit=""):
    """A figure of one number of all runs over the steps, and its numbers as a table; empty if no run has it."""
    series, columns = [], []
    for run in runs:
        points = points_of(records(run), name)
        line = list(zip([step for step, _ in points], analyse.smoothed([value for _, value in points]))) if smooth else points
        series.append((run.name, line, points if smooth and len(runs) == 1 else []))
        columns.append(dict(points))
    picture = curves(title, series, from_zero=from_zero)
    if not picture:
        return ""
    steps = [step for step, _ in some([(step, None) for step in sorted(set().union(*columns))])]
    rows = [[str(step), *(shown(of.get(step), 6) for of in columns)] for step in steps]
    note = " Smoothed" + ("; thin: each step." if len(runs) == 1 else ".") if smooth else ""
    return (f"<figure><figcaption><h4>{escape(title)}</h4><span class=\"faint\">{escape(unit + '.' if unit else '')}{note}</span></figcaption>{picture}"
            f"{details('Numbers of the file' if not smooth else 'Numbers of the file, not smoothed', table(['step', *(escape(run.name) for run in runs)], rows, title))}</figure>")


def median(values):
    values = sorted(values)
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2 if values else None


def rate_of(run):
    """The name of a run's rate and its median over the steps after the first, which warms caches."""
    for name in ("tokens_per_s", "images_per_s"):
        values = [value for _, value in points_of(run.steps[1:] or run.steps, name)]
        if values:
            return name.replace("_per_s", "/s"), median(values)
    return "", None


def summary(runs):
    rows = []
    for k, run in enumerate(runs):
        losses, validations = points_of(run.steps, "loss"), points_of(run.validations, "validation_loss")
        rate_name, rate = rate_of(run)
        layout = run.layout or {}
        flops, peak = number(layout.get("flops_per_token")), number(layout.get("peak_flops"))
        share = f"{100 * rate * flops / peak:.1f} %" if rate_name == "tokens/s" and flops and peak else "–"
        rows.append([f'<span class="key">{line_swatch(k)} {escape(run.name)}</span>' if len(runs) > 1 else escape(run.name), shown(layout.get("world")), shown(len(run.steps)), shown(losses[-1][1], 6) if losses else "–",
                     shown(validations[-1][1], 6) if validations else "–", shown(min(v for _, v in validations), 6) if validations else "–",
                     f"{shown(rate)} {rate_name}", share, shown(median([ms for _, ms in points_of(run.steps[1:] or run.steps, 'ms')])),
                     shown(sum(bool(step.get("skipped")) for step in run.steps))])
    head = ["run", "ranks", "steps", "last loss", "last validation loss", "best", "median rate", "of the peak", "median ms a step", "skipped steps"]
    return table(head, rows, "summary")


def curves_part(runs):
    steps, validations = (lambda run: run.steps), (lambda run: run.validations)
    figures = [curve_figure(runs, "Training loss", "loss", steps, smooth=True, unit="Mean over the global batch"), curve_figure(runs, "Validation loss", "validation_loss", validations),
               curve_figure(runs, "Top-1 accuracy", "top1", validations, unit="Percent"),
               curve_figure(runs, "Gradient norm", "gradient_norm", steps, smooth=True, unit="Before clipping"),
               curve_figure(runs, "Tokens per second", "tokens_per_s", steps, smooth=True, from_zero=True, unit="All ranks together"),
               curve_figure(runs, "Images per second", "images_per_s", steps, smooth=True, from_zero=True, unit="All ranks together"),
               curve_figure(runs, "Learning rate", "learning_rate", steps, from_zero=True)]
    text = f'<div class="figures">{"".join(figures)}</div>' if any(figures) else ""
    for run in runs:
        if run.metrics is None:
            text += missing(f"metrics of {run.name}", f"./examples/run train_gpt --output {run.given}")
    return text


def time_part(run):
    if not run.ranks:
        return missing("trace of a step", f"WEFT_TRACE={run.given}/trace:2-4 PROGRAM")
    shares = analyse.step_shares(run.ranks)
    if shares is None:
        return missing("step in the trace, which has other steps than the run", f"WEFT_TRACE={run.given}/trace:2-4 PROGRAM")
    ms = lambda value: f"{value:.2f} ms"  # noqa: E731
    rows = [[f"rank {rank}", of] for rank, of in shares.ms.items()]
    picture = bars(rows, shares.categories, ms, max(shares.total.values()))
    ranks, count = list(shares.ms), len(shares.ms)
    whole = sum(shares.total.values()) / count
    mean = lambda name: sum(of.get(name, 0) for of in shares.ms.values()) / count  # noqa: E731
    body = [[escape(name), f"{mean(name):.3f}", f"{100 * mean(name) / whole:.1f} %", *(f"{shares.ms[rank].get(name, 0):.3f}" for rank in ranks[:16])] for name in shares.categories]
    body.append(["all", f"{whole:.3f}", "100.0 %", *(f"{shares.total[rank]:.3f}" for rank in ranks[:16])])
    text = f"<p>Milliseconds a step, the mean of step{'s' if len(shares.steps) > 1 else ''} {', '.join(map(str, shares.steps[:12]))}{' …' if len(shares.steps) > 12 else ''}.</p>{picture}"
    text += table(["category", "mean of ranks, ms", "share", *(f"rank {rank}" for rank in ranks[:16])], body, "time of a step")
    if count > 1:
        rank, most, middle = analyse.slowest(shares)
        text += f"<p>Rank {rank} computes longest: {most:.2f} ms in kernels a step; the median rank {middle:.2f} ms. A rank that computes longer makes the others wait.</p>"
    units = analyse.unit_times(run.ranks, shares.steps)
    if units:
        rows = [[escape(name), shown(holders), f"{forward:.3f}", f"{backward:.3f}"] for name, holders, forward, backward in units]
        text += details("Time by unit of the model", table(["unit", "ranks", "forward, ms a step", "backward, ms a step"], rows, "time by unit"))
    return text


def pipeline_part(run):
    actions = run.timeline or analyse.traced_actions(run.ranks)
    if not actions:
        return missing("pipeline's picture", f"WEFT_TRACE={run.given}/trace:2-4 PROGRAM")
    picture, key, length, idle = pipeline(actions)
    what = "last" if run.timeline else "last traced"
    ranks = len({action[0] for action in actions})
    return (f'<p>The {what} step on {ranks} rank{"s" if ranks > 1 else ""}: <span data-name="length">{length / 1000:.3f}</span> ms, of which a rank is idle '
            f'<span data-name="idle">{100 * idle:.1f}</span> % on average. Numbers are micro-batches.</p>{key}'
            f'<div class="scroll" tabindex="0" role="region" aria-label="pipeline of {escape(run.name)}">{picture}</div>')


def memory_part(run):
    peaks = analyse.memory_peaks(run.ranks)
    if not peaks:
        return missing("memory by category", f"WEFT_TRACE={run.given}/trace:2-4 PROGRAM")
    names = {name for of in peaks.values() for name, value in of.items() if value > 0}
    categories = [name for name in MEMORY if name in names] + sorted(names.difference(MEMORY))
    rows = [[f"rank {rank}", of] for rank, of in peaks.items()]
    picture = bars(rows, categories, bytes_shown, max(sum(of.values()) for of in peaks.values()) or 1)
    body = [[f"rank {rank}", *(f'<data value="{of.get(name, 0)}">{bytes_shown(of.get(name, 0))}</data>' for name in categories), bytes_shown(sum(of.values()))] for rank, of in peaks.items()]
    return f"<p>At the moment of the largest sum in the traced steps.</p>{picture}{table(['rank', *map(escape, categories), 'all'], body, 'memory')}"


AXES = ("dp", "cp", "ep", "etp", "edp", "tp", "pp")


def value_text(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value_text(one) for one in value)
    if isinstance(value, dict):
        return "; ".join(f"{key} {value_text(one)}" for key, one in value.items())
    return shown(value, 6) if number(value) is not None else str(value)


def layout_part(run):
    if not run.layout:
        return missing("layout", f"./examples/run train_gpt --output {run.given}")
    axes = [(axis, run.layout[axis]) for axis in AXES if number(run.layout.get(axis)) is not None]
    rest = {key: value for key, value in run.layout.items() if key not in AXES and key not in ("world", "hardware")}
    experts = any(degree > 1 for axis, degree in axes if axis in ("ep", "etp"))
    divided = [f"{axis} {shown(degree)}" for axis, degree in axes if degree > 1 and (experts or axis not in ("etp", "edp"))]
    degrees = " · ".join(divided) or "no axis is divided"
    rows = [[escape(key.replace("_", " ")), escape(value_text(value))] for key, value in {**dict(axes), **rest}.items()]
    return f"<p><b>{shown(run.layout['world'])} ranks</b>: {escape(degrees)}</p>{details('All settings', table(['setting', 'value'], rows, 'layout', numbers=False))}"


def certificate_part(run):
    one = run.certificate
    if not one:
        return missing("certificate", f"./examples/run prove NAME --certificate {run.given}/certificate.json")
    layouts = [layout for layout in one["layouts"] if isinstance(layout, dict)]
    verdicts = {}
    for layout in layouts:
        verdicts[str(layout.get("verdict"))] = verdicts.get(str(layout.get("verdict")), 0) + 1
    proven = one.get("proven") is True
    text = (f'<p><span class="badge">{"✓ proven" if proven else "✗ NOT proven"}</span> {escape(one.get("program", "a program"))}, in layouts of up to {shown(number(one.get("ranks")))} ranks, '
            f'steps: {shown(number(one.get("steps")))}, {"computed in double" if one.get("in_double") is True else "in the types of the program, within measured rounding"}.</p>')
    text += table(["verdict", "layouts"], [[escape(name), shown(count)] for name, count in verdicts.items()], "verdicts")
    largest = one.get("largest") if isinstance(one.get("largest"), dict) else {}
    text += table(["result", "largest difference"], [[escape(name), f"{value:.1e}" if value else "0"] for name, value in largest.items() if number(value) is not None], "largest differences")
    rows = [[escape(layout.get("layout")), escape(layout.get("verdict")), escape(layout.get("text", ""))] for layout in layouts]
    text += details("All layouts", table(["layout", "verdict", "first difference or reason"], rows, "layouts", numbers=False))
    return text + f'<p class="faint">weft {escape(one.get("weft", "?"))}, compiler {escape(one.get("compiler", "?"))}, hash <code>{escape(one.get("hash", "?"))}</code></p>'


def hardware_part(run):
    hardware = (run.layout or {}).get("hardware")
    if not isinstance(hardware, dict) or not hardware:
        return missing("hardware", f"./examples/run train_gpt --output {run.given}")
    return table(["", "value"], [[escape(key.replace("_", " ")), escape(value_text(value))] for key, value in hardware.items()], "hardware", numbers=False)


def flight_part(run):
    rows = []
    for flight in run.flights:
        entries = flight.get("entries") if isinstance(flight.get("entries"), list) else []
        last = entries[-1] if entries and isinstance(entries[-1], dict) else {}
        group = last.get("process_group")
        place = f" on {group[0]}" if isinstance(group, list) and group else ""
        rows.append([f"rank {shown(flight['rank'])}", escape(flight.get("reason", "")), escape(f"{last.get('call', 'nothing')}{place}, {last.get('state', '')}")])
    return (table(["rank", "reason", "last call"], rows, "failure", numbers=False) +
            f'<p class="faint">The rank that stood still: <code>./examples/run flight {escape(run.given)}</code></p>')


PARTS = (("Where a step's time goes", "time", time_part), ("The pipeline", "pipeline", pipeline_part), ("Memory by category", "memory", memory_part), ("Layout", "layout", layout_part),
         ("Certificate", "certificate", certificate_part), ("Hardware", "hardware", hardware_part))


def run_section(run, k):
    text = f'<section id="run{k}" aria-labelledby="run{k}-title"><h2 id="run{k}-title">{escape(run.name)}</h2>'
    for title, name, part in (*PARTS, *((("Failure", "failure", flight_part),) if run.flights else ())):
        text += f'<div data-part="{name}"><h3>{escape(title)}</h3>{part(run)}</div>'
    return text + "</section>"


def page(runs):
    names = ", ".join(run.name for run in runs)
    contents = "".join(f'<li><a href="#run{k}">{escape(run.name)}</a></li>' for k, run in enumerate(runs))
    return ('<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
            f"<title>weft: {escape(names)}</title><style>{STYLE}</style></head><body>{definitions()}<header><h1>weft: {escape(names)}</h1>"
            f'<nav aria-label="Parts"><ul><li><a href="#curves">Curves</a></li>{contents}</ul></nav></header><main><section id="curves" aria-label="Summary and curves">'
            f'{summary(runs)}{curves_part(runs)}</section>{"".join(run_section(run, k) for k, run in enumerate(runs))}</main></body></html>\n')
