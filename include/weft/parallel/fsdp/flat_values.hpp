// SPDX-License-Identifier: Apache-2.0
#pragma once
// The values of a flat array of parameters, of which each rank keeps a piece: on the device or in a store, as they are or, for
// parameters in 16 bits, as the master copy. They are gathered as they are, as 8-bit integers, or from neighbours (decision 25).

#include <utility>

#include <weft/autograd/parameter.hpp>
#include <weft/comm/communicator.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/parallel/fsdp/flat_array.hpp>
#include <weft/parallel/fsdp/packed_values.hpp>
#include <weft/parallel/fsdp/settings.hpp>
#include <weft/tensor/to.hpp>

namespace weft::detail {

template <class Exec>
class FlatValues {
  using Traffic = RecordTraffic<Exec>;

 public:
  FlatValues(const FlatArray& array, const ShardRanks& ranks, Device<Exec>& device, const ShardSettings& settings)
      : array_(&array), ranks_(&ranks), device_(&device), settings_(&settings) {}

  /// The type in which a piece is kept. A stored piece is the parameter itself, half the bytes to load for each gather; its
  /// master copy is then in the store, too.
  DataType kept_type(const ParameterState& any) const {
    return settings_->rules.keeps_values || stored() ? any.type() : any.gradient_type();
  }
  // Allocates and initialises this rank's piece of the array. The whole parameters never exist.
  void place();

  // Called when a step begins: the optimizer has updated the shards, so the gathered values are stale.
  void begin(bool training);
  void gather();
  // Starts the loads of the next gather.
  void read_ahead();
  void wait();
  void drop();
  // Called when a step ends.
  void finish();

 private:
  std::size_t value_bytes() const { return size_of(type_); }
  std::size_t kept_bytes() const { return size_of(kept_type_); }
  template <class From, class To>
  void cast(std::size_t count, const Buffer& from, const Buffer& to) {
    kernels::cast<From, To>(*device_, count, static_cast<const From*>(from.get()), static_cast<To*>(to.get()));
  }
  // A master copy starts from the parameter's value, so that every wrapper starts from the same bits.
  void initialise(ParameterState& state, Buffer place);
  bool stored() const;
  std::size_t secondary_bytes() const;
  PackedValues packed() const { return PackedValues(array_->piece, type_, 8); }
  // This rank's piece: the one that was loaded ahead, else loaded from the store to its place among the gathered values.
  Buffer load();
  void fetch(const Buffer& to);
  Traffic& traffic() { return device_->template cache<Traffic>(); }

