// SPDX-License-Identifier: Apache-2.0
// covers: weft/device/offload_store.hpp
// Offloaded state with copies that run concurrently with the computation, as on a GPU. This program's copies happen as late as
// possible, so code that does not wait for one, or frees its buffer too early, computes with the old values.

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/device/offload_store.hpp>

namespace {
int late_fetches = 0, late_puts = 0;
int failing_copy = 0;     // 0: none
std::size_t records = 0;  // that were written

void count(int& copies) {
  ++copies;
  if (late_fetches + late_puts == failing_copy) throw weft::MemoryError("no room");
}
}  // namespace

template <>
class weft::detail::RecordTraffic<Kokkos::DefaultExecutionSpace> {
  using HostDevice = Device<Kokkos::DefaultExecutionSpace>;

 public:
  static constexpr bool beside = true;
  void fetch(HostDevice&, const detail::Store& store, std::size_t record, void* to, std::size_t bytes) {
    count(late_fetches);
    std::memset(to, 0xff, bytes);  // not a number
    coming_.push_back([&store, record, to, bytes] { std::memcpy(to, store.memory(record), bytes); });
  }
  void arrive(HostDevice& device) {
    device.exec().fence("the end of earlier kernels");
    for (const auto& copy : std::exchange(coming_, {})) copy();
  }
  void put(HostDevice& device, detail::Store& store, std::size_t record, const detail::Buffer& from, std::size_t bytes) {
    count(late_puts);
    device.exec().fence("the end of earlier kernels");
    going_.push_back([&store, record, from, bytes] { std::memcpy(store.memory(record), from.get(), bytes); });
    records = std::max(records, record + 1);
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

TEST_CASE("activations that go late take the memory of two units at a time") {
  const auto peak = [](std::size_t layers, std::vector<std::string> on_host) {
    DefaultDevice device;
    auto config = gpt_config();
    config.layers = layers;
    SingleDevice<models::BasicGpt<bfloat16>> model(device, config, {.activations = {.on_host = std::move(on_host)}});
    model.train_step(make_batch(0, 0, 1, 1));  // makes the gradients
    device.arena().reset_peak();
    const std::size_t before = device.arena().use().peak;
    model.train_step(make_batch(1, 0, 1, 1));
    return device.arena().use().peak - before;
  };
  const std::size_t stay = peak(24, {}) - peak(12, {}), few = peak(12, {"block *"}), many = peak(24, {"block *"});
  MESSAGE("12 more blocks take " << stay << " bytes, and " << many - few << " if activations leave");
  CHECK(many - few < stay / 8);  // hidden states stay
}

TEST_CASE("a step after one that failed has the numbers and the records of the first") {
  auto config = gpt_config();
  config.dropout = 0;                                 // it depends on the count of steps
  for (const char* units : {"block *", "block 7"}) {  // the blocks of others take the memory that a fetch had
    DefaultDevice device;
    SingleDevice<models::BasicGpt<bfloat16>> model(device, config, {.activations = {.on_host = {units}}});
    const auto step = [&] {
      std::vector<double> numbers{model.train_step(make_batch(0, 0, 1, 2))};
      model.for_each_state(
          [&](ParameterState& state) { for_each_gradient(state, [&](std::size_t, double g) { numbers.push_back(g); }); });
      return numbers;
    };
    records = 0;
    late_fetches = late_puts = 0;
    const auto want = step();
    const std::size_t needed = records, kept = device.arena().use().current;
    const int copies = late_fetches + late_puts;
    for (const int failing : {5, copies / 4 + 5, copies}) {  // to the host, to the device, the step's last
      late_fetches = late_puts = 0;
      failing_copy = failing;
      CHECK_THROWS_AS(step(), MemoryError);
      failing_copy = 0;
      CHECK(device.arena().use().current == kept);
      CHECK(step() == want);
    }
    CHECK(records == needed);
  }
}

TEST_CASE("values arrive after a fetch that had no room for some of them") {
  using Values = Tensor<double, DefaultDevice::execution_space>;
  DefaultDevice device;
  struct {
    detail::EngineState engine;
  } context;
  const auto tape = detail::make_tape(detail::AnyContext(context), device.cache<detail::TapeMemory>(), true);
  detail::MadeTensors made;
  const std::vector<double> first(1000, 1.0), second(1000, 2.0);
  Values &a = tape->make<Values>(device, Shape{1000}), &b = tape->make<Values>(device, Shape{1000});
  detail::send_from_host(a, first);
  detail::send_from_host(b, second);
  detail::HostActivations<DefaultDevice::execution_space> kept;
  kept.leave(device, made, *tape);
  late_fetches = late_puts = 0;
  failing_copy = 2;
  CHECK_THROWS_AS(kept.fetch(device), MemoryError);
  failing_copy = 0;
  kept.arrive(device);
  CHECK(copy_to_host(a) == first);
  CHECK(copy_to_host(b) == second);
  std::destroy_at(&a);
  std::destroy_at(&b);
}

TEST_CASE("a record in memory is written and read in part") {
  DefaultDevice device;
  detail::HostStore store;
  const std::size_t record = store.record(64);
  const std::string from(64, 'a');
  std::string to(64, 'b');
  write_record(device, store, record, from.data(), 16);
  read_record(device, store, record, to.data(), 16);
  CHECK(to == std::string(16, 'a') + std::string(48, 'b'));
}

TEST_CASE("batches of many lengths take the records of the longest") {
  DefaultDevice device;
  SingleDevice<models::BasicGpt<bfloat16>> model(device, gpt_config(), {.activations = {.on_host = {"block *"}}});
  std::size_t longest = records = 0;
  for (std::size_t length = batch_length; length > batch_length / 2; --length) {
    Batch batch = make_batch(0, 0, 1, 1);
    batch.length = length;
    batch.tokens.resize(batch.sequences * length);
    batch.targets.resize(batch.sequences * length);
    model.train_step(batch);
    if (length == batch_length) longest = records;
    CHECK(records == longest);
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
