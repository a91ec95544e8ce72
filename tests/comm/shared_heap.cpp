// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/shared_memory/call_ranges.hpp weft/comm/shared_memory/heap.hpp weft/comm/shared_memory/heap_buffers.hpp
// covers: weft/comm/shared_memory/peer_heaps.hpp weft/device/block_source.hpp
// Collectives that read the other processes' tensors where they lie: every operation with buffers in the heaps, in some of them
// and beside them; a rank that gives up while another reads; and the heap's blocks.
#include <weft/comm/shared_memory/call_ranges.hpp>
#include <weft/comm/shared_memory/group.hpp>
#include <weft/comm/shared_memory/heap.hpp>
#include <weft/comm/shared_memory/heap_buffers.hpp>
#include <weft/comm/shared_memory/peer_heaps.hpp>
#include <weft/comm/tcp.hpp>
#ifdef WEFT_HEAPS_OVER_MPI
#include <weft/comm/mpi.hpp>
#endif
#include <weft/device/block_source.hpp>
#include <weft/mesh/world.hpp>
#include <weft/tensor/tensor.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <random>

#include "comm/random_calls.hpp"

namespace {

using weft::comm::Call;
using weft::comm::Operation;
using weft::comm::shared_memory::Collective;
using weft::comm::shared_memory::Heap;
using weft::comm::shared_memory::Slots;

/// Gives blocks of the heap: all of them, or one in two, in another order on each rank.
template <class T, bool always>
struct HeapAllocator {
  using value_type = T;
  template <class U>
  struct rebind {
    using other = HeapAllocator<U, always>;
  };
  HeapAllocator() = default;
  template <class U>
  HeapAllocator(const HeapAllocator<U, always>&) {}
  T* allocate(std::size_t n) {
    static std::mt19937 engine{unsigned(::getpid())};
    if (always || engine() % 2 == 0) return static_cast<T*>(Heap::blocks.take(n * sizeof(T)));
    return static_cast<T*>(std::malloc(n * sizeof(T)));
  }
  void deallocate(T* block, std::size_t) {
    if (!Heap::mine()->give_back(block)) std::free(block);
  }
  friend bool operator==(const HeapAllocator&, const HeapAllocator&) { return true; }
};
template <class T>
using AllInHeap = std::vector<T, HeapAllocator<T, true>>;

#ifdef WEFT_HEAPS_OVER_MPI
template <class F>
void with_world(F&& f) {
  f(weft::comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(40)));
}
#else
template <class F>
void with_world(F&& f) {
  const auto launch = weft::runtime::launch_from_environment();
  const auto process = std::make_shared<weft::comm::tcp::Process>(weft::comm::tcp::rendezvous(launch, std::chrono::seconds(60)),
                                                                  std::chrono::seconds(40), false);
  process->listen();
  f(weft::comm::tcp::over(process));
  process->tell(0, false, std::chrono::seconds(20));
}
#endif

}  // namespace

TEST_CASE("random calls with buffers in the heaps") {
  with_world([](const weft::Communicator& c) {
    REQUIRE(c.group()->shared_blocks() == &Heap::blocks);
    CHECK_NOTHROW((weft_test::check_random_calls<float, HeapAllocator<float, true>>(c, 2030, 60)));
    CHECK_NOTHROW((weft_test::check_random_calls<weft::bfloat16, HeapAllocator<weft::bfloat16, true>>(c, 2031, 30)));
  });
}

TEST_CASE("random calls with some buffers in the heaps") {
  with_world([](const weft::Communicator& c) {
    CHECK_NOTHROW((weft_test::check_random_calls<float, HeapAllocator<float, false>>(c, 2032, 60)));
    CHECK_NOTHROW((weft_test::check_random_calls<double, HeapAllocator<double, false>>(c, 2033, 30)));
  });
}

