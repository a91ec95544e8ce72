// SPDX-License-Identifier: Apache-2.0
#pragma once
// parity.hpp's comparison on meshes that have cp.

#include "support/parity.hpp"

namespace weft_test {

/// One layout of (dp, cp, tp, pp) against one rank.
template <class Composition, class Backend = comm::Threads>
void check_context(const typename Composition::Config& config, const Reference& reference, std::size_t world,
                   const Degrees& degrees, const ModelOptions& options = {}) {
  std::mutex mutex;
  Difference worst;
  const std::size_t data = world / (degrees.cp * degrees.tp * degrees.pp),
                    micro_batches = std::min<std::size_t>(2, batch_sequences / data);
  const int code = runtime::run<Backend>(runtime::RunOptions{.ranks = int(world)}, [&](World& rank) {
    Mesh<dp, cp, tp, pp> mesh(rank, degrees);
    const Difference mine =
        compare<Composition>(mesh, std::size_t(mesh.rank(dp{})), data, micro_batches, config, reference, options);
    std::lock_guard lock(mutex);
    worst.compared += mine.compared;
    if (mine.largest() >= worst.largest())
      worst = {mine.gradient, mine.loss, mine.norm, mine.evaluation, mine.logits, worst.compared, mine.worst};
  });
  INFO("dp(" << data << ") * cp(" << degrees.cp << ") * tp(" << degrees.tp << ") * pp(" << degrees.pp << "), worst parameter "
             << worst.worst);
  CHECK(code == 0);
  CHECK(worst.compared > 0);
  CHECK(worst.loss <= 1e-12);
  CHECK(worst.gradient <= 1e-12);
  CHECK(worst.norm <= 1e-12);
  CHECK(worst.evaluation <= 1e-12);
  CHECK(worst.logits <= 1e-12);
}

}  // namespace weft_test
