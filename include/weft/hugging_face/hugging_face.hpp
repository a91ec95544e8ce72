// SPDX-License-Identifier: Apache-2.0
#pragma once
// Models of `transformers` in both directions: GPT-2, Llama, Qwen2, Qwen3, Mixtral and Qwen3-MoE from a folder into any layout,
// and from any layout into a folder. weft/weft.hpp does not include it, since it needs the same libraries as checkpoints. With
// CMake, link weft::checkpoint.
//
//   const auto config = hugging_face::read_config<models::LlamaConfig>("llama");
//   DataParallel<TensorParallel<models::Llama>> model(mesh, config);
//   hugging_face::load("llama", model);
//   hugging_face::save("mine", model);

#include <weft/hugging_face/adapters.hpp>
#include <weft/hugging_face/config.hpp>
#include <weft/hugging_face/load.hpp>
#include <weft/hugging_face/load_parameters.hpp>
#include <weft/hugging_face/merge.hpp>
#include <weft/hugging_face/save.hpp>
