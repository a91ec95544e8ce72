// SPDX-License-Identifier: Apache-2.0
#pragma once
// Collectives with random counts (zero, unequal, long enough for every path), roots, types and alignments, several in flight at
// once, compared with the expected results. Memory around the outputs must not change.

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "comm/conformance.hpp"

namespace weft_test {

/// One call of one rank: buffers, a function that starts it, and the expected output. `Allocator` gives the buffers' memory.
template <class T, class Allocator = std::allocator<T>>
class RandomCall {
 public:
  static constexpr int kinds = 10;

  /// `engine` is in the same state on every rank.
  RandomCall(const Communicator& c, std::mt19937& engine) : c_(c) {
    const int n = c.size(), me = c.rank();
    const auto N = std::size_t(n);
    const auto random_count = [&] {
      constexpr std::size_t lengths[] = {0, 1, 63, 4096, 8200, 33000, 400001};
      const std::size_t most = lengths[engine() % std::size(lengths)] / sizeof(T);
      return most == 0 ? std::size_t(0) : most - engine() % std::min<std::size_t>(most, 9);
    };
    kind_ = int(engine() % kinds);
    root_ = int(engine() % unsigned(n));
    salt_ = engine() % 5;
    const std::size_t shift = engine() % 4;
    const bool in_place = engine() % 2 == 0;
    std::vector<std::size_t> matrix(N * N);  // [from, to]: elements of all_to_all_v
    for (auto& count : matrix) count = random_count();
    for (std::size_t q = 0; q < N; ++q) counts_.push_back(matrix[q]);
    const std::size_t count = matrix[0], mine = counts_[std::size_t(me)];
    const auto before = [&](int q) { return std::accumulate(counts_.begin(), counts_.begin() + q, std::size_t(0)); };
    const auto append = [&](int rank, std::size_t length, std::size_t from = 0) {
      for (const T& x : values_of(rank, length, from)) expected_.push_back(x);
    };
    switch (kind_) {
      case 0:  // all_reduce
        put(values_of(me, count));
        expected_ = sums_of(n, count, 0);
        break;
      case 1:  // all_gather
        put(values_of(me, count));
        for (int q = 0; q < n; ++q) append(q, count);
        break;
      case 2:  // all_gather_v
        put(values_of(me, mine));
        for (int q = 0; q < n; ++q) append(q, counts_[std::size_t(q)]);
        break;
      case 3:  // reduce_scatter
        put(values_of(me, count * N));
        expected_ = sums_of(n, count, count * std::size_t(me));
        break;
      case 4:  // reduce_scatter_v
        put(values_of(me, before(n)));
        expected_ = sums_of(n, mine, before(me));
        break;
      case 5:  // broadcast, in place
        put(values_of(me, count));
        expected_ = values_of(root_, count);
        break;
      case 6:  // gather
        put(values_of(me, count));
        for (int q = 0; me == root_ && q < n; ++q) append(q, count);
        break;
      case 7:  // scatter
        if (me == root_) put(values_of(me, count * N));
        expected_ = values_of(root_, count, count * std::size_t(me));
        break;
      case 8:  // all_to_all
        put(values_of(me, count * N));
        for (int q = 0; q < n; ++q) append(q, count, count * std::size_t(me));
        break;
      case 9:  // all_to_all_v
        sends_.assign(matrix.begin() + me * n, matrix.begin() + (me + 1) * n);
        for (std::size_t q = 0; q < N; ++q) counts_[q] = matrix[q * N + std::size_t(me)];
        for (int q = 0; q < n; ++q)
          for (const T& x : values_of(me + q, sends_[std::size_t(q)])) input_.push_back(x);
        for (int q = 0; q < n; ++q) append(q + me, counts_[std::size_t(q)]);
        break;
    }
    buffer_.assign(margin + shift + expected_.size() + margin, untouched());
    output_ = std::span(buffer_).subspan(margin + shift, expected_.size());
    if ((kind_ == 0 && in_place) || kind_ == 5) {
      std::copy(input_.begin(), input_.end(), output_.begin());
      in_ = output_;
    } else if (kind_ == 1 && in_place) {
      std::copy(input_.begin(), input_.end(), output_.begin() + std::ptrdiff_t(count) * me);
      in_ = output_.subspan(count * std::size_t(me), count);
    } else {
      in_ = input_;
    }
  }

  Request start() const {
    switch (kind_) {
      case 0: return c_.all_reduce_async(in_, output_);
      case 1: return c_.all_gather_async(in_, output_);
      case 2: return c_.all_gather_v_async(in_, output_, counts_);
      case 3: return c_.reduce_scatter_async(in_, output_);
      case 4: return c_.reduce_scatter_v_async(in_, output_, counts_);
      case 5: return c_.broadcast_async(output_, root_);
      case 6: return c_.gather_async(in_, output_, root_);
      case 7: return c_.scatter_async(in_, output_, root_);
      case 8: return c_.all_to_all_async(in_, output_);
      default: return c_.all_to_all_v_async(in_, sends_, output_, counts_);
    }
  }
  void check() const {
    const std::string what = "random call of kind " + std::to_string(kind_) + " with root " + std::to_string(root_);
    expect_equal(c_, what, std::vector<T>(output_.begin(), output_.end()), expected_);
    const auto begin = std::size_t(output_.data() - buffer_.data());
    for (std::size_t i = 0; i < buffer_.size(); ++i)
      expect((i >= begin && i < begin + output_.size()) || buffer_[i] == untouched(), c_, what + " wrote beside its output");
  }

 private:
  static constexpr std::size_t margin = 80;
  void put(const std::vector<T>& input) { input_.assign(input.begin(), input.end()); }
  static T untouched() { return T(float(99)); }
  std::vector<T> values_of(int rank, std::size_t count, std::size_t from = 0) const {
    return values<T>(rank, count, from + salt_);
  }
  std::vector<T> sums_of(int n, std::size_t count, std::size_t from) const {
    return reduced<T>(n, count, Reduction::sum, from + salt_);
  }

  const Communicator& c_;
  int kind_ = 0, root_ = 0;
  std::size_t salt_ = 0;
  std::vector<std::size_t> counts_, sends_;
  std::vector<T, Allocator> input_, buffer_;
  std::vector<T> expected_;
  std::span<T> output_;
  std::span<const T> in_;
};

template <class T, class Allocator = std::allocator<T>>
void check_random_calls(const Communicator& c, unsigned seed, int batches) {
  std::mt19937 engine(seed), own(seed + 1 + unsigned(c.rank()));
  for (int batch = 0; batch < batches; ++batch) {
    std::vector<std::unique_ptr<RandomCall<T, Allocator>>> calls;
    std::vector<Request> requests;
    for (unsigned k = 0, most = 1 + engine() % 3; k < most; ++k)
      calls.push_back(std::make_unique<RandomCall<T, Allocator>>(c, engine));
    for (const auto& call : calls) requests.push_back(call->start());
    std::shuffle(requests.begin(), requests.end(), own);
    for (Request& request : requests) request.wait();
    for (const auto& call : calls) call->check();
  }
}

}  // namespace weft_test
