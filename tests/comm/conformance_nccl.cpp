// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/nccl.hpp weft/comm/nccl/api.hpp weft/comm/nccl/group.hpp weft/comm/nccl/launch.hpp
// covers: weft/comm/nccl/running.hpp
// The conformance suite of all backends, in device memory, over a test double of NCCL (tests/support/fake_nccl). It tests weft's
// use of NCCL's calls, not NCCL.
#include <doctest/doctest.h>

#include <thread>

#include <weft/comm/nccl.hpp>
#include <weft/comm/nccl/api.hpp>
#include <weft/comm/nccl/group.hpp>
#include <weft/comm/nccl/launch.hpp>
#include <weft/comm/nccl/running.hpp>
#include <weft/comm/tcp.hpp>
#include <weft/comm/threads.hpp>

#include "comm/conformance.hpp"
#include "support/fake_nccl/fake.hpp"
#include "support/on_device.hpp"
#include "support/on_stream.hpp"

using namespace weft;

namespace {

void everything(const Communicator& c) {
  weft_test::check_all_types(c);
  weft_test::check_in_flight(c);
  weft_test::check_tags(c);
  weft_test::check_split(c);
}

template <class F>
void with_ranks(int ranks, const comm::nccl::Options& options, F&& f) {
  comm::run_threads(
      ranks, [&](const Communicator& host) { f(comm::nccl::over(host, options)); }, std::chrono::seconds(100));
}

}  // namespace

TEST_CASE("NCCL: every operation, type and count") {
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    CHECK_NOTHROW(with_ranks(ranks, {.deadline = std::chrono::seconds(60)},
                             [](const Communicator& c) { everything(weft_test::on_device(c)); }));
    CHECK(fake_nccl::alive() == 0);
    CHECK(fake_nccl::aborted() == 0);
    CHECK(fake_nccl::late_calls() == 0);
    CHECK(fake_nccl::streams() == 0);
  }
}

TEST_CASE("NCCL, ordered by a compute stream: nothing makes the stream wait but wait(), and then it comes after the result") {
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    CHECK_NOTHROW(with_ranks(ranks, {.deadline = std::chrono::seconds(60)}, [](const Communicator& c) {
      const Communicator streamed = weft_test::on_device(weft_test::on_stream(c));
      weft_test::check_briefly(streamed);
      weft_test::check_in_flight(streamed);
      weft_test::check_tags(streamed);
      weft_test::check_split(streamed);
    }));
    CHECK(fake_nccl::take_reports().empty());
    CHECK(fake_nccl::alive() == 0);
  }
}

TEST_CASE("NCCL with fingerprints: nothing changes while ranks agree") {
  CHECK_NOTHROW(with_ranks(3, {.deadline = std::chrono::seconds(60), .fingerprints = true},
                           [](const Communicator& c) { weft_test::check_briefly(weft_test::on_device(c)); }));
}

TEST_CASE("NCCL: host memory goes over the host's ranks, with their guarantees") {
  CHECK_NOTHROW(with_ranks(2, {.deadline = std::chrono::seconds(60)}, [](const Communicator& c) {
    weft_test::check_briefly(c);
    weft_test::check_rank_order<float>(c);
  }));
}

TEST_CASE("NCCL: ranks connected by TCP") {
  const int port = comm::store::Server("127.0.0.1", 0, {0, 2, "job"}, "").port();  // free again
  std::vector<std::string> texts(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const runtime::Launch launch{
            .rank = rank, .world = 2, .local_world = 2, .host = "127.0.0.1", .port = port, .job = "job", .secret = ""};
        const auto process = std::make_shared<comm::tcp::Process>(comm::tcp::rendezvous(launch, std::chrono::seconds(20)),
                                                                  std::chrono::seconds(60), false);
        process->listen();
        const Communicator c = comm::nccl::over(comm::tcp::over(process), {.deadline = std::chrono::seconds(60)});
        for (const bool blocking : {true, false}) weft_test::check_operations<bfloat16>(weft_test::on_device(c), 300, blocking);
        weft_test::check_in_flight(weft_test::on_device(c));
        weft_test::check_tags(weft_test::on_device(c));
        weft_test::check_split(weft_test::on_device(c));
      } catch (const std::exception& error) {
        texts[std::size_t(rank)] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(texts == std::vector<std::string>{"", ""});
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("NCCL: the table of its operations") {
  using enum comm::Operation;
  using B = comm::NcclOver<comm::Threads>;
  static_assert(B::supports(all_reduce, DataType::bfloat16, comm::MemoryKind::device) &&
                B::supports(all_reduce, DataType::float16, comm::MemoryKind::device));
  static_assert(!B::supports(all_reduce, DataType::int16, comm::MemoryKind::device) &&
                !B::supports(reduce_scatter_v, DataType::uint16, comm::MemoryKind::device));
  static_assert(B::supports(all_gather, DataType::int16, comm::MemoryKind::device) &&
                B::supports(all_reduce, DataType::int16, comm::MemoryKind::host));
  with_ranks(2, {}, [](const Communicator& c) {
    for (const DataType type :
         {DataType::int8, DataType::int16, DataType::uint16, DataType::float16, DataType::bfloat16, DataType::float64})
      for (const auto operation : {all_reduce, all_gather, send, barrier})
        for (const auto memory : {comm::MemoryKind::host, comm::MemoryKind::device})
          if (c.supports(operation, type, memory) != B::supports(operation, type, memory))
            throw Error("the tables of backend and group differ");
    std::vector<std::int16_t> x(3);
    CHECK_THROWS_WITH_AS(weft_test::on_device(c).all_reduce(x),
                         doctest::Contains("the backend nccl does not do all_reduce(sum) of 3 int16"), UsageError);
  });
}
