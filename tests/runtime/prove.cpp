// SPDX-License-Identifier: Apache-2.0
// Proofs of right and of wrong programs: right ones agree in every layout, and each wrong one is found at the tensor that is
// wrong. All of them compile.
// covers: weft/runtime/prover.hpp
// covers: weft/runtime/proof/compare.hpp
// covers: weft/runtime/proof/layout_processes.hpp
// covers: weft/runtime/proof/layouts.hpp
// covers: weft/runtime/proof/report.hpp
// covers: weft/testing/prove.hpp
// covers: weft/autograd/proof_note.hpp
// covers: weft/device/proof.hpp
// covers: weft/runtime/proof/assembly.hpp
// covers: weft/device/proof_piece.hpp
// covers: weft/engine/proof_parameters.hpp
// covers: weft/parallel/proof_step.hpp
#define WEFT_PROVE_IN_DOUBLE
#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/proof_note.hpp>
#include <weft/device/proof.hpp>
#include <weft/device/proof_piece.hpp>
#include <weft/engine/proof_parameters.hpp>
#include <weft/parallel/proof_step.hpp>
#include <weft/runtime/proof/assembly.hpp>
#include <weft/runtime/proof/compare.hpp>
#include <weft/runtime/proof/layout_processes.hpp>
#include <weft/runtime/proof/layouts.hpp>
#include <weft/runtime/proof/report.hpp>
#include <weft/runtime/prove.hpp>
#include <weft/runtime/prover.hpp>
#include <weft/testing/prove.hpp>
#include <weft/weft.hpp>

#include "support/figure.hpp"
#include "support/temporary_folder.hpp"

using namespace weft;
using runtime::ProofReport;
using runtime::ProvenLayout;
using Verdict = ProvenLayout::Verdict;

namespace {

enum class Mistake {
  none,
  mean_of_local_rows,
  mask_by_local_row,
  overwritten_gradient,
  sum_made_twice,
  same_samples,
  local_divisor,
  mask_by_local_column,
  data_by_world_rank,
  norm_of_a_piece,
  random_data,
  share_off,
  forgotten_sum,
  null_pointer,
  endless_loop,
  lonely_rank,
  ends_early,
  // in a user's Primitive
  dropout_by_rank,
  dropout_by_local_element,
  divided_by_local_maximum,
  rms_of_piece,
  largest_of_piece,
  bias_on_every_rank,
  square_of_a_partial,
  mixed_with_next_row,
  weighted_by_local_row,
  scaled_by_local_columns,
  first_rank_only,
  sum_over_wrong_axis,
  reversed_columns,
  backward_divided,
  backward_of_own_rows,
  // in a loss, a hook, a rule
  loss_over_ranks,
  mean_in_hook,
  half_of_bucket,
  hook_divides,
  noise_by_local_element,
  clipped_by_piece,
  decay_by_size_of_piece,
  // in a loop
  rate_by_ranks,
  rate_by_local_data,
  seed_by_rank,
  shuffled_by_rank,
  overlapping_samples,
  augmented_by_local_index,
  normalised_by_local_mean,
  wanted_by_local_index,
  steps_on_first_rank,
};
Mistake mistake = Mistake::none;  // child processes inherit it
bool is(Mistake one) { return mistake == one; }

thread_local std::size_t data_ranks = 1;  // set by the program

inline constexpr data::Field<"input", float> input;
inline constexpr data::Field<"wanted", float> wanted;

struct Extra : Primitive<Extra> {
  template <class X>
  X change(const X& x, bool backward) const {
    X y(x.device(), x.shape());
    const std::size_t rows = x.rows(), columns = x.columns();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t row = i / columns, column = i % columns;
      double mean = 0;
      for (std::size_t k = 0; k < rows; ++k) mean += double(x.data()[k * columns + column]) / double(rows);
      const bool hidden = (is(Mistake::mask_by_local_row) && row % 8 == 5) ||
                          (is(Mistake::mask_by_local_column) && column % 5 == 0) ||
                          (is(Mistake::backward_of_own_rows) && backward && row % 8 == 5);
      const double factor = is(Mistake::share_off) && columns < 16 ? 1 + 1e-10 : 1;
      y.data()[i] =
          typename X::value_type((hidden ? 0 : double(x.data()[i])) * factor - (is(Mistake::mean_of_local_rows) ? mean : 0));
    }
    return y;
  }
  // Mistakes of one rank's elements. They are linear with a symmetric matrix, if one forgets what a factor depends on.
  static void change_elements(const auto& context, const auto& x, auto& y) {
    using X = std::remove_cvref_t<decltype(x)>;
    constexpr bool partial = weft::detail::kind_of<placement_t<X, tp>> == weft::detail::Kind::partial;
    const std::size_t rows = x.rows(), columns = x.columns(), dp_rank = context.rank(dp{});
    double most = 1e-300;
    for (std::size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(double(x.data()[i])));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t row = i / columns, column = i % columns;
      const auto* const mine = x.data() + row * columns;
      double squares = 1e-300, largest = -1e300, value = double(x.data()[i]);
      for (std::size_t k = 0; k < columns; ++k) {
        squares += double(mine[k]) * double(mine[k]) / double(columns);
        largest = std::max(largest, double(mine[k]));
      }
      if (is(Mistake::dropout_by_rank) && Philox::uniform(key_of(7, dp_rank), column) < 0.3) value = 0;
      if (is(Mistake::dropout_by_local_element) && Philox::uniform(key_of(7), i) < 0.3) value = 0;
      if (is(Mistake::divided_by_local_maximum)) value /= most;
      if (is(Mistake::rms_of_piece) && !partial) value /= std::sqrt(squares);
      if (is(Mistake::largest_of_piece) && !partial && value < largest) value *= 0.5;
      if (is(Mistake::bias_on_every_rank) && partial) value += 0.1;
      if (is(Mistake::square_of_a_partial) && partial) value += value * value;
      if (is(Mistake::mixed_with_next_row)) value += 0.5 * double(x.data()[(row + 1) % rows * columns + column]);
      if (is(Mistake::weighted_by_local_row)) value *= 1 + 0.1 * double(row);
      if (is(Mistake::scaled_by_local_columns)) value /= std::sqrt(double(columns));
      if (is(Mistake::first_rank_only) && dp_rank != 0) value = 0;
      if (is(Mistake::reversed_columns) && !partial) value = double(mine[columns - 1 - column]);
      y.data()[i] = typename X::value_type(value);
    }
  }
  auto forward(const auto& context, const auto& x) const {
    auto y = change(x, false);
    if (mistake >= Mistake::dropout_by_rank && mistake <= Mistake::reversed_columns) change_elements(context, x, y);
    using Context = std::remove_cvref_t<decltype(context)>;
    if constexpr (Context::has(tp{}))
      if (is(Mistake::sum_made_twice)) context.comm(tp{}).all_reduce(raw(y));
    if constexpr (Context::has(dp{}))
      if (is(Mistake::sum_over_wrong_axis)) context.comm(dp{}).all_reduce(raw(y));
    return Result{y, Nothing{}};
  }
  auto backward(const auto& context, Nothing, const auto& g) const {
    auto dx = change(g, true);
    if (mistake >= Mistake::dropout_by_rank && mistake <= Mistake::reversed_columns) change_elements(context, g, dx);
    if (is(Mistake::backward_divided))
      for (std::size_t i = 0; i < dx.size(); ++i) dx.data()[i] /= double(context.size(tp{}));
    return dx;
  }
};

