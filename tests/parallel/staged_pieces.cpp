// SPDX-License-Identifier: Apache-2.0
// Predictions of a stack whose fields domain axes cut, on the stages of a pipeline: the whole, and each rank's piece, on every
// stage.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <mutex>
#include <vector>

#include <doctest/doctest.h>

#include <weft/nn/convolution.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/losses.hpp>
#include <weft/parallel/domain_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/runtime/run.hpp>

#include "support/domain_steps.hpp"

using namespace weft;
using weft_test::UnevenPiece;

namespace {

inline constexpr data::Field<"state", double, data::Cut<dx, 2>> state;
inline constexpr data::Field<"next", double, data::Cut<dx, 2>> next;

struct Net {
  using scalar = double;
  using Batch = FieldBatch<state, next>;
  struct Config {};
  struct First : Module<First> {
    Conv2d<> conv;
    First(const auto& at, const Config&) : conv(at / "conv", 1, 3, 3, {.padding = 1}) {}
    auto forward(const auto& batch) const { return tanh(conv(batch[state])); }
  };
  struct Last : Module<Last> {
    Conv2d<> conv;
    Last(const auto& at, const Config&) : conv(at / "conv", 3, 2, 3, {.padding = 1}) {}
    auto predict(const auto& x) const { return conv(x); }
    auto forward(const auto& x, const auto& batch) const { return mse(predict(x), batch[next]); }
  };
  static auto stack(const auto& context, const Config& c) {
    return Stack([=] { return First(context / "first", c); }, [=] { return Last(context / "last", c); });
  }
};

constexpr std::size_t samples = 2, rows = 7, columns = 4;

Net::Batch batch_of(const UnevenPiece& x) {
  Net::Batch batch{.samples = samples, .micro_batches = 2};
  auto values = batch[state].resize(samples, {1, x.count, columns});
  for (std::size_t n = 0, at = 0; n < samples; ++n)
    for (std::size_t i = 0; i < x.count * columns; ++i) {
      const double place = double((n * rows + x.first) * columns + i);
      values[at++] = std::sin(place * place * 0.37);
    }
  return batch;
}

}  // namespace

TEST_CASE("predictions of cut fields on the stages of a pipeline") {
  DefaultDevice device;
  SingleDevice<Net> one(device, {});
  const std::vector<double> expected = one.predict(batch_of({rows, 1, 0})).values;
  REQUIRE(expected.size() == samples * 2 * rows * columns);
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
          const Mesh mesh(world, axes<pp, dx>, {.pp = 2, .dx = 2});
          const UnevenPiece x(rows, 2, std::size_t(mesh.rank(dx{})));
          DomainParallel<PipelineParallel<Net>, dx> model(mesh, {});
          const auto batch = batch_of(x);
          const Prediction whole = model.predict(batch), piece = model.predict(batch, Gather::piece);
          std::vector<double> wanted;
          for (std::size_t image = 0; image < samples * 2; ++image)
            for (std::size_t i = x.first * columns; i < x.end() * columns; ++i)
              wanted.push_back(expected[image * rows * columns + i]);
          const std::lock_guard lock(mutex);
          REQUIRE(whole.shape == Shape{samples, 2, rows, columns});
          REQUIRE(piece.shape == Shape{samples, 2, x.count, columns});
          double worst = 0;
          for (std::size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(whole.values[i] - expected[i]));
          for (std::size_t i = 0; i < wanted.size(); ++i) worst = std::max(worst, std::abs(piece.values[i] - wanted[i]));
          CHECK_MESSAGE(worst < 1e-13, mesh.text(), ": ", worst);
        }) == 0);
}
