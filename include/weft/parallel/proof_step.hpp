// SPDX-License-Identifier: Apache-2.0
#pragma once
// A training step in a proof (device/proof.hpp): its batch is noted sample by sample, and replaced if the run computes the
// batches of another layout. Also the options of a model that a proof chooses.
//
//   if (Proof* const proof = device.proof(); proof != nullptr) [[unlikely]]
//     return proven_step(*proof, stages, batch, [&](const Batch& given) { return train(given); });

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/data/batch.hpp>
#include <weft/data/fields.hpp>
#include <weft/device/device.hpp>
#include <weft/device/proof.hpp>
#include <weft/device/rehearsal.hpp>
#include <weft/engine/proof_parameters.hpp>
#include <weft/parallel/model_options.hpp>

namespace weft::detail {

/// Whether a proof, or a search of layouts, chooses the options of models on this device.
inline bool chooses_options(const DefaultDevice& device) {
  return device.proof() != nullptr || (device.rehearsal() != nullptr && device.rehearsal()->layout != nullptr);
}
/// Its stage of ZeRO and schedule. `fixed`: options after the types of the wrappers have set theirs, beginning with stage
/// `open_stage` and no schedule; `pipelined`: the model has a pipeline. Throws LayoutError for a stage that other options of the
/// program do not allow.
void choose_options(DefaultDevice& device, ModelOptions& options, const ModelOptions& fixed, bool sharded, bool pipelined);
inline constexpr int open_stage = -1;

/// Notes samples first, first + 1, ... of a field, or of all fields of a batch of tokens.
void prove_field(Proof& proof, const std::string& name, std::size_t first, std::size_t samples, std::span<const double> values);
/// The values of a field of the global batch that this run is given; `samples`: their number.
std::vector<double> given_field(const Proof& proof, const std::string& name, std::size_t& samples);

/// Calls f(name, values, assign) for each field; assign(values, samples) replaces them. Not for fields that domain axes cut, of
/// which a batch has pieces.
template <class B, class F>
void for_each_proven_field(B& batch, F&& f) {
  if constexpr (std::is_same_v<std::remove_const_t<B>, TokenBatch>) {
    const auto one = [&](const char* name, auto& field) {
      f(std::string_view(name), field, [&](const std::vector<double>& values, std::size_t samples) {
        if constexpr (!std::is_const_v<B>) {
          field.assign(values.begin(), values.end());
          batch.sequences = samples, batch.first_sequence = 0, batch.differing.clear();
        }
      });
    };
    one("tokens", batch.tokens), one("targets", batch.targets), one("documents", batch.documents);
  } else {
    batch.for_each([&](auto field, auto& of_field) {
      if constexpr (decltype(field)::cut_axes != 0) return;
      using T = typename std::remove_cvref_t<decltype(of_field)>::scalar;
      f(field.name, of_field.values(), [&](const std::vector<double>& values, std::size_t samples) {
        if constexpr (!std::is_const_v<B>) {
          std::vector<T> all;
          for (const double value : values) all.push_back(T(value));
          of_field.assign(std::move(all));
          batch.samples = samples, batch.first_sample = 0;
        }
      });
    });
  }
}

/// Notes the samples, without their values, if domain axes cut fields of the batch, which is then not replaced.
template <class B>
WEFT_COLD void note_cut_samples(Proof& proof, const std::string& model, const B& batch) {
  if constexpr (!std::is_same_v<B, TokenBatch>) {
    batch.for_each([&](auto field, auto&) {
      if constexpr (decltype(field)::cut_axes != 0) {
        const std::string name = model + std::string(field.name);
        for (std::size_t i = 0; i < batch.samples; ++i) proof.note_part(ProofPhase::batch, name, batch.first_sample + i, {});
        const std::lock_guard lock(proof.notes().mutex);
        proof.notes().cut_fields = true;
      }
    });
  }
}

/// A model begins a step: notes the batch, and changes parameters in a run with noise. `in_train_step`: the batch may be
/// replaced, which `given_batch` does.
template <class Stages, class B>
WEFT_COLD void begin_proven_step(Proof& proof, DefaultDevice& device, Stages& stages, const B& batch) {
  proof.begin_step();
  const std::string model = proof.model(&stages);
  std::size_t first = 0, samples = 0;
  if constexpr (std::is_same_v<B, TokenBatch>) first = batch.first_sequence, samples = batch.sequences;
  else first = batch.first_sample, samples = batch.samples;
  for_each_proven_field(batch, [&](std::string_view name, const auto& values, auto&&) {
    prove_field(proof, model + std::string(name), first, samples, std::vector<double>(values.begin(), values.end()));
  });
  note_cut_samples(proof, model, batch);
  if (!proof.in_train_step) {
    const std::lock_guard lock(proof.notes().mutex);
    proof.notes().replaceable = false;
  }
  if (proof.noise != 0 && !stages.gradients()->open)
    stages.for_each_state([&](ParameterState& state) { prove_with_noise(device, proof, state); });
}

/// Calls train(batch), with the batch that the run is given in place of the program's if there is one, and notes the loss
/// and the values that layers keep.
template <class Stages, class B, class F>
WEFT_COLD double proven_step(Proof& proof, Stages& stages, const B& batch, const F& train) {
  struct Inside {
    Proof& proof;
    explicit Inside(Proof& one) : proof(one) { proof.in_train_step = true; }
    ~Inside() { proof.in_train_step = false; }
  } inside(proof);
  const std::string model = proof.model(&stages);
  double loss = 0;
  if (proof.batches == nullptr) {
    loss = train(batch);
  } else {
    B given = batch;
    std::size_t samples = 0;
    for_each_proven_field(given, [&](std::string_view name, const auto&, auto&& assign) {
      if (const std::vector<double> values = given_field(proof, model + std::string(name), samples); samples != 0)
        assign(values, samples);
    });
    if (samples % given.micro_batches != 0) given.micro_batches = 1;
    loss = train(given);
  }
  proof.note_loss(model, loss);
  for (const auto& buffer : stages.buffers())
    proof.note_copy(proof.step(), ProofPhase::kept, model + buffer->name, buffer->value);
  return loss;
}

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/parallel/proof_step_impl.hpp>
#endif
