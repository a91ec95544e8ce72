// SPDX-License-Identifier: Apache-2.0
#pragma once
// Named regions and kernels for profilers. A Kokkos tool (KOKKOS_TOOLS_LIBS) and weft's own trace (WEFT_TRACE,
// runtime/step_trace.hpp) receive them through Kokkos' interface for tools; the regions nest.
//
//   const trace::Region region([&] { return "forward " + std::to_string(micro); });   // until the end of the scope
//
// Without a tool a region costs one load and one branch, and its name is not made.

#include <Kokkos_Core.hpp>

#include <atomic>
#include <cstdint>
#include <string>

#include <weft/core/text.hpp>

namespace weft {

namespace detail {
/// True while a tool takes events. Set by every Device that is made, since Kokkos loads its tools before.
inline std::atomic<bool> observed{false};
inline bool is_observed() { return observed.load(std::memory_order_relaxed); }
}  // namespace detail

namespace trace {

/// A region of this thread, until the end of the scope.
class Region {
 public:
  /// `name` returns the region's name, as text of Kokkos' interface: no longer than 512 bytes.
  template <class F>
  explicit Region(const F& name) {
    if (weft::detail::is_observed()) [[unlikely]]
      push(name());
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() {
    if (pushed_) [[unlikely]]
      Kokkos::Profiling::popRegion();
  }

 private:
  WEFT_COLD void push(const std::string& name) {
    Kokkos::Profiling::pushRegion(name);
    pushed_ = true;
  }

  bool pushed_ = false;
};

}  // namespace trace

namespace detail {

/// A kernel that runs on the host's threads, for tools: Kokkos does not start it itself. Its name is its kind ("norm",
/// "product").
class ObservedKernel {
 public:
  explicit ObservedKernel(const char* kind) {
    if (!is_observed()) [[likely]]
      return;
    Kokkos::Tools::beginParallelFor(kind, 0, &number_);
    begun_ = true;
  }
  ObservedKernel(const ObservedKernel&) = delete;
  ObservedKernel& operator=(const ObservedKernel&) = delete;
  ~ObservedKernel() {
    if (begun_) [[unlikely]]
      Kokkos::Tools::endParallelFor(number_);
  }

 private:
  std::uint64_t number_ = 0;
  bool begun_ = false;
};

}  // namespace detail

}  // namespace weft
