// SPDX-License-Identifier: Apache-2.0
// covers: weft/data/reservoir.hpp weft/data/reservoir_log.hpp weft/data/reservoir_slots.hpp
// Reservoirs of streamed samples: each rule against a plain list, the distribution of kept and drawn samples, watermarks with
// threads, and runs that are repeated from their log, bit by bit, when samples arrive in another order.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <weft/data/reservoir.hpp>
#include <weft/data/reservoir_log.hpp>
#include <weft/data/reservoir_slots.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/runtime/run.hpp>

#include "support/error_of_ranks.hpp"
#include "support/message.hpp"
#include "support/temporary_folder.hpp"

using namespace weft;
using namespace weft_test;
using data::ReservoirRule;

namespace {

inline constexpr data::Field<"x", float> x;
inline constexpr data::Field<"id", std::int64_t> id;
using Reservoir = data::Reservoir<x, id>;

Reservoir::Shapes shapes() {
  Reservoir::Shapes all;
  all[x] = {2, 3};
  all[id] = {};
  return all;
}
auto numbered(std::int64_t number) {
  return [number](auto& sample) {
    for (std::size_t i = 0; i < 6; ++i) sample[x][i] = float(number) + float(i) / 8;
    sample[id][0] = number;
  };
}
/// The ids of a batch, whose other field must be of the same samples.
std::vector<std::int64_t> ids_of(const Reservoir::Batch& batch) {
  std::vector<std::int64_t> all;
  for (std::size_t i = 0; i < batch.samples; ++i) {
    all.push_back(batch[id].sample(i)[0]);
    for (std::size_t k = 0; k < 6; ++k) CHECK(batch[x].sample(i)[k] == float(all.back()) + float(k) / 8);
  }
  return all;
}
std::set<std::int64_t> all_there(Reservoir& reservoir, std::uint64_t step = 1u << 20) {
  Reservoir::Batch batch;
  const std::size_t count = reservoir.size();
  REQUIRE(reservoir.draw(batch, step, count));
  const auto ids = ids_of(batch);
  const std::set<std::int64_t> there(ids.begin(), ids.end());
  CHECK(there.size() == count);
  return there;
}

}  // namespace

TEST_CASE("uniform: every sample of the stream is kept equally often, and drawn equally often") {
  constexpr int streamed = 40, capacity = 10, runs = 4000;
  std::vector<int> kept(streamed), drawn(streamed);
  for (int run = 0; run < runs; ++run) {
    data::detail::ReservoirSlots slots({.rule = ReservoirRule::uniform, .capacity = capacity, .seed = std::uint64_t(run)});
    std::vector<int> there(capacity, -1);
    for (int sample = 0; sample < streamed; ++sample)
      if (const auto place = slots.arrive()) there[*place] = sample;
    for (const int sample : there) ++kept[std::size_t(sample)];
    std::vector<std::size_t> places;
    slots.draw(3, 2, places);
    CHECK(places[0] != places[1]);
    for (const std::size_t place : places) ++drawn[std::size_t(there[place])];
  }
  // 4000 / 4 and 4000 / 20 expected; five standard deviations of a binomial number.
  for (const int count : kept) CHECK(std::abs(count - 1000) < 5 * std::sqrt(4000 * 0.25 * 0.75));
  for (const int count : drawn) CHECK(std::abs(count - 200) < 5 * std::sqrt(4000 * 0.05 * 0.95));
}

TEST_CASE("latest: the newest samples are there") {
  Reservoir reservoir(shapes(), {.rule = ReservoirRule::latest, .capacity = 5});
  for (int i = 0; i < 13; ++i) reservoir.add(std::uint64_t(i), numbered(i));
  CHECK(all_there(reservoir) == std::set<std::int64_t>{8, 9, 10, 11, 12});
}

TEST_CASE("draw_once: every sample is drawn once, and arrivals wait while it is full") {
  Reservoir reservoir(shapes(), {.rule = ReservoirRule::draw_once, .capacity = 6});
  std::multiset<std::int64_t> drawn;
  std::int64_t next = 0;
  Reservoir::Batch batch;
  for (std::uint64_t step = 0; step < 20; ++step) {
    while (reservoir.try_add(std::uint64_t(next), numbered(next))) ++next;
    CHECK(reservoir.size() == 6);
    REQUIRE(reservoir.draw(batch, step, 4));
    CHECK(reservoir.size() == 2);
    for (const std::int64_t one : ids_of(batch)) drawn.insert(one);
  }
  reservoir.close();
  REQUIRE(reservoir.draw(batch, 20, 2));
  for (const std::int64_t one : ids_of(batch)) drawn.insert(one);
  CHECK_FALSE(reservoir.draw(batch, 21, 1));
  CHECK(drawn.size() == 82);
  CHECK(std::set<std::int64_t>(drawn.begin(), drawn.end()).size() == 82);
  CHECK(*drawn.rbegin() == next - 1);
}