  const FlatArray* array_;
  const ShardRanks* ranks_;
  Device<Exec>* device_;
  const ShardSettings* settings_;
  DataType type_ = DataType::float32, kept_type_ = DataType::float32;  // that layers use, and of this rank's piece
  Buffer shard_;                                                       // this rank's piece, as the optimizer sees it
  Buffer values_;                                                      // flat and whole, while they exist
  Buffer packed_, secondary_;  // values being gathered; this rank's part of the neighbours' copy
  Buffer loaded_;              // this rank's piece being loaded from the store, for the next gather
  Request gather_;
  bool gathering_ = false, here_ = false, keeps_secondary_ = false;
};

template <class Exec>
void FlatValues<Exec>::place() {
  type_ = array_->members.front().state->type();
  kept_type_ = kept_type(*array_->members.front().state);
  if (settings_->rules.keeps_values)
    values_ = device_->allocate_persistent(array_->size() * value_bytes(), MemoryCategory::parameters);
  Buffer shard = settings_->rules.keeps_values ? buffer_at(values_, array_->begin() * value_bytes())
                 : stored()                    ? device_->allocate(array_->piece * kept_bytes())
                            : device_->allocate_persistent(array_->piece * kept_bytes(), MemoryCategory::parameters);
  fill_zero(*device_, static_cast<char*>(shard.get()), array_->piece * kept_bytes());
  for (const FlatMember& member : array_->members) {
    ParameterState& state = *member.state;
    if (state.kept() == 0) continue;
    initialise(state, buffer_at(shard, (array_->first_kept(member) - array_->begin()) * kept_bytes()));
    if (!stored()) continue;
    state.storage().offload(settings_->store, settings_->store->record(state.kept() * value_bytes()));
    write_record(*device_, *state.storage().store(), state.storage().record(), state.value().get(), state.kept() * value_bytes());
    state.storage().set_value(nullptr);
  }
  if (stored()) settings_->store->commit();
  else shard_ = std::move(shard);
}

template <class Exec>
void FlatValues<Exec>::begin(bool training) {
  drop();
  secondary_.reset();
  keeps_secondary_ = settings_->secondary && training;
}

template <class Exec>
void FlatValues<Exec>::finish() {
  wait();
  if (!settings_->rules.keeps_values) drop();
  secondary_.reset();
}

template <class Exec>
void FlatValues<Exec>::gather() {
  if (here_ || gathering_) return;
  const std::size_t bytes = array_->piece * value_bytes();
  if (!settings_->rules.keeps_values) values_ = device_->allocate(bytes * array_->ranks);
  gathering_ = true;
  if (secondary_) {
    gather_ =
        ranks_->neighbours.all_gather_async(words_of(secondary_, secondary_bytes()), words_of(values_, bytes * array_->ranks));
    return;
  }
  Buffer mine = shard_;
  if (stored()) {
    mine = load();
  } else if (kept_type_ != type_) {
    mine = buffer_at(values_, array_->begin() * value_bytes());
    dispatch_narrow(type_, [&](auto zero) { cast<float, decltype(zero)>(array_->piece, shard_, mine); });
  }
  if (settings_->quantised) {
    const std::size_t message = packed().bytes();
    packed_ = device_->allocate(message * array_->ranks);
    const Buffer own = buffer_at(packed_, array_->rank * message);
    dispatch_real(type_, [&](auto zero) {
      using T = decltype(zero);
      packed().template pack<T>(*device_, array_->piece, static_cast<const T*>(mine.get()), own.get());
    });
    gather_ = ranks_->sharing.all_gather_async(words_of(own, message), words_of(packed_, message * array_->ranks));
  } else {
    gather_ = ranks_->sharing.all_gather_async(words_of(mine, bytes), words_of(values_, bytes * array_->ranks));
  }
}

template <class Exec>
void FlatValues<Exec>::read_ahead() {
  if (!stored() || here_ || gathering_ || secondary_) return;
  if constexpr (Traffic::beside) {
    if (loaded_) return;
    loaded_ = device_->allocate(array_->piece * value_bytes());
    fetch(loaded_);
    return;
  }
  for (const FlatMember& member : array_->members)
    if (member.state->kept() != 0) member.state->storage().store()->read_ahead(member.state->storage().record());
}

template <class Exec>
void FlatValues<Exec>::wait() {
  if (!gathering_) return;
  gather_.wait();
  loaded_.reset();
  gathering_ = false;
  here_ = true;
  if (packed_) {
    for (std::size_t rank = 0; rank < array_->ranks; ++rank)
      dispatch_real(type_, [&](auto zero) {
        using T = decltype(zero);
        packed().template unpack<T>(*device_, array_->piece, buffer_at(packed_, rank * packed().bytes()).get(),
                                    static_cast<T*>(values_.get()) + rank * array_->piece);
      });
    packed_.reset();
  }
  if (keeps_secondary_ && !secondary_) {
    secondary_ = device_->allocate(secondary_bytes());
    const auto from = words_of(buffer_at(values_, std::size_t(ranks_->neighbours.rank()) * secondary_bytes()), secondary_bytes());
    copy_rows(*device_, 1, from.size(), from.data(), from.size(), words_of(secondary_, secondary_bytes()).data(), from.size());
  }
  for (const FlatMember& member : array_->members)
    member.state->storage().set_gathered(buffer_at(values_, member.first * value_bytes()));
}

template <class Exec>
void FlatValues<Exec>::drop() {
  wait();
  if (loaded_) traffic().arrive(*device_);  // the gather will not come: end the load before the block is used again
  loaded_.reset();
  here_ = false;
  for (const FlatMember& member : array_->members) member.state->storage().release();
  if (!settings_->rules.keeps_values) values_.reset();
}

template <class Exec>
void FlatValues<Exec>::initialise(ParameterState& state, Buffer place) {
  const bool wide = kept_type_ != type_;
  state.storage().set_value(wide ? device_->allocate(state.kept() * value_bytes()) : place);
  dispatch_real(state.type(), [&](auto zero) { initialise_parameter<decltype(zero)>(*device_, state, settings_->seed); });
  if (!wide) return;
  dispatch_narrow(type_, [&](auto zero) { cast<decltype(zero), float>(state.kept(), state.value(), place); });
  state.storage().set_value(std::move(place));
}

template <class Exec>
bool FlatValues<Exec>::stored() const {
  return settings_->store != nullptr && !settings_->rules.keeps_values;
}

template <class Exec>
std::size_t FlatValues<Exec>::secondary_bytes() const {
  return array_->size() * value_bytes() / std::size_t(ranks_->neighbours.size());
}

template <class Exec>
Buffer FlatValues<Exec>::load() {
  if (loaded_) {
    traffic().arrive(*device_);
    return loaded_;
  }
  const Buffer mine = buffer_at(values_, array_->begin() * value_bytes());
  fetch(mine);
  traffic().arrive(*device_);
  return mine;
}

template <class Exec>
void FlatValues<Exec>::fetch(const Buffer& to) {
  fill_zero(*device_, static_cast<char*>(to.get()), array_->piece * value_bytes());
  for (const FlatMember& member : array_->members)
    if (const ParameterState& state = *member.state; state.kept() != 0)
      traffic().fetch(*device_, *state.storage().store(), state.storage().record(),
                      static_cast<char*>(to.get()) + (array_->first_kept(member) - array_->begin()) * value_bytes(),
                      state.kept() * value_bytes());
}

}  // namespace weft::detail

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class FlatValues<Kokkos::DefaultHostExecutionSpace>;
}  // namespace weft::detail
#endif
