// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/run_options.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <iterator>
#include <utility>

#include <dnnl_version.h>
#include <Kokkos_Macros.hpp>

#include <weft/comm/run_options.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/version.hpp>

namespace weft::runtime {

WEFT_COLD WEFT_INLINE int whole_number_of(std::string_view name, std::string_view text, int least, int most) {
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw_error<UsageError>({name, " is '", text.substr(0, 80), "', expected a whole number from ", least, " to ", most});
  return value;
}

WEFT_COLD WEFT_INLINE std::string versions(std::string_view name, std::string_view more) {
  std::string compiler;
#ifdef __CUDACC_VER_MAJOR__
  weft::detail::append_to(compiler, {"nvcc ", __CUDACC_VER_MAJOR__, ".", __CUDACC_VER_MINOR__, ", "});
#endif
#ifdef __clang__
  weft::detail::append_to(compiler, {"clang ", __clang_major__, ".", __clang_minor__, ".", __clang_patchlevel__});
#else
  weft::detail::append_to(compiler, {"g++ ", __VERSION__});
#endif
  return weft::detail::joined({name, ", weft ", version(), " (", compiler, ", Kokkos ", KOKKOS_VERSION / 10000, ".",
                               KOKKOS_VERSION / 100 % 100, ".", KOKKOS_VERSION % 100, ", oneDNN ", DNNL_VERSION_MAJOR, ".",
                               DNNL_VERSION_MINOR, ".", DNNL_VERSION_PATCH, more, ")"});
}

WEFT_COLD WEFT_INLINE int print_versions(std::string_view name, std::string_view more) {
  std::printf("%s\n", versions(name, more).c_str());
  return std::fflush(stdout) == 0 ? 0 : 1;
}

/// As take_run_options, into `options`.
WEFT_COLD WEFT_INLINE void take_into(RunOptions& options, int& argc, char** argv) {
  const std::pair<std::string_view, const char * RunOptions::*> names[] = {{"--rehearse", &RunOptions::rehearse},
                                                                           {"--ranks-per-node", &RunOptions::ranks_per_node},
                                                                           {"--machine", &RunOptions::machine}};
  int kept = std::min(argc, 1);
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto* const found = std::find_if(std::begin(names), std::end(names), [&](const auto& one) {
      return word.starts_with(one.first) && (word.size() == one.first.size() || word[one.first.size()] == '=');
    });
    if (found == std::end(names)) argv[kept++] = argv[i];
    else if (word.size() > found->first.size()) options.*found->second = argv[i] + found->first.size() + 1;
    else options.*found->second = i + 1 < argc ? argv[++i] : "";
  }
  argc = kept;
  argv[argc] = nullptr;
  options.argc = argc;
  options.argv = argv;
}

WEFT_COLD WEFT_INLINE RunOptions take_run_options(int& argc, char** argv) {
  RunOptions options;
  take_into(options, argc, argv);
  return options;
}

WEFT_COLD WEFT_INLINE RunOptions only_run_options(int argc, char** argv, RunOptions options) {
  take_into(options, argc, argv);
  if (argc < 2) return options;
  const std::string_view path = argv[0], name = path.substr(path.rfind('/') + 1);
  if (argv[1] == std::string_view("--version")) std::exit(print_versions(name));
  if (argv[1] == std::string_view("--help")) {
    std::printf("%s [--rehearse N[:rank]] [--ranks-per-node N] [--machine NAME]\n", std::string(name).c_str());
    std::exit(std::fflush(stdout) == 0 ? 0 : 1);
  }
  options.refused = std::make_exception_ptr(
      UsageError(weft::detail::joined({name, ": unknown argument '", std::string_view(argv[1]).substr(0, 80),
                                       "': it takes --rehearse N[:rank], --ranks-per-node N and --machine NAME"})));
  return options;
}

}  // namespace weft::runtime

namespace weft::runtime::detail {

WEFT_COLD WEFT_INLINE std::optional<double> number_from_environment(const char* name, double least, double most) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  double value = 0;
  const std::string_view view(text);
  const auto [end, problem] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (problem != std::errc() || end != view.data() + view.size() || !(value >= least && value <= most)) {
    char range[64];
    std::snprintf(range, sizeof range, "from %g to %g", least, most);
    throw_error<UsageError>({"environment variable ", name, " is '", view.substr(0, 80), "', expected a number ", range});
  }
  return value;
}

WEFT_COLD WEFT_INLINE std::optional<int> whole_number_from_environment(const char* name, int least, int most) {
  const auto value = number_from_environment(name, least, most);
  if (!value) return std::nullopt;
  if (*value != double(int(*value))) throw_error<UsageError>({"environment variable ", name, " must be a whole number"});
  return int(*value);
}

WEFT_COLD WEFT_INLINE bool switch_from_environment(const char* name, bool otherwise) {
  const auto value = whole_number_from_environment(name, 0, 1);
  return value ? *value != 0 : otherwise;
}

