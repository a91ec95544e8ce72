// SPDX-License-Identifier: Apache-2.0
#pragma once
// A `transformers` folder read into a model of any layout. Each rank reads the bytes of its own elements, in 16 or 32 bits. No
// parameter changes before all ranks have read all their elements into the page cache.
//
//   Model model(mesh, hugging_face::read_config<models::LlamaConfig>("llama"));
//   hugging_face::load("llama", model, optimizer);

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <weft/checkpoint/config_numbers.hpp>
#include <weft/checkpoint/load.hpp>
#include <weft/checkpoint/state.hpp>
#include <weft/checkpoint/together.hpp>
#include <weft/comm/agree.hpp>
#include <weft/comm/in_function.hpp>
#include <weft/core/scalar.hpp>
#include <weft/engine/lora_options.hpp>
#include <weft/hugging_face/config.hpp>
#include <weft/hugging_face/weights.hpp>

namespace weft::hugging_face {

/// Options of load.
struct LoadOptions {
  FileSystem* system = &FileSystem::system();
};

namespace detail {

using checkpoint::detail::Item;

/// Converts `count` numbers from From to To.
template <class From, class To>
void convert(const std::byte* from, std::byte* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));
    const To other = To(float(value));
    std::memcpy(to + i * sizeof(To), &other, sizeof(To));
  }
}
template <class To>
void convert_to(StoredType type, const std::byte* from, std::byte* to, std::size_t count) {
  if (type == StoredType::f16) convert<float16, To>(from, to, count);
  else if (type == StoredType::bf16) convert<bfloat16, To>(from, to, count);
  else convert<float, To>(from, to, count);
}

/// The type in which an item receives the numbers: the stored type if the model has it, otherwise the item's wider type.
inline StoredType taken_type(const Weights& weights, const Weight& weight, const Item& item) {
  const StoredType is = weight.stored->type;
  if (is == item.of || is == item.wide) return is;
  if ((is == StoredType::f16 || is == StoredType::bf16 || is == StoredType::f32) &&
      (item.wide == StoredType::f32 || item.wide == StoredType::f64))
    return item.wide;
  refuse(
      {weights.path(weight), weight.stored->name},
      {"is of type ", checkpoint::name_of(is), ", which does not fit into a parameter of type ", checkpoint::name_of(item.of)});
}

/// Throws if a finite number of the file would not be finite in the model.
inline void require_range(const std::string& path, const Weight& weight, const Item& item, const std::byte* floats) {
  for (std::size_t i = 0; i < item.size; ++i) {
    float value;
    std::memcpy(&value, floats + i * sizeof value, sizeof value);
    if (std::isfinite(value) && !std::isfinite(float(float16(value))))
      refuse({path, weight.stored->name},
             {"has ", checkpoint::detail::number_text(value), ", and the model's float16 ends at 65504"});
  }
}

