# SPDX-License-Identifier: Apache-2.0
"""MkDocs' hooks for the pages that docs/ has not: README.md as the landing page, CHANGELOG.md and CONTRIBUTING.md, lists of decisions and
benchmarks, the reference, a page for each chapter of guide.md, and one for each file of the repository that a page links (plain text if only the reference links it). So every link that
GitHub resolves is one inside of the site. Pages keep GitHub's Markdown; `page_text` turns it into Python-Markdown's. Each entry of errors.md has a
place of its own, and the search finds it by its messages."""
import pathlib
import posixpath
import re
import sys
import typing

import pymdownx.slugs
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "docs/site"))
import reference

PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
LISTS = {"docs/decisions": ("Decisions", "decisions/index.md"), "docs/benchmarks": ("Benchmarks", "benchmarks/index.md")}
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<language>[\w+-]*)[^\n]*\n.*?^(?P=indent)(?P=ticks) *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<path>[^)\s#:]*)(?P<anchor>#[^)\s]*)?\)")
MESSAGE = re.compile(r"<li>(?P<messages>\s*(?=<code>)(?:<code>[^<]*</code>|\((?:<code>[^<]*</code>|[^()<])*\)|[^:<(])*):(?P<remedy>(?:(?!<li>).)*?)</li>", re.DOTALL)  # an entry of errors.md, as HTML
WEIGHTS = {"errors.md": 3, "guide": 3, "course": 2, "faq.md": 2, "decisions": 0.2, "benchmarks": 0.2, "changelog.md": 0.2}  # of results of a search
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
DEFINITIONS = (  # of names that code of later chapters uses, each with the form of a use
    (re.compile(r"^(?:struct|const [\w:]+) (\w+)", re.MULTILINE), r"\b{}\b"),
    (re.compile(r"^inline constexpr data::Field<.*> (\w+);", re.MULTILINE), r"\[{}\]"),
    (re.compile(r"^(?!void|int)\w+ (\w+)\(", re.MULTILINE), r"\b{}\("))
LANGUAGES = {".hpp": "cpp", ".cpp": "cpp", ".h": "c", ".py": "python", ".sh": "bash", ".f90": "fortran", ".cmake": "cmake"}

messages = []  # the entries of errors.md, for the search
pages = {}  # repository path: path of the page in the site
chapter_of = {}  # place in docs/guide.md, such as "#hdf5-files": path of the page in the site that has it


class Chapter(typing.NamedTuple):
    """A chapter of docs/guide.md, which the site shows as a page; the first one is the text before them."""
    page: str
    title: str
    text: str


def outside_code(text, change):
    """The text with change(part) in place of each part between blocks of code."""
    parts, end = [], 0
    for block in FENCE.finditer(text):
        opening = f"{block['indent']}{block['ticks']}{block['language'] if block['language'] != 'floor-plan' else 'text'}\n"
        parts += [change(text[end:block.start()]), opening + block[0].split("\n", 1)[1]]
        end = block.end()
    return "".join([*parts, change(text[end:])])


def slug(heading):
    """The place of a heading in a page, as MkDocs makes it."""
    return pymdownx.slugs.slugify(case="lower")(heading.replace("`", ""), "-")


def chapters():
    """The chapters of docs/guide.md. In the repository they are one file, since their code is one program."""
    text = (ROOT / "docs/guide.md").read_text()
    prose = FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    starts = list(re.finditer(r"^## (.*)$", prose, re.MULTILINE))
    found = [Chapter("guide.md", "Guide", text[:starts[0].start()])]
    for start, end in zip(starts, [*(s.start() for s in starts[1:]), None]):
        part = outside_code(text[start.start():end], lambda part: re.sub(r"^#(#+ )", r"\1", part, flags=re.MULTILINE))
        found.append(Chapter(f"guide/{slug(start[1]).replace('-', '_')}.md", start[1], part))
    return found


def guide_pages():
    """(path, Markdown) of the guide's pages: the text before the chapters with a list of them, and the chapters, each with links to the sections
    that define names of its code."""
    first, *rest = found = chapters()
    chapter_of.clear()
    for chapter in found:
        outside_code(chapter.text, lambda part: chapter_of.update({"#" + slug(h): chapter.page for h in HEADING.findall(part)}) or part)
    defined = {}  # name: the form of its use, and a link to the section that defines it
    for chapter in found:
        code = "\n".join(re.findall(r"^```cpp\n(.*?)^```", chapter.text, re.MULTILINE | re.DOTALL))
        own = {match[1]: (use.format(match[1]), match.start()) for pattern, use in DEFINITIONS for match in pattern.finditer(chapter.text) if match[0] in code}
        others = {}
        for name, (use, link) in defined.items():
            if name not in own and re.search(use, code):
                others.setdefault(link, []).append(f"`{name}`")
        for name, (use, start) in own.items():
            heading = [h for h in HEADING.findall(chapter.text[:start]) if "#" + slug(h) in chapter_of][-1]
            defined[name] = use, f"[{heading}](#{slug(heading)})"
        title, text = chapter.text.split("\n", 1)
        if chapter is first:
            text += "\n## Chapters\n\n" + "".join(f"- [{c.title}](#{slug(c.title)})\n" for c in rest)
        elif others:
            text = "\nThe code below uses " + "; ".join(f"{', '.join(names)} from {link}" for link, names in others.items()) + ".\n" + text
        yield chapter.page, page_text(title + "\n" + text, "docs/guide.md", chapter.page)


