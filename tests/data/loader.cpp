// SPDX-License-Identifier: Apache-2.0
// Loader and Sampler: each sample once per epoch, the same global batch in every layout, batches loaded ahead, and errors thrown
// at their step.
// covers: weft/data/sampler.hpp weft/data/load_ahead.hpp weft/data/loader.hpp weft/data/sample_threads.hpp

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <weft/data/load_ahead.hpp>
#include <weft/data/loader.hpp>
#include <weft/data/sample_threads.hpp>
#include <weft/data/sampler.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

inline constexpr data::Field<"x", float> x;
inline constexpr data::Field<"index", std::int32_t> index_of;

struct Counted {
  using Fields = FieldBatch<x, index_of>;
  std::size_t samples = 100;
  std::size_t bad = std::size_t(-1);
  std::shared_ptr<std::atomic<int>> loads = std::make_shared<std::atomic<int>>(0);

  std::size_t size() const { return samples; }
  void shapes(Fields::Shapes& shapes) const { shapes[x] = {2, 3}; }
  void load(std::size_t i, Fields::Sample& sample) const {
    ++*loads;
    if (i == bad) throw std::out_of_range("no such file");
    for (std::size_t j = 0; j < 6; ++j) sample[x][j] = float(i * 10 + j);
    sample[index_of][0] = std::int32_t(i);
  }
};
static_assert(data::Dataset<Counted>);

std::vector<std::int32_t> indices(const Counted::Fields& batch) {
  const auto values = batch[index_of].values();
  return {values.begin(), values.end()};
}

template <class E, class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every sample once an epoch, in another order each time") {
  data::Loader loader(data::Share{}, Counted{}, {.global_batch = 10, .micro_batches = 5, .epochs = 3});
  std::vector<std::vector<std::int32_t>> epochs(3);
  std::uint64_t steps = 0;
  for (auto&& batch : loader) {
    batch.check();
    CHECK(batch.step == steps++);
    CHECK(batch.micro_batches == 5);
    CHECK(batch[x].shape() == Shape{2, 3});
    CHECK(loader.epoch() == batch.step / 10);
    for (std::size_t i = 0; i < 10; ++i) CHECK(batch[x].sample(i)[4] == float(batch[index_of].values()[i] * 10 + 4));
    for (const std::int32_t index : indices(batch)) epochs[loader.epoch()].push_back(index);
    const auto progress = loader.progress();
    CHECK(progress.step == batch.step);
    CHECK(progress.end_step == 30);
    CHECK(progress.step_of_epoch == batch.step % 10);
    CHECK(progress.steps_per_epoch == 10);
    CHECK(progress.samples_seen == (batch.step % 10 + 1) * 10);
    CHECK(progress.samples == 100);
  }
  CHECK(steps == 30);
  CHECK(epochs[0] != epochs[1]);
  CHECK(epochs[1] != epochs[2]);
  for (const auto& epoch : epochs) CHECK(std::set<std::int32_t>(epoch.begin(), epoch.end()).size() == 100);
}

TEST_CASE("the shares of any number of ranks join to the batch of one, at any step") {
  const data::LoaderOptions options{.global_batch = 24, .micro_batches = 3, .seed = 7};
  const data::Loader whole(data::Share{}, Counted{}, options);
  for (const std::size_t ranks : {1, 2, 4, 8})
    for (const std::uint64_t step : {0ull, 1ull, 5'000'000'000ull}) {
      std::vector<std::int32_t> joined;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const auto share = data::Loader(data::Share{rank, ranks}, Counted{}, options).batch(step);
        share.check();
        CHECK(share.samples == 24 / ranks);
        CHECK(share.first_sample == rank * 24 / ranks);
        CHECK(share.step == step);
        for (const std::int32_t index : indices(share)) joined.push_back(index);
      }
      CHECK(joined == indices(whole.batch(step)));
    }
}

TEST_CASE("a mesh's data axes share the samples, its other axes see the whole share") {
  const auto whole = indices(data::Loader(data::Share{}, Counted{}, {.global_batch = 8}).batch(2));
  std::atomic<int> right = 0;
  const int code = run<comm::Threads>({.ranks = 4, .deadline_s = 20, .threads_per_rank = 1}, [&](World& world) {
    const Mesh<dp, tp> mesh(world, {.tp = 2});
    data::Loader loader(mesh, Counted{}, {.global_batch = 8});
    for (auto&& batch : loader)
      if (batch.step == 2) {
        const std::ptrdiff_t first = mesh.rank(dp{}) * 4;
        right += indices(batch) == std::vector(whole.begin() + first, whole.begin() + first + 4);
      }
  });
  CHECK(code == 0);
  CHECK(right == 4);
}

