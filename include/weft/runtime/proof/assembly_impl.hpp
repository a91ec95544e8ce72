// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensors from the pieces of all ranks. Definitions for runtime/proof/assembly.hpp.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include <weft/core/inline.hpp>
#include <weft/mesh/zigzag.hpp>
#include <weft/runtime/proof/assembly.hpp>

namespace weft::detail {

/// The pieces of one micro-batch by their rank of tp.
using ProofPieces = std::map<std::size_t, const ProofPiece*>;

/// The pieces along the dim that tp cuts, one after the other.
WEFT_COLD WEFT_INLINE std::vector<double> joined_pieces(const ProofPieces& pieces) {
  const ProofPiece& one = *pieces.begin()->second;
  const auto cut = std::size_t(std::max(0, one.over_tp.dim));
  std::size_t outer = 1, inner = 1;
  for (std::size_t dim = 0; dim < one.shape.size(); ++dim)
    if (dim != cut) (dim < cut ? outer : inner) *= one.shape[dim];
  std::vector<double> all;
  for (std::size_t o = 0; o < outer; ++o)
    for (const auto& [rank, piece] : pieces) {
      const auto length = std::ptrdiff_t(piece->shape[cut] * inner);
      const auto begin = piece->values.begin() + std::ptrdiff_t(o) * length;
      all.insert(all.end(), begin, begin + length);
    }
  return all;
}

/// The largest difference of another rank's elements from these, over the largest finite one of these: an infinite scale would
/// hide all differences. Infinite if only one of two elements is no number.
WEFT_COLD WEFT_INLINE double largest_difference(const std::vector<double>& of, const std::vector<double>& other) {
  double scale = 1e-300, largest = 0;
  for (const double value : of)
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < std::min(of.size(), other.size()); ++i) {
    if (of[i] == other[i] || (std::isnan(of[i]) && std::isnan(other[i]))) continue;
    const double difference = std::abs(of[i] - other[i]) / scale;
    largest = std::max(largest, std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference);
  }
  return largest;
}

/// Adds another rank's elements to a sum, or compares them with those of a value that each rank has.
WEFT_COLD WEFT_INLINE void add_or_compare(ProofPiece::Kind kind, std::vector<double>& all, const std::vector<double>& other,
                                          double& replicas) {
  if (kind != ProofPiece::partial) replicas = std::max(replicas, largest_difference(all, other));
  else
    for (std::size_t i = 0; i < std::min(all.size(), other.size()); ++i) all[i] += other[i];
}

/// The sum of the pieces, or the first one and the largest relative difference from it.
WEFT_COLD WEFT_INLINE std::vector<double> added_pieces(const ProofPieces& pieces, double& replicas) {
  const ProofPiece& one = *pieces.begin()->second;
  std::vector<double> all = one.values;
  for (auto at = std::next(pieces.begin()); at != pieces.end(); ++at)
    add_or_compare(one.over_tp.kind, all, at->second->values, replicas);
  return all;
}

/// One cp rank's part of a micro-batch: the pieces of all ranks of tp as one.
struct ProofRows {
  std::vector<double> values;
  std::size_t rows = 1;  ///< of dim 0
};

WEFT_COLD WEFT_INLINE ProofRows rows_of(const ProofPieces& pieces, double& replicas) {
  const ProofPiece& one = *pieces.begin()->second;
  const bool cut = one.over_tp.kind == ProofPiece::shard && !one.shape.empty();
  ProofRows part{cut ? joined_pieces(pieces) : added_pieces(pieces, replicas), one.shape.empty() ? 1 : one.shape[0]};
  if (cut && one.over_tp.dim == 0) {
    part.rows = 0;
    for (const auto& [rank, piece] : pieces) part.rows += piece->shape[0];
  }
  return part;
}

