# SPDX-License-Identifier: Apache-2.0
"""Figures as inline SVG, without script. Lengths along the page are percentages, so that a figure is as wide as its column while its
letters keep their size. Each series and category has a colour, and also a dash, marker, hatching or letter.

    curves("training loss", [("a", points, thin_points)], 240)
    bars([("rank 0", {"products": 3.1}), ...], ["products", ...], "ms")
"""
import html
import math

DASHES = ("none", "7 4", "2 3", "10 3 2 3", "14 4", "4 2 1 2")
MARKERS = ('<circle r="4"/>', '<path d="M-4-4h8v8h-8z"/>', '<path d="M0-5 5 4H-5z"/>', '<path d="M0-5 5 0 0 5-5 0z"/>', '<path d="M0 5 5-4H-5z"/>',
           '<path d="M-4-4 4 4M4-4-4 4" class="cross"/>')
COLOURS = 6
HATCHINGS = ("", "M-1 7 7-1M3 11 11 3", "M1 1h2v2h-2zM5 5h2v2h-2z", "M0 2H8M0 6H8", "M2 0V8M6 0V8", "M0 0 8 8M8 0 0 8", "M-1 1 7 9M3-3 11 5", "M0 4H8M4 0V8",
             "M0 4H8", "M4 0V8", "M3 3h3v3h-3z")
MOST_POINTS = 1500  # of a line: more would only enlarge the page
MOST_WIDTH = 6000  # pixels of a pipeline's picture


def escape(text):
    return html.escape(str(text))


def shown(value, digits=4):
    """A number for people: 1,234,567; 12.3; 0.00123; nothing as a dash."""
    if value is None:
        return "–"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def bytes_shown(value):
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            return f"{value:,.0f} bytes" if unit == "bytes" else f"{value:,.1f} {unit}"
        value /= 1024


def at(value):
    return f"{value:.2f}".rstrip("0").rstrip(".")


