// SPDX-License-Identifier: Apache-2.0
#pragma once
// Copies of small arrays of the host to a GPU without a wait: tokens, targets, factors. A copy straight from ordinary memory must
// be over before that memory changes, and so a host would wait for all kernels before it; here the values go through page-locked
// memory, two pieces in turn.
//
//   gpu::StagedCopies copies;
//   copies.start(on_device, tokens.data(), bytes, stream);   // tokens may change from here on

#include <array>
#include <cstddef>
#include <cstring>

#include <weft/device/cuda/pinned_memory.hpp>

namespace weft::gpu {

class StagedCopies {
 public:
  StagedCopies() = default;
  StagedCopies(const StagedCopies&) = delete;
  StagedCopies& operator=(const StagedCopies&) = delete;
  ~StagedCopies() {
    for (Piece& piece : pieces_) {
      try {
        if (piece.used) piece.copied.wait();
      } catch (const CudaError&) {  // a GPU with an error copies nothing
      }
    }
  }

  /// Copies `bytes` from `from` to `to` on the GPU, after the work that `stream` has been given so far and before its later work.
  /// `from` may change as soon as this returns. Waits for the copy before the last one alone. Throws CudaError.
  void start(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    if (bytes == 0) return;
    Piece& piece = pieces_[next_];
    next_ = 1 - next_;
    if (piece.used) piece.copied.wait();
    if (piece.memory.bytes() < bytes) piece.memory = PinnedMemory(bytes);
    std::memcpy(piece.memory.data(), from, bytes);
    cuda_check(cudaMemcpyAsync(to, piece.memory.data(), bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    piece.copied.record(stream);
    piece.used = true;
  }

 private:
  struct Piece {
    PinnedMemory memory{0};
    CudaEvent copied;
    bool used = false;
  };
  std::array<Piece, 2> pieces_;
  std::size_t next_ = 0;
};

}  // namespace weft::gpu
