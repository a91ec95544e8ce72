// SPDX-License-Identifier: Apache-2.0
// covers: weft/device/offload_store.hpp
// Offloaded state with copies that run concurrently with the computation, as on a GPU. This program's copies happen as late as
// possible, so code that does not wait for one, or frees its buffer too early, computes with the old values.

#include <Kokkos_Core.hpp>

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include <weft/device/offload_store.hpp>

namespace {
int late_fetches = 0, late_puts = 0;
}

template <>
class weft::detail::RecordTraffic<Kokkos::DefaultExecutionSpace> {
  using HostDevice = Device<Kokkos::DefaultExecutionSpace>;

 public:
  static constexpr bool beside = true;
  void fetch(HostDevice&, const detail::Store& store, std::size_t record, void* to, std::size_t bytes) {
    std::memset(to, 0xff, bytes);  // not a number
    coming_.push_back([&store, record, to] { store.read(record, to); });
    ++late_fetches;
  }
  void arrive(HostDevice& device) {
    device.exec().fence("the end of earlier kernels");
    for (const auto& copy : std::exchange(coming_, {})) copy();
  }
  void put(HostDevice& device, detail::Store& store, std::size_t record, const detail::Buffer& from, std::size_t) {
    device.exec().fence("the end of earlier kernels");
    going_.push_back([&store, record, from] { store.write(record, from.get()); });
    ++late_puts;
  }
  void settle() {
    for (const auto& copy : std::exchange(going_, {})) copy();
  }

 private:
  std::vector<std::function<void()>> coming_, going_;
};

#include "support/parity.hpp"

using namespace weft_test;

namespace {

using Model = FullyShardedDataParallel<models::BasicGpt<bfloat16>>;

std::vector<double> numbers_of(int ranks, const ModelOptions& options) {
  std::vector<double> numbers;
  const int code = runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
    Mesh<dp> mesh(world);
    Model model(mesh, gpt_config(), options);
    optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 1.0});
    for (int step = 0; step < 4; ++step) {
      const Batch batch = make_batch(std::uint64_t(step), std::size_t(world.rank()), std::size_t(ranks), 2);
      const double loss = model.train_step(batch);
      const double norm = optimizer.step().gradient_norm;
      const double after = model.evaluate(batch);  // another order of units
      if (world.rank() == 0) numbers.insert(numbers.end(), {loss, norm, after});
    }
  });
  CHECK(code == 0);
  return numbers;
}

}  // namespace

TEST_CASE("activations that come and go late give the numbers of activations that stay") {
  for (const int ranks : {1, 2}) {
    const auto want = numbers_of(ranks, {});
    late_fetches = late_puts = 0;
    CHECK(numbers_of(ranks, {.activations = {.on_host = {"block *"}}}) == want);
    CHECK(late_fetches > 0);
    CHECK(late_puts > 0);
    CHECK(numbers_of(ranks, {.shard = {.offload = Offload::host()}, .activations = {.on_host = {"block *"}}}) == want);
  }
}

TEST_CASE("state that comes and goes late gives the numbers of state that stays") {
  for (const int ranks : {1, 2}) {
    const auto want = numbers_of(ranks, {});
    late_fetches = late_puts = 0;
    CHECK(numbers_of(ranks, {.shard = {.offload = Offload::host()}}) == want);
    CHECK(late_fetches > 0);
    CHECK(late_puts > 0);
    CHECK(
        numbers_of(ranks, {.shard = {.quantised_gather = false, .secondary = std::size_t(ranks), .offload = Offload::host()}}) ==
        want);
  }
}
