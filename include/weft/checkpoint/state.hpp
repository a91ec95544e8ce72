// SPDX-License-Identifier: Apache-2.0
#pragma once
// The training state of a rank as logical tensors: parameters, optimizer state, and the layers' buffers. Each item holds the runs
// of this rank's elements, and functions that read and write them, for all types and stores.
//
//   detail::State state = detail::state_of(model, optimizer);

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/checkpoint/blocks.hpp>
#include <weft/checkpoint/config_numbers.hpp>
#include <weft/checkpoint/data_types.hpp>
#include <weft/checkpoint/index.hpp>
#include <weft/checkpoint/kept.hpp>
#include <weft/context/step_buffers.hpp>
#include <weft/core/scalar.hpp>
#include <weft/device/device.hpp>
#include <weft/device/offload_store.hpp>
#include <weft/engine/hook/keeper.hpp>
#include <weft/engine/parameter_state.hpp>
#include <weft/optim/optimizer.hpp>

namespace weft::checkpoint {

/// Optimizers that save and load accept: optim::AdamW and every other optim::Optimizer<Rule>.
template <class O>
concept StoredOptimizer = requires(O& optimizer) {
  optimizer.slots();
  optimizer.steps();
};

/// Models that save and load accept: those in a wrapper, which lays them over ranks.
template <class M>
concept StoredModel = requires(M& model) {
  model.communicator();
};

namespace detail {

/// This rank's part of a logical tensor.
struct Item {
  std::string name, kind;
  StoredType type = StoredType::f32;  ///< stored type
  StoredType of = StoredType::f32;    ///< type in the layers
  StoredType wide = StoredType::f32;  ///< type of the master copy; `of` if there is none
  std::vector<std::size_t> shape;
  Runs runs;              ///< this rank's elements in the tensor
  std::uint64_t row = 0;  ///< elements of the tensor after which the pattern of runs repeats
  std::size_t size = 0;   ///< elements on this rank, padding included
  bool counted = true;    ///< if several ranks have the same elements, this one counts them
  std::function<Bytes()> read;
  /// Writes `size` elements of type `of` or `wide`. Called first with `undone` for stores that can roll back until they commit,
  /// then without for all others.
  std::function<void(const std::byte*, StoredType, bool undone)> write;
  /// The elements, if they are in host memory and need no conversion: then they are written here, without `write`. Their type is
  /// `memory_type`.
  std::byte* memory = nullptr;
  StoredType memory_type = StoredType::f32;
};

struct State {
  std::vector<Item> items;
  std::uint64_t seed = 0;
  std::optional<std::uint64_t> optimizer_steps, next_step;
  std::optional<StoredLossScale> loss_scale;
  std::map<std::string, std::uint64_t> begun;
  Numbers config, layout;
  std::map<std::string, std::string> files;  ///< texts of the folder from which the model came (models::FolderFiles)
  std::vector<std::string> frozen;           ///< parameters without optimizer state
  weft::detail::Store* store = nullptr;
};

/// Converts `count` 16-bit numbers to float, or back with rounding to nearest even.
template <class T>
std::shared_ptr<std::byte[]> widened(const std::byte* narrow, std::size_t count) {
  std::shared_ptr<std::byte[]> out(new std::byte[count * 4 + 1]);
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, narrow + i * 2, 2);
    const float wide = float(value);
    std::memcpy(out.get() + i * 4, &wide, 4);
  }
  return out;
}
template <class T>
std::shared_ptr<std::byte[]> narrowed(const std::byte* wide, std::size_t count) {
  std::shared_ptr<std::byte[]> out(new std::byte[count * 2 + 1]);
  for (std::size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, wide + i * 4, 4);
    const T narrow(value);
    std::memcpy(out.get() + i * 2, &narrow, 2);
  }
  return out;
}
/// The master copies, except where the value is not the rounding of its master: a program has then assigned the value.
template <class T>
Bytes master_that_counts(const Bytes& master, const Bytes& value, std::size_t count) {
  std::shared_ptr<std::byte[]> written;
  for (std::size_t i = 0; i < count; ++i) {
    float wide;
    T narrow;
    std::memcpy(&wide, master.data + i * 4, 4);
    std::memcpy(&narrow, value.data + i * 2, 2);
    if (T(wide).bits == narrow.bits) continue;
    if (!written) {
      written.reset(new std::byte[count * 4]);
      std::memcpy(written.get(), master.data, count * 4);
    }
    wide = float(narrow);
    std::memcpy(written.get() + i * 4, &wide, 4);
  }
  if (!written) return master;
  return {written, written.get()};
}

