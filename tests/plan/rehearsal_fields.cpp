// SPDX-License-Identifier: Apache-2.0
// Rehearsals over domain axes: the rehearsed rank has neighbours on both sides, and sends both of them its rows.

#include <cstddef>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <weft/nn/convolution.hpp>
#include <weft/operations/losses.hpp>
#include <weft/parallel/domain_parallel.hpp>
#include <weft/runtime/rehearse.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

inline constexpr data::Field<"state", double, data::Cut<dx, 2>, data::Cut<dy, 3>> state;
inline constexpr data::Field<"next", double, data::Cut<dx, 2>, data::Cut<dy, 3>> next;

struct Model : Module<Model> {
  using scalar = double;
  using Batch = FieldBatch<state, next>;
  struct Config {};
  Conv2d<> conv;
  Model(const auto& context, const Config&) : conv(context / "conv", 1, 1, 3, {.padding = 1}) {}
  auto loss(const auto& batch) const { return mse(conv(batch[state]), batch[next]); }
};

constexpr std::size_t rows = 8, columns = 6;

/// The rehearsal of one step over dx and dy.
std::vector<RehearsedStage> stages_of(int ranks, const Degrees& degrees) {
  return rehearse_stages({.ranks = ranks}, [&](World& world) {
    const Mesh mesh(world, axes<dp, dx, dy>, degrees);
    DataParallel<DomainParallel<Model, dx, dy>> model(mesh, {});
    Model::Batch batch{.samples = 1};
    batch[state].resize(1, {1, rows, columns}), batch[next].resize(1, {1, rows, columns});
    optim::AdamW optimizer(model, {});
    model.train_step(batch);
    optimizer.step();
  });
}
double sent_along(const Rehearsal& notes, std::string_view axis) { return notes.last_step.of(axis, "send").bytes; }

}  // namespace

TEST_CASE("the rehearsed rank of a domain axis is an inner one") {
  const auto border = stages_of(2, {.dx = 2}), inner = stages_of(4, {.dx = 4});
  REQUIRE(border.size() == 1);
  REQUIRE(inner.size() == 1);
  CHECK(border[0].rank == 0);
  CHECK(inner[0].rank == 1);
  // One row of doubles to each neighbour; the gradient of the input is not sent home, since nothing needs it.
  CHECK(sent_along(border[0].notes, "dx") >= columns * sizeof(double));
  CHECK(sent_along(inner[0].notes, "dx") == 2 * sent_along(border[0].notes, "dx"));
  const auto both = stages_of(9, {.dx = 3, .dy = 3});
  REQUIRE(both.size() == 1);
  CHECK(both[0].rank == 4);
}
