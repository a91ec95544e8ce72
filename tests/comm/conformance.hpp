// SPDX-License-Identifier: Apache-2.0
#pragma once
// The requirements for every backend, as functions of a communicator: each operation on each type, with expected values as
// functions of rank and size. Failures throw, so that a rank in any thread or process can report them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <weft/comm/communicator.hpp>

namespace weft_test {

using weft::bfloat16;
using weft::Communicator;
using weft::float16;
using weft::Reduction;
using weft::Request;

struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void expect(bool good, const Communicator& c, const std::string& what) {
  if (!good) throw Failed("rank " + std::to_string(c.rank()) + " of " + std::to_string(c.size()) + ": " + what);
}

template <class T>
void expect_equal(const Communicator& c, const std::string& what, const std::vector<T>& found, const std::vector<T>& expected) {
  expect(found.size() == expected.size(), c, what + ": sizes differ");
  for (std::size_t i = 0; i < found.size(); ++i)
    if (std::memcmp(&found[i], &expected[i], sizeof(T)) != 0)
      throw Failed(what + ": rank " + std::to_string(c.rank()) + " of " + std::to_string(c.size()) + " has " +
                   std::to_string(double(found[i])) + " at " + std::to_string(i) + " of " + std::to_string(found.size()) +
                   ", expected " + std::to_string(double(expected[i])));
}

/// Small whole numbers, different for each rank and place, whose sums over 8 ranks are exact in every type.
template <class T>
T value(int rank, std::size_t i) {
  return T(float((std::size_t(rank) * 3 + i) % 7));
}

template <class T>
std::vector<T> values(int rank, std::size_t count, std::size_t from = 0) {
  std::vector<T> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = value<T>(rank, from + i);
  return v;
}

template <class T>
std::vector<T> reduced(int size, std::size_t count, Reduction reduction, std::size_t from = 0) {
  std::vector<T> v(count);
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0, most = 0, least = 1e9;
    for (int r = 0; r < size; ++r) {
      const double x = double(value<T>(r, from + i));
      sum += x;
      most = std::max(most, x);
      least = std::min(least, x);
    }
    if (reduction == Reduction::average) v[i] = T(weft::accumulate_t<T>(sum) / weft::accumulate_t<T>(size));
    else v[i] = T(float(reduction == Reduction::sum ? sum : reduction == Reduction::max ? most : least));
  }
  return v;
}

