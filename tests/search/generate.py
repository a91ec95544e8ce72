#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random models of weft's layers, of layers made up from typed operations and of raw ones, as C++ programs: generate.py SEED [MISTAKE].

A program's name is its seed and the mistake that it holds ("right": none). parts.hpp has the layers written by hand.
"""
import random
import sys

WIDTH, HEADS, HEAD = 16, 4, 4

# The placements of a chain's tensor: "stream" goes from block to block (whole columns), "entered" the same as Replicated<tp>,
# "cut" the columns between a Column and a Row layer. name: (places, parameters, forward of v, backward of g with v and the
# result y). P0 is the parameter, N its number of columns.
OPERATIONS = {
    "tanh": ("stream entered cut", None, "tanh(v)", "subtract(g, times(g, square(y)))"),
    "sigmoid": ("stream entered cut", None, "sigmoid(v)", "times(subtract(g, times(g, y)), y)"),
    "silu": ("stream entered cut", None, "times(v, sigmoid(v))", "[&] { const auto s = sigmoid(v); return add(times(g, s), subtract(times(g, y), times(g, times(y, s)))); }()"),
    "exp": ("stream entered cut", None, "exp(tanh(v))", "times(g, times(y, subtract(exp(scale(v, 0)), square(tanh(v)))))"),
    "gain": ("stream entered cut", "columns", "times_row(v, P.for_operand(v))", ("P.accumulate(context, sum_rows(times(v, g)));", "times_row(g, P.for_operand(v))")),
    "bias": ("stream cut", "columns", "add_row(v, P.for_operand(v))", ("P.accumulate(context, sum_rows(g));", "g")),
    "scalar": ("stream entered cut", "one", "times_scalar(v, P.for_operand(v))", ("P.accumulate(context, dot(v, g));", "times_scalar(g, P.for_operand(v))")),
    "softmax": ("stream entered", None, "softmax(v)", "softmax_gradient(y, g)"),
    "log_softmax": ("stream entered", None, "scale(log_softmax(v), 0.3)", "scale(log_softmax_gradient(scale(y, 1 / 0.3), g), 0.3)"),
    "rotate": ("stream entered", None, "concat_columns(slice_columns(v, N / 2, N / 2), slice_columns(v, 0, N / 2))",
               "concat_columns(slice_columns(g, N / 2, N / 2), slice_columns(g, 0, N / 2))"),
    "row_norm": ("stream entered", None, "times_column(v, map(mean_columns(square(v)), search::InverseRoot{0.5}))",
                 "[&] { const auto r = map(mean_columns(square(v)), search::InverseRoot{0.5}); "
                 "const auto dm = scale(times(map(r, search::Cube{}), sum_columns(times(v, g), Of::gradients)), -0.5); "
                 "return add(times_column(g, r), scale(times(v, mean_columns_gradient(v, dm)), 2)); }()"),
    "matmul": ("stream", "square", "matmul(v, P.for_operand(v))", ("P.accumulate(context, matmul_weight_gradient(g, v));", "matmul_input_gradient(g, P.for_operand(v))")),
    "matmul_in_place": ("stream", "square", "matmul(v, P.for_operand(v))", ("accumulate_product(P, g, v);", "matmul_input_gradient(g, P.for_operand(v))")),
    "head_gain": ("stream entered cut", "head", "merge_heads(times_heads(split_heads(v, 4), P.for_operand(v)))",
                  ("P.accumulate(context, sum_heads(times(split_heads(v, 4), split_heads(g, 4)), Of::gradients));", "merge_heads(times_heads(split_heads(g, 4), P.for_operand(v)))")),
    "group_gain": ("stream entered cut", "head", "merge_heads(times_heads(split_heads(v, 4), P.for_operand(v)))",
                   ("P.accumulate(context, sum_groups(times(v, g), 4, Of::gradients));", "merge_heads(times_heads(split_heads(g, 4), P.for_operand(v)))")),
    "head_norm": ("stream entered cut", None, "[&] { const auto h = split_heads(v, 4); return merge_heads(times_each_head(h, map(mean_each_head(square(h)), search::InverseRoot{0.5}))); }()",
                  "[&] { const auto h = split_heads(v, 4), k = split_heads(g, 4); const auto r = map(mean_each_head(square(h)), search::InverseRoot{0.5}); "
                  "const auto dm = scale(times(map(r, search::Cube{}), sum_each_head(times(h, k))), -0.5); "
                  "return merge_heads(add(times_each_head(k, r), scale(times(h, mean_each_head_gradient(h, dm)), 2))); }()"),
    # The norm of rows of which ranks hold some columns each.
    "column_norm": ("stream entered cut", None, "times_column(v, inverse_of(context, v))",
                    "[&] { const auto r = to<Invariant<tp>>(context, inverse_home(context, v)); "
                    "const auto dr = to<Invariant<tp>>(context, sum_columns(times(v, g), Of::gradients)); "
                    "const auto ds = to_dual_of_sums(context, v, scale(times(map(r, search::Cube{}), dr), -0.5 / N)); "
                    "return add(times_column(g, inverse_of(context, v)), scale(times(v, sum_columns_gradient(v, ds)), 2)); }()"),
    # Raw: loops over elements.
    "raw_tanh": ("stream entered cut", None, "raw_map(v, [](double e) { return std::tanh(e); })", "raw_zip(g, y, [](double a, double b) { return a * (1 - b * b); })"),
    "raw_gain": ("stream cut", "columns", "raw_rows(v, P.for_operand(v).data())",
                 ("decltype(sum_rows(times(v, g))) d(g.device(), {v.columns()}); RAW_SUM(d); P.accumulate(context, d);", "raw_rows(g, P.for_operand(v).data())")),
    "raw_positions": ("stream cut", None, "raw_by_position(context, v)", "raw_by_position(context, g)"),
    "raw_open": ("stream cut", "columns", "times_row(v, P.for_operand(v))",
                 ("const auto open = P.template open_gradient<decltype(sum_rows(times(v, g)))>(g.device()); const auto d = sum_rows(times(v, g)); "
                  "for (std::size_t i = 0; i < d.size(); ++i) open.data[i] = (open.first ? 0 : open.data[i]) + d.data()[i];", "times_row(g, P.for_operand(v))")),
    "halves": ("stream", "columns", "raw_half(context, times_row(v, P.for_operand(v)), v)",
               ("P.accumulate(context, sum_rows(times(v, raw_half(context, g, zero_of(g)))));", "add(times_row(raw_half(context, g, zero_of(g)), P.for_operand(v)), raw_half(context, zero_of(g), g))")),
}
RAW_SUM = "for (std::size_t i = 0; i < v.columns(); ++i) { d.data()[i] = 0; for (std::size_t r = 0; r < v.rows(); ++r) d.data()[i] += v.data()[r * v.columns() + i] * g.data()[r * v.columns() + i]; }"

# Mistakes inside a made-up layer: (place, parameters, forward, backward).
WRONG = {
    "to_dropped_forward": ("cut", None, "times_column(v, map(sum_columns(square(v)), search::InverseRoot{1e-5, N}))", "g"),
    "to_dropped_backward": ("cut", None, OPERATIONS["column_norm"][2], OPERATIONS["column_norm"][3].replace("to<Invariant<tp>>(context, sum_columns(times(v, g), Of::gradients))", "sum_columns(times(v, g), Of::gradients)")),
    "to_dropped_replicated": ("cut", None, "times_column(v, inverse_home(context, v))", OPERATIONS["column_norm"][3]),
    "gradient_made_as_G": ("stream", "columns", "times_row(v, P.for_operand(v))", ("std::remove_cvref_t<decltype(g)> d(g.device(), {v.columns()}); RAW_SUM(d); P.accumulate(context, d);", "times_row(g, P.for_operand(v))")),
    "gradient_made_as_value": ("stream", "columns", "times_row(v, P.for_operand(v))",
                               ("std::remove_cvref_t<decltype(P.for_operand(v))> d(g.device(), {v.columns()}); RAW_SUM(d); P.accumulate(context, d);", "times_row(g, P.for_operand(v))")),
    "gradient_without_placement": ("stream", "columns", "times_row(v, P.for_operand(v))",
                                   ("Tensor<double, typename X::execution_space> d(g.device(), {v.columns()}); RAW_SUM(d); P.accumulate(context, d);", "times_row(g, P.for_operand(v))")),
    "accumulate_forgotten": ("stream", "columns", "times_row(v, P.for_operand(v))", "times_row(g, P.for_operand(v))"),
    "whole_gain_of_cut_columns": ("cut", "whole", "times_row(v, P.for_operand(v))", OPERATIONS["gain"][3]),
    "whole_gain_of_cut_columns_raw": ("cut", "whole", "raw_rows(v, P.for_operand(v).data())", OPERATIONS["raw_gain"][3]),
    "cut_gain_of_whole_columns": ("stream", "sharded", "times_row(v, P.for_operand(v))", OPERATIONS["gain"][3]),
    "cut_gain_of_whole_columns_raw": ("stream", "sharded", "raw_rows(v, P.for_operand(v).data())", OPERATIONS["raw_gain"][3]),
    "weight_cut_along_inputs": ("stream", "square1", "matmul(to<Replicated<tp>>(context, v), P.for_operand(to<Replicated<tp>>(context, v)))", OPERATIONS["matmul"][3]),
    "raw_all_reduce": ("stream", "columns", "times_row(v, P.for_operand(v))",
                       ("auto d = sum_rows(times(v, g)); if constexpr (std::remove_cvref_t<decltype(context)>::has(dp{})) context.comm(dp{}).all_reduce(d); P.accumulate(context, d);", "times_row(g, P.for_operand(v))")),
    "raw_all_reduce_of_raw": ("stream", "columns", "times_row(v, P.for_operand(v))",
                              ("auto d = sum_rows(times(v, g)); if constexpr (std::remove_cvref_t<decltype(context)>::has(dp{})) context.comm(dp{}).all_reduce(raw(d)); P.accumulate(context, d);", "times_row(g, P.for_operand(v))")),
    "same_name_twice": ("stream", "twice", "times_row(times_row(v, P.for_operand(v)), Q.for_operand(v))",
                        ("Q.accumulate(context, sum_rows(times(times_row(v, P.for_operand(v)), g))); P.accumulate(context, sum_rows(times(v, times_row(g, Q.for_operand(v)))));", "times_row(times_row(g, Q.for_operand(v)), P.for_operand(v))")),
    "gradient_overwritten": ("stream", "columns", "times_row(v, P.for_operand(v))",
                             ("const auto open = P.template open_gradient<decltype(sum_rows(times(v, g)))>(g.device()); const auto d = sum_rows(times(v, g)); "
                              "for (std::size_t i = 0; i < d.size(); ++i) open.data[i] = d.data()[i];", "times_row(g, P.for_operand(v))")),
    "gradient_overwritten_through_state": ("stream", "columns", "times_row(v, P.for_operand(v))",
                             ("const auto d = sum_rows(times(v, g)); P.accumulate(context, d); "
                              "for (std::size_t i = 0; i < d.size(); ++i) static_cast<double*>(P.state().gradient().get())[i] = d.data()[i];", "times_row(g, P.for_operand(v))")),
    "gain_of_all_heads_raw": ("cut", "head", OPERATIONS["head_gain"][2],
                              ("decltype(sum_rows(times(v, g))) d(g.device(), {4}); for (std::size_t i = 0; i < 4; ++i) d.data()[i] = 0; "
                               "for (std::size_t i = 0; i < v.size(); ++i) d.data()[i % 4] += v.data()[i] * g.data()[i]; P.accumulate(context, d);", "merge_heads(times_heads(split_heads(g, 4), P.for_operand(v)))")),
    "gain_of_all_heads_called_whole": ("cut", "head", OPERATIONS["head_gain"][2],
                              ("const auto right = sum_groups(times(v, g), 4, Of::gradients); const auto d = called_invariant(context, right); P.accumulate(context, d);", "merge_heads(times_heads(split_heads(g, 4), P.for_operand(v)))")),
    "mutable_state": ("stream", "kept", "(kept.assign(v.data(), v.data() + v.size()), times_row(square(v), P.for_operand(v)))",
                      ("X w(g.device(), g.shape()); for (std::size_t i = 0; i < w.size(); ++i) w.data()[i] = kept[i % kept.size()]; P.accumulate(context, sum_rows(times(square(w), g)));", "scale(times(times_row(g, P.for_operand(v)), w), 2)")),
    "shift_over_gathered_cp": ("stream", None, "shifted(context, v)", "shifted_back<X>(context, g)"),
    "shift_by_local_row": ("stream", None, "raw_shift(context, v, true)", "raw_shift(context, g, false)"),
    "mean_over_local_rows": ("stream", None, "raw_minus_mean_of_rows(v)", "raw_minus_mean_of_rows(g)"),
    "norm_of_local_columns": ("cut", None, "search::RawNorm::normed(v)", "raw_norm_gradient(v, g)"),
    "mask_by_local_index": ("stream cut", None, "raw_mask(v)", "raw_mask(g)"),
    "gradient_divided_by_rows": ("stream", "columns", "times_row(v, P.for_operand(v))", ("P.accumulate(context, scale(sum_rows(times(v, g)), 1.0 / double(v.rows())));", "times_row(g, P.for_operand(v))")),
    "input_written_in_place": ("stream", None, "(scale_in_place(v, 1.5), tanh(v))", "scale(subtract(g, times(g, square(y))), 1.5)"),
    "input_gradient_not_brought_home": ("stream", None, "to<Replicated<tp>>(context, v)", "g"),
}
# Mistakes elsewhere in the program.
OTHER = ["index_forgotten", "mean_as_loss", "dropout_on_head_rows", "raw_function_of_partial", "first_sequence_unset", "share_of_world_rank", "masks_differ_over_tp",
         "tokens_differ_over_cp", "shared_under_block_path"]
LOOPS = {"first_sequence_unset", "share_of_world_rank", "masks_differ_over_tp", "tokens_differ_over_cp"}
MISTAKES = list(WRONG) + OTHER

HELPERS = r"""
template <class X> X zero_of(const X& x) { X y(x.device(), x.shape()); for (std::size_t i = 0; i < y.size(); ++i) y.data()[i] = 0; return y; }
template <class X> X raw_map(const X& x, auto f) { X y(x.device(), x.shape()); for (std::size_t i = 0; i < y.size(); ++i) y.data()[i] = f(x.data()[i]); return y; }
template <class G> G raw_zip(const G& g, const auto& b, auto f) { G y(g.device(), g.shape()); for (std::size_t i = 0; i < y.size(); ++i) y.data()[i] = f(g.data()[i], b.data()[i]); return y; }
template <class X> X raw_rows(const X& x, const double* v) { X y(x.device(), x.shape()); for (std::size_t i = 0; i < y.size(); ++i) y.data()[i] = x.data()[i] * v[i % x.columns()]; return y; }
template <class X> X raw_mask(const X& x) { X y(x.device(), x.shape()); for (std::size_t i = 0; i < y.size(); ++i) y.data()[i] = key_of(5, i) % 4 ? x.data()[i] : 0; return y; }
template <class X> void scale_in_place(const X& x, double factor) { for (std::size_t i = 0; i < x.size(); ++i) const_cast<double*>(x.data())[i] *= factor; }
template <class X> X raw_by_position(const auto& context, const X& x) {
  const auto positions = copy_to_host(positions_of(context, x));
  X y(x.device(), x.shape());
  for (std::size_t i = 0; i < y.size(); ++i) y.data()[i] = x.data()[i] * (1 + 0.1 * positions[i / x.columns()]);
  return y;
}
// a where the token is in the first half of its sequence, else b.
template <class X> X raw_half(const auto& context, const X& a, const X& b) {
  const auto positions = copy_to_host(positions_of(context, a));
  X y(a.device(), a.shape());
  for (std::size_t i = 0; i < y.size(); ++i) y.data()[i] = positions[i / a.columns()] < 4 ? a.data()[i] : b.data()[i];
  return y;
}
template <class X> X raw_minus_mean_of_rows(const X& x) {
  X y(x.device(), x.shape());
  for (std::size_t c = 0; c < x.columns(); ++c) {
    double mean = 0;
    for (std::size_t r = 0; r < x.rows(); ++r) mean += x.data()[r * x.columns() + c] / double(x.rows());
    for (std::size_t r = 0; r < x.rows(); ++r) y.data()[r * x.columns() + c] = x.data()[r * x.columns() + c] - mean;
  }
  return y;
}
template <class X> X raw_shift(const auto& context, const X& x, bool forward) {
  const auto positions = copy_to_host(positions_of(context, x));
  X y = zero_of(x);
  for (std::size_t r = 1; r < x.rows(); ++r)
    for (std::size_t c = 0; c < x.columns(); ++c)
      if (positions[r] != 0) y.data()[(forward ? r : r - 1) * x.columns() + c] = x.data()[(forward ? r - 1 : r) * x.columns() + c];
  return y;
}
template <class X, class G> G raw_norm_gradient(const X& x, const G& g) {
  const X n = search::RawNorm::normed(x);
  G dx(g.device(), g.shape());
  const std::size_t columns = x.columns();
  for (std::size_t row = 0; row < x.rows(); ++row) {
    double sum = 0, product = 0;
    for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) sum += x.data()[i] * x.data()[i], product += n.data()[i] * g.data()[i];
    for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) dx.data()[i] = (g.data()[i] - n.data()[i] * product / double(columns)) / std::sqrt(sum / double(columns) + 1e-5);
  }
  return dx;
}
// Each token takes the one before it in its sequence: on whole sequences.
template <class W> W shift_whole(const W& w, std::size_t length, bool forward) {
  W y = zero_of(w);
  for (std::size_t r = 0; r + 1 < w.rows(); ++r)
    for (std::size_t c = 0; c < w.columns(); ++c)
      if ((r + 1) % length != 0) y.data()[(forward ? r + 1 : r) * w.columns() + c] = w.data()[(forward ? r : r + 1) * w.columns() + c];
  return y;
}
template <class X> X shifted(const auto& context, const X& x) {
  const auto whole = to<Invariant<cp>>(context, to<Invariant<tp>>(context, x));
  return to_layout_of<X>(context, shift_whole(whole, sequence_length(context, whole), true));
}
template <class X> gradient_t<X> shifted_back(const auto& context, const gradient_t<X>& g) {
  const auto whole = to<Invariant<cp>>(context, to<Invariant<tp>>(context, g));
  return to_layout_of<gradient_t<X>>(context, shift_whole(whole, sequence_length(context, whole), false));
}
auto inverse_home(const auto& context, const auto& v) {
  return map(to<Invariant<tp>>(context, sum_columns(square(v))), search::InverseRoot{1e-5, 16});
}
template <class V> auto inverse_of(const auto& context, const V& v) {
  if constexpr (shard_dim<placement_t<V, tp>> == 1 || std::is_same_v<placement_t<V, tp>, Replicated<tp>>) return to<Replicated<tp>>(context, inverse_home(context, v));
  else return map(sum_columns(square(v)), search::InverseRoot{1e-5, 16});
}
template <class V, class D> auto to_dual_of_sums(const auto& context, const V& v, const D& d) {
  return to_layout_of<gradient_t<decltype(sum_columns(v))>>(context, d);
}
template <class T, class E, class... P> auto called_invariant(const auto&, const Tensor<T, E, P...>& x) {
  Tensor<T, E, std::conditional_t<std::is_same_v<typename P::axis, tp>, Invariant<tp>, P>...> y(x.device(), x.shape());
  for (std::size_t i = 0; i < y.size(); ++i) y.data()[i] = x.data()[i];
  return y;
}
"""


class Program:
    def __init__(self, seed, mistake="right"):
        self.random, self.mistake, self.layers, self.count, self.shared = random.Random(seed), mistake, [], 0, []
        self.name = f"{seed}-{mistake}"

    def chance(self, p):
        return self.random.random() < p

    def number(self):
        self.count += 1
        return self.count

    def made_up(self, place, columns, wrong=None):
        """A layer of one to three operations; returns the expression that makes it."""
        fit = [name for name, operation in OPERATIONS.items() if place in operation[0].split()]
        if place != "stream":
            fit.remove("column_norm") if columns != 16 or place == "entered" else None
        chosen = [OPERATIONS[name] for name in self.random.sample(fit, self.random.randint(1, 3))]
        if wrong:
            chosen = chosen[:1]
            chosen.insert(self.random.randint(0, 1), wrong)
        n = self.number()
        members, makes, forward, backward = [], [], [], []
        for i, (_, parameter, f, b) in enumerate(chosen):
            p = f"p{i}"
            if parameter:
                rule = {"columns": "Shard<tp, 0>" if place == "cut" else "", "sharded": "Shard<tp, 0>", "square1": "Shard<tp, 1>"}.get(parameter, "")
                shape = {"one": "1", "head": "4", "square": f"{columns}, {columns}", "square1": f"{columns}, {columns}"}.get(parameter, str(columns))
                initial = {"square": "normal(0.3)", "square1": "normal(0.3)"}.get(parameter, "normal(1)")
                names = [(p, p)] + ([("q" + p, p)] if parameter == "twice" else [])
                for member, name in names:
                    members.append(f"  Parameter<{rule}> {member};")
                    makes.append(f'{member}(context, "{name}", {{{shape}}}, {initial})')
                if parameter == "kept":
                    members.append("  mutable std::vector<double> kept;")
            def fill(text):
                return text.replace("RAW_SUM(d);", RAW_SUM).replace("Q.", f"q{p}.").replace("P.", f"{p}.").replace("(P,", f"({p},").replace(" N", f" {columns}.0").replace(f" {columns}.0 / 2", f" {columns} / 2")
            aliases = lambda names: " ".join(f"[[maybe_unused]] const auto& {short} = {long};" for short, long in names)
            forward.append(f"    const auto v{i + 1} = [&] {{ {aliases([('v', f'v{i}')])} return {fill(f)}; }}();")
            statements, value = (b if isinstance(b, tuple) else ("", b))
            backward.insert(0, f"    const auto g{i} = [&] {{ using X = std::remove_cvref_t<decltype(v{i})>; {aliases([('v', f'v{i}'), ('y', f'v{i + 1}'), ('g', f'g{i + 1}')])} (void)sizeof(X); {fill(statements)} return {fill(value)}; }}();")
        k = len(chosen)
        body = "\n".join(forward)
        again = body.replace("kept.assign(v.data(), v.data() + v.size())", "void(kept.size())")
        colon = (" : " + ", ".join(makes)) if makes else ""
        self.layers.append(f"""struct Own{n} {{
{chr(10).join(members)}
  Own{n}([[maybe_unused]] const auto& context){colon} {{}}
  auto forward([[maybe_unused]] const auto& context, const auto& v0) const {{
{body}
    return Result{{v{k}, v0}};
  }}
  template <class V, class G>
  auto backward([[maybe_unused]] const auto& context, V v0, const G& g{k}) {{
{again}
{chr(10).join(backward)}
    return g0;
  }}
}};""")
        return f'Own{n}(here / "own{n}")'

    def norm(self):
        kind = self.random.choice(["LayerNorm", "RmsNorm", "search::OwnNorm", "search::RawNorm"])
        return f'{kind}(here / "norm{self.number()}", {WIDTH})'

    def dropout(self):
        return f'Dropout(here / "dropout{self.number()}", {self.random.choice(["0.1", "0.3"])})'

    def linear(self, kind, inputs, outputs, options="{.standard_deviation = 0.3}"):
        bias = ", StoredAs::out_in, false" if self.chance(0.4) else (", StoredAs::in_out" if self.chance(0.3) else "")
        return f'Linear<{kind}{bias}>(here / "{kind.lower()}{self.number()}", {inputs}, {outputs}, {options})'

    def cut_layers(self, columns):
        """Operations that are valid between a Column and a Row layer."""
        chosen = []
        for _ in range(self.random.randint(0, 2)):
            chosen.append(self.random.choice([lambda: "Gelu{}", self.dropout, lambda: self.made_up("cut", columns), lambda: f'search::HeadNorm(here / "heads{self.number()}", 4)']))
        return [make() for make in chosen]

    def attention(self):
        kv = self.random.choice([1, 2, 4])
        query = f"{{0.3, {{{{{{{WIDTH}, {HEADS}}}}}, false}}}}"
        key = f"{{0.3, {{{{{{{kv * HEAD}, {kv}}}}}, false}}}}"
        bias = ", StoredAs::out_in, false" if self.chance(0.5) else ""
        n = self.number()
        parts = [self.norm(), "weft_test::EnterParallelRegion<tp>{}",
                 f'weft_test::Branch(Linear<Column{bias}>(here / "q{n}", {WIDTH}, {WIDTH}, {query}), Linear<Column{bias}>(here / "k{n}", {WIDTH}, {kv * HEAD}, {key}), Linear<Column{bias}>(here / "v{n}", {WIDTH}, {kv * HEAD}, {key}))']
        if self.chance(0.5):
            parts.append(f'search::QueryKeyNorm(here / "qk{n}", {HEAD})')
        if self.chance(0.6):
            parts.append(f"RotaryPositions({HEAD})")
        parts.append(f"CausalAttention(here, AttentionHeads{{{HEADS}, {kv}, {HEAD}}})")
        if self.chance(0.3):
            parts.append(self.dropout())
        parts.append(f'Linear<Row>(here / "o{n}", {WIDTH}, {WIDTH}, {query})')
        if self.chance(0.3):
            parts.append(self.dropout())
        return f"Sequential({', '.join(parts)})"

    def mlp(self, wrong=None, own=False):
        inside = self.random.choice([16, 32])
        if wrong or own:
            inside = 16
        if self.chance(0.3) and not wrong:
            n = self.number()
            entered = [self.made_up("entered", WIDTH)] if self.chance(0.4) else []
            fork = f'weft_test::Branch(Linear<Column>(here / "gate{n}", {WIDTH}, {inside}, {{0.3}}), Linear<Column>(here / "up{n}", {WIDTH}, {inside}, {{0.3}}))'
            parts = [self.norm(), "weft_test::EnterParallelRegion<tp>{}", *entered, fork, "SwiGlu{}", *self.cut_layers(inside), self.linear("Row", inside, WIDTH)]
        else:
            first, second = self.norm(), self.linear("Column", WIDTH, inside)
            start = [f"weft_test::recompute_input({first}, {second}, {self.random.choice(['true', 'false'])})"] if self.chance(0.25) else [first, second]
            between = [self.made_up("cut", inside, wrong)] if wrong or own else []
            parts = [*start, *between, *self.cut_layers(inside), self.linear("Row", inside, WIDTH)]
        if self.chance(0.2):
            parts.append(self.dropout())
        return f"Sequential({', '.join(parts)})"

    def stream_layers(self, wrong=None):
        parts = [self.made_up("stream", WIDTH, wrong)]
        if self.chance(0.5):
            parts.insert(0, self.norm())
        if self.chance(0.4):
            parts.append(self.linear("Whole", WIDTH, WIDTH))
        if self.chance(0.3):
            parts.append("Gelu{}")
        return f"Sequential({', '.join(parts)})"

    def twice(self):
        layer = self.linear("Whole", WIDTH, WIDTH)
        if self.chance(0.5):
            return f"[&] {{ auto handle = {layer}; return Sequential(handle, Gelu{{}}, handle); }}()"
        n = self.number()
        return f'Sequential(shared_layer(context / "shared{n}", [&](const auto& here) {{ return {layer}; }}), Gelu{{}})'

    def branch(self):
        kind = self.random.choice(["attention", "mlp", "mlp", "stream", "stream", "twice", "norm", "nested", "mixture"])
        if kind == "nested":
            return f"Residual({self.branch()})"
        if kind == "norm":
            return self.norm()
        if kind == "mixture":
            if not self.chance(0.4):
                return self.stream_layers()
            return f'Sequential({self.norm()}, Mixture(here / "experts{self.number()}", {WIDTH}, 8, {{.experts = 4, .top_k = 2, .auxiliary_loss = 0.1, .z_loss = 0.01}}, 0.3, 0.3))'
        return {"attention": self.attention, "mlp": lambda: self.mlp(own=self.chance(0.5)), "stream": self.stream_layers, "twice": self.twice}[kind]()

    def whole(self, branch):
        text = f"Residual({branch})"
        if self.chance(0.2):
            text = f"weft_test::Recompute({text}, {self.random.choice(['true', 'false'])})"
        return text

    def text(self):
        m = self.mistake
        parts = [self.whole(self.branch()) for _ in range(self.random.randint(1, 3))]
        wrong = None
        if m in WRONG:
            places = WRONG[m][0].split()
            place = self.random.choice(places)
            wrong = self.whole(self.mlp(WRONG[m]) if place == "cut" else self.stream_layers(WRONG[m]))
        elif m == "dropout_on_head_rows":
            wrong = f'Residual(Sequential({self.norm()}, search::HeadRowsDropout(here / "rows", 4)))'
        elif m == "raw_function_of_partial":
            wrong = f"Residual(Sequential({self.norm()}, {self.linear('Column', WIDTH, 16)}, Gelu{{}}, {self.linear('Row', 16, WIDTH)}, search::RawGelu{{}}))"
        elif m == "shared_under_block_path":
            wrong = f'Residual(Sequential(shared_layer(here / "shared", [&](const auto& here) {{ return {self.linear("Whole", WIDTH, WIDTH)}; }}), Gelu{{}}))'
        if wrong:
            parts.insert(self.random.randint(0, len(parts)), wrong)
        front = self.random.choice(["Embedding", "Embedding", "norm", "dropout", "own"])
        table = 'Embedding(here / "tokens", config.vocabulary, 16, 0.5)'
        fronts = {"Embedding": lambda: table, "norm": lambda: f"Sequential({table}, {self.norm()})", "dropout": lambda: f"Sequential({table}, {self.dropout()})",
                  "own": lambda: f"Sequential({table}, {self.made_up('stream', WIDTH)})"}
        front_text = fronts[front]()
        head = self.random.choice(["language", "language", "z", "square"])
        if m == "mean_as_loss":
            head = "square"
        norm = self.random.choice(["LayerNorm", "RmsNorm"])
        if head == "language":
            back, tied = f"LanguageHead<{norm}>", front == "Embedding" and self.chance(0.6)
            other = 'Embedding(context / "head", config.vocabulary, 16, 0.5).table'
            make_back = f'return Back({norm}(context / "last", 16), {"(front ? front->table : make_front(context, config).table)" if tied else other});'
        elif head == "z":
            back, make_back = "search::ZLossHead", 'return Back(context / "head", config.vocabulary, 16);'
        else:
            back = f"search::SquareHead<{'true' if m == 'mean_as_loss' else 'false'}>"
            make_back = 'return {LayerNorm(context / "last", 16), Linear<>(context / "head", 16, config.vocabulary, {.standard_deviation = 0.3})};'
        index = "" if m == "index_forgotten" else ' / std::to_string(index)'
        block = f"Sequential({', '.join(parts)})"
        streams = self.random.choice(["whole_rows", "cut_rows"])
        loop = m if m in LOOPS else "right"
        layers = "\n".join(self.layers)
        return f"""// {self.name}: made by generate.py.
