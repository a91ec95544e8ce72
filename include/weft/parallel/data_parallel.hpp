// SPDX-License-Identifier: Apache-2.0
#pragma once
// Data parallelism: every rank has the whole model (or its part of it) and its own sequences. Gradients are summed in buckets
// while backward still runs (Li et al., VLDB 2020). The order in which gradients become ready is known from the model, so buckets
// are laid out once. Micro-batches accumulate locally; only their sum is reduced.
//
//   DataParallel<models::Gpt> model(mesh, config);

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include <weft/core/text.hpp>
#include <weft/engine/gradient_accumulator.hpp>
#include <weft/parallel/hook/communication_hook.hpp>
#include <weft/parallel/policies.hpp>
#include <weft/parallel/wrapper.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {

template <class Exec>
class Buckets : public Hooks {
 public:
  Buckets(Communicator comm, Device<Exec>& device, const ModelOptions& options);

  // Gradients live in their buckets, one after the other, so that a bucket is reduced in place. A bucket closes when it reaches
  // its limit or the element type changes. Experts are summed over other ranks, so they have separate buckets.
  WEFT_COLD void prepare(std::span<Unit*> units) override;
  // Buckets hold trainable parameters only. A communication hook starts anew: its state belonged to other buckets.
  WEFT_COLD void lay_out_gradients() override;

  bool sums_data() const override { return true; }
  void check_sums() override {
    if (hook_) hook_->check_next_step();
  }
  WEFT_COLD void keep(hook::Keeper& keeper) override {
    for (std::size_t i = 0; hook_ && i < buckets_.size(); ++i) {
      if (buckets_[i].comm.size() == 1) continue;
      keeper.within(joined({"bucket-", i, "."}));
      hook::Bucket view = view_of(buckets_[i]);
      hook_->keep(view, keeper);
    }
  }
  void begin(bool training) override;
  void begin_sums(GradientAccumulator& accumulator) override;

  void gradients_ready(Unit& unit) override;
  void finish() override;

 private:
  struct Bucket {
    Communicator comm;
    DataType type = DataType::float32;
    std::size_t limit = 0;
    std::vector<FlatMember> members;
    std::size_t bytes = 0, ready = 0;
    Buffer storage;
    std::optional<Request> request;
    hook::AnyHook* hook = nullptr;
  };

  // Gradients become ready in about the order in which they were laid out, so the search starts at the last one found.
  Bucket& bucket_of(const ParameterState* state);

  static std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

  // The last bucket of the state's communicator, or a new one if that is full or of another type.
  std::size_t open_bucket(const ParameterState& state);

  void launch(Bucket& bucket);

  void complete(Bucket& bucket);
  hook::Bucket view_of(Bucket& bucket);

  Communicator comm_;
  Device<Exec>* device_;
  std::size_t first_bytes_, bytes_;
  std::uint64_t compare_every_, steps_ = 0;  // hooks are checked in the first step and every compare_every_-th one
  std::vector<ParameterState*> parameters_;  // in the order in which their gradients become ready
  std::vector<Bucket> buckets_;
  std::size_t looked_up_ = 0;
  std::vector<Bucket*> launched_;                              // in this step, in the same order on all ranks
  std::function<std::unique_ptr<hook::AnyHook>()> make_hook_;  // empty: plain sums
  std::unique_ptr<hook::AnyHook> hook_;
};

template <class Exec>
Buckets<Exec>::Buckets(Communicator comm, Device<Exec>& device, const ModelOptions& options)
    : comm_(std::move(comm)),
      device_(&device),
      first_bytes_(options.data.first_bucket_bytes),
      bytes_(options.data.bucket_bytes),
      compare_every_(options.numerics.compare_every) {
  if (options.shard.replicate != 1 || options.shard.over_domain || options.shard.quantised_gather ||
      options.shard.secondary != 0 || options.shard.quantised_reduce != 0)
    throw_error<UsageError>(
        {"ModelOptions: shard.replicate, shard.over_domain, shard.quantised_gather, shard.secondary and shard.quantised_reduce "
         "are for "
         "FullyShardedDataParallel, and DataParallel or its stage 0 shares nothing out; leave them out"});
  if (options.numerics.gradient && size_of(*options.numerics.gradient) == 2)
    throw_error<UsageError>(
        {"ModelOptions::numerics.gradient is ", name_of(*options.numerics.gradient),
         ": DataParallel keeps gradients in the type in which they are added; leave it out, or use FullyShardedDataParallel"});
  // A hook is made for a World's device, as every wrapper is; weft::compiled holds this class for the host's memory in a program
  // for GPUs, too.
  if constexpr (std::is_same_v<Device<Exec>, DefaultDevice>) {
    if (options.data.hook) make_hook_ = [factory = options.data.hook, &device] { return factory->make(device); };
    else if (const auto narrow = options.numerics.reduce.narrow()) make_hook_ = [narrow, &device] { return narrow(device); };
  }
  if (make_hook_) hook_ = make_hook_();
}

