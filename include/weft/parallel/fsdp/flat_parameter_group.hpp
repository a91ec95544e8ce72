// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters that FullyShardedDataParallel gathers and reduces together, in one flat array of which each rank of a group
// keeps an equal piece, so that one collective moves all of them. Values are gathered as they are, as 8-bit integers, or from
// neighbours. Gradients are reduce-scattered in their own type or a narrower one, in rank order or in the order of a tree. Pieces
// are on the device or in a store. For parameters in 16 bits a piece is the master copy, and gradients may be kept in 16 bits
// between micro-batches (decision 25).

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/text.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/quantise.hpp>
#include <weft/layer/hooks.hpp>
#include <weft/layer/parameter.hpp>
#include <weft/parallel/fsdp/settings.hpp>
#include <weft/parallel/reproducible/tree_exchange.hpp>
#include <weft/tensor/to.hpp>

namespace weft::detail {

template <class Exec>
class FlatParameterGroup {
  using Traffic = RecordTraffic<Exec>;

 public:
  FlatParameterGroup(ShardRanks ranks, Device<Exec>& device, const ShardSettings& settings)
      : ranks_(std::move(ranks)), device_(&device), settings_(&settings) {}

  const ShardRanks& ranks() const { return ranks_; }
  bool used = false;  ///< between a unit's two events: several units are, if they are parts of a Module
  void add(ParameterState* state);

  // Allocates and initialises the pieces. The whole parameters never exist.
  void place();
  // Allocates the gradients of trainable parameters.
  void lay_out_gradients();

  // Allocates whole gradients for layers to add to. Gaps between parameters are zero, because they are summed, too.
  void open();
  // True in stage 1 if the sums of the step so far are kept rounded. `fold` adds a micro-batch's whole gradients, which are
  // already summed over the axes inside data parallelism, to them.
  bool folds() const { return settings_->rules.keeps_gradients && rounds(); }
  void fold();

  // Called when a step begins: the optimizer has updated the shards, so the gathered values are stale.
  void begin(bool training);

  void gather();
  // Starts the loads of the next gather.
  void read_ahead();
  void wait();
  void drop();

  /// The order in which the ranks' sums are added in this step; null: rank order.
  void add_in_order(const ReductionTree* tree) { tree_ = tree; }

  // Starts the sum over the ranks that share one copy, or over all ranks if a tree gives the order.
  void reduce();
  bool test();
  void settle();
  // The sums over all copies: once per step, for all groups in the same order on all ranks.
  void start_copies();
  void finish();

 private:
  static constexpr std::size_t grain = 32;  // elements; pieces and parameters begin on cache lines in every element type

  static Buffer at(const Buffer& buffer, std::size_t bytes);
  // Bytes as words: a gather does not depend on the element type.
  static std::span<std::int64_t> words(const Buffer& buffer, std::size_t bytes);
  template <class T>
  void scatter(const Buffer& out) {
    const std::span<const T> whole(static_cast<const T*>(leaving_.get()), gradient_elements());
    const std::span<T> mine(static_cast<T*>(out.get()), gradient_piece());
    if (whole.size() == piece_ * sharers()) {
      reduction_ = ranks_.sharing.reduce_scatter_async(whole, mine);
      return;
    }
    for (std::size_t rank = 0; rank < sharers(); ++rank) counts_[rank] = begins_[rank + 1] - begins_[rank];
    reduction_ = ranks_.sharing.reduce_scatter_v_async(whole, mine, counts_);
  }
  std::size_t sharers() const;
  std::size_t value_bytes() const { return size_of(type_); }
  std::size_t gradient_bytes() const { return size_of(gradient_type_); }
  std::size_t kept_bytes() const { return size_of(kept_type_); }
  std::size_t kept_gradient_bytes() const { return size_of(kept_gradient_type_); }
  bool rounds() const { return kept_gradient_type_ != gradient_type_; }
  template <class From, class To>
  void cast(std::size_t count, const Buffer& from, const Buffer& to) {
    kernels::cast<From, To>(*device_, count, static_cast<const From*>(from.get()), static_cast<To*>(to.get()));
  }
  void add_folded();
  void close();
  // A master copy starts from the parameter's value, so that every wrapper starts from the same bits.
  void initialise(ParameterState& state, Buffer place);
  bool stored() const;
  std::size_t secondary_bytes() const;
  // The layout of packed values: integers, then scales.
  std::size_t integer_bytes() const { return (piece_ + 63) / 64 * 64; }
  std::size_t packed_bytes() const;
  template <class T>
  accumulate_t<T>* scales(const Buffer& packed) const {
    return static_cast<accumulate_t<T>*>(at(packed, integer_bytes()).get());
  }

