// SPDX-License-Identifier: Apache-2.0
#pragma once
// The notes of parameters and their gradients in a proof (device/proof.hpp). Every rank adds the elements that it counts at their
// places in the whole parameter, so the notes are the same for every layout and every stage of ZeRO.
//
//   if (Proof* const proof = device.proof(); proof != nullptr) [[unlikely]]
//     prove_slots(device, *proof, ProofPhase::gradient, this, slots, 1);

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <weft/device/device.hpp>
#include <weft/device/proof.hpp>
#include <weft/engine/hooks.hpp>

namespace weft::detail {

/// Notes the gradients (divided by `scale`) or the values of an optimizer's parameters. Afterwards gradients are those of
/// Proof::gradients, if the run has them, so that updates do not depend on the rounding of sums.
void prove_parameters(DefaultDevice& device, Proof& proof, ProofPhase phase, const void* optimizer,
                      std::span<ParameterState* const> states, double scale);
/// Notes the norm of an optimizer's gradients. Returns it, or the norm of Proof::gradients, if the run has them.
double prove_norm(Proof& proof, const void* optimizer, double norm);
/// Notes an array of `count` elements, of the type of gradients, that an optimizer keeps at one rank for a parameter. `bytes`: it
/// holds bytes, which are compared one by one.
void prove_kept(DefaultDevice& device, Proof& proof, const void* optimizer, const ParameterState& state, std::string_view array,
                const Buffer& buffer, std::size_t count, bool bytes = false);
/// Notes the gradients that this rank's layers have added, before the sums over ranks. Call it whenever these gradients are
/// about to be reduced.
void prove_local_gradients(Proof& proof, const Unit& unit);
/// The path that all of a unit's parameters share, "transformer.h.0", as its name in a proof; `name` if they share none.
std::string common_path(const std::string& name, std::span<ParameterState* const> parameters);
/// Changes each element by a relative amount of at most Proof::noise.
void prove_with_noise(DefaultDevice& device, Proof& proof, ParameterState& state);

template <class Slots>
WEFT_COLD void prove_slots(DefaultDevice& device, Proof& proof, ProofPhase phase, const void* optimizer, const Slots& slots,
                           double scale) {
  std::vector<ParameterState*> states;
  for (const auto& slot : slots)
    if (slot.made) states.push_back(slot.state);
  prove_parameters(device, proof, phase, optimizer, states, scale);
}

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/engine/proof_parameters_impl.hpp>
#endif