/// Every operation with messages of `count` elements of T; `blocking` or through requests.
template <class T>
void check_operations(const Communicator& c, std::size_t count, bool blocking) {
  const int n = c.size(), me = c.rank();
  const auto N = std::size_t(n);
  const std::string with =
      std::string(weft::name_of(weft::data_type_of<T>)) + " x " + std::to_string(count) + (blocking ? "" : " async");
  const auto finish = [](Request request) { request.wait(); };
  const T untouched = T(float(99));

  for (const Reduction op : {Reduction::sum, Reduction::max, Reduction::min, Reduction::average}) {
    if (op == Reduction::average && std::is_integral_v<T>) continue;
    if (!c.supports(weft::comm::Operation::all_reduce, weft::data_type_of<T>))
      continue;  // the backend's own test lists the allowed ones
    const std::string name = std::string(name_of(op)) + " " + with;
    auto x = values<T>(me, count);
    blocking ? c.all_reduce(x, op) : finish(c.all_reduce_async(x, op));
    expect_equal(c, "all_reduce " + name, x, reduced<T>(n, count, op));

    const auto in = values<T>(me, count);
    std::vector<T> out(count, untouched);
    blocking ? c.all_reduce(in, out, op) : finish(c.all_reduce_async(in, out, op));
    expect_equal(c, "all_reduce to another buffer " + name, out, reduced<T>(n, count, op));
    expect_equal(c, "all_reduce's input " + name, in, values<T>(me, count));

    for (int root = 0; root < n; ++root) {
      std::vector<T> result(me == root ? count : 0, untouched);
      blocking ? c.reduce(in, result, root, op) : finish(c.reduce_async(in, result, root, op));
      if (me == root) expect_equal(c, "reduce " + name, result, reduced<T>(n, count, op));
      expect_equal(c, "reduce's input " + name, in, values<T>(me, count));
    }

    const auto wide = values<T>(me, count * N);
    std::vector<T> piece(count, untouched);
    blocking ? c.reduce_scatter(wide, piece, op) : finish(c.reduce_scatter_async(wide, piece, op));
    expect_equal(c, "reduce_scatter " + name, piece, reduced<T>(n, count, op, std::size_t(me) * count));

    std::vector<std::size_t> counts(N);  // rank r has r pieces more than rank 0
    for (int r = 0; r < n; ++r) counts[std::size_t(r)] = count + std::size_t(r);
    const auto sum = std::accumulate(counts.begin(), counts.end(), std::size_t(0));
    const auto before = std::accumulate(counts.begin(), counts.begin() + me, std::size_t(0));
    const auto uneven = values<T>(me, sum);
    std::vector<T> own(counts[std::size_t(me)], untouched);
    blocking ? c.reduce_scatter_v(uneven, own, counts, op) : finish(c.reduce_scatter_v_async(uneven, own, counts, op));
    expect_equal(c, "reduce_scatter_v " + name, own, reduced<T>(n, own.size(), op, before));
  }

  const auto in = values<T>(me, count);
  std::vector<T> everything;
  for (int r = 0; r < n; ++r)
    for (const T& x : values<T>(r, count)) everything.push_back(x);
  std::vector<T> out(count * N, untouched);
  blocking ? c.all_gather(in, out) : finish(c.all_gather_async(in, out));
  expect_equal(c, "all_gather " + with, out, everything);

  std::vector<T> in_place(count * N, untouched);
  const std::span<T> mine = std::span(in_place).subspan(std::size_t(me) * count, count);
  std::copy(in.begin(), in.end(), mine.begin());
  blocking ? c.all_gather(mine, in_place) : finish(c.all_gather_async(mine, in_place));
  expect_equal(c, "all_gather in place " + with, in_place, everything);

  std::vector<std::size_t> counts(N);
  std::vector<T> expected;
  for (int r = 0; r < n; ++r) {
    counts[std::size_t(r)] = r % 2 == 0 ? count + std::size_t(r) : 0;
    for (const T& x : values<T>(r, counts[std::size_t(r)])) expected.push_back(x);
  }
  std::vector<T> uneven(expected.size(), untouched);
  const auto own = values<T>(me, counts[std::size_t(me)]);
  blocking ? c.all_gather_v(own, uneven, counts) : finish(c.all_gather_v_async(own, uneven, counts));
  expect_equal(c, "all_gather_v " + with, uneven, expected);

  for (int root = 0; root < n; ++root) {
    auto x = values<T>(me, count);
    blocking ? c.broadcast(x, root) : finish(c.broadcast_async(x, root));
    expect_equal(c, "broadcast " + with, x, values<T>(root, count));

    std::vector<T> gathered(me == root ? count * N : 0, untouched);
    blocking ? c.gather(in, gathered, root) : finish(c.gather_async(in, gathered, root));
    if (me == root) expect_equal(c, "gather " + with, gathered, everything);

    const auto source = me == root ? values<T>(root, count * N) : std::vector<T>();
    std::vector<T> piece(count, untouched);
    blocking ? c.scatter(source, piece, root) : finish(c.scatter_async(source, piece, root));
    expect_equal(c, "scatter " + with, piece, values<T>(root, count, std::size_t(me) * count));
  }

  const auto wide = values<T>(me, count * N);
  std::vector<T> exchanged(count * N, untouched), transposed;
  for (int r = 0; r < n; ++r)
    for (const T& x : values<T>(r, count, std::size_t(me) * count)) transposed.push_back(x);
  blocking ? c.all_to_all(wide, exchanged) : finish(c.all_to_all_async(wide, exchanged));
  expect_equal(c, "all_to_all " + with, exchanged, transposed);

  // Rank r sends count + r + 2 q elements to rank q.
  std::vector<std::size_t> sends(N), receives(N);
  std::vector<T> parts, from_all;
  for (int q = 0; q < n; ++q) {
    sends[std::size_t(q)] = count + std::size_t(me + 2 * q);
    receives[std::size_t(q)] = count + std::size_t(q + 2 * me);
    for (const T& x : values<T>(me + q, sends[std::size_t(q)])) parts.push_back(x);
    for (const T& x : values<T>(q + me, receives[std::size_t(q)])) from_all.push_back(x);
  }
  std::vector<T> collected(from_all.size(), untouched);
  blocking ? c.all_to_all_v(parts, sends, collected, receives) : finish(c.all_to_all_v_async(parts, sends, collected, receives));
  expect_equal(c, "all_to_all_v " + with, collected, from_all);

  const int next = (me + 1) % n, previous = (me + n - 1) % n;
  std::vector<T> received(count, untouched);
  c.send_recv(in, next, received, previous);
  expect_equal(c, "send_recv " + with, received, values<T>(previous, count));
  for (int from = 0; from + 1 < n; ++from) {  // down a chain, one after the other
    std::vector<T> message(count, untouched);
    if (me == from) blocking ? c.send(in, from + 1, 5) : finish(c.send_async(in, from + 1, 5));
    if (me == from + 1) {
      blocking ? c.recv(message, from, 5) : finish(c.recv_async(message, from, 5));
      expect_equal(c, "send and recv " + with, message, values<T>(from, count));
    }
  }
  blocking ? c.barrier() : finish(c.barrier_async());
}

