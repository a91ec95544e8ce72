// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for operations/pooling.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <string>

#include <weft/core/inline.hpp>
#include <weft/operations/pooling.hpp>

namespace weft::detail {

WEFT_OUT_OF_LINE WEFT_INLINE kernels::ConvolutionShape pooling_shape(const char* operation, std::size_t dims, NamedOperand images,
                                                                     const PoolingOptions& options) {
  const Shape& x = images.shape();
  if (x.rank() != dims + 2)
    throw_error<ShapeError>({call_text(operation, {images}), ": expected [samples, channels, ", image_dims[dims - 1], "]"});
  kernels::ConvolutionShape s;
  s.samples = x[0];
  s.in = s.out = x[1];
  s.dims = dims;
  const PerDim& behind = options.padding_after.count() == 0 ? options.padding : options.padding_after;
  bool fits = options.kernel.fits(dims) && options.stride.fits(dims) && options.padding.fits(dims) && behind.fits(dims);
  for (std::size_t dim = 0; dim < dims; ++dim) {
    const std::size_t d = s.most_dims - dims + dim, kernel = options.kernel[dim];
    s.extents[d] = x[dim + 2];
    s.kernel[d] = kernel;
    s.stride[d] = options.stride[dim] == 0 ? kernel : options.stride[dim];
    s.before[d] = options.padding[dim];
    s.after[d] = behind[dim];
    fits = fits && kernel != 0 && std::max(s.before[d], s.after[d]) <= kernel / 2 && kernel < std::size_t(1) << 31 &&
           s.padded(d) >= kernel;
  }
  const std::size_t first = s.most_dims - dims;
  if (!fits)
    throw_error<ShapeError>({call_text(operation, {images}), ": a window of ", extents_text(s.kernel + first, dims),
                             " with padding ", extents_text(s.before + first, options.padding.count() <= 1 ? 1 : dims),
                             " does not fit into an image of ", extents_text(s.extents + first, dims),
                             "; the padding is at most half of the window"});
  return s;
}

WEFT_OUT_OF_LINE WEFT_INLINE void require_images(const char* operation, std::size_t dims, NamedOperand x) {
  std::size_t pixels = 1;
  for (std::size_t dim = 2; dim < x.shape().rank(); ++dim) pixels *= x.shape()[dim];
  if (x.shape().rank() != dims + 2 || pixels == 0)
    throw_error<ShapeError>({call_text(operation, {x}), ": expected [samples, channels, ", image_dims[dims - 1], "]"});
}

}  // namespace weft::detail
