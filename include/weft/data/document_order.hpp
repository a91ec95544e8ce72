// SPDX-License-Identifier: Apache-2.0
#pragma once
// An order of a window's documents in which the ranks of cp have about equal work. Zigzag cuts a window by position, and tokens
// attend only within their document, so the ranks' work depends on where the long documents lie.
//
//   balanced_order({{600, 100, 200, 124}}, 1024, 2);   // which document comes first, second, ...

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>

namespace weft::data {

namespace detail {

/// The pairs of the first `tokens` of a document.
inline std::uint64_t causal_pairs(std::uint64_t tokens) { return tokens * (tokens + 1) / 2; }

}  // namespace detail

/// The pairs of query and key that each rank of cp computes for one window, [ranks]. `lengths` are the documents' tokens in the
/// order of the window; their sum is at most `sequence`, a multiple of 2 * ranks. Attention is causal. The rest is padding, whose
/// tokens attend to each other like those of a document. Other work grows with the tokens, of which all ranks have equally many.
/// Throws ShapeError for other arguments.
inline std::vector<std::uint64_t> attention_pairs(std::span<const std::size_t> lengths, std::size_t sequence, std::size_t ranks) {
  const std::size_t used = std::accumulate(lengths.begin(), lengths.end(), std::size_t(0));
  if (ranks == 0 || sequence == 0 || sequence % (2 * ranks) != 0 || used > sequence)
    throw_error<ShapeError>({"data: documents of ", used, " tokens do not fit a window of sequence(", sequence,
                             ") in two chunks for each of cp(", ranks,
                             "): 2 * cp must divide the sequence, which holds all documents"});
  const std::size_t chunks = 2 * ranks, chunk = sequence / chunks;
  std::vector<std::uint64_t> pairs(ranks, 0);
  std::size_t begin = 0;
  const auto add = [&](std::size_t length) {
    const std::size_t end = begin + length;
    for (std::size_t from = begin; from < end;) {  // the document's part in each chunk
      const std::size_t at = from / chunk, to = std::min(end, (at + 1) * chunk);
      pairs[std::min(at, chunks - 1 - at)] += detail::causal_pairs(to - begin) - detail::causal_pairs(from - begin);
      from = to;
    }
    begin = end;
  };
  for (const std::size_t length : lengths) add(length);
  add(sequence - used);
  return pairs;
}

namespace detail {

/// The work of the busiest rank, then the sum of the ranks' distances from the mean (times ranks). Less is better.
inline std::pair<std::uint64_t, std::uint64_t> imbalance(std::span<const std::uint64_t> pairs) {
  const std::uint64_t total = std::accumulate(pairs.begin(), pairs.end(), std::uint64_t(0));
  std::uint64_t busiest = 0, distance = 0;
  for (const std::uint64_t mine : pairs) {
    const std::uint64_t scaled = mine * pairs.size();
    busiest = std::max(busiest, mine);
    distance += std::max(scaled, total) - std::min(scaled, total);
  }
  return {busiest, distance};
}

/// Improves the given order or a dealt one, then others, by moves of one document and swaps of two. Ends if the ranks are
/// balanced or the search is long enough.
class DocumentOrder {
 public:
  DocumentOrder(std::span<const std::size_t> lengths, std::size_t sequence, std::size_t ranks)
      : lengths_(lengths), sequence_(sequence), ranks_(ranks), order_(lengths.size()), by_length_(lengths.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t(0));
    by_length_ = order_;
    std::stable_sort(by_length_.begin(), by_length_.end(), [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
    best_ = cost(order_);
  }

  std::vector<std::size_t> improved() {
    take(dealt());
    std::vector<std::size_t> best = order_;
    Cost least = best_;
    for (std::uint64_t start = 0; start < most_starts && visits_ <= most_visits; ++start) {
      if (start > 0) shuffle(start);
      while (!balanced() && pass()) {}
      if (best_ < least) least = best_, best = order_;
      if (balanced()) break;
    }
    return best;
  }

 private:
  using Cost = std::pair<std::uint64_t, std::uint64_t>;

  Cost cost(std::span<const std::size_t> order) {
    visits_ += order.size() + 2 * ranks_;
    sizes_.clear();
    for (const std::size_t document : order) sizes_.push_back(lengths_[document]);
    const auto pairs = attention_pairs(sizes_, sequence_, ranks_);
    total_ = std::accumulate(pairs.begin(), pairs.end(), std::uint64_t(0));
    return imbalance(pairs);
  }
  /// The busiest rank is within 1% of the mean.
  bool balanced() const { return best_.first * ranks_ * 100 <= total_ * 101; }

  bool take(const std::vector<std::size_t>& candidate) {
    const Cost now = cost(candidate);
    if (now >= best_) return false;
    best_ = now;
    order_ = candidate;
    return true;
  }
  /// An order for windows with so many documents that moves and swaps end early: long documents first, each into the chunk
  /// with room for it whose rank has the least work.
  std::vector<std::size_t> dealt() const {
    const std::size_t chunks = 2 * ranks_, chunk = sequence_ / chunks;
    const std::size_t used = std::accumulate(lengths_.begin(), lengths_.end(), std::size_t(0));
    std::vector<std::vector<std::size_t>> documents(chunks);
    std::vector<std::size_t> room(chunks, chunk);
    std::vector<std::uint64_t> pairs(ranks_, 0);
    const auto work = [&](std::size_t at) -> std::uint64_t& { return pairs[std::min(at, chunks - 1 - at)]; };
    for (std::size_t at = used / chunk; at < chunks; ++at) {  // padding
      const std::size_t from = std::max(at * chunk, used) - used, to = (at + 1) * chunk - used;
      room[at] -= to - from;
      work(at) += causal_pairs(to) - causal_pairs(from);
    }
    for (const std::size_t document : by_length_) {
      const std::size_t length = lengths_[document];
      std::size_t to = 0;
      for (std::size_t at = 1; at < chunks; ++at) {
        const bool fits = room[at] >= length, fitted = room[to] >= length;
        if (fits != fitted ? fits : fits ? work(at) < work(to) : room[at] > room[to]) to = at;
      }
      documents[to].push_back(document);
      room[to] -= std::min(room[to], length);
      work(to) += causal_pairs(length);
    }
    std::vector<std::size_t> order;
    for (const auto& some : documents) order.insert(order.end(), some.begin(), some.end());
    return order;
  }
  /// Another order to start from.
  void shuffle(std::uint64_t state) {
    for (std::size_t left = order_.size(); left > 1; --left) {
      state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's generator, the same on every machine
      std::swap(order_[left - 1], order_[(state >> 33) % left]);
    }
    best_ = cost(order_);
  }
  /// Tries each document, long ones first, at each place. Returns whether an order was better.
  bool pass() {
    bool better = false;
    std::vector<std::size_t> candidate;
    for (const std::size_t document : by_length_)
      for (std::size_t to = 0; to < order_.size(); ++to) {
        if (balanced() || visits_ > most_visits) return false;
        const std::size_t from = std::size_t(std::find(order_.begin(), order_.end(), document) - order_.begin());
        if (from == to) continue;
        candidate = order_;
        const auto first = candidate.begin() + std::ptrdiff_t(from), last = candidate.begin() + std::ptrdiff_t(to);
        std::iter_swap(first, last);
        better |= take(candidate);
        candidate = order_;
        const auto now = std::find(candidate.begin(), candidate.end(), document);
        const auto place = candidate.begin() + std::ptrdiff_t(to);
        now < place ? std::rotate(now, now + 1, place + 1) : std::rotate(place, now, now + 1);
        better |= take(candidate);
      }
    return better;
  }

  static constexpr std::size_t most_visits = std::size_t(1) << 20, most_starts = 64;
  std::span<const std::size_t> lengths_;
  std::size_t sequence_, ranks_, visits_ = 0;
  std::vector<std::size_t> order_, by_length_, sizes_;
  Cost best_;
  std::uint64_t total_ = 0;
};

}  // namespace detail

/// A permutation of the documents, [documents], under which attention_pairs of the ranks differ little. The same arguments give
/// the same order on every rank and machine. A local search finds the order, in some ms; it is never worse than the given one.
/// One document much longer than the rest leaves an imbalance that no order removes. Throws as attention_pairs.
inline std::vector<std::size_t> balanced_order(std::span<const std::size_t> lengths, std::size_t sequence, std::size_t ranks) {
  return detail::DocumentOrder(lengths, sequence, ranks).improved();
}

}  // namespace weft::data