template <class T>
void check_type(const Communicator& c) {
  for (const std::size_t count : {0, 1, 7, 300, 6001})
    for (const bool blocking : {true, false}) check_operations<T>(c, count, blocking);
}

inline void check_all_types(const Communicator& c) {
  check_type<std::int8_t>(c);
  check_type<std::uint8_t>(c);
  check_type<std::int16_t>(c);
  check_type<std::uint16_t>(c);
  check_type<std::int32_t>(c);
  check_type<std::uint32_t>(c);
  check_type<std::int64_t>(c);
  check_type<std::uint64_t>(c);
  check_type<float>(c);
  check_type<double>(c);
  check_type<bfloat16>(c);
  check_type<float16>(c);
}

/// Sums are formed in rank order: the bits of a plain loop, on every rank.
template <class T>
void check_rank_order(const Communicator& c, const std::vector<std::size_t>& counts = {5, 900, 40000}) {
  using A = weft::accumulate_t<T>;
  const auto random = [](int rank, std::size_t count) {
    std::mt19937 engine(unsigned(rank) + 17u);
    std::uniform_real_distribution<float> distribution(-1, 1);
    std::vector<T> v(count);
    constexpr unsigned exponents = std::is_same_v<T, float16> ? 12 : 30;  // sums of 8 ranks stay finite
    for (auto& x : v) x = T(distribution(engine) * std::exp2(float(engine() % exponents)));
    return v;
  };
  for (const std::size_t count : counts) {
    std::vector<T> expected(count);
    std::vector<std::vector<T>> all;
    for (int r = 0; r < c.size(); ++r) all.push_back(random(r, count));
    for (std::size_t i = 0; i < count; ++i) {
      A sum = A(all[0][i]);
      for (int r = 1; r < c.size(); ++r) sum = sum + A(all[std::size_t(r)][i]);
      expected[i] = T(sum);
    }
    auto x = random(c.rank(), count);
    c.all_reduce(x);
    expect_equal(c, "rank order", x, expected);
    auto y = random(c.rank(), count);
    std::vector<T> z(count);
    c.all_reduce_async(y, z).wait();
    expect_equal(c, "rank order, async", z, expected);
    const std::size_t piece = count / std::size_t(c.size());
    std::vector<T> own(piece);
    c.reduce_scatter(std::span(y).first(piece * std::size_t(c.size())), own);
    expect_equal(c, "rank order, scattered", own,
                 std::vector<T>(expected.begin() + std::ptrdiff_t(piece) * c.rank(),
                                expected.begin() + std::ptrdiff_t(piece) * (c.rank() + 1)));
  }
  std::vector<T> x{T(c.rank() == c.size() - 1 ? std::numeric_limits<float>::quiet_NaN() : float(c.rank()))};
  for (const Reduction op : {Reduction::max, Reduction::min, Reduction::sum, Reduction::average}) {
    auto y = x;
    c.all_reduce(y, op);
    expect(std::isnan(float(y[0])), c, std::string(name_of(op)) + " passes a NaN on");
  }
}

