// SPDX-License-Identifier: Apache-2.0
#pragma once
// The files of one job's flight recorders, read and checked: each is complete, written by weft, and belongs to the rank in its
// name; all belong to one job.
//
//   const Run run = read_all("records");   // UsageError, with the file and the reason

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/core/error.hpp>
#include <weft/core/input_file.hpp>
#include <weft/core/text.hpp>

namespace flight {

using weft::UsageError;
using weft::detail::InputFile;
using weft::detail::joined;
using json = nlohmann::json;

// A file of 1024 calls has 0.5 MB. The other limits bound the cost of files that no run has written.
inline constexpr std::uint64_t most_bytes = 16 << 20, most_entries = 1 << 16, most_communicators = 1 << 16, most_ranks = 100'000;
inline constexpr std::uint64_t most = std::uint64_t(1) << 62;
inline constexpr double after_the_end_s = 10, after_a_signal_s = 600;  // clocks may differ, and interrupted ranks continue
inline constexpr std::size_t longest_text = 300;

/// A communicator of a rank.
struct Line {
  const std::string* name = nullptr;
  std::uint64_t begun = 0;  // collectives
};

/// A call.
struct Entry {
  std::size_t line = 0;
  std::uint64_t step = 0;  // a collective's number
  const std::string* call = nullptr;
  bool message = false, send = false, open = false, timed = false;
  int peer = -1, tag = 0;  // -1: unknown
  std::int64_t begin_ns = 0, end_ns = 0;
};

/// The contents of one rank's file.
struct Flight {
  int rank = 0;
  std::uint64_t world = 0;
  std::string file, backend, version, reason;
  std::int64_t written_ns = 0, started_ns = 0;  // 0: unknown
  bool whole = true;                            // no call was overwritten by a later one
  std::vector<Line> lines;
  std::vector<Entry> entries;
  bool interrupted() const { return reason.find("interrupted by SIG") != reason.npos; }
  double age(const Entry& entry) const { return entry.timed ? double(written_ns - entry.begin_ns) * 1e-9 : 0; }
};

/// The contents of all files together. Repeated texts are stored once, in a set, whose elements do not move.
struct Run {
  std::map<int, Flight> flights;
  std::set<std::string> texts;
  std::map<std::string, std::vector<int>> members;  // by communicator, sorted
  std::uint64_t world() const { return flights.begin()->second.world; }
};

inline std::string printable(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  if (text.size() > longest_text) text.replace(longest_text, text.npos, "...");
  return text;
}

inline std::string seconds(double s) {
  char text[40];
  std::snprintf(text, sizeof text, s < 0.001 ? "%.6f s" : "%.3f s", s);
  return text;
}

// --- one file ----------------------------------------------------------------------------------------------------------------

/// Fields of a file's JSON; a missing one throws an error with its name.
struct Fields {
  const InputFile& file;
  std::string where;  // "entries[5]."

  const json& at(const json& object, const char* name) const {
    const auto found = object.find(name);
    if (found == object.end()) file.refuse({"it has no ", where, name});
    return *found;
  }
  std::int64_t number(const json& object, const char* name, std::int64_t least, std::uint64_t largest) const {
    const json& value = at(object, name);
    const bool whole = value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= most);
    if (!whole || value.get<std::int64_t>() < least || value.get<std::int64_t>() > std::int64_t(largest))
      file.refuse({where, name, " is no whole number from ", least, " to ", largest});
    return value.get<std::int64_t>();
  }
  std::string text(const json& object, const char* name) const {
    const json& value = at(object, name);
    if (!value.is_string()) file.refuse({where, name, " is no text"});
    return printable(value.get<std::string>());
  }
  bool flag(const json& object, const char* name) const {
    const json& value = at(object, name);
    if (!value.is_boolean()) file.refuse({where, name, " is neither true nor false"});
    return value.get<bool>();
  }
};

inline json parsed(const InputFile& file) {
  const std::string text = file.read();
  if (text.find('\0') != text.npos) file.refuse({"it is no JSON: it has a byte of value 0"});
  json root;
  try {
    root = json::parse(text);
  } catch (const json::exception& error) {  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    const std::string_view what = error.what();
    const std::size_t from = what.find("] ");
    file.refuse({"it is no JSON: ", printable(std::string(from == what.npos ? what : what.substr(from + 2)))});
  }
  if (!root.is_object() || root.value("format", json()) != "weft flight 1")
    file.refuse({"it is no record of this version's flight recorder: its format is not \"weft flight 1\""});
  return root;
}