#include "search/parts.hpp"
using namespace weft;

namespace {{
{HELPERS}
{layers}

auto front_of(const auto& context, const auto& config) {{
  const auto& here = context;
  return {front_text};
}}
auto block_of(const auto& context, [[maybe_unused]] std::size_t index) {{
  const auto here = context / "blocks"{index};
  return {block};
}}

struct Sizes {{
  std::size_t vocabulary = weft_test::batch_vocabulary, layers = 4;
}};
struct Model {{
  using Config = Sizes;
  using scalar = double;
  using Front = decltype(front_of(std::declval<const search::Plain&>(), Sizes{{}}));
  using Block = decltype(block_of(std::declval<const search::Plain&>(), 0));
  using Back = {back};
  static std::size_t blocks(const Config& config) {{ return config.layers; }}
  static std::size_t vocabulary(const Config& config) {{ return config.vocabulary; }}
  static void check(const Config&, const ModelDegrees&) {{}}
  static Front make_front(const auto& context, const Config& config) {{ return front_of(context, config); }}
  static Block make_block(const auto& context, const Config&, std::size_t index) {{ return block_of(context, index); }}
  static Back make_back([[maybe_unused]] const auto& context, [[maybe_unused]] const Config& config, [[maybe_unused]] Front* front) {{ {make_back} }}
}};

}}  // namespace

int main(int argc, char** argv) {{ return search::run<Model, search::Streams::{streams}>("{self.name}", argc, argv, search::Loop::{loop}); }}
"""


if __name__ == "__main__":
    if len(sys.argv) < 2 or len(sys.argv) > 3 or (len(sys.argv) == 3 and sys.argv[2] not in MISTAKES + ["right"]):
        sys.exit("usage: generate.py SEED [MISTAKE], a mistake of: right " + " ".join(MISTAKES))
    print(Program(int(sys.argv[1]), *sys.argv[2:]).text())