/// Many operations in flight, of several communicators, finished in another order on every rank.
inline void check_in_flight(const Communicator& c) {
  const Communicator other = c.split(0, -c.rank(), "other");
  expect(other.rank() == c.size() - 1 - c.rank(), c, "split orders by key");
  constexpr int rounds = 40;  // more than a backend keeps places for
  const std::size_t sizes[] = {3, 700, 5000, 20000};
  std::vector<std::vector<float>> sums, others;
  std::vector<std::vector<int>> arrived(rounds), sent(rounds);
  std::vector<Request> requests;
  const int next = (c.rank() + 1) % c.size(), previous = (c.rank() + c.size() - 1) % c.size();
  sums.reserve(rounds);
  others.reserve(rounds);
  for (int k = 0; k < rounds; ++k) {
    const std::size_t count = sizes[k % 4];
    sums.push_back(std::vector<float>(count, float(c.rank() + k)));
    others.push_back(std::vector<float>(count, float(k)));
    arrived[std::size_t(k)].assign(count, -1);
    sent[std::size_t(k)].assign(count, c.rank() * 1000 + k);
    requests.push_back(c.all_reduce_async(sums.back()));
    requests.push_back(c.recv_async(arrived[std::size_t(k)], previous));
    requests.push_back(other.all_reduce_async(others.back(), Reduction::max));
    requests.push_back(c.send_async(sent[std::size_t(k)], next));
  }
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::shuffle(order.begin(), order.end(), std::mt19937(unsigned(c.rank())));
  for (const std::size_t k : order) {
    if (k % 3 == 0) {
      while (!requests[k].test()) {}
    } else {
      requests[k].wait();
    }
  }
  const float ranks = float(c.size() * (c.size() - 1)) / 2;
  for (int k = 0; k < rounds; ++k) {
    const auto at = std::size_t(k);
    expect_equal(c, "all_reduce in flight", sums[at], std::vector<float>(sums[at].size(), ranks + float(k * c.size())));
    expect_equal(c, "all_reduce of another communicator in flight", others[at], std::vector<float>(others[at].size(), float(k)));
    expect_equal(c, "messages in flight", arrived[at], std::vector<int>(arrived[at].size(), previous * 1000 + k));
  }
}

/// Messages are matched by sender and tag, in the order in which they were sent.
inline void check_tags(const Communicator& c) {
  if (c.size() < 2) return;
  for (const std::size_t count : {1, 10000}) {
    std::vector<Request> requests;
    if (c.rank() == 0) {
      std::vector<std::vector<int>> messages;
      for (int k = 0; k < 6; ++k) messages.push_back(std::vector<int>(count, k));
      for (int k = 0; k < 6; ++k) requests.push_back(c.send_async(messages[std::size_t(k)], 1, k % 2));
      for (auto& request : requests) request.wait();
    } else if (c.rank() == 1) {
      std::vector<std::vector<int>> messages(6, std::vector<int>(count, -1));
      for (const int k : {1, 3, 5, 0, 2, 4}) requests.push_back(c.recv_async(messages[std::size_t(k)], 0, k % 2));
      for (auto it = requests.rbegin(); it != requests.rend(); ++it) it->wait();
      for (int k = 0; k < 6; ++k) expect_equal(c, "tags", messages[std::size_t(k)], std::vector<int>(count, k));
    }
  }
}

