// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/flight_file.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <weft/comm/flight_file.hpp>
#include <weft/comm/flight_recorder.hpp>
#include <weft/core/error.hpp>
#include <weft/core/hash.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/json_writer.hpp>
#include <weft/core/output_file.hpp>
#include <weft/core/uninterrupted.hpp>
#include <weft/core/version.hpp>

namespace weft::comm {

namespace detail {

WEFT_COLD WEFT_INLINE const char* flight_folder() {
  const char* folder = std::getenv(flight_variable);
  return folder != nullptr && *folder != '\0' ? folder : nullptr;
}

/// Throws UsageError for a name of a rank's file in the folder that is no regular file.
WEFT_COLD WEFT_INLINE void require_flight_files(const char* folder) {
  const std::unique_ptr<::DIR, int (*)(::DIR*)> names(::opendir(folder), [](::DIR* open) { return ::closedir(open); });
  while (const ::dirent* const entry = names ? ::readdir(names.get()) : nullptr) {
    const std::string_view name = static_cast<const char*>(entry->d_name);
    if (name.starts_with("weft_flight_") && name.ends_with(".json"))
      weft::detail::require_output(flight_variable, weft::detail::joined({folder, "/", name}));
  }
}

WEFT_COLD WEFT_INLINE void require_flight_folder() {
  const char* const folder = flight_folder();
  if (folder == nullptr) return;
  std::string place = folder;
  if (::access(folder, F_OK) != 0 && errno == ENOENT) {  // write_flight_file makes it
    while (place.size() > 1 && place.back() == '/') place.pop_back();
    const std::size_t slash = place.rfind('/');
    place = slash == std::string::npos ? "." : place.substr(0, slash + 1);
  }
  struct stat found {};
  const bool there = ::stat(place.c_str(), &found) == 0;
  if (there && !S_ISDIR(found.st_mode)) errno = ENOTDIR;
  if (!there || !S_ISDIR(found.st_mode) || ::access(place.c_str(), W_OK | X_OK) != 0)
    throw_error<UsageError>({"environment variable ", flight_variable, " is '", std::string_view(folder).substr(0, 80),
                             "', which cannot be a folder for files of this run: ", std::strerror(errno)});
  require_flight_files(folder);
}

/// Never destroyed: ranks that are left alone may outlive the program's end.
struct FlightRegistry {
  std::mutex mutex;
  std::vector<FlightRecorder*> all;
  static FlightRegistry& get() {
    static FlightRegistry& registry = *new FlightRegistry;
    return registry;
  }
};

WEFT_COLD WEFT_INLINE void FlightRecorders::add(FlightRecorder& recorder) {
  FlightRegistry& registry = FlightRegistry::get();
  const std::lock_guard lock(registry.mutex);
  registry.all.push_back(&recorder);
}

WEFT_COLD WEFT_INLINE void FlightRecorders::remove(FlightRecorder& recorder) {
  FlightRegistry& registry = FlightRegistry::get();
  const std::lock_guard lock(registry.mutex);
  std::erase(registry.all, &recorder);
}

WEFT_COLD WEFT_INLINE std::vector<FlightRecorders::File> FlightRecorders::files(std::string_view reason, int rank,
                                                                                FlightFiles which) {
  FlightRegistry& registry = FlightRegistry::get();
  const std::lock_guard lock(registry.mutex);
  std::vector<int> ranks;
  for (const FlightRecorder* one : registry.all)
    if ((rank < 0 || one->rank() == rank) && (which == FlightFiles::all || !one->written())) ranks.push_back(one->rank());
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::vector<File> all;
  for (const int r : ranks) {
    std::vector<FlightRecorder*> of_rank;
    for (FlightRecorder* one : registry.all)
      if (one->rank() == r) of_rank.push_back(one), one->written(rank == r);
    all.push_back({r, flight_json(of_rank, reason)});
  }
  return all;
}

/// "dp[0,2].3", by the communicator's axis, ranks and number, which is left out if it is 0: the same on all of its ranks. The
/// first ranks of many and a digest, since each entry has the name.
WEFT_COLD inline std::string name_of_line(const FlightRecorder::Line& line) {
  std::string name = line.axis + "[";
  const std::size_t ranks = line.ranks.size(), most = ranks > 16 ? 4 : ranks;
  for (std::size_t k = 0; k < most; ++k) weft::detail::append_to(name, {k == 0 ? "" : ",", line.ranks[k]});
  if (most < ranks)
    weft::detail::append_to(name,
                            {",..;", ranks, ";", weft::detail::hash_bytes(line.ranks.data(), ranks * sizeof(int)) % 1000000});
  name += "]";
  if (line.number != 0) weft::detail::append_to(name, {".", line.number});
  return name;
}

WEFT_COLD WEFT_INLINE std::string flight_json(const std::vector<FlightRecorder*>& recorders, std::string_view reason) {
  const FlightRecorder& first = *recorders.front();
  const FlightClock::Scale now = first.clock().now();
  weft::detail::JsonWriter json;
  json.object().member("format", "weft flight 1");
  json.member("weft", version());
  json.member("rank", first.rank()).member("world_size", first.world()).member("backend", first.backend());
  json.member("pid", long(::getpid())).member("reason", reason.substr(0, 4000));
  json.member("time_started_ns", first.clock().first().wall_ns).member("time_written_ns", now.last().wall_ns);
  json.member("monotonic_written_ns", now.last().steady_ns);
  // Communicators of several recorders have indices one after the other.
  struct Rank {
    std::vector<FlightRecorder::Line> lines;
    std::vector<FlightRecorder::Record> records;
    std::uint64_t before = 0;  // the indices of earlier recorders
    bool timed = false;
  };
  std::vector<Rank> ranks;
  for (const FlightRecorder* recorder : recorders) {
    const std::uint64_t before =
        ranks.empty() ? 0 : ranks.back().before + (ranks.back().lines.empty() ? 0 : ranks.back().lines.back().index + 1);
    std::vector<FlightRecorder::Record> records = recorder->records();  // first: each has its line
    ranks.push_back({recorder->lines(), std::move(records), before, recorder->timed()});
  }
  json.line().key("pg_config").object();
  for (const Rank& rank : ranks)
    for (const FlightRecorder::Line& line : rank.lines) {
      json.line().key(weft::detail::joined({rank.before + line.index})).object();
      json.member("name", name_of_line(line)).member("desc", line.axis).key("ranks").array();
      for (const int one : line.ranks) json.value(one);
      json.end().end();
    }
  json.end().line().key("pg_status").object();
  for (const Rank& rank : ranks)
    for (const FlightRecorder::Line& line : rank.lines) {
      std::uint64_t completed = line.collectives;
      for (const auto& record : rank.records)
        if (record.line == line.index && record.end == 0 && !is_point_to_point(Operation(record.signature & 0xff)))
          completed = std::min(completed, record.step - 1);
      json.line().key(weft::detail::joined({rank.before + line.index})).object();
      json.member("last_enqueued_collective", line.collectives).member("last_completed_collective", completed).end();
    }
  json.end().line().key("entries").array();
  for (const Rank& rank : ranks)
    for (const FlightRecorder::Record& record : rank.records) {
      const auto known = std::ranges::lower_bound(rank.lines, record.line, {}, &FlightRecorder::Line::index);
      if (known == rank.lines.end() || known->index != record.line) continue;
      const auto operation = Operation(record.signature & 0xff);
      const bool message = is_point_to_point(operation), done = record.end != 0;
      json.line().object().member("record_id", record.number).member("pg_id", rank.before + record.line);
      json.key("process_group").array().value(name_of_line(*known)).value(known->axis).end();
      json.member("collective_seq_id", message ? 0 : record.step).member("p2p_seq_id", message ? record.step : 0);
      json.member("op_id", record.sequence).member("profiling_name", weft::detail::joined({"weft:", name_of(operation)}));
      json.member("call", describe(record.signature, record.count)).member("function", name_of(function_of(record.signature)));
      if (operation != Operation::barrier && operation != Operation::split) {
        json.key("input_sizes").array().array().value(record.count).end().end();
        json.key("input_dtypes").array().value(name_of(DataType(record.signature >> 8 & 0xff))).end();
      }
      if (message) json.member("peer", record.peer).member("tag", std::int32_t(record.signature >> 32));
      json.member("is_p2p", message).member("state", done ? "completed" : "started");
      if (rank.timed) {
        json.member("time_created_ns", now.wall_ns(record.begin)).member("monotonic_created_ns", now.steady_ns(record.begin));
        json.key("time_discovered_completed_ns");
        if (done) {
          const auto time = now.wall_ns(record.end) - now.wall_ns(record.begin);
          json.value(now.wall_ns(record.end)).member("duration_ms", double(time) * 1e-6);
        } else {
          json.null();
        }
      }
      json.end();
    }
  return json.line().end().end().text() + '\n';
}

WEFT_COLD WEFT_INLINE bool write_flight_file(const std::string& folder, int rank, std::string_view text) noexcept try {
  using weft::detail::uninterrupted;
  (void)uninterrupted([&] { return ::mkdir(folder.c_str(), 0700); });
  const std::string path = weft::detail::joined({folder, "/weft_flight_", rank, ".json"});
  weft::detail::require_output(flight_variable, path);
  const std::string made = weft::detail::joined({folder, "/.weft_flight_", rank, ".", long(::getpid())});
  (void)uninterrupted([&] { return ::unlink(made.c_str()); });
  const int file =
      uninterrupted([&] { return ::open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600); });
  if (file < 0) return false;
  bool good = true;
  while (good && !text.empty()) {
    const ::ssize_t written = ::write(file, text.data(), text.size());
    if (written > 0) text.remove_prefix(std::size_t(written));
    else good = written < 0 && errno == EINTR;
  }
  good = (::close(file) == 0 || errno == EINTR) && good;
  good = good && uninterrupted([&] { return ::rename(made.c_str(), path.c_str()); }) == 0;
  if (!good) (void)::unlink(made.c_str());
  return good;
} catch (...) {
  return false;
}

}  // namespace detail

