// SPDX-License-Identifier: Apache-2.0
// The definitions of proofs.
#include <weft/device/proof_impl.hpp>
#include <weft/engine/proof_parameters_impl.hpp>
#include <weft/parallel/proof_step_impl.hpp>
#include <weft/runtime/proof/assembly_impl.hpp>
#include <weft/runtime/proof/compare_impl.hpp>
#include <weft/runtime/proof/layout_processes_impl.hpp>
#include <weft/runtime/proof/layouts_impl.hpp>
#include <weft/runtime/proof/report_impl.hpp>
#include <weft/runtime/prove_impl.hpp>