/// Communicators of communicators, of one rank too.
inline void check_split(const Communicator& c) {
  const Communicator parity = c.split(c.rank() % 2, c.rank(), "parity");
  std::vector<int> sum{c.rank()};
  parity.all_reduce(sum);
  int expected = 0;
  for (int r = c.rank() % 2; r < c.size(); r += 2) expected += r;
  expect(parity.axis() == "parity" && parity.rank() == c.rank() / 2 && parity.size() == (c.size() + 1 - c.rank() % 2) / 2, c,
         "split");
  expect(sum[0] == expected, c, "sum over a split");
  const Communicator half = parity.split(parity.rank() % 2, 0, "half");
  std::vector<int> ones{1};
  half.all_reduce(ones);
  expect(ones[0] == half.size(), c, "sum over a split of a split");
  const Communicator alone = c.split(c.rank(), 0, "alone");
  expect(alone.size() == 1 && alone.rank() == 0, c, "split into single ranks");
  alone.all_reduce(ones);
  for (int k = 0; k < 50; ++k) {  // communicators are created and destroyed
    const Communicator again = c.split(0, 0, "again");
    std::vector<int> x{1};
    again.all_reduce(x);
    expect(x[0] == c.size(), c, "sum over a short-lived communicator");
  }
}

/// Messages that no backend moves at once.
inline void check_large(const Communicator& c) {
  check_operations<float>(c, 150001, true);
  check_operations<double>(c, 50001, false);
}

/// Ranks that call different operations get an error, and their buffers are unchanged. `make` returns a new communicator each
/// time.
template <class Make>
void check_disagreements(Make&& make) {
  for (int pair = 0; pair < 5; ++pair) {
    const Communicator c = make();
    const auto n = std::size_t(c.size());
    const bool odd = c.rank() == 1;
    for (const std::size_t count : {4, 40000}) {
      if (count == 40000 && pair != 0) continue;
      std::vector<float> x((count + (pair == 0 && odd)) * n, 1.0f), y(x.size() + 1, 2.0f);
      const auto call = [&] {
        const std::vector<std::size_t> even(n, x.size() / n);
        std::vector<std::size_t> uneven = even;
        if (odd) uneven[0] += 1;
        y.resize(x.size() + (pair == 4 && odd));
        if (pair == 1 && odd) return c.all_gather(std::span(x).first(x.size() / n), y);
        if (pair == 3 && odd) return c.all_reduce(std::span(reinterpret_cast<int*>(x.data()), x.size()));
        if (pair == 4) return c.all_to_all_v(x, even, y, uneven);
        c.all_reduce(x, pair == 2 && odd ? Reduction::max : Reduction::sum);
      };
      bool found = false;
      try {
        call();
      } catch (const weft::MismatchError& error) {
        found = std::string(error.what()).find("ranks disagree: rank ") != std::string::npos;
      } catch (const weft::AbortedError&) {
        found = count == 40000;  // after the first disagreement
      }
      expect(found, c, "ranks that disagree find out, case " + std::to_string(pair));
      expect(x == std::vector<float>(x.size(), 1.0f) && y == std::vector<float>(y.size(), 2.0f), c,
             "their buffers stay, case " + std::to_string(pair));
    }
  }
}

/// Communicators created while this exists use the backend's messages, although all ranks are on one computer.
struct WithoutSharedMemory {
  WithoutSharedMemory() { ::setenv("WEFT_SHARED_MEMORY", "0", 1); }
  WithoutSharedMemory(const WithoutSharedMemory&) = delete;
  WithoutSharedMemory& operator=(const WithoutSharedMemory&) = delete;
  ~WithoutSharedMemory() { ::unsetenv("WEFT_SHARED_MEMORY"); }
};

