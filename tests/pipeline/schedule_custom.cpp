// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/schedule/custom.hpp weft/pipeline/schedule/any_schedule.hpp weft/pipeline/schedule/dynamic.hpp
// Schedules that are no types of weft's: a user's table proven by the compiler, one from a file, one chosen by name.

#include <cstdio>
#include <fstream>
#include <string>

#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/schedule/custom.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>

#include "support/parity.hpp"

using namespace weft_test;

namespace {

using Model = models::BasicGpt<double>;
template <class... S>
using Parallel = DataParallel<TensorParallel<PipelineParallel<Model, S...>>>;

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

// An optimizer queries these members of the outermost wrapper, which can be any wrapper.
static_assert(!PipelineParallel<Model, schedule::Custom<pairs>>::shards_parameters && !TensorParallel<Model>::shards_parameters &&
              !SequenceParallel<Model>::shards_parameters);
static_assert(!ContextParallel<Model, Ring>::shards_parameters && !DataParallel<Model>::shards_parameters &&
              FullyShardedDataParallel<Model, zero::Stage3>::shards_parameters);
// A stage chosen at run time may be 0.
static_assert(!FullyShardedDataParallel<Model>::shards_parameters &&
              FullyShardedDataParallel<Model, Reproducible, zero::Stage1>::shards_parameters);

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
  const Reference reference = reference_of<Model>(config);
  check_layout<Parallel<schedule::Custom<pairs>>>(config, reference, 2, {.pp = 2}, 4, 1e-12);
  check_layout<Parallel<>>(config, reference, 2, {.pp = 2}, 4, 1e-12,
                           ModelOptions{.pipeline = {.schedule = schedule::custom<pairs>()}});
}

TEST_CASE("chosen by name, by table and by file") {
  const auto config = gpt_config();
  const Reference reference = reference_of<Model>(config);
  const auto check = [&](auto schedule, std::size_t pp, std::size_t micro_batches) {
    check_layout<Parallel<>>(config, reference, pp, {.pp = pp}, micro_batches, 1e-12,
                             ModelOptions{.pipeline = {.schedule = schedule}});
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

TEST_CASE("tables that cannot run are refused before any communication") {
  const auto run = [](std::shared_ptr<const schedule::AnySchedule> schedule, int pp, std::size_t micro_batches) {
    std::string text;
    runtime::run<comm::Threads>(runtime::RunOptions{.ranks = pp}, [&](World& world) {
      const std::string mine = refusal([&] {
        Mesh<dp, tp, weft::pp> mesh(world, {.pp = std::size_t(pp)});
        Parallel<> model(mesh, gpt_config(), ModelOptions{.pipeline = {.schedule = schedule}});
        model.train_step(make_batch(0, 0, 1, micro_batches));
      });
      if (world.rank() == 0) text = mine;
    });
    return text;
  };
  CHECK(run(nullptr, 2, 4) == "");  // one forward, one backward
  CHECK(run(schedule::custom(pairs(), "in pairs"), 4, 4).find("schedule in pairs has orders for 2 ranks, pp is 4") !=
        std::string::npos);
  CHECK(run(schedule::custom(pairs(), "in pairs"), 2, 8)
            .find("schedule in pairs is for 4 micro-batches, a step of this rank has 8") != std::string::npos);
  CHECK(run(schedule::choose("dualpipev"), 2, 2).find("micro-batches") != std::string::npos);
  CHECK(refusal([] { schedule::choose("2f2b"); }).find("unknown schedule '2f2b'") != std::string::npos);
  CHECK(refusal([] { schedule::choose("zbv", 3); }).find("chunks(3) != 2") != std::string::npos);
  CHECK(refusal([] { schedule::choose_file("no_such.csv"); }).find("cannot read 'no_such.csv'") != std::string::npos);
  CHECK(refusal([] { schedule::choose_file("/tmp"); }) ==
        "weft: schedule: cannot read '/tmp': it is a folder, a CSV file is needed");
  CHECK(refusal([] { schedule::choose_file("/dev/zero"); }).find("a regular file is needed") != std::string::npos);
  auto crossed = pairs();
  std::swap(crossed.orders[1][0], crossed.orders[1][1]);
  CHECK(refusal([&] {
          schedule::custom(crossed, "crossed");
        }).find("schedule crossed (2 ranks, 1 stages a rank, 4 micro-batches) ") != std::string::npos);
}

namespace {

// The orders of a schedule for two ranks and four micro-batches.
std::vector<std::vector<std::string>> orders_of(const schedule::AnySchedule& schedule) {
  const schedule::Table table = schedule.table(2, 4);
  return {schedule::to_strings(table, 0), schedule::to_strings(table, 1)};
}

// The name of the schedule that a model runs.
template <class M>
std::vector<std::vector<std::string>> orders_in(const ModelOptions& options) {
  std::vector<std::vector<std::string>> orders;
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp, tp, pp> mesh(world, {.pp = 2});
          M model(mesh, gpt_config(), options);
          if (world.rank() == 0) orders = orders_of(model.stages().schedule());
        }) == 0);
  return orders;
}

}  // namespace

TEST_CASE("a schedule as a value, by name and in the type is the same one") {
  const auto check = [&]<class S>(std::type_identity<S>, const std::shared_ptr<const schedule::AnySchedule>& value,
                                  const char* name, int chunks = 0) {
    INFO(name);
    const auto orders = orders_of(*schedule::choose(name, chunks));
    CHECK(orders_in<Parallel<S>>({}) == orders);
    CHECK(orders_in<Parallel<>>({.pipeline = {.schedule = value}}) == orders);
  };
  check(std::type_identity<schedule::GPipe>{}, schedule::gpipe, "gpipe");
  check(std::type_identity<schedule::OneForwardOneBackward>{}, schedule::one_forward_one_backward, "1f1b");
  check(std::type_identity<schedule::Interleaved<2>>{}, schedule::interleaved<2>, "interleaved", 2);
  check(std::type_identity<schedule::InterleavedZeroBubble<2>>{}, schedule::interleaved_zero_bubble<2>, "interleaved-zb", 2);
  check(std::type_identity<schedule::ZeroBubbleH1>{}, schedule::zero_bubble_h1, "zb-h1");
  check(std::type_identity<schedule::Zbv>{}, schedule::zbv, "zbv");
  check(std::type_identity<schedule::DualPipeV>{}, schedule::dualpipev, "dualpipev");
  CHECK(orders_in<Parallel<>>({}) == orders_of(*schedule::choose("1f1b")));
  CHECK(orders_in<Parallel<schedule::Zbv>>({.pipeline = {.schedule = schedule::gpipe}}) ==
        orders_of(*schedule::choose("zbv")));  // the type has priority
}