/// The distance after which the runs of a parameter repeat.
inline std::uint64_t row_of(const ParameterInfo& info) {
  std::uint64_t row = info.global.size();
  for (std::size_t dim = 0; dim < info.global.rank(); ++dim) {
    if (info.local[dim] != info.global[dim]) return row;
    row = info.global[dim] > 0 ? row / info.global[dim] : 0;
  }
  return info.global.size();
}

inline Item item_of(const ParameterState& state, std::string name, std::string kind, StoredType type, StoredType of) {
  Item item;
  item.name = std::move(name);
  item.kind = std::move(kind);
  item.type = type;
  item.of = item.wide = of;
  for (std::size_t dim = 0; dim < state.global().rank(); ++dim) item.shape.push_back(state.global()[dim]);
  item.runs = state.runs();
  item.row = row_of(state.info());
  item.size = state.kept();
  item.counted = state.counted();
  return item;
}

/// A parameter with its separate master copy, if it has one. `slot` may be null.
template <class Device>
Item parameter_item(Device& device, ParameterState& state, const optim::Slot* slot, weft::detail::Store* store) {
  const StoredType of = stored_type(state.type()), wide = stored_type(state.gradient_type());
  const bool kept_wide = state.kept_type() != state.type(), beside = !kept_wide && wide != of && slot != nullptr && slot->made;
  Item item = item_of(state, state.name(), "parameter", kept_wide || beside ? wide : of, of);
  item.wide = wide;
  const std::size_t count = state.kept();
  const Kept<Device> value = state.storage().store()
                                 ? Kept<Device>(device, *store, state.storage().record(), count * weft::size_of(state.type()))
                                 : Kept<Device>(device, state.value(), count * weft::size_of(state.kept_type()));
  std::optional<Kept<Device>> master, guard;
  if (slot != nullptr && slot->made && count != 0) {
    const std::size_t buffers = slot->kept.size() + (beside ? 1 : 0);
    if (beside)
      master = slot->records.empty() ? Kept<Device>(device, slot->master, count * 4)
                                     : Kept<Device>(device, *store, slot->records.front(), count * 4);
    if (slot->records.size() > buffers)  // copy of a device parameter, from which a failed step restores it
      guard = Kept<Device>(device, *store, slot->records.back(), count * weft::size_of(state.type()));
  }
  const DataType type = state.type();
  item.read = [value, master, count, type] {
    if (!master) return value.read();
    return type == DataType::bfloat16 ? master_that_counts<bfloat16>(master->read(), value.read(), count)
                                      : master_that_counts<float16>(master->read(), value.read(), count);
  };
  item.write = [value, master, guard, count, type, of, kept_wide](const std::byte* bytes, StoredType is, bool undone) {
    const bool is_wide = is != of;
    std::shared_ptr<std::byte[]> other;  // the same numbers in the other type
    const auto as = [&](bool as_wide) {
      if (as_wide == is_wide) return bytes;
      if (!other) {
        if (as_wide) other = type == DataType::bfloat16 ? widened<bfloat16>(bytes, count) : widened<float16>(bytes, count);
        else other = type == DataType::bfloat16 ? narrowed<bfloat16>(bytes, count) : narrowed<float16>(bytes, count);
      }
      return static_cast<const std::byte*>(other.get());
    };
    value.write(as(kept_wide), undone);
    if (master) master->write(as(true), undone);
    if (guard) guard->write(as(false), undone);
  };
  if (!master && !guard) item.memory = value.memory();
  item.memory_type = kept_wide ? wide : of;
  return item;
}