template <class Exec>
void Buckets<Exec>::prepare(std::span<Unit*> units) {
  for (Unit* unit : units)
    for (ParameterState* state : unit->parameters) parameters_.push_back(state);
  lay_out_gradients();
}

template <class Exec>
void Buckets<Exec>::lay_out_gradients() {
  if (!buckets_.empty() && make_hook_) hook_ = make_hook_();
  launched_.clear();
  buckets_.clear();
  looked_up_ = 0;
  for (ParameterState* state : parameters_) {
    state->gradients().set_buffer(nullptr);
    if (!state->trainable()) continue;
    const std::size_t index = open_bucket(*state);
    buckets_[index].members.push_back({state, buckets_[index].bytes / size_of(state->gradient_type())});
    buckets_[index].bytes += aligned(state->gradient_bytes());
  }
  for (Bucket& bucket : buckets_) {
    const std::size_t lines = std::size_t(bucket.comm.size()) * 64;  // each rank's piece is whole cache lines
    bucket.bytes = (bucket.bytes + lines - 1) / lines * lines;
    bucket.storage = device_->allocate_persistent(bucket.bytes, MemoryCategory::gradients);
    fill_zero(*device_, static_cast<char*>(bucket.storage.get()), bucket.bytes);  // the gaps are summed, too
    for (const FlatMember& member : bucket.members)
      member.state->gradients().set_buffer(
          Buffer(bucket.storage, static_cast<char*>(bucket.storage.get()) + member.first * size_of(bucket.type)));
  }
}

template <class Exec>
void Buckets<Exec>::begin(bool training) {
  if (training && hook_ && compare_every_ != 0 && ++steps_ % compare_every_ == 0) check_sums();
}

template <class Exec>
void Buckets<Exec>::begin_sums(GradientAccumulator& accumulator) {
  for (Bucket& bucket : buckets_) bucket.hook = accumulator.bucket_hook(std::size_t(bucket.comm.size()), hook_.get());
}

template <class Exec>
void Buckets<Exec>::gradients_ready(Unit& unit) {
  for (ParameterState* state : unit.parameters) {
    Bucket& bucket = bucket_of(state);
    state->take_unreduced_over_data();
    if (++bucket.ready == bucket.members.size()) launch(bucket);
  }
  // Collectives advance when ranks test them: each rank does its part of every posted one.
  for (Bucket& bucket : buckets_)
    if (bucket.request) bucket.request->test();
}

template <class Exec>
void Buckets<Exec>::finish() {
  for (Bucket* bucket : launched_) complete(*bucket);
  launched_.clear();
  for (Bucket& bucket : buckets_) bucket.ready = 0;
}

template <class Exec>
typename Buckets<Exec>::Bucket& Buckets<Exec>::bucket_of(const ParameterState* state) {
  for (std::size_t k = 0; k < buckets_.size(); ++k) {
    const std::size_t index = (looked_up_ + k) % buckets_.size();
    for (const FlatMember& member : buckets_[index].members)
      if (member.state == state) return buckets_[looked_up_ = index];
  }
  throw_error<Error>({"DataParallel: parameter ", state->name(), " is in no bucket"});
}

template <class Exec>
std::size_t Buckets<Exec>::open_bucket(const ParameterState& state) {
  const Communicator& comm = state.info().expert_data ? *state.info().expert_data : comm_;
  std::size_t last = buckets_.size();
  while (last-- > 0 && buckets_[last].comm.group() != comm.group()) {}
  const bool first = last >= buckets_.size();
  if (!first && buckets_[last].bytes < buckets_[last].limit && buckets_[last].type == state.gradient_type()) return last;
  Bucket& added = buckets_.emplace_back();
  added.comm = comm;
  added.type = state.gradient_type();
  added.limit = first ? first_bytes_ : bytes_;
  added.hook = hook_.get();
  return buckets_.size() - 1;
}

