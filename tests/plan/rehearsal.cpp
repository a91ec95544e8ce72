// SPDX-License-Identifier: Apache-2.0
// covers: weft/device/rehearsal.hpp weft/runtime/rehearse.hpp
// A rehearsed rank keeps the bytes, and sends the messages, that the same rank of a real run does, in each layout; and a model of
// many thousand ranks is rehearsed in seconds.

#include "plan/rehearsed.hpp"
#include "support/field_models.hpp"

#include <chrono>
#include <fstream>

#include <weft/device/rehearsal.hpp>
#include <weft/runtime/rehearse.hpp>

using namespace weft_test;

namespace {

const std::vector<Case> cases = {{.micro_batches = 3},
                                 {.dp = 2, .zero = 0, .micro_batches = 2},
                                 {.dp = 2, .zero = 1, .micro_batches = 2},
                                 {.dp = 2, .zero = 2, .micro_batches = 2},
                                 {.dp = 2, .zero = 3, .micro_batches = 2},
                                 {.dp = 4, .zero = 3, .replicate = 2},
                                 {.dp = 4, .zero = 3, .micro_batches = 2, .secondary = 2},
                                 {.dp = 2, .zero = 3, .quantised = true},
                                 {.tp = 2, .micro_batches = 2},
                                 {.tp = 4, .recompute = Recomputation::selective},
                                 {.dp = 2, .tp = 2, .zero = 3, .recompute = Recomputation::full},
                                 {.pp = 2, .schedule = "gpipe", .micro_batches = 4},
                                 {.pp = 4, .micro_batches = 6},
                                 {.pp = 2, .schedule = "interleaved", .micro_batches = 4},
                                 {.pp = 2, .schedule = "zbv", .micro_batches = 4},
                                 {.dp = 2, .tp = 2, .pp = 2, .zero = 1, .micro_batches = 3},
                                 {.cp = 2},
                                 {.cp = 2, .ulysses = true},
                                 {.pp = 2, .cp = 2, .micro_batches = 2},
                                 {.dp = 2, .zero = 2, .micro_batches = 2, .reproducible = true},
                                 {.dp = 2, .zero = 1, .offload = true}};

template <class Model>
using Composed = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>, Invariant<tp>>>;
template <class Model>
using Parallel = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<Model>, Invariant<tp>>>>;

const models::GptConfig gpt{.vocabulary = vocabulary, .layers = 4, .width = 64, .heads = 4, .sequence = sequence};
const models::LlamaConfig llama{
    .vocabulary = vocabulary, .layers = 4, .width = 64, .heads = 4, .kv_heads = 2, .sequence = sequence};

}  // namespace

TEST_CASE("gpt: a rehearsed rank keeps and sends the same bytes as the real one") {
  for (const Case& c : cases) check<Parallel<models::BasicGpt<float>>>(gpt, c);
}
TEST_CASE("llama in bfloat16: a rehearsed rank keeps and sends the same bytes as the real one") {
  for (const Case& c : cases) check<Parallel<models::BasicLlama<bfloat16>>>(llama, c);
}