  // Gradients lie in the order of the values, without the frozen parameters: these many elements, of which this rank sums some.
  std::size_t gradient_elements() const { return begins_.back(); }
  std::size_t gradient_piece() const { return begins_[my_rank() + 1] - begins_[my_rank()]; }
  std::size_t my_rank() const { return std::size_t(ranks_.sharing.rank()); }
  // The first element of a parameter, in the flat array, that this rank keeps, if it keeps any.
  std::size_t first_kept(const FlatMember& member) const;
  // Its place in this rank's piece of the gradients.
  std::size_t gradient_kept(const FlatMember& member, const FlatMember& summed) const {
    return summed.first + (first_kept(member) - member.first) - begins_[my_rank()];
  }
  void keep(const FlatMember& member) const;
  // This rank's piece: the one that was loaded ahead, else loaded from the store to its place among the gathered values.
  Buffer load();
  void fetch(const Buffer& to);
  Traffic& traffic() { return device_->template cache<Traffic>(); }

  ShardRanks ranks_;
  Device<Exec>* device_;
  const ShardSettings* settings_;
  std::vector<FlatMember> members_;
  std::vector<FlatMember> summed_;                    // the trainable ones, with their places among the gradients
  std::vector<std::size_t> begins_;                   // of the ranks' pieces of the gradients, and the end
  std::vector<std::size_t> counts_;                   // of a sum whose pieces differ
  std::size_t elements_ = 0, piece_ = 0, begin_ = 0;  // the size of the array and of a piece, and where this rank's begins
  DataType type_ = DataType::float32, gradient_type_ = DataType::float32;            // that layers use
  DataType kept_type_ = DataType::float32, kept_gradient_type_ = DataType::float32;  // of this rank's piece
  Buffer shard_, shard_gradient_;      // this rank's piece, as the optimizer sees it
  Buffer values_, gradients_;          // flat and whole, while they exist
  Buffer rounded_;                     // whole gradients between micro-batches, if kept in a narrower type than layers add in
  Buffer packed_, secondary_;          // values being gathered; this rank's part of the neighbours' copy
  Buffer loaded_;                      // this rank's piece being loaded from the store, for the next gather
  Buffer leaving_, sum_, narrow_sum_;  // of the current reduction: its input, and its output if that is not the piece
  Request gather_, reduction_;
  const ReductionTree* tree_ = nullptr;
  std::optional<TreeExchange<Exec>> exchange_;  // in place of the reduction
  bool gathering_ = false, here_ = false, reduced_ = false, keeps_secondary_ = false, summed_over_copies_ = true, folded_ = false;
};

template <class Exec>
void FlatParameterGroup<Exec>::add(ParameterState* state) {
  members_.push_back({state, elements_});
  elements_ += (state->size() + grain - 1) / grain * grain;
}

template <class Exec>
void FlatParameterGroup<Exec>::place() {
  const ParameterState& any = *members_.front().state;
  for (const FlatMember& member : members_)
    if (member.state->type() != any.type())
      throw_error<UsageError>(
          {"parameters ", any.name(), " and ", member.state->name(), " of one unit differ in their element type"});
  type_ = any.type();
  gradient_type_ = any.gradient_type();
  // A stored piece is the parameter itself, half the bytes to load for each gather; its master copy is then in the store, too.
  kept_type_ = settings_->rules.keeps_values || stored() ? type_ : gradient_type_;
  kept_gradient_type_ = settings_->kept_gradient_type(any);
  piece_ = ((elements_ + sharers() - 1) / sharers() + grain - 1) / grain * grain;
  begin_ = std::size_t(ranks_.sharing.rank()) * piece_;
  lay_out_gradients();
  if (any.info().gradient_only) {
    for (const FlatMember& member : members_) keep(member);
    return;
  }
  if (settings_->rules.keeps_values) values_ = device_->allocate_persistent(piece_ * sharers() * value_bytes());
  Buffer shard = settings_->rules.keeps_values ? at(values_, begin_ * value_bytes())
                 : stored()                    ? device_->allocate(piece_ * kept_bytes())
                                               : device_->allocate_persistent(piece_ * kept_bytes());
  fill_zero(*device_, static_cast<char*>(shard.get()), piece_ * kept_bytes());
  for (const FlatMember& member : members_) {
    ParameterState& state = *member.state;
    keep(member);
    if (state.kept() == 0) continue;
    initialise(state, at(shard, (first_kept(member) - begin_) * kept_bytes()));
    if (!stored()) continue;
    state.storage().offload(settings_->store, settings_->store->record(state.kept() * value_bytes()));
    write_record(*device_, *state.storage().store(), state.storage().record(), state.value().get(), state.kept() * value_bytes());
    state.storage().set_value(nullptr);
  }
  if (stored()) settings_->store->commit();
  else shard_ = std::move(shard);
}

template <class Exec>
void FlatParameterGroup<Exec>::lay_out_gradients() {
  close();
  rounded_ = shard_gradient_ = nullptr;
  summed_.clear();
  begins_.assign(sharers() + 1, 0);
  counts_.resize(sharers());
  // A rank sums the gradients of the elements that it keeps: a frozen parameter takes its elements out of the pieces.
  for (std::size_t rank = 0; rank <= sharers(); ++rank) begins_[rank] = rank * piece_;
  std::size_t frozen = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const std::size_t first = members_[i].first, end = i + 1 < members_.size() ? members_[i + 1].first : elements_;
    if (members_[i].state->trainable()) {
      summed_.push_back({members_[i].state, first - frozen});
      continue;
    }
    members_[i].state->gradients().drop();
    for (std::size_t rank = 0; rank <= sharers(); ++rank) begins_[rank] -= std::clamp(rank * piece_, first, end) - first;
    frozen += end - first;
  }
  if (summed_.empty()) {
    begins_.assign(sharers() + 1, 0);
    return;
  }
  if (settings_->rules.keeps_gradients) {
    if (rounds()) rounded_ = device_->allocate_persistent(gradient_elements() * kept_gradient_bytes());
    else open();
    shard_gradient_ = at(rounds() ? rounded_ : gradients_, begins_[my_rank()] * kept_gradient_bytes());
  } else {
    shard_gradient_ = device_->allocate_persistent(gradient_piece() * kept_gradient_bytes());
  }
}

