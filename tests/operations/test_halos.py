# SPDX-License-Identifier: Apache-2.0
"""Each operation takes a Halo and gives one alike, if it computes each element from those at its place, or refuses it; the same
of Ghosts, the nodes of a graph. Operations that move, count or combine rows would be silently wrong.

    python3 tests/operations/test_halos.py [--show]
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Calls of x, a Variable with a Halo along dim 2, with y alike, w a Parameter, ids whole and terms, the gradient of a Halo.
TAKEN = {
    "exp": "exp(x)", "log": "log(x)", "sqrt": "sqrt(x)", "square": "square(x)", "tanh": "tanh(x)", "sigmoid": "sigmoid(x)",
    "silu": "silu(x)", "gelu": "gelu(x)", "gelu_erf": "gelu_erf(x)", "relu": "relu(x)", "sin": "sin(x)", "cos": "cos(x)",
    "abs": "abs(x)", "erf": "erf(x)", "softplus": "softplus(x)", "mish": "mish(x)", "pow": "pow(x, 2.0)", "pow_of_two": "pow(x, y)", "pow_of_number": "pow(2.0, x)", "elu": "elu(x)",
    "clamp": "clamp(x, 0.0, 1.0)", "scale": "scale(x, 2.0)", "cast": "cast<float>(x)",
    "map": "map(x, [](auto v) { return v; }, [](auto) { return 1; })", "maximum": "maximum(x, y)", "minimum": "minimum(x, y)",
    "greater": "greater(x, y)", "greater_equal": "x >= y", "less": "x < y", "less_equal": "x <= 1.0", "equal": "x == y", "not_equal": "x != 0.0", "where": "where(greater(x, 0), x, y)", "add": "x + y", "subtract": "x - y", "times": "x * y",
    "divide": "x / y", "negate": "-x", "add_number": "x + 1.0", "divide_number": "1.0 / x",
    "terms_add": "terms + terms", "terms_scale": "terms * 2.0", "terms_times": "terms * x", "terms_divide": "terms / x",
}
REFUSED = {
    "fft": "fft<1>(x)", "ifft": "ifft<1>(x)", "rfft": "rfft<1>(x)", "irfft": "irfft<1>(x, 4)", "sort": "sort<1>(x)", "topk": "topk<1>(x, 1)",
    "cumsum": "cumsum<1>(x)", "flip": "flip<1>(x)", "roll": "roll<1>(x, 1)", "pad": "pad<1>(x, 1, 1)", "einsum": 'einsum<"abc,abc->ab">(x, y)',
    "reshape": "reshape(x, {4, 4})", "upsample": "upsample(x, {})", "pixel_shuffle": "pixel_shuffle(x, 2)",
    "split_heads": "split_heads(x, 2)", "merge_heads": "merge_heads(x)", "sum_rows": "sum_rows(x)",
    "sum_columns": "sum_columns(x)", "mean_columns": "mean_columns(x)", "sum_all": "sum_all(x)", "times_heads": "times_heads(x, w)",
    "sum_each_head": "sum_each_head(x)", "mean_each_head": "mean_each_head(x)", "log_sum_exp": "log_sum_exp(x, 4)",
    "mse": "mse(x, y)", "bce_with_logits": "bce_with_logits(x, y)", "cross_entropy": "cross_entropy(x, ids)",
    "batched_matmul": "batched_matmul(x, y)", "batched_matmul_transposed": "batched_matmul_transposed(x, y)",
    "batched_transposed_matmul": "batched_transposed_matmul(x, y)", "times_row": "times_row(x, w)",
    "graph_part": "graph_part<Along<LINE>>(x, ids, ids)", "cut_pieces": "cut_pieces<Shard<Along<LINE>, 2>>(x)", "merge_samples": "merge_samples(x)", "split_samples": "split_samples(x)", "index_select": "index_select(x, ids)",
    "scatter_add": "scatter_add(x, ids, 4)", "segment_sum": "segment_sum(x, ids, 4)", "segment_mean": "segment_mean(x, ids, 4)",
    "segment_max": "segment_max(x, ids, 4)", "segment_softmax": "segment_softmax(x, ids, 4)", "attention": "attention(x, x, x)",
    "times_scalar": "times_scalar(x, y)", "times_column": "times_column(x, y)", "divide_column": "divide_column(x, y)",
    "times_each_head": "times_each_head(x, y)", "matmul": "matmul(x, w)", "matmul_of_two": "matmul(x, y)", "sum": "sum(x)", "sum_dim": "sum<1>(x)",
    "mean": "mean(x)", "mean_dim": "mean<1>(x)", "softmax": "softmax(x)", "softmax_dim": "softmax<1>(x)",
    "log_softmax": "log_softmax<1>(x)", "max": "max<1>(x)", "argmax": "argmax<1>(x)", "unflatten": "unflatten<1>(x, 2)",
    "slice": "slice<1>(x, 0, 1)", "concat": "concat<1>(x, y)", "chunk": "chunk<1, 2>(x)", "flatten": "flatten<0, 1>(x)",
    "transpose": "transpose<0, 1>(x)", "permute": "permute<1, 0, 2, 3>(x)", "add_parameter": "x + w", "subtract_parameter": "x - w",
    "times_parameter": "x * w", "sum_losses": "sum_losses(x)", "positions_of": "positions_of(x.context(), x.value())",
    "dropout": "detail::global_index_of(x.context(), x.value())", "terms_times_terms": "terms * terms",
    "terms_divided": "x / terms", "terms_exp": "exp(terms)", "terms_plus_number": "terms + 1.0", "terms_maximum": "maximum(terms, terms)", "terms_pow": "pow(terms, x)",
    "BatchNorm": "batch_norm(x)", "GroupNorm": "group_norm(x)", "LayerNorm": "layer_norm(x)", "RmsNorm": "rms_norm(x)",
    "Dropout": "dropout(x)", "Linear": "linear(x)", "terms_where": "where(greater(terms, 0), x, x)",
    **{f"{name}{dims}d": f"{name}{dims}d(x{', w' if 'conv' in name else ''})"
       for name in ("conv", "depthwise_conv", "conv_transpose", "max_pool", "avg_pool", "global_avg_pool") for dims in (1, 2, 3)},
}
HEADERS = [path.name for path in (ROOT / "include/weft/operations").glob("*.hpp") if not path.name.endswith("_impl.hpp")]
SOURCE = "".join(f"#include <weft/operations/{name}>\n" for name in sorted(HEADERS)) + """#include <weft/nn/batch_norm.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/weft.hpp>
using namespace weft;
template <int> struct Along : UserAxis<0> { static constexpr std::string_view name = "along"; };
using E = DefaultDevice::execution_space;
template <class A> using C = std::remove_cvref_t<decltype(std::declval<Context<Compute<E, double>>>().with<Invariant<A>>(A{}, std::declval<Communicator>()))>;
template <class P, class T = double> using V = Variable<C<typename P::axis>, Tensor<T, E, P>>;
template <class Y, class X> void require_alike(const Y&, const X&) {
  static_assert(std::is_same_v<typename Y::tensor_type, with_scalar_t<typename X::tensor_type, typename Y::tensor_type::value_type>>, "the result is placed otherwise");
}
"""
# Each case has another axis: an error for one type is printed once.
CASE = """#line {line} "cases"
void case_{line}(const V<{halo}>& x, const V<{halo}>& y, const V<{terms}>& terms, \
const V<Invariant<Along<{line}>>, int>& ids, const Parameter<>& w, const BatchNorm<>& batch_norm, const GroupNorm<>& group_norm, \
const LayerNorm& layer_norm, const RmsNorm& rms_norm, const Dropout& dropout, const Linear<>& linear) {{ (void)(x), (void)(y), (void)(terms), (void)(ids), (void)(w); {body}; }}
"""


def listed_operations():
    text = (ROOT / "include/weft/operations/refused.hpp").read_text()
    lines = re.findall(r"^WEFT_(?:OPERATION|CONVOLUTION|UNARY|OPERATION_OF|ORDERED|REFUSED_AS)\((?:(?:int|class|int\.\.\.), )?(?:as_)?(\w+)", text, re.MULTILINE)
    return set(lines)


def flags():
    folders = [path for name in ("WEFT_INCLUDES", "WEFT_NCCL_INCLUDES") for path in os.environ.get(name, "").split(":") if path]
    return ["-std=c++20", "-fopenmp", "-w", "-DWEFT_COMPILED", "-fsyntax-only", "-fmax-errors=0", "-ftemplate-backtrace-limit=0",
            "-I", str(ROOT / "include"), *[flag for path in folders for flag in ("-isystem", path)]]


KINDS = {"Halo": ("Halo<{axis}, 2, 1>", "HaloTerms<{axis}, 2, 1>"), "Ghosts": ("Ghosts<{axis}>", "GhostTerms<{axis}>")}


def main():
    missing = listed_operations() - TAKEN.keys() - REFUSED.keys()
    if missing:
        sys.exit(f"operations without a case: {', '.join(sorted(missing))}")
    compiler = shutil.which("g++") or shutil.which("g++-12")
    if compiler is None:
        sys.exit(77)
    cases = [(name, call, True) for name, call in TAKEN.items()] + [(name, call, False) for name, call in REFUSED.items()]
    numbered = {1000 + number: case for number, case in enumerate(cases)}
    # The result of a taken operation lies as its first operand.
    bodies = {line: f"require_alike({call}, {call.split(' ')[0] if call.startswith('terms') else 'x'})" if taken else call
              for line, (_, call, taken) in numbered.items()}
    sys.exit(max(check(kind, compiler, numbered, bodies) for kind in KINDS))


def check(kind, compiler, numbered, bodies):
    """1 if an operation takes what it should refuse, or the other way round; else 0."""
    def case(line, body):
        halo, terms = (text.format(axis=f"Along<{line}>") for text in KINDS[kind])
        return CASE.format(line=line, body=body.replace("LINE", str(line)), halo=halo, terms=terms)

    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "halos.cpp"
        source.write_text(SOURCE + "".join(case(line, body) for line, body in bodies.items()))
        done = subprocess.run([compiler, *flags(), str(source)], capture_output=True, text=True)
    if "--show" in sys.argv:
        print(done.stderr)
    # An error is printed behind the chain of instantiations that leads from the case to it.
    errors, chain = {line: [] for line in numbered}, []
    for text in done.stderr.splitlines():
        chain += re.findall(r"cases:(\d+)|case_(\d+)\b", text)
        found = re.search(r": (?:fatal )?error: (.*)", text)
        if found:
            lines = {int(a or b) for a, b in chain}
            if len(lines) != 1:
                sys.exit(f"an error of no case, or of several ({lines}):\n{text}")
            errors[lines.pop()].append(found[1])
            chain = []
        elif re.match(r"^\S.*: note:|^ ", text):
            chain = []
    wrong = []
    for line, (name, call, taken) in numbered.items():
        count = len(errors[line])
        if taken and count:
            wrong.append(f"{name}: {call} is refused: {errors[line][0]}")
        if not taken and count == 0:
            wrong.append(f"{name}: {call} compiles with a {kind}")
        if not taken and count and ("weft: " not in errors[line][0] or "cannot be called" in errors[line][0]):
            wrong.append(f"{name}: {call} is refused by an error of another kind: {errors[line][0]}")
    print("\n".join(wrong) or f"{kind}: {len(TAKEN)} operations take it, {len(REFUSED)} refuse it")
    return 1 if wrong else 0


main()
