// SPDX-License-Identifier: Apache-2.0
// covers: weft/nn/ring_attention.hpp weft/nn/ulysses_attention.hpp
// The attention core over 1, 2, 4 and 8 ranks of cp, by a ring and by Ulysses, against one rank: outputs and gradients, fused
// and separate operands, several sequences, messages too long to be copied when sent. Dropout masks under cp are bitwise those
// of the whole batch.

#include <doctest/doctest.h>

#include <atomic>
#include <mutex>
#include <vector>

#include <weft/nn/ring_attention.hpp>
#include <weft/nn/ulysses_attention.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

constexpr std::size_t length = 128, columns_of_head = 16;
std::size_t sequences = 3;  // of the test case
AttentionMask mask;         // of the test case
// Documents of whole sequences; null: none. Longer than a rank's chunks, and shorter.
std::shared_ptr<const std::int32_t> documents;

using Exec = DefaultDevice::execution_space;
template <class T>
using Root = Context<Compute<Exec, T>>;

template <class T>
Root<T> root(DefaultDevice& device) {
  detail::Environment environment;
  environment.length = length;
  environment.documents = documents;
  return Root<T>(device, environment);
}

/// This rank's rows of a matrix that is drawn equally on every rank.
template <class X>
X drawn(DefaultDevice& device, const detail::Zigzag& cut, std::size_t columns, std::uint64_t key) {
  using T = typename X::value_type;
  std::vector<T> values;
  const std::size_t rows = sequences * cut.local();
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t c = 0; c < columns; ++c) values.push_back(T(accumulate_t<T>(Philox::normal(key, cut.row(i) * columns + c))));
  X x(device, {rows, columns});
  copy_from_host(x, std::span<const T>(values));
  return x;
}

template <class X>
void put(std::vector<double>& whole, const X& x, const detail::Zigzag& cut) {
  const auto mine = copy_to_host(x);
  whole.resize(sequences * length * x.columns());
  for (std::size_t i = 0; i < x.rows(); ++i)
    for (std::size_t c = 0; c < x.columns(); ++c) whole[cut.row(i) * x.columns() + c] = double(mine[i * x.columns() + c]);
}

/// Output and gradients of query, key and value.
using Results = std::vector<std::vector<double>>;

template <class X, class Context>
void attend(const Context& context, const AttentionHeads& heads, bool fused, Results& results) {
  const detail::Zigzag cut{length, context.size(cp{}), context.rank(cp{})};
  auto& device = context.device();
  const std::size_t q_columns = heads.query * heads.width, kv_columns = heads.key_value * heads.width;
  const Attention attention(context, heads, mask);
  const X g = drawn<X>(device, cut, q_columns, 4);
  if (fused) {
    const X x = drawn<X>(device, cut, q_columns + 2 * kv_columns, 1);
    auto step = attention.forward(context, x);
    results.resize(2);
    put(results[0], step.output, cut);
    put(results[1], attention.backward(context, std::move(step.saved), g), cut);
  } else {
    auto step =
        attention.forward(context, std::tuple<X, X, X>{drawn<X>(device, cut, q_columns, 1), drawn<X>(device, cut, kv_columns, 2),
                                                       drawn<X>(device, cut, kv_columns, 3)});
    results.resize(4);
    put(results[0], step.output, cut);
    const auto d = attention.backward(context, std::move(step.saved), g);
    put(results[1], std::get<0>(d), cut);
    put(results[2], std::get<1>(d), cut);
    put(results[3], std::get<2>(d), cut);
  }
}

template <class T, class Method>
void check(const AttentionHeads& heads, bool fused, double tolerance) {
  Results expected;
  {
    DefaultDevice device;
    attend<Tensor<T, Exec>>(root<T>(device), heads, fused, expected);
  }
  for (const int ranks : {1, 2, 4, 8}) {
    if (std::is_same_v<Method, Ulysses> && heads.query % std::size_t(ranks) != 0) continue;
    Results together;
    std::mutex mutex;
    CHECK(run(RunOptions{.ranks = ranks}, [&](World& world) {
            auto context = root<T>(world.device()).template with<Shard<cp, 0>>(cp{}, world.communicator());
            context.env.ulysses = std::is_same_v<Method, Ulysses>;
            Results mine;
            attend<Tensor<T, Exec, Shard<cp, 0>>>(context, heads, fused, mine);
            const detail::Zigzag cut{length, std::size_t(ranks), std::size_t(world.rank())};
            std::lock_guard lock(mutex);
            together.resize(mine.size());
            for (std::size_t part = 0; part < mine.size(); ++part) {
              together[part].resize(mine[part].size());
              const std::size_t columns = mine[part].size() / (sequences * length);
              for (std::size_t i = 0; i < sequences * cut.local(); ++i)
                for (std::size_t c = 0; c < columns; ++c)
                  together[part][cut.row(i) * columns + c] = mine[part][cut.row(i) * columns + c];
            }
          }) == 0);
    for (std::size_t part = 0; part < expected.size(); ++part) {
      REQUIRE(together[part].size() == expected[part].size());
      double worst = 0, scale = 0;
      for (std::size_t i = 0; i < expected[part].size(); ++i) {
        worst = std::max(worst, std::abs(together[part][i] - expected[part][i]));
        scale = std::max(scale, std::abs(expected[part][i]));
      }
      INFO("ranks " << ranks << ", part " << part << ", fused " << fused);
      CHECK(worst <= tolerance * scale);
    }
  }
}

}  // namespace

