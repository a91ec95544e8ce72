// SPDX-License-Identifier: Apache-2.0
#pragma once
// The actions of one rank of a pipeline as data: a list that the executor runs and the checker proves.
//
//   for (const schedule::Action action : schedule::GPipe::order(rank, stages, micro_batches)) ...

#include <vector>

#include <weft/core/standard.hpp>

namespace weft::schedule {

/// A forward, a whole backward, or a backward in two parts: the gradient of the input (I) and later that of the weights (W).
enum class Op : char { F = 'F', B = 'B', I = 'I', W = 'W' };

/// One action on one chunk (the chunk-th piece of the model that this rank holds) and one micro-batch.
struct Action {
  Op what;
  int chunk, micro;
  /// True if this action and the next one in the list form an overlapped pair: an executor may run them at the same time. Running
  /// one after the other gives the same result.
  bool with_next = false;

  friend constexpr bool operator==(const Action&, const Action&) = default;
};

/// All actions of one rank, in the order in which it starts them.
using Order = std::vector<Action>;

/// Times of a chunk's forward, input-gradient and weight-gradient steps, in any unit. A whole backward (B) costs `input +
/// weight`.
struct Costs {
  double forward = 1, input = 1, weight = 1;

  constexpr double backward() const { return input + weight; }
  constexpr double of(Op what) const {
    return what == Op::F ? forward : what == Op::I ? input : what == Op::W ? weight : backward();
  }
};

/// Chunks dealt to the ranks in turn: stage = chunk · ranks + rank. With one chunk per rank this is the plain pipeline.
struct Loop {
  static constexpr int stage(int rank, int chunk, int ranks) { return chunk * ranks + rank; }
  static constexpr int rank_of(int stage, int ranks) { return stage % ranks; }
  static constexpr int chunk_of(int stage, int ranks) { return stage / ranks; }
};

/// Two chunks per rank in a V: rank r holds stages r and 2·ranks − 1 − r, so rank 0 holds the first and the last stage. The turn
/// (stages ranks − 1 and ranks) is inside the last rank and needs no message.
struct VShape {
  static constexpr int stage(int rank, int chunk, int ranks) { return chunk == 0 ? rank : 2 * ranks - 1 - rank; }
  static constexpr int rank_of(int stage, int ranks) { return stage < ranks ? stage : 2 * ranks - 1 - stage; }
  static constexpr int chunk_of(int stage, int ranks) { return stage < ranks ? 0 : 1; }
};

}  // namespace weft::schedule
