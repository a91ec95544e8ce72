// SPDX-License-Identifier: Apache-2.0
#pragma once
// A training whose ranks are killed by a seed, for tests of elastic runs: its losses, and every byte of its state at the end.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <weft/elastic/run.hpp>
#include <weft/testing/inject_faults.hpp>
#include <weft/weft.hpp>

namespace weft_test {

using namespace weft;

/// A data rank's part of a step of `micro_batches` sequences of 4 tokens.
inline Batch share_of_step(std::size_t micro_batches, std::uint64_t step, std::size_t rank, std::size_t ranks) {
  Batch batch;
  batch.sequences = batch.micro_batches = micro_batches / ranks;
  batch.length = 4;
  batch.first_sequence = batch.sequences * rank;
  batch.step = step;
  for (std::size_t i = 0; i < batch.sequences * batch.length; ++i) {
    const std::size_t index = batch.first_sequence * batch.length + i;
    batch.tokens.push_back(std::int32_t(key_of(step, index) % 19));
    batch.targets.push_back(index % 5 == 0 ? -1 : std::int32_t(key_of(step, index, 7) % 19));
  }
  return batch;
}

/// A communicator whose rank throws at a chosen call: before it, or after it.
class DoomedGroup final : public comm::Group {
 public:
  DoomedGroup(std::shared_ptr<comm::Group> group, std::shared_ptr<long> left, bool after)
      : group_(std::move(group)), left_(std::move(left)), after_(after) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::string_view axis() const override { return group_->axis(); }
  std::string_view backend() const override { return group_->backend(); }
  bool supports(comm::Operation operation, DataType type, comm::MemoryKind memory) const override {
    return group_->supports(operation, type, memory);
  }
  void execute(const comm::Call& call) override {
    const bool last = counts_to_zero();
    if (last && !after_) kill(call);
    group_->execute(call);
    if (last) kill(call);
  }
  std::unique_ptr<comm::Pending> start(const comm::Call& call) override {
    if (counts_to_zero()) kill(call);
    return group_->start(call);
  }
  void check() override { group_->check(); }
  void end() override { group_->end(); }
  comm::Flight flight() override { return group_->flight(); }
  std::shared_ptr<comm::Group> split(int color, int key, std::string axis) override {
    return std::make_shared<DoomedGroup>(group_->split(color, key, std::move(axis)), left_, after_);
  }

 private:
  bool counts_to_zero() { return *left_ > 0 && --*left_ == 0; }
  [[noreturn]] void kill(const comm::Call& call) {
    throw testing::InjectedError(rank(), axis(), describe(call), 0, "killed by the test");
  }
  std::shared_ptr<comm::Group> group_;
  std::shared_ptr<long> left_;  // calls until the rank is killed; 0: it is not
  bool after_;
};

/// The losses of each step, and the whole state at the end: parameters, master copies and the optimizer's buffers.
struct Trained {
  std::map<std::uint64_t, double> losses;
  std::map<std::string, std::vector<std::byte>> state;
  std::uint64_t optimizer_steps = 0;
  friend bool operator==(const Trained&, const Trained&) = default;
};

/// The events of a run.
struct Events {
  std::atomic<int> kills{0}, others{0};  ///< `others`: changes of the world without a loss
  std::atomic<int> repeated{0};          ///< steps that were done again
  std::atomic<int> fewest{1000}, most{0};
};

template <class Model, class Optimizer>
void take_whole_state(Trained& trained, std::mutex& mutex, Model& model, Optimizer& optimizer) {
  const auto state = checkpoint::detail::whole_state(model, optimizer);
  const std::lock_guard lock(mutex);
  trained.optimizer_steps = optimizer.steps();
  for (const auto& item : state.items) {
    const auto bytes = item.read();
    const std::size_t size = size_of(item.type);
    auto& to = trained.state[item.name];
    std::size_t whole = 1;
    for (const std::size_t extent : item.shape) whole *= extent;
    to.resize(whole * size);
    for (const auto& run : item.runs)
      std::memcpy(to.data() + run.global * size, bytes.data + run.local * size, run.length * size);
  }
}

}  // namespace weft_test
