// SPDX-License-Identifier: Apache-2.0
#pragma once
// The model concept: factories of a front, equal blocks and a back, which wrappers cut into stages and distribute over ranks.
//
//   struct Model {
//     using scalar = float;
//     using Config, Front, Block, Back;
//     static std::size_t blocks(const Config&);
//     static void check(const Config&, const ModelDegrees&);                 // LayoutError, before anything is built
//     static Front make_front(const auto& context, const Config&);
//     static Block make_block(const auto& context, const Config&, std::size_t index);
//     static Back make_back(const auto& context, const Config&, Front* front);
//   };
//
// Every rank makes all parts in this order and keeps those of its stages. A parameter that several parts share is one handle;
// each part holds a copy of it, on whichever rank the part ends up.

#include <cstddef>

#include <weft/core/error.hpp>

namespace weft {

/// The degrees of the axes that cut a model.
struct ModelDegrees {
  std::size_t tp = 1, pp = 1, chunks = 1;
  std::size_t cp = 1;
  bool ulysses = false;  ///< attention over cp is by Ulysses, which divides heads, not by a ring
  std::size_t ep = 1, etp = 1;
};

namespace detail {

/// Throws LayoutError for sizes of which no model can be made.
WEFT_COLD inline void require_sizes(std::size_t vocabulary, std::size_t width, std::size_t heads) {
  if (vocabulary == 0 || width == 0)
    throw_error<LayoutError>({"vocabulary(", vocabulary, ") and width(", width, ") must be at least 1"});
  if (heads == 0 || width % heads != 0) throw_error<LayoutError>({"width(", width, ") % heads(", heads, ") != 0"});
}

}  // namespace detail

}  // namespace weft
