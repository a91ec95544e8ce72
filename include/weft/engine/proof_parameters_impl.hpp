// SPDX-License-Identifier: Apache-2.0
#pragma once
// The notes of parameters in a proof. Definitions for engine/proof_parameters.hpp.

#include <algorithm>

#include <weft/core/hash.hpp>
#include <weft/core/philox.hpp>
#include <weft/engine/parameter_values.hpp>
#include <weft/engine/proof_parameters.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::detail {

using ProofExec = DefaultDevice::execution_space;

/// `count` elements of that type as doubles.
WEFT_COLD WEFT_INLINE std::vector<double> proof_elements(DefaultDevice& device, const Buffer& buffer, std::size_t count,
                                                         DataType type) {
  std::vector<double> elements(count);
  if (count == 0 || !buffer) return elements;
  dispatch_real(type, [&]<class T>(T) {
    const std::vector<T> host = copy_to_host(Tensor<T, ProofExec>(device, {count}, buffer));
    std::transform(host.begin(), host.end(), elements.begin(), [](T value) { return double(accumulate_t<T>(value)); });
  });
  return elements;
}

WEFT_COLD WEFT_INLINE void set_proof_elements(DefaultDevice& device, const Buffer& buffer, const std::vector<double>& elements,
                                              DataType type) {
  if (elements.empty() || !buffer) return;
  dispatch_real(type, [&]<class T>(T) {
    std::vector<T> host(elements.size());
    std::transform(elements.begin(), elements.end(), host.begin(), [](double value) { return T(accumulate_t<T>(value)); });
    copy_from_host(Tensor<T, ProofExec>(device, {host.size()}, buffer), std::span<const T>(host));
  });
}

WEFT_COLD WEFT_INLINE void prove_parameters(DefaultDevice& device, Proof& proof, ProofPhase phase, const void* optimizer,
                                            std::span<ParameterState* const> states, double scale) {
  const std::string prefix = proof.optimizer(optimizer);
  const int step = proof.steps_of(optimizer) + 1;
  int place = int(states.size());
  for (const ParameterState* const state : states) {
    --place;  // backward reaches the last parameter first
    const bool gradient = phase == ProofPhase::gradient;
    if (gradient && (!state->trainable() || !state->gradient() || !state->gradients().touched())) continue;
    const DataType type = gradient ? state->kept_gradient_type() : state->type();
    std::vector<double> kept =
        proof_elements(device, gradient ? state->gradient() : value_of(device, *state), state->kept(), type);
    const std::string name = prefix + state->name();
    for (const Run& run : state->runs()) {
      if (!state->counted() || !run.owned) continue;
      std::vector<double> values(kept.begin() + std::ptrdiff_t(run.local), kept.begin() + std::ptrdiff_t(run.local + run.length));
      for (double& value : values) value /= scale;
      proof.add_elements(step, phase, name, place, state->global().size(), run.global, values);
    }
    if (!gradient) {
      const std::lock_guard lock(proof.notes().mutex);
      proof.notes().narrowest = std::uint8_t(std::min<std::size_t>(proof.notes().narrowest, size_of(state->type())));
    }
    if (!gradient || proof.gradients == nullptr) continue;
    const auto given = proof.gradients->tensors.find({step, phase, 0, name});
    if (given == proof.gradients->tensors.end() || given->second.parts.at(0).size() != state->global().size()) continue;
    const std::vector<double>& whole = given->second.parts.at(0);
    for (const Run& run : state->runs())
      for (std::size_t i = 0; i < run.length; ++i) kept[run.local + i] = whole[run.global + i] * scale;
    set_proof_elements(device, state->gradient(), kept, type);
  }
  if (phase == ProofPhase::updated) proof.stepped(optimizer);
}

WEFT_COLD WEFT_INLINE double prove_norm(Proof& proof, const void* optimizer, double norm) {
  const ProofNotes::Key key{proof.steps_of(optimizer) + 1, ProofPhase::norm, 0, proof.optimizer(optimizer) + "all gradients"};
  proof.note_copy(key.step, key.phase, key.name, {norm});
  if (proof.gradients == nullptr) return norm;
  const auto given = proof.gradients->tensors.find(key);
  return given == proof.gradients->tensors.end() ? norm : given->second.parts.at(0).at(0);
}

WEFT_COLD WEFT_INLINE void prove_kept(DefaultDevice& device, Proof& proof, const void* optimizer, const ParameterState& state,
                                      std::string_view array, const Buffer& buffer, std::size_t count, bool bytes) {
  std::vector<double> values;
  if (bytes) {
    const Tensor<std::uint8_t, DefaultDevice::execution_space> codes(device, {count * size_of(state.gradient_type())}, buffer, 0);
    for (const std::uint8_t code : copy_to_host(codes)) values.push_back(code);
  } else {
    values = proof_elements(device, buffer, count, state.gradient_type());
  }
  proof.note_copy(proof.steps_of(optimizer) + 1, ProofPhase::kept, joined({proof.optimizer(optimizer), state.name(), ".", array}),
                  std::move(values));
}

WEFT_COLD WEFT_INLINE void prove_local_gradients(Proof& proof, const Unit& unit) {
  if (!proof.in_train_step) return;
  for (ParameterState* const state : unit.parameters) {
    if (!state->trainable() || state->gradients().fresh() || !state->gradients().layer_buffer() || state->size() == 0) continue;
    const bool term = (state->gradients().unreduced() & axis_bit<tp>) != 0;
    // Ranks of other axes than these compute the same gradient, unless it is a term there.
    constexpr unsigned own_rows = axis_bit<dp> | axis_bit<cp> | axis_bit<ep> | axis_bit<edp>;
    const bool copy = (state->info().later & ~own_rows & ~state->info().sharded & ~state->gradients().unreduced()) != 0;
    state->gradient_span([&](auto gradient) {
      for (const Run& run : state->info().runs) {
        if (copy || (!term && !run.owned)) continue;  // another rank counts the same gradient
        proof.add_elements(proof.step(), ProofPhase::local_gradient, state->name(), 0, state->global().size(), run.global,
                           std::vector<double>(gradient.begin() + std::ptrdiff_t(run.local),
                                               gradient.begin() + std::ptrdiff_t(run.local + run.length)));
      }
    });
  }
}

WEFT_COLD WEFT_INLINE std::string common_path(const std::string& name, std::span<ParameterState* const> parameters) {
  std::string path = parameters.empty() ? "" : parameters.front()->name();
  path.resize(path.rfind('.') == path.npos ? 0 : path.rfind('.'));
  for (const ParameterState* const one : parameters)
    while (!path.empty() && one->name().compare(0, path.size() + 1, path + ".") != 0)
      path.resize(path.rfind('.') == path.npos ? 0 : path.rfind('.'));
  return path.empty() ? name : path;
}

WEFT_COLD WEFT_INLINE void prove_with_noise(DefaultDevice& device, Proof& proof, ParameterState& state) {
  if (!state.value() || state.kept() == 0) return;
  std::vector<double> kept = proof_elements(device, state.value(), state.kept(), state.kept_type());
  const std::uint64_t key =
      key_of(proof.noise_seed, std::uint64_t(proof.step()), hash_bytes(state.name().data(), state.name().size()));
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] *= 1 + proof.noise * (2 * Philox::uniform(key, i) - 1);
  set_proof_elements(device, state.value(), kept, state.kept_type());
}

}  // namespace weft::detail
