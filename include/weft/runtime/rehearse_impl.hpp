// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rehearsal of a program, and its options. Definitions for runtime/rehearse.hpp.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <weft/comm/launcher.hpp>
#include <weft/comm/rehearsal.hpp>
#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/output_file.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/runtime/guard.hpp>
#include <weft/runtime/rehearsal_guards.hpp>
#include <weft/runtime/rehearse.hpp>

namespace weft::runtime::detail {

/// The value in the program's options, otherwise in its arguments; nothing if neither has one.
WEFT_COLD WEFT_INLINE std::optional<std::string_view> said_of(const RunOptions& options, const char* RunOptions::*name) {
  const char* said = options.*name;
  if (said == nullptr) {
    std::vector<char*> words(options.argv, options.argv + options.argc);
    words.push_back(nullptr);
    int count = options.argc;
    said = take_run_options(count, words.data()).*name;
  }
  return said == nullptr ? std::nullopt : std::optional<std::string_view>(said);
}

WEFT_COLD WEFT_INLINE RehearsedRank rehearsed_rank_of(std::string_view name, std::string_view text) {
  constexpr int most = 1 << 24;
  RehearsedRank rank;
  if (text.ends_with(":early")) {
    rank.early = true;
    text.remove_suffix(6);
  }
  const std::size_t colon = text.find(':');
  rank.rank = -1;
  const auto number = [&](std::string_view part, const char* what, int least, int largest) {
    return whole_number_of(weft::detail::joined({name, " (N, N:rank or N:rank:early): ", what}), part, least, largest);
  };
  rank.ranks = number(text.substr(0, colon), "the number of ranks", 1, most);
  if (colon != std::string_view::npos) rank.rank = number(text.substr(colon + 1), "the rank", 0, rank.ranks - 1);
  return rank;
}

inline constexpr int most_ranks_per_node = 1 << 16;

/// Throws UsageError for invalid numbers.
WEFT_COLD WEFT_INLINE RehearsalVariables rehearsal_variables() {
  RehearsalVariables all;
  all.steps = whole_number_from_environment("WEFT_REHEARSE_STEPS", 1, int(Rehearsal::most_steps)).value_or(0);
  all.expert_skew = number_from_environment("WEFT_REHEARSE_EXPERT_SKEW", 1, 1e6).value_or(1);
  const char* const room = std::getenv("WEFT_REHEARSE_MEMORY");
  all.memory = room == nullptr || *room == '\0' ? 0 : bytes_of("environment variable WEFT_REHEARSE_MEMORY", room);
  all.ranks_per_node = whole_number_from_environment("WEFT_RANKS_PER_NODE", 1, most_ranks_per_node).value_or(0);
  all.layouts = whole_number_from_environment("WEFT_REHEARSE_LAYOUTS", 1, 1000).value_or(0);
  const char* const machine = std::getenv("WEFT_MACHINE");
  if (machine != nullptr && *machine != '\0' && require_machine != nullptr) require_machine(machine);
  return all;
}

/// The rehearsal that the program's options (RunOptions::rehearse), its arguments (--rehearse N[:rank]) or WEFT_REHEARSE request.
/// Throws UsageError for invalid values, and for invalid variables of a rehearsal even if none is requested.
WEFT_COLD WEFT_INLINE std::optional<RehearsedRank> rehearsed_rank(const RunOptions& options) {
  (void)rehearsal_variables();
  if (const auto given = said_of(options, &RunOptions::rehearse)) {
    if (given->empty()) throw_error<UsageError>({"--rehearse needs a value: N, N:rank or N:rank:early"});
    return rehearsed_rank_of("--rehearse", *given);
  }
  const char* text = std::getenv("WEFT_REHEARSE");
  if (text == nullptr || *text == '\0') {
    if (options.ranks_per_node != nullptr || options.machine != nullptr)
      throw_error<UsageError>({options.machine != nullptr ? "--machine" : "--ranks-per-node",
                               " without --rehearse N or WEFT_REHEARSE: it applies to rehearsals alone"});
    return std::nullopt;
  }
  return rehearsed_rank_of("environment variable WEFT_REHEARSE", text);
}

/// The machine whose time is estimated, from the program's arguments (--machine) or WEFT_MACHINE; empty if neither is set.
WEFT_COLD WEFT_INLINE std::string machine_name(const RunOptions& options) {
  if (const auto given = said_of(options, &RunOptions::machine)) {
    if (given->empty()) throw_error<UsageError>({"--machine needs a value: a100, h100, h200, this, or a file"});
    return std::string(*given);
  }
  const char* const named = std::getenv("WEFT_MACHINE");
  return named == nullptr ? "" : named;
}

/// True if a launcher started this process after another one. The first process rehearses for all of them.
WEFT_COLD WEFT_INLINE bool launched_after_another() {
  if (under_torchrun() && is_set(torch_names.rank)) return std::string_view(std::getenv(torch_names.rank)) != "0";
  for (const Names& names : other_names)
    if (is_set(names.rank)) return std::string_view(std::getenv(names.rank)) != "0";
  return false;
}

/// Calls f. An error of the program gets a hint that it occurred in a rehearsal, and of which rank.
template <class F>
WEFT_COLD void with_hint(int rank, const F& f) {
  const std::string hint = weft::detail::joined(
      {"; this was a rehearsal, of rank ", rank, ", in which tensors read as zeros and other ranks have this rank's values"});
  try {
    f();
  } catch (const MemoryError&) {
    throw;
  } catch (const Error& error) {
    if (error.exit_code() != 1) throw;  // the message already names the cause
    throw_error<Error>({std::string_view(error.what()).substr(std::string_view("weft: ").size()), hint});
  } catch (const std::exception& error) {
    throw std::runtime_error(weft::detail::joined({error.what(), hint}));
  }
}

WEFT_COLD WEFT_INLINE std::string json_file() {
  const char* const to = std::getenv("WEFT_REHEARSE_JSON");
  return to == nullptr ? "" : to;
}
/// Prints the table, and writes the JSON to the file that WEFT_REHEARSE_JSON names; "-": prints the JSON in place of the table.
WEFT_COLD WEFT_INLINE void print_or_write(const EstimateTexts& texts) {
  const std::string path = json_file(), json = texts.json + "\n";
  std::cout.flush(), std::fflush(stdout);
  std::fputs((path == "-" ? json : texts.table).c_str(), stdout);
  if (!path.empty() && path != "-") weft::detail::write_output("WEFT_REHEARSE_JSON", path, json);
}

/// Rehearses the program as that rank, or as all distinct ranks, prints the table and writes the file named by
/// WEFT_REHEARSE_JSON. With "-" it prints JSON instead of the table. The program's own lines are printed once. Returns the
/// program's exit code. Throws MemoryError if a rank needs more memory than WEFT_REHEARSE_MEMORY.
WEFT_COLD WEFT_INLINE int rehearse_program(RehearsedRank rank, const RunOptions& options, const std::function<int(World&)>& f) {
  if (launched_after_another()) return 0;
  if (const std::string file = json_file(); !file.empty() && file != "-")
    weft::detail::require_output("WEFT_REHEARSE_JSON", file);  // before the time of a search
  const RehearsalVariables variables = rehearsal_variables();
  const auto nodes = said_of(options, &RunOptions::ranks_per_node);
  rank.ranks_per_node = nodes ? whole_number_of("--ranks-per-node", *nodes, 1, most_ranks_per_node) : variables.ranks_per_node;
  rank.steps = variables.steps;
  rank.expert_skew = variables.expert_skew;
  const double memory = variables.memory;
  rank.threads = options.threads_per_rank > 0 ? std::min(options.threads_per_rank, most_threads) : 1;
  const bool all = rank.rank < 0;
  const std::string machine = machine_name(options);
  if (!machine.empty() && estimate_for_people == nullptr)
    throw_error<UsageError>(
        {"--machine, WEFT_MACHINE: this program cannot estimate its time: it must include weft/plan/estimate.hpp"});
  if (!machine.empty() && !all)
    throw_error<UsageError>(
        {"--machine, WEFT_MACHINE: an estimate of time needs all stages: give the number of ranks alone, without a rank"});
  if (!machine.empty()) require_machine(machine);
  if (variables.layouts > 0 && machine.empty())
    throw_error<UsageError>({"WEFT_REHEARSE_LAYOUTS: layouts are compared by their time: name a machine, WEFT_MACHINE=h100"});
  if (variables.layouts > 0 && layouts_for_people == nullptr)
    throw_error<UsageError>(
        {"WEFT_REHEARSE_LAYOUTS: this program cannot search its layouts: it must include weft/plan/layouts.hpp"});
  const KokkosGuard kokkos(std::max(rank.threads, std::min(cores(), most_threads)));  // the program may start ranks itself
  int code = 0, runs = 0;
  const auto program = [&](World& world) {
    const SilentOutput silent(runs++ > 0);
    with_hint(world.rank(), [&] {
      const int result = f(world);
      if (code == 0) code = result;
    });
  };
  RehearsedStages of = rank;
  of.both = !rank.early;
  if (variables.layouts > 0) {
    print_or_write(layouts_for_people(of, machine, memory, std::size_t(variables.layouts), program));
    return code;
  }
  std::vector<RehearsedStage> stages;
  if (all) {
    stages = rehearse_stages(of, program);
  } else {
    stages.push_back({rank.rank, 0, rehearse(rank, program), 0});
    if (!std::exchange(rank.early, true)) stages.back().least_peak = rehearse(rank, program).peak;
  }
  EstimateTexts texts{all ? table_of(stages) : table_of_rank(stages.front()),
                      all ? json_of(stages) : json_of_rank(stages.front(), false)};
  if (!machine.empty()) {  // run again, since recording the order changes the peaks
    of.both = false, of.trace = true;
    const EstimateTexts estimate = estimate_for_people(rehearse_stages(of, program), machine);
    texts.table += estimate.table;
    texts.json = "{\"stages\": " + texts.json + ",\n \"estimate\": " + estimate.json + "}";
  }
  print_or_write(texts);
  if (memory > 0) require_memory(stages, memory);
  return code;
}

WEFT_COLD WEFT_INLINE std::optional<int> rehearse_if_asked(const RunOptions& options, const std::function<int(World&)>& f) {
  const std::optional<RehearsedRank> rank = rehearsed_rank(options);
  return rank ? std::optional<int>(rehearse_program(*rank, options, f)) : std::nullopt;
}

}  // namespace weft::runtime::detail