inline void read_lines(const json& root, const InputFile& file, Flight& flight, Run& run) {
  const Fields fields{file, ""};
  const json &config = fields.at(root, "pg_config"), &status = fields.at(root, "pg_status");
  if (!config.is_object() || !status.is_object()) file.refuse({"pg_config or pg_status is no object"});
  if (config.size() > most_communicators)
    file.refuse({"it has ", config.size(), " communicators, at most ", most_communicators, " are read"});
  std::map<std::string, int> times;
  for (std::size_t k = 0; k < config.size(); ++k) {
    const std::string number = std::to_string(k);
    const Fields of_config{file, "pg_config." + number + "."}, of_status{file, "pg_status." + number + "."};
    const json &line = Fields{file, "pg_config."}.at(config, number.c_str()),
               &state = Fields{file, "pg_status."}.at(status, number.c_str());
    if (!line.is_object() || !state.is_object()) file.refuse({"pg_config.", number, " or pg_status.", number, " is no object"});
    std::string name = of_config.text(line, "name");
    if (const int before = times[name]++; before > 0) name += joined({" (", before + 1, ")"});  // of another recorder
    const json& ranks = of_config.at(line, "ranks");
    if (!ranks.is_array() || ranks.size() > flight.world) file.refuse({"pg_config.", number, ".ranks is no list of ranks"});
    std::vector<int> members;
    for (const json& rank : ranks) {
      if (!rank.is_number_unsigned() || rank.get<std::uint64_t>() >= flight.world)
        file.refuse({"pg_config.", number, ".ranks holds a number that is no rank of ", flight.world});
      members.push_back(rank.get<int>());
    }
    std::sort(members.begin(), members.end());
    if (std::adjacent_find(members.begin(), members.end()) != members.end() ||
        !std::binary_search(members.begin(), members.end(), flight.rank))
      file.refuse({"pg_config.", number, ".ranks holds a rank twice, or not its own"});
    const auto [place, first] = run.members.try_emplace(name, members);
    if (!first && place->second != members)
      file.refuse({"its communicator ", name, " has other ranks than another file's: they are of different jobs"});
    flight.lines.push_back({&place->first, std::uint64_t(of_status.number(state, "last_enqueued_collective", 0, most))});
  }
}

inline void read_entries(const json& root, const InputFile& file, Flight& flight, Run& run) {
  const json& entries = Fields{file, ""}.at(root, "entries");
  if (!entries.is_array()) file.refuse({"entries is no list"});
  if (entries.size() > most_entries) file.refuse({"it has ", entries.size(), " entries, at most ", most_entries, " are read"});
  std::int64_t before = 0;
  for (std::size_t k = 0; k < entries.size(); ++k) {
    const json& from = entries[k];
    const Fields fields{file, joined({"entries[", k, "]."})};
    if (!from.is_object()) file.refuse({"entries[", k, "] is no object"});
    Entry entry;
    const std::int64_t id = fields.number(from, "record_id", 0, most);
    if (k == 0 || id <= before) flight.whole = flight.whole && id == 0;  // false if the recorder's first call is missing
    before = id;
    if (flight.lines.empty()) file.refuse({"it has calls and no communicator"});
    entry.line = std::size_t(fields.number(from, "pg_id", 0, flight.lines.size() - 1));
    entry.call = &*run.texts.insert(fields.text(from, "call")).first;
    entry.message = fields.flag(from, "is_p2p");
    const std::string state = fields.text(from, "state");
    if (state != "started" && state != "completed") file.refuse({fields.where, "state is '", state, "'"});
    entry.open = state == "started";
    if (entry.message) {
      const std::string name = fields.text(from, "profiling_name");
      entry.send = name == "weft:send";
      if (!entry.send && name != "weft:recv") file.refuse({fields.where, "profiling_name is '", name, "', no message's"});
      entry.peer = int(fields.number(from, "peer", -1, flight.world - 1));
      entry.tag = int(fields.number(from, "tag", INT32_MIN, INT32_MAX));
    } else {
      entry.step = std::uint64_t(fields.number(from, "collective_seq_id", 1, flight.lines[entry.line].begun));
    }
    entry.timed = from.contains("time_created_ns");
    if (entry.timed) entry.begin_ns = fields.number(from, "time_created_ns", 0, most);
    if (entry.timed && !entry.open) entry.end_ns = fields.number(from, "time_discovered_completed_ns", 0, most);
    flight.entries.push_back(entry);
  }
}

inline void read(const std::string& path, int rank, Run& run) {
  const InputFile file("flight", path, "flight recorder's file", most_bytes);
  const json root = parsed(file);
  const Fields fields{file, ""};
  Flight flight;
  flight.file = path;
  flight.world = std::uint64_t(fields.number(root, "world_size", 1, most_ranks));
  flight.rank = int(fields.number(root, "rank", 0, flight.world - 1));
  if (flight.rank != rank) file.refuse({"it is of rank ", flight.rank, ", and its name of rank ", rank});
  flight.backend = fields.text(root, "backend");
  flight.version = fields.text(root, "weft");
  flight.reason = fields.text(root, "reason");
  flight.written_ns = fields.number(root, "time_written_ns", 0, most);
  if (root.contains("time_started_ns")) flight.started_ns = fields.number(root, "time_started_ns", 0, most);
  if (!run.flights.empty()) {
    const Flight& first = run.flights.begin()->second;
    if (first.world != flight.world || first.backend != flight.backend || first.version != flight.version)
      file.refuse({"it is of a job of ", flight.world, " ranks over ", flight.backend, " with weft ", flight.version, ", and ",
                   first.file, " of one of ", first.world, " over ", first.backend, " with weft ", first.version});
  }
  read_lines(root, file, flight, run);
  read_entries(root, file, flight, run);
  run.flights.emplace(rank, std::move(flight));
}

