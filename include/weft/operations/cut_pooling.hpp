// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernels of pooling over images that axes cut, for operations/cut_passes.hpp. Maxima have places, which are those in the
// image with all halos: strips of it have other places.
//
//   cut_outputs<PlacedWindows>(MaxPooling<T>(shape), axes, x, y, places);

#include <cstddef>
#include <cstdint>

#include <weft/kernels/convolution_shape.hpp>
#include <weft/kernels/pooling.hpp>
#include <weft/operations/cut_passes.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// Windows over rows of an image.
struct PlacedShape : kernels::ConvolutionShape {
  kernels::ImageFrame part;  ///< these rows
};
struct PlacedWindows : Windows {
  using Shape = PlacedShape;
  static constexpr void narrow(Shape& s, std::size_t d, const RowRange& rows, const RowRange& outputs) {
    Windows::narrow(s, d, rows, outputs);
    s.part.first[d] += rows.first, s.part.extents[d] = rows.count;
  }
};

template <class T>
struct MaxPooling {
  PlacedShape s;
  kernels::ImageFrame image;  ///< with all halos
  explicit MaxPooling(const kernels::ConvolutionShape& shape) : s{shape, {}} {
    for (std::size_t d = 0; d < s.most_dims; ++d) s.part.extents[d] = s.extents[d];
    image = s.part;
  }
  template <class Exec>
  void forward(Device<Exec>& device, const T* x, T* y, std::int32_t* places) const {
    kernels::max_pool<T>(device, s, x, y, places);
    if (s.part != image) kernels::move_places(device, count(), places, s.part, image, places);
  }
  template <class Exec>
  void input_gradient(Device<Exec>& device, T* dx, const T* g, const std::int32_t* places) const {
    if (s.part == image) return kernels::max_pool_backward<T>(device, s, g, places, dx);
    const Tensor<std::int32_t, Exec> here(device, {count()});
    kernels::move_places(device, count(), places, image, s.part, here.data());
    kernels::max_pool_backward<T>(device, s, g, here.data(), dx);
  }

 private:
  std::size_t count() const { return s.samples * s.in * s.out_pixels(); }
};

template <class T>
struct AveragePooling {
  kernels::ConvolutionShape s;
  template <class Exec>
  void forward(Device<Exec>& device, const T* x, T* y) const {
    kernels::average_pool<T>(device, s, x, y);
  }
  template <class Exec>
  void input_gradient(Device<Exec>& device, T* dx, const T* g) const {
    kernels::average_pool_backward<T>(device, s, g, dx);
  }
};

}  // namespace weft::detail