TEST_CASE("drawn_first: no sample is lost before it was drawn") {
  Reservoir reservoir(shapes(), {.rule = ReservoirRule::drawn_first, .capacity = 8});
  std::set<std::int64_t> drawn;
  std::int64_t next = 0;
  Reservoir::Batch batch;
  for (std::uint64_t step = 0; step < 60; ++step) {
    for (int arrivals = 0; arrivals < 3 && reservoir.try_add(std::uint64_t(next), numbered(next)); ++arrivals) ++next;
    if (!reservoir.can_draw(3)) continue;
    REQUIRE(reservoir.draw(batch, step, 3));
    for (const std::int64_t one : ids_of(batch)) drawn.insert(one);
  }
  const auto there = all_there(reservoir);
  CHECK(next > 60);
  for (std::int64_t one = 0; one < next; ++one) CHECK((drawn.contains(one) || there.contains(one)));
  CHECK(there.size() == 8);
}

TEST_CASE("a full reservoir whose samples have not been drawn takes no more") {
  for (const ReservoirRule rule : {ReservoirRule::drawn_first, ReservoirRule::draw_once}) {
    Reservoir reservoir(shapes(), {.rule = rule, .capacity = 3, .deadline_s = 0.01});
    for (int i = 0; i < 3; ++i) CHECK(reservoir.try_add(std::uint64_t(i), numbered(i)));
    CHECK_FALSE(reservoir.try_add(3, numbered(3)));
    CHECK(message<Error>([&] { reservoir.add(3, numbered(3)); }) ==
          "weft: reservoir: an arriving sample has waited for 0.010000 s; 3 of 3 samples are there, 3 have arrived, the low "
          "watermark is 0");
    Reservoir::Batch batch;
    REQUIRE(reservoir.draw(batch, 0, 1));
    CHECK(reservoir.try_add(3, numbered(3)));
    CHECK_FALSE(reservoir.try_add(4, numbered(4)));
  }
}

TEST_CASE("a draw waits for the low watermark, until the reservoir is closed") {
  Reservoir reservoir(shapes(), {.capacity = 10, .low = 4});
  Reservoir::Batch batch;
  for (int i = 0; i < 3; ++i) reservoir.add(std::uint64_t(i), numbered(i));
  CHECK_FALSE(reservoir.can_draw(1));
  std::atomic<bool> drawn = false;
  std::thread trainer([&] {
    Reservoir::Batch mine;
    CHECK(reservoir.draw(mine, 0, 1));
    drawn = true;
  });
  CHECK_FALSE(drawn);
  reservoir.add(3, numbered(3));
  trainer.join();
  CHECK(drawn);
  CHECK(reservoir.can_draw(4));
  CHECK_FALSE(reservoir.can_draw(5));
  Reservoir few(shapes(), {.capacity = 10, .low = 4});
  few.add(0, numbered(0));
  few.close();
  CHECK(few.draw(batch, 0, 1));
  CHECK(batch.step == 0);
  CHECK_FALSE(few.draw(batch, 1, 2));
}

namespace {

constexpr int producers = 3, each = 60;
constexpr std::size_t live_steps = 100000;

/// The batches of a run in which threads stream samples while another draws, at most `steps` and while samples arrive;
/// `order(producer, i)` is the producer's i-th sample.
template <class Order>
std::vector<std::vector<float>> run(Reservoir& reservoir, std::size_t steps, const Order& order) {
  std::vector<std::vector<float>> batches;
  std::thread stream([&] {
    std::vector<std::thread> threads;
    for (int producer = 0; producer < producers; ++producer)
      threads.emplace_back([&, producer] {
        for (int i = 0; i < each; ++i) {
          const int number = producer * each + order(producer, i);
          reservoir.add(std::uint64_t(number), numbered(number));
          if (i % 7 == producer) std::this_thread::yield();
        }
      });
    for (std::thread& one : threads) one.join();
    reservoir.close();
  });
  Reservoir::Batch batch;
  while (batches.size() < steps && reservoir.draw(batch, batches.size(), 4)) {
    CHECK(batch.step == batches.size());
    batches.emplace_back(batch[x].values().begin(), batch[x].values().end());
    if (steps == live_steps && reservoir.arrived() == producers * each) break;
  }
  stream.join();
  return batches;
}

}  // namespace

