// SPDX-License-Identifier: Apache-2.0
#pragma once
// Data parallelism: every rank has the whole model (or its part of it) and sequences of its own; gradients are summed in
// buckets while backward still runs (Li et al., VLDB 2020). The order in which gradients become ready is known from the
// model, so buckets are laid out once. Micro-batches accumulate locally; only the last one is reduced.

#include <map>
#include <optional>
#include <span>
#include <vector>

#include <weft/parallel/wrapper.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {

template <class Exec>
class Buckets : public Hooks {
 public:
  Buckets(Communicator comm, Device<Exec>& device, const ModelOptions& options)
      : comm_(std::move(comm)), device_(&device), first_bytes_(options.first_bucket_bytes), bytes_(options.bucket_bytes) {}

  // Gradients live in their buckets, one after the other, so that a bucket is reduced in place. A bucket closes once it
  // reaches its limit, and where the element type changes.
  void prepare(std::span<Unit*> units) override {
    for (Unit* unit : units)
      for (ParameterState* state : unit->parameters) {
        if (buckets_.empty() || buckets_.back().bytes >= (buckets_.size() == 1 ? first_bytes_ : bytes_) || buckets_.back().type != state->gradient_type)
          buckets_.push_back({state->gradient_type, {}, 0, 0, {}, {}});
        buckets_.back().states.push_back(state);
        buckets_.back().bytes += aligned(state->gradient_bytes());
        bucket_of_[state] = buckets_.size() - 1;
      }
    for (Bucket& bucket : buckets_) {
      bucket.storage = device_->allocate_lasting(bucket.bytes);
      fill_zero(*device_, static_cast<char*>(bucket.storage.get()), bucket.bytes);  // the gaps are summed too
      std::size_t at = 0;
      for (ParameterState* state : bucket.states) {
        state->gradient = Buffer(bucket.storage, static_cast<char*>(bucket.storage.get()) + at);
        at += aligned(state->gradient_bytes());
      }
    }
  }

  void gradients_ready(Unit& unit) override {
    for (ParameterState* state : unit.parameters) {
      Bucket& bucket = buckets_[bucket_of_.at(state)];
      if (state->pending & ~axis_bit<dp>) throw DebtError("the gradient of " + state->name + " is to be summed over dp while it still owes another sum");
      state->pending = 0;
      if (++bucket.ready == bucket.states.size()) launch(bucket);
    }
    // Ranks make progress together: each does its part of what all have posted.
    for (Bucket& bucket : buckets_)
      if (bucket.request) bucket.request->test();
  }
  void finish() override {
    for (Bucket& bucket : buckets_) {
      if (bucket.request) bucket.request->wait();
      bucket.request.reset();
      bucket.ready = 0;
    }
  }

 private:
  struct Bucket {
    DataType type;
    std::vector<ParameterState*> states;
    std::size_t bytes = 0, ready = 0;
    Buffer storage;
    std::optional<Request> request;
  };

  static std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

  void launch(Bucket& bucket) {
    if (comm_.size() == 1) return;
    dispatch_real(bucket.type, [&](auto zero) {
      using G = decltype(zero);
      bucket.request = comm_.all_reduce_async(std::span<G>(static_cast<G*>(bucket.storage.get()), bucket.bytes / sizeof(G)));
    });
  }

  Communicator comm_;
  Device<Exec>* device_;
  std::size_t first_bytes_, bytes_;
  std::vector<Bucket> buckets_;
  std::map<ParameterState*, std::size_t> bucket_of_;
};

struct DataPolicy : PlainPolicy {
  using axis = dp;
  using stream = Invariant<dp>;
  DataPolicy(const Communicator& comm, DefaultDevice& device, const ModelOptions& options) : buckets(comm, device, options) {}
  Hooks* hooks() { return &buckets; }
  Buckets<DefaultDevice::execution_space> buckets;
};

}  // namespace detail

/// M on every dp rank, each with its own sequences. Numerics: gradients are sums over dp in rank order, in fp32 for bfloat16
/// parameters (fp64 for double); equal to one rank up to the rounding of that sum, and the same bits on every rank.
template <class M>
class DataParallel;

template <class M>
inline constexpr int nesting_level<DataParallel<M>> = 10;

namespace detail {
template <class M>
using DataBase = std::conditional_t<(nesting_level<M> > 10), Wrapper<DataPolicy, M>, Refused>;
}

template <class M>
class DataParallel : public detail::DataBase<M> {
  static_assert(nesting_level<M> > 10, "weft: wrappers nest as DataParallel of TensorParallel of PipelineParallel of a model, each at most once: DataParallel stands outermost and once");

 public:
  using detail::DataBase<M>::DataBase;
};

}  // namespace weft
