// SPDX-License-Identifier: Apache-2.0
// Rows of tokens are sent to the ranks of their experts, sorted by expert and padded, and return to their places.
#include <weft/nn/expert_exchange.hpp>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include <weft/runtime/run.hpp>
#include <weft/tensor/transfer.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using Root = Context<Compute<Exec, float>>;
using Exchange = detail::Exchange<Exec>;
using detail::ExpertMeshAxis;
constexpr std::size_t experts = 4, width = 2, grain = 4;

// Rows of rank `rank` for each expert; one expert has none of rank 0.
std::vector<std::uint64_t> counts_of(int rank) {
  return rank == 0 ? std::vector<std::uint64_t>{2, 0, 3, 1} : std::vector<std::uint64_t>{1, 5, 0, 2};
}
// 100 rank + 10 expert + index, and its negative.
std::vector<float> rows_of(int rank) {
  std::vector<float> rows;
  const auto counts = counts_of(rank);
  for (std::size_t expert = 0; expert < experts; ++expert)
    for (std::size_t i = 0; i < counts[expert]; ++i) {
      const float value = float(100 * rank) + float(10 * expert) + float(i) + 1;
      rows.insert(rows.end(), {value, -value});
    }
  return rows;
}
// The rows of both ranks for the experts `first` to `last`: sorted by expert, then rank, padded with zeros.
std::vector<float> arriving(std::size_t first, std::size_t last) {
  std::vector<float> all;
  for (std::size_t expert = first; expert < last; ++expert) {
    for (int rank = 0; rank < 2; ++rank) {
      const auto counts = counts_of(rank);
      const auto rows = rows_of(rank);
      const auto before = std::accumulate(counts.begin(), counts.begin() + std::ptrdiff_t(expert), std::uint64_t(0)) * width;
      all.insert(all.end(), rows.begin() + std::ptrdiff_t(before),
                 rows.begin() + std::ptrdiff_t(before + counts[expert] * width));
    }
    while (all.size() % (grain * width) != 0) all.push_back(0);
  }
  return all;
}

void check(bool over_ep) {
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          auto& device = world.device();
          const auto root = Root(device, {}).with<ExpertMeshAxis>(edp{}, Communicator());
          const auto context = root.with<ExpertMeshAxis>(ep{}, over_ep ? world.communicator() : Communicator())
                                   .with<ExpertMeshAxis>(etp{}, over_ep ? Communicator() : world.communicator());
          const std::vector<float> mine = rows_of(world.rank());
          Exchange::Sent<float> x(device, {mine.size() / width, width});
          copy_from_host(x, std::span<const float>(mine));
          const Exchange exchange(context, device, counts_of(world.rank()), grain);
          const auto here = exchange.to_experts(context, x);
          // Every rank of etp has a term of the sum: half of it.
          Exchange::Terms<float> y(device, here.shape());
          std::vector<float> terms = copy_to_host(here);
          const std::vector<float> arrived = terms;
          for (float& term : terms) term *= over_ep ? 3.f : 1.5f;
          copy_from_host(y, std::span<const float>(terms));
          const std::vector<float> back = copy_to_host(exchange.from_experts(context, y));
          const std::size_t first = over_ep ? std::size_t(world.rank()) * 2 : 0, last = over_ep ? first + 2 : experts;
          std::lock_guard lock(mutex);
          CHECK(arrived == arriving(first, last));
          REQUIRE(exchange.counts().size() == last - first);
          for (std::size_t i = 0; i < exchange.counts().size(); ++i) {
            const std::uint64_t rows = counts_of(0)[first + i] + counts_of(1)[first + i];
            CHECK(exchange.counts()[i] == (rows + grain - 1) / grain * grain);
          }
          REQUIRE(back.size() == mine.size());
          for (std::size_t i = 0; i < back.size(); ++i) CHECK(back[i] == 3 * mine[i]);
        }) == 0);
}

}  // namespace

TEST_CASE("over ep: each rank gets the rows of its experts") { check(true); }
TEST_CASE("over etp: both ranks get all rows, and terms of the results are added") { check(false); }
