// SPDX-License-Identifier: Apache-2.0
// Memory goes back to a GPU while its rank communicates: cudaFree waits for the whole GPU, and so for other ranks, which may wait
// for this one. Over the test double (tests/support/fake_nccl), whose cudaFree waits, too.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <weft/comm/nccl.hpp>
#include <weft/comm/threads.hpp>
#include <weft/device/arena.hpp>
#include <weft/device/cuda/memory.hpp>
#include <weft/device/cuda/pinned_memory.hpp>
#include <weft/device/cuda/shared_work.hpp>

#include "support/fake_nccl/fake.hpp"
#include "support/on_device.hpp"

using namespace weft;
using weft_test::on_device;

namespace {

/// Stands for Kokkos::CudaSpace, which exists only with a Kokkos for CUDA.
struct GpuSpace {
  static constexpr const char* name() { return "Cuda"; }
};

using Seconds = std::chrono::duration<double>;
constexpr std::size_t room = std::size_t(1) << 20;

struct Machine {
  explicit Machine(const fake_nccl::Machine& machine) { fake_nccl::machine() = machine; }
  ~Machine() { fake_nccl::machine() = {}; }
};

}  // namespace

template <>
struct weft::detail::System<GpuSpace> : weft::gpu::Memory {};

namespace {

using Arena = weft::detail::Arena<GpuSpace>;

/// One thread per rank, each with a GPU that has little memory. Rank 0 has started a collective and posted a message when it
/// calls `frees`. Rank 1 starts the collective after it has received the message, for which rank 0 must answer. At that time the
/// collective is on the GPU or, if it is the first of its kind, in NCCL, which connects the ranks.
void while_the_other_rank_waits(const std::function<void()>& frees, bool connected) {
  CAPTURE(connected);
  std::atomic<bool> begun = false;
  comm::run_threads(2, [&](const Communicator& host) {
    const Communicator c = on_device(comm::nccl::over(host, {.deadline = Seconds(20)}));
    std::vector<float> message(3, float(host.rank())), sum(5, 1.0f);
    if (connected) {
      c.all_reduce(sum);
      host.barrier();
      std::fill(sum.begin(), sum.end(), 1.0f);
    }
    if (host.rank() == 0) {
      Request sent = c.send_async(message, 1, 7);
      Request summed = c.all_reduce_async(sum);
      for (int turn = 0; turn < 50; ++turn) {  // NCCL has it for certain
        CHECK(!summed.test());
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      begun = true;
      frees();
      sent.wait();
      summed.wait();
    } else {
      while (!begun) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      c.recv(message, 0, 7);
      CHECK(message[2] == 0.0f);
      c.all_reduce(sum);
    }
    CHECK(sum[4] == 2.0f);
  });
  CHECK(fake_nccl::take_reports().empty());
  CHECK(fake_nccl::alive() == 0);
}

}  // namespace

TEST_CASE("an arena on a full GPU returns its idle blocks while a collective's other ranks wait for this one") {
  const Machine small({.memory = room, .patience = 1});
  for (const bool connected : {false, true}) {
    Arena arena;
    { const auto idle = arena.allocate(room * 3 / 4); }
    CHECK(arena.use().reserved > room / 2);
    while_the_other_rank_waits(
        [&] {
          const auto block = arena.allocate(room / 2);
          CHECK(arena.use().reserved < room * 3 / 4);
        },
        connected);
  }
}

TEST_CASE("page-locked memory is returned while a collective's other ranks wait for this one") {
  const Machine machine({.patience = 1});
  for (const bool connected : {false, true}) while_the_other_rank_waits([] { gpu::PinnedMemory memory(64); }, connected);
}

TEST_CASE("blocks that cannot be returned because a rank does not come: an error with that reason, in time") {
  const Machine small({.memory = room, .patience = 1});
  std::string text;
  comm::run_threads(2, [&](const Communicator& host) {
    const Communicator c = on_device(comm::nccl::over(host, {.deadline = Seconds(0.3)}));
    if (host.rank() == 0) {
      Arena arena;
      { const auto idle = arena.allocate(room * 3 / 4); }
      std::vector<float> sum(5, 1.0f);
      Request never = c.all_reduce_async(sum);
      try {
        const auto block = arena.allocate(room / 2);
      } catch (const TimeoutError& error) {
        text = error.what();
      }
      CHECK_THROWS_AS(never.wait(), AbortedError);
      CHECK(arena.use().reserved >= room * 3 / 4);  // it still has its blocks
      const auto block = arena.allocate(room / 2);  // nothing waits on the GPU any more
      CHECK(arena.use().current >= room / 2);
    }
    host.barrier();
  });
  CHECK(text.find("all_reduce(sum) of 5 float32") != std::string::npos);
  CHECK(text.find("waited longer than the deadline of 0.3") != std::string::npos);
  CHECK(text.find("while this rank gives memory back, for which its GPU must be idle") != std::string::npos);
  CHECK(fake_nccl::take_reports().empty());
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("a full GPU without idle blocks is an error at once, whatever communicates") {
  const Machine small({.memory = room});
  comm::run_threads(2, [&](const Communicator& host) {
    const Communicator c = on_device(comm::nccl::over(host, {.deadline = Seconds(20)}));
    std::vector<float> sum(5, 1.0f);
    if (host.rank() == 0) {
      Arena arena;
      const auto used = arena.allocate(room / 2);
      Request flying = c.all_reduce_async(sum);
      CHECK_THROWS_WITH_AS((void)arena.allocate(room), doctest::Contains("out of memory: Cuda memory has no room"), MemoryError);
      host.barrier();
      flying.wait();
    } else {
      host.barrier();
      c.all_reduce(sum);
    }
    CHECK(sum[0] == 2.0f);
  });
  CHECK(fake_nccl::take_reports().empty());
}

TEST_CASE("a rank that leaves with an exception frees memory without waiting for the others") {
  const auto start = std::chrono::steady_clock::now();
  comm::run_threads(2, [&](const Communicator& host) {
    const Communicator c = comm::nccl::over(host, {.deadline = Seconds(20)});
    if (host.rank() == 0) {
      std::vector<float> sum(5, 1.0f);
      try {
        Request never = on_device(c).all_reduce_async(sum);
        gpu::PinnedMemory memory(64);
        throw Error("this rank's own");
      } catch (const Error& error) {
        CHECK(std::string(error.what()) == "weft: this rank's own");
      }
      CHECK_THROWS_WITH_AS(c.check(), doctest::Contains("the rank left it with an exception"), CommunicationError);
    }
    host.barrier();
  });
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  CHECK(fake_nccl::take_reports().empty());
}