template <class Exec>
void FlatParameterGroup<Exec>::open() {
  if (!gradients_) {
    const std::size_t bytes = gradient_elements() * gradient_bytes();
    gradients_ = settings_->rules.keeps_gradients && !rounds() ? device_->allocate_persistent(bytes) : device_->allocate(bytes);
    std::size_t used = 0;
    const auto clear = [&](std::size_t from, std::size_t to) {
      fill_zero(*device_, static_cast<char*>(gradients_.get()) + from * gradient_bytes(), (to - from) * gradient_bytes());
    };
    for (const FlatMember& member : summed_) {
      clear(used, member.first);
      used = member.first + member.state->size();
    }
    clear(used, gradient_elements());
  }
  for (const FlatMember& member : summed_)
    member.state->gradients().set_layer_buffer(at(gradients_, member.first * gradient_bytes()));
}

template <class Exec>
void FlatParameterGroup<Exec>::fold() {
  open();
  add_folded();
  dispatch_narrow(kept_gradient_type_,
                  [&](auto zero) { cast<float, decltype(zero)>(gradient_elements(), gradients_, rounded_); });
  close();
  folded_ = true;
}

template <class Exec>
void FlatParameterGroup<Exec>::begin(bool training) {
  drop();
  used = false;
  secondary_.reset();
  keeps_secondary_ = settings_->secondary && training;
  reduced_ = folded_ = false;
}

