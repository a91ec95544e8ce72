// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rules and their messages. Definitions for mesh/layout.hpp.

#include <weft/core/inline.hpp>
#include <weft/mesh/layout.hpp>
#include <weft/mesh/stage_layers.hpp>

namespace weft::detail {

WEFT_INLINE std::size_t product_of(std::string_view what, std::initializer_list<mesh_layout::RankAxis> factors) {
  std::size_t product = 1;
  std::string text;
  for (const mesh_layout::RankAxis& f : factors) {
    append_factor(text, f.name, f.size);
    product = saturating_product({product, f.size});
  }
  if (product > std::size_t(std::numeric_limits<std::int64_t>::max())) throw_error<LayoutError>({text, ": ", what, " overflows"});
  return product;
}

WEFT_INLINE void divides(mesh_layout::RankAxis a, mesh_layout::RankAxis b, std::string_view why) {
  if (a.size % b.size != 0)
    throw_error<LayoutError>(
        {a.name, "(", a.size, ") % ", b.name, "(", b.size, ") != 0: ", why, "; ", b.name, " can be ", divisors_text(a.size)});
}

WEFT_INLINE std::size_t world_of(const mesh_layout::Layout& layout) {
  const std::size_t nodes = positive("nodes", layout.nodes);
  if (!layout.ranks_per_node) {
    if (!layout.world) throw_error<LayoutError>({"the layout gives neither the world nor the ranks of a node"});
    const std::size_t world = positive("world", *layout.world);
    if (world % nodes != 0)
      throw_error<LayoutError>({number("world", world), " % ", number("nodes", nodes),
                                " != 0: every node has as many ranks; nodes can be ", divisors_text(world)});
    return world;
  }
  const std::size_t ranks = positive("ranks per node", *layout.ranks_per_node);
  const std::size_t product = product_of("the world", {{"nodes", nodes}, {"ranks per node", ranks}});
  if (layout.world && positive("world", *layout.world) != product)
    throw_error<LayoutError>({number("nodes", nodes), " * ", number("ranks per node", ranks), " = ", product,
                              " != ", number("world", std::size_t(*layout.world))});
  return product;
}

WEFT_INLINE std::size_t micro_batches_of(const mesh_layout::Layout& layout, std::size_t dp, std::size_t pp, std::size_t vpp) {
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
    throw_error<LayoutError>({given, " % (", number("micro-batch", micro), " * ", number("dp", dp),
                              ") != 0: every dp rank takes whole micro-batches", can_be(rows)});
  const std::size_t count = global / rows;
  if (vpp > 1 && layout.whole_groups && count % pp != 0)
    throw_error<LayoutError>({number("micro-batches", count), " % ", number("pp", pp), " != 0: with ", number("vpp", vpp),
                              " interleaved stages a rank works on groups of pp micro-batches; micro-batches can be ",
                              nearest_multiples(count, pp), " (global batch / (micro-batch * dp))"});
  return count;
}

WEFT_INLINE std::size_t kv_replicas_of(const mesh_layout::Layout& layout, std::size_t tp) {
  if (!layout.heads && !layout.kv_heads) return 1;
  if (!layout.heads)
    throw_error<LayoutError>({number("kv heads", positive("kv heads", *layout.kv_heads)), ": heads are not given"});
  const std::size_t heads = positive("heads", *layout.heads);
  const std::size_t kv = layout.kv_heads ? positive("kv heads", *layout.kv_heads) : heads;
  divides({"heads", heads}, {"kv heads", kv}, "every key and value head serves as many heads");
  divides({"heads", heads}, {"tp", tp}, "a rank holds whole heads");
  if (kv % tp != 0 && tp % kv != 0)
    throw_error<LayoutError>({number("kv heads", kv), " against ", number("tp", tp),
                              ": key and value heads are divided among the ranks (kv heads % tp = 0) or one is held by several "
                              "(tp % kv heads = 0); kv heads can be ",
                              divisors_text(tp), ", or a multiple of ", tp});
  return kv >= tp ? 1 : tp / kv;
}

WEFT_INLINE void require_chunks(std::size_t sequence, std::size_t cp) {
  if (cp > 1 && (sequence == 0 || sequence % (2 * cp) != 0))
    throw_error<LayoutError>({number("sequence", sequence), " % (2 * ", number("cp", cp),
                              ") != 0: every rank holds two chunks of a sequence, one early and one late; sequence can be ",
                              nearest_multiples(sequence, 2 * cp),
                              sequence % 2 == 0 && sequence != 0 ? ", cp " + divisors_text(sequence / 2) : ""});
}

WEFT_COLD WEFT_INLINE void require_ulysses(std::size_t heads, std::size_t kv_heads, std::size_t tp, std::size_t cp) {
  const std::size_t here = heads / tp, kv_here = kv_heads > tp ? kv_heads / tp : 1;
  std::string can_be;
  for (std::size_t ranks = 1; ranks <= here; ++ranks)
    if (here % ranks == 0 && (kv_here % ranks == 0 || ranks % kv_here == 0))
      append_to(can_be, {can_be.empty() ? "" : ", ", ranks});
  const std::string advice = joined({"; cp can be ", can_be, " (with a ring of keys and values instead of Ulysses, any number)"});
  if (here % cp != 0)
    throw_error<LayoutError>({"heads(", heads, ") / tp(", tp, ") = ", here, " % cp(", cp,
                              ") != 0: Ulysses gives every rank as many whole heads", advice});
  if (kv_here % cp != 0 && cp % kv_here != 0)
    throw_error<LayoutError>({"kv heads of a tp rank(", kv_here, ") against cp(", cp,
                              "): Ulysses divides them among the ranks or lets several hold one", advice});
}

WEFT_COLD WEFT_INLINE std::vector<std::size_t> stage_layers_of(const mesh_layout::Layout& layout, std::size_t pp,
                                                               std::size_t vpp) {
  if (!layout.layers) return {};
  const std::size_t layers = positive("layers", *layout.layers);
  const std::size_t stages = product_of("the number of stages", {{"pp", pp}, {"vpp", vpp}});
  if (!layout.stage_layers.empty()) {
    mesh_layout::require_stage_layers(layout.stage_layers, layers, stages);
    return layout.stage_layers;
  }
  if (stages > layers)
    throw_error<LayoutError>({number("layers", layers), " < ", number("pp", pp), " * ", number("vpp", vpp),
                              ": a stage holds at least one layer; pp * vpp can be at most ", layers});
  return mesh_layout::even_layers(layers, stages);
}

}  // namespace weft::detail

namespace weft::mesh_layout {

WEFT_INLINE ResolvedLayout resolve(const Layout& layout) {
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
  resolved.stage_layers = detail::stage_layers_of(layout, pp, vpp);
  if (layout.sequence) detail::require_chunks(detail::positive("sequence", *layout.sequence), cp);
  if (layout.experts)  // omitted numbers count as divisible
    detail::require_experts(detail::positive("experts", *layout.experts),
                            layout.intermediate ? detail::positive("intermediate", *layout.intermediate) : etp, ep, etp);
  if (layout.ulysses && layout.heads)
    detail::require_ulysses(std::size_t(*layout.heads), std::size_t(layout.kv_heads.value_or(*layout.heads)), tp, cp);
  if (layout.sequence_parallel && tp == 1)
    throw_error<LayoutError>({"sequence parallelism with tp(1): it shards the sequence over the tp axis; tp must be at least 2"});
  if (layout.overlap_p2p && vpp == 1)
    throw_error<LayoutError>(
        {"overlapped point-to-point with vpp(1): messages overlap with the work of a rank's other stages; vpp must be at least "
         "2"});
  return resolved;
}

}  // namespace weft::mesh_layout