TEST_CASE("user-defined models, forward-only: a rehearsed rank keeps and sends the same bytes as the real one") {
  for (const Case& c : {Case{.micro_batches = 2}, Case{.dp = 2, .zero = 3}, Case{.dp = 2, .tp = 2, .zero = 1},
                        Case{.pp = 2, .micro_batches = 4}, Case{.dp = 2, .pp = 4, .zero = 2, .micro_batches = 2}}) {
    check<Composed<Mlp>>(Mlp::Config{}, c);
    check<Composed<Towers>>(Towers::Config{}, c);
  }
}
TEST_CASE("all ranks that differ are the stages of the pipeline, and each is as in a rehearsal of its own") {
  const Case c{.dp = 2, .tp = 2, .pp = 4, .zero = 1, .micro_batches = 6};
  const auto program = [&](World& world) { (void)train<Parallel<models::BasicGpt<float>>>(world, gpt, c); };
  const std::vector<RehearsedStage> stages = rehearse_stages({.ranks = 16, .both = true}, program);
  REQUIRE(stages.size() == 4);
  for (int stage = 0; stage < 4; ++stage) {
    const RehearsedStage& there = stages[std::size_t(stage)];
    INFO("stage " << stage);
    CHECK(there.stage == stage);
    CHECK(there.rank == 4 * stage);
    for (const int data : {0, 1}) {  // the other data and tensor ranks do as this one does, but for the padding of shards
      const Rehearsal alone = rehearse({.rank = 4 * stage + 2 * data + 1, .ranks = 16}, program);
      CHECK(alone.kept.current <= there.notes.kept.current);
      CHECK(double(alone.kept.current) >= 0.999 * double(there.notes.kept.current));
      CHECK(double(alone.peak) == doctest::Approx(double(there.notes.peak)).epsilon(0.001));
      CHECK(alone.product_flops == there.notes.product_flops);
    }
    CHECK(there.least_peak == rehearse({.rank = 4 * stage, .ranks = 16, .early = true}, program).peak);
    CHECK(there.least_peak < there.notes.peak);
    const Rehearsal::Axis* const pipeline = there.notes.axis("pp");
    REQUIRE(pipeline != nullptr);
    CHECK(pipeline->size == 4);
    CHECK(pipeline->rank == std::size_t(stage));
    CHECK(pipeline->lines.front().stride == 4);
    CHECK(there.notes.axis("dp")->lines.front().stride == 2);
    CHECK(there.notes.axis("cp")->lines.empty());
  }
  CHECK(stages.front().notes.peak > stages[2].notes.peak);  // of 1F1B
  const std::string table = runtime::table_of(stages);
  CHECK(table.starts_with("rehearsal of the ranks that differ, of 16\n  stage of the pipeline "));
  CHECK(table.find("pp send") != std::string::npos);
  CHECK(table.find("ranks along dp 2, cp 1, tp 2, pp 4") != std::string::npos);
  const std::string json = runtime::json_of(stages);
  CHECK(json.starts_with("[{\"rank\": 0, \"ranks\": 16, \"early\": false, \"stage\": 0, "));
  CHECK(json.find("{\"axis\": \"pp\", \"size\": 4, \"rank\": 3}") != std::string::npos);

  // The axes that leave a node. With 24 ranks, 4 per node, tp 2 does not; groups of dp 4 with tp inside span two nodes; and
  // groups of 6 neighbours, some of which begin in the middle of a node, span up to three.
  const auto nodes = [](int per_node, const char* axis, const std::function<void(World&)>& f) {
    const Rehearsal notes = rehearse({.ranks = 24, .ranks_per_node = per_node}, f);
    return notes.nodes_of(*notes.axis(axis));
  };
  const auto mesh = [](World& world) { Mesh<dp, tp, pp>(world, {.tp = 2, .pp = 3}).comm(dp{}, tp{}); };
  CHECK(nodes(4, "tp", mesh) == 1);
  CHECK(nodes(4, "dp", mesh) == 2);
  CHECK(nodes(4, "pp", mesh) == 3);
  CHECK(nodes(4, "dp-tp", mesh) == 2);
  CHECK(nodes(3, "tp", mesh) == 2);  // ranks 2 and 3
  CHECK(nodes(24, "pp", mesh) == 1);
  CHECK(nodes(0, "pp", mesh) == 0);
  CHECK(nodes(4, "tp", [](World& world) { Mesh<dp, tp>(world, {.tp = 6}); }) == 2);
  CHECK(nodes(4, "tp", [](World& world) { Mesh<dp, tp>(world, {.tp = 12}); }) == 3);
  CHECK(runtime::table_of(rehearse({.ranks = 24, .ranks_per_node = 4}, mesh))
            .find("tp 2 (inside of a node), pp 3 (over 3 nodes)") != std::string::npos);

  // Another order of ranks; and programs without a pipeline, or without a mesh, have one.
  const auto places = [](const std::function<void(World&)>& f) {
    std::vector<int> ranks;
    for (const RehearsedStage& stage : rehearse_stages({.ranks = 24}, f)) ranks.push_back(stage.rank);
    return ranks;
  };
  CHECK(places([](World& world) { Mesh<dp, tp, pp>(world, {.tp = 2, .pp = 3}, mesh_layout::RankOrder("tp-pp-dp")); }) ==
        std::vector<int>{0, 2, 4});
  CHECK(places([](World& world) { Mesh<edp, ep, pp>(world, {.ep = 4, .pp = 3}); }) == std::vector<int>{0, 8, 16});
  CHECK(places([](World& world) { Mesh<dp, tp>(world, {.tp = 2}).comm(dp{}, tp{}); }) == std::vector<int>{0});
  CHECK(places([](World&) {}) == std::vector<int>{0});
  // With several meshes, the stages of each.
  CHECK(places([](World& world) {
          Mesh<dp, pp>(world, {.pp = 1}), Mesh<dp, pp>(world, {.pp = 2}), Mesh<dp, tp, pp>(world, {.tp = 2, .pp = 3});
        }) == std::vector<int>{0, 12, 8, 16});
}
TEST_CASE("405B parameters on 16,384 ranks: seconds, and a hundred megabytes") {
  const models::LlamaConfig config{
      .vocabulary = 128256, .layers = 126, .width = 16384, .heads = 128, .kv_heads = 8, .intermediate = 53248, .sequence = 8192};
  const auto started = std::chrono::steady_clock::now();
  Rehearsal first, last;
  for (const int rank : {0, 16383}) {
    const Rehearsal notes = rehearse({.rank = rank, .ranks = 16384}, [&](World& world) {
      Mesh<dp, cp, tp, pp> mesh(world, {.tp = 8, .pp = 16});
      ModelOptions options;
      options.shard.stage = 1;
      Parallel<models::BasicLlama<bfloat16>> model(mesh, config, options);
      optim::AdamW optimizer(model);
      Batch batch{.sequences = 32, .length = 8192, .micro_batches = 32};
      batch.first_sequence = batch.sequences * std::size_t(mesh.rank(dp{}));
      batch.tokens.assign(32 * 8192, 1);
      batch.targets.assign(32 * 8192, 2);
      model.train_step(batch);
      optimizer.step();
    });
    (rank == 0 ? first : last) = notes;
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
  std::size_t resident = 0;  // the largest of this process, in kB
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) resident = std::stoul(line.substr(6));
  MESSAGE("two ranks in " << taken.count() << " s, at most " << resident / 1024 << " MB; peaks " << double(first.peak) / 1e9
                          << " and " << double(last.peak) / 1e9 << " GB, " << first.product_flops + first.attention_flops
                          << " FLOP on rank 0");
  CHECK(taken.count() < 10);  // 0.1 s without other load
  // 16 bits for each of the parameters of 7 blocks and the embedding, and 12 bytes of state on one data rank of 128.
  const double block = 2.0 * 16384 * 16384 + 2.0 * 16384 * 1024 + 3.0 * 16384 * 53248, table = 128256.0 * 16384;
  const double parameters = (7 * block + table) / 8;  // the first of 16 stages has 7 of 126 blocks
  CHECK(double(first.kept.of(MemoryCategory::parameters)) == doctest::Approx(2 * parameters).epsilon(0.001));
  CHECK(double(first.kept.of(MemoryCategory::optimizer_state)) == doctest::Approx(12 * parameters / 128).epsilon(0.001));
  CHECK(first.of("pp", "send").calls == 64);
  CHECK(last.of("pp", "recv").calls == 64);
  CHECK(first.of("pp", "send").bytes == doctest::Approx(32.0 * 8192 * 16384 * 2).epsilon(1e-4));
}

