// SPDX-License-Identifier: Apache-2.0
#pragma once
// The functions of weft that a program calls on all ranks, as numbers that travel with each call between ranks: an error that
// names two calls also names the function in which each of the two ranks is.
//
//   name_of(ProgramFunction::train_step)   // "train_step"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <weft/core/standard.hpp>

namespace weft::comm {

/// The outermost function of weft that a rank is in; `none` in the program's code. At most 63.
enum class ProgramFunction : std::uint8_t {
  none,
  mesh,
  model,
  optimizer,
  train_step,
  evaluate,
  predict,
  next_logits,
  logits,
  decode,
  generate,
  forward,
  loss,
  inputs,
  set_trainable,
  parameter,
  set_parameter,
  gradient,
  optimizer_step,
  equal_parameters,
  checkpoint_save,
  checkpoint_load,
  checkpoint_resume,
  saver,
  hugging_face_save,
  hugging_face_load,
  load_parameters,
  save_adapters,
  load_adapters,
  agree,
  elastic_restore,
  elastic_keep
};

constexpr std::string_view name_of(ProgramFunction function) {
  constexpr std::string_view names[] = {"the program's own code",
                                        "the construction of a Mesh",
                                        "the construction of a model",
                                        "the construction of an optimizer",
                                        "train_step",
                                        "evaluate",
                                        "predict",
                                        "next_logits",
                                        "logits",
                                        "decode",
                                        "generate",
                                        "forward",
                                        "loss",
                                        "inputs",
                                        "freeze or unfreeze",
                                        "parameter",
                                        "set_parameter",
                                        "gradient",
                                        "the optimizer's step",
                                        "require_equal_parameters",
                                        "checkpoint::save",
                                        "checkpoint::load",
                                        "checkpoint::resume",
                                        "checkpoint::Saver",
                                        "hugging_face::save",
                                        "hugging_face::load",
                                        "hugging_face::load_parameters",
                                        "hugging_face::save_adapters",
                                        "hugging_face::load_adapters",
                                        "agree",
                                        "elastic::Member::restore",
                                        "elastic::Member::keep"};
  const auto number = static_cast<std::size_t>(function);  // may come from another rank
  return number < sizeof names / sizeof names[0] ? names[number] : "an unknown function";
}

}  // namespace weft::comm
