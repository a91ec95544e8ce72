// SPDX-License-Identifier: Apache-2.0
#pragma once
// The recorder of a step trace, Kokkos' callbacks and the file. Definitions for runtime/step_trace.hpp.

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <weft/comm/this_host.hpp>
#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/json_writer.hpp>
#include <weft/core/output_file.hpp>
#include <weft/runtime/step_trace.hpp>

namespace weft::runtime {

WEFT_COLD WEFT_INLINE TraceOptions TraceOptions::parse(std::string_view text) {
  TraceOptions options{.folder = std::string(text)};
  const auto refuse = [&](std::string_view why) {
    throw_error<UsageError>({"environment variable WEFT_TRACE is '", text.substr(0, 80), "': ", why});
  };
  constexpr std::string_view form = "FOLDER, FOLDER:STEP or FOLDER:FIRST-LAST is expected";
  const std::size_t colon = text.rfind(':');
  const std::string_view steps = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  if (colon != std::string_view::npos && steps.find_first_not_of("0123456789-") == std::string_view::npos) {
    const char* const end = steps.data() + steps.size();
    auto read = std::from_chars(steps.data(), end, options.first);
    options.last = options.first;
    if (read.ec == std::errc{} && read.ptr != end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, options.last);
    if (read.ec != std::errc{} || read.ptr != end) refuse(form);
    options.folder = text.substr(0, colon);
  }
  if (options.folder.empty()) refuse(form);
  if (options.first > options.last) refuse("the first step is above the last");
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  if (error) refuse("the folder cannot be made: " + error.message());
  if (std::filesystem::exists(options.folder + "/trace.json", error))
    refuse("the folder holds a trace (trace.json): name another folder, or remove it");
  return options;
}

WEFT_COLD WEFT_INLINE std::optional<TraceOptions> TraceOptions::from_environment() {
  const char* const text = std::getenv("WEFT_TRACE");
  return text == nullptr || *text == '\0' ? std::nullopt : std::optional(parse(text));
}

namespace detail {

using TraceClock = std::chrono::steady_clock;

struct StepTrace::Recorder {
  enum class Kind : std::uint8_t { region, kernel, copy, fence };
  struct Event {
    std::uint32_t name;
    Kind kind;
    TraceClock::time_point begin, end;
    double bytes;  // of a message; below 0: it is none
  };
  struct Memory {
    TraceClock::time_point at;
    MemoryUse use;
  };
  struct Open {
    std::uint32_t name;
    Kind kind;
    bool recorded;
    TraceClock::time_point begin;
    double bytes = -1;
  };
  /// The begin or the end of a message or a collective on this rank.
  struct Point {
    enum Kind : std::uint64_t { sent, received, called, returned };
    std::uint64_t key;  // the same on all ranks of a call, and no other's
    std::uint64_t kind, rank;
    double at;  // microseconds
  };
  static_assert(sizeof(Point) == 32);

  TraceOptions options;
  std::function<MemoryUse()> use;
  TraceClock::time_point origin;
  std::unordered_map<std::string, std::uint32_t> numbers;
  std::vector<std::string> names;
  std::vector<Open> open;
  std::vector<Event> events;
  std::vector<Memory> memory;
  std::vector<Point> points;
  std::unordered_map<std::uint64_t, std::pair<std::uint64_t, bool>> under_way;  // calls by number: key, whether it is a message
  std::unordered_map<std::uint64_t, std::uint64_t> messages;                    // of a channel so far
  int rank = 0;
  std::size_t dropped = 0;
  bool active = false;

