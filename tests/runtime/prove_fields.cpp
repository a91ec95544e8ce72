// SPDX-License-Identifier: Apache-2.0
// Proofs of programs over domain axes: a right one agrees in every layout, also beside dp and tp, and one that reads another
// rank's piece of the field is found.
#define WEFT_PROVE_IN_DOUBLE
#include <weft/testing/prove.hpp>

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/losses.hpp>
#include <weft/parallel/domain_parallel.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

inline constexpr data::Field<"state", double, data::Cut<dx, 2>, data::Cut<dy, 3>> state;
inline constexpr data::Field<"next", double, data::Cut<dx, 2>, data::Cut<dy, 3>> next;

struct Model : Module<Model> {
  using scalar = double;
  using Batch = FieldBatch<state, next>;
  struct Config {};
  Conv2d<Shard<tp, 0>> first;
  GroupNorm<Shard<tp, 0>> norm;
  Conv2d<> second;
  Model(const auto& context, const Config&)
      : first(context / "first", 1, 4, 3, {.padding = 1}),
        norm(context / "norm", 4, 4),
        second(context / "second", 4, 1, 3, {.padding = 1, .mode = PaddingMode::periodic}) {}
  auto loss(const auto& batch) const {
    const auto x = to<Replicated<tp>>(batch[state]);
    return mse(second(to<Invariant<tp>>(tanh(norm(first(x))))), to<Invariant<tp>>(batch[next]));
  }
};

constexpr std::size_t samples = 12, rows = 8, columns = 12;
enum class Mistake { none, piece_of_another };

void train(World& world, Mistake mistake) {
  const Mesh<dp, tp, dx, dy> mesh(world);
  DataParallel<TensorParallel<DomainParallel<Model, dx, dy>>> model(mesh, {});
  optim::AdamW optimizer(model, {.learning_rate = 1e-2});
  const data::Share share = data::share_of(mesh);
  const auto first_of = [](std::size_t whole, std::size_t ranks, std::size_t rank) { return (whole * rank + ranks - 1) / ranks; };
  const auto piece = [&](std::size_t whole, std::size_t ranks, std::size_t rank) {
    const std::size_t first = first_of(whole, ranks, rank);
    return std::pair(first, first_of(whole, ranks, rank + 1) - first);
  };
  const std::size_t here = samples / std::size_t(share.size), shift = mistake == Mistake::none ? 0 : 1;
  const std::pair at_x = piece(rows, mesh.size(dx{}), (mesh.rank(dx{}) + shift) % mesh.size(dx{})),
                  at_y = piece(columns, mesh.size(dy{}), mesh.rank(dy{}));
  for (int step = 0; step < 2; ++step) {
    Model::Batch batch{.samples = here, .first_sample = here * std::size_t(share.rank)};
    const auto fill = [&](auto field, double shift) {
      auto values = batch[field].resize(here, {1, at_x.second, at_y.second});
      for (std::size_t n = 0, at = 0; n < here; ++n)
        for (std::size_t i = 0; i < at_x.second; ++i)
          for (std::size_t j = 0; j < at_y.second; ++j, ++at) {
            const double place = double(((batch.first_sample + n) * rows + at_x.first + i) * columns + at_y.first + j);
            values[at] = std::sin(place * place * 0.37 + shift + step);
          }
    };
    fill(state, 0), fill(next, 1);
    model.train_step(batch);
    optimizer.step();
  }
}

}  // namespace

TEST_CASE("a program over domain axes agrees in every layout") {
  const auto report = testing::prove([](World& world) { train(world, Mistake::none); }, {.ranks = 4});
  std::size_t agree = 0, domain = 0;
  for (const runtime::ProvenLayout& layout : report.layouts) {
    if (layout.verdict != runtime::ProvenLayout::Verdict::agrees) continue;
    ++agree;
    domain += layout.layout.degree("dx") * layout.layout.degree("dy") > 1;
  }
  CHECK_MESSAGE(domain >= 8, report.text());
  CHECK(agree > domain);
}
TEST_CASE("pieces of another rank are found") {
  const auto report = runtime::prove({.ranks = 2}, [](World& world) {
    train(world, Mistake::piece_of_another);
    return 0;
  });
  CHECK_FALSE(report.proven());
  CHECK_MESSAGE(report.text().find("dx 2") != std::string::npos, report.text());
}
