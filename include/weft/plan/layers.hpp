// SPDX-License-Identifier: Apache-2.0
#pragma once
// The layers of nn/ as users of memory. Each function takes and drops blocks in the order in which the layer of that name creates
// and frees its tensors, including the temporaries of a Sequential, which live until it returns. A change of a layer needs the
// same change here; tests/plan/memory.cpp compares the two.

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <weft/plan/local_model.hpp>
#include <weft/plan/memory_tracker.hpp>

namespace weft::plan {

/// The blocks that a norm, half a block, a block and the ends keep for backward.
struct SavedNorm {
  Block input;
  std::vector<Block> statistics;
};
struct SavedHalf {
  SavedNorm norm;
  Block entered;             ///< the input of the column-parallel layers, in its kept form
  std::vector<Block> inner;  ///< of attention or activation, freed after its gradient
  std::vector<Block> heads;  ///< of the norms of queries and keys
  Block row;                 ///< the input of the row-parallel layer
};
struct SavedBlock {
  Block input;  ///< kept if the rest is recomputed
  SavedHalf attention, mlp;
};
struct SavedHead {
  SavedNorm norm;
  Block normed, difference;
};
/// The blocks that the weight half of backward needs, in the order in which they are freed.
using DeferredBlocks = std::vector<std::vector<Block>>;

class Layers {
 public:
  Layers(const LocalModel& model, MemoryTracker& tracker) : m(model), ledger_(&tracker) {}

  Block hidden() { return matrix(m.own_rows, m.width); }

  Block front_forward(std::vector<Block>& saved) {
    saved.push_back(ledger_->take(m.rows * 4));
    Block looked_up = matrix(m.rows, m.width);
    if (m.sharded_rows) looked_up = hidden();
    if (m.gated) return looked_up;
    saved.push_back(ledger_->take(m.own_rows * 4));
    Block placed = hidden();
    return m.dropout ? hidden() : placed;
  }
  DeferredBlocks front_backward(std::vector<Block> saved, Block gradient) {
    Block dropped = m.dropout && !m.gated ? hidden() : gradient;
    saved.push_back(m.sharded_rows ? matrix(m.rows, m.width) : dropped);
    saved.push_back(dropped);
    return {std::move(saved)};
  }

  Block block_forward(const Block& x, SavedBlock& saved) {
    Block middle = attention_forward(x, saved.attention);
    return m.mixture ? mixture_forward(middle, saved.mlp) : mlp_forward(middle, saved.mlp);
  }
  Block block_backward(SavedBlock saved, Block gradient, DeferredBlocks& deferred) {
    DeferredBlocks first, second;
    Block between = m.mixture ? mixture_backward(std::move(saved.mlp), gradient, second)
                              : mlp_backward(std::move(saved.mlp), gradient, second);
    Block out = attention_backward(std::move(saved.attention), between, first);
    for (auto* part : {&first, &second})
      for (auto& blocks : *part) deferred.push_back(std::move(blocks));
    return out;
  }

  void head_forward(const Block& x, SavedHead& saved) {
    saved.normed = norm_forward(x, saved.norm);
    const Block inside = enter(saved.normed);
    const Block logits = matrix(m.rows, m.vocabulary), maximum = ledger_->take(m.rows * m.sum),
                sums = ledger_->take(2 * m.rows * m.sum);
    saved.difference = matrix(m.rows, m.vocabulary);
  }
  Block head_backward(SavedHead saved, DeferredBlocks& deferred) {
    const Block inside = enter(saved.normed);
    Block normed_gradient = leave(matrix(m.rows, m.width), true);
    Block out = hidden();
    deferred = {{inside, saved.difference}, norm_deferred(std::move(saved.norm), normed_gradient)};
    return out;
  }

  /// The weight half: each layer drops its deferred blocks.
  void weights(DeferredBlocks deferred) {
    for (auto& blocks : deferred) {
      pass_rows();
      blocks.clear();
    }
  }

 private:
  Block matrix(std::size_t rows, std::size_t columns) { return ledger_->take(rows * columns * m.value); }
  // The input of a column-parallel layer: under sequence parallelism the gathered shard.
  Block enter(const Block& x) { return m.sharded_rows ? matrix(m.rows, m.width) : x; }
  // GPT's column-parallel layers multiply pieces of rows while the next ones arrive.
  void pass_rows() {
    if (!m.sharded_rows || m.gated) return;
    const Block piece = hidden(), spare = hidden();
  }
  // Brings a term of a sum over tp to the hidden placement: summed in place if no other tensor shares it, or scattered.
  Block leave(Block partial, bool alone) {
    return m.sharded_rows ? hidden() : m.summed && !alone ? matrix(m.rows, m.width) : partial;
  }

