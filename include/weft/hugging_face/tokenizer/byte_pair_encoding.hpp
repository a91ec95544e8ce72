// SPDX-License-Identifier: Apache-2.0
#pragma once
// Byte-pair encoding of one word. Each byte starts as a token. The adjacent pair whose merge has the lowest rank, the leftmost of
// equals, becomes one token, until no pair has a merge (Sennrich et al., 2016).

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft::hugging_face::detail {

/// The merges: maps a pair of tokens to the merged token and its rank. A hash table with open addressing.
class Merges {
 public:
  struct Merge {
    std::uint32_t rank;
    std::int32_t id;
  };
  static constexpr std::uint32_t none = ~std::uint32_t(0);

  Merges() : Merges(0) {}
  /// Reserves space for `count` pairs.
  explicit Merges(std::size_t count) {
    std::size_t size = 16;
    while (size < 2 * count) size *= 2;
    slots_.resize(size);
  }
  /// Sets the merge of a pair. A later call replaces it, as in `tokenizers`.
  void set(std::int32_t left, std::int32_t right, Merge merge) {
    Slot& slot = slots_[place(key(left, right))];
    slot = {key(left, right), merge};
  }
  /// Returns the merge of a pair; its rank is `none` if there is no merge.
  Merge find(std::int32_t left, std::int32_t right) const { return slots_[place(key(left, right))].merge; }

 private:
  struct Slot {
    std::uint64_t key = empty;
    Merge merge = {none, -1};
  };
  static constexpr std::uint64_t empty = ~std::uint64_t(0);
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return std::uint64_t(std::uint32_t(left)) << 32 | std::uint32_t(right);
  }
  std::size_t place(std::uint64_t key) const {
    std::uint64_t hash = key * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].key != key && slots_[at].key != empty) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  std::vector<Slot> slots_;
};

/// Merges words with reusable memory, for one thread.
class WordMerger {
 public:
  /// Appends the tokens of a word of less than 2^31 bytes to `ids`. `bytes`: the token of each byte.
  void operator()(const Merges& merges, const std::array<std::int32_t, 256>& bytes, std::string_view word,
                  std::vector<std::int32_t>& ids) {
    const std::size_t first = ids.size();
    for (const char byte : word) ids.push_back(bytes[static_cast<unsigned char>(byte)]);
    if (word.size() <= short_word) merge_short(merges, ids, first);
    else merge_long(merges, ids, first);
  }

 private:
  static constexpr std::size_t short_word = 40;  // up to this many bytes a scan of all pairs is faster than a queue
  using Merge = Merges::Merge;

  static void merge_short(const Merges& merges, std::vector<std::int32_t>& ids, std::size_t first) {
    std::int32_t* const tokens = ids.data() + first;
    std::size_t count = ids.size() - first;
    std::array<Merge, short_word> pairs;  // merge of each token with its right neighbour
    for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = merges.find(tokens[i], tokens[i + 1]);
    while (count > 1) {
      const auto end = pairs.begin() + std::ptrdiff_t(count - 1);
      const auto best = std::min_element(pairs.begin(), end, [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
      if (best->rank == Merges::none) break;
      const auto at = std::size_t(best - pairs.begin());
      tokens[at] = best->id;
      std::copy(tokens + at + 2, tokens + count, tokens + at + 1);
      std::copy(best + 1, end, best);
      --count;
      if (at + 1 < count) pairs[at] = merges.find(tokens[at], tokens[at + 1]);
      if (at > 0) pairs[at - 1] = merges.find(tokens[at - 1], tokens[at]);
    }
    ids.resize(first + count);
  }

  void merge_long(const Merges& merges, std::vector<std::int32_t>& ids, std::size_t first) {
    const auto count = std::int32_t(ids.size() - first);
    std::int32_t* const tokens = ids.data() + first;  // -1 for a token that was merged into another
    next_.resize(std::size_t(count));
    previous_.resize(std::size_t(count));
    queue_.clear();
    const auto offer = [&](std::int32_t left, std::int32_t right) {
      const Merge merge = merges.find(tokens[left], tokens[right]);
      if (merge.rank == Merges::none) return;
      queue_.push_back({merge.rank, left, tokens[left], tokens[right], merge.id});
      std::push_heap(queue_.begin(), queue_.end());
    };
    for (std::int32_t i = 0; i < count; ++i) {
      next_[std::size_t(i)] = i + 1;
      previous_[std::size_t(i)] = i - 1;
    }
    for (std::int32_t i = 0; i + 1 < count; ++i) offer(i, i + 1);
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end());
      const Candidate best = queue_.back();
      queue_.pop_back();
      if (tokens[best.at] != best.left) continue;  // the token has changed since
      const std::int32_t right = next_[std::size_t(best.at)];
      if (right == count || tokens[right] != best.right) continue;
      tokens[best.at] = best.id;
      tokens[right] = -1;
      const std::int32_t after = next_[std::size_t(right)], before = previous_[std::size_t(best.at)];
      next_[std::size_t(best.at)] = after;
      if (after < count) {
        previous_[std::size_t(after)] = best.at;
        offer(best.at, after);
      }
      if (before >= 0) offer(before, best.at);
    }
    std::int32_t kept = 0;
    for (std::int32_t i = 0; i < count; i = next_[std::size_t(i)]) tokens[kept++] = tokens[i];
    ids.resize(first + std::size_t(kept));
  }

  struct Candidate {
    std::uint32_t rank;
    std::int32_t at, left, right, id;
    /// The heap's maximum is the pair to merge first.
    bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  std::vector<std::int32_t> next_, previous_;
  std::vector<Candidate> queue_;
};

}  // namespace weft::hugging_face::detail
