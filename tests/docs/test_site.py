#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The site. Built without a warning; no link leads nowhere, and nothing is loaded from the network. In Chromium, from the disk: no message on
the console, nothing wider than 360 pixels, contrast in light and dark, the keyboard, and a search that finds words of an error. Pictures of
eight pages are left in build/site_pictures for the eye to compare. Without MkDocs, Doxygen or Chromium the script ends with 77."""
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.parse

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
SITE, PICTURES = SOURCE / "build/site", SOURCE / "build/site_pictures"
sys.path.insert(0, str(SOURCE / "tests/support"))
from browser import Browser, chromium
from checks import check, finish
from share import share_of

mkdocs = SOURCE / ".deps/venv/bin/mkdocs"
missing = [name for name, there in (("MkDocs (./docs/build installs it)", mkdocs.exists()), ("Doxygen (Debian's package doxygen)", shutil.which("doxygen"))) if not there]
if missing:
    print("skipped: there is no", " and no ".join(missing))
    finish(77)
built = subprocess.run([SOURCE / "docs/build"], capture_output=True, text=True, timeout=300)
check(built.returncode == 0 and "WARNING" not in built.stderr, f"docs/build: {built.returncode}\n{built.stderr}")
if built.returncode:
    finish()


class Page(html.parser.HTMLParser):
    """The addresses of a page, and the places in it that an address can name."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.places = [], [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.places |= {attributes[key] for key in ("id", "name") if attributes.get(key)}
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        elif tag == "link" and attributes.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.loaded.append(attributes["href"])
        elif tag in ("img", "script", "iframe") and "src" in attributes:
            self.loaded.append(attributes["src"])


# --- links
files = sorted(path for path in SITE.rglob("*.html") if path.name != "404.html")
pages = {path.resolve(): Page(path) for path in files}
external = 0
for path, page in pages.items():
    where = path.relative_to(SITE)
    for address in page.loaded:
        there = (path.parent / urllib.parse.unquote(urllib.parse.urlsplit(address).path)).resolve()
        check(address.startswith("data:") or "//" not in address and there.exists(), f"{where} loads {address}")
    for address in page.links:
        parts = urllib.parse.urlsplit(address)
        if parts.scheme in ("http", "https", "mailto"):
            external += 1
            continue
        there = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
        check(there.exists(), f"{where}: a dead link to {address}")
        if there in pages and parts.fragment:
            check(urllib.parse.unquote(parts.fragment) in pages[there].places, f"{where}: a dead place in the link {address}")
sources = [path for path in (SOURCE / "docs").rglob("*.md")]
for path in sources:
    check((SITE / path.relative_to(SOURCE / "docs")).with_suffix(".html").exists(), f"{path} is no page")