WEFT_COLD WEFT_INLINE void require_one_of(const char* name, std::initializer_list<std::string_view> words, bool any_case) {
  const char* text = std::getenv(name);
  if (text == nullptr) return;
  std::string word(text), expected;
  for (char& c : word)
    if (any_case && c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  for (const std::string_view one : words) {
    if (word == one) return;
    weft::detail::append_to(expected, {expected.empty() ? "" : ", ", one});
  }
  throw_error<UsageError>(
      {"environment variable ", name, " is '", std::string_view(text).substr(0, 80), "', expected one of ", expected});
}

WEFT_COLD WEFT_INLINE void require_kokkos_variables() {
  for (const char* name : {"KOKKOS_DISABLE_WARNINGS", "KOKKOS_PRINT_CONFIGURATION", "KOKKOS_TUNE_INTERNALS"})
    require_one_of(name, {"true", "false", "yes", "no", "1", "0"}, true);
  require_one_of("KOKKOS_MAP_DEVICE_ID_BY", {"random", "mpi_rank"}, false);
  for (const char* name : {"KOKKOS_NUM_THREADS", "KOKKOS_DEVICE_ID"})
    if (const char* text = std::getenv(name); text != nullptr && *text == '\0')
      throw_error<UsageError>({"environment variable ", name, " is '', expected a number, or to be unset"});
}

WEFT_COLD WEFT_INLINE void require_weft_variables() {
  for (const char* name : {"WEFT_SHARED_MEMORY", "WEFT_FINGERPRINTS", "WEFT_SHARE_GPUS", "WEFT_IGNORE_LAUNCHER"})
    (void)switch_from_environment(name, false);
  (void)number_from_environment("WEFT_HEARTBEAT_S", 0, 1e6);
  (void)number_from_environment("WEFT_RENDEZVOUS_S", 0.001, 1e6);
  (void)whole_number_from_environment("WEFT_STORE_PORT", 1, 65535);
  constexpr int most_ranks_of_a_proof = 64, most_of_a_proof = 1 << 20;
  (void)whole_number_from_environment("WEFT_PROVE", 2, most_ranks_of_a_proof);
  for (const char* name : {"WEFT_PROVE_STEPS", "WEFT_PROVE_SECONDS", "WEFT_PROVE_LAYOUT_SECONDS", "WEFT_PROVE_PROCESSES"})
    (void)whole_number_from_environment(name, 1, most_of_a_proof);
}

WEFT_COLD WEFT_INLINE void require_thread_variables() {
  constexpr int most = 4096;
  require_kokkos_variables();
  for (const char* name : {"KOKKOS_NUM_THREADS", "OMP_THREAD_LIMIT"}) (void)whole_number_from_environment(name, 1, most);
  (void)whole_number_from_environment("KOKKOS_DEVICE_ID", 0, most);
  const char* text = std::getenv("OMP_NUM_THREADS");  // a number for each level of nested teams
  if (text == nullptr || *text == '\0') return;
  std::string_view rest(text);
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    std::string_view level = rest.substr(0, comma);
    while (!level.empty() && level.front() == ' ') level.remove_prefix(1);
    while (!level.empty() && level.back() == ' ') level.remove_suffix(1);
    (void)whole_number_of("environment variable OMP_NUM_THREADS", level, 1, most);
    if (more) rest.remove_prefix(comma + 1);
  }
}

WEFT_COLD WEFT_INLINE RunOptions resolve(RunOptions options, int started, int here) {
  if (options.ranks < 0) throw_error<UsageError>({"ranks(", options.ranks, ") must be at least 1"});
  if (started > 0) {
    if (options.ranks > started)
      throw_error<UsageError>({"ranks(", options.ranks, ") > ", started,
                               " started by the launcher: ask it for more (mpirun -np or torchrun --nproc-per-node ",
                               options.ranks, ")"});
    if (options.ranks != 0 && options.ranks < started)
      throw_error<UsageError>({"ranks(", options.ranks, ") < ", started, " started by the launcher: all of them take part"});
    options.ranks = started;
  }
  constexpr int most_ranks = 1024;
  const auto wanted = whole_number_from_environment("WEFT_RANKS", 1, most_ranks);  // also where it is not used
  require_weft_variables();
  if (options.ranks == 0) options.ranks = wanted.value_or(cores());
  if (started == 0 && options.ranks > most_ranks)
    throw_error<UsageError>({"ranks(", options.ranks, ") > ", most_ranks, " threads of one process"});
  if (!(options.deadline_s >= 0 && options.deadline_s <= 1e9))
    throw_error<UsageError>({"deadline_s(", std::to_string(options.deadline_s), ") must be positive and at most 1e9 seconds"});
  const auto deadline = number_from_environment("WEFT_TIMEOUT_S", 0.001, 1e9);
  if (options.deadline_s == 0) options.deadline_s = deadline.value_or(1800.0);
  if (!(options.stop_s >= 0 && options.stop_s <= 1e6))
    throw_error<UsageError>({"stop_s(", std::to_string(options.stop_s), ") must be positive and at most 1e6 seconds"});
  const auto stop = number_from_environment("WEFT_STOP_S", 0.001, 1e6);
  if (options.stop_s == 0) options.stop_s = stop.value_or(0.0);
  if (options.threads_per_rank < 0)
    throw_error<UsageError>({"threads_per_rank(", options.threads_per_rank, ") must be at least 1"});
  if (options.threads_per_rank > most_threads)
    throw_error<UsageError>({"threads_per_rank(", options.threads_per_rank, ") > ", most_threads, ", as many as Kokkos knows"});
  if (options.threads_per_rank == 0) options.threads_per_rank = std::max(1, cores() / (here > 0 ? here : options.ranks));
  return options;
}

}  // namespace weft::runtime::detail