TEST_CASE("messages between two ranks stay in the sender's heap") {
  with_world([](const weft::Communicator& c) {
    const int right = (c.rank() + 1) % c.size(), left = (c.rank() + c.size() - 1) % c.size();
    for (const std::size_t count : {10u, 8192u, 16384u, 300001u})  // from 64 KiB on
      for (const int in : {0, 1, 2, 3}) {                          // the sender's, the receiver's buffer
        AllInHeap<float> heap_from(count), heap_to(count + 2, 99.0f);
        std::vector<float> own_from(count), own_to(count + 2, 99.0f);
        const std::span<float> from = in & 1 ? std::span<float>(heap_from) : std::span<float>(own_from);
        const std::span<float> to = in & 2 ? std::span<float>(heap_to) : std::span<float>(own_to);
        for (std::size_t i = 0; i < count; ++i) from[i] = weft_test::value<float>(c.rank(), i);
        for (int turn = 0; turn < 3; ++turn) {
          auto receive = c.recv_async(to.subspan(1, count), left, 5);
          auto send = c.send_async(std::span<const float>(from), right, 5);
          if (turn == 1) send.wait();
          receive.wait();
          send.wait();
          bool good = to[0] == 99.0f && to[count + 1] == 99.0f;
          for (std::size_t i = 0; i < count; ++i) good = good && to[i + 1] == weft_test::value<float>(left, i);
          CHECK(good);
          std::fill(to.begin() + 1, to.end() - 1, 98.0f);
        }
      }
  });
}

TEST_CASE("a message whose sender has given up is not delivered") {
  with_world([](const weft::Communicator& world) {
    const auto c = world.split(0, 0, "pair");
    AllInHeap<float> x(200000, 1.0f);
    if (c.rank() == 0) {
      try {
        const auto request = c.send_async(std::span<const float>(x), 1, 7);
        throw std::runtime_error("mine");
      } catch (const std::runtime_error&) {  // the request was abandoned
      }
      std::fill(x.begin(), x.end(), 7.0f);
      world.barrier();
    } else {
      world.barrier();
      if (c.rank() == 1) {
        std::string error;
        try {
          c.recv(std::span(x), 0, 7);
        } catch (const weft::CommunicationError& caught) {
          error = caught.what();
        }
        CHECK_MESSAGE(error.find("given up a message of this communicator") != std::string::npos, error);
      }
    }
    world.barrier();
  });
}

TEST_CASE("of two messages under way the one that is not given up is delivered") {
  with_world([](const weft::Communicator& world) {
    const auto c = world.split(0, 0, "pair");
    AllInHeap<float> x(200000, 1.0f), y(200000, 2.0f);
    if (c.rank() == 0) {
      weft::Request good;
      try {
        const auto bad = c.send_async(std::span<const float>(x), 1, 1);
        good = c.send_async(std::span<const float>(y), 1, 2);
        throw std::runtime_error("mine");
      } catch (const std::runtime_error&) {}
      std::fill(x.begin(), x.end(), 7.0f);
      good.wait();
      world.barrier();  // the message is given up
    } else if (c.rank() == 1) {
      c.recv(std::span(y), 0, 2);
      CHECK(y[199999] == 2.0f);
      world.barrier();
      auto bad = c.recv_async(std::span(x), 0, 1);
      CHECK_THROWS_AS(bad.wait(), weft::CommunicationError);
      CHECK_THROWS_AS(bad.wait(), weft::CommunicationError);  // at once, and the request's end waits for nobody
    } else {
      world.barrier();
    }
    world.barrier();
  });
}

TEST_CASE("a rank that leaves sees one that is at work, and no rank begins later") {
  std::vector<std::byte> memory(Slots::total(2) + 128);
  std::byte* const aligned = memory.data() + (128 - reinterpret_cast<std::uintptr_t>(memory.data()) % 128);
  Slots stays(aligned, 0, 2), leaves(aligned, 1, 2);
  CHECK(stays.enter() == -1);
  leaves.leave();
  CHECK(leaves.uses_heaps(0));
  stays.depart();
  CHECK_FALSE(leaves.uses_heaps(0));
  CHECK(stays.enter() == 1);
  CHECK_FALSE(leaves.uses_heaps(0));
}

TEST_CASE("a forked child's blocks are its own, and it gives none back") {
  Heap& heap = *Heap::mine();
  auto* const block = static_cast<volatile unsigned char*>(heap.take(1 << 20));
  block[12345] = 7;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool other = heap.take(64) == nullptr, back = heap.give_back(const_cast<unsigned char*>(block));
    ::_exit(other && back ? 0 : 1);
  }
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(block[12345] == 7);
  CHECK(heap.give_back(const_cast<unsigned char*>(block)));
  CHECK_FALSE(heap.give_back(const_cast<unsigned char*>(block)));
}