template <class Exec>
void FlatParameterGroup<Exec>::gather() {
  if (here_ || gathering_) return;
  const std::size_t bytes = piece_ * value_bytes();
  if (!settings_->rules.keeps_values) values_ = device_->allocate(bytes * sharers());
  gathering_ = true;
  if (secondary_) {
    gather_ = ranks_.neighbours.all_gather_async(words(secondary_, secondary_bytes()), words(values_, bytes * sharers()));
    return;
  }
  Buffer mine = shard_;
  if (stored()) {
    mine = load();
  } else if (kept_type_ != type_) {
    mine = at(values_, begin_ * value_bytes());
    dispatch_narrow(type_, [&](auto zero) { cast<float, decltype(zero)>(piece_, shard_, mine); });
  }
  if (settings_->quantised) {
    packed_ = device_->allocate(packed_bytes() * sharers());
    const Buffer own = at(packed_, std::size_t(ranks_.sharing.rank()) * packed_bytes());
    dispatch_real(type_, [&](auto zero) {
      using T = decltype(zero);
      kernels::quantise<T>(*device_, piece_, static_cast<const T*>(mine.get()), static_cast<std::int8_t*>(own.get()),
                           scales<T>(own));
    });
    gather_ = ranks_.sharing.all_gather_async(words(own, packed_bytes()), words(packed_, packed_bytes() * sharers()));
  } else {
    gather_ = ranks_.sharing.all_gather_async(words(mine, bytes), words(values_, bytes * sharers()));
  }
}

template <class Exec>
void FlatParameterGroup<Exec>::read_ahead() {
  if (!stored() || here_ || gathering_ || secondary_) return;
  if constexpr (Traffic::beside) {
    if (loaded_) return;
    loaded_ = device_->allocate(piece_ * value_bytes());
    fetch(loaded_);
    return;
  }
  for (const FlatMember& member : members_)
    if (member.state->kept() != 0) member.state->storage().store()->read_ahead(member.state->storage().record());
}

template <class Exec>
void FlatParameterGroup<Exec>::wait() {
  if (!gathering_) return;
  gather_.wait();
  loaded_.reset();
  gathering_ = false;
  here_ = true;
  if (packed_) {
    for (std::size_t rank = 0; rank < sharers(); ++rank)
      dispatch_real(type_, [&](auto zero) {
        using T = decltype(zero);
        const Buffer from = at(packed_, rank * packed_bytes());
        kernels::dequantise<T>(*device_, piece_, static_cast<const std::int8_t*>(from.get()), scales<T>(from),
                               static_cast<T*>(values_.get()) + rank * piece_);
      });
    packed_.reset();
  }
  if (keeps_secondary_ && !secondary_) {
    secondary_ = device_->allocate(secondary_bytes());
    const auto from = words(at(values_, std::size_t(ranks_.neighbours.rank()) * secondary_bytes()), secondary_bytes());
    using Words = Kokkos::View<std::int64_t*, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    Kokkos::deep_copy(device_->exec(), Words(words(secondary_, secondary_bytes()).data(), from.size()),
                      Words(from.data(), from.size()));
  }
  for (const FlatMember& member : members_) member.state->storage().set_gathered(at(values_, member.first * value_bytes()));
}

template <class Exec>
void FlatParameterGroup<Exec>::drop() {
  wait();
  if (loaded_) traffic().arrive(*device_);  // the gather will not come: end the load before the block is used again
  loaded_.reset();
  here_ = false;
  for (const FlatMember& member : members_) member.state->storage().release();
  if (!settings_->rules.keeps_values) values_.reset();
}

