// SPDX-License-Identifier: Apache-2.0
// Matrices are brought together from any pieces, worked on once, and brought back; homes share the work.

#include <weft/optim/matrix_exchange.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <deque>
#include <string>
#include <vector>

#include <weft/weft.hpp>

using namespace weft;
using weft::optim::Work;
using weft::optim::detail::MatrixExchange;
using weft::optim::detail::MatrixPiece;

namespace {

/// A rank's pieces: element (global) of a matrix is held at local.
struct Pieces {
  std::deque<ParameterState> states;
  std::vector<MatrixPiece> pieces;

  void add(const std::string& name, std::size_t rows, std::size_t columns, weft::detail::Runs runs, bool by_rows = false) {
    std::size_t held = 0;
    for (const auto& run : runs) held = std::max(held, run.local + run.length);
    ParameterInfo info;
    info.name = name;
    info.global = {rows, columns};
    info.local = {held};
    info.type = info.gradient_type = DataType::float64;
    info.runs = std::move(runs);
    pieces.push_back({&states.emplace_back(std::move(info)), rows, columns, by_rows});
  }
};

weft::detail::Runs columns_of(std::size_t rows, std::size_t columns, std::size_t first, std::size_t count) {
  weft::detail::Runs runs;
  for (std::size_t row = 0; row < rows; ++row) runs.push_back({row * count, row * columns + first, count});
  return runs;
}

}  // namespace

TEST_CASE("pieces of every shape come together and go back, at home and everywhere") {
  for (const Work work : {Work::home, Work::everywhere})
    for (const std::size_t ranks : {1, 2, 4}) {
      std::atomic<int> worked{0};
      CHECK(runtime::run(runtime::RunOptions{.ranks = int(ranks)}, [&](World& world) {
              const std::size_t rank = std::size_t(world.rank());
              Pieces mine;
              mine.add("columns", 6, 8, columns_of(6, 8, rank * 8 / ranks, 8 / ranks));
              mine.add("rows", 8, 5, {{0, rank * 40 / ranks, 40 / ranks}});
              // A stage of ZeRO cuts anywhere, and some ranks have nothing.
              const std::size_t begin = rank == 0 ? 0 : 7, end = ranks == 1 || rank == 1 ? 20 : rank == 0 ? 7 : 0;
              if (begin < end) mine.add("anywhere", 4, 5, {{0, begin, end - begin}});
              mine.add("copies", 3, 3, {{0, 0, 9}});
              // Segments of columns, in another order than in the matrix.
              if (rank < 2)
                mine.add("segments", 2, 8,
                         ranks == 1 ? weft::detail::Runs{{0, 0, 16}}
                                    : weft::detail::Runs{
                                          {2, rank * 2, 2}, {0, 4 + rank * 2, 2}, {6, 8 + rank * 2, 2}, {4, 12 + rank * 2, 2}});
              mine.add("padded", 3, 2, rank == 0 ? weft::detail::Runs{{0, 0, 4}, {6, 4, 2}} : weft::detail::Runs{{1, 2, 4}});
              DefaultDevice device;
              const MatrixExchange exchange(world.communicator(), mine.pieces, work);
              for (const bool second : {false, true}) {
                std::vector<char> due(mine.pieces.size(), true);
                std::vector<weft::detail::Buffer> arrays(due.size());
                for (std::size_t k = 0; k < due.size(); ++k) {
                  const ParameterState& state = *mine.pieces[k].state;
                  if (second && state.name() == "copies") due[k] = false;
                  arrays[k] = device.allocate(2 * state.kept() * sizeof(double));
                  double* at = static_cast<double*>(arrays[k].get());
                  for (std::size_t i = 0; i < 2 * state.kept(); ++i) at[i] = -1;
                  for (const auto& run : state.runs())
                    for (std::size_t i = 0; i < run.length; ++i) {
                      at[run.local + i] = double(run.global + i);
                      at[state.kept() + run.local + i] = 100 + double(run.global + i);
                    }
                }
                exchange.run<double>(device, due, arrays, 2, 1,
                                     [&](std::size_t k, std::size_t rows, std::size_t columns, double* x) {
                                       ++worked;
                                       const MatrixPiece& piece = mine.pieces[k];
                                       if (rows != piece.rows || columns != piece.columns) throw Error("a part");
                                       for (std::size_t i = 0; i < rows * columns; ++i) {
                                         if (x[i] != double(i) || x[rows * columns + i] != 100 + double(i))
                                           throw Error(piece.state->name() + ": elements are lost");
                                         x[i] = 1000 + double(i);
                                       }
                                     });
                for (std::size_t k = 0; k < due.size(); ++k) {
                  const ParameterState& state = *mine.pieces[k].state;
                  const double* at = static_cast<const double*>(arrays[k].get());
                  for (const auto& run : state.runs())
                    for (std::size_t i = 0; i < run.length; ++i)
                      if (at[run.local + i] != (due[k] ? 1000 : 0) + double(run.global + i) ||
                          at[state.kept() + run.local + i] != 100 + double(run.global + i))
                        throw Error(state.name() + ": results are lost");
                }
              }
            }) == 0);
      if (work == Work::home) CHECK(worked == 6 + 5);
      else CHECK(worked > (ranks == 1 ? 10 : 12));
    }
}

TEST_CASE("homes share the work: no rank has more than the even share and one matrix") {
  std::atomic<std::size_t> most{0}, all{0};
  CHECK(runtime::run(runtime::RunOptions{.ranks = 4}, [&](World& world) {
          Pieces mine;
          for (std::size_t k = 0; k < 13; ++k) mine.add("matrix " + std::to_string(k), 4, 4, {{0, 0, 16}});
          const MatrixExchange exchange(world.communicator(), mine.pieces, Work::home);
          std::size_t here = 0;
          for (std::size_t k = 0; k < 13; ++k) here += exchange.works(k);
          all += here;
          std::size_t seen = most;
          while (seen < here && !most.compare_exchange_weak(seen, here)) {}
        }) == 0);
  CHECK(all == 13);
  CHECK(most == 4);
}

TEST_CASE("ranks that hold whole rows work apart where rows suffice") {
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          const std::size_t rank = std::size_t(world.rank());
          Pieces mine;
          mine.add("rows", 4, 3, {{0, rank * 6, 6}}, true);
          mine.add("within a row", 4, 3, {{0, rank * 7, rank == 0 ? 7u : 5u}}, true);
          mine.add("matrix", 4, 3, {{0, rank * 6, 6}}, false);
          const MatrixExchange exchange(world.communicator(), mine.pieces, Work::home);
          if (!exchange.apart(0) || exchange.apart(1) || exchange.apart(2)) throw Error("rows that are apart");
        }) == 0);
}

TEST_CASE("a matrix of which no rank holds an element is refused") {
  std::string text;
  runtime::run(runtime::RunOptions{.ranks = 1}, [&](World& world) {
    Pieces mine;
    mine.add("short", 2, 3, {{0, 0, 4}, {4, 5, 1}});
    try {
      MatrixExchange exchange(world.communicator(), mine.pieces, Work::home);
    } catch (const Error& error) {
      text = error.what();
    }
  });
  CHECK(text == "weft: optimizer: no rank holds element 4 of short");
}
