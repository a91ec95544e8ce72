// SPDX-License-Identifier: Apache-2.0
// Foreign contents in a folder of checkpoints: links, other files, other programs. A save destroys none of them, and a load
// reports those that it cannot follow. Also the data of a run, which a checkpoint identifies.
// covers: weft/checkpoint/data_notes.hpp weft/checkpoint/folder.hpp weft/checkpoint/folder_lock.hpp weft/checkpoint/whole.hpp
// covers: weft/checkpoint/saved_step.hpp

#include "support/checkpoints.hpp"

#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <functional>

#include <weft/checkpoint/data_notes.hpp>
#include <weft/checkpoint/folder.hpp>
#include <weft/checkpoint/folder_lock.hpp>
#include <weft/checkpoint/saved_step.hpp>
#include <weft/checkpoint/whole.hpp>
#include <weft/data/arrays.hpp>
#include <weft/data/batches.hpp>
#include <weft/data/corpus.hpp>
#include <weft/data/loader.hpp>

using namespace weft_test;
namespace fs = std::filesystem;

namespace {

inline constexpr data::Field<"sample", float> sample;

struct Trial {
  TemporaryFolder folder;
  fs::path place = folder.path / "run";
  DefaultDevice device;
  SingleDevice<models::BasicGpt<float>> model{device,
                                              {.vocabulary = 19, .layers = 1, .width = 8, .heads = 2, .sequence = batch_length}};
  optim::AdamW optimizer{model};

  std::string save(std::uint64_t step, const checkpoint::SaveOptions& options = {}) {
    return said([&] { checkpoint::save(place.string(), model, optimizer, step, options); });
  }
  std::string load(const checkpoint::LoadOptions& options = {}) {
    return said([&] { checkpoint::load(place.string(), model, optimizer, options); });
  }
  static std::string said(const std::function<void()>& f) {
    try {
      f();
    } catch (const weft::Error& error) {
      return error.what();
    }
    return "";
  }
  std::vector<std::string> names() const { return checkpoint::detail::names_in(place.string()); }
};

bool contains(const std::string& text, std::string_view part) {
  INFO(text);
  return text.find(part) != text.npos;
}
void write_file(const fs::path& path) { std::ofstream(path) << "mine"; }

}  // namespace

TEST_CASE("a link in the place of a checkpoint: a save touches nothing behind it, a load follows it or fails with the reason") {
  Trial trial;
  const fs::path other = trial.folder.path / "other", link = trial.place / "step-00000002";
  fs::create_directories(other);
  fs::create_directories(trial.place);
  write_file(other / "a");
  fs::create_directory_symlink(other, link);
  CHECK(contains(trial.save(2), "is a link that leads to no checkpoint"));
  CHECK(contains(trial.load(), "is a link that leads to no checkpoint"));
  CHECK_THROWS_AS(checkpoint::resume(trial.place.string(), trial.model, trial.optimizer), checkpoint::Error);
  CHECK(fs::exists(other / "a"));
  fs::remove(link);
  REQUIRE(trial.save(2) == "");
  fs::rename(link, trial.folder.path / "moved");
  fs::create_directory_symlink(trial.folder.path / "moved", link);
  CHECK(checkpoint::resume(trial.place.string(), trial.model, trial.optimizer) == 2);
  CHECK(contains(trial.save(2), "is a link, and a save does not write over the folder to which it points"));
  CHECK(trial.save(3, {.keep = 1}) == "");
  CHECK(checkpoint::verify((trial.folder.path / "moved").string()).files == 1);
  CHECK(trial.names() == std::vector<std::string>{"latest", "step-00000002", "step-00000003"});
  // The disk is not there.
  fs::remove_all(trial.place / "step-00000003");
  fs::rename(trial.folder.path / "moved", trial.folder.path / "unmounted");
  CHECK(contains(trial.load(), "is a link that leads to no checkpoint: bring back the folder"));
  fs::remove_all(trial.place);
  fs::create_directory_symlink(trial.folder.path / "nowhere", trial.place);
  CHECK_THROWS_WITH_AS(checkpoint::resume(trial.place.string(), trial.model, trial.optimizer),
                       doctest::Contains("is a link that leads to no folder"), checkpoint::Error);
}

TEST_CASE("files of others stay: beside checkpoints, and in them") {
  Trial trial;
  fs::create_directories(trial.place / "step-00000001.tmp-mine");
  write_file(trial.place / "step-00000001.tmp-mine" / "a");
  REQUIRE(trial.save(1) == "");
  write_file(trial.place / "step-00000001" / "notes.txt");
  CHECK(trial.save(2, {.keep = 1}) == "");
  CHECK(fs::exists(trial.place / "step-00000001" / "notes.txt"));
  CHECK(fs::exists(trial.place / "step-00000001.tmp-mine" / "a"));
  CHECK(contains(trial.save(1), "holds notes.txt, which no save has written"));
  write_file(trial.place / "step-00000009");
  CHECK(contains(trial.save(3), "has the name of a checkpoint and is no folder"));
  CHECK(contains(trial.load(), "has the name of a checkpoint") == false);  // `latest` names one that is whole
  fs::remove(trial.place / "step-00000009");
  fs::remove(trial.place / "latest");
  fs::create_directory(trial.place / "latest");
  CHECK(contains(trial.save(3), "latest: is no plain file"));
  fs::remove(trial.place / "latest");
  fs::create_directory(trial.place / "step-00000007");
  CHECK(contains(trial.load(), "is no whole checkpoint: it has no index.json"));
}