template <class Exec>
void FlatParameterGroup<Exec>::reduce() {
  open();
  add_folded();
  leaving_ = gradients_;
  if (!settings_->rules.keeps_gradients || rounds()) close();
  summed_over_copies_ = tree_ != nullptr || ranks_.copies.size() == 1;
  // The first sum of a step goes to its place, but to a buffer beside it if that place is part of the input, holds the sum of
  // earlier micro-batches, or has another type.
  if (settings_->narrow || settings_->rules.keeps_gradients || reduced_ || rounds())
    sum_ = device_->allocate(gradient_piece() * gradient_bytes());
  if (tree_ != nullptr) {
    exchange_.emplace(ranks_.all, *device_, *tree_, gradient_type_, leaving_, begins_, summed_);
    return;
  }
  if (!settings_->narrow) {
    dispatch_gradient(gradient_type_, [&](auto zero) { scatter<decltype(zero)>(sum_ ? sum_ : shard_gradient_); });
    return;
  }
  const Buffer rounded = device_->allocate(gradient_elements() * sizeof(bfloat16));
  dispatch_gradient(gradient_type_, [&](auto zero) {
    using G = decltype(zero);
    kernels::cast<G, bfloat16>(*device_, gradient_elements(), static_cast<const G*>(leaving_.get()),
                               static_cast<bfloat16*>(rounded.get()));
  });
  leaving_ = rounded;
  narrow_sum_ = device_->allocate(gradient_piece() * sizeof(bfloat16));
  scatter<bfloat16>(narrow_sum_);
}

template <class Exec>
bool FlatParameterGroup<Exec>::test() {
  return exchange_ ? exchange_->test() : reduction_.test();
}

template <class Exec>
void FlatParameterGroup<Exec>::settle() {
  if (exchange_) exchange_->finish((sum_ ? sum_ : shard_gradient_).get());
  exchange_.reset();
  reduction_.wait();
  dispatch_gradient(gradient_type_, [&](auto zero) {
    using G = decltype(zero);
    if (narrow_sum_)
      kernels::cast<bfloat16, G>(*device_, gradient_piece(), static_cast<const bfloat16*>(narrow_sum_.get()),
                                 static_cast<G*>(sum_.get()));
    if (!sum_ || rounds()) return;
    const G* sum = static_cast<const G*>(sum_.get());
    G* shard = static_cast<G*>(shard_gradient_.get());
    if (reduced_) kernels::accumulate<G, G>(*device_, gradient_piece(), sum, shard);
    else kernels::cast<G, G>(*device_, gradient_piece(), sum, shard);
  });
  if (rounds())
    dispatch_narrow(kept_gradient_type_, [&](auto zero) {
      using N = decltype(zero);
      if (reduced_)
        kernels::accumulate<float, N>(*device_, gradient_piece(), static_cast<const float*>(sum_.get()),
                                      static_cast<N*>(shard_gradient_.get()));
      else cast<float, N>(gradient_piece(), sum_, shard_gradient_);
    });
  auto summed = summed_.begin();
  for (const FlatMember& member : members_) {
    if (!member.state->trainable()) continue;
    if (member.state->kept() != 0)
      member.state->gradients().set_buffer(at(shard_gradient_, gradient_kept(member, *summed) * kept_gradient_bytes()));
    ++summed;
  }
  reduced_ = true;
  sum_.reset();
  narrow_sum_.reset();
  leaving_.reset();
}

template <class Exec>
void FlatParameterGroup<Exec>::start_copies() {
  if (!reduced_ || summed_over_copies_) return;
  reduction_ = ranks_.copies.all_reduce_async(comm::elements_of<float, double, bfloat16, float16>(
      kept_gradient_type_, weft::detail::memory_kind<Tensor<float, Exec>>(), shard_gradient_.get(), gradient_piece()));
}

template <class Exec>
void FlatParameterGroup<Exec>::finish() {
  reduction_.wait();
  wait();
  if (!settings_->rules.keeps_values) drop();
  secondary_.reset();
}

