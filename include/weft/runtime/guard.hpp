// SPDX-License-Identifier: Apache-2.0
#pragma once
// The guards that `run` sets up around a program, undone in reverse order: signals, Kokkos, a device for each rank.

#include <Kokkos_Core.hpp>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <csignal>
#include <cstdlib>
#include <vector>

#include <weft/comm/operation.hpp>
#include <weft/core/error.hpp>
#include <weft/device/device.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/mesh/world.hpp>
#ifdef KOKKOS_ENABLE_CUDA
#include <memory>

#include <weft/runtime/cuda_rank.hpp>
#endif

namespace weft::runtime::detail {

/// Turns the first SIGINT or SIGTERM into a flag; the second one has its normal effect.
class InterruptGuard {
 public:
  InterruptGuard() {
    interrupt_signal.store(0);
    previous_interrupt_ = std::signal(SIGINT, handle);
    previous_terminate_ = std::signal(SIGTERM, handle);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard() {
    std::signal(SIGINT, previous_interrupt_);
    std::signal(SIGTERM, previous_terminate_);
  }

 private:
  static void handle(int number) {
    interrupt_signal.store(number, std::memory_order_relaxed);
    std::signal(number, SIG_DFL);
  }
  void (*previous_interrupt_)(int);
  void (*previous_terminate_)(int);
};

/// Initialises Kokkos unless the program has done so, with `threads` threads in all.
class KokkosGuard {
 public:
  WEFT_COLD explicit KokkosGuard(int threads) : owner_(!Kokkos::is_initialized()) {
    if (!owner_) return;
    if (Kokkos::is_finalized())
      throw UsageError(
          "run: Kokkos has ended and cannot start again; a program that calls run several times makes a Kokkos::ScopeGuard of "
          "its own around them");
    // Ranks are threads and place themselves; a binding made for one team would put all of them on one core.
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

/// A separate execution-space instance for rank `rank` of `local_ranks` in this process. To be called in the rank's thread.
template <class Exec = Kokkos::DefaultExecutionSpace>
Exec instance_for(int rank, int local_ranks, int threads_per_rank) {
#ifdef _OPENMP
  omp_set_num_threads(threads_per_rank);  // of this thread alone: the teams of libraries that it calls
#endif
  (void)threads_per_rank;
  if (local_ranks == 1 && weft::detail::threads_of(Exec()) == threads_per_rank) return Exec();
#ifdef KOKKOS_ENABLE_OPENMP
  if constexpr (std::is_same_v<Exec, Kokkos::OpenMP>) return Exec(threads_per_rank);  // partition_space's last would be larger
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
/// A rank on the calling thread's current GPU, with a separate stream if that GPU is not Kokkos' own or the process has other
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

/// The order between a rank's communication and its computation. `exec` must outlive the communicators.
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