/// Reads this rank's elements into `out`, which is zero. Runs that are close together are read at once, including the gaps.
inline void read_weight(const Weights& weights, const Weight& weight, const Item& item, StoredType as, std::byte* out,
                        std::vector<std::byte>& buffer) {
  constexpr std::uint64_t most = 1u << 18, gap = 1u << 14;  // bytes that fit into a core's own cache
  const StoredType is = weight.stored->type;
  const std::uint64_t size = checkpoint::size_of(is), wide = checkpoint::size_of(as);
  const Safetensors& file = weights.file(weight);
  std::vector<checkpoint::detail::Run> runs = item.runs.sorted();
  std::erase_if(runs, [](const auto& run) { return run.length == 0; });
  for (std::size_t i = 0; i < runs.size();) {
    if (is == as && runs[i].length * size >= gap) {  // read a long run in place
      file.read(*weight.stored, std::span(out + runs[i].local * wide, runs[i].length * size),
                (weight.first + runs[i].global) * size);
      ++i;
      continue;
    }
    const std::uint64_t begin = runs[i].global;
    std::uint64_t end = begin + std::min<std::uint64_t>(runs[i].length, most / size);
    for (std::size_t next = i + 1; next < runs.size() && end == runs[next - 1].global + runs[next - 1].length; ++next) {
      const std::uint64_t last = runs[next].global + runs[next].length;
      if ((runs[next].global - end) * size > gap || (last - begin) * size > most) break;
      end = last;
    }
    buffer.resize((end - begin) * size);
    file.read(*weight.stored, buffer, (weight.first + begin) * size);
    for (; i < runs.size() && runs[i].global < end; ++i) {
      const std::uint64_t count = std::min<std::uint64_t>(runs[i].length, end - runs[i].global);
      const std::byte* from = buffer.data() + (runs[i].global - begin) * size;
      std::byte* to = out + runs[i].local * wide;
      if (is == as) std::memcpy(to, from, count * size);
      else if (as == StoredType::f64) convert_to<double>(is, from, to, count);
      else convert_to<float>(is, from, to, count);
      if (count == runs[i].length) continue;
      runs[i].global += count;  // the remainder of a long run
      runs[i].local += std::size_t(count);
      runs[i].length -= std::size_t(count);
      break;
    }
  }
}

/// Reads the bytes that read_weight needs into the page cache, at once if the gaps are small.
inline void bring_in(const Weights& weights, const Weight& weight, const Item& item) {
  const std::uint64_t size = checkpoint::size_of(weight.stored->type), gap = (1u << 16) / size;
  std::vector<checkpoint::detail::Run> runs = item.runs.sorted();
  for (std::size_t i = 0; i < runs.size();) {
    const std::uint64_t begin = runs[i].global;
    std::uint64_t end = begin + runs[i].length;
    for (++i; i < runs.size() && runs[i].global <= end + gap; ++i) end = std::max(end, runs[i].global + runs[i].length);
    weights.file(weight).bring_in(*weight.stored, (end - begin) * size, (weight.first + begin) * size);
  }
}

/// Throws if a stored last projection differs from the table to which the model ties it.
inline void require_tied(const Weights& weights, const std::string& table_name) {
  if (!weights.tied_head()) return;
  const Weight& head = *weights.tied_head();
  const Weight* table = weights.find(table_name);
  if (table == nullptr) return;  // missing tensors are reported elsewhere
  const auto differ = [&] {
    refuse(
        {weights.path(head), head.stored->name},
        {"differs from ", table->stored->name, ", and config.json ties them (tie_word_embeddings): one of the two is not meant"});
  };
  if (head.shape != table->shape || head.stored->type != table->stored->type) differ();
  std::vector<std::byte> a(1u << 20), b(a.size());
  for (std::uint64_t at = 0; at < head.stored->bytes(); at += a.size()) {
    const std::size_t some = std::size_t(std::min<std::uint64_t>(a.size(), head.stored->bytes() - at));
    weights.file(head).read(*head.stored, std::span(a.data(), some), at);
    weights.file(*table).read(*table->stored, std::span(b.data(), some), at);
    if (std::memcmp(a.data(), b.data(), some) != 0) differ();
  }
}

/// Throws if the model's config has other numbers than the folder's. Shapes are compared with the tensors.
template <class Config>
void require_config(const std::string& path, const Config& theirs, const Config& ours) {
  const auto said = checkpoint::detail::config_numbers(theirs), here = checkpoint::detail::config_numbers(ours);
  // Two kinds of scaled positions have different numbers; then the message names the kind.
  for (std::size_t i = 0; i < said.size() && i < here.size(); ++i)
    if (said[i] != here[i])
      refuse({path}, {"says ", said[i].first, " ", said[i].second, ", and this model has ", here[i].second,
                      ": make it of hugging_face::read_config(folder)"});
}