TEST_CASE("a run with threads is repeated bit by bit from its log, also if samples arrive in another order") {
  for (const ReservoirRule rule :
       {ReservoirRule::uniform, ReservoirRule::latest, ReservoirRule::drawn_first, ReservoirRule::draw_once}) {
    const data::ReservoirOptions options{.rule = rule, .capacity = 16, .low = 6, .seed = 5};
    Reservoir live(shapes(), options);
    const auto expected = run(live, live_steps, [](int, int i) { return i; });
    const std::size_t steps = expected.size();
    REQUIRE(steps > 1);
    REQUIRE(live.arrived() == producers * each);
    const weft_test::TemporaryFolder folder;
    const std::string file = (folder.path / "reservoir").string();
    live.log().save(file);
    const data::ReservoirLog log = data::ReservoirLog::load(file);
    CHECK(log == live.log());
    for (const bool reversed : {false, true}) {
      Reservoir again(shapes(), options, log);
      const auto found = run(again, steps, [&](int, int i) { return reversed ? each - 1 - i : i; });
      CHECK(found == expected);
      CHECK(again.log() == log);
    }
    if (rule != ReservoirRule::uniform && rule != ReservoirRule::latest) continue;  // another choice has other places
    data::ReservoirOptions other = options;
    other.seed = 6;
    Reservoir seeded(shapes(), other, log);
    CHECK(run(seeded, steps, [](int, int i) { return i; }) != expected);
  }
}

TEST_CASE("a log that does not fit the options is refused") {
  data::ReservoirLog log;
  log.events = {{1, 0}, {2, 0}, {3, 0}};
  Reservoir small(shapes(), {.rule = ReservoirRule::draw_once, .capacity = 2}, log);
  const auto fill = [](auto& sample) { sample[id][0] = 0; };
  small.add(1, fill);
  small.add(2, fill);
  CHECK(message<UsageError>([&] { small.add(3, fill); }) ==
        "weft: reservoir: the repeated log has a sample for which there is no place: it is of a reservoir with other options");
  log.events = {{1, 0}, {0, 2}};
  Reservoir other(shapes(), {.capacity = 4}, log);
  other.add(1, fill);
  Reservoir::Batch batch;
  CHECK(message<UsageError>([&] { other.draw(batch, 0, 2); }) ==
        "weft: reservoir: the repeated log has a draw of more samples than are there: it is of a reservoir with other options");
}

TEST_CASE("a repeated run goes on as a live one after its log") {
  const data::ReservoirOptions options{.capacity = 4};
  data::ReservoirLog log;
  log.events = {{7, 0}, {8, 0}, {0, 2}, {9, 0}};
  Reservoir reservoir(shapes(), options, log);
  Reservoir::Batch batch;
  reservoir.add(20, numbered(20));
  reservoir.add(9, numbered(9));
  reservoir.add(8, numbered(8));
  CHECK(reservoir.arrived() == 0);
  CHECK_FALSE(reservoir.can_draw(1));
  reservoir.add(7, numbered(7));
  CHECK(reservoir.arrived() == 2);
  CHECK(reservoir.can_draw(2));
  CHECK(message<UsageError>([&] { reservoir.draw(batch, 1, 2); }) ==
        "weft: reservoir: a draw of 2 samples at step 1, and the log has one of 2 at step 0");
  REQUIRE(reservoir.draw(batch, 0, 2));
  const auto ids = ids_of(batch);
  CHECK(std::set<std::int64_t>(ids.begin(), ids.end()) == std::set<std::int64_t>{7, 8});
  CHECK(all_there(reservoir) == std::set<std::int64_t>{7, 8, 9, 20});
}

