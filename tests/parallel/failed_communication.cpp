// SPDX-License-Identifier: Apache-2.0
// Communication on a GPU can fail while no host call waits for it: the watching thread of comm::Nccl aborts, and streams continue
// with numbers that are no sums. So a step checks its groups before it returns a loss. With only tensor parallelism, no other
// host call in a step would notice.

#include "support/parity.hpp"

#include <atomic>

using namespace weft_test;

namespace {

/// A group whose communication has failed once `failed` is set, which only `check` can detect.
class SilentlyFailed final : public comm::Group {
 public:
  SilentlyFailed(std::shared_ptr<comm::Group> group, const bool& failed) : group_(std::move(group)), failed_(&failed) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::string_view axis() const override { return group_->axis(); }
  std::string_view backend() const override { return group_->backend(); }
  bool supports(comm::Operation operation, DataType type, comm::MemoryKind memory) const override {
    return group_->supports(operation, type, memory);
  }
  void execute(const comm::Call& call) override { group_->execute(call); }
  std::unique_ptr<comm::Pending> start(const comm::Call& call) override { return group_->start(call); }
  void check() override {
    if (*failed_) throw CommunicationError(rank(), axis(), "check", 0, "failed on the GPU");
  }
  void end() override { group_->end(); }
  std::shared_ptr<comm::Group> split(int color, int key, std::string axis) override {
    return std::make_shared<SilentlyFailed>(group_->split(color, key, std::move(axis)), *failed_);
  }

 private:
  std::shared_ptr<comm::Group> group_;
  const bool* failed_;
};

}  // namespace

TEST_CASE("a step whose communication failed on the GPU returns no loss") {
  std::atomic<int> refused = 0, trained = 0;
  const int code = runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& of_threads) {
    bool failed = false;
    const Communicator real = of_threads.communicator();
    World world(Communicator(std::make_shared<SilentlyFailed>(real.group(), failed), real.order()), of_threads.device());
    Mesh<tp> mesh(world, {.tp = 2});
    TensorParallel<models::BasicGpt<float>> model(mesh, gpt_config());
    trained += model.train_step(make_batch(0, 0, 1, 1)) > 0;
    failed = true;
    try {
      (void)model.train_step(make_batch(1, 0, 1, 1));
    } catch (const CommunicationError& error) {
      refused += std::string(error.what()).find("failed on the GPU") != std::string::npos;
    }
  });
  CHECK(code == 0);
  CHECK(trained == 2);
  CHECK(refused == 2);
}