/// Returns the weight of each item. Throws Error on all ranks if the folder is of another model. Collective.
inline std::vector<const Weight*> match(const Communicator& ranks, const std::string& folder, const Weights& weights,
                                        const std::vector<Item>& items) {
  std::vector<const Weight*> found;
  std::vector<std::uint64_t> used(weights.all().size() + 1, 0);
  std::vector<std::string> missing;
  checkpoint::detail::together(ranks, [&] {
    for (const Item& item : items) {
      const auto at = weights.all().find(item.name);
      if (at == weights.all().end()) {
        missing.push_back(item.name);
        continue;
      }
      const Weight& weight = at->second;
      if (weight.shape != item.shape)
        refuse({weights.path(weight), item.name}, {"is ", checkpoint::detail::shape_text(weight.shape), ", and ",
                                                   checkpoint::detail::shape_text(item.shape), " in this model"});
      taken_type(weights, weight, item);
      used[std::size_t(std::distance(weights.all().begin(), at))] = 1;
      found.push_back(&weight);
    }
  });
  if (ranks.size() > 1) ranks.all_reduce(used, Reduction::max);
  std::vector<std::string> unexpected;
  std::size_t i = 0;
  for (const auto& [name, weight] : weights.all())
    if (!used[i++]) unexpected.push_back(name);
  const std::string more =
      unexpected.empty() ? std::string()
                         : weft::detail::joined({"it has ", unexpected.size(),
                                                 " tensors that this one has not: ", checkpoint::detail::some_of(unexpected)});
  checkpoint::detail::together(ranks, [&] {  // a pipeline stage checks only its own tensors
    if (!missing.empty())
      refuse({folder, missing.front()}, {"is of another model: it lacks ", missing.size(), " tensors of this one: ",
                                         checkpoint::detail::some_of(missing), more.empty() ? "" : "; ", more});
  });
  if (!more.empty()) refuse({folder, unexpected.front()}, {"is of another model: ", more});
  return found;
}

/// Throws UsageError on every rank unless all ranks read the same tensors. Collective.
inline void require_same_files(const Communicator& ranks, const Weights& weights) {
  std::string text;
  for (const auto& [name, weight] : weights.all())
    weft::detail::append_to(text,
                            {name, checkpoint::detail::shape_text(weight.shape), checkpoint::name_of(weight.stored->type), "\n"});
  const std::uint64_t words[] = {weights.all().size(), weft::detail::hash_bytes(text.data(), text.size())};
  if (const auto found = weft::detail::difference(ranks, words))
    weft::throw_error<UsageError>(
        {"hugging_face::load: rank ", found->rank,
         " sees other files than rank 0: all ranks read the same files and rename their tensors alike"});
}

/// Reads the items, then writes them. Collective.
inline void load_items(const std::string& folder, const Communicator& ranks, const Weights& weights,
                       checkpoint::detail::State& state);

/// Loads, and returns the texts of the folder for the model's config. Collective.
template <class Config>
models::FolderFiles load(const std::string& folder, const Communicator& ranks, checkpoint::detail::State state,
                         const Config& config, const LoadOptions& options) {
  checkpoint::detail::require_same_call(ranks, "load", folder, 0);
  std::erase_if(state.items, [](const Item& item) { return item.kind != "parameter" || weft::detail::is_adapter(item.name); });
  std::optional<Weights> weights;
  models::FolderFiles files;
  checkpoint::detail::together(ranks, [&] {
    const Config theirs = config_of_folder<Config>(folder, *options.system);
    require_config(checkpoint::detail::in_folder(folder, config_name), theirs, config);
    files = theirs.files;
    weights = Weights::open(folder, model_of<Config>(), config.tied, *options.system);
    if (ranks.rank() == 0)
      require_tied(*weights, std::is_same_v<Config, models::GptConfig> ? "transformer.wte.weight" : "model.embed_tokens.weight");
  });
  load_items(folder, ranks, *weights, state);
  return files;
}

