// SPDX-License-Identifier: Apache-2.0
#pragma once
// The flat array of the parameters that FullyShardedDataParallel gathers and reduces together: the place of each, and the equal
// pieces that the ranks keep. Gradients lie in the order of the values, without the frozen parameters, so that one collective
// moves all values and another one sums all gradients.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include <weft/autograd/parameter.hpp>
#include <weft/comm/communicator.hpp>
#include <weft/engine/hook/bucket.hpp>

namespace weft::detail {

/// Counts are of elements. Pieces and parameters begin on cache lines in every element type; the elements between them are zero.
struct FlatArray {
  static constexpr std::size_t grain = 32;

  std::vector<FlatMember> members;
  std::size_t elements = 0, piece = 0, ranks = 1, rank = 0;

  void add(ParameterState* state) {
    members.push_back({state, elements});
    elements += round_up(state->size());
  }
  /// Cuts it in one piece for each rank of `sharing`, once all parameters are there.
  void cut(const Communicator& sharing) {
    ranks = std::size_t(sharing.size());
    rank = std::size_t(sharing.rank());
    piece = round_up((elements + ranks - 1) / ranks);
  }
  /// The size of the array with all pieces.
  std::size_t size() const { return piece * ranks; }
  /// The first element of this rank's piece.
  std::size_t begin() const { return rank * piece; }
  /// The first element of a parameter that this rank keeps, if it keeps any.
  std::size_t first_kept(const FlatMember& member) const { return std::max(begin(), member.first); }
  /// The element behind a parameter and the gap that follows it.
  std::size_t end_of(std::size_t index) const { return index + 1 < members.size() ? members[index + 1].first : elements; }

 private:
  static std::size_t round_up(std::size_t count) { return (count + grain - 1) / grain * grain; }
};

/// The gradients of the parameters that are trained.
class FlatGradientLayout {
 public:
  FlatGradientLayout() = default;
  /// A rank sums the gradients of the elements that it keeps: a frozen parameter takes its elements out of the pieces.
  explicit FlatGradientLayout(const FlatArray& array) : begins_(array.ranks + 1), rank_(array.rank) {
    for (std::size_t rank = 0; rank <= array.ranks; ++rank) begins_[rank] = rank * array.piece;
    std::size_t frozen = 0;
    for (std::size_t i = 0; i < array.members.size(); ++i) {
      const FlatMember& member = array.members[i];
      if (member.state->trainable()) {
        members_.push_back({member.state, member.first - frozen});
        continue;
      }
      const std::size_t end = array.end_of(i);
      for (std::size_t rank = 0; rank <= array.ranks; ++rank)
        begins_[rank] -= std::clamp(rank * array.piece, member.first, end) - member.first;
      frozen += end - member.first;
    }
    if (members_.empty()) begins_.assign(array.ranks + 1, 0);
    counts_.resize(array.ranks);
    std::adjacent_difference(begins_.begin() + 1, begins_.end(), counts_.begin());
  }

  /// The trainable parameters, with their places among the gradients.
  std::span<const FlatMember> members() const { return members_; }
  bool empty() const { return members_.empty(); }
  std::size_t size() const { return begins_.back(); }
  std::size_t begin() const { return begins_[rank_]; }  ///< of this rank's piece
  std::size_t piece() const { return counts_[rank_]; }
  /// The begins of all ranks' pieces, and the size.
  const std::vector<std::size_t>& begins() const { return begins_; }
  std::span<const std::size_t> counts() const { return counts_; }

 private:
  std::vector<FlatMember> members_;
  std::vector<std::size_t> begins_{0, 0}, counts_{0};
  std::size_t rank_ = 0;
};

/// The memory `bytes` behind the begin of a buffer, which it keeps alive.
inline Buffer buffer_at(const Buffer& buffer, std::size_t bytes) {
  return Buffer(buffer, static_cast<char*>(buffer.get()) + bytes);
}

}  // namespace weft::detail