TEST_CASE("a message outlives its communicator") {
  with_world([](const weft::Communicator& world) {
    AllInHeap<float> x(200000, float(world.rank()));
    weft::Request request;
    {
      const auto c = world.split(0, 0, "brief");
      if (c.rank() == 0) request = c.send_async(std::span<const float>(x), 1, 3);
      if (c.rank() == 1) request = c.recv_async(std::span(x), 0, 3);
    }
    if (world.rank() < 2) {
      request.wait();
      CHECK(x[199999] == 0.0f);
    }
    world.barrier();
  });
}

TEST_CASE("sub-groups read the same heaps") {
  with_world([](const weft::Communicator& c) {
    for (int turn = 0; turn < 3; ++turn) {
      const auto part = c.split(c.rank() % 2, 0, "part");
      if (part.size() > 1) CHECK_NOTHROW((weft_test::check_random_calls<float, HeapAllocator<float, true>>(part, 2034, 5)));
    }
  });
}

TEST_CASE("tensors of a World lie in the heap") {
  with_world([](const weft::Communicator& c) {
    weft::DefaultDevice device;
    weft::World world(c, device);
    const auto buffer = device.allocate(1 << 20);
    const auto *const heap = Heap::mine()->data(), *const block = static_cast<const std::byte*>(buffer.get());
    CHECK(block >= heap);
    CHECK(block < heap + Heap::mine()->address().bytes);
  });
}

TEST_CASE("a disagreement is found before any buffer is read") {
  with_world([](const weft::Communicator& world) {
    const auto c = world.split(0, 0, "pair");
    AllInHeap<float> x(200000 + std::size_t(c.rank() == 1), 1.0f);
    CHECK_THROWS_AS(c.all_reduce(std::span(x)), weft::MismatchError);
    CHECK(x == AllInHeap<float>(x.size(), 1.0f));
    world.barrier();
  });
}

TEST_CASE("a rank gives up an operation that others read") {
  with_world([](const weft::Communicator& world) {
    const auto c = world.split(0, 0, "pair");
    AllInHeap<float> x(200000, 1.0f);
    std::string error;
    if (c.rank() == 1) {
      try {
        const auto request = c.all_reduce_async(std::span<const float>(x), std::span(x));
        throw std::runtime_error("mine");
      } catch (const std::runtime_error&) {  // the request was abandoned; the buffer may now be used for anything
      }
      std::fill(x.begin(), x.end(), 7.0f);
      world.barrier();
    } else {
      world.barrier();  // rank 1 has left
      try {
        c.all_reduce(std::span(x));
      } catch (const weft::AbortedError& caught) {
        error = caught.what();
      }
      CHECK_MESSAGE(error.find("has given up an operation of this communicator") != std::string::npos, error);
    }
    world.barrier();
  });
}

namespace {

/// The ranks of one group, one after the other in one process: each advances until none moves.
template <class T>
void step_to_the_end(std::vector<std::unique_ptr<Collective>>& ranks) {
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& rank : ranks) rank->advance(moved);
  }
  for (auto& rank : ranks) {
    CHECK(rank->disagreement().empty());
    CHECK(rank->complete());
  }
}

}  // namespace

