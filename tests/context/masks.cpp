// SPDX-License-Identifier: Apache-2.0
// covers: weft/context/global_index.hpp
// Dropout masks are functions of the global element, for every sharding and view of the tensor; an element without a known global
// index is refused. Dims that are divided by segments or repeated are not gathered as if they were divided evenly.

#include <doctest/doctest.h>

#include <array>
#include <mutex>
#include <string>
#include <vector>

#include <weft/context/global_index.hpp>
#include <weft/weft.hpp>

#include "support/degrees.hpp"

using namespace weft;

namespace {

constexpr std::size_t sequences = 4, length = 8, tokens = sequences * length, heads = 8, width = 6, columns = heads * width;

using Exec = DefaultDevice::execution_space;
using Root = Context<Compute<Exec, float>>;

Root root(DefaultDevice& device, std::size_t rows) {
  detail::Environment environment;
  environment.seed = 3;
  environment.length = length;
  environment.rows = rows;
  return Root(device, environment);
}

template <class Context, class X>
std::vector<float> dropped(const Context& context, X x) {
  kernels::fill(x.device(), x.size(), x.data(), 1.0f);
  const Dropout dropout(context / "site", 0.3);
  auto step = dropout.forward(context, x);
  CHECK(copy_to_host(dropout.backward(context, step.saved, x)) == copy_to_host(step.output));
  CHECK(step.output.shape() == x.shape());
  return copy_to_host(step.output);
}

std::vector<float> whole_mask() {
  DefaultDevice device;
  const auto flat = dropped(root(device, tokens), Tensor<float, Exec>(device, {tokens, columns}));
  CHECK(flat == dropped(root(device, tokens), Tensor<float, Exec>(device, {tokens, heads, width})));
  CHECK(flat == dropped(root(device, tokens), Tensor<float, Exec>(device, {tokens, heads, 2, width / 2})));
  return flat;
}

// The message of the exception of f; "" if it throws none.
template <class Error, class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

template <class F>
void on_tensor_ranks(int ranks, F&& f) {
  CHECK(run(RunOptions{.ranks = ranks},
            [&](World& world) { f(world, root(world.device(), tokens).with<Invariant<tp>>(tp{}, world.communicator())); }) == 0);
}

}  // namespace

TEST_CASE("masks of [tokens, columns] and of [tokens, heads, width] are those of one rank over dp, cp and tp") {
  const auto whole = whole_mask();
  for (const auto& [d, c, t] : std::vector<std::array<std::size_t, 3>>{{1, 1, 1},
                                                                       {2, 1, 1},
                                                                       {4, 1, 1},
                                                                       {1, 2, 1},
                                                                       {1, 4, 1},
                                                                       {1, 1, 2},
                                                                       {1, 1, 4},
                                                                       {2, 2, 1},
                                                                       {2, 1, 2},
                                                                       {1, 2, 2},
                                                                       {2, 2, 2}}) {
    std::mutex mutex;
    std::size_t wrong = 0, compared = 0;
    const std::size_t data = d, parts = c, tensor = t;  // clang before 16 does not capture bindings
    const int code = run(RunOptions{.ranks = int(data * parts * tensor)}, [&](World& world) {
      Mesh<dp, cp, tp> mesh(world, {.tp = tensor, .cp = parts});
      const std::size_t share = tokens / data, first = std::size_t(mesh.rank(dp{})) * share, here = share / parts;
      auto context = root(world.device(), share)
                         .template with<Shard<dp, 0>>(dp{}, mesh.comm(dp{}))
                         .template with<Shard<cp, 0>>(cp{}, mesh.comm(cp{}))
                         .template with<Invariant<tp>>(tp{}, mesh.comm(tp{}));
      context.env.first_row = first;
      const detail::Zigzag cut{length, parts, std::size_t(mesh.rank(cp{}))};
      const std::size_t part = std::size_t(mesh.rank(tp{}));
      const auto check = [&]<class P>(P, const Shape& shape, std::size_t skipped, std::size_t column) {
        const auto mine = dropped(context, Tensor<float, Exec, Shard<dp, 0>, Shard<cp, 0>, P>(world.device(), shape));
        const std::size_t across = shape.size() / shape[0];
        std::size_t differ = 0;
        for (std::size_t i = 0; i < mine.size(); ++i) {
          const std::size_t row = skipped + i / across, token = first + (parts == 1 ? row : cut.row(row));
          differ += mine[i] != whole[token * columns + column + i % across];
        }
        std::lock_guard lock(mutex);
        wrong += differ;
        compared += mine.size();
      };
      check(Invariant<tp>{}, {here, columns}, 0, 0);
      check(Partial<tp>{}, {here, heads, width}, 0, 0);
      check(Shard<tp, 1>{}, {here, columns / tensor}, 0, part * columns / tensor);
      check(Shard<tp, 1>{}, {here, heads / tensor, width}, 0, part * columns / tensor);
      check(Shard<tp, 0>{}, {here / tensor, columns}, part * here / tensor, 0);
      check(Shard<tp, 0>{}, {here / tensor, heads, width}, part * here / tensor, 0);
    });
    INFO("dp(" << data << ") * cp(" << parts << ") * tp(" << tensor << ")");
    CHECK(code == 0);
    CHECK(wrong == 0);
    CHECK(compared != 0);
  }
}