  std::uint32_t number_of(const char* name) {
    const auto [at, is_new] = numbers.try_emplace(name, std::uint32_t(names.size()));
    if (is_new) names.emplace_back(name);
    return at->second;
  }
  void begin(const char* name, Kind kind) {
    if (kind == Kind::region && std::string_view(name).starts_with("step ")) {
      std::uint64_t step = 0;
      const char* const end = name + std::string_view(name).size();
      if (std::from_chars(name + 5, end, step).ptr == end) active = step >= options.first && step <= options.last;
    }
    open.push_back({active ? number_of(name) : 0, kind, active, active ? TraceClock::now() : TraceClock::time_point()});
  }
  void end() {
    if (open.empty()) return;
    const Open one = open.back();
    open.pop_back();
    if (!one.recorded) return;
    if (events.size() == most_events) {
      ++dropped;
      return;
    }
    const auto now = TraceClock::now();
    events.push_back({one.name, one.kind, one.begin, now, one.bytes});
    if (one.kind == Kind::region) memory.push_back({now, use()});
  }

  static std::uint64_t mixed(std::initializer_list<std::uint64_t> words) {
    std::uint64_t hash = 0;
    for (const std::uint64_t word : words) {
      hash = (hash ^ word) * 0x9e3779b97f4a7c15;
      hash ^= hash >> 29;
    }
    return hash;
  }

  // A mark of Communicator. Messages of a channel are counted in steps that are not recorded, too: both ranks count them.
  void mark(const char* text) {
    unsigned long long call = 0, communicator = 0;
    long long number = 0;
    double bytes = 0;
    int from = 0, to = 0, tag = 0;
    if (std::sscanf(text, "weft done %llu", &call) == 1) {
      const auto at = under_way.find(call);
      if (at == under_way.end()) return;
      if (active) point(at->second.first, at->second.second ? Point::received : Point::returned);
      under_way.erase(at);
    } else if (std::sscanf(text, "weft call %llu: %lf bytes, communicator %llu, %lld, from %d to %d, tag %d", &call, &bytes,
                           &communicator, &number, &from, &to, &tag) == 7) {
      if (!open.empty()) open.back().bytes = bytes;
      const bool message = number < 0, sends = message && from == rank;
      std::uint64_t key =
          mixed({communicator, std::uint64_t(number), std::uint64_t(from), std::uint64_t(to), std::uint64_t(tag)});
      if (message) key = mixed({key, ++messages[mixed({key, std::uint64_t(sends)})]});
      if (active && (sends || !message)) point(key, sends ? Point::sent : Point::called);
      if (!sends) under_way[call] = {key, message};
    }
  }
  void point(std::uint64_t key, std::uint64_t kind) {
    if (points.size() < most_events) points.push_back({key, kind, std::uint64_t(rank), microseconds(TraceClock::now())});
  }

  /// Arrows between ranks, as elements with a comma before each: from a send to the end of its receive, and from the last rank
  /// that called a collective to its end on all others.
  static std::string flows(std::vector<Point> all) {
    std::stable_sort(all.begin(), all.end(), [](const Point& a, const Point& b) { return a.key < b.key; });
    std::string text;
    std::uint64_t number = 0;
    const auto end = [&](const Point& one, const char* phase) {
      weft::detail::JsonWriter json(15);
      json.object().member("name", one.kind <= Point::received ? "message" : "collective").member("cat", "flow");
      json.member("ph", phase).member("id", number).member("pid", one.rank).member("tid", 0).member("ts", one.at);
      if (*phase == 'f') json.member("bp", "e");
      text += ",\n" + json.end().text();
    };
    for (std::size_t first = 0, next = 0; first < all.size(); first = next) {
      const Point* from = nullptr;
      for (next = first; next < all.size() && all[next].key == all[first].key; ++next)
        if ((all[next].kind == Point::sent || all[next].kind == Point::called) && (from == nullptr || all[next].at > from->at))
          from = &all[next];
      for (std::size_t i = first; from != nullptr && i < next; ++i)
        if ((all[i].kind == Point::received || all[i].kind == Point::returned) && all[i].rank != from->rank &&
            from->at <= all[i].at) {
          ++number;
          end(*from, "s");
          end(all[i], "f");
        }
    }
    return text;
  }

  double microseconds(TraceClock::time_point at) const { return std::chrono::duration<double, std::micro>(at - origin).count(); }

