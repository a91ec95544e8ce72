# SPDX-License-Identifier: Apache-2.0
"""A copy of weft's headers in which each call of a collective, and each call of `to` and `to_layout_of`, has a name: the header and the line.
mutation.hpp then leaves one of them out, or makes it twice.

    python3 mutate.py INCLUDE FOLDER      # FOLDER/weft/...
"""
import pathlib
import re
import shutil
import sys

# These communicate for other purposes than the tensors of a step: agreement of options, benchmarks, files, generation.
FOLDERS = ["comm", "core", "checkpoint", "dtensor", "elastic", "generation", "hugging_face", "plan", "testing", "trace"]
COLLECTIVE = re.compile(r"(\.|->)((?:all_reduce|reduce_scatter|all_gather|all_to_all)(?:_v)?(?:_async)?\()")
CONVERSION = re.compile(r"(?<![\w.:>])(to<[^;\"]*>|to_layout_of(<[^;\"]*>)?)\((?=\w|weft::|std::|$)")
NOT_COMMUNICATORS = re.compile(r"(axes|facts_\.loss)$")


def code_of(line):
    """[(begin, end)] of the parts of a line that are neither comment nor text."""
    parts, begin, inside = [], 0, False
    for i, letter in enumerate(line):
        if letter == '"' and (i == 0 or line[i - 1] != "\\"):
            if not inside:
                parts.append((begin, i))
            inside, begin = not inside, i + 1
        if not inside and line.startswith("//", i):
            return parts + [(begin, i)]
    return parts + ([] if inside else [(begin, len(line))])


def named(line, place, to_hpp):
    def in_code(match):
        return any(begin <= match.start() and match.end() <= end for begin, end in code_of(line))

    def collective(match):
        if not in_code(match) or NOT_COMMUNICATORS.search(line[:match.start()]):
            return match.group(0)
        return f'{match.group(1)}at("{place}").{match.group(2)}'

    changed = COLLECTIVE.sub(collective, line)
    declares = re.search(r"\b(auto|AlreadyRefused|static_assert|decltype|requires|struct|using|friend)\b[^=]*\b(to|to_layout_of)\(|decltype|const X&, const Y&", line)
    if changed != line or to_hpp or declares:
        return changed
    line = changed
    return CONVERSION.sub(lambda match: f'::weft::mutation::via("{place}")->*{match.group(0)}' if in_code(match) else match.group(0), line)


def replaced(text, before, after, path):
    if text.count(before) != 1:
        sys.exit(f"{path} has {text.count(before)} times, not once: {before}")
    return text.replace(before, after)


def mutate(include, folder):
    source, target = pathlib.Path(include), pathlib.Path(folder)
    shutil.copytree(source, target, dirs_exist_ok=True)
    places = 0
    for path in sorted((target / "weft").rglob("*.hpp")):
        place = path.relative_to(target / "weft")
        if place.parts[0] in FOLDERS:
            continue
        lines = path.read_text().split("\n")
        changed = [named(line, f"{place}:{number}", str(place) == "tensor/to.hpp") for number, line in enumerate(lines, 1)]
        places += sum(a != b for a, b in zip(lines, changed))
        text = "\n".join(changed)
        if str(place) == "tensor/to.hpp":
            for head in ("auto to(const Context& context, const X& x) {", "auto to_layout_of(const Context& context, X x) {"):
                text = replaced(text, head, head + "\n  const mutation::Scope scope;", place)
            head = "auto to(const Context& context, X&& x) requires(!std::is_lvalue_reference_v<X>) {"
            text = replaced(text, head, head + "\n  const mutation::Scope scope;", place)
        path.write_text(text)
    path = target / "weft/comm/communicator.hpp"
    text = path.read_text()
    text = replaced(text, "  int rank() const { return group_->rank(); }", "  const Communicator& at(const char* place) const { return mutation::collective = place, *this; }\n"
                    "  int rank() const { return group_->rank(); }", path)
    text = replaced(text, "#include <weft/comm/calls.hpp>", '#include <weft/comm/calls.hpp>\n#include "mutation.hpp"', path)
    path.write_text(text)
    path = target / "weft/comm/communicator_impl.hpp"
    text = path.read_text()
    for head in ("void Communicator::execute(const comm::Call& call) const {", "Request Communicator::start(const comm::Call& call) const {"):
        done = "return;" if head.startswith("void") else "return Request();"
        text = replaced(text, head, head.replace("comm::Call& call", "comm::Call& of") + "\n  comm::Call call = of;\n"
                        "  if (mutation::done_without(call, axis(), std::size_t(rank()), std::size_t(size()), [&](const comm::Call& one) { group_->execute(checked(one, group_->flight())); }))\n"
                        f"    {done}", path)
    path.write_text(text)
    return places


if __name__ == "__main__":
    print(mutate(*sys.argv[1:]), "places")
