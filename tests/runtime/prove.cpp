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
// covers: weft/device/proof_assembly.hpp
// covers: weft/device/proof_piece.hpp
// covers: weft/engine/proof_parameters.hpp
// covers: weft/parallel/proof_step.hpp
#define WEFT_PROVE_IN_DOUBLE
#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/autograd/proof_note.hpp>
#include <weft/device/proof.hpp>
#include <weft/device/proof_assembly.hpp>
#include <weft/device/proof_piece.hpp>
#include <weft/engine/proof_parameters.hpp>
#include <weft/parallel/proof_step.hpp>
#include <weft/runtime/proof/compare.hpp>
#include <weft/runtime/proof/layout_processes.hpp>
#include <weft/runtime/proof/layouts.hpp>
#include <weft/runtime/proof/report.hpp>
#include <weft/runtime/prove.hpp>
#include <weft/runtime/prover.hpp>
#include <weft/testing/prove.hpp>
#include <weft/weft.hpp>

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
};
Mistake mistake = Mistake::none;  // child processes inherit it
bool is(Mistake one) { return mistake == one; }

inline constexpr data::Field<"input", float> input;
inline constexpr data::Field<"wanted", float> wanted;

struct Extra : Primitive<Extra> {
  template <class X>
  X change(const X& x) const {
    X y(x.device(), x.shape());
    const std::size_t rows = x.rows(), columns = x.columns();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t row = i / columns, column = i % columns;
      double mean = 0;
      for (std::size_t k = 0; k < rows; ++k) mean += double(x.data()[k * columns + column]) / double(rows);
      const bool hidden =
          (is(Mistake::mask_by_local_row) && row % 8 == 5) || (is(Mistake::mask_by_local_column) && column % 5 == 0);
      const double factor = is(Mistake::share_off) && columns < 16 ? 1 + 1e-10 : 1;
      y.data()[i] =
          typename X::value_type((hidden ? 0 : double(x.data()[i])) * factor - (is(Mistake::mean_of_local_rows) ? mean : 0));
    }
    return y;
  }
  auto forward(const auto& context, const auto& x) const {
    auto y = change(x);
    if constexpr (std::remove_cvref_t<decltype(context)>::has(tp{}))
      if (is(Mistake::sum_made_twice)) context.comm(tp{}).all_reduce(raw(y));
    return Result{y, Nothing{}};
  }
  auto backward(const auto&, Nothing, const auto& g) const { return change(g); }
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
    for (std::size_t i = 0; i < slot.state->kept(); ++i)
      static_cast<P*>(slot.state->value().get())[i] -= P(rate * scale / std::sqrt(norm) * double(g[i]));
  }
};

struct Sums {  // a communication hook
  std::shared_ptr<int> calls = std::make_shared<int>(0);
  Request start(hook::Bucket& bucket, const Communicator& ranks) {
    return is(Mistake::forgotten_sum) && (*calls)++ != 0 ? Request() : ranks.all_reduce_async(bucket.all());
  }
};

std::size_t global_batch = 16;

template <class Model>
int train(World& world, int steps = 5) {
  Mesh<dp, tp> mesh(world);
  Model model(mesh, {}, {.seed = 3});
  optim::Optimizer<Step> optimizer(model, {.learning_rate = 1e-2});
  for (int step = 0; step < steps; ++step) {
    const std::size_t ranks = std::size_t(mesh.size(dp{})), rank = std::size_t(mesh.rank(dp{})), mine = global_batch / ranks;
    if (is(Mistake::null_pointer) && mesh.size(tp{}) == 2) *static_cast<volatile int*>(nullptr) = 1;
    if (is(Mistake::endless_loop) && mesh.size(tp{}) == 2 && rank == 0)
      while (is(Mistake::endless_loop)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (is(Mistake::lonely_rank) && mesh.size(dp{}) == 2 && rank == 1) return 0;
    if (is(Mistake::ends_early) && mesh.size(dp{}) == 2 && step == 1) return 0;
    Net::Batch batch{.samples = mine, .micro_batches = std::size_t(mine % 2 == 0 ? 2 : 1), .first_sample = rank * mine};
    auto x = batch[input].resize(mine, {8}), y = batch[wanted].resize(mine, {4});
    const std::size_t first = is(Mistake::same_samples)         ? 0
                              : is(Mistake::data_by_world_rank) ? std::size_t(world.rank()) * mine
                                                                : batch.first_sample;
    const std::uint64_t seed = is(Mistake::random_data) ? std::random_device()() : 5;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(Philox::uniform(key_of(seed, step, 1), first * 8 + i) - 0.5);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = float(Philox::uniform(key_of(seed, step, 2), first * 4 + i) - 0.4);
    model.train_step(batch);
    optimizer.step();
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
      {Mistake::data_by_world_rank, 6, "input"},
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
  CHECK(same.text().find("prove: not compared: losses, results of layers and gradients before the sums over ranks: the program "
                         "has a custom training loop\n") != std::string::npos);
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
