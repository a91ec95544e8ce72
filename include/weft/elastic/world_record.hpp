// SPDX-License-Identifier: Apache-2.0
#pragma once
// The changes of an elastic run's ranks, in the folder of the flight recorder (comm/flight_file.hpp): a line of
// DIR/weft_worlds.jsonl for each, with the lost ranks and their reasons, the step, and the ranks that go on. Before the new world
// begins, the recorders' files of the former one move to DIR/world_N, so that each folder has the files of one world.
// `./examples/run flight DIR` reads both.
//
//   record_change({.generation = 1, .step = 12, .ranks = 3, .lost = {2}, .text = "rank 2 was lost (...)"});

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <weft/comm/flight_file.hpp>
#include <weft/core/json_writer.hpp>
#include <weft/core/output_file.hpp>
#include <weft/core/text.hpp>

namespace weft::elastic::detail {

/// The end of one world, and the beginning of the next.
struct Change {
  std::uint64_t generation = 0;  ///< of the new world; the first world of a run has 0
  std::uint64_t step = 0;        ///< the newest step that was finished before
  int ranks = 0;                 ///< of the new world
  std::vector<int> lost = {};    ///< numbers in the former world, or RANKs of processes; empty: ranks join
  std::string text = {};         ///< as printed
};

/// The recorders' files in a folder; none if it cannot be read.
inline std::vector<std::filesystem::path> flight_files(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("weft_flight_") && name.ends_with(".json")) files.push_back(at->path());
  }
  return files;
}

/// The first change of a run removes the records of earlier runs. Does nothing without WEFT_FLIGHT_DIR. A folder that cannot be
/// written does not end the run: the record is then missing.
inline void record_change(const Change& change) noexcept try {
  const char* const folder = comm::detail::flight_folder();
  if (folder == nullptr) return;
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path place = folder, former = place / weft::detail::joined({"world_", change.generation});
  fs::create_directory(place, error);
  if (change.generation == 1) {  // what follows is of this run
    fs::remove(place / "weft_worlds.jsonl", error);
    for (int world = 1; fs::is_directory(place / weft::detail::joined({"world_", world}), error); ++world)
      for (const fs::path& file : flight_files(place / weft::detail::joined({"world_", world}))) fs::remove(file, error);
  }
  const std::vector<fs::path> files = flight_files(place);
  if (!files.empty()) fs::create_directory(former, error);
  for (const fs::path& file : files) fs::rename(file, former / file.filename(), error);
  weft::detail::JsonWriter json;
  json.object().member("world", change.generation + 1).member("ranks", change.ranks).member("step", change.step);
  json.key("lost").array();
  for (const int rank : change.lost) json.value(rank);
  json.end().member("text", change.text);
  json.member("time_ns",
              std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count());
  json.end();
  using weft::detail::OutputFile;
  OutputFile file(comm::flight_variable, (place / "weft_worlds.jsonl").string(), OutputFile::Earlier::stay);
  file.write(json.text() + "\n");
  file.finish();
} catch (...) {}

}  // namespace weft::elastic::detail