namespace weft::runtime {

WEFT_COLD WEFT_INLINE Rehearsal rehearse(const RehearsedRank& rank, const std::function<void(World&)>& f) {
  if (rank.ranks < 1 || rank.rank < 0 || rank.rank >= rank.ranks)
    throw_error<UsageError>(
        {"rehearse: rank ", rank.rank, " of ", rank.ranks, " ranks: it is from 0 to one less than their number"});
  if (!(rank.expert_skew >= 1))
    throw_error<UsageError>(
        {"rehearse: expert_skew ", std::to_string(rank.expert_skew), ": the busiest expert has at least the mean load, 1"});
  if constexpr (!Kokkos::SpaceAccessibility<Kokkos::HostSpace, DefaultDevice::memory_space>::accessible)
    throw_error<UsageError>({"a rehearsal needs a Kokkos that computes on the host: build the program with one"});
  Rehearsal notes;
  notes.rank = rank.rank, notes.ranks = rank.ranks, notes.early = rank.early;
  if (rank.trace) notes.trace = std::make_shared<RehearsedTrace>();
  notes.ranks_per_node = rank.ranks_per_node;
  notes.wanted_steps = std::uint64_t(std::max(rank.steps, 0));
  notes.expert_skew = rank.expert_skew;
  notes.layout = rank.layout;
  const detail::TouchGuard touches;
  const detail::ThreadGuard threads;
  const weft::detail::RehearsedMemory::Use addresses;
  const detail::RankInstance<DefaultDevice::execution_space> instance(0, 1, rank.threads);
  DefaultDevice device(instance.exec);
  device.rehearse(notes);
  {
    World world(
        Communicator(std::make_shared<comm::RehearsedGroup>(rank.rank, rank.ranks, "world", notes), comm::rehearsed_order()),
        device);
    try {
      f(world);
    } catch (const weft::detail::RehearsalEnd&) {}  // the program has taken the requested steps
  }
  const MemoryUse& use = device.arena().use();
  notes.peak = use.peak;
  notes.reserved = use.reserved;
  return notes;
}

namespace detail {

/// The distance from the first rank to one with neighbours on both sides along each domain axis of three ranks or more: it has
/// and sends twice the halo of a rank at the border of the domain.
WEFT_COLD WEFT_INLINE std::size_t inner_rank(const std::vector<Rehearsal::Axis>& axes) {
  std::size_t inner = 0;
  for (const std::string_view name : {dx::name, dy::name, dz::name}) {
    const auto axis = std::find_if(axes.begin(), axes.end(), [&](const Rehearsal::Axis& one) { return one.name == name; });
    if (axis != axes.end() && axis->lines.size() == 1 && axis->lines[0].size > 2) inner += axis->lines[0].stride;
  }
  return inner;
}

}  // namespace detail

WEFT_COLD WEFT_INLINE std::vector<RehearsedStage> rehearse_stages(const RehearsedStages& of,
                                                                  const std::function<void(World&)>& f) {
  std::vector<RehearsedStage> stages;
  const auto add = [&](int rank, int stage) {
    const auto one = [&](bool early) {
      RehearsedRank other = of;
      other.rank = rank, other.early = early;
      return rehearse(other, f);
    };
    stages.push_back({rank, stage, one(of.early), 0});
    if (of.both) stages.back().least_peak = one(!of.early).peak;
    if (of.both && of.early) std::swap(stages.back().notes.peak, stages.back().least_peak);
  };
  const auto known = [&](int rank) {
    return std::any_of(stages.begin(), stages.end(), [rank](const RehearsedStage& one) { return one.rank == rank; });
  };
  // Adds a stage's first rank, then the rank that its notes name as fuller, which may name another one in turn.
  const auto add_stage = [&](int first, int stage) {
    for (int rank = first; rank >= 0 && !known(rank); rank = stages.back().notes.fullest) add(rank, stage);
  };
  add_stage(0, 0);
  const std::vector<Rehearsal::Axis> axes = stages.front().notes.axes;
  const std::size_t inner = detail::inner_rank(axes);
  if (inner != 0) stages.clear(), add_stage(int(inner), 0);
  for (const Rehearsal::Axis& axis : axes)  // for each mesh with a pipeline
    if (axis.name == "pp")
      for (const Rehearsal::Axis::Line& line : axis.lines)
        for (std::size_t stage = 1; stage < line.size; ++stage) add_stage(int(stage * line.stride + inner), int(stage));
  return stages;
}

}  // namespace weft::runtime