namespace {

struct Drawn {
  std::vector<std::vector<std::int64_t>> ids;  // of each step
  std::vector<std::uint64_t> choices;
  data::ReservoirLog log;
};
/// Draws of each rank of a mesh whose ranks add the same samples in other orders, at other times.
template <class On>
std::vector<Drawn> drawn_together(int ranks, On on, const Degrees& degrees, const data::ReservoirOptions& options,
                                  const data::ReservoirLog& log = {}) {
  std::vector<Drawn> found(static_cast<std::size_t>(ranks));
  CHECK(weft::run(RunOptions{.ranks = ranks}, [&](World& world) {
          const Mesh mesh(world, on, degrees);
          Reservoir reservoir(mesh, shapes(), options, log);
          const int shares = int(data::share_of(mesh).size), share = int(data::share_of(mesh).rank);
          std::thread solver([&] {
            for (int i = 0; i < each; ++i) {
              // Pairs change places on every other rank.
              const int number = (world.rank() % 2 == 0 ? i : i ^ 1) * shares + share;
              try {
                reservoir.add(std::uint64_t(number), numbered(number));
              } catch (const UsageError&) {  // all is drawn, and the reservoir closed, before all is added
                return;
              }
              if (i % 5 == world.rank()) std::this_thread::sleep_for(std::chrono::microseconds(200));
            }
            reservoir.close();
          });
          Drawn& mine = found[std::size_t(world.rank())];
          Reservoir::Batch batch;
          const std::size_t most =
              log.events.empty()
                  ? each
                  : std::size_t(std::ranges::count_if(log.events, [](const auto& event) { return event.drawn != 0; }));
          while (mine.ids.size() < most && reservoir.draw(batch, mine.ids.size(), 4)) {
            mine.ids.push_back(ids_of(batch));
            mine.choices.push_back(batch.choice);
          }
          reservoir.close();
          solver.join();
          mine.log = reservoir.log();
        }) == 0);
  return found;
}

}  // namespace

TEST_CASE("ranks that share samples draw the same ones, whatever the order in which they are added on each") {
  for (const ReservoirRule rule :
       {ReservoirRule::uniform, ReservoirRule::latest, ReservoirRule::drawn_first, ReservoirRule::draw_once}) {
    const data::ReservoirOptions options{.rule = rule, .capacity = 12, .low = 6, .seed = 9};
    const auto of_two = drawn_together(2, axes<dx>, {.dx = 2}, options);
    REQUIRE(!of_two[0].ids.empty());
    CHECK(of_two[1].ids == of_two[0].ids);
    CHECK(of_two[1].choices == of_two[0].choices);
    // A reservoir of one rank draws the same from the first rank's log.
    const auto of_one = drawn_together(1, axes<dx>, {.dx = 1}, options, of_two[0].log);
    CHECK(of_one[0].ids == of_two[0].ids);
    // So do two ranks: the second one has no log.
    const auto again = drawn_together(2, axes<dx>, {.dx = 2}, options, of_two[0].log);
    CHECK(again[0].ids == of_two[0].ids);
    CHECK(again[1].ids == of_two[0].ids);
  }
}

TEST_CASE("each share has a reservoir of its own, with other random numbers") {
  const data::ReservoirOptions options{.capacity = each, .low = each, .seed = 9};
  const auto found = drawn_together(4, axes<dp, dx>, {.dx = 2}, options);
  for (const std::size_t rank : {0, 2}) {
    REQUIRE(found[rank].ids.size() == each);
    CHECK(found[rank + 1].ids == found[rank].ids);
  }
  std::vector<std::int64_t> second;
  for (const std::int64_t one : found[2].ids[0]) second.push_back(one - 1);
  CHECK(second != found[0].ids[0]);
  CHECK(found[0].choices != found[2].choices);
}

TEST_CASE("a program of one thread on ranks that share samples") {
  std::mutex mutex;
  std::vector<std::vector<std::int64_t>> found(2);
  CHECK(weft::run(RunOptions{.ranks = 2}, [&](World& world) {
          const Mesh mesh(world, axes<tp>, {.tp = 2});
          Reservoir reservoir(mesh, shapes(), {.rule = ReservoirRule::draw_once, .capacity = 6, .low = 2});
          Reservoir::Batch batch;
          std::vector<std::int64_t> all;
          std::int64_t next = 0;
          for (std::uint64_t step = 0; step < 12; ++step) {
            while (reservoir.try_add(std::uint64_t(next), numbered(next))) ++next;
            for (; reservoir.can_draw(2) && all.size() < 6 * step;
                 all.insert(all.end(), batch[id].values().begin(), batch[id].values().end()))
              REQUIRE(reservoir.draw(batch, step, 2));
          }
          const std::lock_guard lock(mutex);
          CHECK(next == std::int64_t(all.size()));
          found[std::size_t(world.rank())] = all;
        }) == 0);
  CHECK(found[0].size() > 40);
  CHECK(found[1] == found[0]);
}