TEST_CASE("a run resumes at any step") {
  for (const std::size_t ahead : {0, 1, 3}) {
    data::Loader whole(data::Share{}, Counted{}, {.global_batch = 10, .epochs = 2, .ahead = ahead});
    data::Loader rest(data::Share{}, Counted{}, {.global_batch = 10, .epochs = 2, .first_step = 13, .ahead = ahead});
    std::vector<std::vector<std::int32_t>> all, last;
    for (auto&& batch : whole) all.push_back(indices(batch));
    for (auto&& batch : rest) last.push_back(indices(batch));
    CHECK(all.size() == 20);
    CHECK(last == std::vector(all.begin() + 13, all.end()));
    last.clear();
    for (auto&& batch : rest) last.push_back(indices(batch));  // a second time
    CHECK(last == std::vector(all.begin() + 13, all.end()));
  }
  data::Loader some(data::Share{}, Counted{}, {.global_batch = 10, .first_step = 8, .steps = 5});
  std::uint64_t steps = 0;
  for (auto&& batch : some) steps += batch.step;
  CHECK(steps == 8 + 9 + 10 + 11 + 12);
  data::Loader over(data::Share{}, Counted{}, {.global_batch = 10, .first_step = 10});
  for (auto&& batch : over) FAIL(batch.step);
}

TEST_CASE("in order, with a last batch that is smaller, or without it") {
  data::Loader all(data::Share{1, 2}, Counted{.samples = 22}, {.global_batch = 8, .shuffle = false, .drop_last = false});
  std::vector<std::vector<std::int32_t>> seen;
  for (auto&& batch : all) {
    batch.check();
    seen.push_back(indices(batch));
  }
  CHECK(seen == std::vector<std::vector<std::int32_t>>{{4, 5, 6, 7}, {12, 13, 14, 15}, {19, 20, 21}});
  CHECK(all.progress().samples_seen == 22);
  data::Loader whole(data::Share{}, Counted{.samples = 22}, {.global_batch = 8, .epochs = 40});
  CHECK(whole.steps_per_epoch() == 2);
  std::set<std::int32_t> ever;
  for (auto&& batch : whole)
    for (const std::int32_t index : indices(batch)) ever.insert(index);
  CHECK(ever.size() == 22);  // another epoch has the samples that one omits
}

