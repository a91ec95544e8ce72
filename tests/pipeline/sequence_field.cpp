// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/samples.hpp
// Fields with positions: their placements, the parts of ranks of cp, errors, and the views of positions as rows.

#include <weft/operations/samples.hpp>
#include <weft/pipeline/sequence_field.hpp>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

inline constexpr data::Field<"series", float, data::SequenceDim<1>> series;
inline constexpr data::Field<"channels", float, data::SequenceDim<2>> channels;
inline constexpr data::Field<"label", std::int32_t> label;
static_assert(series.sequence_dim == 1 && channels.sequence_dim == 2 && label.sequence_dim == -1);
static_assert(!std::is_same_v<decltype(series), decltype(channels)>);

using Exec = DefaultDevice::execution_space;
using Alone = Context<Compute<Exec, float>>;
using Cut = Context<Compute<Exec, float>, Bind<dp>, Bind<cp, Shard<cp, 0>>>;
template <class Context, class F>
using tensor_t = detail::field_tensor_t<Context, std::remove_const_t<F>>;
static_assert(std::is_same_v<tensor_t<Alone, decltype(series)>, Tensor<float, Exec>>);
static_assert(std::is_same_v<tensor_t<Cut, decltype(series)>, Tensor<float, Exec, Shard<dp, 0>, Shard<cp, 1>>>);
static_assert(std::is_same_v<tensor_t<Cut, decltype(channels)>, Tensor<float, Exec, Shard<dp, 0>, Shard<cp, 2>>>);
static_assert(std::is_same_v<tensor_t<Cut, decltype(label)>, Tensor<std::int32_t, Exec, Shard<dp, 0>, Replicated<cp>>>);
static_assert(std::is_same_v<tensor_t<Cut, decltype(fields::tokens)>, Tensor<std::int32_t, Exec, Shard<dp, 0>, Shard<cp, 0>>>);

// Placements of the two views.
template <class... P>
using On = Tensor<float, Exec, P...>;
using detail::MergedSamples;
using detail::ruled_t;
using detail::SplitSamples;
static_assert(std::is_same_v<ruled_t<MergedSamples, On<Shard<dp, 0>, Shard<cp, 1>, Shard<tp, 2>>>,
                             On<Shard<dp, 0>, Shard<cp, 0>, Shard<tp, 1>>>);
static_assert(std::is_same_v<ruled_t<SplitSamples, On<Shard<cp, 0>, Shard<tp, 1>, Partial<ep>>>,
                             On<Shard<cp, 1>, Shard<tp, 2>, Partial<ep>>>);
static_assert(detail::merges<On<Shard<dp, 0>, Shard<cp, 1>, Invariant<tp>>> && !detail::merges<On<Shard<tp, 1>>>);
static_assert(!detail::merges<On<Shard<cp, 0>>> && !detail::splits<On<Shard<tp, 0>>> && detail::splits<On<Shard<tp, 1>>>);

std::vector<float> part(const std::vector<float>& all, const Shape& sample, int dim, std::size_t ranks, std::size_t rank) {
  return detail::part_of_sequences(std::span<const float>(all), sample, dim, {ranks, rank});
}
template <class Error, class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// [samples * 4, width] -> as samples and back, with something in between that needs each.
struct Means : Module<Means> {
  auto forward(const auto& x) const {
    const auto samples = split_samples(x);
    const auto most = exp(samples) * 0.5;
    return merge_samples(samples * most) * 2 - square(merge_samples(most));
  }
};

}  // namespace

TEST_CASE("each rank of cp has two chunks of each sample") {
  // Two samples of eight positions, one number each.
  std::vector<float> all;
  for (int i = 0; i < 16; ++i) all.push_back(float(i));
  CHECK(part(all, {8}, 1, 2, 0) == std::vector<float>{0, 1, 6, 7, 8, 9, 14, 15});
  CHECK(part(all, {8}, 1, 2, 1) == std::vector<float>{2, 3, 4, 5, 10, 11, 12, 13});
  CHECK(part(all, {8}, 1, 4, 3) == std::vector<float>{3, 4, 11, 12});
  CHECK(part(all, {8}, 1, 1, 0) == all);
  // Two samples of four positions of two features; of two channels of four positions.
  CHECK(part(all, {4, 2}, 1, 2, 1) == std::vector<float>{2, 3, 4, 5, 10, 11, 12, 13});
  CHECK(part(all, {2, 4}, 2, 2, 1) == std::vector<float>{1, 2, 5, 6, 9, 10, 13, 14});
}

TEST_CASE("positions that cp cannot cut are refused") {
  CHECK_NOTHROW(detail::require_positions("series", {8, 3}, 1, 4));
  CHECK_NOTHROW(detail::require_positions("series", {7}, 1, 1));
  CHECK(message<ShapeError>([] {
          detail::require_positions("series", {6, 3}, 1, 2);
        }) ==
        "weft: field series: positions(6) % (2 * cp(2)) != 0: context parallelism cuts a sequence into two chunks for each rank");
  CHECK(message<ShapeError>([] {
          detail::require_positions("series", {}, 1, 1);
        }).find("has SequenceDim<1>, but a sample of it is") != std::string::npos);
}

TEST_CASE("positions as rows and back, by finite differences and over ranks") {
  const auto make = [](const auto&) { return Means(); };
  CHECK(testing::check_layer(make, {8, 3}).compared != 0);
  CHECK(testing::check_layer_on<cp>(2, make, {8, 3}).compared != 0);
  CHECK(testing::check_layer_on<dp>(2, make, {8, 3}).compared != 0);
  CHECK(message<ShapeError>([] {
          detail::shape_of_samples(Shape{6, 2}, 4);
        }) == "weft: split_samples([6, 2]): expected [samples * positions, ...] of 4 samples");
  CHECK(message<ShapeError>([] { detail::shape_of_rows(Shape{6}); }) ==
        "weft: merge_samples([6]): expected [samples, positions, ...]");
  CHECK(detail::shape_of_samples(Shape{6, 2}, 3) == Shape{3, 2, 2});
  CHECK(detail::shape_of_rows(Shape{3, 2, 2}) == Shape{6, 2});
}