  Block norm_forward(const Block& x, SavedNorm& saved) {
    Block y = hidden();
    saved.input = x;
    for (int i = 0; i < (m.gated ? 1 : 2); ++i) saved.statistics.push_back(ledger_->take(m.own_rows * m.sum));
    return y;
  }
  static std::vector<Block> norm_deferred(SavedNorm saved, const Block& gradient) {
    std::vector<Block> kept = std::move(saved.statistics);
    kept.push_back(std::move(saved.input));
    kept.push_back(gradient);
    return kept;
  }

  // The product of a row-parallel layer, its dropout, and its way back to the hidden placement.
  Block row_forward() {
    Block product = matrix(m.rows, m.width);
    Block out = m.dropout ? matrix(m.rows, m.width) : product;
    return m.sharded_rows ? hidden() : out;
  }

  Block attention_forward(const Block& x, SavedHalf& saved) {
    Block normed = norm_forward(x, saved.norm);
    Block inside = m.gated ? enter(normed) : normed;
    std::vector<Block> alive, input;
    if (m.gated) {
      saved.entered = inside;
      const Block q = matrix(m.rows, m.query), k = matrix(m.rows, m.key), v = matrix(m.rows, m.key);
      alive = {q, k};
      if (m.query_key_norm) {
        saved.heads = alive;
        for (const std::size_t heads : {m.heads, m.kv_heads}) {
          alive.push_back(matrix(m.rows, heads * m.head));
          saved.heads.push_back(ledger_->take(m.rows * heads * m.sum));
        }
      }
      const Block positions = ledger_->take(m.rows * 4);
      input = {v, matrix(m.rows, m.query), matrix(m.rows, m.key)};
    } else {
      saved.entered = normed;
      input = {matrix(m.rows, m.query + 2 * m.key)};
      pass_rows();
      inside.reset();
    }
    if (m.lean) {
      saved.entered.reset();
      inside.reset();
      normed.reset();
    }
    saved.row = matrix(m.rows, m.query);
    if (m.layout.cp > 1 && m.layout.ulysses) {
      saved.inner = heads_forward();
    } else {
      saved.inner = input;
      saved.inner.push_back(ledger_->take(m.rows * m.heads * m.sum));
      if (m.layout.cp > 1) ring_forward();
      else ledger_->take(m.workspace(false, m.length, m.kv_heads));
    }
    return row_forward();
  }

  // Attention whose keys and values go round a ring (nn/ring_attention.hpp).
  void ring_forward() {
    const Block piece = matrix(m.rows, 2 * m.key), spare = matrix(m.rows, 2 * m.key),
                part = ledger_->take(m.rows * m.query * m.sum), statistic = ledger_->take(m.rows * m.heads * m.sum);
    const Block whole = m.value != m.sum ? ledger_->take(m.rows * m.query * m.sum) : nullptr;
    ledger_->take(m.workspace(false, m.length, m.kv_heads));
  }
  void ring_backward() {
    const std::vector<Block> pieces{matrix(m.rows, 2 * m.key), matrix(m.rows, 2 * m.key)};
    std::vector<Block> sums;
    for (int i = 0; i < 3; ++i) sums.push_back(ledger_->take(m.rows * 2 * m.key * m.sum));
    for (int i = 0; i < 2; ++i) sums.push_back(ledger_->take(m.rows * m.query * m.sum));
    ledger_->take(m.workspace(true, m.length, m.kv_heads));
  }
  // Attention that exchanges sequence parts for heads (nn/ulysses_attention.hpp): whole rows of some heads.
  std::size_t whole_rows() const { return m.rows * m.layout.cp; }
  std::size_t whole_query() const { return m.query / m.layout.cp; }
  std::size_t whole_fused() const { return whole_query() + 2 * std::max<std::size_t>(1, m.kv_heads / m.layout.cp) * m.head; }
  Block changed_over(std::size_t columns) {
    const Block pieces = matrix(whole_rows(), columns), arrived = matrix(whole_rows(), columns);
    return matrix(whole_rows(), columns);
  }
  std::vector<Block> heads_forward() {
    std::vector<Block> saved{changed_over(whole_fused()), matrix(whole_rows(), whole_query()),
                             ledger_->take(whole_rows() * (m.heads / m.layout.cp) * m.sum)};
    ledger_->take(m.workspace(false, m.length * m.layout.cp, std::max<std::size_t>(1, m.kv_heads / m.layout.cp)));
    const Block ordered = matrix(whole_rows(), whole_query()), arrived = matrix(whole_rows(), whole_query());
    return saved;
  }
  void heads_backward() {
    const Block gradient = changed_over(whole_query()), fused = matrix(whole_rows(), whole_fused());
    ledger_->take(m.workspace(true, m.length * m.layout.cp, std::max<std::size_t>(1, m.kv_heads / m.layout.cp)));
    const Block ordered = matrix(whole_rows(), whole_fused()), arrived = matrix(whole_rows(), whole_fused());
  }

