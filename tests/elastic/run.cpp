// SPDX-License-Identifier: Apache-2.0
// covers: weft/elastic/run.hpp weft/elastic/options.hpp weft/elastic/seats.hpp weft/elastic/member.hpp
// covers: weft/elastic/copies.hpp weft/elastic/fetch.hpp weft/elastic/world_record.hpp weft/checkpoint/read.hpp
// Ranks that are killed and join: the run goes on with the ranks that are left, and its losses and its state are bitwise those of
// an undisturbed run. WEFT_TEST_RUNS: number of kills; the long form has 1,000.
#include <doctest/doctest.h>

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

#include <weft/checkpoint/read.hpp>
#include <weft/elastic/copies.hpp>
#include <weft/elastic/fetch.hpp>
#include <weft/elastic/member.hpp>
#include <weft/elastic/options.hpp>
#include <weft/elastic/run.hpp>
#include <weft/elastic/seats.hpp>
#include <weft/elastic/world_record.hpp>
#include <weft/optim/soap.hpp>
#include <weft/runtime/rehearse.hpp>

#include "support/elastic_training.hpp"
#include "support/figure.hpp"
#include "support/temporary_folder.hpp"

using namespace weft_test;

namespace {

constexpr std::size_t micro_batches = 12;  // 1, 2, 3, 4, 6 or 12 data ranks
constexpr std::uint64_t steps = 8;

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

struct Plan {
  int ranks = 4, least = 2;
  std::size_t tensor = 1, pipeline = 1;
  int stage = 0;
  std::uint64_t seed = 0;  ///< 0: no rank is killed
  int kills = 0;
  double replace_after_s = -1;
  int most = 0;
  std::size_t width = 8;
  std::string checkpoint = {};
  std::function<void(World&, elastic::Member&, std::uint64_t step)> after_step;  ///< called once `step` steps are kept
};

using Model = FullyShardedDataParallel<TensorParallel<PipelineParallel<models::BasicGpt<float>>>, Reproducible>;

models::GptConfig config_of(const Plan& plan) {
  return {.vocabulary = 19, .layers = 2, .width = plan.width, .heads = 2, .kv_heads = 1, .sequence = 4, .dropout = 0.1};
}

ModelOptions options_of(const Plan& plan) {
  ModelOptions options;
  options.shard.stage = plan.stage;
  return options;
}

/// The exit code of the run.
template <class Optimizer = optim::AdamW>
int train(const Plan& plan, Trained& trained, Events& events) {
  std::mutex mutex;
  return elastic::run<comm::Threads>(
      RunOptions{.ranks = plan.ranks, .deadline_s = 60, .threads_per_rank = 1},
      elastic::Options{.least = plan.least,
                       .most = plan.most,
                       .shares = micro_batches,
                       .ranks_per_data_rank = int(plan.tensor * plan.pipeline),
                       .replace_after_s = plan.replace_after_s,
                       .checkpoint = plan.checkpoint},
      [&](World& real, elastic::Member& member) {
        const std::uint64_t generation = member.generation();
        auto left = std::make_shared<long>(0);
        // Half of the kills are late in the run's life, so that the ranks that join make steps, too.
        const std::uint64_t key = key_of(plan.seed, generation);
        const bool armed = plan.seed != 0 && events.kills < plan.kills && int(key % std::uint64_t(real.size())) == real.rank();
        World world(Communicator(std::make_shared<DoomedGroup>(real.communicator().group(), left, key / 64 % 2 == 0),
                                 real.communicator().order()),
                    real.device());
        Mesh<dp, tp, pp> mesh(world, {.tp = plan.tensor, .pp = plan.pipeline});
        const std::size_t data = std::size_t(mesh.size(dp{}));
        Model model(mesh, config_of(plan), options_of(plan));
        Optimizer optimizer(model, {.learning_rate = 0.01, .clip = 0.5});
        if (real.rank() == 0) {
          events.fewest = std::min<int>(events.fewest, real.size());
          events.most = std::max<int>(events.most, real.size());
        }
        try {
          std::uint64_t step = member.restore(model, optimizer);
          if (armed) *left = 1 + long(key / 128 % (40 * steps));
          while (step < steps) {
            const double loss = model.train_step(share_of_step(micro_batches, step, std::size_t(mesh.rank(dp{})), data));
            optimizer.step();
            if (real.rank() == 0) {
              const std::lock_guard lock(mutex);
              const auto [at, added] = trained.losses.emplace(step, loss);
              events.repeated += !added;
              if (at->second != loss) throw UsageError("a step that was done again has another loss");
            }
            member.keep(model, optimizer, ++step);
            if (plan.after_step) plan.after_step(real, member, step);
          }
        } catch (const testing::InjectedError&) {
          ++events.kills;
          throw;
        } catch (const elastic::detail::WorldChange&) {
          events.others += real.rank() == 0;
          throw;
        }
        take_whole_state(trained, mutex, model, optimizer);
      });
}

/// The text that a call writes to standard error.
template <class F>
std::string errors_of(const F& call) {
  const TemporaryFolder folder;
  const std::string path = (folder.path / "errors").string();
  std::fflush(stderr);
  const int before = ::dup(STDERR_FILENO);
  REQUIRE(std::freopen(path.c_str(), "w", stderr) != nullptr);
  call();
  std::fflush(stderr);
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

template <class Optimizer = optim::AdamW>
Trained undisturbed(Plan plan) {
  plan.seed = 0;
  plan.after_step = {};
  Trained trained;
  Events events;
  CHECK(train<Optimizer>(plan, trained, events) == 0);
  CHECK(trained.losses.size() == steps);
  CHECK(trained.optimizer_steps == steps);
  CHECK(events.kills == 0);
  return trained;
}

}  // namespace

TEST_CASE("ranks are killed and join, and the run has the bits of an undisturbed one") {
  const long wanted = weft_test::rounds(weft_test::long_form() ? 1000 : 30);
  unsigned long long kills = 0, joins = 0, apart = 0, runs = 0;
  std::map<int, Trained> expected;
  for (std::uint64_t seed = 1; long(kills + joins) < wanted; ++seed, ++runs) {
    Plan plan{.ranks = 4, .least = 2, .stage = int(seed % 4), .seed = seed, .kills = 3, .replace_after_s = 0.002};
    if (!expected.contains(plan.stage)) expected[plan.stage] = undisturbed(plan);
    Trained trained;
    Events events;
    CHECK(train(plan, trained, events) == 0);
    const bool same = trained == expected[plan.stage];
    CHECK(same);
    apart += !same;
    kills += (unsigned long long)events.kills;
    joins += (unsigned long long)events.others;
  }
  if (wanted >= 30) CHECK(std::min(kills, joins) > 5);
  weft_test::figure(23, kills + joins, "kills and joins", apart, "runs with other bits");
  std::printf("figure 23: %llu kills and %llu joins in %llu runs\n", kills, joins, runs);
}

TEST_CASE("the state that one rank keeps for a whole matrix goes to the ranks that are left") {
  int kills = 0;
  for (const int stage : {0, 2, 3}) {
    Plan plan{.ranks = 4, .least = 2, .stage = stage, .replace_after_s = 0.002};
    const Trained expected = undisturbed<optim::Soap>(plan);
    CHECK(std::any_of(expected.state.begin(), expected.state.end(),
                      [](const auto& item) { return item.first.ends_with(".basis_rows"); }));
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      plan.seed = seed;
      plan.kills = 3;
      Trained trained;
      Events events;
      CHECK(train<optim::Soap>(plan, trained, events) == 0);
      CHECK(trained == expected);
      kills += events.kills;
    }
  }
  CHECK(kills > 10);
}

