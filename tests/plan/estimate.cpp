// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/rehearsal.hpp
// covers: weft/plan/machine.hpp weft/plan/machine_file.hpp weft/plan/this_machine.hpp
// Machines, collectives by their formulas, files of machines, and estimates: of published steps, and of real ones.

#include "support/parity.hpp"

#include <unistd.h>

#include <chrono>
#include <filesystem>

#include <weft/comm/rehearsal.hpp>
#include <weft/models/gpt.hpp>
#include <weft/pipeline/schedule/visualise.hpp>
#include <weft/plan/estimate.hpp>
#include <weft/plan/machine.hpp>
#include <weft/plan/machine_file.hpp>
#include <weft/plan/this_machine.hpp>

using namespace weft_test;
using plan::Machine;

namespace {

template <class Model>
using Parallel = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>, Invariant<tp>>>;

Batch batch_of(std::size_t rank, std::size_t sequences, std::size_t length, std::size_t micro_batches) {
  Batch batch{.sequences = sequences, .length = length, .micro_batches = micro_batches};
  batch.first_sequence = sequences * rank;
  for (std::size_t i = 0; i < sequences * length; ++i) {
    batch.tokens.push_back(int(i * 7 % 256));
    batch.targets.push_back(int(i * 11 % 256));
  }
  return batch;
}

std::string refusal(std::string_view text) {
  try {
    (void)plan::machine_from_json(text, "own.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("collectives take the time of their formulas") {
  Machine machine;
  machine.inside = {1, 100};
  machine.across = {10, 10};
  using comm::Operation;
  CHECK(machine.collective_s(Operation::all_gather, 800, 4, 4) == doctest::Approx(3 + 0.75 * 8));
  CHECK(machine.collective_s(Operation::reduce_scatter_v, 800, 4, 4) == doctest::Approx(3 + 0.75 * 8));
  CHECK(machine.collective_s(Operation::all_reduce, 8000, 4, 4) == doctest::Approx(2 * (3 + 0.75 * 80)));
  CHECK(machine.collective_s(Operation::all_reduce, 1, 64, 64) == doctest::Approx(2 * (6 + 0.01)));  // a tree
  CHECK(machine.collective_s(Operation::broadcast, 800, 4, 4) == doctest::Approx(2 + 8));
  CHECK(machine.collective_s(Operation::barrier, 0, 4, 4) == doctest::Approx(4));
  CHECK(machine.collective_s(Operation::all_gather, 800, 1, 1) == 0);
  // 8 ranks of 2 nodes: 6 short steps and one long, and 4 cards of 10 bytes a second from each node; one rank a node has one.
  CHECK(machine.collective_s(Operation::all_gather, 800, 8, 4) == doctest::Approx(6 + 10 + 7.0 / 8 * 800 / 40));
  CHECK(machine.collective_s(Operation::all_gather, 800, 4, 1) == doctest::Approx(3 * 10 + 0.75 * 800 / 10));
  CHECK(machine.message_s(100, false) == doctest::Approx(2));
  CHECK(machine.message_s(100, true) == doctest::Approx(20));
}

TEST_CASE("products: whole waves of whole tiles are the fastest, and short sums and few bytes cost their share") {
  Machine machine = plan::known_machine("a100");
  CHECK(machine.tile_share(256 * 108, 128) == doctest::Approx(1));
  CHECK(machine.tile_share(128, 256 * 108) == doctest::Approx(1));
  CHECK(machine.tile_share(256 * 109, 128) < 0.96);
  CHECK(machine.tile_share(64, 64) < 0.01);
  machine.half_terms = 100, machine.launch_s = 0;
  const auto seconds = [&](double k) { return machine.product_s(256 * 108, 128, k, 0, DataType::bfloat16) / k; };
  CHECK(seconds(100) == doctest::Approx(2 * seconds(1e9)).scale(0));
  CHECK(machine.product_s(1, 1, 1, 2.039e12, DataType::bfloat16) == doctest::Approx(1 / machine.memory_share));
  // Arithmetic of 2 s and bytes of 3 s: fully hidden, half hidden, one after the other; without arithmetic only the bytes.
  Machine plain;
  plain.flops_32 = plain.memory_bandwidth = plain.product_share = plain.memory_share = 1;
  for (const double hidden : {1.0, 0.5, 0.0}) {
    plain.hidden_bytes = hidden;
    CHECK(plain.product_s(1, 1, 1, 3, DataType::float32) == doctest::Approx(3 + 2 * (1 - hidden)));
    CHECK(plain.product_s(2, 1, 1, 3, DataType::float32) == doctest::Approx(4 + 3 * (1 - hidden)));
    CHECK(plain.product_s(1, 1, 0, 3, DataType::float32) == doctest::Approx(3));
    // 4 exponential functions of 0.5 s and the same bytes; without any, as before.
    plain.exponential_s = 0.5;
    CHECK(plain.kernel_s(3, 4) == doctest::Approx(3 + 2 * (1 - hidden)));
    CHECK(plain.kernel_s(3) == 3);
  }
  plain.flops_16 = 2, plain.attention_scale_16 = 0.5, plain.attention_backward_scale_16 = 0.25;
  CHECK(plain.attention_s(8, false, DataType::bfloat16) == 8);
  CHECK(plain.attention_s(8, true, DataType::bfloat16) == 16);
  CHECK(plain.attention_s(8, true, DataType::float32) == 8);
  for (const char* name : {"a100", "h100", "h200"}) CHECK(plan::known_machine(name).flops(DataType::bfloat16) >= 312e12);
  CHECK_THROWS_AS(plan::known_machine("h999"), UsageError);
}

TEST_CASE("an exchange costs a latency for each rank with which anything is exchanged") {
  using comm::Operation;
  const std::vector<std::size_t> sent{0, 5, 0, 2, 0}, received{0, 0, 3, 9, 0};
  const comm::Call call{.operation = Operation::all_to_all_v, .send_counts = sent, .receive_counts = received};
  CHECK(comm::exchange_peers(call, 0) == 3);
  CHECK(comm::exchange_peers(call, 3) == 2);  // data that stays on a rank is not a message
  const Machine machine = plan::known_machine("h100");
  Rehearsal notes;
  notes.ranks = 4096;
  notes.axes = {{"ep", 64, 0, {{64, 1}}}, {"world-wide", 4096, 0, {{4096, 1}}}};
  const auto seconds = [&](std::int64_t peers, const RehearsedTrace::Group& group) {
    return plan::costs_of(notes, machine).message({.a = std::int64_t(Operation::all_to_all_v), .b = peers, .amount = 1e6}, group);
  };
  CHECK(seconds(63, {.axis = "ep", .size = 64}) == machine.collective_s(Operation::all_to_all_v, 1e6, 64, 8));
  CHECK(seconds(7, {.axis = "world-wide", .size = 4096}) == machine.collective_s(Operation::all_to_all_v, 1e6, 8, 1));
  CHECK(seconds(0, {.axis = "world-wide", .size = 4096}) == 0);
}

TEST_CASE("copies of shards meet across nodes, and offload takes the way to the host's memory") {
  Machine machine = plan::known_machine("h100");
  machine.across = {1e3, 50e9};  // seconds: messages that leave a node are visible
  const auto step_of = [&](int per_node, std::size_t copies, bool offload, double* moved = nullptr) {
    machine.ranks_per_node = per_node;
    const auto stages = rehearse_stages({.ranks = 8, .ranks_per_node = per_node, .trace = true}, [&](World& world) {
      const Mesh<dp, tp, pp> mesh(world);
      ModelOptions options;
      options.shard.stage = 2, options.shard.replicate = copies;
      if (offload) options.shard.offload = Offload::host();
      Parallel<models::BasicGpt<float>> model(mesh, {.vocabulary = 256, .layers = 2, .width = 256, .heads = 4, .sequence = 64},
                                              options);
      optim::AdamW optimizer(model);
      for (int step = 0; step < 2; ++step) {
        model.train_step(batch_of(std::size_t(mesh.rank(dp{})), 2, 64, 1));
        optimizer.step();
      }
    });
    if (moved != nullptr) *moved = stages.front().notes.last_step.offloaded_bytes;
    return plan::estimate(stages, machine);
  };
  const auto waits = [](const plan::Estimate& step, const char* axis) {
    const auto& exposed = step.replayed.stages.front().exposed;
    return exposed.contains(axis) ? exposed.find(axis)->second : 0.0;
  };
  CHECK(waits(step_of(8, 2, false), "dp copies") < 1e3);
  CHECK(waits(step_of(4, 2, false), "dp copies") >= 1e3);  // the two copies of a shard are four ranks apart
  CHECK(waits(step_of(4, 4, false), "dp copies") >= 1e3);  // two of four in each node
  CHECK(waits(step_of(4, 4, false), "dp copies") < waits(step_of(2, 4, false), "dp copies"));
  machine.host_bandwidth = 1e8;
  double moved = 0;
  const plan::Estimate here = step_of(8, 1, false), away = step_of(8, 1, true, &moved);
  CHECK(moved > 0);
  const double longer = machine.offload_s(moved, here.replayed.stages.front().optimizer);
  CHECK(longer > 0);
  CHECK(away.seconds - here.seconds == doctest::Approx(longer).scale(0));
  CHECK(waits(away, "the host's memory") == doctest::Approx(longer).scale(0));
  Machine slow;
  slow.host_bandwidth = 10, slow.link_share = 0.5, slow.memory_bandwidth = 100;
  CHECK(slow.offload_s(100, 4) == doctest::Approx(6));  // 50 each way, concurrently with the computation
  CHECK(slow.offload_s(100, 20) == 0);
  slow.hides_messages = false;
  CHECK(slow.offload_s(100, 4) == doctest::Approx(20));
  slow.host_bandwidth = 0;
  CHECK(slow.offload_s(100, 4) == doctest::Approx(2));
}

TEST_CASE("a machine is read from JSON; a file that is none is refused in one line") {
  const Machine own = plan::machine_from_json(
      R"({"like": "h100", "name": "ours", "ranks_per_node": 4, "across": {"latency_s": 8e-6, "bandwidth": 25e9}})", "own.json");
  CHECK(own.name == "ours");
  CHECK(own.ranks_per_node == 4);
  CHECK(own.across.bandwidth == 25e9);
  CHECK(own.flops_16 == plan::known_machine("h100").flops_16);
  CHECK(own.hides_messages);
  const Machine cores = plan::machine_from_json(
      R"({"like": "h100", "hidden_bytes": 0, "hides_messages": false, "ranks_per_core": 2, "host_bandwidth": 1e10})", "c.json");
  CHECK(cores.host_bandwidth == 1e10);
  CHECK(cores.hidden_bytes == 0);
  CHECK_FALSE(cores.hides_messages);
  CHECK(cores.ranks_per_core == 2);
  for (const char* wrong : {"", "[]", "{", R"({"like": "h100", "flops": 1})", R"({"like": "h100", "flops_16": -1})",
                            R"({"like": "h100", "flops_16": "1"})", R"({"like": "x"})", R"({"like": 1})", R"({"flops_16": 1})",
                            R"({"like": "h100", "across": 1})", R"({"like": "h100", "across": {"speed": 1}})",
                            R"({"like": "h100", "ranks_per_node": 1.5})", R"({"like": "h100", "units": 1e999})",
                            R"({"like": "h100", "hidden_bytes": 1.1})", R"({"like": "h100", "hides_messages": 1})",
                            R"({"like": "h100", "ranks_per_core": 0})"}) {
    INFO(wrong);
    const std::string text = refusal(wrong);
    CHECK(text.find("machine") != std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
  }
}

TEST_CASE("Megatron-LM's GPT of 7.5 and 18 billion parameters on A100: within 15 % of the figures published in 2021") {
  struct Row {
    std::size_t heads, width, layers, tp;
    int ranks;
    std::size_t batch;
    double tflops;
  };
  for (const Row& row : {Row{32, 4096, 36, 4, 128, 512, 142}, Row{48, 6144, 40, 8, 256, 1024, 135}}) {
    Machine machine = plan::known_machine("a100");
    machine.attention_share = machine.attention_backward_share = 0.11;  // of 2021: scores in memory
    const plan::Estimate step = plan::estimate({.ranks = row.ranks}, machine, [&](World& world) {
      const Mesh<dp, tp, pp> mesh(world, {.tp = row.tp});
      ModelOptions options;
      options.shard.stage = 0;
      Parallel<models::BasicGpt<bfloat16>> model(mesh,
                                                 {.vocabulary = 51200,
                                                  .layers = row.layers,
                                                  .width = row.width,
                                                  .heads = row.heads,
                                                  .sequence = 2048,
                                                  .recompute = Recomputation::full},
                                                 options);
      optim::AdamW optimizer(model);
      model.train_step(batch_of(std::size_t(mesh.rank(dp{})), 16, 2048, 4));
      optimizer.step();
    });
    const double h = double(row.width), l = double(row.layers), s = 2048;
    const double batch = 16.0 * row.ranks / double(row.tp);
    const double flops = 96 * batch * s * l * h * h * (1 + s / (6 * h) + 51200 / (16 * l * h));
    const double tflops = flops / step.seconds / row.ranks / 1e12;
    MESSAGE(row.tflops << " published, " << tflops << " estimated");
    CHECK(tflops == doctest::Approx(row.tflops).epsilon(0.15));
    CHECK(step.tokens == batch * s);
    CHECK(step.hardware_share() > step.share_of_peak());  // the difference is recomputation
    const plan::StageTimes& times = step.replayed.stages[0];
    CHECK(times.products + times.attention + times.kernels + times.optimizer + times.bubble + times.communication() ==
          doctest::Approx(step.seconds));
    CHECK(plan::table_of(step).find("share of the peak") != std::string::npos);
    CHECK(plan::json_of(step).starts_with("{\"machine\": \"a100\""));
  }
}

TEST_CASE("a pipeline's estimate: the bubble and the picture of its schedule") {
  const plan::Estimate step = plan::estimate({.ranks = 8}, plan::known_machine("h100"), [&](World& world) {
    const Mesh<dp, tp, pp> mesh(world, {.pp = 4});
    Parallel<models::BasicGpt<bfloat16>> model(mesh,
                                               {.vocabulary = 256, .layers = 8, .width = 1024, .heads = 8, .sequence = 512});
    optim::AdamW optimizer(model);
    model.train_step(batch_of(std::size_t(mesh.rank(dp{})), 8, 512, 8));
    optimizer.step();
  });
  REQUIRE(step.replayed.stages.size() == 4);
  const double bubble = step.replayed.stages[1].bubble / step.seconds;
  CHECK(bubble > 0.15);  // 3 / 11, and the additional time of the ends
  CHECK(bubble < 0.45);
  CHECK(step.replayed.table.orders[0].size() == 16);
  CHECK(schedule::to_svg(step.replayed.table, step.replayed.timeline, " s").find("<svg") != std::string::npos);
  CHECK(step.tokens == 2 * 8 * 512);
}

TEST_CASE("a custom training loop is estimated as train_step is") {
  const auto estimate = [](bool own) {
    return plan::estimate({.ranks = 4}, plan::known_machine("h100"), [=](World& world) {
      const Mesh<dp, tp> mesh(world, {.tp = 2});
      FullyShardedDataParallel<TensorParallel<models::BasicGpt<bfloat16>, Invariant<tp>>> model(
          mesh, {.vocabulary = 256, .layers = 4, .width = 1024, .heads = 8, .sequence = 512});
      optim::AdamW optimizer(model);
      const Batch batch = batch_of(std::size_t(mesh.rank(dp{})), 4, 512, 4);
      for (int step = 0; step < 2; ++step) {
        if (own)
          for (std::size_t micro = 0; micro < 4; ++micro) model.loss(batch, MicroBatchIndex{micro}).backward();
        else model.train_step(batch);
        optimizer.step();
      }
    });
  };
  const plan::Estimate own = estimate(true), trained = estimate(false);
  CHECK(own.seconds == doctest::Approx(trained.seconds).epsilon(0.1));
  CHECK(own.tokens == trained.tokens);
  CHECK(own.model_flops == trained.model_flops);
  CHECK(own.flops == trained.flops);
  const plan::StageTimes &mine = own.replayed.stages[0], &theirs = trained.replayed.stages[0];
  CHECK(mine.products == doctest::Approx(theirs.products));
  CHECK(mine.optimizer == doctest::Approx(theirs.optimizer).epsilon(0.1));
  CHECK(own.replayed.table.orders[0].size() == 8);  // four of F and four of B
  CHECK(schedule::to_svg(own.replayed.table, own.replayed.timeline, " s").find("<svg") != std::string::npos);
}

TEST_CASE("WEFT_MACHINE makes a program report its time; impossible values are refused in one line") {
  const std::string picture = std::string(std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : "/tmp") + "/weft_estimate_" +
                              std::to_string(::getpid()) + ".svg";
  ::setenv("WEFT_ESTIMATE_SVG", picture.c_str(), 1);
  const auto asked = [](const char* machine, const char* ranks) {
    ::setenv("WEFT_MACHINE", machine, 1);
    const int code = runtime::run(RunOptions{.rehearse = ranks}, [](World& world) {
      const Mesh<dp, tp, pp> mesh(world, {.pp = std::size_t(world.size()) / 2});
      Parallel<models::BasicGpt<float>> model(mesh, {.vocabulary = 64, .layers = 4, .width = 32, .heads = 4, .sequence = 16});
      optim::AdamW optimizer(model);
      Batch batch{.sequences = 4, .length = 16, .micro_batches = 4};
      batch.first_sequence = 4 * std::size_t(mesh.rank(dp{}));
      batch.tokens.assign(64, 1), batch.targets.assign(64, 2);
      model.train_step(batch);
      optimizer.step();
      return 0;
    });
    ::unsetenv("WEFT_MACHINE");
    return code;
  };
  CHECK(asked("h100", "8") == 0);
  CHECK(std::filesystem::file_size(picture) > 1000);
  CHECK(asked("this", "4") == 0);
  CHECK(asked("h100", "8:0") == 2);
  CHECK(asked("nothing", "8") == 2);
  CHECK(asked("/nowhere/machine.json", "8") == 2);
  ::setenv("WEFT_ESTIMATE_SVG", "/nowhere/step.svg", 1);
  CHECK(asked("h100", "8") == 2);
  ::unsetenv("WEFT_ESTIMATE_SVG");
  std::filesystem::remove(picture);
}

TEST_CASE("this machine is measured by the ranks that share it, and is one node of them") {
  const runtime::detail::KokkosGuard kokkos(2);
  const int cores = runtime::detail::cores();
  for (const int ranks : {1, 2, 4 * cores}) {
    const Machine here = plan::detail::machine_of("this", ranks);
    CHECK(here.ranks_per_node == ranks);
    CHECK(here.ranks_per_core == std::max(1.0, double(ranks) / cores));
    CHECK(here.exponential_s > 0);
    CHECK(here.exponential_s < 1e-6);
    CHECK(here.attention_backward_scale_16 > 0);
    CHECK(!here.hides_messages);
  }
  CHECK(plan::detail::machine_of("h100", 4).ranks_per_node == 8);
}

namespace {

struct RealCase {
  std::size_t layers, width, heads, sequence, sequences;  // sequences of a data rank
  int ranks = 1;
  std::size_t tp = 1, pp = 1, micro_batches = 1;
  int zero = 0;
};

template <class Scalar>
void compare_with_real(const RealCase& c) {
  double real = 0;
  Machine here;
  const auto program = [&](World& world, int steps, const std::function<void(double)>& took) {
    const Mesh<dp, tp, pp> mesh(world, {.tp = c.tp, .pp = c.pp});
    ModelOptions options;
    options.shard.stage = c.zero;
    Parallel<models::BasicGpt<Scalar>> model(
        mesh, {.vocabulary = 256, .layers = c.layers, .width = c.width, .heads = c.heads, .sequence = c.sequence}, options);
    optim::AdamW optimizer(model, {.clip = 1.0});
    const Batch batch = batch_of(std::size_t(mesh.rank(dp{})), c.sequences, c.sequence, c.micro_batches);
    for (int step = 0; step < steps; ++step) {
      const auto started = std::chrono::steady_clock::now();
      model.train_step(batch);
      optimizer.step();
      took(std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
    }
  };
  const int code = runtime::run(RunOptions{.ranks = c.ranks, .threads_per_rank = 1}, [&](World& world) {
    const Machine measured = plan::this_machine(world);
    std::vector<double> times;
    program(world, 12, [&](double seconds) { times.push_back(seconds); });
    std::nth_element(times.begin(), times.begin() + 6, times.end());
    if (world.rank() == 0) real = times[6], here = measured;
  });
  REQUIRE(code == 0);
  const plan::Estimate step = plan::estimate({.ranks = c.ranks}, here, [&](World& world) { program(world, 3, [](double) {}); });
  MESSAGE("layers " << c.layers << " width " << c.width << std::string(sizeof(Scalar) == 2 ? " bf16" : "") << " ranks " << c.ranks
                    << " tp " << c.tp << " pp " << c.pp << " zero " << c.zero << ": " << 1e3 * real << " ms real, "
                    << 1e3 * step.seconds << " ms estimated, " << 100 * (step.seconds / real - 1) << " %\n"
                    << plan::table_of(step));
  CHECK(step.seconds < 2 * real);
  CHECK(step.seconds > real / 2);
}

}  // namespace

// These measurements depend on the computer's other load: WEFT_TEST_LONG prints the errors.
TEST_CASE("real steps of small models on this machine") {
  if (std::getenv("WEFT_TEST_LONG") == nullptr) return;
  for (const RealCase& c :
       {RealCase{4, 128, 4, 128, 8}, RealCase{4, 256, 8, 128, 8}, RealCase{2, 512, 16, 128, 4}, RealCase{4, 256, 8, 128, 8, 2},
        RealCase{4, 256, 8, 128, 8, 2, 2}, RealCase{4, 256, 8, 128, 8, 2, 1, 2, 4}})
    compare_with_real<float>(c);
}
TEST_CASE("real steps of the layouts of ./bench/run training on this machine") {
  if (std::getenv("WEFT_TEST_LONG") == nullptr) return;
  const RealCase data{6, 384, 6, 256, 8, 2};
  compare_with_real<bfloat16>(data);
  RealCase zero3 = data;
  zero3.zero = 3;
  for (const RealCase& c : {data, zero3, RealCase{6, 384, 6, 256, 16, 2, 2}, RealCase{6, 384, 6, 256, 16, 2, 1, 2, 4}})
    compare_with_real<float>(c);
}
