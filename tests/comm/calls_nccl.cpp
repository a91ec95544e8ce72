// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/nccl/pair.hpp
// The threads and times of calls to NCCL: in the rank's thread once ranks are connected, in a separate thread before, and never
// so many that NCCL's queue would block. Over the test double (tests/support/fake_nccl).
// covers: weft/comm/nccl/comm.hpp
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <weft/comm/nccl.hpp>
#include <weft/comm/nccl/comm.hpp>
#include <weft/comm/nccl/pair.hpp>
#include <weft/comm/threads.hpp>

#include "support/device_elements.hpp"
#include "support/fake_nccl/internal.hpp"

using namespace weft;
using weft_test::DeviceSpace;
using weft_test::OfDevice;
using weft_test::on_device;

namespace {

using Seconds = std::chrono::duration<double>;

void with_ranks(int ranks, double deadline_s, const std::function<void(const Communicator&)>& f) {
  comm::run_threads(ranks, [&](const Communicator& host) {
    fake_nccl::faults() = {};
    f(comm::nccl::over(host, {.deadline = Seconds(deadline_s)}));
  });
}

/// Operations of every kind: how NCCL is called for them, once or several times.
void all_kinds(const Communicator& c) {
  const auto n = std::size_t(c.size()), me = std::size_t(c.rank());
  std::vector<float> one(6, 1.0f), all(6 * n), exchanged(6 * n);
  c.all_reduce(one);
  c.broadcast(one, 0);
  c.all_gather(one, all);
  c.reduce_scatter(all, one);
  c.all_to_all(all, exchanged);
  std::vector<std::size_t> counts(n, 2);
  counts[0] = 3;
  std::vector<float> some(2 * n + 1);
  c.all_gather_v(std::span(one).first(counts[me]), some, counts);
  const int next = (c.rank() + 1) % c.size(), before = (c.rank() + c.size() - 1) % c.size();
  Request sent = c.send_async(one, next);
  c.recv(std::span(all).first(6), before);
  sent.wait();
}

}  // namespace