TEST_CASE("ranks that share samples and differ are refused") {
  const auto error = [](const std::string& part, auto body) {
    const std::string found = error_of_ranks(2, part, [&](World& world) {
      const Mesh mesh(world, axes<dx>, {.dx = 2});
      body(mesh, world.rank());
    });
    CHECK_MESSAGE(found.find(part) != std::string::npos, found);
  };
  error("ranks disagree about the reservoir's seed: rank 0 has 1, rank 1 has 2", [](const auto& mesh, int rank) {
    Reservoir reservoir(mesh, shapes(), {.capacity = 4, .seed = std::uint64_t(1 + rank)});
  });
  error("ranks disagree about the reservoir's rule: rank 0 has uniform, rank 1 has latest",
        [](const auto& mesh, int rank) { Reservoir reservoir(mesh, shapes(), {.rule = ReservoirRule(rank), .capacity = 4}); });
  const auto draws = [](const auto& mesh, std::uint64_t first, std::uint64_t step, bool closed) {
    Reservoir reservoir(mesh, shapes(), {.capacity = 4, .deadline_s = 0.05});
    reservoir.add(first, numbered(1));
    if (closed) reservoir.close();
    Reservoir::Batch batch;
    reservoir.draw(batch, step, 1);
    mesh.communicator().barrier();
  };
  error("a draw of 1 samples at step 4, and the first of the ranks that share samples has one of 1 at step 3",
        [&](const auto& mesh, int rank) { draws(mesh, 7, std::uint64_t(3 + rank), false); });
  const std::string missing = "sample 7, which the first of the ranks that share samples has next, was not added";
  error("it is closed, and " + missing, [&](const auto& mesh, int rank) { draws(mesh, std::uint64_t(7 + rank), 3, true); });
  error(
      "a draw of the log has waited for 0.050000 s; 0 of 4 samples are there, 0 have arrived, the low watermark is 0; " + missing,
      [&](const auto& mesh, int rank) { draws(mesh, std::uint64_t(7 + rank), 3, false); });
  // Without the mesh each draws its own; a step on pieces refuses batches of other choices.
  Reservoir::Batch one, other;
  for (const std::uint64_t seed : {1, 2}) {
    Reservoir reservoir(shapes(), {.capacity = 40, .seed = seed});
    for (int i = 0; i < 40; ++i) reservoir.add(std::uint64_t(i), numbered(i));
    reservoir.draw(seed == 1 ? one : other, 0, 4);
  }
  CHECK(one.choice != other.choice);
}

TEST_CASE("wrong uses are refused") {
  CHECK(
      message<UsageError>([] { Reservoir(shapes(), {.capacity = 4, .low = 5}); }) ==
      "weft: reservoir: a capacity of 4 samples and a low watermark of 5: the capacity is at least 1, and the watermark at most "
      "the capacity");
  CHECK_THROWS_AS(Reservoir(shapes(), {}), UsageError);
  Reservoir reservoir(shapes(), {.capacity = 4});
  Reservoir::Batch batch;
  CHECK(message<UsageError>([&] { reservoir.draw(batch, 0, 5); }) == "weft: reservoir: a draw of 5 samples from a capacity of 4");
  reservoir.close();
  CHECK(message<UsageError>([&] { reservoir.add(3, numbered(3)); }) == "weft: reservoir: sample 3 is added after close()");
  data::ReservoirLog log;
  log.events = {{7, 0}, {0, 1}};
  Reservoir repeated(shapes(), {.capacity = 4}, log);
  repeated.close();
  CHECK(message<Error>([&] { repeated.draw(batch, 0, 1); }) ==
        "weft: reservoir: it is closed, and sample 7, which the log has next, was not added");

  const weft_test::TemporaryFolder folder;
  const std::string file = (folder.path / "reservoir").string();
  for (const auto& [text, part] :
       {std::pair<std::string, std::string>{"", "it is empty"},
        {"other\n", "line 1 is 'other', expected 'weft reservoir log 1'"},
        {"weft reservoir log 1\nsample x\n", "line 2 is 'sample x', expected 'sample ID' or 'draw STEP COUNT'"},
        {"weft reservoir log 1\nsample 1\ndraw 1\n", "line 3 is 'draw 1'"},
        {"weft reservoir log 1\ndraw 1 0\n", "line 2"},
        {"weft reservoir log 1\nsample 12", "line 2 does not end"}}) {
    std::ofstream(file) << text;
    const std::string found = message<UsageError>([&] { data::ReservoirLog::load(file); });
    CHECK_MESSAGE(found.find(part) != std::string::npos, found);
  }
}
