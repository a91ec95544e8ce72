// SPDX-License-Identifier: Apache-2.0
#pragma once
// The passes of a convolution over images that axes cut. No image with its halo is made: the whole piece is convolved with zeros
// in place of the halo, while the rows of the neighbours are on their way. Outputs at the edges are then computed again, from
// strips of the neighbours' rows and the piece's own rows beside them. In backward the gradient of the halo comes first, and
// travels while that of the piece is computed.
//
//   CutConvolution<Strip> cut{options, axes};                                      // the options have the halo as padding
//   convolution_of<kind>("conv2d", 2, cut, images, weights, bias);                 // forward_pass and its two gradients, below
//
// Along several axes one exchange follows the other, and later ones bring the corners. The samples are then computed in parts,
// one for each exchange to hide.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <weft/kernels/convolution.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/operations/convolution_options.hpp>
#include <weft/tensor/halo.hpp>

namespace weft::detail {

/// An axis that cuts dim `dim` of images [samples, channels, ...]. Its communicator belongs to the context.
struct CutAxis {
  Communicator comm;
  std::size_t dim;
  HaloRows rows;
};

/// The options of a convolution of a piece. Their padding counts the rows of the neighbours, whose copies forward keeps here.
template <class Strip>
struct CutConvolution : ConvolutionOptions {
  std::vector<CutAxis> axes;  // in the order of their exchanges
  std::shared_ptr<std::vector<Strips<Strip>>> halos = std::make_shared<std::vector<Strips<Strip>>>();
};

/// The outputs that depend on a neighbour's rows, and the piece's own rows that they depend on.
struct EdgeOutputs {
  std::size_t first = 0, count = 0, row = 0, rows = 0;
  bool inside = true;  ///< whether the own rows are rows of the piece: they may reach over it, into the other halo
};
/// Those of the first rows, in a shape whose padding before dim `d` are the `halo` rows of the previous rank, if there are any.
inline EdgeOutputs outputs_before(const kernels::ConvolutionShape& s, std::size_t d, std::size_t halo) {
  EdgeOutputs edge;
  if (halo == 0) return edge;
  edge.count = std::min((halo + s.stride[d] - 1) / s.stride[d], s.out_extent(d));
  edge.rows = (edge.count - 1) * s.stride[d] + s.reach(d) - halo;
  edge.inside = edge.rows <= s.extents[d];
  return edge;
}
/// Those of the last rows.
inline EdgeOutputs outputs_after(const kernels::ConvolutionShape& s, std::size_t d, std::size_t halo) {
  EdgeOutputs edge;
  const std::size_t end = s.before[d] + s.extents[d];  // of the own rows
  if (halo == 0) return edge;
  edge.first = end >= s.reach(d) ? (end - s.reach(d)) / s.stride[d] + 1 : 0;
  edge.count = s.out_extent(d) - std::min(edge.first, s.out_extent(d));
  if (edge.count == 0) return edge;  // no output depends on the halo
  edge.rows = end - edge.first * s.stride[d];
  edge.inside = edge.rows <= s.extents[d];
  edge.row = edge.inside ? s.extents[d] - edge.rows : 0;
  return edge;
}

/// The passes for elements T; x [samples, in, ...] is the piece, s its shape with zeros in place of the halo.
template <class T, class Exec>
class CutPasses {
 public:
  using Strip = Tensor<T, Exec>;
  using Sides = Strips<Strip>;

  CutPasses(const CutConvolution<Strip>& cut, Device<Exec>& device, const kernels::ConvolutionShape& s)
      : cut_(cut), device_(device), s_(s) {}

