// SPDX-License-Identifier: Apache-2.0
// Schedules that are no types of weft's: a user's table proven by the compiler, one from a file, one chosen by name.

#include <cstdio>
#include <fstream>
#include <string>

#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/pipeline/schedule/custom.hpp>

#include "support/parity.hpp"

using namespace weft_test;

namespace {

using Model = models::BasicGpt<double>;
template <class S>
using Parallel = DataParallel<TensorParallel<PipelineParallel<Model, S>>>;

// Two ranks, four micro-batches: forwards in pairs.
constexpr schedule::Table pairs() {
  using schedule::Op;
  schedule::Table table{2, 1, 4, {}, {{0}, {1}}};
  for (int rank = 0; rank < 2; ++rank) {
    auto& order = table.orders.emplace_back();
    for (int first = 0; first < 4; first += 2) {
      for (int micro = first; micro < first + 2; ++micro) order.push_back({Op::F, 0, micro});
      for (int micro = first; micro < first + 2; ++micro) order.push_back({Op::B, 0, micro});
    }
  }
  return table;
}

// What an optimizer asks of the outermost wrapper, each of which may be that.
static_assert(!PipelineParallel<Model, schedule::Custom<pairs>>::shards_parameters && !TensorParallel<Model>::shards_parameters && !SequenceParallel<Model>::shards_parameters);
static_assert(!ContextParallel<Model, Ring>::shards_parameters && !DataParallel<Model>::shards_parameters && FullyShardedDataParallel<Model, zero::Stage3>::shards_parameters);

std::string refusal(auto&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a table of the user's, proven by the compiler") {
  const auto config = gpt_config();
  check_layout<Parallel<schedule::Custom<pairs>>>(config, reference_of<Model>(config), 2, {.pp = 2}, 4, 1e-12);
}

TEST_CASE("chosen by name, by table and by file") {
  const auto config = gpt_config();
  const Reference reference = reference_of<Model>(config);
  const auto check = [&](auto schedule, std::size_t pp, std::size_t micro_batches) {
    check_layout<Parallel<schedule::Dynamic>>(config, reference, pp, {.pp = pp}, micro_batches, 1e-12, ModelOptions{.pipeline = {.schedule = schedule}});
  };
  for (const char* name : {"gpipe", "1f1b", "interleaved", "interleaved-zb", "zb-h1", "zbv", "dualpipev"}) {
    INFO(name);
    check(schedule::choose(name), 2, 4);
  }
  check(schedule::choose("interleaved", 2), 2, 8);
  check(schedule::custom(pairs(), "in pairs"), 2, 4);
  const std::string file = "weft_test_own_schedule.csv";
  std::ofstream(file) << schedule::to_csv(schedule::named_table("zbv", 2, 4));
  check(schedule::choose_file(file), 2, 4);
  std::remove(file.c_str());
}

TEST_CASE("what cannot run is refused before any communication") {
  const auto run = [](std::shared_ptr<const schedule::AnySchedule> schedule, int pp, std::size_t micro_batches) {
    std::string text;
    runtime::run<comm::Threads>(runtime::RunOptions{.ranks = pp}, [&](World& world) {
      const std::string mine = refusal([&] {
        Mesh<dp, tp, weft::pp> mesh(world, {.pp = std::size_t(pp)});
        Parallel<schedule::Dynamic> model(mesh, gpt_config(), ModelOptions{.pipeline = {.schedule = schedule}});
        model.train_step(make_batch(0, 0, 1, micro_batches));
      });
      if (world.rank() == 0) text = mine;
    });
    return text;
  };
  CHECK(run(nullptr, 2, 4).find("ModelOptions::pipeline.schedule does not say") != std::string::npos);
  CHECK(run(schedule::custom(pairs(), "in pairs"), 4, 4).find("schedule in pairs has orders for 2 ranks, pp is 4") != std::string::npos);
  CHECK(run(schedule::custom(pairs(), "in pairs"), 2, 8).find("schedule in pairs is for 4 micro-batches, a step of this rank has 8") != std::string::npos);
  CHECK(run(schedule::choose("dualpipev"), 2, 2).find("micro-batches") != std::string::npos);
  CHECK(refusal([] { schedule::choose("2f2b"); }).find("unknown schedule '2f2b'") != std::string::npos);
  CHECK(refusal([] { schedule::choose("zbv", 3); }).find("chunks(3) != 2") != std::string::npos);
  CHECK(refusal([] { schedule::choose_file("no_such.csv"); }).find("cannot read 'no_such.csv'") != std::string::npos);
  auto crossed = pairs();
  std::swap(crossed.orders[1][0], crossed.orders[1][1]);
  CHECK(refusal([&] { schedule::custom(crossed, "crossed"); }).find("schedule crossed (2 ranks, 1 stages a rank, 4 micro-batches) ") != std::string::npos);
}
