// SPDX-License-Identifier: Apache-2.0
#pragma once
// Fields under context parallelism. A field that names the dim of its positions is cut along it, in the zigzag chunks of cp, so
// that its rows are those of attention; any other field is whole on every rank of cp.
//
//   inline constexpr data::Field<"series", float, data::SequenceDim<1>> series;   // [samples, positions, features]

#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <weft/context/input_placement.hpp>
#include <weft/core/error.hpp>
#include <weft/data/fields.hpp>
#include <weft/mesh/zigzag.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// A field's tensor on the device: X with cp's placement.
template <class X, class F>
using sequence_tensor_t = typename std::conditional_t<
    std::is_same_v<placement_t<X, cp>, Absent<cp>>, std::type_identity<X>,
    Replace<X, std::conditional_t<(F::sequence_dim >= 0), Shard<cp, F::sequence_dim>, Replicated<cp>>>>::type;

/// True if ContextParallel is in force and a batch B has fields that it cuts.
template <class Context, class B>
inline constexpr bool has_sequences = true;
template <class Context, auto... fields>
inline constexpr bool has_sequences<Context, FieldBatch<fields...>> =
    !Context::has(cp{}) || ((std::remove_cvref_t<decltype(fields)>::sequence_dim > 0) || ...);
template <class B>
constexpr void refuse_without_sequences() {
  static_assert(std::is_void_v<B>,
                "weft: ContextParallel cuts sequences, and no field of this model's batch is declared as one: declare "
                "the dim of their positions in [samples, ...], `inline constexpr data::Field<\"series\", float, "
                "data::SequenceDim<1>> series;`; fields without one are whole on every rank of cp; see B in this function's "
                "template arguments");
}

/// A rank's place on cp; {1, 0} without the axis.
struct SequencePart {
  std::size_t ranks = 1, rank = 0;
};
template <class Context>
SequencePart sequence_part(const Context& context) {
  if constexpr (Context::has(cp{})) return {context.size(cp{}), context.rank(cp{})};
  else return {};
}

/// Throws ShapeError unless samples of this shape have the dim, and cp's ranks can share its positions.
WEFT_COLD inline void require_positions(std::string_view name, const Shape& sample, int dim, std::size_t ranks) {
  if (std::size_t(dim) > sample.rank())
    throw_error<ShapeError>({"field ", name, " has SequenceDim<", dim, ">, but a sample of it is ", sample.text(),
                             ": the dim counts in [samples, ...], 1 is the first of a sample"});
  const std::size_t positions = sample[std::size_t(dim) - 1];
  if (ranks > 1 && (positions == 0 || positions % (2 * ranks) != 0))
    throw_error<ShapeError>({"field ", name, ": positions(", positions, ") % (2 * cp(", ranks,
                             ")) != 0: context parallelism cuts a sequence into two chunks for each rank"});
}

/// The values of this rank's positions, [samples, shape...] with fewer of them along `dim`.
template <class T>
std::vector<T> part_of_sequences(std::span<const T> values, const Shape& sample, int dim, const SequencePart& part) {
  const Zigzag cut{sample[std::size_t(dim) - 1], part.ranks, part.rank};
  std::size_t inner = 1;
  for (std::size_t d = std::size_t(dim); d < sample.rank(); ++d) inner *= sample[d];
  const std::size_t outer = values.size() / (cut.length * inner);
  std::vector<T> mine;
  mine.reserve(values.size() / part.ranks);
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t i = 0; i < cut.local(); ++i) {
      const auto from = values.subspan((o * cut.length + cut.position(i)) * inner, inner);
      mine.insert(mine.end(), from.begin(), from.end());
    }
  return mine;
}

}  // namespace weft::detail
