// SPDX-License-Identifier: Apache-2.0
#pragma once
// A trace of a program's steps: WEFT_TRACE=FOLDER, or FOLDER:FIRST-LAST for some steps, on any program that `run` starts. Each
// rank keeps the regions and kernels of its own thread (device/region.hpp) and its memory by category. At the end rank 0 writes
// FOLDER/trace.json, in Chrome's trace format, which https://ui.perfetto.dev and chrome://tracing draw. If the program fails,
// each rank writes FOLDER/rank-N.json, which a later attempt replaces.
//
//   WEFT_TRACE=traces:2-4 ./program          // steps 2, 3 and 4: from the begin of train_step to the begin of the next one
//
// On a GPU Kokkos waits for each kernel while a tool listens, so that its time is its own; such a step takes longer.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <weft/comm/communicator.hpp>
#include <weft/device/memory_use.hpp>

namespace weft::runtime {

/// The value of WEFT_TRACE.
struct TraceOptions {
  std::string folder;
  std::uint64_t first = 0, last = ~std::uint64_t{0};  ///< steps

  /// FOLDER, FOLDER:STEP or FOLDER:FIRST-LAST. Throws UsageError if the text after the last colon has only digits and hyphens and
  /// is neither STEP nor FIRST-LAST, if FIRST is above LAST, if the folder cannot be made, or if it holds a trace.json.
  static TraceOptions parse(std::string_view text);
  /// Those of the environment; nothing without WEFT_TRACE, or if it is empty. Throws as parse does.
  static std::optional<TraceOptions> from_environment();
};

namespace detail {

/// Gives Kokkos weft's callbacks for regions, kernels, fences and copies. Called after Kokkos has started and before a Device is
/// made. Throws UsageError if a Kokkos tool is loaded (KOKKOS_TOOLS_LIBS).
void observe_for_traces();

/// The trace of one rank, on that rank's thread.
class StepTrace {
 public:
  static constexpr std::size_t most_events = 1000000;  ///< per rank; later ones are dropped, and a line reports it

  /// Collective over `world`, whose ranks take a common moment. `use` returns the memory in use.
  StepTrace(const TraceOptions& options, const Communicator& world, std::function<MemoryUse()> use);
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;
  /// Without finish(), which an exception has prevented, writes the rank's own file.
  ~StepTrace();

  /// Writes the trace of all ranks. Collective.
  void finish();

  struct Recorder;

 private:
  TraceOptions options_;
  Communicator world_;
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace detail

}  // namespace weft::runtime

#ifndef WEFT_COMPILED
#include <weft/runtime/step_trace_impl.hpp>
#endif