/// The parts of all cp ranks as one: positions by the zigzag (mesh/zigzag.hpp), sums added. Empty if they do not fit together.
WEFT_COLD WEFT_INLINE std::vector<double> joined_positions(const ProofPiece& one, std::vector<ProofRows> parts,
                                                           double& replicas) {
  std::vector<double> all = parts.front().values;
  const std::size_t ranks = parts.size();
  if (ranks == 1) return all;
  for (const ProofRows& part : parts)
    if (part.values.size() != all.size()) return {};
  if (one.over_cp.kind != ProofPiece::shard) {
    for (std::size_t rank = 1; rank < ranks; ++rank) add_or_compare(one.over_cp.kind, all, parts[rank].values, replicas);
    return all;
  }
  const std::size_t positions = one.over_cp.dim == 1 && one.shape.size() > 1 ? one.shape[1] : parts.front().rows / one.samples;
  if (one.over_cp.dim > 1 || positions % 2 != 0 || all.size() % (one.samples * positions) != 0) return {};
  const std::size_t each = all.size() / one.samples, width = each / positions;
  all.resize(all.size() * ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Zigzag cut{positions * ranks, ranks, rank};
    for (std::size_t i = 0; i < one.samples * positions; ++i)
      std::copy_n(parts[rank].values.begin() + std::ptrdiff_t(i * width), width,
                  all.begin() + std::ptrdiff_t(cut.row(i) * width));
  }
  return all;
}

WEFT_COLD WEFT_INLINE void assemble(ProofNotes::Tensor& tensor) {
  std::map<std::pair<std::size_t, std::size_t>, std::map<std::size_t, ProofPieces>> micro_batches;
  for (const ProofPiece& piece : tensor.pieces)
    micro_batches[{piece.dp_rank, piece.first}][piece.cp_rank][piece.tp_rank] = &piece;
  for (const auto& [at, of_cp] : micro_batches) {
    const ProofPiece& one = *of_cp.begin()->second.begin()->second;
    std::vector<ProofRows> parts;
    for (const auto& [rank, pieces] : of_cp) parts.push_back(rows_of(pieces, tensor.replicas));
    const std::size_t rows = parts.front().rows;
    const std::vector<double> all = joined_positions(one, std::move(parts), tensor.replicas);
    if (all.empty()) continue;
    tensor.sorted = one.over_tp.kind == ProofPiece::shard && !one.shape.empty() && one.over_tp.dim > 0;
    if (one.over_dp.kind == ProofPiece::partial) {  // a sum over the rows of all data ranks and micro-batches
      std::vector<double>& sum = tensor.parts[0];
      sum.resize(all.size());
      for (std::size_t i = 0; i < all.size(); ++i) sum[i] += all[i];
    }
    // Other values belong to a micro-batch, which layouts cut differently.
    if (one.over_dp.kind != ProofPiece::shard || one.over_dp.dim != 0 || rows % one.samples != 0) continue;
    const auto each = std::ptrdiff_t(all.size() / one.samples);
    for (std::size_t s = 0; s < one.samples; ++s)
      tensor.parts[one.first + s].assign(all.begin() + std::ptrdiff_t(s) * each, all.begin() + std::ptrdiff_t(s + 1) * each);
  }
  tensor.pieces.clear();
}

/// Compares the copies of the ranks and leaves the first.
WEFT_COLD WEFT_INLINE void join_copies(ProofNotes::Tensor& tensor) {
  const std::vector<double> first = tensor.parts.begin()->second;
  for (const auto& [rank, copy] : tensor.parts)
    tensor.replicas = std::max(
        tensor.replicas, first.size() == copy.size() ? largest_difference(first, copy) : std::numeric_limits<double>::infinity());
  tensor.parts = {{0, first}};
  tensor.copies = false;
}

WEFT_COLD WEFT_INLINE void assemble(ProofNotes& notes) {
  for (auto& [key, tensor] : notes.tensors) {
    if (!tensor.pieces.empty()) assemble(tensor);
    if (tensor.copies) join_copies(tensor);
  }
}

}  // namespace weft::detail
