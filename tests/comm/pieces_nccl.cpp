// SPDX-License-Identifier: Apache-2.0
// covers: weft/tensor/sum_in_pieces.hpp weft/tensor/gather_in_pieces.hpp weft/comm/nccl/group.hpp
// Sums and gathers over tensor ranks in pieces, and messages in both directions, over a test double of NCCL: the same bits, every
// piece a call of NCCL's, and no wait of the compute stream before the result is needed.
#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <weft/comm/nccl.hpp>
#include <weft/comm/nccl/group.hpp>
#include <weft/comm/threads.hpp>
#include <weft/tensor/gather_in_pieces.hpp>
#include <weft/tensor/sum_in_pieces.hpp>

#include "support/fake_nccl/fake.hpp"
#include "support/on_device.hpp"
#include "support/on_stream.hpp"
#include "support/summed_pieces.hpp"

using namespace weft_test;

namespace {

using Exec = DefaultDevice::execution_space;
using X = Tensor<float, Exec>;

template <class F>
void on_ranks(int ranks, F f) {
  CHECK_NOTHROW(comm::run_threads(
      ranks,
      [&](const Communicator& host) {
        const Communicator nccl = comm::nccl::over(host, {.deadline = std::chrono::seconds(60)});
        f(on_device(on_stream(nccl)));
      },
      std::chrono::seconds(100)));
  CHECK(fake_nccl::take_reports().empty());
  CHECK(fake_nccl::alive() == 0);
}

float value_of(int rank, std::size_t row, std::size_t column) { return 1.0f / float(1 + rank + int(row) * 3 + int(column)); }
X rows_of(DefaultDevice& device, int rank, std::size_t rows, std::size_t columns) {
  X x(device, {rows, columns});
  for (std::size_t i = 0; i < x.size(); ++i) x.data()[i] = value_of(rank, i / columns, i % columns);
  return x;
}
X pending(DefaultDevice& device, const X& x, std::size_t pieces) {
  return X(device, x.shape(),
           std::make_shared<detail::PendingRows>(
               pieces, x.rows(), [&device, bytes = x.size() * sizeof(float)] { return device.allocate(bytes); },
               [x](std::size_t first, std::size_t count, void* out) {
                 std::memcpy(out, x.data() + first * x.columns(), count * x.columns() * sizeof(float));
               }));
}
void require(bool right, const char* what) {
  if (!right) throw Error(what);
}
bool same_bits(const X& a, const X& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("sums and gathers in pieces over NCCL have the bits of whole ones, a call for each piece") {
  for (const int ranks : {2, 4})
    on_ranks(ranks, [&](const Communicator& comm) {
      DefaultDevice device;
      constexpr std::size_t rows = 24, columns = 5, pieces = 3;
      const X x = rows_of(device, comm.rank(), rows, columns);
      for (const bool connected : {false, true}) {  // calls that connect ranks are made in threads of their own
        const auto calls = [connected, before = fake_nccl::own_calls()](std::size_t expected) {
          return !connected || std::size_t(fake_nccl::own_calls() - before) == expected;
        };
        X whole(device, x.shape()), sum(device, x.shape());
        comm.all_reduce(x, whole);
        require(calls(1), "one call for a whole sum");
        detail::all_reduce_in_pieces(comm, pending(device, x, pieces), sum);
        require(calls(1 + pieces), "a call for each piece of an all-reduce");
        require(same_bits(sum, whole), "the bits of an all-reduce");

        const std::size_t part = rows / std::size_t(comm.size());
        X mine(device, {part, columns}), scattered(device, {part, columns});
        comm.reduce_scatter(x, mine);
        detail::reduce_scatter_in_pieces(comm, pending(device, x, pieces), scattered);
        require(calls(2 + 2 * pieces), "a call for each piece of a reduce-scatter");
        require(same_bits(scattered, mine), "the bits of a reduce-scatter");

        X all(device, {rows * std::size_t(comm.size()), columns});
        comm.all_gather(x, all);
        const X gathered = detail::gather_in_pieces<X>(comm, x, pieces);
        require(gathered.arriving() != nullptr, "the gather is under way");
        require(same_bits(gathered, all), "the rows of a gather");
        require(calls(3 + 3 * pieces), "a call for each piece of a gather");
      }
    });
}

TEST_CASE("messages in both directions over NCCL are posted together, in whichever order") {
  on_ranks(2, [](const Communicator& comm) {
    constexpr std::size_t count = 1000;
    const int other = 1 - comm.rank();
    for (const bool sends_first : {true, false}) {
      std::vector<std::vector<float>> out(3, std::vector<float>(count)), in(3, std::vector<float>(count));
      std::vector<Request> requests;
      const auto send = [&](int tag) {
        for (std::size_t i = 0; i < count; ++i) out[std::size_t(tag)][i] = value_of(comm.rank(), i, std::size_t(tag));
        requests.push_back(comm.send_async(out[std::size_t(tag)], other, tag));
      };
      // Each rank posts all before it waits for any, in other orders than its peer.
      if (sends_first)
        for (const int tag : {0, 1, 2}) send(tag);
      for (const int tag : {2, 0, 1}) requests.push_back(comm.recv_async(in[std::size_t(tag)], other, tag));
      if (!sends_first)
        for (const int tag : {1, 2, 0}) send(tag);
      for (auto request = requests.rbegin(); request != requests.rend(); ++request) request->wait();
      for (std::size_t tag = 0; tag < 3; ++tag)
        for (std::size_t i = 0; i < count; ++i) require(in[tag][i] == value_of(other, i, tag), "a message");
    }
  });
}

TEST_CASE("training steps over NCCL whose sums and gathers go in pieces have the bits of whole ones") {
  const auto steps = [](std::size_t piece_bytes, auto composition, const auto& config) {
    PieceBits bits;
    const int code = run<comm::Threads>(RunOptions{.ranks = 2}, [&](World& world) {
      World nccl(on_device(comm::nccl::over(world.communicator(), {.deadline = std::chrono::seconds(60)})), world.device());
      const PieceBits here = piece_bits<typename decltype(composition)::type>(nccl, {.tp = 2}, config, {}, piece_bytes, 100);
      if (world.rank() == 0) bits = here;
    });
    CHECK(code == 0);
    return bits;
  };
  const auto compare = [&](auto composition) {
    auto config = llama_config();
    config.sequence = 128;
    config.layers = 1;
    const PieceBits whole = steps(0, composition, config), pieces = steps(1024, composition, config);
    CHECK(whole.numbers.size() > 100);
    CHECK(whole.numbers == pieces.numbers);
    CHECK(pieces.messages > whole.messages);
  };
  compare(std::type_identity<Tensors<models::BasicLlama<double>>>());
  compare(std::type_identity<Sequences<models::BasicLlama<double>>>());
  CHECK(fake_nccl::take_reports().empty());
  CHECK(fake_nccl::alive() == 0);
}