/// The names of a rule's buffers: `static constexpr std::array<std::string_view, buffers> buffer_names`. The one behind them is
/// the parameter's average.
template <class Rule>
std::string buffer_name(const optim::Slot& slot, std::size_t i) {
  if (i == optim::detail::rule_buffers<Rule>(slot.whole)) return "ema";
  if constexpr (requires { Rule::whole_buffer_names; })
    if (slot.whole) return std::string(Rule::whole_buffer_names[i]);
  if constexpr (requires { Rule::buffer_names; }) return std::string(Rule::buffer_names[i]);
  return weft::detail::joined({"state", i});
}

/// A model whose config keeps the texts of the folder from which it was read.
template <class Model>
constexpr bool has_files = requires(Model& model) {
  model.stages().config().files.type;
  model.stages().config().files.config;
  model.stages().config().files.generation;
};

template <class Model>
void add_model(State& state, Model& model) {
  state.seed = model.options().seed;
  state.store = model.options().shard.offload.store.get();
  if constexpr (requires { model.stages().config(); }) state.config = config_numbers(model.stages().config());
  if constexpr (has_files<Model>) {
    const auto& files = model.stages().config().files;
    if (!files.config.empty()) state.files = {{"type", files.type}, {"config", files.config}, {"generation", files.generation}};
  }
  if (const auto& lora = model.options().lora; lora.rank != 0) state.config.emplace_back("lora.alpha", number_text(lora.alpha));
  if constexpr (requires { model.for_each_axis([](std::string_view, std::size_t) {}); }) {
    model.for_each_axis(
        [&](std::string_view name, std::size_t degree) { state.layout.emplace_back(name, std::to_string(degree)); });
    state.layout.emplace_back("zero", std::to_string(model.options().shard.stage));
  }
  if (const auto& scale = model.loss_scale()) state.loss_scale = StoredLossScale{scale->value(), scale->good_steps()};
  if constexpr (requires { model.stages().gradients(); }) state.next_step = model.stages().gradients()->next;
  for (const auto& buffer : model.buffers()) {
    Item item;
    item.name = buffer->name;
    item.kind = "buffer";
    item.type = item.of = item.wide = StoredType::f64;
    item.size = item.row = buffer->value.size();
    item.shape = {item.size};
    item.runs = {{0, 0, item.size}};
    item.read = [kept = buffer] { return Bytes{kept, reinterpret_cast<const std::byte*>(kept->value.data())}; };
    item.write = [kept = buffer](const std::byte* bytes, StoredType, bool undone) {
      if (!undone && !kept->value.empty()) std::memcpy(kept->value.data(), bytes, kept->value.size() * sizeof(double));
    };
    state.items.push_back(std::move(item));
  }
}

/// The state of communication hooks, which belongs to one rank and one layout. `index`: of the checkpoint to load, or null.
template <class Model>
std::vector<Item> hook_items([[maybe_unused]] Model& model, [[maybe_unused]] const Index* index) {
  std::vector<Item> items;
  if constexpr (requires(hook::Keeper & keeper) { model.keep_hooks(keeper); }) {
    const std::string place = weft::detail::joined({"hook.rank-", model.communicator().rank(), "."});
    const auto stored = [&](const std::string& name) {
      return std::any_of(index->tensors.begin(), index->tensors.end(),
                         [&](const LogicalTensor& tensor) { return tensor.kind == "hook" && tensor.name == place + name; });
    };
    hook::Keeper keeper = index != nullptr ? hook::Keeper(stored) : hook::Keeper();
    model.keep_hooks(keeper);
    auto& device = model.device();
    for (const hook::Keeper::Kept& kept : keeper.kept()) {
      Item item;
      item.name = place + kept.name;
      item.kind = "hook";
      item.type = item.of = item.wide = stored_type(kept.type);
      item.size = item.row = kept.elements;
      item.shape = {item.size};
      item.runs = {{0, 0, item.size}};
      if (std::int64_t* number = kept.number) {
        item.read = [number] { return Bytes{nullptr, reinterpret_cast<const std::byte*>(number)}; };
        item.write = [number](const std::byte* bytes, StoredType, bool undone) {
          if (!undone) std::memcpy(number, bytes, sizeof *number);
        };
      } else {
        const Kept<std::remove_reference_t<decltype(device)>> memory(device, kept.buffer,
                                                                     kept.elements * weft::size_of(kept.type));
        item.read = [memory] { return memory.read(); };
        item.write = [memory](const std::byte* bytes, StoredType, bool undone) { memory.write(bytes, undone); };
      }
      items.push_back(std::move(item));
    }
  }
  return items;
}

