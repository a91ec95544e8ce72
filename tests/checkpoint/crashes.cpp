// SPDX-License-Identifier: Apache-2.0
// covers: weft/checkpoint/commit.hpp weft/checkpoint/file_system.hpp weft/checkpoint/save.hpp
// A failure in the middle of a save: each system call in turn fails, or the program ends after it. A later load gives exactly the
// old checkpoint or exactly the new one.

#include "support/checkpoints.hpp"
#include "support/figure.hpp"

#include <atomic>
#include <fstream>
#include <mutex>

#include <weft/checkpoint/commit.hpp>
#include <weft/checkpoint/file_system.hpp>
#include <weft/checkpoint/save.hpp>

using namespace weft_test;
namespace fs = std::filesystem;

namespace {

/// Fails at its k-th changing call, and, if the program ends there, at every later one.
struct Failing : checkpoint::FileSystem {
  std::atomic<int> left;
  bool ends;                 ///< the program is gone from there on
  int error;                 ///< errno of the failure
  bool half = false;         ///< a failing write has written half
  bool short_write = false;  ///< a failing write has written half, and returns that
  std::atomic<int> failed{0};
  Failing(int k, bool ends_there, int with) : left(k), ends(ends_there), error(with) {}

  bool fails() {
    const int before = left.fetch_sub(1);
    if (before != 0 && !(ends && before < 0)) return false;
    ++failed;
    errno = error;
    return true;
  }
  /// The calls that change names have no short result.
  bool changes() { return !short_write && fails(); }
  int open(const char* path, int flags, ::mode_t mode) override {
    return (flags & O_CREAT) != 0 && !short_write && fails() ? -1 : FileSystem::open(path, flags, mode);
  }
  ::ssize_t write(int file, const void* bytes, std::size_t count) override {
    if (!fails()) return FileSystem::write(file, bytes, count);
    if (short_write) return FileSystem::write(file, bytes, (count + 1) / 2);
    if (half && FileSystem::write(file, bytes, count / 2) < 0) return -1;
    return errno = error, -1;
  }
  int sync(int file) override { return !short_write && fails() ? -1 : FileSystem::sync(file); }
  int make_folder(const char* path, ::mode_t mode) override { return changes() ? -1 : FileSystem::make_folder(path, mode); }
  int rename(const char* from, const char* to) override { return changes() ? -1 : FileSystem::rename(from, to); }
  int exchange(const char* a, const char* b) override { return changes() ? -1 : FileSystem::exchange(a, b); }
  int remove_file(int at, const char* name) override { return changes() ? -1 : FileSystem::remove_file(at, name); }
  int remove_folder(const char* path) override { return changes() ? -1 : FileSystem::remove_folder(path); }
};

models::GptConfig small_config() {
  return {.vocabulary = 19, .layers = 1, .width = 8, .heads = 2, .sequence = batch_length, .standard_deviation = 0.1};
}

using Model = DataParallel<models::BasicGpt<float>>;

std::size_t gone = 0, interrupted = 0, refused = 0, wrong = 0;  // of all cases so far, for the figures
std::size_t count(std::size_t& all, std::size_t some) {
  all += some;
  return some;
}

/// Lets the k-th call of a save of step `next` fail, for every k, over a folder that holds step 1; each time the folder is to
/// hold exactly one of both states, and the next save is to succeed. With `error` EINTR the failing call can be made again, and
/// the save itself is to succeed; `half` is then a write of half of its bytes.
std::size_t every_failure(std::size_t ranks, std::uint64_t next, std::size_t keep, bool ends, int error, bool half = false) {
  std::size_t tried = 0;
  for (int k = 0;; ++k) {
    ++tried;
    TemporaryFolder folder;
    const std::string place = (folder.path / "run").string();
    Failing failing(k, ends, error);
    failing.half = half && error != EINTR;
    failing.short_write = half && error == EINTR;
    std::mutex mutex;
    std::vector<std::map<std::string, std::vector<std::byte>>> states(2);
    std::atomic<int> threw{0};
    INFO("call " << k << (ends ? ", after which the program is gone" : " fails") << ", " << ranks << " ranks, step " << next);
    REQUIRE(runtime::run(runtime::RunOptions{.ranks = int(ranks)}, [&](World& world) {
              Mesh<dp> mesh(world);
              Model model(mesh, small_config());
              optim::AdamW optimizer(model, {.learning_rate = 0.01});
              for (int step = 0; step < 2; ++step) {
                model.train_step(make_batch(std::uint64_t(step), std::size_t(world.rank()), ranks, 1));
                optimizer.step();
                if (step == 0) checkpoint::save(place, model, optimizer, 1);
                Ending ending;
                take_state(ending, model, optimizer);
                std::lock_guard lock(mutex);
                states[std::size_t(step)] = ending.state;
              }
              try {
                checkpoint::save(place, model, optimizer, next, {.keep = keep, .system = &failing});
              } catch (const checkpoint::Error& thrown) {
                CHECK(std::string(thrown.what()).find(std::strerror(error)) != std::string::npos);
                ++threw;
              }
            }) == 0);
    const bool reached = failing.failed > 0;
    if (!reached || error == EINTR) CHECK(threw == 0);
    CHECK((threw == 0 || threw == int(ranks)));  // an error on one rank is one on all
    if (reached && !ends && error == ENOSPC) CHECK((threw == int(ranks) || keep != 0 || next == 1));
    REQUIRE(runtime::run(runtime::RunOptions{.ranks = int(ranks)}, [&](World& world) {
              Mesh<dp> mesh(world);
              Model model(mesh, small_config());
              optim::AdamW optimizer(model, {.learning_rate = 0.01});
              const std::uint64_t step = checkpoint::load(place, model, optimizer);
              Ending ending;
              take_state(ending, model, optimizer);
              const bool is_new = optimizer.steps() == 2;
              CHECK(step == (is_new ? next : 1));
              if (threw == 0) CHECK(is_new);
              const bool whole = ending.state == states[is_new ? 1 : 0];
              CHECK(whole);
              if (!whole) {
                std::lock_guard lock(mutex);
                ++wrong;
              }
              checkpoint::save(place, model, optimizer, 9, {.keep = 1});
            }) == 0);
    std::vector<std::string> left = checkpoint::detail::names_in(place);
    CHECK(left == std::vector<std::string>{"latest", "step-00000009"});
    if (!reached) return count(ends ? gone : error == EINTR ? interrupted : refused, tried);
  }
}

}  // namespace