TEST_CASE("data ranks leave as a whole, and return when their members are there again") {
  for (const bool pipeline : {false, true}) {
    Plan plan{.ranks = 4, .least = 2, .tensor = pipeline ? 1u : 2u, .pipeline = pipeline ? 2u : 1u, .stage = pipeline ? 2 : 3};
    plan.replace_after_s = 0.01;
    const Trained expected = undisturbed(plan);
    for (const int victim : {0, 1, 2, 3}) {
      plan.after_step = [&](World& world, elastic::Member& member, std::uint64_t step) {
        if (member.generation() == 0 && step == 3 && world.rank() == victim) throw Error("lost");
      };
      Trained trained;
      Events events;
      const std::string errors = errors_of([&] { CHECK(train(plan, trained, events) == 0); });
      CHECK(trained == expected);
      CHECK(events.most == 4);
      CHECK(
          contains(errors, weft::detail::joined({"weft: elastic: rank ", victim, " of 4 was lost after step 3 (weft: lost): "})));
    }
  }
}

TEST_CASE("ranks are lost one by one until too few are left") {
  Plan plan{.ranks = 4, .least = 2, .stage = 3};
  const Trained expected = undisturbed(plan);
  plan.after_step = [](World& world, elastic::Member& member, std::uint64_t step) {
    if (step == 2 + 2 * member.generation() && world.rank() == 1 && member.generation() < 2) throw Error("lost");
  };
  Trained trained;
  Events events;
  const std::string errors = errors_of([&] { CHECK(train(plan, trained, events) == 0); });
  CHECK(trained == expected);
  CHECK(events.fewest == 2);
  CHECK(errors ==
        "weft: elastic: rank 1 of 4 was lost after step 2 (weft: lost): 3 ranks go on\n"
        "weft: elastic: rank 1 of 3 was lost after step 4 (weft: lost): 2 ranks go on\n");
  plan.after_step = [](World& world, elastic::Member&, std::uint64_t) {
    if (world.rank() == 1) throw Error("lost again");
  };
  const std::string end = errors_of([&] { CHECK(train(plan, trained, events) == 1); });
  CHECK(contains(end, "elastic 2:4: 1 of 4 ranks are left, too few to go on; the last one was lost by: weft: lost again"));
}

