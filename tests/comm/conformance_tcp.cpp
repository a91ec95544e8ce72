// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/tcp.hpp weft/comm/gloo.hpp weft/comm/tcp/envelope.hpp weft/comm/tcp/group.hpp weft/comm/tcp/message.hpp
// covers: weft/comm/tcp/pipeline.hpp weft/comm/tcp/process.hpp weft/comm/tcp/transfer.hpp weft/comm/polled_group.hpp
// covers: weft/comm/process_group.hpp weft/comm/process.hpp weft/comm/shared_memory/collective.hpp
// covers: weft/comm/shared_memory/doorbell.hpp weft/comm/shared_memory/group.hpp weft/comm/shared_memory/memory.hpp
// covers: weft/comm/shared_memory/slots.hpp
// Every operation on every type between processes connected by TCP, and the errors of ranks that disagree.
#include <weft/comm/gloo.hpp>
#include <weft/comm/polled_group.hpp>
#include <weft/comm/process.hpp>
#include <weft/comm/process_group.hpp>
#include <weft/comm/shared_memory/collective.hpp>
#include <weft/comm/shared_memory/doorbell.hpp>
#include <weft/comm/shared_memory/group.hpp>
#include <weft/comm/shared_memory/memory.hpp>
#include <weft/comm/shared_memory/slots.hpp>
#include <weft/comm/tcp.hpp>
#include <weft/comm/tcp/envelope.hpp>
#include <weft/comm/tcp/group.hpp>
#include <weft/comm/tcp/message.hpp>
#include <weft/comm/tcp/pipeline.hpp>
#include <weft/comm/tcp/process.hpp>
#include <weft/comm/tcp/transfer.hpp>

#include <doctest/doctest.h>

#include <thread>

#include "comm/conformance.hpp"
#include "comm/random_calls.hpp"

namespace {

/// One meeting of all ranks for each test.
template <class F>
void with_world(std::chrono::duration<double> deadline, bool fingerprints, F&& f) {
  const auto launch = weft::runtime::launch_from_environment();
  const auto process = std::make_shared<weft::comm::tcp::Process>(weft::comm::tcp::rendezvous(launch, std::chrono::seconds(60)),
                                                                  deadline, fingerprints);
  process->listen();
  f(weft::comm::tcp::over(process));
  process->tell(0, false, std::chrono::seconds(20));
}

}  // namespace

static_assert(std::is_same_v<weft::comm::Gloo, weft::comm::Tcp>, "programs that name comm::Gloo compile as before");

TEST_CASE("TCP: every operation, type and count") {
  const weft_test::WithoutSharedMemory over_tcp;
  with_world(std::chrono::seconds(40), false, [](const weft::Communicator& c) {
    CHECK_NOTHROW(weft_test::check_everything(c));
    CHECK_NOTHROW(weft_test::check_large(c));
  });
}

TEST_CASE("TCP: random calls") {
  const weft_test::WithoutSharedMemory over_tcp;
  with_world(std::chrono::seconds(40), false,
             [](const weft::Communicator& c) { CHECK_NOTHROW(weft_test::check_random_calls<float>(c, 2029, 40)); });
}

TEST_CASE("TCP's ranks of one machine: every operation, type and count, through shared memory") {
  with_world(std::chrono::seconds(40), false, [](const weft::Communicator& c) { CHECK_NOTHROW(weft_test::check_everything(c)); });
}

TEST_CASE("TCP with fingerprints: nothing changes while ranks agree") {
  with_world(std::chrono::seconds(40), true, [](const weft::Communicator& c) { CHECK_NOTHROW(weft_test::check_briefly(c)); });
}

TEST_CASE("TCP with fingerprints: ranks that disagree are named") {
  with_world(std::chrono::seconds(40), true, [](const weft::Communicator& world) {
    for (int pair = 0; pair < 3; ++pair) {
      const auto c = world.split(0, 0, "pair");
      std::vector<float> x(4 + (pair == 0 && c.rank() == 1), 1.0f);
      const auto call = [&] {
        if (pair == 1 && c.rank() == 1) return c.broadcast(x, 0);
        c.all_reduce(x, pair == 2 && c.rank() == 1 ? weft::Reduction::max : weft::Reduction::sum);
      };
      CHECK_THROWS_AS(call(), weft::MismatchError);
      CHECK(x == std::vector<float>(x.size(), 1.0f));
      world.barrier();
    }
  });
}

TEST_CASE("TCP, ranks of one machine: a disagreement is found without fingerprints") {
  with_world(std::chrono::seconds(40), false, [](const weft::Communicator& world) {
    CHECK_NOTHROW(weft_test::check_disagreements([&] {
      world.barrier();
      return world.split(0, 0, "pair");
    }));
    world.barrier();
  });
}

TEST_CASE("TCP: a message of another call is refused before the buffer changes") {
  const weft_test::WithoutSharedMemory over_tcp;
  with_world(std::chrono::seconds(40), false, [](const weft::Communicator& world) {
    for (const std::size_t count : {4, 40000, 400000}) {  // with the envelope, after it, and in chunks
      const auto sums = world.split(0, 0, "sums");
      std::vector<float> x(count + (sums.rank() == 1), 1.0f);
      CHECK_THROWS_AS(sums.all_reduce(x), weft::MismatchError);
      CHECK(x == std::vector<float>(x.size(), 1.0f));
      const auto pair = world.split(0, 0, "pair");
      if (pair.rank() == 0 && count == 4) pair.send(x, 1, 3);  // a long one waits until it is claimed, which it never is
      if (pair.rank() == 1 && count == 4) {
        std::vector<float> y(count - 1, 2.0f);
        CHECK_THROWS_AS(pair.recv(y, 0, 3), weft::MismatchError);
        CHECK(y == std::vector<float>(y.size(), 2.0f));
      }
      world.barrier();
    }
  });
}

TEST_CASE("TCP: a wait ends at its deadline") {
  with_world(std::chrono::milliseconds(300), false, [](const weft::Communicator& c) {
    std::vector<float> x(4, 1.0f);
    if (c.rank() == 0) CHECK_THROWS_WITH_AS(c.recv(x, 1), doctest::Contains("s for rank 1;"), weft::TimeoutError);
    else std::this_thread::sleep_for(std::chrono::seconds(2));  // it is alive, but sends nothing
  });
}

TEST_CASE("TCP: a rank that ends right after the meeting is named") {
  const weft_test::WithoutSharedMemory over_tcp;
  const auto launch = weft::runtime::launch_from_environment();
  for (const bool told : {false, true}) {
    auto process = std::make_shared<weft::comm::tcp::Process>(weft::comm::tcp::rendezvous(launch, std::chrono::seconds(60)),
                                                              std::chrono::seconds(40), false);
    const int last = launch.world - 1;
    if (told) process->listen();
    if (launch.rank == last) {
      if (told) process->tell(1, false, std::chrono::milliseconds(1));  // it failed because of another
      process.reset();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      if (!told) REQUIRE_NOTHROW(process->listen());
      std::string text = "no error";
      try {
        weft::comm::tcp::over(process).barrier();
      } catch (const std::exception& error) {
        text = error.what();
      }
      const bool names =
          text.find(" is lost, ") != std::string::npos || text.find(" failed with exit code 1") != std::string::npos;
      CHECK_MESSAGE(names, text);
      std::this_thread::sleep_for(std::chrono::milliseconds(600));  // the store goes with rank 0
    }
  }
}
