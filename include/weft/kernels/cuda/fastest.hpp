// SPDX-License-Identifier: Apache-2.0
#pragma once
// The fastest of several ways to compute one result, by their time on a stream: cuBLASLt orders its algorithms only by an
// estimate.
//
//   const std::size_t best =
//       gpu::fastest(algorithms.size(), stream, [&](std::size_t i) { return start(algorithms[i], stream); });

#include <cstddef>
#include <limits>

#include <weft/device/cuda/runtime.hpp>

namespace weft::gpu {

namespace detail {
/// A CUDA event with its time.
class TimedEvent {
 public:
  TimedEvent() { cuda_check(cudaEventCreateWithFlags(&event_, cudaEventDefault), "cudaEventCreateWithFlags"); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  ~TimedEvent() { cuda_report(cudaEventDestroy(event_), "cudaEventDestroy"); }
  void record(cudaStream_t stream) { cuda_check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  float ms_since(const TimedEvent& earlier) const {
    cuda_check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, earlier.event_, event_), "cudaEventElapsedTime");
    return ms;
  }

 private:
  cudaEvent_t event_ = nullptr;
};
}  // namespace detail

/// Returns the way, of `count`, whose three consecutive runs take the shortest time; 0 if there is one way, or if all fail.
/// run(i) puts the work of way i on the stream, or returns false. Each way runs once before it is timed. Waits for the stream.
/// Times are noisy: two calls may return different ways.
template <class Run>
std::size_t fastest(std::size_t count, cudaStream_t stream, const Run& run) {
  if (count < 2) return 0;
  detail::TimedEvent begin, end;
  std::size_t best = 0;
  float shortest = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < count; ++i) {
    if (!run(i)) continue;
    begin.record(stream);
    bool done = true;
    for (int repeat = 0; repeat < 3; ++repeat) done = run(i) && done;
    end.record(stream);
    const float ms = end.ms_since(begin);
    if (done && ms < shortest) {
      best = i;
      shortest = ms;
    }
  }
  return best;
}

}  // namespace weft::gpu
