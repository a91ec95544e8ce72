// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model for calls from files: a checkpoint of a run in any layout, or a safetensors file by the parameters' names.
//
//   auto net = inference::load<Surrogate>("run", {.width = 64});               // the newest checkpoint in the folder
//   auto other = inference::load<Surrogate>("surrogate.safetensors", {.width = 64});

#include <string>

#include <weft/checkpoint/load.hpp>
#include <weft/hugging_face/load_parameters.hpp>
#include <weft/inference/model.hpp>

namespace weft::inference {

/// The model with the parameters of `path`: a folder that checkpoint::save wrote, or a file `*.safetensors` whose tensors have
/// the names of the model's parameters, as hugging_face::load_parameters reads it. Each rank that calls it reads the files.
/// Throws checkpoint::Error if a file is damaged, missing, or of another model.
template <class M>
Model<M> load(const std::string& path, const typename M::Config& config = weft::detail::no_config<M>(),
              const Options& options = {}) {
  return Model<M>(
      config,
      [&](SingleDevice<M>& model) {
        if (path.ends_with(".safetensors")) hugging_face::load_parameters(path, model);
        else checkpoint::load(path, model);
      },
      options);
}

}  // namespace weft::inference
