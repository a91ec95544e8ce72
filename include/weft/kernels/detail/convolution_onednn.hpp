// SPDX-License-Identifier: Apache-2.0
#pragma once
// Convolutions by oneDNN 2.6 and 3.x. oneDNN chooses the layout of images and weights for the processor (channels in blocks of a
// register); operands in other layouts are reordered before and after. Each device caches its primitives by shape, direction and
// type. Uses the C interface, like matmul_onednn.hpp.

#include <dnnl.h>
#include <dnnl_version.h>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/kernels/convolution_shape.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/matmul_onednn.hpp>

namespace weft::kernels::detail {

enum class ConvolutionPass { forward, input, weight };

/// A layout in memory, in oneDNN's terms.
class OneDnnLayout {
 public:
#if DNNL_VERSION_MAJOR >= 3
  using handle = const_dnnl_memory_desc_t;
  ~OneDnnLayout() {
    if (description_ != nullptr) dnnl_memory_desc_destroy(description_);
  }
  handle get() const { return description_; }
#else
  using handle = const dnnl_memory_desc_t*;
  handle get() const { return &description_; }
#endif
  OneDnnLayout() = default;
#if DNNL_VERSION_MAJOR >= 3
  explicit OneDnnLayout(handle of) { dnnl_memory_desc_clone(&description_, of); }
#else
  explicit OneDnnLayout(handle of) : description_(*of) {}
#endif
  OneDnnLayout(const OneDnnLayout&) = delete;
  OneDnnLayout& operator=(const OneDnnLayout&) = delete;
  dnnl_status_t describe(int rank, const dnnl_dims_t extents, dnnl_data_type_t type, dnnl_format_tag_t tag) {
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_tag(&description_, rank, extents, type, tag);
#else
    return dnnl_memory_desc_init_by_tag(&description_, rank, extents, type, tag);
#endif
  }

 private:
  dnnl_memory_desc_t description_ = {};
};

/// The convolutions of one device. No templates: compiled once for all types.
class OneDnnConvolutions {
 public:
  using Type = dnnl_data_type_t;

  OneDnnConvolutions();
  OneDnnConvolutions(const OneDnnConvolutions&) = delete;
  OneDnnConvolutions& operator=(const OneDnnConvolutions&) = delete;
  ~OneDnnConvolutions();

  struct Convolution;
  /// The convolution of this shape; null if oneDNN has none for the type on this processor. `w_type` is the type of the weights'
  /// gradient for ConvolutionPass::weight, otherwise `type`.
  Convolution* find(const ConvolutionShape& s, ConvolutionPass pass, Type type, Type w_type, bool bias, int threads);
  /// Bytes of scratch memory that run needs.
  static std::size_t scratch_bytes(const Convolution& convolution);
  /// Images x, weights w and results y are those of forward; the pass writes one of them. bias may be null.
  void run(Convolution& convolution, void* x, void* w, void* y, const void* bias, void* scratch);

 private:
  dnnl_engine_t engine_ = nullptr;
  dnnl_stream_t stream_ = nullptr;
  std::vector<std::unique_ptr<Convolution>> convolutions_;
};

/// Runs the pass, or returns false if oneDNN does not support it.
template <class T, class W, class Exec>
bool convolution_onednn(Device<Exec>& device, const ConvolutionShape& s, ConvolutionPass pass, const T* x, const W* w, const T* y,
                        const T* bias) {
  if (s.samples == 0) return false;
  // oneDNN 2.6 reads its scratch unset for the weights' gradient of bfloat16 images that are narrower than the stride.
  constexpr std::size_t last = ConvolutionShape::most_dims - 1;
  if (pass == ConvolutionPass::weight && std::is_same_v<T, bfloat16> && s.extents[last] < s.stride[last]) return false;
  const int threads = device.threads();
  const OneDnnThreads guard(threads);
  constexpr auto type_of = []<class N>(const N*) { return std::is_same_v<N, bfloat16> ? OneDnn::bf16 : OneDnn::f32; };
  OneDnnConvolutions& all = device.template cache<OneDnnConvolutions>();
  OneDnnConvolutions::Convolution* found = all.find(s, pass, type_of(x), type_of(w), bias != nullptr, threads);
  if (found == nullptr) return false;
  const weft::detail::Buffer scratch = device.allocate(OneDnnConvolutions::scratch_bytes(*found));
  if (Rehearsal* const notes = device.notes(); notes != nullptr) [[unlikely]] {
    const std::size_t filter = s.in / s.groups * s.kernel_pixels();
    const std::size_t bytes = s.samples * (s.in * s.pixels() + s.out * s.out_pixels()) * sizeof(T) + s.out * filter * sizeof(W);
    notes->product(double(s.samples * s.out_pixels()), double(s.out), double(filter), double(bytes), data_type_of<T>);
    if (device.rehearsal() != nullptr) {
      const weft::detail::TracedWhole whole(device.trace());
      notes->launched({"convolution", bytes});
      return true;
    }
  }
  const weft::detail::ObservedKernel kernel("convolution");
  all.run(*found, const_cast<T*>(x), const_cast<W*>(w), const_cast<T*>(y), bias, scratch.get());
  return true;
}

}  // namespace weft::kernels::detail

#ifndef WEFT_COMPILED
#include <weft/kernels/detail/convolution_onednn_impl.hpp>
#endif