template <class Exec>
Buffer FlatParameterGroup<Exec>::at(const Buffer& buffer, std::size_t bytes) {
  return Buffer(buffer, static_cast<char*>(buffer.get()) + bytes);
}

template <class Exec>
std::span<std::int64_t> FlatParameterGroup<Exec>::words(const Buffer& buffer, std::size_t bytes) {
  return {static_cast<std::int64_t*>(buffer.get()), bytes / sizeof(std::int64_t)};
}

template <class Exec>
std::size_t FlatParameterGroup<Exec>::sharers() const {
  return std::size_t(ranks_.sharing.size());
}

template <class Exec>
void FlatParameterGroup<Exec>::add_folded() {
  if (!folded_) return;
  dispatch_narrow(kept_gradient_type_, [&](auto zero) {
    using N = decltype(zero);
    kernels::accumulate<N, float>(*device_, gradient_elements(), static_cast<const N*>(rounded_.get()),
                                  static_cast<float*>(gradients_.get()));
  });
}

template <class Exec>
void FlatParameterGroup<Exec>::close() {
  for (const FlatMember& member : summed_) member.state->gradients().set_layer_buffer(nullptr);
  gradients_.reset();
}

template <class Exec>
void FlatParameterGroup<Exec>::initialise(ParameterState& state, Buffer place) {
  const bool wide = kept_type_ != type_;
  state.storage().set_value(wide ? device_->allocate(state.kept() * value_bytes()) : place);
  dispatch_real(state.type(), [&](auto zero) { initialise_parameter<decltype(zero)>(*device_, state, settings_->seed); });
  if (!wide) return;
  dispatch_narrow(type_, [&](auto zero) { cast<decltype(zero), float>(state.kept(), state.value(), place); });
  state.storage().set_value(std::move(place));
}

template <class Exec>
bool FlatParameterGroup<Exec>::stored() const {
  return settings_->store != nullptr && !settings_->rules.keeps_values;
}

template <class Exec>
std::size_t FlatParameterGroup<Exec>::secondary_bytes() const {
  return piece_ * sharers() * value_bytes() / std::size_t(ranks_.neighbours.size());
}

template <class Exec>
std::size_t FlatParameterGroup<Exec>::packed_bytes() const {
  return integer_bytes() + (kernels::quantised_blocks(piece_) * (type_ == DataType::float64 ? 8 : 4) + 63) / 64 * 64;
}

template <class Exec>
std::size_t FlatParameterGroup<Exec>::first_kept(const FlatMember& member) const {
  return std::max(begin_, member.first);
}

template <class Exec>
void FlatParameterGroup<Exec>::keep(const FlatMember& member) const {
  ParameterState& state = *member.state;
  const std::size_t first = std::clamp(begin_, member.first, member.first + state.size()),
                    last = std::clamp(begin_ + piece_, member.first, member.first + state.size());
  state.storage().keep(
      {last - first, kept_type_, kept_gradient_type_,
       first != last ? cut_runs(state.info().runs, first - member.first, last - member.first) : std::vector<Run>()});
}

template <class Exec>
Buffer FlatParameterGroup<Exec>::load() {
  if (loaded_) {
    traffic().arrive(*device_);
    return loaded_;
  }
  const Buffer mine = at(values_, begin_ * value_bytes());
  fetch(mine);
  traffic().arrive(*device_);
  return mine;
}

template <class Exec>
void FlatParameterGroup<Exec>::fetch(const Buffer& to) {
  fill_zero(*device_, static_cast<char*>(to.get()), piece_ * value_bytes());
  for (const FlatMember& member : members_)
    if (const ParameterState& state = *member.state; state.kept() != 0)
      traffic().fetch(*device_, *state.storage().store(), state.storage().record(),
                      static_cast<char*>(to.get()) + (first_kept(member) - begin_) * value_bytes(), state.kept() * value_bytes());
}

}  // namespace weft::detail

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class FlatParameterGroup<Kokkos::DefaultHostExecutionSpace>;
}  // namespace weft::detail
#endif