TEST_CASE("another process that saves into the folder is named, and its end frees the folder") {
  Trial trial;
  REQUIRE(trial.save(1) == "");
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const ::pid_t child = ::fork();
  if (child == 0) {
    const auto lock = checkpoint::detail::FolderLock::take(checkpoint::FileSystem::system(), trial.place.string());
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  const std::string text = trial.save(2);
  CHECK(contains(text, "another program saves into this folder: process " + std::to_string(child) + " on host "));
  CHECK(trial.load() == "");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(trial.save(2) == "");
  CHECK(trial.names() == std::vector<std::string>{"latest", "step-00000001", "step-00000002"});
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("one process may save into a folder by two objects, one after the other") {
  Trial trial;
  checkpoint::Saver saver(trial.place.string());
  saver.take_folder(trial.model);
  saver.save(trial.model, trial.optimizer, 1);
  CHECK(contains(trial.save(2), "this process saves into the folder already"));
  saver.finish();
  CHECK(trial.save(2) == "");
}

TEST_CASE("the best checkpoints stay beside the newest") {
  Trial trial;
  const double losses[] = {3, 1, 2, std::nan(""), 1};
  for (std::uint64_t step = 1; step <= 5; ++step)
    REQUIRE(trial.save(step, {.keep = 1, .keep_best = 1, .validation_loss = losses[step - 1]}) == "");
  CHECK(trial.names() == std::vector<std::string>{"latest", "step-00000002", "step-00000005"});
  REQUIRE(checkpoint::best(trial.place.string()));
  CHECK(checkpoint::best(trial.place.string())->entry.step == 2);
  CHECK(checkpoint::best(trial.place.string())->validation_loss == 1);
}

namespace {
/// Between the index and the tensors another program saves a newer checkpoint, and removes the one that is read.
struct Replacing : checkpoint::FileSystem {
  std::function<void()> replace;
  int open(const char* path, int flags, ::mode_t mode) override {
    if (std::string_view(path).ends_with("rank-00000.safetensors"))
      if (const auto once = std::exchange(replace, nullptr)) once();
    return FileSystem::open(path, flags, mode);
  }
};
}  // namespace

TEST_CASE("a reader whose checkpoint is removed takes the newest") {
  Trial trial;
  REQUIRE(trial.save(1) == "");
  Replacing system;
  system.replace = [&] { REQUIRE(trial.save(2, {.keep = 1}) == ""); };
  CHECK(checkpoint::load(trial.place.string(), trial.model, trial.optimizer, {.system = &system}) == 2);
}

TEST_CASE("the exit code is 1 for a full disk and 2 for a place that cannot be") {
  struct Full : checkpoint::FileSystem {
    ::ssize_t write(int, const void*, std::size_t) override { return errno = ENOSPC, -1; }
  } full;
  Trial trial;
  try {
    checkpoint::save(trial.place.string(), trial.model, trial.optimizer, 1, {.system = &full});
    FAIL("saved");
  } catch (const checkpoint::Error& error) {
    CHECK(error.exit_code() == 1);
  }
  try {
    checkpoint::load(trial.place.string(), trial.model, trial.optimizer);
    FAIL("loaded");
  } catch (const checkpoint::Error& error) {
    CHECK(error.exit_code() == 2);
  }
}

TEST_CASE("merge refuses anything but regular files") {
  Trial trial;
  REQUIRE(trial.save(1) == "");
  const std::string fifo = (trial.folder.path / "fifo").string(), path = checkpoint::find(trial.place.string());
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  for (const std::string& to : {fifo, std::string("/dev/null"), trial.folder.path.string()})
    CHECK(contains(Trial::said([&] { checkpoint::merge(path, to); }), "a regular file is needed"));
  CHECK(fs::is_fifo(fifo));
}

TEST_CASE("a run that goes on with other data is refused, unless it is allowed") {
  Trial trial;
  const auto text = [](const std::string& letters, double fraction) {
    return data::Corpus::from_text(letters, {.validation_fraction = fraction}).identity();
  };
  const DataIdentity mine = text("to be or not to be", 0.1), other = text("to be or not to bE", 0.1),
                     longer = text("to be or not to be, ", 0.1), split = text("to be or not to be", 0.2);
  REQUIRE(trial.save(1, {.data = mine}) == "");
  const std::string remedy = ": load it with the same data, or allow others with LoadOptions::other_data";
  const std::string begin = "weft: checkpoint: " + (trial.place / "step-00000001").string() + ": is of a run ";
  CHECK(trial.load({.data = mine}) == "");
  CHECK(trial.load() == "");
  DataIdentity moved = mine;
  moved.name = "elsewhere/text";
  CHECK(trial.load({.data = moved}) == "");
  CHECK(trial.load({.data = other}) == begin + "on " + mine.text() + ", and this one has " + other.text() + remedy);
  CHECK(contains(trial.load({.data = longer}), "(18 bytes, digest "));
  CHECK(contains(trial.load({.data = longer}), "and this one has text (20 bytes, digest "));
  CHECK(trial.load({.data = split}) == begin + "whose data has validation-fraction 0.1, and this one has 0.2" + remedy);
  CHECK(contains(Trial::said([&] { checkpoint::resume(trial.place.string(), trial.model, trial.optimizer, {.data = other}); }),
                 "is of a run on text"));
  CHECK(contains(Trial::said([&] { checkpoint::load(trial.place.string(), trial.model, {.data = split}); }),
                 "validation-fraction"));
  for (const DataIdentity& another : {other, split}) CHECK(trial.load({.data = another, .other_data = true}) == "");
  const checkpoint::Index index = checkpoint::read_index(checkpoint::find(trial.place.string()));
  CHECK(index.notes.at("data.name") == "text");
  CHECK(checkpoint::data_difference(index, mine).empty());
  // A program that resumes and does not name its data; it may evaluate the model.
  const auto resume = [&](const checkpoint::LoadOptions& options) {
    return Trial::said([&] { checkpoint::resume(trial.place.string(), trial.model, trial.optimizer, options); });
  };
  CHECK(resume({}) == begin + "on " + mine.text() +
                          ", and this program does not name its data: give LoadOptions::data, as in {.data = loader.identity()}, "
                          "or allow others with LoadOptions::other_data");
  CHECK(resume({.other_data = true}) == "");
  CHECK(resume({.data = mine}) == "");
  CHECK(Trial::said([&] { checkpoint::load(trial.place.string(), trial.model); }) == "");
  // A checkpoint of a run that did not name its data.
  REQUIRE(trial.save(2) == "");
  CHECK(contains(trial.load({.data = other}),
                 "step-00000002: does not name the data of its run (SaveOptions::data), and this one "
                 "has " +
                     other.text() + remedy));
  CHECK(trial.load({.data = other, .other_data = true}) == "");
  CHECK(resume({}) == "");
}

TEST_CASE("a run that goes on with another order of its samples is refused") {
  Trial trial;
  const auto dataset = [] { return data::Arrays(data::array<sample>(std::vector<float>(60, 1.0f), {})); };
  const auto of = [&](const data::LoaderOptions& options) { return data::Loader(data::Share{}, dataset(), options).identity(); };
  REQUIRE(trial.save(1, {.data = of({.global_batch = 4})}) == "");
  CHECK(trial.load({.data = of({.global_batch = 4, .micro_batches = 2, .epochs = 5, .first_step = 1, .ahead = 0})}) == "");
  CHECK(contains(trial.load({.data = of({.global_batch = 6})}), "is of a run whose data has global-batch 4, and this one has 6"));
  CHECK(contains(trial.load({.data = of({.global_batch = 4, .seed = 2})}), "whose data has seed 1, and this one has 2"));
  CHECK(contains(trial.load({.data = of({.global_batch = 4, .shuffle = false})}), "has shuffle on, and this one has off"));
  CHECK(contains(trial.load({.data = of({.global_batch = 4, .drop_last = false})}), "has drop-last on, and this one has off"));
  CHECK(trial.load({.data = of({.global_batch = 6}), .other_data = true}) == "");

  const auto corpus = std::make_shared<const data::Corpus>(data::Corpus::from_text(std::string(400, 'a'), {}));
  const auto of_text = [&](const data::BatchOptions& options) {
    return data::Batches(data::Share{}, corpus, options).identity();
  };
  REQUIRE(trial.save(2, {.data = of_text({.sequence = 8, .global_batch = 4})}) == "");
  CHECK(trial.load({.data = of_text({.sequence = 8, .global_batch = 4, .micro_batch = 2, .first_step = 2})}) == "");
  CHECK(contains(trial.load({.data = of_text({.sequence = 16, .global_batch = 4})}), "has sequence 8, and this one has 16"));
  CHECK(contains(trial.load({.data = of_text({.sequence = 8, .global_batch = 8})}), "has global-batch 4, and this one has 8"));
  CHECK(contains(trial.load({.data = of_text({.sequence = 8, .global_batch = 4, .seed = 9})}), "has seed 1, and this one has 9"));
}

TEST_CASE("the step from which a run would resume, without ranks") {
  Trial trial;
  CHECK_FALSE(checkpoint::saved_step(trial.place.string()));
  REQUIRE(trial.save(3) == "");
  REQUIRE(trial.save(7) == "");
  CHECK(checkpoint::saved_step(trial.place.string()) == 7);
  CHECK(checkpoint::saved_step((trial.place / "step-00000003").string()) == 3);
}