TEST_CASE("NCCL starts no thread for a call, and after the first of its kind neither does weft") {
  const int before = fake_nccl::call_threads();
  with_ranks(3, 20, [](const Communicator& world) {
    const Communicator c = on_device(world.split(0, 0, "dp"));
    all_kinds(c);
    const int first = fake_nccl::own_calls();
    CHECK(first == 0);  // calls that may wait for other ranks are not made here
    all_kinds(c);
    const int one_round = fake_nccl::own_calls() - first;
    CHECK(one_round == 4 + 2 * 2 + 3 + 2);  // collectives, messages to and from two others, three broadcasts, two messages
    all_kinds(c);
    CHECK(fake_nccl::own_calls() == 2 * one_round);
  });
  CHECK(fake_nccl::call_threads() == before);
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("counts of messages may change from call to call: ranks are connected once") {
  with_ranks(2, 20, [](const Communicator& world) {
    const Communicator c = on_device(world);
    for (const std::size_t count : {3, 1, 4, 0, 5}) {
      const std::vector<std::size_t> counts(2, count);
      std::vector<float> in(2 * count, float(c.rank())), out(2 * count);
      const int before = fake_nccl::own_calls();
      c.all_to_all_v(in, counts, out, counts);
      CHECK(fake_nccl::own_calls() - before == (count == 3 || count == 0 ? 0 : 2));
      for (std::size_t i = 0; i < 2 * count; ++i) CHECK(out[i] == float(i / count));
    }
  });
}

TEST_CASE("a rank that waits for a connection goes on with everything else") {
  with_ranks(2, 20, [](const Communicator& world) {
    const Communicator c = on_device(world);
    std::vector<float> x(4, 1.0f), y(4, 2.0f);
    if (c.rank() == 0) {
      Request sum = c.all_reduce_async(x);  // the first collective connects, and rank 1 joins only after it has the message
      c.send(y, 1);
      sum.wait();
    } else {
      c.recv(y, 0);
      c.all_reduce(x);
    }
    CHECK(x[0] == 2.0f);
    CHECK(y[0] == 2.0f);
  });
}

TEST_CASE("a connection that no other rank makes ends at the deadline, and nothing is freed under a thread inside NCCL") {
  const auto start = std::chrono::steady_clock::now();
  comm::run_threads(2, [&](const Communicator& host) {
    const Communicator c = on_device(comm::nccl::over(host, {.deadline = Seconds(0.3)}));
    std::vector<float> x(4, 1.0f);
    if (host.rank() == 0)
      CHECK_THROWS_WITH_AS(c.all_reduce(x), doctest::Contains("waited longer than the deadline of 0.3"), TimeoutError);
    host.barrier();
  });
  CHECK(Seconds(std::chrono::steady_clock::now() - start).count() < 2);
  CHECK(fake_nccl::take_reports().empty());
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("a communicator without owners ends after its last operation, and its errors are polled until then") {
  const fake_nccl::Schedule usual = fake_nccl::schedule();
  for (unsigned seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    // Slowly: a kernel has ended for a while when the event after it is done.
    fake_nccl::set_schedule({.order = fake_nccl::Schedule::Order::random, .seed = seed, .longest_us = 10000});
    with_ranks(2, 20, [](const Communicator& world) {
      DeviceSpace own;
      const CudaStream stream, held;
      own.stream = stream.get();
      DeviceSpace on_held;
      on_held.stream = held.get();
      OfDevice x(8), y(8);
      x.fill(1.0f), y.fill(1.0f);
      world.all_reduce(own, y.elements);
      auto dp = std::make_unique<Communicator>(world.split(0, 0, "dp"));
      dp->all_reduce(own, x.elements);
      stream.wait();
      fake_nccl::Block kernel(stream.get()), other_kernel(held.get());
      dp->all_reduce(own, x.elements);
      dp.reset();
      Request other = world.all_reduce_async(on_held, y.elements);  // its tests are the rank's progress
      const auto until_closed = [&, open = fake_nccl::alive()](int turns) {
        for (int turn = 0; turn < turns && fake_nccl::alive() == open; ++turn) {
          CHECK_NOTHROW((void)other.test());
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
        return fake_nccl::alive() < open;
      };
      world.barrier();  // both have counted
      CHECK(!until_closed(100));
      world.barrier();
      kernel.release();
      CHECK(until_closed(20000));
      CHECK_NOTHROW((void)other.test());  // it is gone now
      other_kernel.release();
      other.wait();
      stream.wait();
      held.wait();
      CHECK(x.at(0) == 4.0f);
      CHECK(y.at(0) == 4.0f);
    });
  }
  fake_nccl::set_schedule(usual);
  CHECK(fake_nccl::take_reports().empty());
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("a rank that is far ahead of its GPU keeps calls back: NCCL's queue of work is finite, and a full one is waited for") {
  std::vector<std::unique_ptr<OfDevice>> x;
  for (int rank = 0; rank < 2; ++rank) x.push_back(std::make_unique<OfDevice>(8));
  with_ranks(2, 60, [&](const Communicator& c) {
    DeviceSpace own;
    const CudaStream stream;
    own.stream = stream.get();
    auto& mine = *x[std::size_t(c.rank())];
    mine.fill(1.0f);
    c.all_reduce(own, mine.elements, Reduction::average);  // connects
    stream.wait();
    fake_nccl::Block kernel(stream.get());
    std::vector<Request> requests;
    const int before = fake_nccl::own_calls();
    for (int i = 0; i < 600; ++i) requests.push_back(c.all_reduce_async(own, mine.elements, Reduction::average));
    CHECK(fake_nccl::own_calls() - before == 4096 / (8 + 2 * 2));  // entries of the queue, and of an operation of two ranks
    kernel.release();
    for (Request& request : requests) request.wait();
    stream.wait();
    CHECK(mine.at(0) == 1.0f);
  });
  CHECK(fake_nccl::alive() == 0);
}
