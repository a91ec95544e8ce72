// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gradients of a flat array of parameters: whole while layers add to them, then reduce-scattered to the ranks' pieces, in
// their own type, a narrower one or as integers, in rank order or in the order of a tree. For parameters in 16 bits sums may be
// kept in 16 bits between micro-batches (decision 25).

#include <optional>
#include <span>

#include <weft/autograd/parameter.hpp>
#include <weft/comm/communicator.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/parallel/fsdp/flat_array.hpp>
#include <weft/parallel/fsdp/quantised_reduction.hpp>
#include <weft/parallel/fsdp/settings.hpp>
#include <weft/parallel/reproducible/tree_exchange.hpp>

namespace weft::detail {

template <class Exec>
class FlatGradients {
 public:
  FlatGradients(const FlatArray& array, const ShardRanks& ranks, Device<Exec>& device, const ShardSettings& settings)
      : array_(&array), ranks_(&ranks), device_(&device), settings_(&settings) {}

  // Allocates the gradients of trainable parameters.
  void lay_out();

  // Allocates whole gradients for layers to add to. Gaps between parameters are zero, because they are summed, too.
  void open();
  // True in stage 1 if the sums of the step so far are kept rounded. `fold` adds a micro-batch's whole gradients, which are
  // already summed over the axes inside data parallelism, to them.
  bool folds() const { return settings_->rules.keeps_gradients && rounds(); }
  void fold();
  // True if a reduction needs no memory for whole gradients: in stage 1 they are its input where they are.
  bool stay() const { return settings_->rules.keeps_gradients && !rounds() && !settings_->narrow; }

  // Releases whole gradients that are only there while layers add to them.
  void discard() {
    if (!settings_->rules.keeps_gradients || rounds()) close();
  }

  void begin() { reduced_ = folded_ = false; }

  /// The order in which the ranks' sums are added in this step; null: rank order.
  void add_in_order(const ReductionTree* tree) { tree_ = tree; }

  // Starts the sum over the ranks that share one copy, or over all ranks if a tree gives the order.
  void reduce();
  // Starts the messages between nodes of a sum as integers. True if they had started before, or the sum is another one.
  bool advance();
  bool test();
  void settle();
  // The sums over all copies: once per step, for all groups in the same order on all ranks.
  void start_copies();
  void finish() { reduction_.wait(); }

 private:
  template <class T>
  void scatter(const Buffer& out) {
    const std::span<const T> whole(static_cast<const T*>(leaving_.get()), layout_.size());
    const std::span<T> mine(static_cast<T*>(out.get()), layout_.piece());
    if (whole.size() == array_->size()) reduction_ = ranks_->sharing.reduce_scatter_async(whole, mine);
    else reduction_ = ranks_->sharing.reduce_scatter_v_async(whole, mine, layout_.counts());
  }
  std::size_t element_bytes() const { return size_of(type_); }
  std::size_t kept_bytes() const { return size_of(kept_type_); }
  bool rounds() const { return kept_type_ != type_; }
  template <class From, class To>
  void cast(std::size_t count, const Buffer& from, const Buffer& to) {
    kernels::cast<From, To>(*device_, count, static_cast<const From*>(from.get()), static_cast<To*>(to.get()));
  }
  void add_folded();
  void close();
  // A parameter's place in this rank's piece of the gradients.
  std::size_t place_kept(const FlatMember& member, const FlatMember& summed) const {
    return summed.first + (array_->first_kept(member) - member.first) - layout_.begin();
  }