  void forward(const Strip& x, const T* w, const T* bias, const Strip& y) const {
    std::vector<Sides>& halos = *cut_.halos;
    halos.clear();
    for (std::size_t axis = 0; axis < parts(); ++axis) {
      const auto arriving = axis < axes() ? start_rows(axis, x, halos) : nullptr;
      const kernels::ConvolutionShape s = part(axis);
      const std::size_t first = first_of(axis);
      kernels::convolution_forward<T>(device_, s, x.data() + first * image(), w, bias, y.data() + first * result());
      if (axis + 1 >= axes())
        for (std::size_t done = 0; done < axis; ++done) edges(done, x, halos, w, bias, y);
      if (arriving) halos.push_back(arriving->wait());
    }
    if (axes() != 0) edges(axes() - 1, x, halos, w, bias, y);
  }

  void input_gradient(const Strip& g, const T* w, const Strip& dx) const {
    std::vector<Sides> home(axes());
    for (std::size_t axis = axes(), number = 0; number < parts(); ++number) {
      std::unique_ptr<HaloExchange<Strip>> leaving;
      if (axis != 0) leaving = start_gradient(--axis, g, w, home);
      const kernels::ConvolutionShape s = part(number);
      const std::size_t first = first_of(number);
      kernels::convolution_backward_input<T>(device_, s, g.data() + first * result(), w, dx.data() + first * image());
      if (leaving) home[axis] = leaving->wait();
    }
    for (std::size_t axis = axes(); axis-- > 0;) put_strips<true>(dx, cut_.axes[axis].dim, home[axis]);
  }

  // Terms of the piece's own rows, then those of each neighbour's.
  void weight_gradient(const Strip& x, const Strip& g, accumulate_t<T>* dw) const {
    using A = accumulate_t<T>;
    kernels::convolution_backward_weight<T>(device_, s_, x.data(), g.data(), dw);
    const std::size_t size = s_.out * (s_.in / s_.groups) * s_.kernel_pixels();
    const Tensor<A, Exec> terms(device_, {size});
    for (std::size_t axis = 0; axis < axes(); ++axis)
      for (const bool before : {true, false}) {
        const EdgeOutputs edge = edge_of(axis, before);
        if (edge.count == 0) continue;
        const Sides& halo = (*cut_.halos)[axis];
        const Strip slab = rows_of(g, cut_.axes[axis].dim, edge.first, edge.count);
        kernels::convolution_backward_weight<T>(device_, halo_shape(axis, before, edge),
                                                (before ? halo.before : halo.after).data(), slab.data(), terms.data());
        kernels::add<A>(device_, size, dw, terms.data(), dw);
      }
  }

 private:
  std::size_t axes() const { return cut_.axes.size(); }
  std::size_t at(std::size_t axis) const { return cut_.axes[axis].dim - 2 + s_.most_dims - s_.dims; }
  const HaloRows& rows(std::size_t axis) const { return cut_.axes[axis].rows; }
  std::size_t image() const { return s_.in * s_.pixels(); }
  std::size_t result() const { return s_.out * s_.out_pixels(); }

  // Samples are computed in as many parts as there are exchanges.
  std::size_t parts() const { return std::max<std::size_t>(1, axes()); }
  std::size_t first_of(std::size_t number) const { return s_.samples * number / parts(); }
  kernels::ConvolutionShape part(std::size_t number) const {
    kernels::ConvolutionShape s = s_;
    s.samples = first_of(number + 1) - first_of(number);
    return s;
  }

  EdgeOutputs edge_of(std::size_t axis, bool before) const {
    return before ? outputs_before(s_, at(axis), rows(axis).before) : outputs_after(s_, at(axis), rows(axis).after);
  }
  // s along the axes before `axis`, whose rows have arrived there: padding is left at the border of the domain only.
  kernels::ConvolutionShape with_earlier_halos(std::size_t axis) const {
    kernels::ConvolutionShape s = s_;
    for (std::size_t earlier = 0; earlier < axis; ++earlier) {
      const std::size_t d = at(earlier);
      s.extents[d] += rows(earlier).before + rows(earlier).after;
      s.before[d] -= rows(earlier).before, s.after[d] -= rows(earlier).after;
    }
    return s;
  }
  // The rows of a neighbour, with zeros in place of the own rows.
  kernels::ConvolutionShape halo_shape(std::size_t axis, bool before, const EdgeOutputs& edge) const {
    kernels::ConvolutionShape s = with_earlier_halos(axis);
    const std::size_t d = at(axis);
    s.extents[d] = before ? rows(axis).before : rows(axis).after;
    s.before[d] = before ? 0 : edge.rows, s.after[d] = before ? edge.rows : 0;
    return s;
  }

