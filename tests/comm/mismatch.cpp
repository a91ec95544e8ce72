// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/errors.hpp
// Ranks that make different calls: every ordered pair must end on both ranks within a second, with an error that names two ranks
// and their calls, and no buffer changed.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <weft/comm/errors.hpp>
#include <weft/comm/threads.hpp>

using namespace weft;

namespace {

struct Buffers {
  std::vector<float> a = std::vector<float>(4096, 1.0f), b = std::vector<float>(4096, 2.0f);
  std::vector<double> d = std::vector<double>(4096, 3.0);
  bool operator==(const Buffers&) const = default;
};

struct Case {
  std::string name;
  std::function<void(const Communicator&, Buffers&)> call;
};

std::span<float> first(std::vector<float>& v, std::size_t n) { return std::span(v).first(n); }

// `count` elements: short ones travel another way than long ones.
std::vector<Case> cases(std::size_t count) {
  return {
      {"all_reduce(sum) of " + std::to_string(count) + " float32", [=](auto& c, auto& x) { c.all_reduce(first(x.a, count)); }},
      {"all_reduce(max) of " + std::to_string(count) + " float32",
       [=](auto& c, auto& x) { c.all_reduce(first(x.a, count), Reduction::max); }},
      {"all_reduce(sum) of " + std::to_string(count - 1) + " float32",
       [=](auto& c, auto& x) { c.all_reduce(first(x.a, count - 1)); }},
      {"all_reduce(sum) of " + std::to_string(count) + " float64",
       [=](auto& c, auto& x) { c.all_reduce(std::span(x.d).first(count)); }},
      {"broadcast of " + std::to_string(count) + " float32 with root 0",
       [=](auto& c, auto& x) { c.broadcast(first(x.a, count), 0); }},
      {"broadcast of " + std::to_string(count) + " float32 with root 1",
       [=](auto& c, auto& x) { c.broadcast(first(x.a, count), 1); }},
      {"reduce(sum) of " + std::to_string(count) + " float32 with root 0",
       [=](auto& c, auto& x) { c.reduce(first(x.a, count), first(x.b, count), 0); }},
      {"gather of " + std::to_string(count / 8) + " float32 with root 1",
       [=](auto& c, auto& x) { c.gather(first(x.a, count / 8), first(x.b, count / 8 * std::size_t(c.size())), 1); }},
      {"scatter of " + std::to_string(count / 8) + " float32 with root 0",
       [=](auto& c, auto& x) { c.scatter(first(x.a, count / 8 * std::size_t(c.size())), first(x.b, count / 8), 0); }},
      {"all_gather of " + std::to_string(count / 8) + " float32",
       [=](auto& c, auto& x) { c.all_gather(first(x.a, count / 8), first(x.b, count / 8 * std::size_t(c.size()))); }},
      {"reduce_scatter(sum) of " + std::to_string(count / 8) + " float32",
       [=](auto& c, auto& x) { c.reduce_scatter(first(x.a, count / 8 * std::size_t(c.size())), first(x.b, count / 8)); }},
      {"all_to_all of " + std::to_string(count / 8) + " float32",
       [=](auto& c, auto& x) {
         c.all_to_all(first(x.a, count / 8 * std::size_t(c.size())), first(x.b, count / 8 * std::size_t(c.size())));
       }},
      {"barrier", [](auto& c, auto&) { c.barrier(); }},
      {"recv of " + std::to_string(count) + " float32",
       [=](auto& c, auto& x) { c.recv(first(x.b, count), (c.rank() + 1) % c.size()); }},
      {"ended", [](auto&, auto&) {}},  // the call is missing
  };
}

// Every rank calls `usual` but the last, which calls `other`. `all` is how many ranks get an error.
void check_pair(int ranks, const Case& usual, const Case& other) {
  CAPTURE(ranks);
  CAPTURE(usual.name);
  CAPTURE(other.name);
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::atomic<int> changed{0};
  std::string reported;
  const auto start = std::chrono::steady_clock::now();
  try {
    comm::run_threads(ranks, [&](const Communicator& c) {
      Buffers buffers;
      try {
        (c.rank() == c.size() - 1 ? other : usual).call(c, buffers);
      } catch (const MismatchError& error) {
        errors[std::size_t(c.rank())] = error.what();
        if (!(buffers == Buffers())) ++changed;
        throw;
      }
    });
  } catch (const MismatchError& error) {
    reported = error.what();
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CHECK(seconds < 1.0);
  CHECK(changed == 0);
  const auto has = [&](const std::string& text) { return reported.find(text) != std::string::npos; };
  INFO("reported: ", reported);
  CHECK(has(usual.name));
  CHECK(has(other.name));
  CHECK(has("rank 0"));
  CHECK(has("rank " + std::to_string(ranks - 1)));
  for (std::size_t r = 0; r < errors.size(); ++r) {
    const bool ended = (int(r) == ranks - 1 ? other : usual).name == "ended";
    CHECK(errors[r].empty() == ended);
  }
}

}  // namespace

TEST_CASE("every ordered pair of different calls is found, and both are named") {
  for (const std::size_t count : {16, 2048}) {
    const auto all = cases(count);
    for (const auto& usual : all)
      for (const auto& other : all)
        if (usual.name != other.name) check_pair(2, usual, other);
  }
}

TEST_CASE("a mismatch among more ranks is found") {
  const auto all = cases(16);
  for (const int ranks : {3, 8})
    for (std::size_t k = 0; k < all.size(); ++k) check_pair(ranks, all[k], all[(k + 5) % all.size()]);
}

TEST_CASE("the matrix of a call with itself is fine") {
  for (const std::size_t count : {16, 2048})
    for (const auto& same : cases(count)) {
      if (same.name.starts_with("recv")) continue;
      CHECK_NOTHROW(comm::run_threads(3, [&](const Communicator& c) {
        Buffers buffers;
        same.call(c, buffers);
      }));
    }
}

TEST_CASE("counts of v operations that disagree are found") {
  const auto reported = [](const std::function<void(const Communicator&)>& f) {
    try {
      comm::run_threads(2, f);
    } catch (const MismatchError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(reported([](const Communicator& c) {
          const std::vector<std::size_t> counts{3, c.rank() == 0 ? 2u : 4u};
          std::vector<int> in(counts[std::size_t(c.rank())]), out(counts[0] + counts[1]);
          c.all_gather_v(in, out, counts);
        }).find("counts[1] is 2 and 4") != std::string::npos);
  CHECK(reported([](const Communicator& c) {
          const std::vector<std::size_t> sends{1, 2}, receives{1, c.rank() == 0 ? 2u : 5u};
          std::vector<int> in(3), out(receives[0] + receives[1]);
          c.all_to_all_v(in, sends, out, receives);
        }).find("the first sends 2 elements to the second, which expects") != std::string::npos);
}

TEST_CASE("messages of another type or count than expected are found") {
  for (const std::size_t count : {4, 5000}) {
    std::atomic<int> mismatches{0};
    CHECK_THROWS_WITH_AS(comm::run_threads(2,
                                           [&](const Communicator& c) {
                                             std::vector<float> sent(count), received(count + 1);
                                             if (c.rank() == 0) c.send(sent, 1, 3);
                                             else c.recv(received, 0, 3);
                                           }),
                         doctest::Contains("with tag 3, rank 1 called recv of"), MismatchError);
  }
}

TEST_CASE("order swapped between two communicators is found as a circle") {
  CHECK_THROWS_WITH_AS(comm::run_threads(2,
                                         [](const Communicator& c) {
                                           const Communicator tp = c.split(0, 0, "tp"), dp = c.split(0, 0, "dp");
                                           (c.rank() == 0 ? tp : dp).barrier();
                                           (c.rank() == 0 ? dp : tp).barrier();
                                         }),
                       doctest::Contains("ranks wait for each other and none can go on: rank 0 waits, last: barrier() on tp #1"),
                       MismatchError);
}

TEST_CASE("a rank that computes is waited for, not accused") {
  CHECK_NOTHROW(comm::run_threads(3, [](const Communicator& c) {
    if (c.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    c.barrier();
  }));
}

TEST_CASE("arguments are checked before any communication") {
  const Communicator c;
  std::vector<float> two(2), three(3);
  std::vector<int> whole(2);
  CHECK_THROWS_WITH_AS(c.all_gather(two, three), "weft: all_gather: the output holds 3 elements, expected 2", ShapeError);
  CHECK_THROWS_WITH_AS(c.broadcast(two, 1), "weft: broadcast: root 1 is not one of 1 ranks", UsageError);
  CHECK_THROWS_WITH_AS(c.all_reduce(whole, Reduction::average),
                       "weft: all_reduce: the average of int32 is not a int32; sum and divide", UsageError);
  CHECK_THROWS_WITH_AS(c.split(-1, 0, "tp"), "weft: split: color -1 is negative", UsageError);
}

TEST_CASE("operands that overlap are refused, but in the places where no rank reads what another has written") {
  comm::run_threads(2, [&](const Communicator& c) {
    std::vector<float> all(8), other(8);
    const std::span<float> whole(all), mine = whole.subspan(std::size_t(c.rank()) * 4, 4),
                                       theirs = whole.subspan(std::size_t(1 - c.rank()) * 4, 4);
    const std::size_t counts[] = {4, 4};
    const auto refused = [](const char* operation, const char* in_place, const auto& call) {
      CHECK_THROWS_WITH_AS(call(),
                           weft::detail::joined({"weft: ", operation,
                                                 ": the input and the output overlap, so that other ranks would read results in "
                                                 "place of the input; give them separate memory",
                                                 in_place})
                               .c_str(),
                           UsageError);
    };
    const char *piece_of_input = ", or let the output be this rank's piece of the input.",
               *piece_of_output = ", or let the input be this rank's piece of the output.";
    refused("all_reduce", ", or the same memory.", [&] { c.all_reduce(whole.first(7), whole.last(7)); });
    refused("reduce_scatter", piece_of_input, [&] { c.reduce_scatter(whole, theirs); });
    refused("reduce_scatter", piece_of_input, [&] { c.reduce_scatter(whole, whole.subspan(2, 4)); });
    refused("reduce_scatter_v", piece_of_input, [&] { c.reduce_scatter_v(whole, theirs, counts); });
    refused("all_gather", piece_of_output, [&] { c.all_gather(theirs, whole); });
    refused("all_gather_v", piece_of_output, [&] { c.all_gather_v(theirs, whole, counts); });
    if (c.rank() == 0) {  // the root; the others do not come so far
      refused("reduce", ", or the same memory.", [&] { c.reduce(whole.first(4), whole.subspan(1, 4), 0); });
      refused("gather", piece_of_output, [&] { c.gather(theirs, whole, 0); });
      refused("scatter", piece_of_input, [&] { c.scatter(whole, theirs, 0); });
    }
    refused("all_to_all", ".", [&] { c.all_to_all(whole, whole); });
    refused("all_to_all_v", ".", [&] { c.all_to_all_v(whole, counts, whole, counts); });
    for (std::size_t i = 0; i < 8; ++i) all[i] = float(c.rank() + 1);
    c.reduce_scatter(whole, mine);
    CHECK(std::vector(mine.begin(), mine.end()) == std::vector<float>(4, 3));
    c.all_gather(mine, whole);
    CHECK(all == std::vector<float>(8, 3));
    c.all_reduce(whole);
    CHECK(all == std::vector<float>(8, 6));
    c.reduce_scatter_v(whole, mine, counts);
    c.all_gather_v(mine, whole, counts);
    CHECK(all == std::vector<float>(8, 12));
    c.all_to_all(whole, other);
    CHECK(other == all);
  });
}