TEST_CASE("a mask goes by tokens: rows that are not the context's are refused") {
  DefaultDevice device;
  CHECK(refusal<ShapeError>([&] {
          dropped(root(device, tokens), Tensor<float, Exec>(device, {tokens * heads, width}));
        }) ==
        "weft: masks and positions go by tokens, dim 0: [256, 6] has not the rows of this micro-batch, 32 / (cp(1) * tp(1)); "
        "take a view whose dim 0 is the tokens");
  CHECK(refusal<ShapeError>([&] {
          positions_of(root(device, tokens), Tensor<float, Exec>(device, {tokens * heads, width}));
        }).find("go by tokens") != std::string::npos);
  CHECK(copy_to_host(positions_of(root(device, tokens), Tensor<float, Exec>(device, {tokens, heads, width}))) ==
        copy_to_host(positions_of(root(device, tokens), Tensor<float, Exec>(device, {tokens, width}))));
  on_tensor_ranks(2, [](World& world, const auto& context) {
    // A view by heads of a part of the heads, and rows that were gathered.
    CHECK(refusal<ShapeError>([&] {
            dropped(context, Tensor<float, Exec, Shard<tp, 1>>(world.device(), {tokens * heads / 2, width}));
          }).find("go by tokens") != std::string::npos);
    CHECK(refusal<ShapeError>([&] {
            dropped(context, Tensor<float, Exec, Shard<tp, 0>>(world.device(), {tokens, width}));
          }) ==
          "weft: masks and positions go by tokens, dim 0: [32, 6] has not the rows of this micro-batch, 32 / (cp(1) * tp(2)); "
          "take a view whose dim 0 is the tokens");
  });
}