TEST_CASE("the k-th call fails, for every k") {
  CHECK(every_failure(1, 2, 0, false, ENOSPC) > 15);
  CHECK(every_failure(1, 2, 1, false, EIO, true) > 20);
  CHECK(every_failure(2, 2, 1, false, EDQUOT) > 20);
}
TEST_CASE("the k-th call finds the folder read-only, or the disk full after half of a write, for every k") {
  CHECK(every_failure(1, 2, 1, false, EROFS) > 20);
  CHECK(every_failure(1, 2, 1, false, ENOSPC, true) > 20);
}
TEST_CASE("the k-th call is interrupted, or writes half of its bytes, for every k: the save goes on") {
  CHECK(every_failure(1, 2, 1, false, EINTR) > 10);
  CHECK(every_failure(2, 2, 1, false, EINTR) > 15);
  CHECK(every_failure(1, 2, 1, false, EINTR, true) > 5);
}
TEST_CASE("the program is gone after the k-th call, for every k") {
  CHECK(every_failure(1, 2, 1, true, EIO) > 20);
  CHECK(every_failure(2, 2, 0, true, EIO, true) > 20);
}
TEST_CASE("a checkpoint of a step that is there already is replaced in one step") {
  CHECK(every_failure(1, 1, 0, false, EIO) > 15);
  CHECK(every_failure(1, 1, 1, true, EIO) > 15);
}

namespace {

/// Its k-th read fails, is interrupted, or returns half of the bytes.
struct FailingReads : checkpoint::FileSystem {
  std::atomic<int> left;
  int error;  ///< errno, or 0: half of the bytes
  std::atomic<int> failed{0};
  FailingReads(int k, int with) : left(k), error(with) {}
  ::ssize_t read_at(int file, void* bytes, std::size_t size, std::uint64_t offset) override {
    if (left.fetch_sub(1) != 0) return FileSystem::read_at(file, bytes, size, offset);
    ++failed;
    if (error == 0) return FileSystem::read_at(file, bytes, (size + 1) / 2, offset);
    return errno = error, -1;
  }
};

}  // namespace