def ticks(low, high, count):
    """Round values that divide [low, high] into about `count` parts: steps of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(k for k in (1, 2, 5, 10) if rough / power <= k * (1 + 1e-9)) * power
    return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def thinned(points):
    """At most MOST_POINTS of the points: the least and the largest of each piece, so that no peak is lost."""
    size = -(-2 * len(points) // MOST_POINTS)
    if size <= 2:
        return points
    out = []
    for k in range(0, len(points), size):
        piece = points[k:k + size]
        out += sorted({min(piece, key=lambda p: p[1]), max(piece, key=lambda p: p[1])})
    return out


def definitions():
    """Markers and hatchings, once in a page."""
    out = ['<svg class="definitions" aria-hidden="true" width="0" height="0"><defs>']
    for k, marker in enumerate(MARKERS):
        out.append(f'<g id="marker{k}" class="marker colour{k % COLOURS}">{marker}</g>')
    for k, lines in enumerate(HATCHINGS):
        out.append(f'<pattern id="hatching{k}" width="8" height="8" patternUnits="userSpaceOnUse"><rect width="8" height="8" class="fill{k % COLOURS}"/>'
                   f'<path d="{lines}" class="hatching"/></pattern>')
    return "".join(out) + "</defs></svg>"


def curves(label, series, height=230, from_zero=False):
    """Lines over the steps. series: (name, points, points of a thin line); points are (step, value). Empty without a point."""
    series = [(k, name, points, thin) for k, (name, points, thin) in enumerate(series) if points]
    values = [value for _, _, points, thin in series for _, value in [*points, *thin]]
    if not values:
        return ""
    last = max(max(step for step, _ in [*points, *thin]) for _, _, points, thin in series) or 1
    low, high = min(values), max(values)
    margin = max(0.05 * (high - low), 1e-9 + 1e-3 * abs(high))
    low, high = 0 if from_zero else max(0.0, low - margin) if low >= 0 else low - margin, high + margin
    x, y = (lambda step: 100 * step / last), (lambda value: 100 * (high - value) / (high - low))
    out = [f'<div class="plot"><svg height="{height}" role="img" aria-label="{escape(label)} over the steps">']
    for tick in ticks(low, high, 5):
        out.append(f'<line class="grid" x1="0" x2="100%" y1="{at(y(tick))}%" y2="{at(y(tick))}%"/>'
                   f'<text class="tick y" x="-8" y="{at(y(tick))}%" dy="4" text-anchor="end">{shown(tick)}</text>')
    for tick in ticks(0, last, 4):
        out.append(f'<text class="tick x" x="{at(x(tick))}%" y="100%" dy="19" text-anchor="middle">{shown(tick)}</text>'
                   f'<svg class="point" x="{at(x(tick))}%" y="100%"><path class="axis" d="M0 0v5"/></svg>')
    out.append('<line class="axis" x1="0" x2="100%" y1="100%" y2="100%"/>')
    out.append('<svg class="lines" width="100%" height="100%" viewBox="0 0 100 100" preserveAspectRatio="none">')
    for k, name, points, thin in series:
        for some, kind in ((thin, "thin"), (points, "line")):
            if some:
                place = " ".join(f"{x(step):.3f},{y(value):.3f}" for step, value in thinned(some))
                out.append(f'<polyline class="{kind} colour{k % COLOURS}" data-series="{escape(name)}" stroke-dasharray="{DASHES[k % len(DASHES)] if kind == "line" else "none"}" points="{place}"/>')
    out.append("</svg>")
    for k, name, points, _ in series:
        every = -(-len(points) // 12)
        for i, (step, value) in enumerate(points):
            if i == len(points) - 1 or (i % every == 0 and len(points) > 1):
                out.append(f'<svg class="point" x="{at(x(step))}%" y="{at(y(value))}%"><use href="#marker{k % len(MARKERS)}"/><title>{escape(name)}, step {step}: {shown(value, 6)}</title></svg>')
    # Names at the ends of lines, apart from each other.
    ends = sorted((y(points[-1][1]) * height / 100, k, name) for k, name, points, _ in series)
    places, least = [], 0.0
    for place, _, _ in ends:
        places.append(max(place, least))
        least = places[-1] + 15
    for i in reversed(range(len(places))):
        places[i] = min(places[i], height - 15 * (len(places) - 1 - i))
    for place, (_, k, name) in zip(places, ends):
        short = name if len(name) <= 12 else name[:11] + "…"
        out.append(f'<text class="end" x="100%" dx="9" y="{at(place + 4)}">{escape(short)}</text>')
    out.append(f'<text class="tick" x="100%" y="100%" dy="38" text-anchor="end">step</text></svg></div>')
    return "".join(out)


def line_swatch(k):
    return (f'<svg class="swatch" width="44" height="14" aria-hidden="true"><line class="line colour{k % COLOURS}" stroke="currentColor" x2="44" y1="7" y2="7" '
            f'stroke-dasharray="{DASHES[k % len(DASHES)]}"/><svg x="22" y="7" class="point"><use href="#marker{k % len(MARKERS)}"/></svg></svg>')


def letter(k):
    return chr(ord("A") + k)


def bars(rows, categories, shown_as, whole):
    """A bar for each row (name, {category: value}), cut by categories. `whole`: the value of a full width."""
    out = []
    for name, values in rows:
        total = sum(values.values())
        out.append(f'<div class="bar"><span>{escape(name)}</span><svg height="30" role="img" aria-label="{escape(name)}: {escape(shown_as(total))}">')
        x = 0.0
        for k, category in enumerate(categories):
            width = 100 * values.get(category, 0) / whole
            if width <= 0:
                continue
            out.append(f'<g><title>{escape(f"{name}: {letter(k)} {category}: {shown_as(values[category])}")}</title>'
                       f'<rect class="box" x="{at(x)}%" width="{at(width)}%" height="30" fill="url(#hatching{k % len(HATCHINGS)})"/>')
            if width >= 7:
                out.append(f'<text class="halo" x="{at(x + width / 2)}%" y="20" text-anchor="middle">{letter(k)}</text>')
            out.append("</g>")
            x += width
        out.append(f'</svg><span class="total">{escape(shown_as(total))}</span></div>')
    return f'<div class="bars">{"".join(out)}</div>{legend(categories)}'


def swatch(k):
    return f'<svg class="swatch" width="30" height="18" aria-hidden="true"><rect class="box" width="30" height="18" fill="url(#hatching{k % len(HATCHINGS)})"/></svg>'


def legend(categories):
    items = "".join(f"<li>{swatch(k)} <b>{letter(k)}</b> {escape(category)}</li>" for k, category in enumerate(categories))
    return f'<ul class="legend">{items}</ul>'


OPERATIONS = (("forward", "F", 0), ("backward", "B", 1), ("input gradient", "I", 2), ("weight gradient", "W", 3))


def pipeline(actions):
    """The actions of all ranks (rank, operation, micro-batch, stage, begin, duration) over time. Returns the picture, its length in
    microseconds, and the share of the time in which a rank does nothing."""
    first, end = min(a[4] for a in actions), max(a[4] + a[5] for a in actions)
    length, ranks = max(end - first, 1e-9), sorted({a[0] for a in actions})
    typical = sorted(a[5] for a in actions)[len(actions) // 4] or length
    width = min(MOST_WIDTH, max(280, 30 * length / typical))
    row, gap = 30, 6
    out = [f'<div class="pipeline" style="min-width: {width:.0f}px"><svg height="{len(ranks) * (row + gap) + 26}" role="img" aria-label="forwards and backwards of each rank over time">']
    for i, rank in enumerate(ranks):
        out.append(f'<text x="-8" y="{i * (row + gap) + 20}" text-anchor="end">rank {rank}</text>')
    for i, rank in enumerate(ranks):
        y = i * (row + gap)
        out.append(f'<rect class="idle" width="100%" y="{y}" height="{row}"/>')
        for _, operation, micro, stage, begin, time in sorted(a for a in actions if a[0] == rank):
            name, k = next(((mark, k) for known, mark, k in OPERATIONS if known == operation), ("?", 4))
            x, w = 100 * (begin - first) / length, 100 * time / length
            about = f"rank {rank}, {operation} of micro-batch {micro}" + ("" if stage is None else f", stage {stage}")
            out.append(f'<g><title>{escape(f"{about}: {(begin - first) / 1000:.3f} to {(begin - first + time) / 1000:.3f} ms")}</title>'
                       f'<rect class="box" x="{x:.3f}%" y="{y}" width="{w:.3f}%" height="{row}" fill="url(#hatching{k})"/>')
            mark = f"{name}{micro}"
            if w * width / 100 >= 9 * len(mark) + 4:
                out.append(f'<text class="halo" x="{x + w / 2:.3f}%" y="{y + 20}" text-anchor="middle">{escape(mark)}</text>')
            out.append("</g>")
    y = len(ranks) * (row + gap)
    for tick in ticks(0, length / 1000, 5):
        anchor = "start" if tick == 0 else "middle" if tick * 1000 < 0.97 * length else "end"
        out.append(f'<text class="tick" x="{at(100 * tick * 1000 / length)}%" y="{y + 16}" text-anchor="{anchor}">{shown(tick)}{" ms" if tick == 0 else ""}</text>')
    used = [one for one in OPERATIONS if any(a[1] == one[0] for a in actions)]
    items = "".join(f"<li>{swatch(k)} <b>{mark}</b> {operation}</li>" for operation, mark, k in used)
    idle = 1 - sum(a[5] for a in actions) / (length * len(ranks))
    return f'{"".join(out)}</svg></div>', f'<ul class="legend">{items}<li><svg class="swatch" width="30" height="18" aria-hidden="true"><rect class="idle" width="30" height="18"/></svg> idle</li></ul>', length, max(0.0, idle)
