// SPDX-License-Identifier: Apache-2.0
#pragma once
// A communicator of device memory with operations ordered by a compute stream, over the test double of the GPU. Between the start
// of an operation and its wait() the compute stream must not wait, and after wait() it must come after the result.

#include <memory>
#include <string>
#include <utility>

#include <weft/comm/communicator.hpp>
#include <weft/device/cuda/runtime.hpp>

#include "support/fake_nccl/fake.hpp"

namespace weft_test {

class OnStream final : public weft::comm::Group {
 public:
  using Call = weft::comm::Call;
  using Operation = weft::comm::Operation;

  OnStream(std::shared_ptr<weft::comm::Group> inner, std::shared_ptr<weft::CudaStream> stream)
      : inner_(std::move(inner)), stream_(std::move(stream)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view axis() const override { return inner_->axis(); }
  std::string_view backend() const override { return inner_->backend(); }
  bool supports(Operation operation, weft::DataType type, weft::comm::MemoryKind memory) const override {
    return inner_->supports(operation, type, memory);
  }
  void execute(const Call& call) override {
    if (call.operation == Operation::barrier) return inner_->execute(call);
    start(call)->wait();
  }
  std::unique_ptr<weft::comm::Pending> start(const Call& call) override {
    if (call.operation == Operation::barrier) return inner_->start(call);
    Call ordered = call;
    ordered.order = {
        .instance = stream_.get(),
        .wait = nullptr,
        .stream = [](const void* instance) -> void* { return static_cast<const weft::CudaStream*>(instance)->get(); },
        .device = nullptr};
    return std::make_unique<Watched>(inner_->start(ordered), stream_, call.output);
  }
  std::shared_ptr<weft::comm::Group> split(int color, int key, std::string axis) override {
    return std::make_shared<OnStream>(inner_->split(color, key, std::move(axis)), stream_);
  }

 private:
  class Watched final : public weft::comm::Pending {
   public:
    Watched(std::unique_ptr<weft::comm::Pending> inner, std::shared_ptr<weft::CudaStream> stream, const void* output)
        : inner_(std::move(inner)), stream_(std::move(stream)), output_(output) {}
    bool test() override {
      const std::uint64_t given = fake_nccl::given(stream_->get());
      const bool done = inner_->test();
      if (fake_nccl::given(stream_->get()) != given) fake_nccl::report("a test of an operation made the compute stream wait");
      return done;
    }
    void wait() override {
      inner_->wait();
      if (output_ != nullptr && !fake_nccl::waits_for(stream_->get(), output_))
        fake_nccl::report("after the wait for an operation the compute stream does not come after its result");
      // The caller reads on the host. Until then other ranks' messages are answered: inside of a fence they would not be.
      weft::CudaEvent end;
      end.record(stream_->get());
      while (!end.done()) (void)inner_->test();
    }
    void abandon() noexcept override { inner_->abandon(); }

   private:
    std::unique_ptr<weft::comm::Pending> inner_;
    std::shared_ptr<weft::CudaStream> stream_;
    const void* output_;
  };

  std::shared_ptr<weft::comm::Group> inner_;
  std::shared_ptr<weft::CudaStream> stream_;
};

inline weft::Communicator on_stream(const weft::Communicator& c) {
  return weft::Communicator(std::make_shared<OnStream>(c.group(), std::make_shared<weft::CudaStream>()));
}

}  // namespace weft_test