/// True if the model is rehearsed, and so has no values, or proven, in many layouts at once: nothing is saved or loaded.
template <class Model>
bool leaves_files_alone(Model& model) {
  return model.device().rehearsal() != nullptr || model.device().proof() != nullptr;
}

/// The state of a model without an optimizer.
template <class Model>
State state_of(Model& model) {
  State state;
  add_model(state, model);
  auto& device = model.device();
  model.for_each_state(
      [&](ParameterState& parameter) { state.items.push_back(parameter_item(device, parameter, nullptr, state.store)); });
  return state;
}

/// The arrays of a whole matrix, which its home rank has. The other ranks have items without elements.
template <class Rule, class Device>
void add_home_items(State& state, Device& device, const optim::Slot& slot) {
  const auto sizes = Rule::home_elements(*slot.state);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) continue;
    Item item;
    item.name = weft::detail::joined({slot.state->name(), ".", Rule::home_names[i]});
    item.kind = "optimizer";
    item.type = item.of = item.wide = stored_type(slot.state->gradient_type());
    item.shape = {sizes[i]};
    item.row = sizes[i];
    item.size = slot.home.empty() ? 0 : sizes[i];
    if (item.size != 0) item.runs = {{0, 0, item.size}};
    const Kept<Device> kept(device, item.size == 0 ? nullptr : slot.home[i],
                            item.size * weft::size_of(slot.state->gradient_type()));
    item.read = [kept] { return kept.read(); };
    item.write = [kept](const std::byte* from, StoredType, bool undone) { kept.write(from, undone); };
    state.items.push_back(std::move(item));
  }
}

template <class Model, class Rule>
State state_of(Model& model, optim::Optimizer<Rule>& optimizer) {
  State state;
  add_model(state, model);
  state.optimizer_steps = optimizer.steps();
  optimizer.follow_trainable();
  auto& device = model.device();
  using Device = std::remove_reference_t<decltype(device)>;
  for (optim::Slot& slot : optimizer.slots()) {
    ParameterState& parameter = *slot.state;
    state.items.push_back(parameter_item(device, parameter, &slot, state.store));
    if (!slot.made) {
      state.frozen.push_back(parameter.name());
      continue;
    }
    if (slot.begun != 0) state.begun[parameter.name()] = slot.begun;
    const std::size_t buffers = parameter.kept() == 0 ? 0 : slot.kept.size(),
                      bytes = parameter.kept() * weft::size_of(parameter.gradient_type()),
                      first = parameter.type() != parameter.gradient_type() && parameter.kept_type() == parameter.type() ? 1 : 0;
    const StoredType type = stored_type(parameter.gradient_type());
    for (std::size_t i = 0; i < buffers; ++i) {
      Item item = item_of(parameter, parameter.name() + "." + buffer_name<Rule>(slot, i), "optimizer", type, type);
      const Kept<Device> kept = slot.records.empty() ? Kept<Device>(device, slot.kept[i], bytes)
                                                     : Kept<Device>(device, *state.store, slot.records[first + i], bytes);
      item.read = [kept] { return kept.read(); };
      item.write = [kept](const std::byte* from, StoredType, bool undone) { kept.write(from, undone); };
      state.items.push_back(std::move(item));
    }
    if constexpr (optim::detail::has_home<Rule>)
      if (slot.whole) add_home_items<Rule>(state, device, slot);
  }
  return state;
}

}  // namespace detail

}  // namespace weft::checkpoint
