// SPDX-License-Identifier: Apache-2.0
#pragma once
// All operations on DTensors.
//
//   using namespace weft;
//   auto loss = cross_entropy(matmul(relu(matmul(x, w) + b), v), labels);   // found through their arguments
//   loss.backward();
//
// An operation whose rule does not take its operands' placements moves them, by the cheapest redistribution
// (dtensor/choose.hpp); dtensor/explain.hpp shows or refuses this.

#include <weft/dtensor/elementwise.hpp>
#include <weft/dtensor/expand.hpp>
#include <weft/dtensor/matmul.hpp>
#include <weft/dtensor/random.hpp>
#include <weft/dtensor/reductions.hpp>
#include <weft/dtensor/rows.hpp>
#include <weft/dtensor/views.hpp>