  // Rows of the piece along the axis' dim, with the halos of the axes before it.
  Strip rows_with_halos(std::size_t axis, const Strip& images, const std::vector<Sides>& halos, std::size_t first,
                        std::size_t count) const {
    const std::size_t dim = cut_.axes[axis].dim;
    Strip strip = rows_of(images, dim, first, count);
    for (std::size_t earlier = 0; earlier < axis; ++earlier) {
      const std::size_t across = cut_.axes[earlier].dim;
      strip = with_room<Strip>(strip, across, rows(earlier).before, rows(earlier).after);
      put_strips<false>(strip, across,
                        {rows_of(halos[earlier].before, dim, first, count), rows_of(halos[earlier].after, dim, first, count)});
    }
    return strip;
  }
  std::unique_ptr<HaloExchange<Strip>> start_rows(std::size_t axis, const Strip& images, const std::vector<Sides>& halos) const {
    const CutAxis& cut = cut_.axes[axis];
    const std::size_t own = images.shape()[cut.dim], first = std::min(cut.rows.to_previous, own),
                      last = std::min(cut.rows.to_next, own);
    return std::make_unique<HaloExchange<Strip>>(
        cut.comm, HaloWay::to_halos, cut.dim, own, cut.rows,
        Sides{with_all_rows(rows_with_halos(axis, images, halos, 0, first), cut.dim, false, cut.rows.to_previous, 0),
              with_all_rows(rows_with_halos(axis, images, halos, own - last, last), cut.dim, true, cut.rows.to_next, 0)});
  }

  // The outputs that depend on the axis' halo. Those that depend on a later one are wrong until its turn.
  void edges(std::size_t axis, const Strip& images, const std::vector<Sides>& halos, const T* w, const T* bias,
             const Strip& y) const {
    const std::size_t d = at(axis), own = s_.extents[d];
    const EdgeOutputs first = edge_of(axis, true), last = edge_of(axis, false);
    const HaloRows& halo = rows(axis);
    if (!first.inside || !last.inside) {  // of a piece with few rows all outputs are at an edge
      compute_edge(axis, {0, s_.out_extent(d), 0, own}, s_.before[d] - halo.before, s_.after[d] - halo.after, images, halos[axis],
                   halos, w, bias, y);
      return;
    }
    const Sides none = empty_sides(axis, halos[axis]);
    compute_edge(axis, first, 0, 0, images, {halos[axis].before, none.after}, halos, w, bias, y);
    compute_edge(axis, last, 0, 0, images, {none.before, halos[axis].after}, halos, w, bias, y);
  }
  Sides empty_sides(std::size_t axis, const Sides& like) const {
    const std::size_t dim = cut_.axes[axis].dim;
    return {rows_of(like.before, dim, 0, 0), rows_of(like.after, dim, 0, 0)};
  }
  void compute_edge(std::size_t axis, const EdgeOutputs& edge, std::size_t before, std::size_t after, const Strip& images,
                    const Sides& sides, const std::vector<Sides>& halos, const T* w, const T* bias, const Strip& y) const {
    if (edge.count == 0) return;
    const std::size_t dim = cut_.axes[axis].dim, d = at(axis);
    const Strip own = rows_with_halos(axis, images, halos, edge.row, edge.rows);
    const Strip strip = with_room<Strip>(own, dim, sides.before.shape()[dim], sides.after.shape()[dim]);
    put_strips<false>(strip, dim, sides);
    kernels::ConvolutionShape s = with_earlier_halos(axis);
    s.extents[d] = strip.shape()[dim];
    s.before[d] = before, s.after[d] = after;
    const Strip out(device_, with_extent(y.shape(), dim, s.out_extent(d)));
    kernels::convolution_forward<T>(device_, s, strip.data(), w, bias, out.data());
    move_rows<false>(out, dim, 0, y, edge.first, edge.count);
  }

