# SPDX-License-Identifier: Apache-2.0
"""Each name of another framework that operations/refused.hpp lists is one error with the operation to write, wherever its result
goes.

    python3 tests/operations/test_missing_names.py
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SOURCE = """#include <weft/weft.hpp>
using namespace weft;
template <int> struct Along : UserAxis<0> { static constexpr std::string_view name = "along"; };
using E = DefaultDevice::execution_space;
template <class A> using C = std::remove_cvref_t<decltype(std::declval<Context<Compute<E, double>>>().with<Invariant<A>>(A{}, std::declval<Communicator>()))>;
template <int n> using V = Variable<C<Along<n>>, Tensor<double, E, Invariant<Along<n>>>>;
"""
# Each case has values of another type: an error for one type is printed once.
CALLS = ["exp({name}(x)) + x", "x * {name}(x, 2, 3)", "{name}<1>(x) * x"]


def main():
    compiler = shutil.which("g++") or shutil.which("g++-12")
    if compiler is None:
        sys.exit(77)
    text = (ROOT / "include/weft/operations/refused.hpp").read_text()
    names = [name for name in re.findall(r"WEFT_NO_(?:OPERATION|FUNCTION|PRIMITIVE)\((\w+)", text) if name != "name"]
    calls = [(name, call.format(name=name)) for name in names for call in CALLS]
    cases = [f'#line {number} "cases"\nauto case_{number}(const V<{number}>& x) {{ return {call}; }}\n'
             for number, (_, call) in enumerate(calls, 1000)]
    folders = [path for variable in ("WEFT_INCLUDES", "WEFT_NCCL_INCLUDES") for path in os.environ.get(variable, "").split(":") if path]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "names.cpp"
        source.write_text(SOURCE + "".join(cases))
        done = subprocess.run([compiler, "-std=c++20", "-fopenmp", "-w", "-DWEFT_COMPILED", "-fsyntax-only", "-fmax-errors=0",
                               "-I", str(ROOT / "include"), *[flag for path in folders for flag in ("-isystem", path)], str(source)],
                              capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    errors = re.findall(r"error: (.*)", done.stderr)
    wrong = [f"{len(errors)} errors of {len(calls)} calls"] if len(errors) != len(calls) else []
    for name, call in calls:
        count = sum(f"weft: there is no operation {name}: " in error for error in errors)
        if count != len(CALLS):
            wrong.append(f"{call}: {count} errors name {name}, not {len(CALLS)}")
    print("\n".join(wrong) or f"{len(names)} names, each one error")
    if wrong:
        print(done.stderr[-4000:])
    sys.exit(1 if wrong else 0)


main()
