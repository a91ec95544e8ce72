// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/mpi.hpp weft/comm/mpi/api.hpp weft/comm/mpi/comparison.hpp weft/comm/mpi/group.hpp
// covers: weft/comm/mpi/library.hpp weft/comm/mpi/message.hpp weft/comm/mpi/pipeline.hpp weft/comm/mpi/transfer.hpp
// Every operation on every type between MPI processes, with and without fingerprints.
#include <weft/comm/mpi.hpp>
#include <weft/comm/mpi/api.hpp>
#include <weft/comm/mpi/comparison.hpp>
#include <weft/comm/mpi/group.hpp>
#include <weft/comm/mpi/library.hpp>
#include <weft/comm/mpi/message.hpp>
#include <weft/comm/mpi/pipeline.hpp>
#include <weft/comm/mpi/transfer.hpp>

#include <doctest/doctest.h>

#include <time.h>

#include <thread>

#include "comm/conformance.hpp"
#include "comm/random_calls.hpp"

TEST_CASE("MPI's messages: every operation, type and count") {
  const weft_test::WithoutSharedMemory by_messages;
  const auto c = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(40));
  CHECK_NOTHROW(weft_test::check_everything(c));
}

TEST_CASE("MPI's messages: long sums go in chunks, in rank order") {
  const weft_test::WithoutSharedMemory by_messages;
  const auto c = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(40));
  CHECK_NOTHROW(weft_test::check_large(c));
  CHECK_NOTHROW(weft_test::check_rank_order<float>(c, {1000003}));  // pieces of more chunks than are on their way at once
  CHECK_NOTHROW(weft_test::check_rank_order<weft::bfloat16>(c, {300001}));
  CHECK_NOTHROW(weft_test::check_random_calls<float>(c, 2028, 40));
}

TEST_CASE("MPI's messages: a chunk of another length than expected") {
  const weft_test::WithoutSharedMemory by_messages;
  if (int size = 0; MPI_Comm_size(MPI_COMM_WORLD, &size) != MPI_SUCCESS || size != 2) return;
  const auto c = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(40), false);
  std::vector<double> x(100000 - (c.rank() == 1 ? 4096 : 0), 1.0);
  std::string error;
  try {
    c.all_reduce(x);
  } catch (const weft::CommunicationError& caught) {
    error = caught.what();
  }
  if (c.rank() == 0) CHECK_MESSAGE(error.find("ranks disagree: rank 1 sent a chunk of ") != std::string::npos, error);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("MPI's ranks of one machine: every operation, type and count, through shared memory") {
  const auto c = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(40));
  CHECK_NOTHROW(weft_test::check_everything(c));
}

TEST_CASE("ranks of one machine share memory, unless an option forbids it") {
  const auto shares = [](const weft::Communicator& c) {
    return dynamic_cast<weft::comm::shared_memory::SharedMemoryGroup*>(c.group().get()) != nullptr;
  };
  const auto c = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(40));
  if (c.size() < 2) return;
  CHECK(shares(c));
  CHECK(shares(c.split(0, 0, "part")));
  const weft_test::WithoutSharedMemory by_messages;
  CHECK_FALSE(shares(weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(40))));
}

TEST_CASE("through shared memory: long messages, and ranks that disagree, without fingerprints") {
  const auto c = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(40));
  CHECK_NOTHROW(weft_test::check_large(c));
  if (c.size() > 1) CHECK_NOTHROW(weft_test::check_disagreements([&] { return c.split(0, 0, "pair"); }));
}

TEST_CASE("through shared memory: random calls") {
  const auto shared = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(40));
  CHECK_NOTHROW(weft_test::check_random_calls<float>(shared, 2026, 60));
  CHECK_NOTHROW(weft_test::check_random_calls<std::uint8_t>(shared, 2027, 60));
}

TEST_CASE("through shared memory: a rank that waits sleeps, and gives up at the deadline") {
  const auto c = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(3));
  if (c.size() < 2) return;
  std::vector<float> x(100000, 1.0f);
  const auto processor_seconds = [] {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
  };
  if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double start = processor_seconds();
  c.all_reduce(x);
  CHECK(x[5] == float(c.size()));
  if (c.rank() != 1) CHECK(processor_seconds() - start < 0.1);
  const auto part = c.split(0, 0, "part");
  if (c.rank() == 0) {
    CHECK_THROWS_WITH_AS(part.all_reduce(x), doctest::Contains("s for rank 1 of part; last operations"), weft::TimeoutError);
    CHECK(x[5] == float(c.size()));
    CHECK_THROWS_WITH_AS(part.barrier(), doctest::Contains("an earlier operation of this communicator has failed"),
                         weft::AbortedError);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("MPI with fingerprints: nothing changes while ranks agree") {
  const auto c = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(40), true);
  CHECK_NOTHROW(weft_test::check_briefly(c));
}

TEST_CASE("MPI with fingerprints: ranks that disagree are named") {
  const auto world = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(40), true);
  if (world.size() < 2) return;
  for (int pair = 0; pair < 3; ++pair) {
    const auto c = world.split(0, 0, "pair");
    std::vector<float> x(4 + (pair == 0 && c.rank() == 1), 1.0f);
    const auto call = [&] {
      if (pair == 1 && c.rank() == 1) return c.broadcast(x, 0);
      c.all_reduce(x, pair == 2 && c.rank() == 1 ? weft::Reduction::max : weft::Reduction::sum);
    };
    CHECK_THROWS_AS(call(), weft::MismatchError);
    CHECK(x == std::vector<float>(x.size(), 1.0f));
  }
}

TEST_CASE("MPI: a world made after one whose ranks disagreed, with their notices unread") {
  for (int round = 0; round < 6; ++round) {
    const auto world = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(40));
    if (world.size() < 2) return;
    CHECK_NOTHROW(world.barrier());
    const auto c = world.split(0, 0, "pair");
    std::vector<float> x(4 + (c.rank() == 1), 1.0f);
    CHECK_THROWS_AS(c.all_reduce(x), weft::MismatchError);
  }
}

TEST_CASE("MPI: a wait ends at its deadline") {
  const auto c = weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(1));
  if (c.size() < 2) return;
  std::vector<float> x(4, 1.0f);
  if (c.rank() == 0) CHECK_THROWS_AS(c.recv(x, 1), weft::TimeoutError);
  MPI_Barrier(MPI_COMM_WORLD);
  if (c.rank() == 1) c.send(x, 0);  // the message that the first rank no longer waits for still arrives
  MPI_Barrier(MPI_COMM_WORLD);
}
