// SPDX-License-Identifier: Apache-2.0
#pragma once
// The device on which a rank computes: one execution-space instance, one arena in its memory space, and the caches of kernels
// (matmul primitives, library handles). Tensors have a pointer to their device, so operations need no extra argument, and nothing
// is global or thread_local.
//
//   DefaultDevice device;
//   Tensor<float, DefaultDevice::execution_space> x(device, {tokens, width});

#include <Kokkos_Core.hpp>

#include <memory>
#include <typeinfo>
#include <utility>
#include <vector>

#include <weft/device/arena.hpp>
#include <weft/device/region.hpp>

namespace weft {

namespace detail {
class Proof;  // device/proof.hpp

/// The number of threads of this instance. With deprecated code enabled, Kokkos 4's exec.concurrency() is the default instance's.
template <class Exec>
int threads_of(const Exec& exec) {
  if constexpr (requires { Exec::concurrency(exec); }) return Exec::concurrency(exec);
  else return exec.concurrency();
}
}  // namespace detail

/// One rank's device: an execution space of Kokkos, an arena of memory, and a team of threads on hosts.
template <class Exec>
class Device {
 public:
  using execution_space = Exec;
  using memory_space = typename Exec::memory_space;
  /// A block of memory shared by its copies; the last one returns it to the device's arena.
  using Buffer = detail::Buffer;

  explicit Device(Exec exec = Exec()) : exec_(std::move(exec)), threads_(detail::threads_of(exec_)) {
    if (Kokkos::Tools::profileLibraryLoaded()) detail::observed = true;
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Exec& exec() const { return exec_; }
  /// The threads of the instance when the device was made. Kokkos returns another number inside a parallel region of OpenMP.
  int threads() const { return threads_; }
  detail::Arena<memory_space>& arena() { return arena_; }
  Buffer allocate(std::size_t bytes) { return arena_.allocate(bytes); }
  Buffer allocate_persistent(std::size_t bytes, MemoryCategory category = MemoryCategory::other) {
    return arena_.allocate_persistent(bytes, category);
  }

  /// From now on kernels are noted instead of run, and memory is only addresses. Call it before anything is allocated.
  void rehearse(Rehearsal& notes) {
    rehearsal_ = notes_ = &notes;
    arena_.rehearse();
  }
  /// From now on the FLOPs of products and of attention are noted while they are computed, with the counts of a rehearsal.
  void count(Rehearsal& notes) { notes_ = &notes; }
  /// The notes of a rehearsal, otherwise null.
  Rehearsal* rehearsal() const { return rehearsal_; }
  /// The notes of a rehearsal, or of a real run with counted FLOPs, otherwise null.
  Rehearsal* notes() const { return notes_; }
  /// The order of a rehearsal's kernels if it is recorded, otherwise null.
  RehearsedTrace* trace() const { return rehearsal_ == nullptr ? nullptr : rehearsal_->trace.get(); }

  /// From now on the tensors of training steps are noted in `proof`.
  void prove(detail::Proof& proof) { proof_ = &proof; }
  /// The recorder of a proof, otherwise null.
  detail::Proof* proof() const { return proof_; }

  /// True if loops of any length are divided among the device's threads. This is slower; it is for tests that results do not
  /// depend on the number of threads.
  bool shares_short_loops() const { return shares_short_loops_; }
  void share_short_loops() { shares_short_loops_ = true; }

  /// True if the numbers of a row in a product or in attention do not depend on the other rows of the call, nor on their count
  /// (NumericsOptions::batch_invariant).
  bool batch_invariant() const { return batch_invariant_; }
  void make_batch_invariant() { batch_invariant_ = true; }

  /// The terms that this rank has of each sum over tp whose terms are fixed (NumericsOptions::reproducible_degree); 0: sums have
  /// no fixed terms.
  std::size_t sum_terms() const { return sum_terms_; }
  void fix_sum_terms(std::size_t terms) { sum_terms_ = terms; }
  /// The same for sums over the tokens of a sequence, which cp cuts.
  std::size_t chunk_terms() const { return chunk_terms_; }
  void fix_chunk_terms(std::size_t terms) { chunk_terms_ = terms; }

  /// The device's single object of type T, default-constructed at its first use.
  template <class T>
  T& cache() {
    for (const Cache& cache : caches_)
      if (*cache.type == typeid(T)) return *static_cast<T*>(cache.value.get());
    caches_.push_back({&typeid(T), std::make_shared<T>()});
    return *static_cast<T*>(caches_.back().value.get());
  }

 private:
  struct Cache {
    const std::type_info* type;
    std::shared_ptr<void> value;
  };
  Exec exec_;
  int threads_;
  Rehearsal *rehearsal_ = nullptr, *notes_ = nullptr;
  detail::Proof* proof_ = nullptr;
  detail::Arena<memory_space> arena_;
  bool shares_short_loops_ = false, batch_invariant_ = false;
  std::size_t sum_terms_ = 0, chunk_terms_ = 0;
  std::vector<Cache> caches_;  // only a few
};

namespace detail {

/// While it exists, kernels and allocations of a rehearsed device are not noted: they are not part of the program.
template <class Exec>
class RehearsedAside {
 public:
  WEFT_COLD explicit RehearsedAside(Device<Exec>& device) : device_(device), notes_(*device.rehearsal()) {
    arena_.rehearse();
    device_.arena().exchange(arena_);
  }
  WEFT_COLD ~RehearsedAside() { device_.arena().exchange(arena_); }
  RehearsedAside(const RehearsedAside&) = delete;
  RehearsedAside& operator=(const RehearsedAside&) = delete;

 private:
  Device<Exec>& device_;
  NotesAside notes_;
  Arena<typename Exec::memory_space> arena_;
};

}  // namespace detail

/// The device of programs that do not choose one.
using DefaultDevice = Device<Kokkos::DefaultExecutionSpace>;

}  // namespace weft

#ifdef WEFT_COMPILED
namespace weft {
extern template class Device<Kokkos::DefaultHostExecutionSpace>;
}  // namespace weft
#endif
