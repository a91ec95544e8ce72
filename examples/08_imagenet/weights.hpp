// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parameters and running statistics from a safetensors file of torchvision's state_dict():
//
//   safetensors.torch.save_file(torchvision.models.resnet50(weights="DEFAULT").state_dict(), "resnet50.safetensors")

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <weft/checkpoint/safetensors.hpp>
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

}  // namespace imagenet