TEST_CASE("a batch is loaded while the one before is used, and not more than that") {
  Counted dataset;
  data::Loader loader(data::Share{}, dataset, {.global_batch = 10});
  auto at = loader.begin();
  const auto waits_for = [&](int loads) {
    for (int i = 0; i < 5000 && *dataset.loads < loads; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return dataset.loads->load();
  };
  CHECK(waits_for(20) == 20);
  ++at;
  CHECK(waits_for(30) == 30);
  CHECK((*at).step == 1);
  auto moved = std::move(loader);  // the thread does not notice
  std::uint64_t steps = 0;
  for (auto&& batch : moved) steps += batch.step;
  CHECK(steps == 45);

  Counted alone;
  data::Loader without(data::Share{}, alone, {.global_batch = 10, .ahead = 0});
  without.begin();
  CHECK(waits_for(10) >= 10);
  CHECK(*alone.loads == 10);
}

TEST_CASE("the memory of batches is used again") {
  for (const std::size_t ahead : {0, 1, 2}) {
    data::Loader loader(data::Share{}, Counted{}, {.global_batch = 10, .epochs = 4, .ahead = ahead});
    std::set<const void*> places;
    for (auto&& batch : loader) places.insert(batch[x].values().data());
    CHECK(places.size() == ahead + 1);
  }
}

TEST_CASE("an exception of load() comes at its step, with the sample") {
  for (const std::size_t ahead : {0, 1, 3}) {
    data::Loader loader(data::Share{}, Counted{.bad = 35}, {.global_batch = 10, .epochs = 2, .shuffle = false, .ahead = ahead});
    std::uint64_t steps = 0;
    const auto run = [&] {
      for (auto&& batch : loader) steps += batch.samples;
    };
    CHECK(message<Error>(run) == "weft: loader: sample 35 of step 3: no such file");
    CHECK(steps == 30);
    CHECK(message<Error>(run) == "weft: loader: sample 35 of step 3: no such file");
    try {
      loader.batch(3);
      FAIL("no exception");
    } catch (const std::exception& error) {
      CHECK_THROWS_AS(std::rethrow_if_nested(error), std::out_of_range);
    }
    loader.batch(2);
  }
}

struct OfEpoch {
  using Fields = FieldBatch<index_of>;
  std::size_t size() const { return 10; }
  void load(std::size_t i, Fields::Sample& sample, std::uint64_t epoch) const {
    sample[index_of][0] = std::int32_t(100 * epoch + i);
  }
};
static_assert(data::Dataset<OfEpoch>);

TEST_CASE("a dataset may be a function of the epoch") {
  data::Loader loader(data::Share{}, OfEpoch{}, {.global_batch = 5, .epochs = 3, .shuffle = false});
  for (auto&& batch : loader)
    for (std::size_t i = 0; i < 5; ++i)
      CHECK(batch[index_of].values()[i] == std::int32_t(100 * loader.epoch() + loader.progress().step % 2 * 5 + i));
  CHECK(loader.progress().step == 5);
}

TEST_CASE("threads of a batch load the samples of one, and throw the error of the first") {
  const auto loaded = [](std::size_t threads) {
    std::vector<std::int32_t> all;
    for (auto&& batch : data::Loader(data::Share{}, Counted{}, {.global_batch = 20, .epochs = 2, .threads = threads}))
      for (const std::int32_t index : indices(batch)) all.push_back(index);
    return all;
  };
  const auto one = loaded(1);
  CHECK(one.size() == 200);
  CHECK(loaded(3) == one);
  CHECK(loaded(64) == one);
  for (const std::size_t threads : {1, 2, 5}) {
    std::set<std::thread::id> seen;
    std::mutex mutex;
    std::atomic<int> begun{0};
    const auto load = [&](std::size_t i) {
      ++begun;
      std::this_thread::sleep_for(std::chrono::milliseconds(i == 7 ? 5 : 1));
      {
        const std::lock_guard lock(mutex);
        seen.insert(std::this_thread::get_id());
      }
      if (i == 7 || i == 8) throw std::out_of_range(std::to_string(i));  // the later one throws first
    };
    CHECK(message<std::out_of_range>([&] { data::detail::for_each_sample(100, threads, load); }) == "7");
    CHECK(begun < 50);
    CHECK(seen.size() <= threads);
    if (threads > 1) CHECK(seen.size() > 1);
  }
}

TEST_CASE("loaders end at any moment") {
  for (int i = 0; i < 50; ++i) {
    data::Loader loader(data::Share{}, Counted{}, {.global_batch = 10, .epochs = 1000, .ahead = std::size_t(i % 4)});
    auto at = loader.begin();
    for (int step = 0; step < i % 7; ++step) ++at;
    if (i % 3 == 0) loader.begin();
  }
  const data::Loader never(data::Share{}, Counted{}, {.global_batch = 10});
  CHECK(never.epoch() == 0);
}

TEST_CASE("options that cannot be") {
  const auto refusal = [](data::Share share, std::size_t samples, data::LoaderOptions options) {
    return message<Error>([&] { data::Sampler(share, samples, options); });
  };
  CHECK(refusal({}, 0, {}) == "weft: loader: the dataset has no samples: its size() is 0");
  CHECK(refusal({}, 10, {.global_batch = 0}) == "weft: loader: global batch(0) and micro-batches(1) must be at least 1");
  CHECK(refusal({0, 3}, 100, {.global_batch = 16}) ==
        "weft: global batch(16) % (micro-batches(1) * dp(3)) != 0: every data rank takes the same number of whole micro-batches");
  CHECK(refusal({0, 2}, 100, {.global_batch = 16, .micro_batches = 3}) ==
        "weft: global batch(16) % (micro-batches(3) * dp(2)) != 0: every data rank takes the same number of whole micro-batches");
  CHECK(refusal({}, 10, {.global_batch = 16}) ==
        "weft: loader: global batch(16) > samples(10): no batch is whole; a smaller one, or drop_last = false");
  CHECK(refusal({0, 2}, 19, {.global_batch = 16, .drop_last = false}) ==
        "weft: loader: the last batch of an epoch has 3 of 19 samples, and 3 % (micro-batches(1) * dp(2)) != 0: another global "
        "batch, "
        "or drop_last = true, which leaves them out");
  const data::Sampler endless({}, 10, {.global_batch = 5, .epochs = std::uint64_t(-1)});
  CHECK(endless.end_step() == std::uint64_t(-1));
}
