// SPDX-License-Identifier: Apache-2.0
#pragma once
// The exchange that gives optimizer rules whole matrices. Ranks hold pieces of a matrix (tp, stages of ZeRO) or the same copy of
// it (data-parallel ranks). Each matrix gets a home rank among its holders, balanced by cost. One all-to-all sends the pieces
// there, the rule transforms whole matrices, and one all-to-all returns the results. Elements are moved, never added, so the
// results have the same bits for every division of a matrix and every home. Each rank computes the plan from the layout, without
// communication.
//
//   MatrixExchange exchange(communicator, pieces, held, Work::home);   // once
//   exchange.run<float>(device, due, arrays, 1, transform);            // each step; collective

#include <cstddef>
#include <span>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/engine/parameter_pieces.hpp>
#include <weft/engine/parameter_state.hpp>
#include <weft/tensor/to.hpp>

namespace weft::optim {

/// The ranks that transform a whole matrix.
enum class Work {
  home,        ///< one rank, which sends the result to the others
  everywhere,  ///< every rank with a piece gathers the others: nothing to return, but every rank does the work
};

namespace detail {

using weft::detail::Run;
using weft::detail::Runs;
using weft::detail::Strided;

/// A part of this rank's elements of one matrix, to be sent to or received from a rank.
struct Passage {
  std::size_t piece = 0;      ///< the index of the piece
  std::vector<Strided> runs;  ///< in this rank's elements, or in the whole matrix
  std::size_t size() const;
};

/// This rank's piece of a matrix; it can be empty.
struct MatrixPiece {
  const ParameterState* state = nullptr;
  std::size_t rows = 0, columns = 0;  ///< of the whole matrix
  bool by_rows = false;               ///< rows can be transformed independently
  std::size_t workspace = 0;          ///< additional elements that the transform needs
  std::size_t home = 0;               ///< elements that the home keeps between steps
};

/// The rank that needs the most memory if each matrix is transformed at its home: for whole matrices, workspaces, and messages.
/// Experts' matrices are included only for this rank's experts.
std::size_t fullest_rank(const std::vector<MatrixPiece>& pieces, const std::vector<weft::detail::ParameterPieces>& held,
                         std::size_t ranks);

class MatrixExchange {
 public:
  /// `pieces`: all matrices of this rank's stage. `held[piece]`: the elements that the ranks of `communicator` hold of that
  /// matrix.
  MatrixExchange(const Communicator& communicator, std::vector<MatrixPiece> pieces,
                 const std::vector<weft::detail::ParameterPieces>& held, Work work);

  /// True if this rank transforms the piece's matrix, or its own rows of it.
  bool works(std::size_t piece) const { return works_[piece]; }
  /// True if the ranks hold whole rows and each transforms its own, so nothing is exchanged.
  bool apart(std::size_t piece) const { return apart_[piece]; }
  std::size_t pieces() const { return pieces_.size(); }

  /// `arrays[piece]`: `sent` arrays [kept] of this rank's elements, contiguous. Calls transform(piece, rows, columns, arrays
  /// [sent, rows, columns]) on each whole matrix, and writes the first `returned` arrays back to `arrays`. `due[piece]`: true if
  /// the matrix takes part; the same on all its holders, and false on other ranks. Collective.
  template <class A, class Exec, class Transform>
  void run(Device<Exec>& device, const std::vector<char>& due, const std::vector<weft::detail::Buffer>& arrays, std::size_t sent,
           std::size_t returned, const Transform& transform) const;

 private:
  struct Route {
    std::vector<std::vector<Passage>> to, from;  // by rank
    std::vector<Passage> here_from, here_to;     // passages that stay on this rank
  };
  template <class A, class Exec>
  void pass(Device<Exec>& device, const Route& route, const std::vector<char>& due, const std::vector<weft::detail::Buffer>& from,
            const std::vector<weft::detail::Buffer>& to, std::size_t count, bool there) const;
  std::size_t whole_size(std::size_t piece) const { return pieces_[piece].rows * pieces_[piece].columns; }
  std::size_t kept_size(std::size_t piece) const { return pieces_[piece].state->kept(); }

