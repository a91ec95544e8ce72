// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rules of divisibility of a layout of a model over ranks, all checked before any communication, with the same text on every
// rank.
//
//   ResolvedLayout resolved = resolve({.world = 8, .tp = 2, .pp = 2, .global_batch = 16, .layers = 12, .heads = 6});
//   resolved.dp;             // 2
//   resolved.micro_batches;  // 8

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <weft/core/error.hpp>
#include <weft/mesh/rank_order.hpp>

namespace weft {

namespace mesh_layout {

/// A requested layout. Signed, so that the error can name a negative number. Omitted numbers are inferred (world, dp, edp, etp,
/// kv_heads) or, for the model's sizes, not checked.
struct Layout {
  std::int64_t nodes = 1;
  std::optional<std::int64_t> ranks_per_node = {};  ///< inferred from the world
  std::optional<std::int64_t> world = {};           ///< nodes · ranks_per_node
  std::int64_t tp = 1, cp = 1, pp = 1, ep = 1;
  std::optional<std::int64_t> etp = {};           ///< default: tp
  std::optional<std::int64_t> dp = {}, edp = {};  ///< default: the rest of the world
  std::int64_t vpp = 1;                           ///< stages a rank (virtual pipeline)
  bool sequence_parallel = false, overlap_p2p = false;
  std::optional<std::int64_t> global_batch = {};  ///< sequences a step; default: one micro-batch a dp rank
  std::int64_t micro_batch = 1;                   ///< sequences a rank
  /// With vpp > 1: micro-batches must be whole groups of pp, as in Megatron-LM. False if the schedule checks its own rule
  /// (`schedule::require`): weft's interleaved schedules take any number.
  bool whole_groups = true;
  std::optional<std::int64_t> layers = {}, heads = {}, kv_heads = {};
  std::optional<std::int64_t> experts = {}, intermediate = {};  ///< of a mixture of experts, and the width inside an expert
  std::optional<std::int64_t> sequence = {};  ///< tokens of a sequence
  bool ulysses = false;                       ///< context parallelism by Ulysses instead of a ring
};

/// The numbers that follow from a layout.
struct ResolvedLayout {
  std::size_t world, dp, edp;
  std::size_t micro_batches;         ///< of one step and dp rank
  std::size_t kv_replicas;           ///< tp ranks that hold the same key-value head
  std::size_t layers_per_stage = 0;  ///< 0: layers not given
};

}  // namespace mesh_layout

namespace detail {

inline std::size_t positive(std::string_view name, std::int64_t value) {
  if (value < 1) throw_error<LayoutError>({name, "(", value, "): must be at least 1"});
  return std::size_t(value);
}

inline std::size_t product_of(std::string_view what, std::initializer_list<mesh_layout::RankAxis> factors) {
  std::size_t product = 1;
  std::string text;
  for (const mesh_layout::RankAxis& f : factors) {
    append_factor(text, f.name, f.size);
    product = saturating_product({product, f.size});
  }
  if (product > std::size_t(std::numeric_limits<std::int64_t>::max()))
    throw_error<LayoutError>({text, ": ", what, " overflows"});
  return product;
}

/// Throws unless a % b = 0: "heads(6) % tp(4) != 0: why; tp can be 1, 2, 3 or 6".
inline void divides(mesh_layout::RankAxis a, mesh_layout::RankAxis b, std::string_view why) {
  if (a.size % b.size != 0)
    throw_error<LayoutError>({a.name, "(", a.size, ") % ", b.name, "(", b.size, ") != 0: ", why, "; ", b.name, " can be ",
                              divisors_text(a.size)});
}

inline std::string nearest_multiples(std::size_t value, std::size_t factor) {
  const std::size_t below = value / factor * factor;
  return (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + factor);
}

}  // namespace detail

namespace mesh_layout {
/// Checks for a program's own numbers, with the same texts as those of layouts: positive("pp", 0), divides({"layers", 6}, {"pp",
/// 4}, why).
using detail::divides, detail::nearest_multiples, detail::number, detail::positive, detail::product_of, detail::saturating_product;
}  // namespace mesh_layout

namespace detail {

inline std::size_t world_of(const mesh_layout::Layout& layout) {
  const std::size_t nodes = positive("nodes", layout.nodes);
  if (!layout.ranks_per_node) {
    if (!layout.world) throw_error<LayoutError>({"the layout gives neither the world nor the ranks of a node"});
    const std::size_t world = positive("world", *layout.world);
    if (world % nodes != 0)
      throw_error<LayoutError>({number("world", world), " % ", number("nodes", nodes), " != 0: every node has as many ranks; nodes can be ", divisors_text(world)});
    return world;
  }
  const std::size_t ranks = positive("ranks per node", *layout.ranks_per_node);
  const std::size_t product = product_of("the world", {{"nodes", nodes}, {"ranks per node", ranks}});
  if (layout.world && positive("world", *layout.world) != product)
    throw_error<LayoutError>({number("nodes", nodes), " * ", number("ranks per node", ranks), " = ", product, " != ", number("world", std::size_t(*layout.world))});
  return product;
}

inline std::size_t micro_batches_of(const mesh_layout::Layout& layout, std::size_t dp, std::size_t pp, std::size_t vpp) {
  const std::size_t micro = positive("micro-batch", layout.micro_batch);
  const std::size_t rows = product_of("sequences of one pass", {{"micro-batch", micro}, {"dp", dp}});
  const std::size_t global = layout.global_batch ? positive("global batch", *layout.global_batch) : rows;
  const std::string given = number("global batch", global);
  const auto can_be = [&](std::size_t factor) { return "; global batch can be " + nearest_multiples(global, factor); };
  if (global % dp != 0)
    throw_error<LayoutError>({given, " % ", number("dp", dp), " != 0: every dp rank takes as many sequences", can_be(rows)});
  if (global % micro != 0)
    throw_error<LayoutError>({given, " % ", number("micro-batch", micro), " != 0: a step is whole micro-batches", can_be(rows)});
  if (global % rows != 0)
    throw_error<LayoutError>({given, " % (", number("micro-batch", micro), " * ", number("dp", dp), ") != 0: every dp rank takes whole micro-batches", can_be(rows)});
  const std::size_t count = global / rows;
  if (vpp > 1 && layout.whole_groups && count % pp != 0)
    throw_error<LayoutError>({number("micro-batches", count), " % ", number("pp", pp), " != 0: with ", number("vpp", vpp), " interleaved stages a rank works on groups of pp micro-batches; micro-batches can be ", nearest_multiples(count, pp), " (global batch / (micro-batch * dp))"});
  return count;
}

inline std::size_t kv_replicas_of(const mesh_layout::Layout& layout, std::size_t tp) {
  if (!layout.heads && !layout.kv_heads) return 1;
  if (!layout.heads) throw_error<LayoutError>({number("kv heads", positive("kv heads", *layout.kv_heads)), ": heads are not given"});
  const std::size_t heads = positive("heads", *layout.heads);
  const std::size_t kv = layout.kv_heads ? positive("kv heads", *layout.kv_heads) : heads;
  divides({"heads", heads}, {"kv heads", kv}, "every key and value head serves as many heads");
  divides({"heads", heads}, {"tp", tp}, "a rank holds whole heads");
  if (kv % tp != 0 && tp % kv != 0)
    throw_error<LayoutError>({number("kv heads", kv), " against ", number("tp", tp), ": key and value heads are divided among the ranks (kv heads % tp = 0) or one is held by several " "(tp % kv heads = 0); kv heads can be ", divisors_text(tp), ", or a multiple of ", tp});
  return kv >= tp ? 1 : tp / kv;
}

/// LayoutError unless a sequence divides into two chunks for each rank of cp.
inline void require_chunks(std::size_t sequence, std::size_t cp) {
  if (cp > 1 && (sequence == 0 || sequence % (2 * cp) != 0))
    throw_error<LayoutError>({number("sequence", sequence), " % (2 * ", number("cp", cp), ") != 0: every rank holds two chunks of a sequence, one early and one late; sequence can be ", nearest_multiples(sequence, 2 * cp), sequence % 2 == 0 && sequence != 0 ? ", cp " + divisors_text(sequence / 2) : ""});
}

/// LayoutError unless each rank of cp can take an equal share of its tp rank's heads (Ulysses).
WEFT_COLD inline void require_ulysses(std::size_t heads, std::size_t kv_heads, std::size_t tp, std::size_t cp) {
  const std::size_t here = heads / tp, kv_here = kv_heads > tp ? kv_heads / tp : 1;
  std::string can_be;
  for (std::size_t ranks = 1; ranks <= here; ++ranks)
    if (here % ranks == 0 && (kv_here % ranks == 0 || ranks % kv_here == 0)) append_to(can_be, {can_be.empty() ? "" : ", ", ranks});
  const std::string advice = joined({"; cp can be ", can_be, " (with a ring of keys and values instead of Ulysses, any number)"});
  if (here % cp != 0)
    throw_error<LayoutError>({"heads(", heads, ") / tp(", tp, ") = ", here, " % cp(", cp, ") != 0: Ulysses gives every rank as many whole heads", advice});
  if (kv_here % cp != 0 && cp % kv_here != 0)
    throw_error<LayoutError>({"kv heads of a tp rank(", kv_here, ") against cp(", cp, "): Ulysses divides them among the ranks or lets several hold one", advice});
}

inline std::size_t layers_per_stage_of(const mesh_layout::Layout& layout, std::size_t pp, std::size_t vpp) {
  if (!layout.layers) return 0;
  const std::size_t layers = positive("layers", *layout.layers);
  const auto at_most = [&](std::string_view name, std::size_t value) {
    if (value > layers)
      throw_error<LayoutError>({number(name, value), " > ", number("layers", layers), ": a stage holds at least one layer; ", name, " can be ", divisors_text(layers)});
  };
  at_most("pp", pp);
  at_most("vpp", vpp);
  const std::size_t stages = product_of("the number of stages", {{"pp", pp}, {"vpp", vpp}});
  if (layers % stages != 0)
    throw_error<LayoutError>({number("layers", layers), " % (", number("pp", pp), " * ", number("vpp", vpp), ") != 0: every stage holds as many layers; pp * vpp can be ", divisors_text(layers)});
  return layers / stages;
}

/// LayoutError unless every rank of ep holds whole experts and etp divides each of them evenly.
inline void require_experts(std::size_t experts, std::size_t intermediate, std::size_t ep, std::size_t etp) {
  divides({"experts", experts}, {"ep", ep}, "a rank holds whole experts");
  divides({"intermediate", intermediate}, {"etp", etp}, "an expert is cut evenly");
}

}  // namespace detail

namespace mesh_layout {

/// Checks every rule. Throws LayoutError with the numbers and the values that would work.
inline ResolvedLayout resolve(const Layout& layout) {
  const std::size_t world = detail::world_of(layout);
  const std::size_t tp = detail::positive("tp", layout.tp), cp = detail::positive("cp", layout.cp);
  const std::size_t pp = detail::positive("pp", layout.pp), ep = detail::positive("ep", layout.ep);
  const std::size_t etp = detail::positive("etp", layout.etp.value_or(layout.tp)), vpp = detail::positive("vpp", layout.vpp);
  const auto degree = [](std::string_view name, const std::optional<std::int64_t>& given) {
    return given ? detail::positive(name, *given) : std::size_t(0);
  };
  ResolvedLayout resolved{};
  resolved.world = world;
  resolved.dp = degree_left("dp", degree("dp", layout.dp), world, {{"tp", tp}, {"pp", pp}, {"cp", cp}});
  resolved.edp = degree_left("edp", degree("edp", layout.edp), world, {{"etp", etp}, {"pp", pp}, {"ep", ep}});
  resolved.micro_batches = detail::micro_batches_of(layout, resolved.dp, pp, vpp);
  resolved.kv_replicas = detail::kv_replicas_of(layout, tp);
  resolved.layers_per_stage = detail::layers_per_stage_of(layout, pp, vpp);
  if (layout.sequence) detail::require_chunks(detail::positive("sequence", *layout.sequence), cp);
  if (layout.experts)  // what is not given divides
    detail::require_experts(detail::positive("experts", *layout.experts), layout.intermediate ? detail::positive("intermediate", *layout.intermediate) : etp, ep, etp);
  if (layout.ulysses && layout.heads) detail::require_ulysses(std::size_t(*layout.heads), std::size_t(layout.kv_heads.value_or(*layout.heads)), tp, cp);
  if (layout.sequence_parallel && tp == 1)
    throw_error<LayoutError>({"sequence parallelism with tp(1): it shards the sequence over the tp axis; tp must be at least 2"});
  if (layout.overlap_p2p && vpp == 1)
    throw_error<LayoutError>({"overlapped point-to-point with vpp(1): messages overlap with the work of a rank's other stages; vpp must be at least 2"});
  return resolved;
}

}  // namespace mesh_layout

}  // namespace weft