template <class Exec>
void Buckets<Exec>::launch(Bucket& bucket) {
  if (bucket.comm.size() == 1) return;
  launched_.push_back(&bucket);
  if (bucket.hook != nullptr) {
    // A hook's `finish` may communicate, too, so all ranks call it at the same places.
    if (launched_.size() > 2) complete(*launched_[launched_.size() - 3]);
    hook::Bucket view = view_of(bucket);
    bucket.request = bucket.hook->start(view, bucket.comm);
    return;
  }
  constexpr comm::MemoryKind memory = weft::detail::memory_kind<Tensor<float, Exec>>();
  bucket.request = bucket.comm.all_reduce_async(
      comm::elements_of<float, double>(bucket.type, memory, bucket.storage.get(), bucket.bytes / size_of(bucket.type)));
}

template <class Exec>
void Buckets<Exec>::complete(Bucket& bucket) {
  if (!bucket.request) return;
  bucket.request->wait();
  bucket.request.reset();
  if (bucket.hook == nullptr) return;
  hook::Bucket view = view_of(bucket);
  bucket.hook->finish(view, bucket.comm);
}

template <class Exec>
hook::Bucket Buckets<Exec>::view_of(Bucket& bucket) {
  return {std::size_t(&bucket - buckets_.data()), bucket.type, bucket.storage, bucket.bytes / size_of(bucket.type),
          bucket.members};
}

struct DataPolicy : PlainPolicy {
  using axis = dp;
  using hidden_placement = Invariant<dp>;
  DataPolicy(const Communicator& comm, DefaultDevice& device, const ModelOptions& options) : buckets(comm, device, options) {}
  Hooks* hooks() { return &buckets; }
  Buckets<DefaultDevice::execution_space> buckets;
};

}  // namespace detail

/// M on every dp rank, each with its own sequences. Numerics: gradients are sums over dp in rank order, in float (in double for
/// parameters in double); equal to one rank up to the rounding of that sum, and the same bits on every rank. Policies:
/// Reproducible and others of parallel/policies.hpp, or a communication hook.
template <class M, class... Policies>
class DataParallel;

template <class M, class... Policies>
inline constexpr int nesting_level<DataParallel<M, Policies...>> = 10;

namespace detail {
template <class M, class... Policies>
inline constexpr bool sound<DataParallel<M, Policies...>> = (nesting_level<M> > 10) &&
                                                            (is_data_policy<Policies> && ...) && sound<M>;
template <class M, class... Policies>
using DataBase =
    std::conditional_t<sound<DataParallel<M, Policies...>>, Wrapper<WithPolicies<DataPolicy, Policies...>, M>, Refused<M>>;
}  // namespace detail

template <class M, class... Policies>
class DataParallel : public detail::DataBase<M, Policies...> {
  static_assert((detail::CheckedDataPolicy<Policies>::said && ...));
  static_assert(((detail::is_data_policy<Policies> || detail::resembles_policy<Policies> ||
                  detail::resembles_hook<Policies>)&&...),
                "weft: DataParallel's template parameters after the model must be policies, such as Reproducible, or a "
                "communication hook (a type with Request start(hook::Bucket&, const Communicator&))");
  static_assert(nesting_level<M> > 10,
                "weft: wrappers nest as DataParallel of TensorParallel of PipelineParallel of a model, each at most once: "
                "DataParallel stands outermost and once");

  static_assert((detail::policy_fits<typename detail::ScalarOf<M>::type, Policies> && ...),
                "weft: MixedPrecision's Param must be the type that the model computes in, such as bfloat16 for "
                "models::BasicGpt<bfloat16>");

 public:
  using typename detail::DataBase<M, Policies...>::Config;
  /// The model laid over `mesh`: see Wrapper.
  template <detail::Axis... X>
  DataParallel(const Mesh<X...>& mesh,  // an argument that is no Config names a field that it lacks, or in another order
               const Config& config = detail::no_config<detail::model_of_t<M>>(), const ModelOptions& options = {})
      : detail::DataBase<M, Policies...>(mesh, config, options) {}
};

}  // namespace weft

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class Buckets<Kokkos::DefaultHostExecutionSpace>;
}  // namespace weft::detail
#endif