  Communicator communicator_;
  std::vector<MatrixPiece> pieces_;
  std::vector<char> works_, apart_;
  Route there_, back_;
};

template <class A, class Exec>
void MatrixExchange::pass(Device<Exec>& device, const Route& route, const std::vector<char>& due,
                          const std::vector<weft::detail::Buffer>& from, const std::vector<weft::detail::Buffer>& to,
                          std::size_t count, bool there) const {
  const auto at = [&](const std::vector<weft::detail::Buffer>& arrays, std::size_t piece, std::size_t array, bool whole) {
    return static_cast<A*>(arrays[piece].get()) + array * (whole ? whole_size(piece) : kept_size(piece));
  };
  const auto total = [&](const std::vector<Passage>& passages) {
    std::size_t size = 0;
    for (const Passage& passage : passages) size += due[passage.piece] ? passage.size() * count : 0;
    return size;
  };
  // Copies a passage from an array to contiguous elements, or back.
  const auto copy = [&](const Passage& passage, A* message, bool packs) {
    for (std::size_t array = 0; array < count; ++array)
      for (const Strided& run : passage.runs) {
        A* const elements = at(packs ? from : to, passage.piece, array, packs != there) + run.first;
        if (packs) weft::detail::copy_rows<Exec, A>(device, run.runs, run.run, elements, run.stride, message, run.run);
        else weft::detail::copy_rows<Exec, A>(device, run.runs, run.run, message, run.run, elements, run.stride);
        message += run.elements();
      }
    return message;
  };
  for (std::size_t k = 0; k < route.here_from.size(); ++k) {
    if (!due[route.here_from[k].piece]) continue;
    const weft::detail::Buffer beside = device.allocate(route.here_from[k].size() * count * sizeof(A));
    copy(route.here_from[k], static_cast<A*>(beside.get()), true);
    copy(route.here_to[k], static_cast<A*>(beside.get()), false);
  }
  if (communicator_.size() == 1) return;
  std::vector<std::size_t> sends, receives;
  std::size_t sending = 0, receiving = 0;
  for (const auto& passages : route.to) sending += sends.emplace_back(total(passages));
  for (const auto& passages : route.from) receiving += receives.emplace_back(total(passages));
  const weft::detail::Buffer out = device.allocate(sending * sizeof(A)), in = device.allocate(receiving * sizeof(A));
  A* message = static_cast<A*>(out.get());
  for (const auto& passages : route.to)
    for (const Passage& passage : passages)
      if (due[passage.piece]) message = copy(passage, message, true);
  communicator_.all_to_all_v(device.exec(), std::span<const A>(static_cast<const A*>(out.get()), sending), sends,
                             std::span<A>(static_cast<A*>(in.get()), receiving), receives);
  message = static_cast<A*>(in.get());
  for (const auto& passages : route.from)
    for (const Passage& passage : passages)
      if (due[passage.piece]) message = copy(passage, message, false);
}

template <class A, class Exec, class Transform>
void MatrixExchange::run(Device<Exec>& device, const std::vector<char>& due, const std::vector<weft::detail::Buffer>& arrays,
                         std::size_t sent, std::size_t returned, const Transform& transform) const {
  std::vector<weft::detail::Buffer> whole(pieces_.size());
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece)
    if (due[piece] && works_[piece] && !apart_[piece]) whole[piece] = device.allocate(whole_size(piece) * sent * sizeof(A));
  pass<A>(device, there_, due, arrays, whole, sent, true);
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
    if (!due[piece] || !works_[piece]) continue;
    const std::size_t columns = pieces_[piece].columns, rows = apart_[piece] ? kept_size(piece) / columns : pieces_[piece].rows;
    transform(piece, rows, columns, static_cast<A*>((apart_[piece] ? arrays : whole)[piece].get()));
  }
  pass<A>(device, back_, due, whole, arrays, returned, false);
}

}  // namespace detail

}  // namespace weft::optim

#ifndef WEFT_COMPILED
#include <weft/optim/matrix_exchange_impl.hpp>
#endif