WEFT_COLD WEFT_INLINE int write_flights(std::string_view reason, int rank, FlightFiles which) noexcept try {
  const char* folder = detail::flight_folder();
  if (folder == nullptr) return 0;
  struct Work {
    std::string folder;
    std::vector<detail::FlightRecorders::File> files;
    std::mutex mutex;
    std::condition_variable ended;
    int written = 0;
    bool done = false;
  };
  const auto work = std::make_shared<Work>();
  work->folder = folder;
  work->files = detail::FlightRecorders::files(reason, rank, which);
  if (work->files.empty()) return 0;
  // A thread of its own: a network's file system may never answer, and whoever asks has an error to report.
  std::thread([work] {
    int written = 0;
    for (const auto& file : work->files) written += detail::write_flight_file(work->folder, file.rank, file.text);
    const std::lock_guard lock(work->mutex);
    work->written = written;
    work->done = true;
    work->ended.notify_all();
  }).detach();
  std::unique_lock lock(work->mutex);
  work->ended.wait_for(lock, std::chrono::seconds(2), [&] { return work->done; });
  return work->written;
} catch (...) {
  return 0;
}

WEFT_COLD WEFT_INLINE std::string flight_hint() {
  const char* folder = detail::flight_folder();
  if (folder == nullptr) return weft::detail::joined({" (", flight_variable, "=FOLDER keeps the last calls of every rank)"});
  return weft::detail::joined({" (the last calls of every rank: ./examples/run flight ", folder, ")"});
}

}  // namespace weft::comm