def target(link, folder):
    """The repository path that a link of a page in `folder` names, or None for one that is no file here."""
    path = posixpath.normpath(posixpath.join(folder, link))
    return path if link and (ROOT / path).exists() else None


def page_text(text, source, page):
    """GitHub's Markdown of the file `source` as the page `page`."""
    folder, from_page = posixpath.dirname(source), posixpath.dirname(page)

    def link(match):
        path = target(match["path"], folder) if match["path"] else source
        there = pages.get(path) if path else None
        if path == "docs/guide.md":
            there = chapter_of.get(match["anchor"], there)
        if path and there is None and path.startswith("docs/"):
            there = path.removeprefix("docs/")
        return f"]({posixpath.relpath(there, from_page or '.')}{match['anchor'] or ''})" if there and there != page else match[0]

    def change(part):
        part = LINK.sub(link, part)
        return re.sub(r"^(?! *(?:[-*+]|\d+\.) )(?P<before>\S.*)\n(?=(?:[-*+]|\d+\.) )", r"\g<before>\n\n", part, flags=re.MULTILINE)

    return outside_code(text, change)


def source_page(path):
    """A page with the text of a file, or with the files of a folder."""
    full = ROOT / path
    if full.is_dir():
        names = sorted(p.name + ("/" if p.is_dir() else "") for p in full.iterdir() if not p.name.startswith((".", "__")))
        first = full / "README.md"
        return f"# `{path}/`\n\n" + (first.read_text() + "\n\n" if first.exists() else "") + "".join(f"- `{name}`\n" for name in names)
    language = LANGUAGES.get(full.suffix, "text")
    return f"# `{path}`\n\n````{language}\n{full.read_text()}\n````\n"


def list_page(title, folder):
    lines = [f"# {title}", ""]
    for path in sorted((ROOT / folder).glob("*.md")):
        heading = re.search(r"^# (.*)", path.read_text(), re.MULTILINE)[1]
        lines.append(f"- [{heading}]({path.name})" if folder.endswith("decisions") else f"- [{path.stem[:10]}: {heading}]({path.name})")
    return "\n".join(lines) + "\n"


def linked_files(text, source):
    """Repository paths, other than pages, to which a page links."""
    found = set()
    outside_code(text, lambda part: found.update(target(m["path"], posixpath.dirname(source)) for m in LINK.finditer(part)) or part)
    return {path for path in found if path and path not in pages}


def on_files(files, config):
    pages.clear()
    pages.update(PAGES)
    pages.update({folder: page for folder, (_, page) in LISTS.items()})
    texts = {name: (ROOT / name).read_text() for name in PAGES}
    for file in files.documentation_pages():
        pages["docs/" + file.src_uri] = file.src_uri
        texts["docs/" + file.src_uri] = (ROOT / "docs" / file.src_uri).read_text()
    of_reference = dict(reference.pages(ROOT / "build/doxygen"))
    texts.update({"docs/" + page: text for page, text in of_reference.items()})
    for source, text in texts.items():
        for path in linked_files(text, source):
            if not path.startswith("docs/"):
                plain = source.startswith("docs/reference/")  # hundreds of files
                pages[path] = f"source/{path}{'/index' if (ROOT / path).is_dir() else ''}{'.txt' if plain else '.md'}"
    files.remove(files.get_file_from_path("guide.md"))
    for page, content in guide_pages():
        files.append(File.generated(config, page, content=content))
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=page_text(texts[name], name, page)))
    for folder, (title, page) in LISTS.items():
        files.append(File.generated(config, page, content=list_page(title, folder)))
    for path, page in pages.items():
        if page.startswith("source/"):
            files.append(File.generated(config, page, content=(ROOT / path).read_text() if page.endswith(".txt") else source_page(path)))
    for page, content in of_reference.items():
        files.append(File.generated(config, page, content=page_text(content, "docs/" + page, page)))
    return files


def on_page_markdown(markdown, page, config, files):
    first = page.file.src_uri.split("/")[0]
    page.meta["search"] = {"exclude": True} if first == "source" else {"boost": WEIGHTS.get(first, 1)}
    if page.file.generated_by is None:
        return page_text(markdown, "docs/" + page.file.src_uri, page.file.src_uri)
    return markdown


def on_page_content(html, page, config, files):
    if page.file.src_uri != "errors.md":
        return html
    messages.clear()

    def placed(entry):
        place = "message-" + slug(re.sub(r"<[^>]*>|&\w+;", "", entry["messages"]))[:60]
        place += f"-{len(messages)}" if any(other["location"].endswith("#" + place) for other in messages) else ""
        messages.append({"location": f"{page.url}#{place}", "title": entry["messages"].strip(), "text": entry["remedy"].strip(), "boost": 0.5})
        return entry[0].replace("<li>", f'<li id="{place}">', 1)

    return MESSAGE.sub(placed, html)


@event_priority(100)  # before the search writes its index
def on_post_build(config):
    """An entry of the search for each entry of errors.md, in place of those in the text of its sections."""
    entries = config.plugins["material/search"].search_index.entries
    for entry in entries:
        if entry["location"].startswith("errors.html"):
            entry["text"] = MESSAGE.sub("", entry["text"])
    last = max(i for i, entry in enumerate(entries) if entry["location"].startswith("errors.html"))
    entries[last + 1:last + 1] = messages
