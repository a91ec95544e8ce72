// SPDX-License-Identifier: Apache-2.0
#pragma once
// The divisibility rules of a model's layout over ranks. All are checked before any communication, with the same error text on
// every rank.
//
//   ResolvedLayout resolved = resolve({.world = 8, .tp = 2, .pp = 2, .global_batch = 16, .layers = 12, .heads = 6});
//   resolved.dp;             // 2
//   resolved.micro_batches;  // 8

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/mesh/rank_order.hpp>

namespace weft {

namespace mesh_layout {

/// A requested layout. Signed, so that an error can show a negative number. Omitted numbers are inferred (world, dp, edp, etp,
/// kv_heads) or, for the model's sizes, not checked.
struct Layout {
  std::int64_t nodes = 1;
  std::optional<std::int64_t> ranks_per_node = {};  ///< inferred from the world
  std::optional<std::int64_t> world = {};           ///< nodes · ranks_per_node
  std::int64_t tp = 1, cp = 1, pp = 1, ep = 1;
  std::optional<std::int64_t> etp = {};           ///< default: tp
  std::optional<std::int64_t> dp = {}, edp = {};  ///< default: the rest of the world
  std::int64_t vpp = 1;                           ///< stages per rank (virtual pipeline)
  bool sequence_parallel = false, overlap_p2p = false;
  std::optional<std::int64_t> global_batch = {};  ///< sequences per step; default: one micro-batch per dp rank
  std::int64_t micro_batch = 1;                   ///< sequences per rank
  /// With vpp > 1: require whole groups of pp micro-batches, as Megatron-LM does. False if the schedule checks its own rule
  /// (`schedule::require`): weft's interleaved schedules support any number.
  bool whole_groups = true;
  std::optional<std::int64_t> layers = {}, heads = {}, kv_heads = {};
  std::vector<std::size_t> stage_layers = {};  ///< layers of each stage, in the order of the model; empty: equal counts
  std::optional<std::int64_t> experts = {}, intermediate = {};  ///< of a mixture; the inner width of an expert
  std::optional<std::int64_t> sequence = {};                    ///< tokens per sequence
  bool ulysses = false;                                         ///< context parallelism by Ulysses instead of a ring
};

/// The numbers inferred from a layout.
struct ResolvedLayout {
  std::size_t world, dp, edp;
  std::size_t micro_batches;              ///< per step and dp rank
  std::size_t kv_replicas;                ///< tp ranks that hold the same key-value head
  std::vector<std::size_t> stage_layers;  ///< in the order of the model; empty: layers not given
};

}  // namespace mesh_layout

namespace detail {

inline std::size_t positive(std::string_view name, std::int64_t value) {
  if (value < 1) throw_error<LayoutError>({name, "(", value, "): must be at least 1"});
  return std::size_t(value);
}

std::size_t product_of(std::string_view what, std::initializer_list<mesh_layout::RankAxis> factors);

/// Throws unless a % b = 0. The message is "heads(6) % tp(4) != 0: why; tp can be 1, 2, 3 or 6".
void divides(mesh_layout::RankAxis a, mesh_layout::RankAxis b, std::string_view why);

WEFT_COLD inline std::string nearest_multiples(std::size_t value, std::size_t factor) {
  const std::size_t below = value / factor * factor;
  return below > 0 ? weft::detail::joined({below, " or ", below + factor}) : weft::detail::joined({factor});
}

}  // namespace detail

namespace mesh_layout {
/// Checks for your own numbers, with the same messages as for layouts: positive("pp", 0), divides({"layers", 6}, {"pp", 4}, why).
using detail::divides, detail::nearest_multiples, detail::number, detail::positive, detail::product_of,
    detail::saturating_product;
}  // namespace mesh_layout

namespace detail {

/// Throws LayoutError unless a sequence divides into two chunks per rank of cp.
void require_chunks(std::size_t sequence, std::size_t cp);

/// Throws LayoutError unless each rank of cp can take an equal share of its tp rank's heads (Ulysses).
void require_ulysses(std::size_t heads, std::size_t kv_heads, std::size_t tp, std::size_t cp);

/// Throws LayoutError unless every rank of ep holds whole experts and etp divides each of them evenly.
inline void require_experts(std::size_t experts, std::size_t intermediate, std::size_t ep, std::size_t etp) {
  divides({"experts", experts}, {"ep", ep}, "a rank holds whole experts");
  divides({"intermediate", intermediate}, {"etp", etp}, "an expert is cut evenly");
}

}  // namespace detail

namespace mesh_layout {

/// Checks every rule. Throws LayoutError with the numbers, and with values that would be valid.
ResolvedLayout resolve(const Layout& layout);

}  // namespace mesh_layout

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/mesh/layout_impl.hpp>
#endif