struct Scale : Primitive<Scale> {
  Parameter<> gain;
  Scale(const auto& context, std::size_t width) : gain(context, "gain", {width}, ones) {}
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
  auto backward(const auto& context, auto x, const auto& g) {
    const auto sum = sum_rows(times(g, x));
    if (is(Mistake::overwritten_gradient)) {
      const auto open = gain.template open_gradient<std::remove_cvref_t<decltype(sum)>>(g.device());
      if (open.first || sum.size() != 0) std::copy_n(sum.data(), sum.size(), open.data);
    } else {
      gain.accumulate(context, sum);
    }
    return times_row(g, gain.for_operand(x));
  }
};

struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input, wanted>;
  struct Config {
    std::size_t inputs = 8, hidden = 16, outputs = 4;
  };
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  Extra inner, outer;
  Scale scale;
  Parameter<> table;
  Net(const auto& context, const Config& c)
      : up(context, "up", {c.hidden, c.inputs}, normal(0.4)),
        down(context, "down", {c.inputs, c.hidden}, normal(0.4)),
        scale(context / "scale", c.inputs),
        table(context, "table", {c.outputs, c.inputs}, normal(0.5)) {}
  auto forward(const auto& x) const {
    auto inside = inner(silu(matmul(to<Replicated<tp>>(x), up)));
    auto branch = outer(matmul(inside, down));  // Partial over tp
    return matmul(scale(to<Invariant<tp>>(x) + to<Invariant<tp>>(branch)), table);
  }
  auto loss(const auto& batch) const {
    auto y = to<Invariant<tp>>(batch[wanted]);
    auto each = sum<1>(sqrt(1.0 + square(forward(batch[input]) - y)) - 1.0);  // of each sample
    double divisor = 1;
    if (is(Mistake::local_divisor))
      divisor = double(1 + std::count_if(y.value().data(), y.value().data() + y.value().size(), [](auto v) { return v > 0; }));
    if (is(Mistake::loss_over_ranks)) divisor = double(data_ranks);
    return sum_losses(each * (1.0 / divisor));
  }
};

struct Step {  // plain gradient descent, which is elementwise
  struct Options {
    double learning_rate = 1e-2, clip = 0;
  };
  static constexpr bool elementwise = true;
  static constexpr int buffers = 0;
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot& slot, const Options&, double rate, double scale, std::uint64_t) {
    const auto* g = static_cast<const accumulate_t<P>*>(slot.state->gradient().get());
    double norm = 1e-12;
    for (std::size_t i = 0; i < slot.state->kept(); ++i) norm += double(g[i]) * double(g[i]);
    if (!is(Mistake::norm_of_a_piece)) norm = 1;
    double most = 0;
    for (std::size_t i = 0; i < slot.state->kept(); ++i) most = std::max(most, std::abs(double(g[i])));
    for (std::size_t i = 0; i < slot.state->kept(); ++i) {
      P& value = static_cast<P*>(slot.state->value().get())[i];
      double gradient = double(g[i]);
      if (is(Mistake::noise_by_local_element)) gradient += 0.1 * Philox::uniform(key_of(9), i);
      if (is(Mistake::clipped_by_piece)) gradient = std::min(gradient, most / 2);
      if (is(Mistake::decay_by_size_of_piece) && slot.state->kept() > 64) gradient += 0.1 * double(value);
      value -= P(rate * scale / std::sqrt(norm) * gradient);
    }
  }
};

