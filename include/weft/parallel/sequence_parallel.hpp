// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sequence parallelism over the tensor axis (Korthikanti et al., arXiv:2205.05198): between blocks the rows of the hidden state
// are cut over tp, so norms, dropouts and residual sums are computed once instead of tp times, and their activations take 1/tp of
// the memory. Every all-reduce becomes a reduce-scatter and an all-gather, which together move as many bytes.
//
//   DataParallel<SequenceParallel<PipelineParallel<models::Gpt>>> model(mesh, config);
//
// Only the placement of the hidden state differs from TensorParallel. Every collective follows from the types, and so do the sums
// over tp of the gradients of norms, which are now terms of a sum.

#include <weft/parallel/tensor_parallel.hpp>

namespace weft {

/// M with its large weights cut over tp and the hidden state [tokens / tp, width] between blocks. The tokens of a micro-batch
/// must be divisible by tp, else ShapeError. Numerics: as TensorParallel.
template <class M>
using SequenceParallel = TensorParallel<M, Shard<tp, 0>>;

}  // namespace weft