// --- all of them -------------------------------------------------------------------------------------------------------------

/// The rank in weft_flight_RANK.json, or -1.
inline int rank_of_name(std::string_view name) {
  constexpr std::string_view before = "weft_flight_", after = ".json";
  if (!name.starts_with(before) || !name.ends_with(after) || name.size() <= before.size() + after.size()) return -1;
  name = name.substr(before.size(), name.size() - before.size() - after.size());
  if (name.size() > 6 || (name.size() > 1 && name[0] == '0')) return -1;
  if (name.find_first_not_of("0123456789") != name.npos) return -1;
  return std::stoi(std::string(name));
}

/// Refuses a file of an earlier job: it was written before another rank of this job began, or its rank takes part in a collective
/// that ended after it.
inline void refuse_older_jobs(const Run& run) {
  const auto refuse = [](const Flight& older, double seconds_late, weft::detail::Words what) {
    weft::throw_error<UsageError>({"flight: cannot read '", older.file, "': it was written ", seconds(seconds_late), " before ",
                                   joined(what), ": it is of an earlier job. Give each job an empty folder"});
  };
  const auto before = [](const Flight& one, const Flight& other) { return one.written_ns < other.written_ns; };
  std::map<const std::string*, const Flight*> earliest;  // by communicator
  const Flight* first = nullptr;
  for (const auto& [rank, flight] : run.flights) {
    if (first == nullptr || before(flight, *first)) first = &flight;
    for (const Line& line : flight.lines)
      if (const Flight*& one = earliest[line.name]; one == nullptr || before(flight, *one)) one = &flight;
  }
  for (const auto& [rank, flight] : run.flights) {
    const double late_s = double(flight.started_ns - first->written_ns) * 1e-9;
    if (late_s > after_the_end_s) refuse(*first, late_s, {"rank ", rank, " began"});
    for (const Entry& entry : flight.entries) {
      // In a broadcast, reduce, gather or scatter a rank may finish before others have begun.
      const bool of_all =
          entry.call->starts_with("all_") || entry.call->starts_with("reduce_scatter") || *entry.call == "barrier()";
      if (entry.message || entry.open || !entry.timed || !of_all) continue;
      const Flight& other = *earliest.at(flight.lines[entry.line].name);
      const double after_s = double(entry.end_ns - other.written_ns) * 1e-9;
      if (after_s > (other.interrupted() ? after_a_signal_s : after_the_end_s))
        refuse(other, after_s, {"rank ", rank, " completed ", *entry.call, " with rank ", other.rank});
    }
  }
}

/// The lines of an elastic run about changes of its ranks; none of another run.
inline std::vector<std::string> changes_of(const std::string& folder) {
  std::vector<std::string> texts;
  const std::string path = (std::filesystem::path(folder) / "weft_worlds.jsonl").string();
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return texts;
  const InputFile file("flight", path, "record of an elastic run's ranks", most_bytes);
  std::istringstream lines(file.read());
  const Fields fields{file, ""};
  for (std::string line; std::getline(lines, line);) {
    const json change = json::parse(line, nullptr, false);
    if (!change.is_object()) file.refuse({"line ", texts.size() + 1, " is no JSON object"});
    const std::int64_t world = fields.number(change, "world", 2, most);
    std::string text = joined({"world ", world, ": ", fields.text(change, "text")});
    const std::filesystem::path former = std::filesystem::path(folder) / joined({"world_", world - 1});
    if (std::filesystem::exists(former, error)) text += joined({" (files of the ranks before: ", former.string(), ")"});
    texts.push_back(std::move(text));
  }
  return texts;
}

/// The files of the ranks in a folder, by rank.
inline std::map<int, std::string> rank_files(const std::string& folder) {
  std::error_code error;
  std::map<int, std::string> files;
  std::filesystem::directory_iterator at(folder, error);
  for (const std::filesystem::directory_iterator end; !error && at != end; at.increment(error)) {
    const int rank = rank_of_name(at->path().filename().string());
    if (rank >= 0) files.emplace(rank, at->path().string());
    if (files.size() > most_ranks)
      weft::throw_error<UsageError>({"flight: '", folder, "' holds files of more than ", most_ranks, " ranks"});
  }
  if (error) weft::throw_error<UsageError>({"flight: cannot read the folder '", folder, "': ", error.message()});
  return files;
}

inline Run read_all(const std::string& folder) {
  const std::map<int, std::string> files = rank_files(folder);
  if (files.empty())
    weft::throw_error<UsageError>({"flight: '", folder,
                                   "' holds no weft_flight_RANK.json: a run writes them when it fails, if WEFT_FLIGHT_DIR names "
                                   "a folder"});
  Run run;
  for (const auto& [rank, file] : files) read(file, rank, run);
  refuse_older_jobs(run);
  return run;
}

}  // namespace flight
