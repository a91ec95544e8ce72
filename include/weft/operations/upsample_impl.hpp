// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for operations/upsample.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/operations/upsample.hpp>

namespace weft::detail {

WEFT_OUT_OF_LINE WEFT_INLINE kernels::UpsampleShape upsample_shape(const char* operation, NamedOperand x,
                                                                   const UpsampleOptions& options) {
  const Shape& shape = x.shape();
  if (shape.rank() < 3 || shape.rank() > 5)
    throw_error<ShapeError>({call_text(operation, {x}), ": expected [samples, channels, ...] with images of one to three dims"});
  const std::size_t dims = shape.rank() - 2;
  kernels::UpsampleShape s{.planes = shape[0] * shape[1], .mode = options.mode};
  bool fits = options.factor.fits(dims);
  for (std::size_t dim = 0; dim < dims; ++dim) {
    s.extents[3 - dims + dim] = shape[dim + 2];
    s.factor[3 - dims + dim] = options.factor[dim];
    fits = fits && options.factor[dim] != 0 && options.factor[dim] < std::size_t(1) << 16;
  }
  if (!fits)
    throw_error<ShapeError>({call_text(operation, {x}), ": factors ", extents_text(s.factor + (3 - dims), dims),
                             " for images of ", dims, " dims: one from 1 to 65535 for each dim, or one for all"});
  return s;
}

WEFT_INLINE Shape enlarged(Shape x, const kernels::UpsampleShape& s) {
  const std::size_t dims = x.rank() - 2;
  for (std::size_t dim = 0; dim < dims; ++dim)
    x[dim + 2] = weft::detail::checked_multiply(x[dim + 2], s.factor[3 - dims + dim], "upsample");
  return x;
}

WEFT_OUT_OF_LINE WEFT_INLINE void require_shuffled(NamedOperand x, std::size_t factor) {
  const Shape& shape = x.shape();
  if (shape.rank() != 4 || factor == 0 || factor >= std::size_t(1) << 16 || shape[1] % (factor * factor) != 0)
    throw_error<ShapeError>({call_text("pixel_shuffle", {x}),
                             ": expected [samples, channels, height, width] with channels in groups of factor(", factor,
                             ") squared"});
}

}  // namespace weft::detail
