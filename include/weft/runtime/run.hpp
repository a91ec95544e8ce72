// SPDX-License-Identifier: Apache-2.0
#pragma once
// `run`: the one guard that owns the communication library, Kokkos and the ranks, and ends them in the right order.
//
//   int main(int argc, char** argv) {
//     return weft::run<comm::Threads, comm::Mpi>(argc, argv, [](World& world) { ... });
//   }

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include <weft/comm/agree.hpp>
#include <weft/comm/flight_file.hpp>
#include <weft/comm/launcher.hpp>
#include <weft/comm/run_options.hpp>
#include <weft/comm/threads.hpp>
#include <weft/mesh/world.hpp>
#include <weft/runtime/ending.hpp>
#include <weft/runtime/guard.hpp>
#include <weft/runtime/prover.hpp>
#include <weft/runtime/rehearser.hpp>
#include <weft/runtime/signals.hpp>
#include <weft/runtime/step_trace.hpp>

namespace weft {

namespace runtime {

namespace detail {

template <comm::Backend B, class F>
int run_on(RunOptions options, F& f) {
  prepare_for_end_of_memory();
  const bool lost_before = std::ferror(stdout) != 0;
  const SignalGuard signals(options.signals);  // before ranks meet
  typename B::Session session(options.argc, options.argv);
  int code = 0;
  if (options.refused) options.ranks = session.started() > 0 ? 0 : 1;
  comm::RunResult ending;
  {
    std::mutex mutex;
    try {
      options = resolve(options, session.started(), session.here());
      require_launch_variables();
      comm::detail::require_flight_folder();
      const std::optional<TraceOptions> trace = TraceOptions::from_environment();
      comm::detail::stop_state.patience_ms.store(options.stop_s > 0 ? std::int64_t(std::ceil(options.stop_s * 1000)) : 0);
      const int local_ranks = B::Session::owns_ranks ? options.ranks : 1;
      const int threads = std::max(local_ranks * options.threads_per_rank, 1);
      if (threads > cores() || address_space_is_limited())
        require_threads(threads + (local_ranks > 1 ? local_ranks : 0), local_ranks, options.threads_per_rank);
      const KokkosGuard kokkos(std::min(threads, most_threads));
      if (trace) observe_for_traces();
      ending =
          session.run(options.ranks, std::chrono::duration<double>(options.deadline_s), [&](std::shared_ptr<comm::Group> group) {
            const int place = local_ranks == 1 ? 0 : group->rank();
            const RankInstance<DefaultDevice::execution_space> instance(place, local_ranks, options.threads_per_rank);
            DefaultDevice device(instance.exec);
            World world(Communicator(std::move(group), order_on(device.exec())), device);
            if constexpr (!B::Session::owns_ranks)
              agree(world.communicator(), weft::detail::of_this_build(), weft::detail::build_remedy);
            if (options.refused) std::rethrow_exception(options.refused);
            if (comm::FlightRecorder* const recorder = world.communicator().group()->flight().recorder)
              recorder->times().cores(
                  (B::Session::owns_ranks ? options.ranks : std::max(1, session.here())) * options.threads_per_rank > cores());
            std::optional<StepTrace> tracing;
            if (trace) tracing.emplace(*trace, world.communicator(), [&] { return device.arena().use(); });
            if constexpr (std::is_void_v<std::invoke_result_t<F&, World&>>) {
              f(world);
            } else {
              const int result = f(world);
              std::lock_guard lock(mutex);
              if (code == 0) code = result;
            }
            if (tracing) tracing->finish();
          });
      if (!ending.complete) {
        // A rank still computes and cannot be stopped. Its memory must stay valid, so nothing is undone.
        const Report report(ending.error);
        comm::write_flights("another rank failed: " + report.text, -1, comm::FlightFiles::missing);  // for ranks that continue
        report.print();
        std::_Exit(report.code);
      }
    } catch (...) {
      ending.error = std::current_exception();
    }
  }
  if (!ending.error) return written(code, lost_before);
  const Report report(ending.error);
  return session.fail(report.code, [&] { report.print(); });
}

/// The exit code of the program's proof or rehearsal; nothing if none is asked for.
template <class F>
WEFT_COLD std::optional<int> rehearsed(const RunOptions& options, F& f) {
  const bool proves = asks_for_proof();
  if (!proves && rehearser == nullptr) return refuse_rehearsal(options), std::nullopt;
  const bool lost_before = std::ferror(stdout) != 0;
  const auto program = [&f](World& world) -> int {
    if constexpr (std::is_void_v<std::invoke_result_t<F&, World&>>) return f(world), 0;
    else return f(world);
  };
  const auto code = proves ? prover(program) : rehearser(options, program);
  return code ? std::optional<int>(written(*code, lost_before)) : std::nullopt;
}

template <comm::Backend First, comm::Backend... Others, class F>
int choose(const RunOptions& options, F& f) {
  int code = 0;
  if (!options.refused)
    if (const auto ended = rehearsed(options, f)) return *ended;
  if constexpr (First::Session::owns_ranks)
    if (ignores_launcher()) return run_on<First>(options, f);
  // A backend whose launcher started this program goes first; without one, the first of the list.
  const bool chosen = ((Others::detected() && (code = run_on<Others>(options, f), true)) || ...);
  if (chosen) return code;
  if constexpr (First::Session::owns_ranks) refuse_unconnected(First::name);
  return run_on<First>(options, f);
}

// Reports the requirement of `run` that f violates.
template <class F>
constexpr bool runs_on_ranks() {
  constexpr bool takes_world = std::is_invocable_v<F&, World&>;
  static_assert(takes_world, "weft: run calls f(world) on every rank: f takes a World&, as [](World& world) { ... } does");
  if constexpr (takes_world) {
    using R = std::invoke_result_t<F&, World&>;
    constexpr bool returns_code = std::is_void_v<R> || std::is_convertible_v<R, int>;
    static_assert(returns_code,
                  "weft: the result of f(world) is the program's exit code: f returns an int, or nothing; print results, or "
                  "write them to variables that f captures by reference");
    return returns_code;
  } else {
    return false;
  }
}

}  // namespace detail

/// Runs `f(world)` on every rank and returns the program's exit code: 0, the first nonzero value that `f` returned, or the code
/// of the first error, which is printed once. A backend after the first is used if its launcher started the program. Without one
/// for its launcher the program is refused, since each process would be a world of its own; WEFT_IGNORE_LAUNCHER=1 runs them so
/// (a sweep of parameters). A failed
/// write to standard output (a full disk) is an error, too. With --rehearse N[:rank] among the arguments, or WEFT_REHEARSE, the
/// program is rehearsed instead (runtime/rehearse.hpp); with WEFT_PROVE it is proven (runtime/prove.hpp).
///
/// `f` handles the first Ctrl-C or SIGTERM: it checks `world.interrupted()` or `world.stop_requested()`. A wait that lasts too
/// long after the signal throws InterruptedError (exit code 130). The second signal ends the process. Handlers that the program
/// has already installed stay (RunOptions::signals).
template <comm::Backend... Backends, class F>
int run(const RunOptions& options, F&& f) {
  open_standard_streams();
  try {
    if constexpr (!detail::runs_on_ranks<F>()) return 1;
    else if constexpr (sizeof...(Backends) == 0) return detail::choose<comm::Threads>(options, f);
    else return detail::choose<Backends...>(options, f);
  } catch (...) {
    return report(std::current_exception());
  }
}

template <comm::Backend... Backends, class F>
int run(int argc, char** argv, F&& f) {
  return run<Backends...>(RunOptions{.argc = argc, .argv = argv}, std::forward<F>(f));
}

}  // namespace runtime

using runtime::only_run_options;
using runtime::run;
using runtime::RunOptions;
using runtime::Signals;
using runtime::take_run_options;

}  // namespace weft