TEST_CASE("the k-th read fails, for every k: nothing changes, or the load goes on where a read can be repeated") {
  TemporaryFolder folder;
  const std::string place = (folder.path / "run").string();
  std::size_t tried = 0, half_loaded = 0;
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp> mesh(world);
          Model model(mesh, small_config());
          optim::AdamW optimizer(model, {.learning_rate = 0.01});
          const auto train = [&](int step) {
            model.train_step(make_batch(std::uint64_t(step), std::size_t(world.rank()), 2, 1));
            optimizer.step();
          };
          const auto state = [&] {
            Ending ending;
            take_state(ending, model, optimizer);
            return ending.state;
          };
          train(0);
          checkpoint::save(place, model, optimizer, 1);
          const auto saved = state();
          for (const int error : {EIO, EINTR, 0}) {
            for (int k = 0;; ++k) {
              train(1);
              const auto before = state();
              REQUIRE(before != saved);
              FailingReads failing(k, error);  // of this rank
              std::string what = "loaded";
              try {
                checkpoint::load(place, model, optimizer, {.system = &failing});
              } catch (const checkpoint::Error& thrown) {
                what = thrown.what();
              }
              INFO("read " << k << " of rank " << world.rank() << ", errno " << error << ": " << what);
              std::vector<std::uint64_t> reached{std::uint64_t(failing.failed)};
              world.communicator().all_reduce(reached);
              if (reached[0] == 0) break;
              if (error == EIO) {
                CHECK(what.find("cannot be read: Input/output error") != what.npos);
                CHECK(state() == before);
              } else {
                CHECK(what == "loaded");
                CHECK(state() == saved);
              }
              std::vector<std::uint64_t> bad{state() != (error == EIO ? before : saved)};
              world.communicator().all_reduce(bad, Reduction::max);
              if (world.rank() == 0) ++tried, half_loaded += bad[0];
            }
          }
        }) == 0);
  CHECK(tried > 150);
  figure(13, tried, "reads of a load that failed, were interrupted or short", half_loaded, "left a model half loaded");
}

TEST_CASE("the figures") {
  if (gone == 0 || refused == 0 || interrupted == 0) return;  // the cases above were not chosen
  figure(4, gone + refused, "saves that ended at their k-th call, for every k", wrong, "left neither or a mix");
  figure(13, refused, "calls with ENOSPC, EIO, EDQUOT, EROFS or half a write", wrong, "lost or mixed checkpoints");
  figure(13, interrupted, "calls of a save interrupted or short", wrong, "lost or mixed checkpoints");
}

TEST_CASE("the newest ones are kept") {
  TemporaryFolder folder;
  const std::string place = (folder.path / "run").string();
  DefaultDevice device;
  SingleDevice<models::BasicGpt<float>> model(device, small_config());
  for (std::uint64_t step = 1; step <= 5; ++step) checkpoint::save(place, model, step, {.keep = 2});
  const auto entries = checkpoint::list(place);
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].step == 4);
  CHECK(entries[1].step == 5);
  CHECK(checkpoint::find(place) == place + "/step-00000005");
  CHECK(checkpoint::read_index(checkpoint::find(place)).step == 5);
}

TEST_CASE("a folder that cannot be written") {
  TemporaryFolder folder;
  DefaultDevice device;
  SingleDevice<models::BasicGpt<float>> model(device, small_config());
  std::ofstream(folder.path / "file") << "no folder";
  CHECK_THROWS_WITH_AS(checkpoint::save((folder.path / "file" / "run").string(), model, 1),
                       doctest::Contains("cannot be made: Not a directory"), checkpoint::Error);
  Failing read_only(0, true, EROFS);
  CHECK_THROWS_WITH_AS(checkpoint::save((folder.path / "run").string(), model, 1, {.system = &read_only}),
                       doctest::Contains("Read-only file system"), checkpoint::Error);
}