struct Sums {  // a communication hook
  std::shared_ptr<int> calls = std::make_shared<int>(0);
  Request start(hook::Bucket& bucket, const Communicator& ranks) {
    if (is(Mistake::mean_in_hook)) return ranks.all_reduce_async(bucket.all(), Reduction::average);
    if (is(Mistake::hook_divides))
      bucket.visit([&](auto gradients) {
        for (auto& one : gradients) one /= typename decltype(gradients)::value_type(ranks.size());
      });
    if (is(Mistake::half_of_bucket)) {
      Request sum;
      bucket.visit([&](auto gradients) { sum = ranks.all_reduce_async(gradients.first(gradients.size() / 2)); });
      return sum;
    }
    return is(Mistake::forgotten_sum) && (*calls)++ != 0 ? Request() : ranks.all_reduce_async(bucket.all());
  }
};

std::size_t global_batch = 16;
std::uint64_t variant = 0;  // of programs that differ in data and initial values

template <class Model>
int train(World& world, int steps = 5) {
  Mesh<dp, tp> mesh(world);
  const std::size_t ranks = mesh.size(dp{}), rank = mesh.rank(dp{}), mine = global_batch / ranks;
  data_ranks = ranks;
  Model model(mesh, {}, {.seed = variant + (is(Mistake::seed_by_rank) ? 3 + rank : 3)});
  optim::Optimizer<Step> optimizer(model, {.learning_rate = is(Mistake::rate_by_ranks) ? 1e-2 * double(ranks) : 1e-2});
  for (int step = 0; step < steps; ++step) {
    if (is(Mistake::null_pointer) && mesh.size(tp{}) == 2) *static_cast<volatile int*>(nullptr) = 1;
    if (is(Mistake::endless_loop) && mesh.size(tp{}) == 2 && rank == 0)
      while (is(Mistake::endless_loop)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (is(Mistake::lonely_rank) && mesh.size(dp{}) == 2 && rank == 1) return 0;
    if (is(Mistake::ends_early) && mesh.size(dp{}) == 2 && step == 1) return 0;
    Net::Batch batch{.samples = mine, .micro_batches = std::size_t(mine % 2 == 0 ? 2 : 1), .first_sample = rank * mine};
    auto x = batch[input].resize(mine, {8}), y = batch[wanted].resize(mine, {4});
    const std::size_t first = is(Mistake::same_samples)          ? 0
                              : is(Mistake::overlapping_samples) ? rank * (mine - 1)
                              : is(Mistake::data_by_world_rank)  ? std::size_t(world.rank()) * mine
                                                                 : batch.first_sample;
    const std::uint64_t seed = is(Mistake::random_data)        ? std::random_device()()
                               : is(Mistake::shuffled_by_rank) ? 5 + rank
                                                               : 5 + variant;
    const std::size_t first_wanted = is(Mistake::wanted_by_local_index) ? 0 : first;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(Philox::uniform(key_of(seed, step, 1), first * 8 + i) - 0.5);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = float(Philox::uniform(key_of(seed, step, 2), first_wanted * 4 + i) - 0.4);
    float mean = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (is(Mistake::augmented_by_local_index)) x[i] += float(0.1 * Philox::uniform(key_of(6, step), i));
      mean += x[i] / float(x.size());
    }
    for (std::size_t i = 0; is(Mistake::normalised_by_local_mean) && i < x.size(); ++i) x[i] -= mean;
    model.train_step(batch);
    if (is(Mistake::rate_by_local_data)) optimizer.step(1e-2 * (1 + double(mean)));
    else if (!is(Mistake::steps_on_first_rank) || rank == 0) optimizer.step();
  }
  return 0;
}

using Sharded = FullyShardedDataParallel<TensorParallel<Net>>;
using Hooked = DataParallel<TensorParallel<Net>, Sums>;

template <class Model = Sharded>
ProofReport proof_with(Mistake one, int ranks = 4, int layout_seconds = 60) {
  mistake = one;
  const ProofReport report =
      runtime::prove({.ranks = ranks, .layout_seconds = layout_seconds}, [](World& world) { return train<Model>(world); });
  mistake = Mistake::none;
  return report;
}

// The text of the first layout with that verdict; empty if there is none.
std::string first(const ProofReport& report, Verdict verdict) {
  for (const ProvenLayout& one : report.layouts)
    if (one.verdict == verdict) return one.layout.text() + ": " + one.text;
  return "";
}

template <int part>
using Certifications = std::integral_constant<int, part>;

}  // namespace

