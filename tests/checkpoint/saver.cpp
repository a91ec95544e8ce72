// SPDX-License-Identifier: Apache-2.0
// covers: weft/checkpoint/saver.hpp weft/checkpoint/together.hpp
// Checkpoints that are written during training hold the state of the step at which they were started.

#include "support/checkpoints.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include <weft/checkpoint/saver.hpp>
#include <weft/checkpoint/together.hpp>

using namespace weft_test;

namespace {

using Model = FullyShardedDataParallel<models::BasicGpt<float>>;

/// A disk with slow writes.
struct Slow : checkpoint::FileSystem {
  std::atomic<bool> full{false};
  ::ssize_t write(int file, const void* bytes, std::size_t count) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (full) return errno = ENOSPC, -1;
    return FileSystem::write(file, bytes, count);
  }
};

}  // namespace

TEST_CASE("a save under way holds the state of its step while training goes on") {
  for (const int stage : {0, 1, 3}) {
    TemporaryFolder folder;
    const std::string beside = (folder.path / "beside").string(), plain = (folder.path / "plain").string();
    Slow slow;
    CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
            Mesh<dp> mesh(world);
            Model model(mesh, gpt_config(), {.shard = {.stage = stage}});
            optim::AdamW optimizer(model, {.learning_rate = 0.01});
            checkpoint::Saver saver(beside, {.keep = 2, .system = &slow});
            int polled = 0;
            for (int step = 1; step <= 6; ++step) {
              model.train_step(make_batch(std::uint64_t(step), std::size_t(world.rank()), 2, 1));
              optimizer.step();
              saver.poll();
              polled += saver.under_way();
              if (step % 2 == 0) {
                saver.save(model, optimizer, std::uint64_t(step));
                CHECK(saver.under_way());
                CHECK(saver.stall_s() > 0);
                if (step == 4) checkpoint::save(plain, model, optimizer, 4);
              }
            }
            CHECK(polled > 0);  // training continued during the save
            saver.finish();
            CHECK(saver.completed() == 6);
          }) == 0);
    const auto entries = checkpoint::list(beside);
    REQUIRE(entries.size() == 2);
    CHECK(entries[0].step == 4);
    CHECK(tensors_of(entries[0].path) == tensors_of(plain));
    CHECK(tensors_of(entries[1].path) != tensors_of(plain));
    CHECK(checkpoint::find(beside) == entries[1].path);
  }
}

TEST_CASE("a disk that fills up while training goes on: all ranks learn of it, and the next save is complete") {
  TemporaryFolder folder;
  const std::string place = (folder.path / "run").string();
  Slow slow;
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp> mesh(world);
          Model model(mesh, gpt_config());
          optim::AdamW optimizer(model, {.learning_rate = 0.01});
          checkpoint::Saver saver(place, {.system = &slow});
          saver.save(model, optimizer, 1);
          saver.finish();
          world.communicator().barrier();
          slow.full = true;
          saver.save(model, optimizer, 2);
          CHECK_THROWS_WITH_AS(saver.finish(), doctest::Contains("cannot be written: No space left on device (rank "),
                               checkpoint::Error);
          CHECK_FALSE(saver.under_way());
          world.communicator().barrier();
          slow.full = false;
          saver.save(model, optimizer, 3);
          saver.finish();
          CHECK(saver.completed() == 3);
        }) == 0);
  CHECK(checkpoint::detail::names_in(place) == std::vector<std::string>{"latest", "step-00000001", "step-00000003"});
}

TEST_CASE("an object that ends with a save under way leaves no checkpoint that is not whole") {
  TemporaryFolder folder;
  const std::string place = (folder.path / "run").string();
  Slow slow;
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp> mesh(world);
          Model model(mesh, gpt_config());
          optim::AdamW optimizer(model, {.learning_rate = 0.01});
          checkpoint::Saver saver(place, {.system = &slow});
          saver.save(model, optimizer, 1);
        }) == 0);
  CHECK_FALSE(checkpoint::exists(place));
}

TEST_CASE("other data on one rank are an error on all, and nothing changes") {
  TemporaryFolder folder;
  const std::string place = (folder.path / "run").string();
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp> mesh(world);
          Model model(mesh, gpt_config(), {.shard = {.stage = 1}});
          optim::AdamW optimizer(model, {.learning_rate = 0.01});
          const DataIdentity mine("a.bin", "abc", 3), other("b.bin", "abd", 3);
          checkpoint::Saver saver(place, {.data = mine});
          model.train_step(make_batch(1, std::size_t(world.rank()), 2, 1));
          optimizer.step();
          saver.save(model, optimizer, 1);
          saver.finish();
          model.train_step(make_batch(2, std::size_t(world.rank()), 2, 1));
          optimizer.step();
          Ending before, after;
          take_state(before, model, optimizer);
          checkpoint::LoadOptions options{.data = world.rank() == 1 ? other : mine};
          CHECK_THROWS_WITH_AS(checkpoint::resume(place, model, optimizer, options),
                               doctest::Contains("and this one has b.bin (3 bytes"), checkpoint::Error);
          take_state(after, model, optimizer);
          CHECK(before.state == after.state);
          options.other_data = true;
          CHECK(checkpoint::resume(place, model, optimizer, options) == 1);
        }) == 0);
}
