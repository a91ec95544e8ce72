// SPDX-License-Identifier: Apache-2.0
#pragma once
// Names for messages: of a parameter by the address of its values, and of a layer by the parameters that it holds. Only errors
// and the first recorded call of a Module ask for them.
//
//   name_of_values(w.data());                 // "blocks.3.mlp.up"; empty if w is no parameter
//   path_of_holder(&layer, sizeof(layer));    // "blocks.3.mlp"; empty if the layer holds no parameter

#include <cstddef>
#include <string>

#include <weft/core/standard.hpp>

namespace weft::detail {

/// The name of the parameter of this thread whose values begin at this address; empty if there is none.
std::string name_of_values(const void* data);

/// The path that the names of all parameters begin with whose handles are members of this object, or members of its members;
/// empty if it has none, or if their names have no common beginning. Objects elsewhere that it points to are not searched.
std::string path_of_holder(const void* object, std::size_t bytes);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/engine/parameter_names_impl.hpp>
#endif
