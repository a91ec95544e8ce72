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

/// A rank's pieces of matrices, with information about all ranks: element (global) is stored at local.
struct Pieces {
  std::size_t rank, ranks;
  std::deque<ParameterState> states = {};
  std::vector<MatrixPiece> pieces = {};
  std::vector<weft::detail::ParameterPieces> held = {};

  /// `runs_of(rank)`: empty if the rank holds nothing.
  template <class F>
  void add(const std::string& name, std::size_t rows, std::size_t columns, const F& runs_of, bool by_rows = false) {
    weft::detail::ParameterPieces all;
    for (std::size_t r = 0; r < ranks; ++r) {
      const weft::detail::Runs runs = runs_of(r);
      if (runs.empty()) continue;
      all.holders.push_back({r, all.pieces.size()});
      all.pieces.push_back(runs);
    }
    held.push_back(std::move(all));
    ParameterInfo info;
    info.name = name;
    info.global = {rows, columns};
    info.runs = runs_of(rank);
    std::size_t here = 0;
    for (const auto& run : info.runs) here = std::max(here, run.local + run.length);
    info.local = {here};
    info.type = info.gradient_type = DataType::float64;
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
              using weft::detail::Runs;
              Pieces mine{rank, ranks};
              mine.add("columns", 6, 8, [&](std::size_t r) { return columns_of(6, 8, r * 8 / ranks, 8 / ranks); });
              mine.add("rows", 8, 5, [&](std::size_t r) { return Runs{{0, r * 40 / ranks, 40 / ranks}}; });
              // A stage of ZeRO cuts anywhere, and some ranks have nothing.
              mine.add("anywhere", 4, 5, [&](std::size_t r) {
                const std::size_t begin = r == 0 ? 0 : 7, end = ranks == 1 || r == 1 ? 20 : r == 0 ? 7 : 0;
                return begin < end ? Runs{{0, begin, end - begin}} : Runs();
              });
              mine.add("copies", 3, 3, [](std::size_t) { return Runs{{0, 0, 9}}; });
              // Segments of columns, in another order than in the matrix.
              mine.add("segments", 2, 8, [&](std::size_t r) {
                if (ranks == 1) return Runs{{0, 0, 16}};
                return r < 2 ? Runs{{2, r * 2, 2}, {0, 4 + r * 2, 2}, {6, 8 + r * 2, 2}, {4, 12 + r * 2, 2}} : Runs();
              });
              mine.add("padded", 3, 2, [](std::size_t r) { return r == 0 ? Runs{{0, 0, 4}, {6, 4, 2}} : Runs{{1, 2, 4}}; });
              DefaultDevice device;
              const MatrixExchange exchange(world.communicator(), mine.pieces, mine.held, work);
              for (const bool second : {false, true}) {
                std::vector<char> due(mine.pieces.size(), true);
                std::vector<weft::detail::Buffer> arrays(due.size());
                for (std::size_t k = 0; k < due.size(); ++k) {
                  const ParameterState& state = *mine.pieces[k].state;
                  if (state.kept() == 0 || (second && state.name() == "copies")) due[k] = false;
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
          Pieces mine{std::size_t(world.rank()), 4};
          for (std::size_t k = 0; k < 13; ++k)
            mine.add("matrix " + std::to_string(k), 4, 4, [](std::size_t) { return weft::detail::Runs{{0, 0, 16}}; });
          const MatrixExchange exchange(world.communicator(), mine.pieces, mine.held, Work::home);
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
          using weft::detail::Runs;
          Pieces mine{std::size_t(world.rank()), 2};
          const auto halves = [](std::size_t r) { return Runs{{0, r * 6, 6}}; };
          mine.add("rows", 4, 3, halves, true);
          mine.add(
              "within a row", 4, 3,
              [](std::size_t r) {
                return Runs{{0, r * 7, r == 0 ? 7u : 5u}};
              },
              true);
          mine.add("matrix", 4, 3, halves, false);
          const MatrixExchange exchange(world.communicator(), mine.pieces, mine.held, Work::home);
          if (!exchange.apart(0) || exchange.apart(1) || exchange.apart(2)) throw Error("rows that are apart");
        }) == 0);
}

TEST_CASE("a matrix of which no rank holds an element is refused") {
  std::string text;
  runtime::run(runtime::RunOptions{.ranks = 1}, [&](World& world) {
    Pieces mine{0, 1};
    mine.add("short", 2, 3, [](std::size_t) { return weft::detail::Runs{{0, 0, 4}, {4, 5, 1}}; });
    try {
      MatrixExchange exchange(world.communicator(), mine.pieces, mine.held, Work::home);
    } catch (const Error& error) {
      text = error.what();
    }
  });
  CHECK(text == "weft: optimizer: no rank holds element 4 of short");
}