TEST_CASE("a mask over columns that are cut by segments, held alike or padded is refused") {
  on_tensor_ranks(4, [](World& world, const auto& context) {
    const Tensor<float, Exec, Replicated<tp>> x(world.device(), {tokens, 16});
    kernels::fill(x.device(), x.size(), x.data(), 1.0f);
    // f of the output of a Column layer with this sharding.
    const auto after = [&](const ParameterSharding& cut, std::size_t out) {
      Linear<Column, StoredAs::out_in, false> stored(context / "out_in", 16, out, {.sharding = cut});
      Linear<Column, StoredAs::in_out> with_bias(context / "in_out", 16, out, {.sharding = cut});
      const auto y = stored.forward(context, x).output, z = with_bias.forward(context, x).output;
      const auto g = with_bias.forward_gelu(context, x).second;
      const auto text = refusal<LayoutError>([&] { dropped(context, y); });
      for (const auto& same : {z, g, add(z, y), times(y, z),
                               map(
                                   y, KOKKOS_LAMBDA(float value) { return value * 2; }),
                               add_row(z, with_bias.bias->for_operand(z))})
        CHECK(refusal<LayoutError>([&] { dropped(context, same); }) == text);
      // On rows that tp cuts, which are gathered piece by piece.
      const auto pieces = to<Shard<tp, 0>>(context, relabel<Tensor<float, Exec, Invariant<tp>>>(x));
      CHECK(refusal<LayoutError>([&] { dropped(context, stored.forward(context, pieces).output); }) == text);
      // The sums of its rows are marked along the only dim that they have.
      CHECK(sum_rows(y).shape().sharding(0) == y.shape().sharding(1));
      CHECK(matmul_weight_gradient(y, x).shape().sharding(0) == y.shape().sharding(1));
      return text;
    };
    CHECK(after({}, 24) == "");
    CHECK(after({{{24, 4}}, false}, 24) == "");
    CHECK(after({{{12, 2}}, false}, 12) ==
          "weft: a mask of [32, 6]: dim 1 is held alike by several ranks, so the mask would not be that of one rank; draw it "
          "where the dim is cut evenly (after attention, or before the Column layer)");
    CHECK(after({{{24, 4}, {12, 2}, {12, 2}}, false}, 48).find("[32, 18]: dim 1 is held alike by several ranks") !=
          std::string::npos);
    CHECK(after({{{24, 4}, {24, 4}, {24, 4}}, false}, 72).find("[32, 18]: dim 1 is cut by segments") != std::string::npos);
    CHECK(after({{}, true}, 19).find("[32, 5]: dim 1 is padded") != std::string::npos);
    CHECK(after({{}, true}, 20) == "");
  });
}

TEST_CASE("rows that are cut by segments, replicated or padded are not gathered as if cut evenly") {
  on_tensor_ranks(4, [](World& world, const auto& context) {
    const Tensor<float, Exec, Replicated<tp>> x(world.device(), {tokens, 16});
    kernels::fill(x.device(), x.size(), x.data(), 1.0f);
    const auto columns_of = [&](const ParameterSharding& cut, std::size_t out) {
      return Linear<Column, StoredAs::out_in, false>(context / "layer", 16, out, {.sharding = cut}).forward(context, x).output;
    };
    const auto fused = columns_of({{{24, 4}, {24, 4}}, false}, 48), alike = columns_of({{{12, 2}}, false}, 12),
               padded = columns_of({{}, true}, 19), even = columns_of({}, 24);
    CHECK(refusal<LayoutError>([&] { to<Invariant<tp>>(context, fused); }) ==
          "weft: to: dim 1 of [32, 12] is cut over tp(4) by segments: the ranks' parts, one after the other, are not the whole; "
          "work on it as it lies (log_sum_exp, cross_entropy), bring columns home without their padding (gather_columns), or cut "
          "it evenly: an extent that the ranks divide, a ParameterSharding by heads");
    CHECK(refusal<LayoutError>([&] { to<Replicated<tp>>(context, alike); }) ==
          "weft: to: dim 1 of [32, 6] is cut over tp(4) with elements that several ranks hold alike: the ranks' parts, one after "
          "the other, are not the whole; work on it as it lies (log_sum_exp, cross_entropy), bring columns home without "
          "their padding (gather_columns), or cut it evenly: an extent that the ranks divide, a ParameterSharding by heads");
    CHECK(refusal<LayoutError>([&] { to<Partial<tp>>(context, alike); }) != "");
    CHECK(refusal<LayoutError>([&] { to<Invariant<tp>>(context, sum_rows(alike)); }) != "");
    CHECK(to<Invariant<tp>>(context, even).shape() == Shape{tokens, 24});
    CHECK(refusal<LayoutError>([&] { to<Invariant<tp>>(context, padded); }).find("with padding at the end") !=
          std::string::npos);  // one rank has 19 columns
    const auto home = gather_columns(context, padded, 19);
    CHECK(home.shape() == Shape{tokens, 19});
    const auto back = gather_columns_gradient(context, padded, home);
    CHECK(back.shape() == padded.shape());
    const auto theirs = copy_to_host(back), mine = copy_to_host(padded);
    for (std::size_t i = 0; i < mine.size(); ++i) CHECK(theirs[i] == (context.rank(tp{}) == 3 && i % 5 == 4 ? 0.0f : mine[i]));
    CHECK(to<Invariant<tp>>(context, sum_rows(even)).size() == 24);
    // Key-value heads that several ranks share pass rotary positions and attention, whose output is divided evenly again.
    const auto query = columns_of({{{32, 4}}, false}, 32), key = columns_of({{{16, 2}}, false}, 16);
    const AttentionHeads eight{4, 2, 8};
    const auto turned = RotaryPositions(8).forward(context, std::tuple{query, key, key}).output;
    CHECK(std::get<1>(turned).shape().sharding(1) == DimSharding::replicated);
    const CausalAttention attention(context, eight);
    auto step = attention.forward(context, turned);
    CHECK(step.output.shape().sharding(1) == DimSharding::even);
    const auto d = attention.backward(context, std::move(step.saved), step.output);
    CHECK(std::get<0>(d).shape().sharding(1) == DimSharding::even);
    CHECK(std::get<2>(d).shape().sharding(1) == DimSharding::replicated);
  });
}