  /// The events of this rank, as the elements of a JSON array, each with a comma before it.
  std::string json(int rank) const {
    std::string text;
    const auto element = [&](auto&& fill) {
      weft::detail::JsonWriter json(15);
      fill(json.object());
      text += ",\n" + json.end().text();
    };
    element([&](auto& json) {
      json.member("name", "process_name").member("ph", "M").member("pid", rank).key("args").object();
      json.member("name", "rank " + std::to_string(rank)).end();
    });
    element([&](auto& json) {
      json.member("name", "process_sort_index").member("ph", "M").member("pid", rank).key("args").object();
      json.member("sort_index", rank).end();
    });
    constexpr const char* categories[] = {"region", "kernel", "copy", "fence"};
    for (const Event& event : events)
      element([&](auto& json) {
        json.member("name", names[event.name]).member("cat", categories[int(event.kind)]).member("ph", "X").member("pid", rank);
        json.member("tid", 0).member("ts", microseconds(event.begin));
        json.member("dur", std::chrono::duration<double, std::micro>(event.end - event.begin).count());
        if (event.bytes >= 0) json.key("args").object().member("bytes", event.bytes).end();
      });
    for (const Memory& one : memory)
      element([&](auto& json) {
        json.member("name", "memory, bytes").member("ph", "C").member("pid", rank).member("ts", microseconds(one.at));
        json.key("args").object();
        for (std::size_t k = 0; k < weft::detail::memory_categories; ++k)
          json.member(name_of(MemoryCategory(k)), one.use.by_category[k]);
        json.end();
      });
    return text;
  }
};

/// The recorder of the rank whose thread this is, or null.
inline thread_local StepTrace::Recorder* rank_recorder = nullptr;

WEFT_COLD WEFT_INLINE void observe_for_traces() {
  namespace tools = Kokkos::Tools::Experimental;
  static bool ours = false;  // in an earlier run of this process
  if (!ours && Kokkos::Tools::profileLibraryLoaded())
    throw UsageError("WEFT_TRACE beside a Kokkos tool (KOKKOS_TOOLS_LIBS): Kokkos serves one of them; unset the other");
  ours = true;
  using Kind = StepTrace::Recorder::Kind;
  const auto end = [] {
    if (rank_recorder != nullptr) rank_recorder->end();
  };
  const auto end_kernel = [](const std::uint64_t) {
    if (rank_recorder != nullptr) rank_recorder->end();
  };
  const auto begin_kernel = [](const char* name, const std::uint32_t, std::uint64_t*) {
    if (rank_recorder != nullptr) rank_recorder->begin(name, Kind::kernel);
  };
  tools::set_push_region_callback([](const char* name) {
    if (rank_recorder != nullptr) rank_recorder->begin(name, Kind::region);
  });
  tools::set_pop_region_callback(end);
  tools::set_profile_event_callback([](const char* text) {
    if (rank_recorder != nullptr) rank_recorder->mark(text);
  });
  tools::set_begin_parallel_for_callback(begin_kernel);
  tools::set_end_parallel_for_callback(end_kernel);
  tools::set_begin_parallel_reduce_callback(begin_kernel);
  tools::set_end_parallel_reduce_callback(end_kernel);
  tools::set_begin_parallel_scan_callback(begin_kernel);
  tools::set_end_parallel_scan_callback(end_kernel);
  // Kokkos' own fences around kernels, for tools, belong to those kernels.
  tools::set_begin_fence_callback([](const char* name, const std::uint32_t, std::uint64_t* number) {
    *number = std::string_view(name).starts_with("Kokkos::Tools::");
    if (rank_recorder != nullptr && *number == 0) rank_recorder->begin(name, Kind::fence);
  });
  tools::set_end_fence_callback([](const std::uint64_t number) {
    if (rank_recorder != nullptr && number == 0) rank_recorder->end();
  });
  tools::set_begin_deep_copy_callback([](Kokkos::Tools::SpaceHandle, const char*, const void*, Kokkos::Tools::SpaceHandle,
                                         const char*, const void*, std::uint64_t) {
    if (rank_recorder != nullptr) rank_recorder->begin("copy", Kind::copy);
  });
  tools::set_end_deep_copy_callback(end);
}

WEFT_COLD WEFT_INLINE StepTrace::StepTrace(const TraceOptions& options, const Communicator& world, std::function<MemoryUse()> use)
    : options_(options), world_(world), recorder_(std::make_unique<Recorder>()) {
  recorder_->options = options;
  recorder_->use = std::move(use);
  recorder_->rank = world_.rank();
  // Ranks of one machine have one clock. Others take the end of a barrier as the common moment.
  world_.barrier();
  recorder_->origin = TraceClock::now();
  struct {
    std::uint64_t host;
    std::int64_t origin;
  } first{comm::this_host(), recorder_->origin.time_since_epoch().count()};
  const std::uint64_t host = first.host;
  std::uint64_t words[] = {first.host, std::uint64_t(first.origin)};
  world_.broadcast(std::span(words), 0);
  if (words[0] == host) recorder_->origin = TraceClock::time_point(TraceClock::duration(std::int64_t(words[1])));
  rank_recorder = recorder_.get();
}

/// The bytes of a text, for messages.
inline std::span<std::uint8_t> message_bytes(std::string& text) {
  return {reinterpret_cast<std::uint8_t*>(text.data()), text.size()};
}

WEFT_COLD WEFT_INLINE void StepTrace::finish() {
  rank_recorder = nullptr;
  const std::unique_ptr<Recorder> recorder = std::move(recorder_);
  std::string mine = recorder->json(world_.rank());
  std::vector<Recorder::Point>& points = recorder->points;
  std::uint64_t facts[] = {mine.size(), recorder->dropped, points.size()};
  const auto bytes_of = [](std::vector<Recorder::Point>& some) {
    return std::span(reinterpret_cast<std::uint8_t*>(some.data()), some.size() * sizeof(Recorder::Point));
  };
  if (world_.rank() != 0) {
    world_.send(std::span(facts), 0);
    world_.send(message_bytes(mine), 0);
    world_.send(bytes_of(points), 0);
    return;
  }
  const std::string path = options_.folder + "/trace.json";
  weft::detail::OutputFile out("WEFT_TRACE", path);
  mine.erase(0, 1);  // no comma before the first
  out.write("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
  out.write(mine);
  std::uint64_t dropped = facts[1];
  for (int rank = 1; rank < world_.size(); ++rank) {
    world_.recv(std::span(facts), rank);
    std::string other(facts[0], '\0');
    world_.recv(message_bytes(other), rank);
    out.write(other);
    std::vector<Recorder::Point> others(facts[2]);
    world_.recv(bytes_of(others), rank);
    points.insert(points.end(), others.begin(), others.end());
    dropped += facts[1];
  }
  out.write(Recorder::flows(std::move(points)));
  out.write("\n]}\n");
  out.finish();
  std::fprintf(stderr, "weft: %s is the trace of all ranks: open it at https://ui.perfetto.dev\n", path.c_str());
  if (dropped != 0)
    std::fprintf(
        stderr,
        "weft: WEFT_TRACE: %llu events beyond the first %zu of a rank were dropped: trace fewer steps (WEFT_TRACE=%s:2-4)\n",
        static_cast<unsigned long long>(dropped), most_events, options_.folder.c_str());
}

WEFT_COLD WEFT_INLINE StepTrace::~StepTrace() {
  rank_recorder = nullptr;
  if (!recorder_) return;
  try {
    std::string text = recorder_->json(world_.rank());
    text[0] = ' ';
    weft::detail::write_output("WEFT_TRACE", options_.folder + "/rank-" + std::to_string(world_.rank()) + ".json",
                               "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [" + text + "\n]}\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "weft: %s\n", error.what());
  }
}

}  // namespace detail

}  // namespace weft::runtime
