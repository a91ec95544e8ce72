// SPDX-License-Identifier: Apache-2.0
// Loaders under ThreadSanitizer: one thread per rank that loads ahead, from a shared dataset; ranges that end early, start again
// or are moved, and datasets that throw.
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <weft/data/loader.hpp>

using namespace weft;

namespace {

inline constexpr data::Field<"number", std::int32_t> number;

struct Numbers {
  using Fields = FieldBatch<number>;
  std::size_t bad = std::size_t(-1);
  std::size_t size() const { return 64; }
  void shapes(Fields::Shapes& shapes) const { shapes[number] = {100}; }
  void load(std::size_t i, Fields::Sample& sample) const {
    if (i == bad) throw std::runtime_error("bad");
    for (std::int32_t& value : sample[number]) value = std::int32_t(i);
  }
};

/// The sum of all samples; with a bad one, how often it was met.
long train(std::size_t rank, std::size_t ranks, std::size_t ahead, std::size_t bad,
           const std::shared_ptr<const Numbers>& shared) {
  long sum = 0, met = 0;
  const data::LoaderOptions options{.global_batch = 8, .epochs = 20, .ahead = ahead, .threads = 1 + ahead};
  data::Loader loader(data::Share{rank, ranks}, bad < 64 ? std::make_shared<const Numbers>(Numbers{bad}) : shared, options);
  for (int again = 0; again < 3; ++again) try {
      for (auto&& batch : loader) {
        for (const std::int32_t value : batch[number].values()) sum += value;
        batch[number].writable()[0] = 7;
        if (again == 1 && batch.step == 30) break;
      }
    } catch (const Error&) {
      if (++met == 3) return met;
    }
  auto moved = std::move(loader);
  auto at = moved.begin();
  return sum + (*at)[number].values()[0];
}

}  // namespace

int main() {
  const auto shared = std::make_shared<const Numbers>();
  for (const std::size_t ahead : {0, 1, 2, 5})
    for (const std::size_t bad : {std::size_t(-1), std::size_t(17)}) {
      const bool alone = bad == 17;  // else one rank of four meets the sample, and only that one
      std::vector<long> sums(4);
      std::vector<std::thread> ranks;
      for (std::size_t rank = 0; rank < 4; ++rank)
        ranks.emplace_back([&, rank] { sums[rank] = train(alone ? 0 : rank, alone ? 1 : 4, ahead, bad, shared); });
      for (auto& rank : ranks) rank.join();
      for (const long sum : sums)
        if (alone ? sum != 3 : sum == 0) return std::printf("ahead %zu: %ld\n", ahead, sum), 1;
    }
  return 0;
}
