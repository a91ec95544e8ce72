// SPDX-License-Identifier: Apache-2.0
#pragma once
// Layouts of a mixture of experts against one rank: a dense mesh and one of experts over the same ranks.

#include "support/parity.hpp"

namespace weft_test {

inline models::MixtralConfig mixtral_config() {
  return {.vocabulary = batch_vocabulary,
          .layers = 4,
          .width = 16,
          .heads = 4,
          .kv_heads = 2,
          .intermediate = 12,
          .sequence = batch_length,
          .experts = 8,
          .top_k = 2,
          .auxiliary_loss = 0.1,
          .z_loss = 0.01,
          .dropout = 0.1,
          .standard_deviation = 0.2};
}

struct FoldedLayout {
  std::size_t world;
  Degrees degrees;
  std::size_t micro_batches;
};

/// dp and edp are the rest that `degrees` leaves.
template <class Composition, class Backend = comm::Threads, class ExpertMeshAxis = Mesh<dp, tp, pp, ep, etp, edp>>
void check_folded(const typename Composition::Config& config, const Reference& reference, const FoldedLayout& layout,
                  double tolerance, const ModelOptions& options = {}) {
  std::mutex mutex;
  Difference worst;
  const Degrees& d = layout.degrees;
  const int code = runtime::run<Backend>(runtime::RunOptions{.ranks = static_cast<int>(layout.world)}, [&](World& rank) {
    ExpertMeshAxis mesh(rank, d);
    const auto data_comm = mesh.comm(dp{});
    const Difference mine =
        compare<Composition>(mesh, data_comm.rank(), data_comm.size(), layout.micro_batches, config, reference, options);
    std::lock_guard lock(mutex);
    worst.compared += mine.compared;
    if (mine.largest() >= worst.largest())
      worst = {mine.gradient, mine.loss, mine.norm, mine.evaluation, mine.logits, worst.compared, mine.worst};
  });
  INFO("world " << layout.world << ", tp(" << d.tp << ") cp(" << d.cp << ") pp(" << d.pp << ") ep(" << d.ep << ") etp(" << d.etp
                << "), micro-batches " << layout.micro_batches << ", worst parameter " << worst.worst);
  CHECK(code == 0);
  CHECK(worst.compared > 0);
  CHECK(worst.loss <= tolerance);
  CHECK(worst.gradient <= tolerance);
  CHECK(worst.norm <= tolerance);
  CHECK(worst.evaluation <= tolerance);
  CHECK(worst.logits <= tolerance);
}

/// Only ep, over dp; folded over tp; combined with etp, edp and pp.
inline const FoldedLayout folded_layouts[] = {
    {1, {}, 2},
    {2, {.ep = 2}, 2},
    {4, {.ep = 4}, 1},
    {4, {.ep = 2}, 2},
    {2, {.etp = 2}, 2},
    {2, {.tp = 2}, 4},
    {4, {.tp = 2, .ep = 4}, 2},
    {4, {.tp = 2, .ep = 2, .etp = 2}, 4},
    {4, {.tp = 4, .ep = 2}, 2},
    {4, {.ep = 2, .pp = 2}, 4},
    {8, {.tp = 2, .ep = 2, .etp = 2}, 2},
    {8, {.tp = 2, .ep = 4, .pp = 2}, 4},
    {8, {.tp = 2, .ep = 2, .etp = 1, .pp = 2}, 2},
};

}  // namespace weft_test