TEST_CASE("bytes in the heaps pass no slot") {
  for (const int size : {2, 3, 5}) {
    constexpr std::size_t count = 30000;
    const auto n = std::size_t(size);
    std::vector<std::byte> memory(Slots::total(size) + 128);
    std::byte* const aligned = memory.data() + (128 - reinterpret_cast<std::uintptr_t>(memory.data()) % 128);
    std::vector<std::vector<float>> heaps(n, std::vector<float>(2 * count * n));
    std::vector<std::span<std::byte>> places;
    for (auto& heap : heaps) places.push_back(std::as_writable_bytes(std::span(heap)));
    std::vector<Slots> slots;
    for (int q = 0; q < size; ++q) slots.emplace_back(aligned, q, size);
    std::uint64_t first = 1;
    for (const Operation operation :
         {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter, Operation::broadcast, Operation::reduce,
          Operation::gather, Operation::scatter, Operation::all_to_all}) {
      for (int q = 0; q < size; ++q) {
        for (std::uint64_t round = 0; round < Slots::depth; ++round)
          std::memset(slots[std::size_t(q)].data(q, round), 0x5a, slots[0].bytes());
        for (std::size_t i = 0; i < heaps[std::size_t(q)].size(); ++i) heaps[std::size_t(q)][i] = weft_test::value<float>(q, i);
      }
      const std::vector<std::vector<float>> before = heaps;
      std::vector<std::unique_ptr<Collective>> ranks;
      for (int q = 0; q < size; ++q) {
        float* const heap = heaps[std::size_t(q)].data();
        Call call{
            .operation = operation, .type = weft::DataType::float32, .count = count, .input = heap, .output = heap + count * n};
        call.root = 1;
        call.combine = &weft::comm::combine<float>;
        if (operation == Operation::broadcast) call.output = heap;
        ranks.push_back(std::make_unique<Collective>(slots[std::size_t(q)], call, places));
        ranks.back()->begin(first);
      }
      step_to_the_end<float>(ranks);
      first = ranks[0]->end();
      // One number of each rank's output is enough: random_calls.hpp checks all of them.
      const auto sum = [&](std::size_t at) {
        float all = 0;
        for (const auto& heap : before) all += heap[at];
        return all;
      };
      const std::size_t at = 17;
      for (std::size_t me = 0; me < n; ++me) {
        const float found = heaps[me][(operation == Operation::broadcast ? 0 : count * n) + at];
        switch (operation) {
          case Operation::all_reduce: CHECK(found == sum(at)); break;
          case Operation::reduce_scatter: CHECK(found == sum(me * count + at)); break;
          case Operation::broadcast: CHECK(found == before[1][at]); break;
          case Operation::reduce:
            if (me == 1) CHECK(found == sum(at));
            break;
          case Operation::scatter: CHECK(found == before[1][me * count + at]); break;
          case Operation::all_to_all: CHECK(found == before[0][me * count + at]); break;
          default:
            if (operation == Operation::all_gather || me == 1) CHECK(found == before[0][at]);
        }
      }
      for (int q = 0; q < size; ++q)
        for (std::uint64_t round = 0; round < Slots::depth; ++round)
          for (std::size_t i = 0; i < slots[0].bytes(); i += 97)
            REQUIRE(slots[std::size_t(q)].data(q, round)[i] == std::byte(0x5a));
    }
  }
}

TEST_CASE("the heap's blocks do not overlap, and long ones return their pages") {
  Heap& heap = *Heap::mine();
  std::mt19937 engine(5);
  struct Block {
    std::size_t bytes;
    unsigned char content;
  };
  std::map<unsigned char*, Block> blocks;
  const auto check_and_free = [&](auto block) {
    for (std::size_t i = 0; i < block->second.bytes; i += 61) REQUIRE(block->first[i] == block->second.content);
    REQUIRE(heap.give_back(block->first));
    return blocks.erase(block);
  };
  for (int turn = 0; turn < 3000; ++turn) {
    if (engine() % 2 == 0 || blocks.empty()) {
      const std::size_t bytes = 1 + engine() % (engine() % 8 == 0 ? 3000000 : 5000);
      auto* const block = static_cast<unsigned char*>(heap.take(bytes));
      REQUIRE(block != nullptr);
      REQUIRE(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
      const auto content = static_cast<unsigned char>(engine());
      std::memset(block, content, bytes);
      blocks[block] = {bytes, content};
    } else {
      check_and_free(std::next(blocks.begin(), std::ptrdiff_t(engine() % blocks.size())));
    }
  }
  while (!blocks.empty()) check_and_free(blocks.begin());
  int other = 0;
  CHECK_FALSE(heap.give_back(&other));
  CHECK(heap.take(heap.address().bytes + 1) == nullptr);

  auto* const block = static_cast<volatile unsigned char*>(heap.take(8 << 20));
  for (std::size_t i = 0; i < 8 << 20; i += 4096) block[i] = 1;
  REQUIRE(heap.give_back(const_cast<unsigned char*>(block)));
  CHECK(block[4 << 20] == 0);  // a new page
}