  Block mlp_forward(const Block& x, SavedHalf& saved) {
    Block normed = norm_forward(x, saved.norm);
    Block inside = m.gated ? enter(normed) : normed;
    saved.entered = inside;
    saved.inner.push_back(matrix(m.rows, m.middle));
    if (m.gated) saved.inner.push_back(matrix(m.rows, m.middle));
    else pass_rows();
    const auto drop = [&] {
      if (!m.lean) return;
      saved.entered.reset();
      inside.reset();
      normed.reset();
    };
    if (m.gated) drop();
    saved.row = matrix(m.rows, m.middle);
    Block out = row_forward();
    if (!m.gated) drop();  // GPT's is one layer (nn/gelu_mlp.hpp)
    if (m.lean) saved.row.reset();
    return out;
  }

  // The recomputed output of the norm.
  Block entered_again() {
    const Block statistics = ledger_->take(m.own_rows * m.sum), normed = hidden();
    return m.gated ? enter(normed) : normed;
  }

  // The backward of row-parallel layer, core and column-parallel layers: gradients of a Sequential live until it returns.
  Block half_backward(SavedHalf saved, const Block& gradient, DeferredBlocks& deferred, std::size_t row_columns,
                      const std::vector<std::size_t>& column_outputs, bool attention) {
    std::vector<Block> alive;
    Block entered_gradient = m.sharded_rows ? matrix(m.rows, m.width) : gradient;
    if (m.dropout) alive.push_back(std::exchange(entered_gradient, matrix(m.rows, m.width)));
    if (m.lean && !attention) saved.row = matrix(m.rows, row_columns);
    const bool one_layer = !attention && !m.gated;  // the gradient of GELU's output becomes that of its input in place
    if (!one_layer) alive.push_back(matrix(m.rows, row_columns));
    const std::vector<Block> row{std::move(saved.row), entered_gradient};
    std::vector<Block> core;
    for (const std::size_t columns : column_outputs) core.push_back(matrix(m.rows, columns));
    if (attention) {
      if (m.layout.cp == 1) ledger_->take(m.workspace(true, m.length, m.kv_heads));
      else if (m.layout.ulysses) heads_backward();
      else ring_backward();
    } else if (!one_layer) {
      alive.pop_back();
    }
    saved.inner.clear();
    if (m.lean) saved.entered = entered_again();
    std::vector<Block> inputs;
    if (m.gated && attention) {
      alive.insert(alive.end(), core.begin(), core.begin() + 2);
      const Block positions = ledger_->take(m.rows * 4);
      core[0] = matrix(m.rows, m.query);
      core[1] = matrix(m.rows, m.key);
      if (m.query_key_norm) {
        saved.heads.insert(saved.heads.end(), core.begin(), core.begin() + 2);
        core[1] = matrix(m.rows, m.key);
        core[0] = matrix(m.rows, m.query);
        deferred.push_back(std::move(saved.heads));
      }
    }
    std::vector<Block> columns = core;
    Block sum;
    if (m.gated) {
      for (std::size_t i = 0; i < core.size(); ++i) inputs.push_back(matrix(m.rows, m.width));
      sum = inputs.back();
      inputs.clear();
      columns.push_back(saved.entered);
      alive.push_back(sum);
      sum = leave(sum, false);
    } else {
      columns.push_back(saved.entered);
      sum = leave(matrix(m.rows, m.width), true);
    }
    Block out = hidden();
    deferred.push_back(norm_deferred(std::move(saved.norm), sum));
    deferred.push_back(std::move(columns));
    deferred.push_back(row);
    return out;
  }
  Block attention_backward(SavedHalf saved, const Block& gradient, DeferredBlocks& deferred) {
    const std::vector<std::size_t> outputs =
        m.gated ? std::vector<std::size_t>{m.query, m.key, m.key} : std::vector<std::size_t>{m.query + 2 * m.key};
    return half_backward(std::move(saved), gradient, deferred, m.query, outputs, true);
  }
  Block mlp_backward(SavedHalf saved, const Block& gradient, DeferredBlocks& deferred) {
    const std::vector<std::size_t> outputs =
        m.gated ? std::vector<std::size_t>{m.middle, m.middle} : std::vector<std::size_t>{m.middle};
    return half_backward(std::move(saved), gradient, deferred, m.middle, outputs, false);
  }