TEST_CASE("operations of matrices refuse dims that the rules of a matrix do not mean") {
  on_tensor_ranks(2, [](World& world, const auto& context) {
    const Tensor<float, Exec, Shard<tp, 1>> by_heads(world.device(), {tokens, 4, 6});
    const Parameter<Shard<tp, 0>> gain(context, "gain", {12}, ones);
    CHECK(refusal<ShapeError>([&] { times_row(by_heads, gain.for_operand(by_heads)); }) ==
          "weft: times_row([32, 4, 6]): an axis cuts dim 1, which are not the columns; use times_heads and sum_heads, or "
          "merge_heads first");
    CHECK(refusal<ShapeError>([&] { add_row(by_heads, gain.for_operand(by_heads)); }) != "");
    CHECK(refusal<ShapeError>([&] { sum_rows(by_heads); }) != "");
    const Parameter<Shard<tp, 1>> weight(context, "weight", {8, 12}, ones);
    CHECK(refusal<ShapeError>([&] {
            matmul(by_heads, weight.for_operand(by_heads));
          }).find("matmul([32, 4, 6]): an axis cuts dim 1") != std::string::npos);
    const Tensor<float, Exec, Shard<tp, 0>> vector(world.device(), {tokens});
    CHECK(refusal<ShapeError>([&] { sum_rows(vector); }) ==
          "weft: sum_rows([32]): an axis cuts a tensor that is not a matrix of rows and columns");
  });
}

TEST_CASE("a Row layer takes inputs that are cut as its weight, each of one rank") {
  on_tensor_ranks(2, [](World& world, const auto& context) {
    const Tensor<float, Exec, Replicated<tp>> x(world.device(), {tokens, 16});
    kernels::fill(x.device(), x.size(), x.data(), 1.0f);
    const ParameterSharding fused{{{8, 0}, {16, 0}}, false};
    const auto even = Linear<Column>(context / "even", 16, 24).forward(context, x).output,
               pieces = Linear<Column>(context / "pieces", 16, 24, {.sharding = fused}).forward(context, x).output;
    const Linear<Row> of_even(context / "of_even", 24, 16), of_pieces(context / "of_pieces", 24, 16, {.sharding = fused});
    CHECK(of_even.forward(context, even).output.size() == tokens * 16);
    CHECK(of_pieces
              .forward(context, map(
                                    pieces, KOKKOS_LAMBDA(float value) { return value; }))
              .output.size() == tokens * 16);
    CHECK(refusal<LayoutError>([&] { of_even.forward(context, pieces); }) ==
          "weft: parameter of_even.weight [16, 12]: its inputs [32, 12] are cut otherwise over tp (by segments, alike or "
          "padded), so a rank would multiply other elements than on one rank; give both the same ParameterSharding, and results "
          "of own kernels the marks of their inputs (Shape::set_sharding)");
    CHECK(refusal<LayoutError>([&] { of_pieces.forward(context, even); }).find("are cut otherwise over tp") != std::string::npos);
    CHECK(refusal<LayoutError>([&] {
            Linear<Row>(context / "alike", 12, 16, {.sharding = {{{12, 1}}, false}});
          }) ==
          "weft: parameter alike.weight [16, 12]: a Row layer would count inputs several times that several ranks hold alike; "
          "cut it so that each is one rank's");
  });
}
