// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank's part of a model: the sizes of its parameters and tensors, for the simulation of its step.

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <vector>

#include <weft/plan/memory.hpp>

namespace weft::plan {

/// The numbers of elements of a unit's parameters (front, a block, back) on one rank of tp, or of ep and etp; `table` is the
/// vocabulary's.
struct UnitSizes {
  std::vector<std::size_t> parameters;
  std::size_t table = 0;
  std::vector<std::size_t> experts = {};
};

/// A rank's part of a model: the sizes of its tensors.
class LocalModel {
 public:
  LocalModel(const ModelSizes& m, const StepLayout& l)
      : layout(l),
        gated(m.architecture != Architecture::gpt),
        mixture(m.architecture == Architecture::mixtral),
        tied(!gated || m.tied),
        dropout(m.dropout),
        sharded_rows(l.sequence_parallel && l.tp > 1),
        summed(l.tp > 1),
        lean(l.recompute == Recompute::selective),
        query_key_value_bias(m.query_key_value_bias),
        output_bias(m.output_bias),
        query_key_norm(m.query_key_norm),
        width(m.width) {
    const std::size_t kv = m.kv_heads ? m.kv_heads : m.heads;
    head = m.head_width ? m.head_width : m.width / m.heads;
    value = std::size_t(element_bytes(l.precision).value);
    sum = std::max<std::size_t>(4, value);
    heads = m.heads / l.tp;
    kv_heads = std::max<std::size_t>(1, kv / l.tp);
    query = heads * head;
    key = kv_heads * head;
    middle =
        (gated ? (m.intermediate ? m.intermediate : (m.width * 8 / 3 + 63) / 64 * 64) : 4 * m.width) / (mixture ? l.etp : l.tp);
    vocabulary = (m.vocabulary + l.tp - 1) / l.tp;
    length = m.sequence / l.cp;
    rows = l.micro_batch * length;
    own_rows = sharded_rows ? rows / l.tp : rows;
    experts = m.experts;
    top_k = m.top_k;
    routed_rows = rows / l.tp;
  }

  UnitSizes front() const {
    if (gated) return {{}, vocabulary * width};
    return {{length * layout.cp * width}, vocabulary * width};
  }
  UnitSizes block() const {
    if (!gated) {
      const std::size_t fused = query + 2 * key;
      return {
          {width, width, width * fused, fused, query * width, width, width, width, width * middle, middle, middle * width, width},
          0};
    }
    UnitSizes unit{{width}, 0};
    const auto add = [&](std::initializer_list<std::size_t> sizes) { unit.parameters.insert(unit.parameters.end(), sizes); };
    for (const std::size_t columns : {query, key, key}) {
      add({columns * width});
      if (query_key_value_bias) add({columns});
    }
    add({query * width});
    if (output_bias) add({width});
    if (query_key_norm) add({head, head});
    add({width});
    if (mixture) unit.parameters.push_back(experts * width);
    auto& inner = mixture ? unit.experts : unit.parameters;
    inner.insert(inner.end(), 3 * (mixture ? experts / layout.ep : 1), middle * width);
    return unit;
  }
  UnitSizes back() const {
    return {gated ? std::vector<std::size_t>{width} : std::vector<std::size_t>{width, width}, vocabulary * width};
  }

  /// The workspace of attention over sequences of `tokens` tokens, for each thread.
  std::size_t workspace(bool backward, std::size_t tokens, std::size_t items) const {
    const std::size_t keys = (tokens + 31) / 32 * 32, wide = (head + 31) / 32 * 32, block = 64;
    const std::size_t values = backward ? 5 * (keys + block) * wide + 2 * (block + 8) * 128 + 2 * block
                                        : 2 * (keys + block) * wide + 8 * 256 + 2 * block;
    return std::min(layout.micro_batch * items, layout.threads) * ((values + 63) / 64 * 64) * sum;
  }

  StepLayout layout;
  bool gated, mixture, tied, dropout, sharded_rows, summed, lean;  // gated: Llama's block, without biases
  bool query_key_value_bias, output_bias, query_key_norm;          // unless it is asked for them
  std::size_t width, head = 0, value = 4, sum = 4;                 // bytes of an element, and of a statistic
  std::size_t heads = 0, kv_heads = 0, query = 0, key = 0, middle = 0, vocabulary = 0, length = 0, rows = 0, own_rows = 0;
  std::size_t experts = 0, top_k = 0, routed_rows = 0;
};

}  // namespace weft::plan