inline void load_items(const std::string& folder, const Communicator& ranks, const Weights& weights,
                       checkpoint::detail::State& state) {
  require_same_files(ranks, weights);
  const std::vector<const Weight*> found = match(ranks, folder, weights, state.items);
  std::vector<StoredType> types(state.items.size());
  std::vector<std::byte> buffer, elements;
  const auto read = [&](std::size_t i) {
    const Item& item = state.items[i];
    elements.assign(item.size * checkpoint::size_of(types[i]), std::byte{0});
    read_weight(weights, *found[i], item, types[i], elements.data(), buffer);
  };
  checkpoint::detail::together(ranks, [&] {
    for (std::size_t i = 0; i < state.items.size(); ++i) {
      const Item& item = state.items[i];
      types[i] = taken_type(weights, *found[i], item);
      bring_in(weights, *found[i], item);
      if (item.of != StoredType::f16 || types[i] != StoredType::f32) continue;
      read(i);
      require_range(weights.path(*found[i]), *found[i], item, elements.data());
    }
  });
  const auto write = [&](bool undone) {
    for (std::size_t i = 0; i < state.items.size(); ++i) {
      const Item& item = state.items[i];
      if (item.size == 0) continue;
      if (item.memory != nullptr && item.memory_type == types[i] && item.runs.elements() == item.size) {
        if (!undone) read_weight(weights, *found[i], item, types[i], item.memory, buffer);
        continue;
      }
      read(i);
      item.write(elements.data(), types[i], undone);
    }
  };
  // Writing to a file of offloaded state may fail: no record is valid before all ranks have written theirs.
  if (state.store != nullptr) {
    const auto failure = checkpoint::detail::failure_of([&] { write(true); });
    try {
      checkpoint::detail::require_all(ranks, failure);
    } catch (...) {
      state.store->roll_back();
      throw;
    }
    state.store->commit();
  }
  auto failure = checkpoint::detail::failure_of([&] { write(false); });
  if (failure) failure->what += "; it could be read a moment ago, and some parameters have changed: load again, or end";
  checkpoint::detail::require_all(ranks, failure);
}

template <class Model, class... Optimizer>
void load_into(const std::string& folder, const LoadOptions& options, Model& model, Optimizer&... optimizer) {
  if constexpr (require_known<Model>()) {
    const comm::InFunction mark(model.communicator(), comm::ProgramFunction::hugging_face_load);
    if (checkpoint::detail::leaves_files_alone(model)) return;  // a rehearsal or proof
    model.stages().set_files(
        load(folder, model.communicator(), checkpoint::detail::state_of(model, optimizer...), model.stages().config(), options));
    model.discard_gradients();
    if constexpr (requires { model.stages().gradients(); }) model.stages().gradients()->restart(0);  // its steps are counted anew
  }
}

}  // namespace detail

/// Sets the parameters of a Gpt, Llama or Mixtral, in any layout, to those of a folder written by `transformers`: config.json and
/// model.safetensors or shards, in bfloat16, float16 or float. Conversions to a wider type are exact. Conversions to 16 bits
/// round to nearest even, and the optimizer's master copies receive the unrounded numbers. Its other state is unchanged: load
/// before the first step. Collective over the model's ranks, which must share a file system. Throws Error on every rank if the
/// folder is damaged or of another model, UsageError if ranks disagree; nothing changes in these cases. Accumulated gradients are
/// discarded, and the model counts its steps from 0. Adapters (Lora) are not in the folder and are unchanged: load_adapters.
template <class Model, checkpoint::StoredOptimizer Optimizer>
void load(const std::string& folder, Model& model, Optimizer& optimizer, const LoadOptions& options = {}) {
  detail::load_into(folder, options, model, optimizer);
}
/// load without an optimizer. An existing optimizer keeps its master copies; call its refresh() if the model's type has 16 bits.
template <class Model>
void load(const std::string& folder, Model& model, const LoadOptions& options = {}) {
  detail::load_into(folder, options, model);
}

}  // namespace weft::hugging_face
