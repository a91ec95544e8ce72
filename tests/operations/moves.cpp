// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/moves.hpp weft/kernels/move_along.hpp weft/kernels/detail/move_rows.hpp
// Padded, reversed and rolled dims, and running sums: values against plain loops over coordinates, derivatives, and one rank over
// dp and with another dim that tp cuts.

#include <doctest/doctest.h>

#include <cstddef>
#include <functional>
#include <vector>

#include <weft/kernels/detail/move_rows.hpp>
#include <weft/kernels/move_along.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/moves.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::check_cut;
using weft_test::check_formula;
using weft_test::check_over;
using weft_test::numbers_of;
using weft_test::tensor_of;

namespace {

constexpr PaddingMode modes[] = {PaddingMode::zeros, PaddingMode::periodic, PaddingMode::reflect, PaddingMode::replicate};

// The element at `place`, counted from the first one of x and negative before it, by one step at a time.
std::ptrdiff_t walked(PaddingMode mode, std::ptrdiff_t place, std::ptrdiff_t extent) {
  while (place < 0 || place >= extent) {
    if (mode == PaddingMode::zeros) return -1;
    if (mode == PaddingMode::periodic) place += place < 0 ? extent : -extent;
    if (mode == PaddingMode::reflect) place = place < 0 ? -place : 2 * (extent - 1) - place;
    if (mode == PaddingMode::replicate) place += place < 0 ? 1 : -1;
  }
  return place;
}
// y[o, k, i] = x[o, source(k), i] of [outer, extent, inner], 0 where source(k) is negative.
std::vector<double> moved(const std::vector<double>& x, std::size_t outer, std::size_t extent, std::size_t inner, std::size_t to,
                          const std::function<std::ptrdiff_t(std::ptrdiff_t)>& source) {
  std::vector<double> y;
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t k = 0; k < to; ++k)
      for (std::size_t i = 0; i < inner; ++i) {
        const std::ptrdiff_t from = source(std::ptrdiff_t(k));
        y.push_back(from < 0 ? 0 : x[(o * extent + std::size_t(from)) * inner + i]);
      }
  return y;
}

}  // namespace

TEST_CASE("padded dims against plain loops") {
  DefaultDevice device;
  const auto x = tensor_of<float>(device, {2, 4, 3}, weft_test::waves(24));
  const auto numbers = numbers_of(x);
  for (const PaddingMode mode : modes)
    for (const std::size_t before : {0, 1, 3})
      for (const std::size_t after : {0, 2, 3}) {
        const auto source = [&](std::ptrdiff_t k) { return walked(mode, k - std::ptrdiff_t(before), 4); };
        const auto y = pad<1>(x, before, after, mode);
        CHECK(y.shape() == Shape{2, before + 4 + after, 3});
        CHECK(numbers_of(y) == moved(numbers, 2, 4, 3, before + 4 + after, source));
        const auto row = pad<1>(reshape(x, {6, 4}), before, after, mode);
        CHECK(numbers_of(row) == moved(numbers, 6, 4, 1, before + 4 + after, source));
      }
  // Copies of copies, of a dim shorter than its padding, and of one element.
  for (const PaddingMode mode : {PaddingMode::periodic, PaddingMode::replicate})
    for (const std::size_t extent : {1, 2}) {
      const auto line = tensor_of<double>(device, {extent}, weft_test::waves(extent, 1));
      const auto source = [&](std::ptrdiff_t k) { return walked(mode, k - 5, std::ptrdiff_t(extent)); };
      CHECK(numbers_of(pad<0>(line, 5, 4, mode)) == moved(numbers_of(line), 1, extent, 1, extent + 9, source));
    }
  // Several dims: corners are those of padding one dim after the other.
  for (const PaddingMode mode : modes) {
    CHECK(numbers_of(pad<1, 2>(x, 1, 2, mode)) == numbers_of(pad<1>(pad<2>(x, 1, 2, mode), 1, 2, mode)));
    CHECK(numbers_of(pad<2, 0>(x, 1, 1, mode)) == numbers_of(pad<0>(pad<2>(x, 1, 1, mode), 1, 1, mode)));
  }
}

TEST_CASE("reversed and rolled dims against plain loops") {
  DefaultDevice device;
  const auto x = tensor_of<float>(device, {2, 5, 3}, weft_test::waves(30));
  const auto numbers = numbers_of(x);
  CHECK(numbers_of(flip<1>(x)) == moved(numbers, 2, 5, 3, 5, [](std::ptrdiff_t k) { return 4 - k; }));
  CHECK(numbers_of(flip<2>(x)) == moved(numbers, 10, 3, 1, 3, [](std::ptrdiff_t k) { return 2 - k; }));
  for (const std::ptrdiff_t shift : {0, 1, 4, 5, 7, -1, -5, -12}) {
    const auto source = [&](std::ptrdiff_t k) { return ((k - shift) % 5 + 5) % 5; };
    CHECK(numbers_of(roll<1>(x, shift)) == moved(numbers, 2, 5, 3, 5, source));
  }
  CHECK(numbers_of(roll<0>(tensor_of<bfloat16>(device, {4}, {1, 2, 3, 4}), 1)) == std::vector<double>{4, 1, 2, 3});
  CHECK(roll<1>(Tensor<float, weft_test::Exec>(device, {2, 0}), 3).size() == 0);
}

