// SPDX-License-Identifier: Apache-2.0
#pragma once
// The path of a layer in the message of an error that its forward or backward throws. The innermost layer with a path adds it;
// the exception stays the same object of the same type, so that every catch and every exit code holds.
//
//   try {
//     return layer.forward(context, x);
//   } catch (...) {
//     add_layer(layer, Pass::forward);   // "weft: blocks.3.mlp: matmul([4, 6], up [2, 7]): the summed dims differ, 6 and 7"
//     throw;
//   }

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <weft/core/standard.hpp>

namespace weft::detail {

enum class Pass { forward, backward };

/// Adds a path to the message of the exception that is being handled, unless it has one. It must derive from std::runtime_error
/// or std::logic_error and not override what(). Errors of communication and interruptions get no path: no layer causes them.
void add_path(std::string_view path, Pass pass) noexcept;

void add_holder(const void* layer, std::size_t bytes, Pass pass) noexcept;

/// The same with the path of the layer, which its parameters have in common (path_of_holder).
template <class L>
void add_layer(const L& layer, Pass pass) noexcept {
  add_holder(&layer, sizeof(L), pass);
}

/// A layer's path, found once and copied with the layer.
class LayerPath {
 public:
  template <class L>
  std::string_view of(const L& layer) const {
    constexpr std::size_t handle = 2 * sizeof(void*);
    if constexpr (sizeof(L) < sizeof(LayerPath) + handle) return {};  // no member can be a parameter
    else return found(&layer, sizeof(L));
  }

 private:
  std::string_view found(const void* layer, std::size_t bytes) const;

  mutable std::shared_ptr<const std::string> path_;
};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/engine/layer_error_impl.hpp>
#endif