TEST_CASE("a right program agrees in every layout, also with another global batch, and layouts that are not possible are named") {
  const ProofReport report = proof_with(Mistake::none, 8);
  INFO(report.text());
  CHECK(report.proven());
  CHECK(report.count(Verdict::agrees) == 47);  // dp 3, 5, 6 and 7 have 15, 12 or 14 samples in place of 16
  CHECK(report.count(Verdict::refused) == 8);
  CHECK(first(report, Verdict::refused) == "tp 3: weft: parameter up [16, 8]: 16 elements cannot be cut by tp(3)");
  CHECK(report.in_double);
  CHECK(report.largest[std::size_t(runtime::ProofPhase::loss)] < 1e-14);
  CHECK(report.largest[std::size_t(runtime::ProofPhase::gradient)] < 1e-13);
  CHECK(report.largest[std::size_t(runtime::ProofPhase::updated)] == 0);  // one rank's gradients give one rank's bits
  CHECK(report.text().find("prove: proven: 47 of 47 possible layouts of up to 8 ranks agree") != std::string::npos);
  CHECK(report.text().find("prove: refused: tp 3 and 4 more: weft: parameter up") != std::string::npos);
  const std::string json = report.certificate("net");
  CHECK(json.find(R"("proven": true, "ranks": 8, "steps": 2, "in_double": true)") != std::string::npos);
  CHECK(json.find(R"({"layout": "dp 2 tp 2, stage 1 of ZeRO", "ranks": 4, "verdict": "agrees"})") != std::string::npos);
  CHECK(report.certificate("net") == json);
  CHECK(report.certificate("other") != json);
}

// The long form is 1,000 certifications, as several cases: each has the deadline of one.
TEST_CASE_TEMPLATE("right programs of any data and initial values are not accused", Part, Certifications<0>, Certifications<1>,
                   Certifications<2>, Certifications<3>, Certifications<4>) {
  const long runs = weft_test::rounds(weft_test::long_form() ? 200 : 1);
  unsigned long long layouts = 0, alarms = 0;
  for (long run = 0; run < runs; ++run) {
    variant = 100 + std::uint64_t(Part::value * runs + run), global_batch = 8 + 2 * std::size_t(variant % 5);
    const ProofReport report = variant % 4 == 0 ? proof_with<Hooked>(Mistake::none) : proof_with(Mistake::none);
    layouts += report.count(Verdict::agrees);
    alarms += !report.proven();
    CHECK_MESSAGE(report.proven(), report.text());
  }
  variant = 0, global_batch = 16;
  std::printf("certifications: %ld of %llu layouts, %llu alarms\n", runs, layouts, alarms);
}

TEST_CASE("a wrong program is found at its first wrong tensor") {
  struct Case {
    Mistake mistake;
    std::size_t wrong;  // layouts of up to 4 ranks
    const char* text;
  };
  const Case cases[] = {
      {Mistake::mean_of_local_rows, 16, "step 1, forward, model, Extra #1"},
      {Mistake::mask_by_local_row, 17, "step 1, forward, model, Extra #1"},
      {Mistake::overwritten_gradient, 6, "gradient before the sums over ranks, scale.gain"},
      {Mistake::sum_made_twice, 6, "step 1, forward, model, Extra #"},
      {Mistake::same_samples, 12, "step 1, batch, input, sample"},
      {Mistake::local_divisor, 18, "is not a sum over samples"},
      {Mistake::mask_by_local_column, 6, "step 1, forward, model, Extra #1"},
      {Mistake::data_by_world_rank, 6, "step 1, batch, "},
      {Mistake::norm_of_a_piece, 15, "step 1, updated parameter, "},
      {Mistake::share_off, 6, "step 1, forward, model, Extra #1"},
  };
  for (const Case& one : cases) {
    const ProofReport report = proof_with(one.mistake);
    const std::string found = first(report, Verdict::differs) + first(report, Verdict::fails);
    INFO("mistake " << int(one.mistake) << ": " << report.text());
    CHECK(!report.proven());
    CHECK(report.count(Verdict::differs) + report.count(Verdict::fails) == one.wrong);
    CHECK_MESSAGE(found.find(one.text) != std::string::npos, found);
  }
}

TEST_CASE("sums that are forgotten from the second step on differ after local gradients that agree") {
  CHECK(proof_with<Hooked>(Mistake::none).proven());
  const ProofReport report = proof_with<Hooked>(Mistake::forgotten_sum);
  INFO(report.text());
  CHECK(first(report, Verdict::differs).find("step 2, gradient, ") != std::string::npos);
  CHECK(report.count(Verdict::agrees) == 2);  // tp 2 and tp 4 have no sum over dp
}