  Strip halo_gradient(std::size_t axis, bool before, const Strip& g, const T* w) const {
    const EdgeOutputs edge = edge_of(axis, before);
    const kernels::ConvolutionShape s = halo_shape(axis, before, edge);
    Shape shape = Shape::of_rank(s.dims + 2);
    shape[0] = s.samples, shape[1] = s.in;
    for (std::size_t dim = 0; dim < s.dims; ++dim) shape[dim + 2] = s.extents[dim + s.most_dims - s.dims];
    const Strip dx(device_, shape);
    const Strip slab = rows_of(g, cut_.axes[axis].dim, edge.first, edge.count);
    if (edge.count == 0) fill_zero(device_, dx.data(), dx.size());
    else kernels::convolution_backward_input<T>(device_, s, slab.data(), w, dx.data());
    return dx;
  }
  // Sends the gradient of the axis' halo. The rows that came home along later axes have corners, which are part of it.
  std::unique_ptr<HaloExchange<Strip>> start_gradient(std::size_t axis, const Strip& g, const T* w,
                                                      std::vector<Sides>& home) const {
    const CutAxis& cut = cut_.axes[axis];
    const Sides sums{halo_gradient(axis, true, g, w), halo_gradient(axis, false, g, w)};
    for (std::size_t later = axes(); --later > axis;) {  // in the order in which they came
      Sides& rows = home[later];
      put_strips<true>(sums.before, cut_.axes[later].dim, rows_of_both(rows, cut.dim, 0, cut.rows.before));
      put_strips<true>(sums.after, cut_.axes[later].dim,
                       rows_of_both(rows, cut.dim, rows.before.shape()[cut.dim] - cut.rows.after, cut.rows.after));
      rows = rows_of_both(rows, cut.dim, cut.rows.before, s_.extents[at(axis)]);
    }
    return std::make_unique<HaloExchange<Strip>>(cut.comm, HaloWay::home, cut.dim, s_.extents[at(axis)], cut.rows, sums);
  }
  static Sides rows_of_both(const Sides& sides, std::size_t dim, std::size_t first, std::size_t count) {
    return {rows_of(sides.before, dim, first, count), rows_of(sides.after, dim, first, count)};
  }

  const CutConvolution<Strip>& cut_;
  Device<Exec>& device_;
  const kernels::ConvolutionShape s_;
};

template <class T, class Exec, class X, class W, class Y>
void forward_pass(const CutConvolution<Tensor<T, Exec>>& cut, const kernels::ConvolutionShape& s, const X& x, const W& w,
                  const T* bias, const Y& y) {
  CutPasses<T, Exec>(cut, x.device(), s).forward(raw(x), w.data(), bias, raw(y));
}
template <class T, class Exec, class G, class W, class X>
void input_gradient_pass(const CutConvolution<Tensor<T, Exec>>& cut, const kernels::ConvolutionShape& s, const G& g, const W& w,
                         const X& dx) {
  CutPasses<T, Exec>(cut, g.device(), s).input_gradient(raw(g), w.data(), raw(dx));
}
template <class T, class Exec, class X, class G>
void weight_gradient_pass(const CutConvolution<Tensor<T, Exec>>& cut, const kernels::ConvolutionShape& s, const X& x, const G& g,
                          accumulate_t<T>* dw) {
  CutPasses<T, Exec>(cut, x.device(), s).weight_gradient(raw(x), raw(g), dw);
}

}  // namespace weft::detail
