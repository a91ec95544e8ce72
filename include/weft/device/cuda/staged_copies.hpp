// SPDX-License-Identifier: Apache-2.0
#pragma once
// Copies of small host arrays to a GPU without waiting: tokens, targets, factors. A direct copy from ordinary memory must finish
// before that memory changes, so the host would wait for all earlier kernels. Here the values pass through two alternating pieces
// of page-locked memory.
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

  /// Copies `bytes` from `from` to `to` on the GPU, after the current work of `stream` and before its later work. `from` may
  /// change as soon as this returns. Waits only for the last copy but one. Throws CudaError.
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