  // The rows that go to experts, evenly distributed: each rank of ep gets as many as it sends, each rank of etp those of all etp
  // ranks (nn/mixture.hpp).
  std::size_t sent_rows() const { return m.routed_rows * m.top_k; }
  std::size_t expert_rows() const { return sent_rows() * m.layout.etp; }
  // The hidden rows in the router's placement, divided over tp, and back.
  Block cut_rows(const Block& x) { return m.sharded_rows || !m.summed ? x : matrix(m.routed_rows, m.width); }
  Block joined_rows(const Block& x) { return m.sharded_rows || !m.summed ? x : matrix(m.rows, m.width); }
  Block to_experts(const Block& sent) {
    Block here = sent;
    if (m.layout.ep > 1) here = matrix(sent_rows(), m.width);
    if (m.layout.etp > 1) here = matrix(expert_rows(), m.width);
    return matrix(expert_rows(), m.width);
  }
  Block from_experts() {
    Block here = matrix(expert_rows(), m.width);
    if (m.layout.etp > 1) here = matrix(sent_rows(), m.width);
    if (m.layout.ep > 1) here = matrix(sent_rows(), m.width);
    return here;
  }

  Block mixture_forward(const Block& x, SavedHalf& saved) {
    const Block normed = norm_forward(x, saved.norm), rows = cut_rows(normed);
    const std::size_t R = m.routed_rows, wide = m.value != m.sum ? m.sum : 0;
    saved.entered = rows;
    std::vector<Block>& kept = saved.inner;
    if (wide) kept.push_back(ledger_->take(R * m.width * wide));
    {
      const Block weight = wide ? ledger_->take(m.experts * m.width * wide) : nullptr,
                  logits = ledger_->take(R * m.experts * m.sum);
      for (const std::size_t columns : {m.experts, std::size_t(1), m.top_k, m.top_k})
        kept.push_back(ledger_->take(R * columns * 4));  // probabilities, their sums, choices, weights
      for (const std::size_t numbers : {m.layout.micro_batch * m.experts, R})
        kept.push_back(ledger_->take(numbers * 4));  // balance
    }
    for (int i = 0; i < 2; ++i) kept.push_back(ledger_->take(sent_rows() * 4));  // order and place
    const Block packed = matrix(sent_rows(), m.width);
    for (int i = 0; i < 2; ++i) kept.push_back(ledger_->take(expert_rows() * 4));  // of the exchange
    kept.push_back(to_experts(packed));
    for (int i = 0; i < 2; ++i) kept.push_back(matrix(expert_rows(), m.middle));
    {
      const Block result = matrix(expert_rows(), m.width);
      matrix(expert_rows(), m.middle);
      saved.row = from_experts();
    }
    const Block y = matrix(R, m.width), dropped = m.dropout ? matrix(R, m.width) : y;
    return joined_rows(dropped);
  }
  Block mixture_backward(SavedHalf saved, const Block& gradient, DeferredBlocks& deferred) {
    const std::size_t R = m.routed_rows, wide = m.value != m.sum ? m.sum : 0;
    const Block cut = cut_rows(gradient), g = m.dropout ? matrix(R, m.width) : cut;
    const Block weights = ledger_->take(R * m.top_k * m.sum), logits = ledger_->take(R * m.experts * m.sum);
    if (wide) ledger_->take(m.experts * m.width * wide);
    const Block gate = ledger_->take(R * m.width * m.sum), packed = matrix(sent_rows(), m.width);
    const Block arrived = to_experts(packed), active = matrix(expert_rows(), m.middle);
    std::vector<Block> kept{active, arrived, logits};
    Block back;
    {
      const Block d_active = matrix(expert_rows(), m.middle);
      for (int i = 0; i < 2; ++i) kept.push_back(matrix(expert_rows(), m.middle));
      const Block dx = matrix(expert_rows(), m.width);
      saved.inner.resize(saved.inner.size() - 2);  // gate and up
      kept.push_back(saved.inner.back());          // the experts' input
      if (wide) kept.push_back(saved.inner.front());
      back = from_experts();
    }
    const Block dx = matrix(R, m.width), home = joined_rows(dx);
    Block out = hidden();
    if (!wide) kept.push_back(saved.entered);  // the router's input
    deferred.push_back(norm_deferred(std::move(saved.norm), home));
    deferred.push_back(std::move(kept));
    return out;
  }

  const LocalModel& m;
  MemoryTracker* ledger_;
};

}  // namespace weft::plan