TEST_CASE("wrong programs that compile are found in layouts of two ranks, almost all at the wrong tensor") {
  struct Case {
    Mistake mistake;
    const char* text;
    bool hook = false;
  };
  const Case cases[] = {
      {Mistake::dropout_by_rank, "forward, model, Extra #1"},
      {Mistake::dropout_by_local_element, "is not a sum over samples"},
      {Mistake::divided_by_local_maximum, "forward, model, Extra #1"},
      {Mistake::rms_of_piece, "forward, model, Extra #1"},
      {Mistake::largest_of_piece, "forward, model, Extra #1"},
      {Mistake::bias_on_every_rank, "forward, model, Extra #2"},
      {Mistake::square_of_a_partial, "forward, model, Extra #2"},
      {Mistake::mixed_with_next_row, "forward, model, Extra #1"},
      {Mistake::weighted_by_local_row, "is not a sum over samples"},
      {Mistake::scaled_by_local_columns, "forward, model, Extra #1"},
      {Mistake::first_rank_only, "forward, model, Extra #1"},
      {Mistake::sum_over_wrong_axis, "forward, model, Extra #1"},
      {Mistake::reversed_columns, "forward, model, Extra #1"},
      {Mistake::backward_divided, "backward, model, Extra #"},
      {Mistake::backward_of_own_rows, "backward, model, Extra #"},
      {Mistake::loss_over_ranks, "forward, model, "},
      {Mistake::mean_in_hook, "the communication hook averages", true},
      {Mistake::half_of_bucket, "step 1, gradient, ", true},
      {Mistake::hook_divides, "the communication hook averages", true},
      {Mistake::noise_by_local_element, "step 1, updated parameter, "},
      {Mistake::clipped_by_piece, "step 1, updated parameter, "},
      {Mistake::decay_by_size_of_piece, "step 1, updated parameter, "},
      {Mistake::rate_by_ranks, "step 1, updated parameter, "},
      {Mistake::rate_by_local_data, "learning rate"},
      {Mistake::seed_by_rank, "seed"},
      {Mistake::shuffled_by_rank, "step 1, batch, input, sample"},
      {Mistake::overlapping_samples, "step 1, batch, input, sample"},
      {Mistake::augmented_by_local_index, "step 1, batch, input, sample"},
      {Mistake::normalised_by_local_mean, "step 1, batch, input, sample"},
      {Mistake::wanted_by_local_index, "step 1, batch, wanted, sample"},
      {Mistake::steps_on_first_rank, "step 2"},
  };
  std::size_t named = 0;
  for (const Case& one : cases) {
    std::string found;
    try {
      const ProofReport report = one.hook ? proof_with<Hooked>(one.mistake, 2) : proof_with(one.mistake, 2);
      found = first(report, Verdict::differs) + first(report, Verdict::fails);
    } catch (const UsageError& error) {  // one rank fails
      found = error.what();
    }
    mistake = Mistake::none;
    CHECK_MESSAGE(!found.empty(), "mistake " << int(one.mistake));
    if (found.find(one.text) != std::string::npos) ++named;
    else MESSAGE("mistake " << int(one.mistake) << " is found at " << found);
  }
  CHECK(named >= std::size(cases) - 2);  // reversed columns are seen in the next product, a missing step in a rank's next batch
}

TEST_CASE("a crash, a hang and a rank that leaves are findings of their layouts, and the others are proven") {
  const ProofReport crashed = proof_with(Mistake::null_pointer, 2);
  INFO(crashed.text());
  CHECK(first(crashed, Verdict::fails).find("tp 2: its process was killed by signal 11 (SIGSEGV)") == 0);
  CHECK(crashed.count(Verdict::agrees) == 4);
  const ProofReport hung = proof_with(Mistake::endless_loop, 2, 15);
  INFO(hung.text());
  CHECK(first(hung, Verdict::fails).find("tp 2: ") == 0);
  CHECK(hung.count(Verdict::agrees) == 4);
  const ProofReport lonely = proof_with(Mistake::lonely_rank, 2);
  INFO(lonely.text());
  CHECK(lonely.count(Verdict::fails) == 4);
  CHECK(lonely.count(Verdict::agrees) == 1);
  const ProofReport early = proof_with(Mistake::ends_early, 2);
  INFO(early.text());
  CHECK(first(early, Verdict::fails) == "dp 2, stage 0 of ZeRO: it ends after 1 step, one rank takes 2");
}

