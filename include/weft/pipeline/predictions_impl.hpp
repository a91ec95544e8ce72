// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/predictions.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <numeric>
#include <utility>

#include <weft/core/inline.hpp>
#include <weft/pipeline/model_aside.hpp>
#include <weft/pipeline/predictions.hpp>
#include <weft/tensor/around.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE std::vector<std::uint64_t> extents_of(const Shape& shape) {
  std::vector<std::uint64_t> all;
  for (std::size_t dim = 0; dim < shape.rank(); ++dim) all.push_back(shape[dim]);
  return all;
}
WEFT_COLD WEFT_INLINE Shape without_cuts(const Shape& shape) {
  const std::vector<std::uint64_t> all = extents_of(shape);
  return Shape::of(std::span(all));
}

WEFT_COLD WEFT_INLINE void gather_pieces(const Communicator& ranks, std::string_view axis, std::size_t dim, std::size_t samples,
                                         Shape& shape, std::vector<double>& values) {
  const std::size_t count = std::size_t(ranks.size()), dims = shape.rank();
  if (count == 1) return;
  const std::vector<std::uint64_t> mine = extents_of(shape);
  std::vector<std::uint64_t> shapes(mine.size() * count);
  ranks.all_gather(mine, shapes);
  const Shape first = Shape::of(std::span<const std::uint64_t>(shapes).first(dims));
  std::vector<std::size_t> counts, extents;
  for (std::size_t rank = 0; rank < count; ++rank) {
    const Shape piece = Shape::of(std::span<const std::uint64_t>(shapes).subspan(rank * dims, dims));
    if (with_extent(piece, dim, first[dim]) != first)
      throw_error<ShapeError>({"predict: the outputs are ", first.text(), " on ", axis, " rank 0 and ", piece.text(), " on ",
                               axis, " rank ", rank, ": pieces that are gathered differ only in dim ", dim});
    if (dim == 0 && (samples == 0 || piece[0] % samples != 0))
      throw_error<ShapeError>({"predict: the outputs are ", piece.text(), " on ", axis, " rank ", rank, ", rows of ", samples,
                               " samples: each sample has as many rows"});
    counts.push_back(piece.size());
    extents.push_back(piece[dim]);
  }
  std::vector<double> pieces(std::accumulate(counts.begin(), counts.end(), std::size_t(0)));
  ranks.all_gather_v(values, pieces, counts);
  const Around around(shape, dim);
  shape[dim] = std::accumulate(extents.begin(), extents.end(), std::size_t(0));
  values.clear();
  const std::size_t lines = dim == 0 ? samples : around.outer;
  for (std::size_t outer = 0; outer < lines; ++outer) {
    auto piece = pieces.begin();
    for (std::size_t rank = 0; rank < count; ++rank) {
      const std::ptrdiff_t length = std::ptrdiff_t(counts[rank] / lines);
      const auto line = piece + std::ptrdiff_t(outer) * length;
      values.insert(values.end(), line, line + length);
      piece += std::ptrdiff_t(counts[rank]);
    }
  }
}

// Gathers the predictions of all shares in the order of the global batch.
WEFT_COLD WEFT_INLINE void gather_shares(const Communicator& ranks, std::size_t& first, Prediction& mine) {
  if (ranks.size() == 1) return;
  const std::size_t count = std::size_t(ranks.size());
  const std::vector<std::uint64_t> size{first, mine.shape.rank() == 0 ? 0 : mine.shape[0], mine.values.size()};
  std::vector<std::uint64_t> sizes(size.size() * count);
  ranks.all_gather(size, sizes);
  std::uint64_t most = 0;
  for (std::size_t rank = 0; rank < count; ++rank) most = std::max(most, sizes[rank * 3 + 2]);
  std::vector<double> padded = mine.values, all(most * count);
  padded.resize(most);
  ranks.all_gather(padded, all);
  std::vector<std::size_t> order(count);
  for (std::size_t rank = 0; rank < count; ++rank) order[rank] = rank;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return sizes[a * 3] < sizes[b * 3]; });
  mine.values.clear();
  std::size_t samples = 0;
  for (const std::size_t rank : order) {
    const auto begin = all.begin() + std::ptrdiff_t(rank * most);
    mine.values.insert(mine.values.end(), begin, begin + std::ptrdiff_t(sizes[rank * 3 + 2]));
    samples += sizes[rank * 3 + 1];
  }
  first = sizes[order[0] * 3];
  if (mine.shape.rank() != 0) mine.shape[0] = samples;
}

// Drops the columns from `columns` on: the padding of a vocabulary.
WEFT_COLD WEFT_INLINE void cut_columns(Prediction& all, std::size_t columns) {
  if (all.shape.rank() < 2) return;
  const std::size_t dim = all.shape.rank() - 1, width = all.shape[dim];
  if (width <= columns) return;
  for (std::size_t row = 0; row < all.values.size() / width; ++row)
    for (std::size_t i = 0; i < columns; ++i) all.values[row * columns + i] = all.values[row * width + i];
  all.values.resize(all.values.size() / width * columns);
  all.shape[dim] = columns;
}

// In a rehearsal of a stage before the last: appends zeros of the last stage's output shape.
WEFT_COLD WEFT_INLINE void rehearse_outputs(Stages& stages, const StepBatch& batch, PredictUnit unit, Gather gather,
                                            Prediction& all) {
  ModelAside aside(batch, stages.schedule(), int(stages.axes().size(pp{})), *stages.accumulator());
  for (std::size_t micro = 0; micro < batch.share().micro_batches; ++micro) {
    AnyValue hidden = aside.forward(micro, [](std::size_t, AnyValue&) {});
    unit(*aside.whole().units.back().layer, aside.call_of(micro), hidden, gather, all);
  }
}

WEFT_INLINE Prediction predict_batch(Stages& stages, StepBatch& batch, PredictUnit unit, std::size_t columns, Gather gather) {
  stages.require_no_open_step("predict");
  Prediction all;
  const schedule::Table table = stages.forward_table(batch, BatchUse::inputs);
  stages.forward_to_last_unit(batch, table, [&](auto& run, auto& layer) {
    for (std::size_t micro = 0; micro < std::size_t(table.micro_batches); ++micro) {
      run.enter(micro);
      unit(layer, run.call_of(micro), run.last_hidden(micro), gather, all);
    }
  });
  const AxesInForce& axes = stages.axes();
  if (batch.device().rehearsal() != nullptr && axes.has(pp{}) && all.shape.rank() == 0)
    rehearse_outputs(stages, batch, unit, gather, all);
  stages.finish(batch.engine().hooks);
  if (axes.has(pp{})) {
    const Communicator stages_of_model = axes.comm(pp{});
    const int root = stages.last_rank();
    std::vector<std::uint64_t> extents = extents_of(all.shape);
    extents.resize(Shape::max_rank + 1);
    extents[Shape::max_rank] = all.shape.rank();
    stages_of_model.broadcast(extents, root);
    all.shape = Shape::of(std::span<const std::uint64_t>(extents).first(extents[Shape::max_rank]));
    all.values.resize(all.shape.size());
    stages_of_model.broadcast(all.values, root);
  }
  if (columns != 0) cut_columns(all, columns);
  if (gather == Gather::whole) {
    std::size_t first = batch.share().first;
    axes.for_each_data_axis([&](const Communicator& ranks) { gather_shares(ranks, first, all); });
  }
  return all;
}

}  // namespace weft::detail
