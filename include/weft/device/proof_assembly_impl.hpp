// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensors from the pieces of all ranks. Definitions for device/proof_assembly.hpp.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include <weft/core/inline.hpp>
#include <weft/device/proof_assembly.hpp>

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

/// The difference of an element of two ranks over the scale; infinite if only one is no number.
WEFT_COLD WEFT_INLINE double replica_difference(double one, double other, double scale) {
  if (one == other || (std::isnan(one) && std::isnan(other))) return 0;
  const double difference = std::abs(one - other) / scale;
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

/// The sum of the pieces, or the first one and the largest relative difference from it.
WEFT_COLD WEFT_INLINE std::vector<double> added_pieces(const ProofPieces& pieces, double& replicas) {
  const ProofPiece& one = *pieces.begin()->second;
  std::vector<double> all = one.values;
  double most = 1e-300;
  for (const double value : all) most = std::max(most, std::abs(value));
  for (auto at = std::next(pieces.begin()); at != pieces.end(); ++at)
    for (std::size_t i = 0; i < std::min(all.size(), at->second->values.size()); ++i)
      if (one.over_tp.kind == ProofPiece::partial) all[i] += at->second->values[i];
      else replicas = std::max(replicas, replica_difference(all[i], at->second->values[i], most));
  return all;
}

WEFT_COLD WEFT_INLINE void assemble(ProofNotes::Tensor& tensor) {
  std::map<std::pair<std::size_t, std::size_t>, ProofPieces> micro_batches;
  for (const ProofPiece& piece : tensor.pieces) micro_batches[{piece.dp_rank, piece.first}][piece.tp_rank] = &piece;
  for (const auto& [at, pieces] : micro_batches) {
    const ProofPiece& one = *pieces.begin()->second;
    const bool cut = one.over_tp.kind == ProofPiece::shard && !one.shape.empty();
    const std::vector<double> all = cut ? joined_pieces(pieces) : added_pieces(pieces, tensor.replicas);
    tensor.sorted = cut && one.over_tp.dim > 0;
    if (one.over_dp.kind == ProofPiece::partial) {  // a sum over the rows of all data ranks and micro-batches
      std::vector<double>& sum = tensor.parts[0];
      sum.resize(all.size());
      for (std::size_t i = 0; i < all.size(); ++i) sum[i] += all[i];
    }
    std::size_t rows = one.shape.empty() ? 1 : one.shape[0];
    if (cut && one.over_tp.dim == 0) {
      rows = 0;
      for (const auto& [rank, piece] : pieces) rows += piece->shape[0];
    }
    // Other values belong to a micro-batch, which layouts cut differently.
    if (one.over_dp.kind != ProofPiece::shard || one.over_dp.dim != 0 || rows % one.samples != 0) continue;
    const auto each = std::ptrdiff_t(all.size() / one.samples);
    for (std::size_t s = 0; s < one.samples; ++s)
      tensor.parts[one.first + s].assign(all.begin() + std::ptrdiff_t(s) * each, all.begin() + std::ptrdiff_t(s + 1) * each);
  }
  tensor.pieces.clear();
}

WEFT_COLD WEFT_INLINE void assemble(ProofNotes& notes) {
  for (auto& [key, tensor] : notes.tensors)
    if (!tensor.pieces.empty()) assemble(tensor);
}

}  // namespace weft::detail