TEST_CASE("a program that cannot be proven is refused in one line with a remedy") {
  const auto refuses = [](const char* text, auto program, Mistake one = Mistake::none) {
    mistake = one;
    std::string found = "nothing";
    try {
      (void)runtime::prove({.ranks = 2}, program);
    } catch (const UsageError& error) {
      found = error.what();
    }
    mistake = Mistake::none;
    CHECK_MESSAGE(found.find(text) != std::string::npos, found);
  };
  refuses("the program ended before an optimizer's first step: give it arguments",
          [](World& world) { return train<Sharded>(world, 0); });
  refuses("the program makes no mesh, so it has one layout: lay its model over a Mesh<dp>", [](World& world) {
    SingleDevice<Net> model(world.device(), {});
    optim::Optimizer<Step> optimizer(model, {});
    Net::Batch batch{.samples = 2};
    batch[input].resize(2, {8}), batch[wanted].resize(2, {4});
    model.train_step(batch);
    optimizer.step();
    return 0;
  });
  refuses(
      "two runs on one rank differ, so the program is no function of its inputs: step 1, batch, input, sample ",
      [](World& world) { return train<Sharded>(world); }, Mistake::random_data);
  const auto refused = [](const runtime::ProofOptions& options) {
    try {
      (void)runtime::prove(options, [](World&) { return 0; });
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  CHECK(refused({.ranks = 1}) == "weft: prove: 1 ranks and 2 steps: it takes at least 2 ranks and 1 step");
  CHECK(refused({.layout_seconds = 0, .processes = -1}) ==
        "weft: prove: seconds(600) and layout_seconds(0) must be at least 1, processes(-1) at least 0");
  refuses("the program fails on one rank, so there is nothing to compare with: no data",
          [](World&) -> int { throw std::runtime_error("no data"); });
}

TEST_CASE("testing::prove throws the report of a wrong program") {
  const runtime::ProofOptions small{.ranks = 2};
  CHECK(testing::prove([](World& world) { train<Sharded>(world); }, small).count(Verdict::agrees) == 5);
  mistake = Mistake::same_samples;
  std::string found;
  try {
    (void)testing::prove([](World& world) { train<Sharded>(world); }, small);
  } catch (const Error& error) {
    found = error.what();
  }
  mistake = Mistake::none;
  CHECK(found.find("testing::prove:") != std::string::npos);
  CHECK(found.find("differs: dp 2, stage 0 of ZeRO and 3 more: step 1, batch, input, sample ") != std::string::npos);
}

namespace {

struct SetVariable {  // of the environment, while it exists
  SetVariable(const char* name, const char* value) : name(name) { ::setenv(name, value, 1); }
  ~SetVariable() { ::unsetenv(name); }
  const char* name;
};

}  // namespace

TEST_CASE("run proves the program if WEFT_PROVE is set, and writes a certificate") {
  const weft_test::TemporaryFolder folder;
  const std::string file = (folder.path / "proof.json").string();
  const SetVariable wanted_ranks("WEFT_PROVE", "2"), certificate("WEFT_PROVE_CERTIFICATE", file.c_str());
  CHECK(run<comm::Threads>(RunOptions{}, [](World& world) { train<Sharded>(world); }) == 0);
  std::string text;
  std::ifstream in(file);
  std::getline(in, text);
  CHECK(text.find(R"("proven": true, "ranks": 2, "steps": 2)") != std::string::npos);
  mistake = Mistake::same_samples;
  CHECK(run<comm::Threads>(RunOptions{}, [](World& world) { return train<Sharded>(world); }) == 1);
  mistake = Mistake::none;
  const auto asked = [] { return runtime::detail::prove_if_asked([](World&) -> int { throw std::runtime_error("began"); }); };
  {
    const SetVariable no_file("WEFT_PROVE_CERTIFICATE", "/dev/null");  // refused before the proof begins
    CHECK_THROWS_WITH_AS(
        asked(), "weft: WEFT_PROVE_CERTIFICATE: cannot write '/dev/null': it is a device, a regular file is needed", UsageError);
  }
  for (const char* name : {"WEFT_PROVE_STEPS", "WEFT_PROVE_SECONDS", "WEFT_PROVE_LAYOUT_SECONDS", "WEFT_PROVE_PROCESSES"}) {
    const SetVariable none(name, "0");
    const std::string expected =
        std::string("weft: environment variable ") + name + " is '0', expected a number from 1 to 1.04858e+06";
    CHECK_THROWS_WITH_AS(asked(), expected.c_str(), UsageError);
  }
  const SetVariable launcher("OMPI_COMM_WORLD_SIZE", "4");
  CHECK_THROWS_WITH_AS(runtime::detail::prove_if_asked([](World& world) { return train<Sharded>(world); }),
                       "weft: WEFT_PROVE starts its ranks itself, and mpirun has started this process: start the program without "
                       "it: WEFT_PROVE=2 ./program",
                       UsageError);
}

TEST_CASE("layouts that do not begin in the time are counted, and nothing is proven then") {
  const ProofReport late = runtime::prove({.ranks = 4, .seconds = 1, .processes = 1}, [](World& world) {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    return train<Sharded>(world);
  });
  INFO(late.text());
  CHECK(!late.proven());
  CHECK(late.count(Verdict::not_begun) != 0);
  CHECK(late.text().find("not begun in the time: a larger WEFT_PROVE_SECONDS, or a smaller WEFT_PROVE than 4\n") !=
        std::string::npos);
  runtime::ProofReport report;
  report.ranks = 8, report.steps = 2;
  report.layouts = {{.layout = {.ranks = 2, .degrees = {{"dp", 2}}}, .verdict = Verdict::agrees}};
  CHECK(report.proven());
  report.layouts.push_back({.layout = {.ranks = 4, .degrees = {{"dp", 4}}}});
  CHECK(!report.proven());
  CHECK(report.text().find(
            "prove: 1 layout was not begun in the time: a larger WEFT_PROVE_SECONDS, or a smaller WEFT_PROVE than 8") == 0);
}

TEST_CASE("tensors of other sizes: gradients and parameters differ, batches are left out with a reason") {
  using runtime::ProofPhase;
  weft::detail::ProofNotes one, other;
  const auto note = [](weft::detail::ProofNotes& notes, ProofPhase phase, const char* name, std::vector<double> values) {
    notes.tensors[{1, phase, 0, name}].parts[0] = std::move(values);
  };
  one.steps = other.steps = 1;
  note(one, ProofPhase::batch, "documents", {1, 2}), note(other, ProofPhase::batch, "documents", {1});
  note(one, ProofPhase::local_gradient, "up", {1, 2});
  note(one, ProofPhase::gradient, "up", {1, 2}), note(other, ProofPhase::gradient, "up", {1});
  note(one, ProofPhase::updated, "up", {1, 2}), note(other, ProofPhase::updated, "up", {1, 2, 3});
  std::vector<std::string> differences, left_out;
  runtime::detail::compare(
      one, other,
      [&](const runtime::detail::ProofDifference& found) {
        if (found.size > 0) differences.push_back(found.text);
      },
      [&](const weft::detail::ProofNotes::Key& key, const char* reason) { left_out.push_back(key.name + ": " + reason); });
  CHECK(differences == std::vector<std::string>{"step 1, gradient, up, has 1 element instead of 2",
                                                "step 1, updated parameter, up, has 3 elements instead of 2"});
  CHECK(left_out ==
        std::vector<std::string>{"documents: samples are missing or have other sizes", "up: this layout does not note it"});
}

TEST_CASE("kept values are compared over their own size, and between the ranks that have a copy") {
  using runtime::ProofPhase;
  const runtime::ProofLayout layout{.ranks = 2, .degrees = {{"dp", 2}}};
  const auto notes_of = [&](std::vector<std::vector<double>> copies) {
    auto notes = std::make_unique<weft::detail::ProofNotes>();
    notes->steps = 1;
    for (std::size_t rank = 0; rank < copies.size(); ++rank)
      weft::detail::Proof(*notes, layout, int(rank)).note_copy(1, ProofPhase::kept, "norm.running", copies[rank]);
    notes->tensors[{1, ProofPhase::kept, 0, "large"}].parts[0] = {1e300};
    assemble(*notes);
    return notes;
  };
  const auto difference = [&](std::vector<std::vector<double>> copies) {
    std::string text;
    double size = 0;
    runtime::detail::compare(*notes_of({{1e-9, 2e-9}}), *notes_of(std::move(copies)),
                             [&](const runtime::detail::ProofDifference& found) {
                               if (found.size > size) size = found.size, text = found.text;
                             });
    return std::pair(size, text);
  };
  CHECK(difference({{1e-9, 2e-9}, {1e-9, 2e-9}}).first == 0);
  CHECK(difference({{1e-9, 2.2e-9}, {1e-9, 2.2e-9}}).first == doctest::Approx(0.1));
  CHECK(difference({{1e-9, 2.2e-9}}).second.starts_with("step 1, kept values, norm.running, element 1: "));
  CHECK(difference({{1e-9, 2e-9}, {1e-9, 3e-9}}).first == doctest::Approx(0.5));
  CHECK(difference({{1e-9, 2e-9}, {1e-9, 3e-9}}).second ==
        "step 1, kept values, norm.running, ranks that must hold the same elements differ");
  CHECK(std::isinf(difference({{1e-9, 2e-9}, {1e-9}}).first));
  CHECK(difference({}).second == "step 1, kept values, norm.running, is missing");
}

TEST_CASE("values that a custom training loop leaves out are named, and a layout that cannot be compared is not proven") {
  std::size_t more = 0;  // samples for each rank beyond the first
  const auto loop = [&](World& world) {
    Mesh<dp, tp> mesh(world);
    Sharded model(mesh, {}, {.seed = 3});
    optim::Optimizer<Step> optimizer(model, {.learning_rate = 1e-2});
    for (int step = 0; step < 3; ++step) {
      const std::size_t ranks = std::size_t(mesh.size(dp{})), mine = (12 + more * (ranks - 1)) / ranks;
      Net::Batch batch{.samples = mine, .first_sample = std::size_t(mesh.rank(dp{})) * mine};
      auto x = batch[input].resize(mine, {8}), y = batch[wanted].resize(mine, {4});
      const std::size_t first = batch.first_sample;
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(Philox::uniform(key_of(5, step, 1), first * 8 + i) - 0.5);
      for (std::size_t i = 0; i < y.size(); ++i) y[i] = float(Philox::uniform(key_of(5, step, 2), first * 4 + i) - 0.4);
      model.loss(batch).backward();
      optimizer.step();
    }
    return 0;
  };
  const ProofReport same = runtime::prove({.ranks = 2}, loop);
  INFO(same.text());
  CHECK(same.proven());
  CHECK(same.count(Verdict::agrees) == 5);
  CHECK(same.text().find("prove: not compared: losses, results of layers, values that layers keep, and gradients before the sums "
                         "over ranks: the program has a custom training loop\n") != std::string::npos);
  CHECK(same.certificate("net").find("a custom training loop") != std::string::npos);
  more = 4;
  const ProofReport other = runtime::prove({.ranks = 2}, loop);
  INFO(other.text());
  CHECK(!other.proven());
  CHECK(other.count(Verdict::not_compared) == 4);
  CHECK(other.text().find("prove: NOT proven: 1 of 5 possible layouts of up to 2 ranks agree") != std::string::npos);
}

TEST_CASE("an element that is no number on one rank of tp only is a difference") {
  weft::detail::ProofNotes notes;
  auto& pieces = notes.tensors[{1, runtime::ProofPhase::forward, 0, "up"}].pieces;
  for (const std::size_t rank : {std::size_t(0), std::size_t(1)})
    pieces.push_back({.over_dp = {weft::detail::ProofPiece::shard, 0},
                      .tp_rank = rank,
                      .shape = {1, 2},
                      .values = {1, rank == 0 ? 2 : std::nan("")}});
  assemble(notes);
  CHECK(std::isinf(notes.tensors.begin()->second.replicas));
}

TEST_CASE("pieces of cp ranks are put at the positions of their sequences") {
  using weft::detail::ProofPiece;
  weft::detail::ProofNotes notes;
  auto& tensor = notes.tensors[{1, runtime::ProofPhase::forward, 0, "up"}];
  const auto piece = [&](std::size_t rank, std::vector<double> values) {
    tensor.pieces.push_back({.over_dp = {ProofPiece::shard, 0},
                             .over_cp = {ProofPiece::shard, 0},
                             .cp_rank = rank,
                             .first = 6,
                             .samples = 2,
                             .shape = {4, 1},
                             .values = std::move(values)});
  };
  piece(0, {0, 3, 10, 13}), piece(1, {1, 2, 11, 12});  // two sequences of four positions
  assemble(notes);
  CHECK(tensor.parts == std::map<std::size_t, std::vector<double>>{{6, {0, 1, 2, 3}}, {7, {10, 11, 12, 13}}});
}

TEST_CASE("a unit is named by the path that its parameters share") {
  const auto named = [](const std::vector<std::string>& names) {
    std::vector<std::unique_ptr<ParameterState>> made;
    std::vector<ParameterState*> all;
    for (const std::string& name : names) {
      ParameterInfo info;
      info.name = name;
      made.push_back(std::make_unique<ParameterState>(info));
      all.push_back(made.back().get());
    }
    return weft::detail::common_path("unit 2", all);
  };
  CHECK(named({"h.1.mlp.up", "h.1.norm.gain", "h.1.mlp.down"}) == "h.1");
  CHECK(named({"h.1.mlp.up", "h.10.mlp.up"}) == "h");
  CHECK(named({"wte.weight"}) == "wte");
  CHECK(named({"wte.weight", "norm.gain"}) == "unit 2");
  CHECK(named({"table"}) == "unit 2");
  CHECK(named({}) == "unit 2");
}

TEST_CASE("stages of ZeRO vary where ranks share the state: data ranks, and those of domain axes if they share it") {
  const auto layouts = [](bool over_domain) {
    weft::detail::ProofNotes notes;
    const runtime::ProofLayout one;
    weft::detail::Proof proof(notes, one, 0);
    DefaultDevice device;
    device.prove(proof);
    ModelOptions options{.shard = {.over_domain = over_domain}}, fixed;
    fixed.shard.stage = weft::detail::open_stage;
    weft::detail::choose_options(device, options, fixed, true, false);
    notes.axes = {{"dp"}, {"tp"}, {"dx"}};
    weft::detail::ProofNotes read;
    REQUIRE(read.read(notes.bytes()));
    std::vector<std::string> texts;
    for (const runtime::ProofLayout& layout : runtime::detail::layouts_of(read, 2)) texts.push_back(layout.text());
    return texts;
  };
  std::vector<std::string> wanted{
      "dx 2", "tp 2", "dp 2, stage 0 of ZeRO", "dp 2, stage 1 of ZeRO", "dp 2, stage 2 of ZeRO", "dp 2, stage 3 of ZeRO"};
  const auto sorted = [](std::vector<std::string> all) { return std::sort(all.begin(), all.end()), all; };
  CHECK(sorted(layouts(false)) == sorted(wanted));
  wanted[0] = "dx 2, stage 0 of ZeRO";  // which choose_options refuses
  for (int stage = 1; stage <= 3; ++stage) wanted.push_back("dx 2, stage " + std::to_string(stage) + " of ZeRO");
  CHECK(sorted(layouts(true)) == sorted(wanted));
}

TEST_CASE("a stage of ZeRO that other options of the program do not allow is no possible layout") {
  const auto refused = [](int stage, const ModelOptions& given) {
    weft::detail::ProofNotes notes;
    const runtime::ProofLayout layout{.ranks = 2, .degrees = {{"dp", 2}}, .stage = stage};
    weft::detail::Proof proof(notes, layout, 0);
    DefaultDevice device;
    device.prove(proof);
    ModelOptions options = given, fixed;
    fixed.shard.stage = weft::detail::open_stage;
    try {
      weft::detail::choose_options(device, options, fixed, true, false);
    } catch (const LayoutError& error) {
      return std::string(error.what());
    }
    return "stage " + std::to_string(options.shard.stage);
  };
  CHECK(refused(0, {}) == "stage 0");
  CHECK(refused(2, {.shard = {.replicate = 2}}) == "stage 2");
  CHECK(refused(0, {.shard = {.replicate = 2}}) ==
        "weft: stage 0 of ZeRO: the program's options (shard, data.hook, numerics.gradient) are for stages 1 to 3");
  CHECK(refused(2, {.shard = {.secondary = 2}}) ==
        "weft: stage 2 of ZeRO: the program's options (shard, data.hook, numerics.gradient) are for stage 3");
}
