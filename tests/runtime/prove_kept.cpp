// SPDX-License-Identifier: Apache-2.0
// Proofs of values that are kept from step to step: running statistics, a layer's numbers, and the arrays of optimizers that live
// at one rank. No gradient or parameter of these wrong programs differs.
#define WEFT_PROVE_IN_DOUBLE
#include <weft/testing/prove.hpp>

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <weft/autograd/kept_values.hpp>
#include <weft/nn/batch_norm.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/losses.hpp>
#include <weft/optim/adafactor.hpp>
#include <weft/optim/adamw_8bit.hpp>
#include <weft/optim/soap.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

enum class Mistake { none, number_of_ranks, rank };
Mistake mistake = Mistake::none;
thread_local std::size_t data_ranks = 1;

constexpr std::size_t inputs = 64;  // AdamW8Bit quantises the moments of 4096 elements
inline constexpr data::Field<"input", double> input;
inline constexpr data::Field<"wanted", double> wanted;

struct Net : Module<Net> {
  using scalar = double;
  using Batch = FieldBatch<input, wanted>;
  struct Config {};
  Linear<Column> up;
  BatchNorm<Shard<tp, 0>> norm;
  Linear<Row> down;
  std::shared_ptr<std::vector<double>> seen;
  Net(const auto& at, const Config&)
      : up(at / "up", inputs, 64), norm(at / "norm", 64), down(at / "down", 64, 4), seen(kept_values(at, "seen", 1)) {}
  auto loss(const auto& batch) const {
    return mse(to<Invariant<tp>>(down(tanh(norm(up(to<Invariant<tp>>(batch[input])))))), to<Invariant<tp>>(batch[wanted]));
  }
};

/// Gradient descent that keeps a number for each row of a matrix.
struct RowsRule {
  struct Options {
    double learning_rate = 1e-2, clip = 0;
  };
  static constexpr optim::Needs needs = optim::Needs::matrix;
  static constexpr int buffers = 0, sent = 1;
  static constexpr std::array<std::string_view, 1> home_names{"rows"};
  static std::array<std::size_t, 1> home_elements(const ParameterState& state) { return {state.global()[0]}; }
  template <class P, class Exec>
  static void prepare(Device<Exec>&, optim::Slot& slot, const Options&, double scale, std::uint64_t, accumulate_t<P>* arrays) {
    const auto* const g = static_cast<const accumulate_t<P>*>(slot.state->gradient().get());
    for (std::size_t i = 0; i < slot.state->kept(); ++i) arrays[i] = g[i] * scale;
  }
  template <class A, class Exec>
  static void transform(Device<Exec>&, const optim::Matrix& matrix, const Options&, A* gradient) {
    for (std::size_t row = 0; row < matrix.rows; ++row)
      matrix.array<A>(0)[row] +=
          gradient[row * matrix.columns] + (mistake == Mistake::number_of_ranks ? A(0.01) * A(data_ranks) : 0);
  }
  template <class P, class Exec>
  static void apply(Device<Exec>&, optim::Slot& slot, const Options&, double rate, std::uint64_t, const accumulate_t<P>* arrays) {
    for (std::size_t i = 0; i < slot.state->kept(); ++i) static_cast<P*>(slot.state->value().get())[i] -= P(rate * arrays[i]);
  }
};

template <class Optimizer, class Change>
runtime::ProofReport proof_of(const Change& change, int ranks = 2) {
  return runtime::prove({.ranks = ranks}, [&](World& world) {
    constexpr std::size_t samples = 12;
    Mesh<dp, tp> mesh(world);
    data_ranks = mesh.size(dp{});
    FullyShardedDataParallel<TensorParallel<Net>> model(mesh, {}, {.seed = 3});
    Optimizer optimizer(model, {.learning_rate = 1e-2, .clip = 0.1});
    const std::size_t mine = samples / data_ranks, first = mine * mesh.rank(dp{});
    for (int step = 0; step < 2; ++step) {
      Net::Batch batch{.samples = mine, .first_sample = first};
      auto x = batch[input].resize(mine, {inputs}), y = batch[wanted].resize(mine, {4});
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(double(first * inputs + i) * 1.37 + step);
      for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::sin(double(first * 4 + i) * 2.11 + step);
      model.train_step(batch);
      optimizer.step();
      change(mesh, model);
    }
    return 0;
  });
}
const auto nothing = [](auto&, auto&) {};

}  // namespace

TEST_CASE_TEMPLATE("optimizers that keep arrays at one rank have one rank's arrays", Optimizer, optim::Soap, optim::Adafactor,
                   optim::AdamW8Bit) {
  const auto report = proof_of<Optimizer>(nothing, 4);
  INFO(report.text());
  CHECK(report.proven());
  CHECK(report.count(runtime::ProvenLayout::Verdict::agrees) > 10);
  CHECK(report.largest[std::size_t(runtime::ProofPhase::norm)] < 1e-14);
  CHECK(report.largest[std::size_t(runtime::ProofPhase::updated)] == 0);  // one rank's gradients and norm give one rank's bits
  CHECK(report.largest[std::size_t(runtime::ProofPhase::kept)] < 1e-12);
}

TEST_CASE("an array at one rank that depends on the layout is found") {
  using Rows = optim::Optimizer<RowsRule>;
  CHECK(proof_of<Rows>(nothing).proven());
  mistake = Mistake::number_of_ranks;
  const auto report = proof_of<Rows>(nothing);
  mistake = Mistake::none;
  CHECK_FALSE(report.proven());
  CHECK_MESSAGE(report.text().find("step 1, kept values, down.bias.rows, element ") != std::string::npos, report.text());
}

TEST_CASE("a layer's numbers that depend on the layout, or differ between ranks, are found") {
  const auto report_of = [](Mistake one) {
    mistake = one;
    auto report = proof_of<optim::AdamW>([](auto& mesh, auto& model) {
      auto& seen = model.buffers().back()->value;
      seen[0] += mistake == Mistake::number_of_ranks ? double(data_ranks) : 1.0;
      if (mistake == Mistake::rank) seen[0] += double(mesh.rank(dp{}));
    });
    mistake = Mistake::none;
    return report;
  };
  CHECK(report_of(Mistake::none).proven());
  const auto counted = report_of(Mistake::number_of_ranks), differs = report_of(Mistake::rank);
  CHECK_FALSE(counted.proven());
  CHECK_FALSE(differs.proven());
  CHECK_MESSAGE(counted.text().find("step 2, kept values, seen, 2 instead of 1") != std::string::npos, counted.text());
  CHECK_MESSAGE(
      differs.text().find("step 2, kept values, seen, ranks that must hold the same elements differ") != std::string::npos,
      differs.text());
}
