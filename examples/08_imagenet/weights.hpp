// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parameters and running statistics from a safetensors file of torchvision's state_dict(), and written into one:
//
//   safetensors.torch.save_file(torchvision.models.resnet50(weights="DEFAULT").state_dict(), "resnet50.safetensors")
//   model.load_state_dict(safetensors.torch.load_file("exported.safetensors"))

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <weft/checkpoint/safetensors.hpp>
#include <weft/checkpoint/state.hpp>
#include <weft/checkpoint/together.hpp>
#include <weft/comm/gather_lists.hpp>
#include <weft/core/error.hpp>
#include <weft/hugging_face/load_parameters.hpp>

namespace imagenet {

/// Loads a file into a model of any layout. Throws Error if a tensor is missing, of another shape, or unknown; nothing changes
/// then. Collective.
inline void load_torchvision(const std::string& file, auto& model) {
  using namespace weft;
  if (model.device().rehearsal() != nullptr) return;
  // BatchNorm's means and variances, which weft keeps in one buffer: [2, channels].
  const auto stored = checkpoint::Safetensors::open(file);
  std::vector<std::vector<double>> values;
  for (const auto& buffer : model.buffers()) {
    const std::size_t channels = buffer->value.size() / 2;
    std::vector<float> numbers(2 * channels);
    for (const bool variance : {false, true}) {
      const std::string name = buffer->name + (variance ? "_var" : "_mean");  // "bn1.running" -> "bn1.running_mean"
      const checkpoint::StoredTensor* tensor = stored.find(name);
      if (tensor == nullptr || tensor->type != checkpoint::StoredType::f32 || tensor->shape != std::vector<std::size_t>{channels})
        throw_error<UsageError>({"imagenet: --load: '", weft::detail::shown(file, 300), "' has no float32 tensor '", name,
                                 "' of ", channels, " numbers: it is of another model than --model"});
      stored.read(*tensor, std::as_writable_bytes(std::span(numbers).subspan(variance ? channels : 0, channels)));
    }
    values.emplace_back(numbers.begin(), numbers.end());
  }
  hugging_face::load_parameters(file, model, [](const std::string& name) {
    const std::string_view end = std::string_view(name).substr(name.rfind('.') + 1);
    return end == "running_mean" || end == "running_var" || end == "num_batches_tracked" ? std::string() : name;
  });
  std::size_t next = 0;
  for (const auto& buffer : model.buffers()) buffer->value = values[next++];
}

/// The running statistics of all stages by name, [2, channels], on every rank. Collective.
inline std::map<std::string, std::vector<double>> all_buffers(auto& model) {
  std::string names;
  std::vector<double> values;
  for (const auto& buffer : model.buffers()) {
    names += buffer->name + '\0' + std::to_string(buffer->value.size()) + '\0';
    values.insert(values.end(), buffer->value.begin(), buffer->value.end());
  }
  const auto lists = weft::detail::gather_lists(model.communicator(), weft::detail::bytes_of(names));
  const auto numbers = weft::detail::gather_lists(model.communicator(), std::span<const double>(values));
  std::map<std::string, std::vector<double>> all;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    const std::vector<std::string_view> texts = weft::detail::split_at_zeros(lists[rank]);
    auto from = numbers[rank].begin();
    for (std::size_t i = 0; i + 1 < texts.size(); i += 2) {
      const auto end = from + std::stol(std::string(texts[i + 1]));
      all.emplace(texts[i], std::vector<double>(from, end));
      from = end;
    }
  }
  return all;
}

/// Writes a model of any layout, after `steps` steps of training. The file appears only when it is complete. Throws Error on
/// every rank if it cannot be written. Collective.
inline void save_torchvision(const std::string& file, auto& model, std::uint64_t steps) {
  using namespace weft;
  namespace files = checkpoint::detail;
  if (files::leaves_files_alone(model)) return;  // a rehearsal or proof
  std::vector<checkpoint::StoredTensor> tensors;
  const auto add = [&](const std::string& name, checkpoint::StoredType type, const std::vector<std::size_t>& shape) {
    tensors.push_back({name, type, shape, 0, 0});
  };
  for (const std::string& name : model.parameter_names()) {
    std::array<std::uint64_t, 1 + Shape::max_rank> extents{};  // a rank has the parameters of its own stage
    model.for_each_state([&](const auto& state) {
      if (state.name() != name) return;
      extents[0] = state.global().rank();
      for (std::size_t dim = 0; dim < extents[0]; ++dim) extents[1 + dim] = state.global()[dim];
    });
    model.communicator().all_reduce(std::span(extents), Reduction::max);
    add(name, checkpoint::StoredType::f32, {extents.begin() + 1, extents.begin() + 1 + std::ptrdiff_t(extents[0])});
  }
  const auto buffers = all_buffers(model);
  for (const auto& [name, values] : buffers) {  // "bn1.running"
    for (const char* end : {"_mean", "_var"}) add(name + end, checkpoint::StoredType::f32, {values.size() / 2});
    add(name.substr(0, name.rfind('.')) + ".num_batches_tracked", checkpoint::StoredType::i64, {});
  }
  auto& system = checkpoint::FileSystem::system();
  const std::string unfinished = file + ".tmp";
  std::optional<files::File> out;
  const auto write = [&](const auto& numbers) { out->write(numbers.data(), numbers.size() * sizeof(numbers[0])); };
  const auto on_first_rank = [&](const auto& f) {
    files::together(model.communicator(), [&] {
      if (model.communicator().rank() == 0) f();
    });
  };
  on_first_rank([&] {
    files::remove_file(system, unfinished);  // of an interrupted run
    out.emplace(files::File::make(system, unfinished, file));
    write(checkpoint::safetensors_header(tensors, {{"format", "pt"}}));
  });
  for (const std::string& name : model.parameter_names()) {
    const std::vector<double> values = model.parameter(name);
    on_first_rank([&] { write(std::vector<float>(values.begin(), values.end())); });
  }
  on_first_rank([&] {
    for (const auto& [name, values] : buffers) {
      write(std::vector<float>(values.begin(), values.end()));
      write(std::array<std::int64_t, 1>{std::int64_t(steps)});
    }
    out->finish();
    if (files::rename(system, unfinished, file) != 0) files::refuse_call({file}, "cannot be named so", errno);
  });
}

}  // namespace imagenet