/// Arrays are accepted like spans: as input, output and counts of every operation.
inline void check_arrays(const Communicator& c) {
  const int n = c.size(), me = c.rank();
  const auto N = std::size_t(n);
  constexpr std::size_t most = 8;
  expect(N <= most, c, "arrays are for at most 8 ranks");
  const float sum = float(n * (n - 1)) / 2;
  const float in[2] = {float(me), 10};
  float x[2] = {float(me), 10}, out[2] = {};
  c.all_reduce(x);
  expect(x[0] == sum && x[1] == float(10 * n), c, "all_reduce of an array");
  c.all_reduce(in, out, Reduction::max);
  expect(out[0] == float(n - 1) && out[1] == 10, c, "all_reduce from an array to another");
  c.all_reduce_async(in, out, Reduction::average).wait();
  expect(out[0] == sum / float(n) && out[1] == 10, c, "all_reduce_async from an array to another");
  c.reduce(in, out, 0);
  if (me == 0) expect(out[0] == sum && out[1] == float(10 * n), c, "reduce of arrays");
  float copy[2] = {float(me), float(me)};
  c.broadcast(copy, n - 1);
  expect(copy[0] == float(n - 1) && copy[1] == float(n - 1), c, "broadcast of an array");

  // A rank has one element: arrays as large as the world are parts of the largest, as spans.
  const std::int32_t one[1] = {me};
  std::int32_t all[most] = {}, piece[1] = {-1}, exchanged[most] = {};
  std::size_t counts[most];
  std::fill(std::begin(counts), std::end(counts), std::size_t(1));
  const std::span<const std::size_t> given(counts, N);
  c.all_gather(one, std::span(all, N));
  c.scatter(std::span<const std::int32_t>(all, N), piece, n - 1);
  expect(piece[0] == me, c, "scatter to an array");
  c.gather(one, std::span(exchanged, N), 0);
  if (me == 0) expect(exchanged[N - 1] == n - 1, c, "gather of arrays");
  c.all_gather_v(one, std::span(exchanged, N), given);
  c.reduce_scatter(std::span<const std::int32_t>(all, N), piece);
  expect(piece[0] == me * n, c, "reduce_scatter to an array");
  c.reduce_scatter_v(std::span<const std::int32_t>(all, N), piece, given, Reduction::max);
  expect(piece[0] == me && exchanged[std::size_t(me)] == me, c, "reduce_scatter_v to an array");
  if (N == 1) {
    const std::size_t whole[1] = {1};
    c.all_gather(one, piece);
    c.all_to_all(one, piece);
    c.all_gather_v(one, piece, whole);
    c.all_to_all_v(one, whole, piece, whole);
    expect(piece[0] == me, c, "pieces of one rank are arrays");
  }
  if (N == 2) {
    const std::size_t ones[2] = {1, 1};
    const std::int32_t given_pair[2] = {2 * me, 2 * me + 1};
    std::int32_t pair[2] = {};
    c.all_to_all(given_pair, pair);
    expect(pair[0] == me && pair[1] == 2 + me, c, "all_to_all of arrays");
    c.all_to_all_v(given_pair, ones, pair, ones);
    expect(pair[0] == me && pair[1] == 2 + me, c, "all_to_all_v of arrays and counts in arrays");
    c.all_gather_v(one, pair, ones);
    expect(pair[0] == 0 && pair[1] == 1, c, "all_gather_v of arrays");
    c.all_gather(one, pair);
    c.gather(one, pair, 0);
    expect(pair[0] == 0 && pair[1] == 1, c, "all_gather to an array");
  }
  std::int32_t arrived[1] = {-1};
  c.send_recv(one, (me + 1) % n, arrived, (me + n - 1) % n);
  expect(arrived[0] == (me + n - 1) % n, c, "messages in arrays");
}

inline void check_everything(const Communicator& c) {
  check_all_types(c);
  check_rank_order<float>(c);
  check_rank_order<double>(c);
  check_rank_order<bfloat16>(c);
  check_rank_order<float16>(c);
  check_arrays(c);
  check_in_flight(c);
  check_tags(c);
  check_split(c);
}

/// The operations on a few types only, for runs that are slow (sanitizers, more processes than cores).
inline void check_briefly(const Communicator& c) {
  for (const std::size_t count : {1, 1500}) {
    check_operations<float>(c, count, true);
    check_operations<bfloat16>(c, count, false);
  }
  check_in_flight(c);
  check_tags(c);
  check_split(c);
}

}  // namespace weft_test
