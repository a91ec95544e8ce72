// SPDX-License-Identifier: Apache-2.0
#pragma once
// The exchange that gives optimizer rules whole matrices. Ranks hold pieces of a matrix (tp, stages of ZeRO) or the same copy of
// it (data ranks). Each matrix gets a home rank among those that hold it, balanced by cost; one all-to-all brings the pieces
// there, the rule works on whole matrices, and one all-to-all brings the results back. An element is moved, never added, so the
// results have the same bits wherever a matrix is cut and wherever its home is. Each rank makes the plan by itself, from what
// follows of the layout.
//
//   MatrixExchange exchange(communicator, pieces, held, Work::home);   // once
//   exchange.run<float>(device, due, arrays, 1, transform);            // each step; collective

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/engine/parameter_pieces.hpp>
#include <weft/engine/parameter_state.hpp>
#include <weft/tensor/to.hpp>

namespace weft::optim {

/// Where an optimizer's rule works on a whole matrix.
enum class Work {
  home,        ///< on one rank, which sends the result to the others
  everywhere,  ///< on every rank that holds a piece, which gathers the others: no way back, and the work of all ranks
};

namespace detail {

/// `count` runs of `length` elements, `stride` apart.
struct Strided {
  std::size_t offset = 0, length = 0, count = 1, stride = 0;
  std::size_t size() const { return length * count; }
};

/// A part of this rank's elements of one matrix, on its way to or from a rank.
struct Passage {
  std::size_t piece = 0;      ///< the index of the piece
  std::vector<Strided> runs;  ///< among this rank's elements, or in the whole matrix
  std::size_t size() const;
};

/// This rank's piece of a matrix, which may have no elements.
struct MatrixPiece {
  const ParameterState* state = nullptr;
  std::size_t rows = 0, columns = 0;  ///< of the whole matrix
  bool by_rows = false;               ///< rows may be worked on apart
  std::size_t workspace = 0;          ///< elements that the work on it takes beside it
};

/// The rank that needs the most memory where each matrix is worked on at its home: for whole matrices, the work on them, and the
/// messages that bring their pieces. Of experts only the matrices of this rank's are known.
std::size_t fullest_rank(const std::vector<MatrixPiece>& pieces, const std::vector<weft::detail::ParameterPieces>& held,
                         std::size_t ranks);

class MatrixExchange {
 public:
  /// `pieces`: of all matrices of this rank's stage; `held[piece]`: what the ranks of `communicator` have of that matrix.
  MatrixExchange(const Communicator& communicator, std::vector<MatrixPiece> pieces,
                 const std::vector<weft::detail::ParameterPieces>& held, Work work);

  /// Whether this rank works on a piece's matrix, or on the rows of it that it holds.
  bool works(std::size_t piece) const { return works_[piece]; }
  /// Whether the ranks hold whole rows of it and each works on its own, so that nothing is exchanged.
  bool apart(std::size_t piece) const { return apart_[piece]; }
  std::size_t pieces() const { return pieces_.size(); }

  /// `arrays[piece]`: `sent` arrays [kept] of this rank's elements, one after the other. Calls transform(piece, rows, columns,
  /// arrays [sent, rows, columns]) where a matrix is whole, and writes the first `returned` of its arrays back to `arrays`.
  /// `due[piece]`: whether the matrix takes part, the same on all ranks that hold it, and false on others. Collective.
  template <class A, class Exec, class Transform>
  void run(Device<Exec>& device, const std::vector<char>& due, const std::vector<weft::detail::Buffer>& arrays, std::size_t sent,
           std::size_t returned, const Transform& transform) const;

 private:
  struct Route {
    std::vector<std::vector<Passage>> to, from;  // by rank
    std::vector<Passage> here_from, here_to;     // what stays on this rank
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
  // Copies a passage between an array and consecutive elements.
  const auto pack = [&](const Passage& passage, A* message, bool whole) {
    for (std::size_t array = 0; array < count; ++array)
      for (const Strided& run : passage.runs) {
        weft::detail::copy_rows(device, run.count, run.length,
                                static_cast<const A*>(at(from, passage.piece, array, whole)) + run.offset, run.stride, message,
                                run.length);
        message += run.size();
      }
    return message;
  };
  const auto unpack = [&](const Passage& passage, const A* message, bool whole) {
    for (std::size_t array = 0; array < count; ++array)
      for (const Strided& run : passage.runs) {
        weft::detail::copy_rows(device, run.count, run.length, message, run.length,
                                at(to, passage.piece, array, whole) + run.offset, run.stride);
        message += run.size();
      }
    return message;
  };
  for (std::size_t k = 0; k < route.here_from.size(); ++k) {
    if (!due[route.here_from[k].piece]) continue;
    const weft::detail::Buffer beside = device.allocate(route.here_from[k].size() * count * sizeof(A));
    pack(route.here_from[k], static_cast<A*>(beside.get()), !there);
    unpack(route.here_to[k], static_cast<const A*>(beside.get()), there);
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
      if (due[passage.piece]) message = pack(passage, message, !there);
  communicator_.all_to_all_v(device.exec(), std::span<const A>(static_cast<const A*>(out.get()), sending), sends,
                             std::span<A>(static_cast<A*>(in.get()), receiving), receives);
  const A* arrived = static_cast<const A*>(in.get());
  for (const auto& passages : route.from)
    for (const Passage& passage : passages)
      if (due[passage.piece]) arrived = unpack(passage, arrived, there);
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