namespace {
/// The runs of hosts against the elements of other devices, of long rows that threads share.
template <class Source>
void check_runs(const Source& source, std::size_t extent, std::size_t size, std::size_t inner) {
  DefaultDevice device;
  std::vector<double> x(2 * extent * inner), wanted, out(2 * size * inner, -1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = double(i + 1);
  for (std::size_t row = 0; row < 2; ++row)
    for (std::size_t k = 0; k < size; ++k)
      for (std::size_t i = 0; i < inner; ++i) {
        const std::size_t from = source(k);
        wanted.push_back(from == kernels::detail::no_source ? 0 : x[(row * extent + from) * inner + i]);
      }
  kernels::detail::move_rows(device, "copy", 2, kernels::detail::SameRow(), extent, size, inner, source, x.data(), out.data());
  CHECK(out == wanted);
}
}  // namespace

TEST_CASE("runs are the elements that they stand for") {
  for (const std::size_t inner : {1, 3})
    for (const std::size_t extent : {3, 20000}) {
      check_runs(kernels::Flipped{extent}, extent, extent, inner);
      for (const std::size_t shift : {std::size_t(0), std::size_t(1), extent - 1, extent})
        check_runs(kernels::Rolled{extent, shift}, extent, extent, inner);
      for (const PaddingMode mode : modes) check_runs(kernels::Padded{mode, 2, extent, extent + 3}, extent, extent + 3, inner);
      check_runs(kernels::Padded{PaddingMode::periodic, 7, extent, 2 * extent + 9}, extent, 2 * extent + 9, inner);
    }
}

TEST_CASE("running sums against plain loops") {
  DefaultDevice device;
  const auto x = tensor_of<double>(device, {2, 5, 40}, weft_test::waves(400));
  auto wanted = numbers_of(x);
  for (std::size_t o = 0; o < 2; ++o)
    for (std::size_t k = 1; k < 5; ++k)
      for (std::size_t i = 0; i < 40; ++i) wanted[(o * 5 + k) * 40 + i] += wanted[(o * 5 + k - 1) * 40 + i];
  CHECK(numbers_of(cumsum<1>(x)) == wanted);
  CHECK(numbers_of(cumsum<0>(tensor_of<bfloat16>(device, {4}, {1, 2, 3, 4}))) == std::vector<double>{1, 3, 6, 10});
  // Terms are added in float and each sum is rounded once.
  CHECK(numbers_of(cumsum<0>(tensor_of<bfloat16>(device, {5}, {256, 0.5, 0.5, 0.5, 0.5}))) ==
        std::vector<double>{256, 256, 256, 258, 258});
}

TEST_CASE("derivatives of moved elements, on one rank and on two") {
  const auto everywhere = [](auto f) {
    check_formula(f, {2, 4, 3});
    check_over<Shard<dp, 0>>(f, {2, 4, 3});
    check_cut<0, decltype(f)>(f, {2, 4, 3});
  };
  everywhere([](const auto& x) { return exp(pad<1>(x * x, 2, 1)); });
  everywhere([](const auto& x) { return exp(pad<1>(x * x, 5, 6, PaddingMode::periodic)); });
  everywhere([](const auto& x) { return exp(pad<1, 2>(x * x, 2, 1, PaddingMode::reflect)); });
  everywhere([](const auto& x) { return exp(pad<2, 1>(x * x, 3, 2, PaddingMode::replicate)); });
  everywhere([](const auto& x) { return flip<2>(x * x) * x + roll<1>(x, -1) * roll<2>(exp(x), 4); });
  everywhere([](const auto& x) { return exp(cumsum<1>(x * x)) - cumsum<2>(sin(x)); });
}

TEST_CASE("terms of a sum move as the sum") {
  using P = Tensor<float, weft_test::Exec, Partial<tp>>;
  static_assert(std::is_same_v<decltype(pad<1>(std::declval<P>(), 1, 1)), P>);
  static_assert(std::is_same_v<decltype(flip<1>(std::declval<P>())), P> &&
                std::is_same_v<decltype(roll<1>(std::declval<P>(), 1)), P>);
  static_assert(std::is_same_v<decltype(cumsum<1>(std::declval<P>())), P>);
}

TEST_CASE("moves that are refused") {
  DefaultDevice device;
  const Tensor<float, weft_test::Exec> x(device, {2, 3}), none(device, {2, 0});
  const auto refusal = [](auto&& act) { return weft_test::refusal_of<ShapeError>(act); };
  CHECK(refusal([&] { pad<1>(x, 3, 1, PaddingMode::reflect); }) ==
        "weft: pad([2, 3]): 3 elements before and 1 after dim 1 of 3, which has fewer to reflect");
  CHECK(refusal([&] { pad<1>(none, 0, 1, PaddingMode::replicate); }) ==
        "weft: pad([2, 0]): 0 elements before and 1 after dim 1 of 0, which has none to copy");
  CHECK(refusal([&] { pad<1>(x, std::size_t(-1), 0); }).find("which are more than 2147483647") != std::string::npos);
  CHECK(refusal([&] { roll<2>(x, 1); }) == "weft: roll([2, 3]): there is no dim 2");
  CHECK(weft_test::refusal_of<LayoutError>([&] {
          flip<1>(Tensor<float, weft_test::Exec>(device, Shape{2, 3}.set_sharding(1, DimSharding::padded)));
        }) == "weft: flip: dim 1 of [2, 3] is padded, cut by segments or held alike");
}