TEST_CASE("programs that a rehearsal cannot follow are refused in one line with the remedy") {
  const auto refused = [](const std::function<void(World&)>& f) {
    try {
      rehearse({.rank = 1, .ranks = 4}, f);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string split = refused([](World& world) { (void)world.communicator().split(world.rank() % 2, 0, "halves"); });
  CHECK(split.find("split(1, key, \"halves\")") != std::string::npos);
  CHECK(split.find("{rank, size}") != std::string::npos);
  CHECK(split.find('\n') == std::string::npos);
  CHECK(refused([](World& world) {
          const Communicator half = world.communicator().split(1, 0, "halves", {0, 2});
          CHECK(half.size() == 2);
          std::vector<float> x{1, 2};
          half.all_reduce(x);
          CHECK(x[1] == 4);
        }).empty());
  CHECK_THROWS_AS(rehearse({.rank = 4, .ranks = 4}, [](World&) {}), UsageError);
}

TEST_CASE("a rank that does not fit is refused with the memory that it needs, as the real run would be") {
  using runtime::bytes_of;
  CHECK(bytes_of("size", "80GB") == 80e9);
  CHECK(bytes_of("size", "1.5 TiB") == 1.5 * 1024 * 1024 * 1024 * 1024);
  CHECK(bytes_of("size", "8e10") == 8e10);
  CHECK(bytes_of("size", "64KiB") == 65536);
  CHECK(bytes_of("size", "12 B") == 12);
  for (const char* wrong : {"", "GB", "80XB", "80G", "-1GB", "nan", "0", "1e30"})
    CHECK_THROWS_AS((void)bytes_of("size", wrong), UsageError);

  const Case c{.dp = 2, .pp = 2, .zero = 1, .micro_batches = 4};
  const auto program = [&](World& world) { (void)train<Parallel<models::BasicGpt<float>>>(world, gpt, c); };
  const std::vector<RehearsedStage> stages = rehearse_stages({.ranks = 4, .both = true}, program);
  const std::size_t first = stages[0].notes.peak, last = stages[1].notes.peak;
  REQUIRE(first > last);
  CHECK_NOTHROW(runtime::require_memory(stages, double(first)));
  std::string text;
  try {
    runtime::require_memory(stages, double(last));
  } catch (const MemoryError& error) {
    text = error.what();
    CHECK(error.exit_code() == 1);
  }
  CHECK(text.find("stage 0 of the pipeline (rank 0) needs ") != std::string::npos);
  CHECK(text.find(runtime::bytes_text(double(first)) + " and has " + runtime::bytes_text(double(last))) != std::string::npos);
  CHECK(text.find('\n') == std::string::npos);
  ::setenv("WEFT_REHEARSE_MEMORY", std::to_string(last).c_str(), 1);
  CHECK(runtime::run(RunOptions{.rehearse = "4"}, program) == 1);
  CHECK(runtime::run(RunOptions{.rehearse = "4:2"}, program) == 0);
  ::setenv("WEFT_REHEARSE_MEMORY", "much", 1);
  CHECK(runtime::run(RunOptions{.rehearse = "4"}, program) == 2);
  ::unsetenv("WEFT_REHEARSE_MEMORY");
}

TEST_CASE("kernels, copies and memory on a rehearsed device") {
  const Rehearsal notes = rehearse({}, [](World& world) {
    DefaultDevice& device = world.device();
    Tensor<float, DefaultDevice::execution_space> a(device, {64, 32}), b(device, {16, 32}), c(device, {64, 16});
    copy_from_host(a, std::span<const float>(std::vector<float>(a.size(), 1.0f)));
    kernels::matmul(device, kernels::Transpose::no, kernels::Transpose::yes, 64, 16, 32, static_cast<const float*>(a.data()), 32,
                    static_cast<const float*>(b.data()), 32, c.data(), 16);
    CHECK(copy_to_host(c) == std::vector<float>(64 * 16, 0.0f));
    double* const sum = static_cast<double*>(device.allocate(sizeof(double)).get());
    kernels::dot(device, a.size(), static_cast<const float*>(a.data()), static_cast<const float*>(nullptr), sum);
    CHECK(detail::RehearsedMemory::holds(a.data()));
    CHECK(!detail::RehearsedMemory::holds(sum == nullptr ? nullptr : &device));
  });
  CHECK(notes.products == 1);
  CHECK(runtime::table_of(notes).starts_with("rehearsal of rank 0 of 1\n  memory, at most, B "));
  CHECK(notes.axes.empty());
  CHECK(runtime::json_of(notes).starts_with("{\"rank\": 0, \"ranks\": 1, \"early\": false, \"peak_bytes\": "));
  CHECK(notes.product_flops == 2.0 * 64 * 16 * 32);
  CHECK(notes.copies == 2);
  CHECK(notes.launches >= 2);
  CHECK(notes.peak >= (64 * 32 + 16 * 32 + 64 * 16) * sizeof(float));
}

TEST_CASE("run rehearses the requested rank, and refuses a number that is no rank with exit code 2") {
  int rank = -1, ranks = 0;
  const auto program = [&](World& world) {
    rank = world.rank();
    ranks = world.size();
    CHECK(world.communicator().rehearsed());
    return 7;
  };
  CHECK(runtime::run(RunOptions{.rehearse = "8:3"}, program) == 7);
  CHECK(rank == 3);
  CHECK(ranks == 8);
  std::string name = "program", option = "--rehearse=16384:9000:early";
  char* words[] = {name.data(), option.data()};
  CHECK(runtime::run(2, words, program) == 7);
  CHECK(rank == 9000);
  CHECK(runtime::run(RunOptions{.rehearse = "8"}, program) == 7);  // all that differ: without a mesh the first
  CHECK(rank == 0);
  std::string per_node = "--ranks-per-node=0";
  char* with_nodes[] = {name.data(), option.data(), per_node.data()};
  CHECK(runtime::run(3, with_nodes, program) == 2);
  per_node.back() = '8';
  CHECK(runtime::run(3, with_nodes, program) == 7);
  for (const char* wrong : {"", "x", "0", "8:8", "8:-1", "8:3:late", "8:"})
    CHECK(runtime::run(RunOptions{.rehearse = wrong}, program) == 2);
}