  const FlatArray* array_;
  const ShardRanks* ranks_;
  Device<Exec>* device_;
  const ShardSettings* settings_;
  FlatGradientLayout layout_;
  DataType type_ = DataType::float32, kept_type_ = DataType::float32;  // that layers add in, and of this rank's piece
  Buffer shard_;                                                       // this rank's piece, as the optimizer sees it
  Buffer gradients_;                                                   // flat and whole, while they exist
  Buffer rounded_;                     // whole gradients between micro-batches, if kept in a narrower type than layers add in
  Buffer leaving_, sum_, narrow_sum_;  // of the current reduction: its input, and its output if that is not the piece
  Request reduction_;
  const ReductionTree* tree_ = nullptr;
  std::optional<TreeExchange<Exec>> exchange_;  // in place of the reduction
  std::optional<QuantisedReduction<Exec>> quantised_;
  bool reduced_ = false, summed_over_copies_ = true, folded_ = false;
};

template <class Exec>
void FlatGradients<Exec>::lay_out() {
  const ParameterState& any = *array_->members.front().state;
  type_ = any.gradient_type();
  kept_type_ = settings_->kept_gradient_type(any);
  close();
  rounded_ = shard_ = nullptr;
  layout_ = FlatGradientLayout(*array_);
  for (const FlatMember& member : array_->members)
    if (!member.state->trainable()) member.state->gradients().drop();
  if (layout_.empty()) return;
  if (settings_->rules.keeps_gradients) {
    if (rounds()) rounded_ = device_->allocate_persistent(layout_.size() * kept_bytes(), MemoryCategory::gradients);
    else open();
    shard_ = buffer_at(rounds() ? rounded_ : gradients_, layout_.begin() * kept_bytes());
  } else {
    shard_ = device_->allocate_persistent(layout_.piece() * kept_bytes(), MemoryCategory::gradients);
  }
}

template <class Exec>
void FlatGradients<Exec>::open() {
  if (!gradients_) {
    const std::size_t bytes = layout_.size() * element_bytes();
    gradients_ = settings_->rules.keeps_gradients && !rounds() ? device_->allocate_persistent(bytes, MemoryCategory::gradients)
                                                               : device_->allocate(bytes);
    std::size_t used = 0;
    const auto clear = [&](std::size_t from, std::size_t to) {
      fill_zero(*device_, static_cast<char*>(gradients_.get()) + from * element_bytes(), (to - from) * element_bytes());
    };
    for (const FlatMember& member : layout_.members()) {
      clear(used, member.first);
      used = member.first + member.state->size();
    }
    clear(used, layout_.size());
  }
  for (const FlatMember& member : layout_.members())
    member.state->gradients().set_layer_buffer(buffer_at(gradients_, member.first * element_bytes()));
}

template <class Exec>
void FlatGradients<Exec>::fold() {
  open();
  add_folded();
  dispatch_narrow(kept_type_, [&](auto zero) { cast<float, decltype(zero)>(layout_.size(), gradients_, rounded_); });
  close();
  folded_ = true;
}

template <class Exec>
void FlatGradients<Exec>::reduce() {
  open();
  add_folded();
  leaving_ = gradients_;
  if (!settings_->rules.keeps_gradients || rounds()) close();
  summed_over_copies_ = tree_ != nullptr || ranks_->copies.size() == 1;
  // The first sum of a step goes to its place, but to a buffer beside it if that place is part of the input, holds the sum of
  // earlier micro-batches, or has another type.
  if (settings_->narrow || settings_->rules.keeps_gradients || reduced_ || rounds())
    sum_ = device_->allocate(layout_.piece() * element_bytes());
  if (tree_ != nullptr) {
    exchange_.emplace(ranks_->all, *device_, *tree_, type_, leaving_, layout_.begins(), layout_.members());
    return;
  }
  if (settings_->quantised_bits != 0) {
    quantised_.emplace(*ranks_, *device_, type_, leaving_, layout_.begins(), settings_->quantised_bits);
    leaving_.reset();
    return;
  }
  if (!settings_->narrow) {
    dispatch_gradient(type_, [&](auto zero) { scatter<decltype(zero)>(sum_ ? sum_ : shard_); });
    return;
  }
  const Buffer rounded = device_->allocate(layout_.size() * sizeof(bfloat16));
  dispatch_gradient(type_, [&](auto zero) {
    using G = decltype(zero);
    kernels::cast<G, bfloat16>(*device_, layout_.size(), static_cast<const G*>(leaving_.get()),
                               static_cast<bfloat16*>(rounded.get()));
  });
  leaving_ = rounded;
  narrow_sum_ = device_->allocate(layout_.piece() * sizeof(bfloat16));
  scatter<bfloat16>(narrow_sum_);
}

template <class Exec>
bool FlatGradients<Exec>::advance() {
  if (!quantised_ || quantised_->advanced()) return true;
  quantised_->advance();
  return false;
}

template <class Exec>
bool FlatGradients<Exec>::test() {
  if (quantised_) return false;  // its second messages start at the same place on all ranks, not when the first have arrived
  return exchange_ ? exchange_->test() : reduction_.test();
}

template <class Exec>
void FlatGradients<Exec>::settle() {
  if (exchange_) exchange_->write_sum((sum_ ? sum_ : shard_).get());
  exchange_.reset();
  if (quantised_) quantised_->finish((sum_ ? sum_ : shard_).get());
  quantised_.reset();
  reduction_.wait();
  dispatch_gradient(type_, [&](auto zero) {
    using G = decltype(zero);
    if (narrow_sum_)
      kernels::cast<bfloat16, G>(*device_, layout_.piece(), static_cast<const bfloat16*>(narrow_sum_.get()),
                                 static_cast<G*>(sum_.get()));
    if (!sum_ || rounds()) return;
    const G* sum = static_cast<const G*>(sum_.get());
    G* shard = static_cast<G*>(shard_.get());
    if (reduced_) kernels::accumulate<G, G>(*device_, layout_.piece(), sum, shard);
    else kernels::cast<G, G>(*device_, layout_.piece(), sum, shard);
  });
  if (rounds())
    dispatch_narrow(kept_type_, [&](auto zero) {
      using N = decltype(zero);
      if (reduced_)
        kernels::accumulate<float, N>(*device_, layout_.piece(), static_cast<const float*>(sum_.get()),
                                      static_cast<N*>(shard_.get()));
      else cast<float, N>(layout_.piece(), sum_, shard_);
    });
  auto summed = layout_.members().begin();
  for (const FlatMember& member : array_->members) {
    if (!member.state->trainable()) continue;
    if (member.state->kept() != 0)
      member.state->gradients().set_buffer(buffer_at(shard_, place_kept(member, *summed) * kept_bytes()));
    ++summed;
  }
  reduced_ = true;
  sum_.reset();
  narrow_sum_.reset();
  leaving_.reset();
}

template <class Exec>
void FlatGradients<Exec>::start_copies() {
  if (!reduced_ || summed_over_copies_) return;
  reduction_ = ranks_->copies.all_reduce_async(comm::elements_of<float, double, bfloat16, float16>(
      kept_type_, weft::detail::memory_kind<Tensor<float, Exec>>(), shard_.get(), layout_.piece()));
}

template <class Exec>
void FlatGradients<Exec>::add_folded() {
  if (!folded_) return;
  dispatch_narrow(kept_type_, [&](auto zero) {
    using N = decltype(zero);
    kernels::accumulate<N, float>(*device_, layout_.size(), static_cast<const N*>(rounded_.get()),
                                  static_cast<float*>(gradients_.get()));
  });
}

template <class Exec>
void FlatGradients<Exec>::close() {
  for (const FlatMember& member : layout_.members()) member.state->gradients().set_layer_buffer(nullptr);
  gradients_.reset();
}

}  // namespace weft::detail

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class FlatGradients<Kokkos::DefaultHostExecutionSpace>;
}  // namespace weft::detail
#endif