chapters = [path for path in pages if path.parent == SITE / "guide"]
check(len(chapters) == len(re.findall(r"^## ", re.sub(r"```.*?```", "", (SOURCE / "docs/guide.md").read_text(), flags=re.DOTALL), re.MULTILINE)), f"chapters of the guide: {chapters}")
wrapper = SITE / "guide/a_wrapper_of_your_own.html"
check("data.html#a-batch-by-hand" in pages[wrapper].links, "a chapter links to the section that defines a name of its code")
check("A batch by hand" in (SITE / "guide/data.html").read_text() and "A batch by hand" not in (SITE / "guide.html").read_text(), "the guide is cut into its chapters")
check(len(files) > 100 and len(sources) > 90, f"{len(files)} pages of {len(sources)} files")
questions = (SOURCE / "docs/faq.md").read_text().split("\n### ")[1:]
check(len(questions) >= 40, f"{len(questions)} questions")
for question in questions:
    title, answer = question.split("\n## ")[0].split("\n", 1)
    asked = re.findall(r"\[([^\]]+)\]\((https:[^)]*)\)", answer)
    check(asked and all(re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/" + text.split()[-1], link) for text, link in asked), f"'{title}' was asked in {asked}")
    check(re.search(r"\]\([\w/.-]+\.md(#[\w-]+)?\)", answer), f"the answer to '{title}' has no link to a page")
print(f"{len(files)} pages, {sum(len(page.links) for page in pages.values()) - external} links inside, {external} outside")

if chromium() is None:
    print("skipped: no Chromium (./tests/run installs Debian's package chromium)")
    finish(77)

# --- in a browser
LOOK = r"""(() => {
  const rgb = c => { const v = (c.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number); return v.length === 3 ? [...v, 1] : v; };
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const light = c => [0, 1, 2].map(i => c[i] / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const behind = e => { const layers = []; for (; e; e = e.parentElement) layers.push(rgb(getComputedStyle(e).backgroundColor)); return layers.reduceRight((b, a) => over(a, b), [255, 255, 255, 1]); };
  const found = {texts: [], count: 0, scroll: document.documentElement.scrollWidth, overflow: []};
  const width = document.documentElement.clientWidth;
  for (const d of document.querySelectorAll('details')) d.open = true;
  for (const e of document.querySelectorAll('.md-content *')) {
    const box = e.getBoundingClientRect();
    if (box.width === 0) continue;
    let scrolled = false;
    for (let p = e.parentElement; p && !scrolled; p = p.parentElement) scrolled = ['auto', 'scroll', 'hidden'].includes(getComputedStyle(p).overflowX) && p !== document.body && p !== document.documentElement;
    if (!scrolled && box.right > width + 0.5 && !e.closest('.headerlink')) found.overflow.push(e.outerHTML.slice(0, 120));
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || e.matches('.headerlink')) continue;
    found.count++;
    const paper = behind(e), ratio = contrast(over(rgb(getComputedStyle(e).color), paper), paper);
    if (!(ratio >= 4.5)) found.texts.push([ratio.toFixed(2), getComputedStyle(e).color, e.outerHTML.slice(0, 100)]);
  }
  return found;
})()"""
BAD = """document.querySelector('.md-content h1').insertAdjacentHTML('afterend', '<div style="width: 500px; color: rgba(128, 128, 128, 0.9); background: white">text</div>')"""
SHOWN = ["index", "start", "guide/data", "errors", "planning", "reference/index", "reference/optim", "course/4_layouts"]
browser = Browser()


def clean(where):
    check(browser.messages == [], f"{where}: messages on the console: {browser.messages}")
    outside = [url for url in browser.requests if not url.startswith(("file:", "data:", "blob:"))]
    check(outside == [], f"{where}: requests of the network: {outside}")
    browser.messages.clear()


browser.open(SITE / "index.html", width=360)
browser.evaluate(BAD)
look = browser.evaluate(LOOK)
check(len(look["texts"]) == 1 and len(look["overflow"]) == 1 and look["scroll"] > 360, f"a bad element is not found: {look}")
narrow = [path for path in files if path.relative_to(SITE).with_suffix("").as_posix() in SHOWN] + share_of([path for path in files if "source" not in path.parts], 6)
for path in dict.fromkeys(narrow):
    browser.open(path, width=360)
    look = browser.evaluate(LOOK)
    check(look["scroll"] <= 360 and look["overflow"] == [], f"{path.relative_to(SITE)} at 360 pixels: {look['scroll']} {look['overflow'][:3]}")
    clean(f"{path.relative_to(SITE)}, narrow")

PICTURES.mkdir(exist_ok=True)
for name in SHOWN:
    for dark in (False, True):
        browser.open(SITE / f"{name}.html", width=1300, dark=dark)
        look = browser.evaluate(LOOK)
        where = f"{name}, {'dark' if dark else 'light'}"
        check(look["texts"] == [] and look["count"] > 20, f"{where}: contrast: {len(look['texts'])} of {look['count']}, {look['texts'][:4]}")
        clean(where)
        if not dark:
            browser.picture(PICTURES / f"{name.replace('/', '_')}.png", height=1400)


# --- search: words of a message, of the guide and of the reference each lead to their page
def search(words):
    browser.evaluate(f"(e => {{ e.focus(); e.value = {words!r}; e.dispatchEvent(new KeyboardEvent('keyup')); }})(document.querySelector('.md-search__input'))")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = browser.evaluate("[...document.querySelectorAll('.md-search-result__link')].map(a => a.getAttribute('href'))")
        if found:
            return found
        time.sleep(0.2)
    return []


for words, page in (("a collective is missing in backward", "errors.html"), ("student teacher distance", "guide/any_model.html"), ("WarmupCosine", "reference/optim.html")):
    browser.open(SITE / "index.html", width=1300)
    links = search(words)
    pages_found = list(dict.fromkeys(link.split("?")[0].split("#")[0].removeprefix(SITE.as_uri() + "/") for link in links))
    check(page in pages_found[:3], f"a search for '{words}' finds {pages_found}")
    clean(f"search for {words}")

# Whole messages, as a terminal has them: the first result is the page of errors, and in it the entry whose place begins so.
for message, place in (
        ("weft: checkpoint: run/step-00000040: is of a model with heads 4, and this one has 2 (rank 0)", "is-of-a-model-with-heads"),
        ("weft: train_gpt: --loss-chunks: 0 is too small, the least is 1", "train_gpt---loss-chunks"),
        ("weft: world(4) % (tp(3)) != 0: dp is what they leave of the world; tp can be 1, 2 or 4", "world8--tp3"),
        ("weft: mlp.up: matmul([4, 6], weight [32, 8]): the summed dims differ, 6 and 8", "blocks3mlp-matmul"),
        ("weft: heads(2) % tp(4) != 0: a rank holds whole heads", "heads6--tp4"),
        ("weft: global batch(6) % dp(4) != 0: every dp rank takes the same number of sequences", "global-batch6--dp4"),
        ("weft: cross_entropy: label 3 of sample 1 is not one of 3 classes, 0 to 2", "index_select-id-3"),
        ("weft: batch: field before has 7 samples of [32], the batch has 8", "batch-field-f-has"),
        ("weft: optim: learning rate -1.000000 is not a number of at least 0", "learning-rate-r"),
        ("train.cpp:9:3: error: static assertion failed: weft: this Mesh has an axis that no wrapper of the model uses, so its ranks", "this-mesh-has-an-axis")):
    browser.open(SITE / "index.html", width=1300)
    links = [re.sub(r"\?[^#]*", "", link).removeprefix(SITE.as_uri() + "/") for link in search(message)]
    check(links[1:] and links[1].startswith(f"errors.html#message-{place}"), f"a search for '{message}' finds {links[:4]}")
    clean(f"search for {message}")

# --- keyboard: the first Tab shows the link to the content, and the search opens by its key
browser.open(SITE / "guide/data.html", width=1300)
browser.press("Tab")
check(browser.evaluate("document.activeElement.matches('.md-skip')") is True, f"the first Tab reaches {browser.evaluate('document.activeElement.outerHTML')}")
reached = set()
for _ in range(30):
    browser.press("Tab")
    reached.add(browser.evaluate("(document.activeElement.getAttribute('href') || document.activeElement.className)"))
check(len(reached) > 20, f"Tab reaches {reached}")
browser.close()
finish()
