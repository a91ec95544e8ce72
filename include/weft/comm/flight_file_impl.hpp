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

/// A JSON string. Bytes that are no printable ASCII become "?": names come from programs.
WEFT_COLD inline std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c < ' ' || c > '~' ? '?' : c;
  }
  return out += '"';
}

/// "dp[0,2].3", by the communicator's axis, ranks and number, which is left out if it is 0: the same on all of its ranks. Of many
/// ranks the first ones and a digest, for each entry has the name.
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
  using weft::detail::append_to;
  const FlightRecorder& first = *recorders.front();
  const FlightClock::Scale now = first.clock().now();
  std::string out;
  append_to(out, {"{\"format\":\"weft flight 1\",\"weft\":\"",
                  WEFT_VERSION_MAJOR,
                  ".",
                  WEFT_VERSION_MINOR,
                  ".",
                  WEFT_VERSION_PATCH,
                  "\",\"rank\":",
                  first.rank(),
                  ",\"world_size\":",
                  first.world(),
                  ",\"backend\":",
                  json_text(first.backend()),
                  ",\"pid\":",
                  long(::getpid()),
                  ",\"reason\":",
                  json_text(reason.substr(0, 4000)),
                  ",\"time_started_ns\":",
                  first.clock().first().wall_ns,
                  ",\"time_written_ns\":",
                  now.last().wall_ns,
                  ",\"monotonic_written_ns\":",
                  now.last().steady_ns,
                  ",\n\"pg_config\":{"});
  // Communicators of several recorders have indices one after the other.
  std::vector<std::vector<FlightRecorder::Line>> lines;
  std::vector<std::vector<FlightRecorder::Record>> records;
  std::string status;
  std::uint64_t before = 0;
  for (const FlightRecorder* recorder : recorders) {
    records.push_back(recorder->records());
    lines.push_back(recorder->lines());
    for (const FlightRecorder::Line& line : lines.back()) {
      std::uint64_t enqueued = line.collectives, completed = enqueued;
      for (const auto& record : records.back())
        if (record.line == line.index && record.end == 0 && !is_point_to_point(Operation(record.signature & 0xff)))
          completed = std::min(completed, record.step - 1);
      std::string ranks;
      for (const int rank : line.ranks) append_to(ranks, {ranks.empty() ? "" : ",", rank});
      const char* comma = status.empty() ? "\n" : ",\n";
      append_to(out, {comma, "\"", before + line.index, "\":{\"name\":", json_text(name_of_line(line)),
                      ",\"desc\":", json_text(line.axis), ",\"ranks\":[", ranks, "]}"});
      append_to(status, {comma, "\"", before + line.index, "\":{\"last_enqueued_collective\":", enqueued,
                         ",\"last_completed_collective\":", completed, "}"});
    }
    if (!lines.back().empty()) before += lines.back().back().index + 1;
  }
  append_to(out, {"},\n\"pg_status\":{", status, "},\n\"entries\":["});
  before = 0;
  bool any = false;
  for (std::size_t k = 0; k < recorders.size(); ++k) {
    for (const FlightRecorder::Record& record : records[k]) {
      const auto known = std::ranges::lower_bound(lines[k], record.line, {}, &FlightRecorder::Line::index);
      if (known == lines[k].end() || known->index != record.line) continue;
      const FlightRecorder::Line& line = *known;
      const auto operation = Operation(record.signature & 0xff);
      const bool message = is_point_to_point(operation), done = record.end != 0;
      append_to(out, {any ? ",\n" : "\n",
                      "{\"record_id\":",
                      record.number,
                      ",\"pg_id\":",
                      before + record.line,
                      ",\"process_group\":[",
                      json_text(name_of_line(line)),
                      ",",
                      json_text(line.axis),
                      "],\"collective_seq_id\":",
                      message ? 0 : record.step,
                      ",\"p2p_seq_id\":",
                      message ? record.step : 0,
                      ",\"op_id\":",
                      record.sequence,
                      ",\"profiling_name\":\"weft:",
                      name_of(operation),
                      "\",\"call\":",
                      json_text(describe(record.signature, record.count)),
                      ",\"function\":",
                      json_text(name_of(function_of(record.signature)))});
      if (operation != Operation::barrier && operation != Operation::split)
        append_to(out, {",\"input_sizes\":[[", record.count, "]],\"input_dtypes\":[\"",
                        name_of(DataType(record.signature >> 8 & 0xff)), "\"]"});
      if (message) append_to(out, {",\"peer\":", record.peer, ",\"tag\":", std::int32_t(record.signature >> 32)});
      append_to(out, {",\"is_p2p\":", message ? "true" : "false", ",\"state\":\"", done ? "completed" : "started", "\""});
      if (recorders[k]->timed()) {
        append_to(out, {",\"time_created_ns\":", now.wall_ns(record.begin),
                        ",\"monotonic_created_ns\":", now.steady_ns(record.begin), ",\"time_discovered_completed_ns\":"});
        if (done) {
          char milliseconds[40];
          std::snprintf(milliseconds, sizeof milliseconds, "%.6f",
                        double(now.wall_ns(record.end) - now.wall_ns(record.begin)) * 1e-6);
          append_to(out, {now.wall_ns(record.end), ",\"duration_ms\":", milliseconds});
        } else {
          out += "null";
        }
      }
      out += "}";
      any = true;
    }
    if (!lines[k].empty()) before += lines[k].back().index + 1;
  }
  return out += "]}\n";
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