TEST_CASE("ranks that are lost again and again without a step end the run with their error") {
  const std::string errors = errors_of([] {
    const int code = elastic::run<comm::Threads>(RunOptions{.ranks = 2, .deadline_s = 60, .threads_per_rank = 1},
                                                 elastic::Options{.replace_after_s = 0},
                                                 [](World&, elastic::Member&) { throw Error("its cause"); });
    CHECK(code == 1);
  });
  CHECK(contains(errors, "elastic: ranks are lost faster than a step ends; the last one was lost by: weft: its cause"));
}

TEST_CASE("a new rank takes the seat of a lost one after replace_after_s") {
  Plan plan{.ranks = 2, .least = 1, .replace_after_s = 1};
  const Trained expected = undisturbed(plan);
  plan.after_step = [](World& world, elastic::Member& member, std::uint64_t step) {
    if (step == 2 && member.generation() == 0 && world.rank() == 1) throw Error("lost");
    if (step == 4 && member.generation() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  };
  Trained trained;
  Events events;
  CHECK(errors_of([&] { CHECK(train(plan, trained, events) == 0); }) ==
        "weft: elastic: rank 1 of 2 was lost after step 2 (weft: lost): 1 rank goes on\n"
        "weft: elastic: ranks join after step 5: 2 ranks go on\n");
  CHECK(trained == expected);
}

TEST_CASE("spare ranks take the places of lost ones at once") {
  Plan plan{.ranks = 5, .least = 4, .stage = 2};
  const Trained expected = undisturbed(plan);
  plan.after_step = [](World& world, elastic::Member& member, std::uint64_t step) {
    if (step == 2 && member.generation() == 0 && world.rank() == 3) throw Error("lost");
  };
  Trained trained;
  Events events;
  CHECK(train(plan, trained, events) == 0);
  CHECK(trained == expected);
  CHECK(events.fewest == 4);
  CHECK(events.most == 4);
}

TEST_CASE("a rank that is lost after others have returned") {
  Plan plan{.ranks = 3, .least = 2, .stage = 1};
  const Trained expected = undisturbed(plan);
  plan.after_step = [](World& world, elastic::Member& member, std::uint64_t step) {
    if (step == steps && member.generation() == 0 && world.rank() == 0) throw Error("lost at the end");
  };
  Trained trained;
  Events events;
  CHECK(train(plan, trained, events) == 0);
  CHECK(trained == expected);
}

TEST_CASE("both holders of a part are lost: the run ends and names the remedy") {
  Plan plan{.ranks = 4, .least = 2, .stage = 3};
  std::atomic<int> lost{0};
  plan.after_step = [&](World& world, elastic::Member& member, std::uint64_t step) {
    if (step != 2 || member.generation() != 0 || world.rank() % 2 == 0) return;
    for (++lost; lost < 2;) std::this_thread::yield();  // both, before one of them can end the other
    throw Error("a node is lost");
  };
  Trained trained;
  Events events;
  const std::string errors = errors_of([&] { CHECK(train(plan, trained, events) == 1); });
  CHECK(contains(errors, "the ranks that were lost held all copies of a part of the state: restart from a checkpoint"));
  CHECK(events.repeated == 0);
}

TEST_CASE("all ranks that have finished a step are lost: spares do not begin the run again") {
  Plan plan{.ranks = 3, .least = 1, .most = 2, .checkpoint = "runs/a"};
  std::atomic<int> lost{0};
  plan.after_step = [&](World&, elastic::Member& member, std::uint64_t step) {
    if (step != 3 || member.generation() != 0) return;
    for (++lost; lost < 2;) std::this_thread::yield();
    throw Error("a node is lost");
  };
  Trained trained;
  Events events;
  const std::string errors = errors_of([&] { CHECK(train(plan, trained, events) == 1); });
  CHECK(contains(errors, "held all copies of a part of the state: restart from the newest checkpoint in runs/a"));
  CHECK(trained.losses.size() == 3);
  CHECK(events.repeated == 0);
}

TEST_CASE("changes of the ranks are in the flight recorder's folder, with the records of the world before") {
  const TemporaryFolder folder;
  REQUIRE(::setenv("WEFT_FLIGHT_DIR", folder.path.c_str(), 1) == 0);
  Plan plan{.ranks = 3, .least = 2};
  plan.after_step = [](World& world, elastic::Member& member, std::uint64_t step) {
    if (step == 2 && member.generation() == 0 && world.rank() == 1) throw Error("its \"cause\"");
  };
  Trained trained;
  Events events;
  const std::string errors = errors_of([&] { CHECK(train(plan, trained, events) == 0); });
  ::unsetenv("WEFT_FLIGHT_DIR");
  std::ostringstream text;
  text << std::ifstream(folder.path / "weft_worlds.jsonl").rdbuf();
  CHECK(
      text.str().starts_with("{\"world\": 2, \"ranks\": 2, \"step\": 2, \"lost\": [1], \"text\": \"rank 1 of 3 was lost after "
                             "step 2 (weft: its \\\"cause\\\"): 2 ranks go on\", \"time_ns\": "));
  for (const int rank : {0, 1, 2})
    CHECK(std::filesystem::exists(folder.path / "world_1" / weft::detail::joined({"weft_flight_", rank, ".json"})));
  CHECK(!std::filesystem::exists(folder.path / "weft_flight_0.json"));
}

TEST_CASE("a rehearsal notes the bytes of the copies that a run holds") {
  for (Plan plan : {Plan{.ranks = 1, .least = 1}, Plan{.stage = 0}, Plan{.stage = 1}, Plan{.stage = 2}, Plan{.stage = 3},
                    Plan{.tensor = 2, .stage = 3}, Plan{.pipeline = 2, .stage = 2}}) {
    CAPTURE(plan.stage);
    CAPTURE(plan.tensor);
    CAPTURE(plan.pipeline);
    plan.width = 64;
    std::atomic<std::size_t> held{0};
    plan.after_step = [&](World&, elastic::Member& member, std::uint64_t step) {
      if (step == steps) held += member.copy_bytes();
    };
    Trained trained;
    Events events;
    CHECK(train(plan, trained, events) == 0);
    std::size_t noted = 0, tensors = 0;
    for (const RehearsedStage& stage : rehearse_stages({.ranks = plan.ranks}, [&](World& world) {
           Mesh<dp, tp, pp> mesh(world, {.tp = plan.tensor, .pp = plan.pipeline});
           Model model(mesh, config_of(plan), options_of(plan));
           optim::AdamW optimizer(model, {.learning_rate = 0.01, .clip = 0.5});
           elastic::Member member;
           CHECK(member.restore(model, optimizer, 5) == 5);
           const std::size_t data = std::size_t(mesh.size(dp{}));
           model.train_step(share_of_step(micro_batches, 0, std::size_t(mesh.rank(dp{})), data));
           optimizer.step();
           member.keep(model, optimizer, 6);
           tensors += checkpoint::detail::whole_state(model, optimizer).items.size();
         }))
      noted += stage.notes.elastic_bytes * std::size_t(plan.ranks) / plan.pipeline;
    CHECK(noted > 0);
    const std::size_t tied = plan.pipeline > 1 ? 4 * 12 * 19 * plan.width : 0;  // the embedding and its moments count twice
    CHECK(noted <= held + tied);
    CHECK(held <= noted + 4 * 64 * tensors * std::size_t(plan.ranks));  // pieces begin at multiples of 64 bytes
    CHECK(double(held) < 1.03 * double(noted));
  }
}

TEST_CASE("errors that would recur end the run") {
  Plan plan{.ranks = 4, .least = 1};
  int calls = 0;
  plan.after_step = [&](World& world, elastic::Member&, std::uint64_t step) {
    if (step != 2 || world.rank() != 2) return;
    ++calls;
    throw UsageError("an option that no rank can serve");
  };
  Trained trained;
  Events events;
  CHECK(train(plan, trained, events) == 2);
  CHECK(calls == 1);
}

TEST_CASE("ranges that the batch or the ranks cannot serve") {
  using elastic::Options;
  const auto refused = [](const Options& options, int ranks) -> std::string {
    try {
      elastic::require_served(options, ranks);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refused({.least = 1, .most = 4, .shares = 12}, 4) == "");
  CHECK(refused({.least = 3, .most = 2}, 4) ==
        "weft: elastic 3:2: the least number of ranks is above the most: write the smaller one first");
  CHECK(refused({.least = 1, .most = 8}, 4) ==
        "weft: elastic 1:8: the run has only 4 ranks: start more, or give a smaller range");
  CHECK(refused({.least = 0, .most = 4}, 4) == "weft: elastic 0:4: a range begins with at least 1 rank");
  CHECK(
      refused({.least = 5, .most = 5, .shares = 12}, 5) ==
      "weft: elastic 5:5: no number of ranks in the range serves the batch: it is a multiple of 1, and its data ranks divide the "
      "step's 12 shares (micro-batches if reproducible, else sequences)");
  CHECK(refused({.least = 2, .ranks_per_data_rank = 0}, 4) ==
        "weft: elastic 2:4: a data rank has 0 ranks, and at least 1 is meant");

  CHECK(elastic::served({.least = 2, .shares = 12}, 5) == 4);
  CHECK(elastic::served({.least = 2, .shares = 12}, 1) == 0);
  CHECK(elastic::served({.least = 2, .most = 4, .ranks_per_data_rank = 2}, 7) == 4);
  CHECK(elastic::served({.least = 2, .ranks_per_data_rank = 2}, 7) == 6);
  CHECK(elastic::served({.least = 1, .shares = 12, .layouts = {4, 2}}, 3) == 2);
  CHECK(elastic::served({.least = 1, .shares = 12, .layouts = {4, 2}}, 1) == 0);
}

TEST_CASE("ranks that go on are chosen by the parts that they hold") {
  using elastic::detail::chosen;
  // Seats 0 and 2 hold the parts of each other, so two of the three seats are not any two.
  CHECK(chosen({{0, {{0, 0, 4}, {0, 2, 4}}}, {2, {{0, 2, 4}, {0, 0, 4}}}, {3, {{0, 3, 4}, {0, 1, 4}}}}, 2) ==
        std::vector<int>{0, 3});
  CHECK(chosen({{1, {}}, {2, {{0, 0, 1}}}}, 2) == std::vector<int>{1, 2});
  // Seat 0 holds parts of an old generation only; seats 1 and 2 hold all of the newest one.
  CHECK(chosen({{0, {{0, 0, 4}, {0, 2, 4}}}, {1, {{1, 0, 4}, {1, 2, 4}}}, {2, {{1, 1, 4}, {1, 3, 4}}}}, 2) ==
        std::vector<int>{1, 2});
  CHECK(chosen({{0, {{0, 0, 2}, {0, 1, 2}}}, {1, {{1, 0, 2}}}, {2, {{1, 1, 2}}}}, 2) == std::vector<int>{1, 2});
  // Generation 1 ended within its first copies, so that no rank has its part 2: only generation 0 restores the state.
  CHECK(chosen({{0, {{0, 0, 4}, {0, 2, 4}, {1, 0, 3}}}, {1, {{0, 0, 4}, {0, 2, 4}, {1, 1, 3}}}, {2, {{0, 1, 4}, {0, 3, 4}}}},
               2) == std::vector<int>{0, 2});
}
