// SPDX-License-Identifier: Apache-2.0
// A rank's part in a collective in shared memory, in which the other ranks post any bytes as the description of their calls, as
// counts and as data. It completes, waits, or names a disagreement in one line, and never leaves its buffers. Built with
// AddressSanitizer, so that buffers of exactly the right size reveal it.
#include <memory>
#include <span>

#include <weft/comm/reduce.hpp>
#include <weft/comm/shared_memory/collective.hpp>

#include "fuzz/support/fuzz.hpp"

using namespace weft;
using namespace weft::comm;
using shared_memory::Slots;

namespace {

constexpr int most_ranks = 3;
constexpr std::uint64_t depth = Slots::depth;

/// Another rank's description of its call in the first round.
struct Claim {
  std::uint64_t signature, count, detail, input, output;
};

/// The memory of a group; only the beginnings of slots are cleared between inputs.
struct Shared {
  std::unique_ptr<std::byte[]> memory[most_ranks + 1];
  std::byte* of(int size) {
    if (!memory[size]) memory[size].reset(new std::byte[Slots::total(size)]());
    return memory[size].get();
  }
} shared;

}  // namespace

void weft_test::target(Input input) {
  const int size = 2 + input.take() % 2, me = input.take() % size;
  Call call;
  call.operation = Operation(input.take() % (operation_count - 2));  // messages between two go another way
  constexpr DataType types[] = {DataType::uint8, DataType::float32, DataType::float64};
  call.type = types[input.take() % 3];
  call.root = input.take() % size;
  constexpr std::size_t lengths[] = {0, 1, 5, 64, 700, 17000};  // the last one needs several rounds
  std::vector<std::size_t> sends(std::size_t(size), 0), receives(std::size_t(size), 0);
  const auto length = [&] { return lengths[input.take() % std::size(lengths)]; };
  call.count = length();
  for (auto& count : sends) count = length();
  for (auto& count : receives) count = length();
  using enum Operation;
  const auto op = call.operation;
  std::size_t in = call.count, out = call.count;
  const auto sum = [](const std::vector<std::size_t>& counts) {
    std::size_t all = 0;
    for (const std::size_t count : counts) all += count;
    return all;
  };
  const auto n = std::size_t(size);
  if (op == all_gather || op == gather || op == all_to_all) out *= n;
  if (op == reduce_scatter || op == scatter || op == all_to_all) in *= n;
  if (op == all_gather_v || op == reduce_scatter_v || op == all_to_all_v) {
    call.count = 0;
    call.receive_counts = receives;
    if (op == all_to_all_v) {
      call.send_counts = sends;
      receives[std::size_t(me)] = sends[std::size_t(me)];  // checked before any communication
    }
    in = op == all_gather_v ? receives[std::size_t(me)] : sum(op == all_to_all_v ? sends : receives);
    out = op == reduce_scatter_v ? receives[std::size_t(me)] : sum(receives);
  }
  const std::size_t element = size_of(call.type);
  // In half of the runs the buffers lie in heaps that the others offer; each heap is a block of its own.
  const bool in_heaps = input.take() % 2 == 0;
  const std::unique_ptr<std::byte[]> source(new std::byte[(in + (in_heaps ? out : 0)) * element]()),
      result(new std::byte[out * element]());
  call.input = source.get();
  call.output = in_heaps ? source.get() + in * element : result.get();
  std::vector<std::unique_ptr<std::byte[]>> others;
  std::vector<std::span<std::byte>> heaps;
  for (int q = 0; in_heaps && q < size; ++q) {
    if (q == me) {
      heaps.emplace_back(source.get(), (in + out) * element);
      continue;
    }
    const std::size_t bytes = length() * element * 4;
    others.emplace_back(new std::byte[bytes]());
    heaps.emplace_back(others.back().get(), bytes);
  }
  call.combine = call.type == DataType::uint8     ? &combine<std::uint8_t>
                 : call.type == DataType::float32 ? &combine<float>
                                                  : &combine<double>;

  std::byte* memory = shared.of(size);
  Slots slots(memory, me, size);
  const std::size_t of_rank = Slots::total(size) / n;
  for (int q = 0; q < size; ++q) {
    std::memset(memory + std::size_t(q) * of_rank, 0,
                3 * sizeof(std::uint64_t));  // how far it is, whether it has left or is at work
    for (std::uint64_t k = 0; k < depth; ++k) std::memset(&slots.header(q, k), 0, sizeof(Slots::Header));
  }
  const auto mine = std::make_unique<shared_memory::Collective>(slots, call, heaps);
  constexpr std::uint64_t first = 1;
  mine->begin(first);
  bool posted = false;
  for (std::uint64_t round = first; round < first + 12 && !mine->complete() && mine->disagreement().empty(); ++round) {
    for (int q = 0; q < size; ++q) {
      if (q == me) continue;
      auto& header = slots.header(q, round);
      const bool honest = input.take() % 4 != 0;
      const Claim claim{honest ? signature(call) : input.take<std::uint64_t>(), honest ? call.count : input.take<std::uint64_t>(),
                        honest ? slots.header(me, first).detail : input.take<std::uint64_t>(),
                        honest ? 0 : input.take<std::uint64_t>(), honest ? 0 : input.take<std::uint64_t>()};
      header.signature = claim.signature;
      header.count = claim.count;
      header.detail = claim.detail;
      header.input = claim.input;
      header.output = claim.output;
      const std::string_view bytes = input.take_bytes(input.take());
      std::memcpy(slots.data(q, round), bytes.data(), bytes.size());
      if (op == all_to_all_v && round == first && input.take() % 2 == 0) {  // counts that fit this rank's, else any
        auto* counts = reinterpret_cast<std::uint64_t*>(slots.data(q, round));
        counts[me] = receives[std::size_t(q)];
        counts[size + me] = sends[std::size_t(q)];
      }
      header.posted.store(input.take() % 8 == 0 ? input.take<std::uint64_t>() : round);
      reinterpret_cast<std::atomic<std::uint64_t>*>(memory + std::size_t(q) * of_rank)
          ->store(input.take() % 8 == 0 ? input.take<std::uint64_t>() : round);
    }
    mine->advance(posted);
  }
  if (!mine->disagreement().empty()) expect_message(mine->disagreement());
  else if (!mine->complete()) expect(mine->missing() < size);
}

std::vector<std::string> weft_test::seeds() {
  std::vector<std::string> texts;
  for (unsigned op = 0; op + 2 < operation_count; ++op)
    for (const char length : {2, 5}) {
      std::string text{1, 0, char(op), 1, 0};
      text += std::string(7, length);
      texts.push_back(text + std::string(150, 1));
    }
  return texts;
}
