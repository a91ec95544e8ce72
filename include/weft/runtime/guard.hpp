// SPDX-License-Identifier: Apache-2.0
#pragma once
// The guards that `run` sets up around a program: Kokkos, and a device for each rank. They are undone in reverse order.

#include <Kokkos_Core.hpp>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <weft/comm/operation.hpp>
#include <weft/comm/run_options.hpp>
#include <weft/core/error.hpp>
#include <weft/device/device.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/mesh/world.hpp>
#ifdef KOKKOS_ENABLE_CUDA
#include <memory>

#include <weft/runtime/cuda_rank.hpp>
#endif

namespace weft::runtime::detail {

/// Throws UsageError if this process cannot start that many more threads. OpenMP's runtime would end the process with an unclear
/// message. Starts all of them for a moment.
WEFT_COLD inline void require_threads(int count, int ranks, int threads_per_rank) {
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::string problem;
  try {
    threads.reserve(std::size_t(count));
    for (int k = 0; k < count; ++k)
      threads.emplace_back([&] {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return over; });
      });
  } catch (const std::system_error& error) {
    problem = error.code().message();
  }
  {
    const std::lock_guard lock(mutex);
    over = true;
  }
  changed.notify_all();
  for (std::thread& thread : threads) thread.join();
  if (!problem.empty())
    throw_error<UsageError>({"ranks(", ranks, ") of ", threads_per_rank, threads_per_rank == 1 ? " thread" : " threads",
                             ": this process can start ", threads.size(), " threads more and needs ", count, " (", problem,
                             "): fewer ranks, or a higher limit (ulimit -u, ulimit -v)"});
}

/// Initialises Kokkos with `threads` threads in total, unless the program has initialised it.
class KokkosGuard {
 public:
  WEFT_COLD explicit KokkosGuard(int threads) : owner_(!Kokkos::is_initialized()) {
    if (!owner_) return;
    if (Kokkos::is_finalized())
      throw UsageError(
          "run: Kokkos has ended and cannot start again; a program that calls run several times makes its own Kokkos::ScopeGuard "
          "around them");
    require_thread_variables();
    // Ranks are threads and place themselves. A binding for a single team would put all of them on one core.
    setenv("OMP_PROC_BIND", "false", 0);
    auto settings = Kokkos::InitializationSettings().set_num_threads(threads).set_disable_warnings(true);
#ifdef KOKKOS_ENABLE_CUDA
    settings.set_device_id(first_gpu(gpu_machine(), local_place_from_environment()));
#endif
    Kokkos::initialize(settings);
  }
  KokkosGuard(const KokkosGuard&) = delete;
  KokkosGuard& operator=(const KokkosGuard&) = delete;
  ~KokkosGuard() {
    if (owner_) Kokkos::finalize();
  }

 private:
  bool owner_;
};

/// A separate execution-space instance for rank `rank` of `local_ranks` in this process. Call it in the rank's thread.
template <class Exec = Kokkos::DefaultExecutionSpace>
Exec instance_for(int rank, int local_ranks, int threads_per_rank) {
#ifdef _OPENMP
  omp_set_num_threads(threads_per_rank);  // for this thread only: the teams of libraries that it calls
#endif
  (void)threads_per_rank;
  if (local_ranks == 1 && weft::detail::threads_of(Exec()) == threads_per_rank) return Exec();
#ifdef KOKKOS_ENABLE_OPENMP
  if constexpr (std::is_same_v<Exec, Kokkos::OpenMP>)
    return Exec(threads_per_rank);  // partition_space would give the last
                                    // instance more threads
  else
#endif
    return Kokkos::Experimental::partition_space(Exec(), std::vector<int>(std::size_t(local_ranks), 1))[std::size_t(rank)];
}

/// The execution space of a rank and the objects that must outlive it.
template <class Exec>
struct RankInstance {
  RankInstance(int rank, int local_ranks, int threads_per_rank) : exec(instance_for<Exec>(rank, local_ranks, threads_per_rank)) {}
  Exec exec;
};
#ifdef KOKKOS_ENABLE_CUDA
/// A rank on the calling thread's current GPU. It has a separate stream if that GPU is not Kokkos' own or the process has other
/// ranks.
template <>
struct RankInstance<Kokkos::Cuda> {
  RankInstance(int, int local_ranks, int) {
    int gpu = 0;
    cuda_check(cudaGetDevice(&gpu), "cudaGetDevice");
    if (local_ranks == 1 && gpu == exec.cuda_device()) return;
    stream = std::make_unique<CudaStream>();
    exec = Kokkos::Cuda(stream->get());
  }
  std::unique_ptr<CudaStream> stream;
  Kokkos::Cuda exec;
};
#endif

/// Orders a rank's communication after its computation. `exec` must outlive the communicators.
template <class Exec>
comm::StreamOrder order_on(const Exec&) {
  return {};
}
#ifdef KOKKOS_ENABLE_CUDA
inline bool in_gpu_memory(const void* address) {
  cudaPointerAttributes attributes = {};
  cuda_check(cudaPointerGetAttributes(&attributes, address), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeDevice;
}
inline void copy_in_gpu_memory(void* stream, void* to, const void* from, std::size_t bytes) {
  cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream)), "cudaMemcpyAsync");
}
inline constexpr comm::DeviceMemory gpu_memory{in_gpu_memory, copy_in_gpu_memory};
inline comm::StreamOrder order_on(const Kokkos::Cuda& exec) {
  return {&exec, nullptr, [](const void* instance) -> void* { return static_cast<const Kokkos::Cuda*>(instance)->cuda_stream(); },
          &gpu_memory};
}
#endif

}  // namespace weft::runtime::detail