TEST_CASE("ring in double") {
  check<double, Ring>({8, 2, columns_of_head}, true, 1e-13);
  check<double, Ring>({3, 3, columns_of_head}, false, 1e-13);
}
TEST_CASE("one sequence, whose heads are the pieces") {
  sequences = 1;
  check<double, Ring>({15, 5, columns_of_head}, true, 1e-13);
  check<double, Ring>({8, 1, columns_of_head}, false, 1e-13);
  check<double, Ulysses>({8, 4, columns_of_head}, true, 1e-13);
  sequences = 3;
}
TEST_CASE("Ulysses in double") {
  check<double, Ulysses>({8, 8, columns_of_head}, true, 1e-13);
  check<double, Ulysses>({8, 2, columns_of_head}, false, 1e-13);
}
TEST_CASE("ring and Ulysses in float and bfloat16") {
  check<float, Ring>({8, 2, columns_of_head}, true, 2e-6);
  check<float, Ulysses>({8, 4, columns_of_head}, true, 2e-6);
  check<bfloat16, Ring>({8, 2, columns_of_head}, true, 2e-2);
  check<bfloat16, Ulysses>({8, 2, columns_of_head}, true, 2e-2);
}

TEST_CASE("full attention, windows and documents, by a ring and by Ulysses") {
  const std::vector<std::size_t> lengths{5, 64, 1, 90, 30, 194};
  std::vector<std::int32_t> packed;
  for (std::size_t i = 0; i < lengths.size(); ++i) packed.insert(packed.end(), lengths[i], std::int32_t(i));
  REQUIRE(packed.size() == 3 * length);
  for (const bool with_documents : {false, true}) {
    if (with_documents) documents = {std::shared_ptr<void>(), packed.data()};
    for (const AttentionMask& pattern :
         {AttentionMask{}, AttentionMask{.causal = false}, AttentionMask{.window = 11}, AttentionMask{false, 70}}) {
      INFO("causal " << pattern.causal << ", window " << pattern.window << ", documents " << with_documents);
      mask = pattern;
      check<double, Ring>({8, 2, columns_of_head}, true, 1e-13);
      check<double, Ring>({3, 3, columns_of_head}, false, 1e-13);
      check<double, Ulysses>({8, 4, columns_of_head}, true, 1e-13);
      check<bfloat16, Ring>({8, 2, columns_of_head}, true, 2e-2);
    }
  }
  sequences = 1;
  check<double, Ring>({15, 5, columns_of_head}, true, 1e-13);
  sequences = 3, mask = {}, documents = nullptr;
}

TEST_CASE("heads that Ulysses cannot divide are refused when the layer is made") {
  std::string text;
  CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
          auto context = root<float>(world.device()).with<Shard<cp, 0>>(cp{}, world.communicator());
          context.env.ulysses = true;
          try {
            CausalAttention(context, {6, 6, columns_of_head});
          } catch (const LayoutError& error) {
            if (world.rank() == 0) text = error.what();
          }
        }) == 0);
  CHECK(text ==
        "weft: heads(6) / tp(1) = 6 % cp(4) != 0: Ulysses gives every rank as many whole heads; cp can be 1, 2, 3, 6 (with a "
        "ring of keys and values instead of Ulysses, any number)");
}

TEST_CASE("dropout masks and positions under cp are those of the whole batch") {
  constexpr std::size_t columns = 24;
  const auto drop = [](const auto& context, auto x) {
    kernels::fill(x.device(), x.size(), x.data(), 1.0f);
    return copy_to_host(Dropout(context / "site", 0.3).forward(context, x).output);
  };
  DefaultDevice device;
  const auto whole = drop(root<float>(device), Tensor<float, Exec>(device, {sequences * length, columns}));
  for (const std::size_t tensor : {1, 2})
    for (const std::size_t context_ranks : {1, 2, 4}) {
      std::atomic<std::size_t> wrong = 0;
      CHECK(
          run(RunOptions{.ranks = int(tensor * context_ranks)}, [&](World& world) {
            Mesh<cp, tp> mesh(world, {.tp = tensor, .cp = context_ranks});
            const auto context =
                root<float>(world.device()).with<Shard<cp, 0>>(cp{}, mesh.comm(cp{})).with<Invariant<tp>>(tp{}, mesh.comm(tp{}));
            const detail::Zigzag cut{length, context_ranks, std::size_t(mesh.rank(cp{}))};
            const std::size_t rows = sequences * cut.local() / tensor, first = rows * std::size_t(mesh.rank(tp{}));
            Tensor<float, Exec, Shard<cp, 0>, Shard<tp, 0>> x(world.device(), {rows, columns});
            const auto mine = drop(context, x);
            const auto positions = copy_to_host(positions_of(context, x));
            for (std::size_t i = 0; i < rows; ++i) {
              wrong += positions[i] != std::int32_t(cut.row(first + i) % length);
              for (std::size_t c = 0; c < columns; ++c) wrong += mine[i * columns + c] != whole[cut.row(first + i) * columns + c];
            }
          }) == 0);
      CHECK(wrong == 0);
    }
}
