// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parts that several models' configs share: the layers that have a window, and the files from which a config was read.
//
//   AttentionMask mask = layer_mask(config, 3);

#include <cstddef>
#include <string>

#include <weft/core/error.hpp>
#include <weft/nn/attention.hpp>

namespace weft::models {

/// Texts of the folder from which hugging_face::read_config read a config. The model does not use them. hugging_face::save writes
/// the fields that weft does not use unchanged.
struct FolderFiles {
  std::string type = {};        ///< model_type, for example "mistral"; empty if the config was not read from a folder
  std::string config = {};      ///< config.json
  std::string generation = {};  ///< generation_config.json; empty if the folder has none
};

namespace detail {

/// True if some layers have a window and others do not.
template <class Config>
bool windows_differ(const Config& config) {
  std::size_t with = 0;
  for (const bool window : config.window_layers) with += window;
  return config.mask.window != 0 && with != config.window_layers.size();
}

/// The mask of one layer.
template <class Config>
AttentionMask layer_mask(const Config& config, std::size_t layer) {
  AttentionMask mask = config.mask;
  if (!config.window_layers.empty() && !config.window_layers.at(layer)) mask.window = 0;
  return mask;
}

/// Throws LayoutError unless `window_layers` is empty or has an element for each layer.
template <class Config>
WEFT_COLD void require_window_layers(const Config& config) {
  if (!config.window_layers.empty() && config.window_layers.size() != config.layers)
    throw_error<LayoutError>({"window_layers has ", config.window_layers.size(), " elements, and the model has layers(",
                              config.layers, "): one for each layer, or none"});
}

}  // namespace detail

}  // namespace weft::models
