// SPDX-License-Identifier: Apache-2.0
#pragma once
// The passes of an operation with a window over images that axes cut. No image with its halo is made: outputs of the whole piece
// are computed as if it had no neighbours, while their rows are on their way. Outputs at the edges are then computed again, from
// strips of the neighbours' rows and the piece's own rows beside them. In backward the gradient of the halo comes first, and
// travels while that of the piece is computed.
//
//   const CutPasses<Windows, AveragePooling<T>, T, Exec> passes({shape}, axes, device, x.shape());   // shape: with all halos
//   passes.forward(x, halos, y);
//   passes.input_gradient(dx, g);
//
// Along several axes one exchange follows the other, and later ones bring the corners. The samples are then computed in parts,
// one for each exchange to hide.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <weft/autograd/variable.hpp>
#include <weft/kernels/convolution_shape.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/operations/exchanged_rows.hpp>
#include <weft/tensor/halo.hpp>

namespace weft::detail {

/// Rows of a line, or outputs along it.
struct RowRange {
  std::size_t first = 0, count = 0;
  constexpr std::size_t end() const { return first + count; }
};

/// The lines of windows: the rows that an output needs, and the shape of some rows, with zeros in place of all others, and of
/// some outputs. Each operation has such a class for its shapes.
struct Windows {
  using Shape = kernels::ConvolutionShape;
  static constexpr std::size_t outputs(const Shape& s, std::size_t d) { return s.out_extent(d); }
  static constexpr RowRange reads(const Shape& s, std::size_t d, std::size_t output) {
    const std::size_t begin = output * s.stride[d], end = begin + s.reach(d), last = s.before[d] + s.extents[d];
    const std::size_t first = std::clamp(begin, s.before[d], last);
    return {first - s.before[d], std::clamp(end, first, last) - first};
  }
  static constexpr void narrow(Shape& s, std::size_t d, const RowRange& rows, const RowRange& outputs) {
    const std::size_t end = outputs.count == 0 ? 0 : (outputs.end() - 1) * s.stride[d] + s.reach(d);
    const std::size_t last = s.before[d] + rows.end();
    s.before[d] = s.before[d] + rows.first - std::min(outputs.first * s.stride[d], s.before[d] + rows.first);
    s.after[d] = end > last ? end - last : 0;
    s.extents[d] = rows.count;
  }
  static constexpr void take(Shape& s, std::size_t samples, std::size_t) { s.samples = samples; }
};

/// Lines are Windows or the like; Kernels have a shape `s`, forward(device, x, y...) and input_gradient(device, dx, g...) of
/// elements T.
template <class Lines, class Kernels, class T, class Exec>
class CutPasses {
 public:
  using Strip = Tensor<T, Exec>;
  using Sides = Strips<Strip>;
  using Halos = std::vector<Sides>;

  /// `kernels` of images with all halos; `piece`: the shape of images without them.
  CutPasses(const Kernels& kernels, const std::vector<CutAxis>& cuts, Device<Exec>& device, const Shape& piece)
      : kernels_(kernels), cuts_(cuts), device_(device), piece_(piece) {}

  /// The outputs y of x, of the same extents each. `halos` get the neighbours' rows.
  template <class... Y>
  void forward(const Strip& x, Halos& halos, const Y&... y) const {
    halos.clear();
    for (std::size_t axis = 0; axis < parts(); ++axis) {
      const auto arriving = axis < axes() ? start_rows(axis, x, halos) : nullptr;
      const RowRange samples = part(axis);
      whole(samples.count).forward(device_, from(x, samples.first), from(y, samples.first)...);
      if (axis + 1 >= axes())
        for (std::size_t done = 0; done < axis; ++done) edges(done, x, halos, y...);
      if (arriving) halos.push_back(arriving->wait());
    }
    if (axes() != 0) edges(axes() - 1, x, halos, y...);
  }

  /// The gradient dx from tensors g of the outputs' extents.
  template <class... G>
  void input_gradient(const Strip& dx, const G&... g) const {
    Halos home(axes());
    for (std::size_t axis = axes(), number = 0; number < parts(); ++number) {
      std::unique_ptr<HaloExchange<Strip>> leaving;
      if (axis != 0) leaving = start_gradient(--axis, home, g...);
      const RowRange samples = part(number);
      whole(samples.count).input_gradient(device_, from(dx, samples.first), from(g, samples.first)...);
      if (leaving) home[axis] = leaving->wait();
    }
    for (std::size_t axis = axes(); axis-- > 0;) put_strips<true>(dx, cuts_[axis].dim, home[axis]);
  }

  /// The gradient dw of `size` weights: terms of the piece's own rows, then those of each neighbour's.
  void weight_gradient(const Strip& x, const Halos& halos, const Strip& g, std::size_t size, accumulate_t<T>* dw) const {
    whole(piece_[0]).weight_gradient(device_, x.data(), g.data(), dw);
    const Tensor<accumulate_t<T>, Exec> terms(device_, {size});
    for (std::size_t axis = 0; axis < axes(); ++axis)
      for (const bool before : {true, false}) {
        const RowRange edge = edge_of(axis, before);
        if (edge.count == 0) continue;
        const Strip slab = rows_of(g, cuts_[axis].dim, edge.first, edge.count);
        const Strip& halo = before ? halos[axis].before : halos[axis].after;
        strip(axis, halo_of(axis, before), edge).weight_gradient(device_, halo.data(), slab.data(), terms.data());
        kernels::add<accumulate_t<T>>(device_, size, dw, terms.data(), dw);
      }
  }

 private:
  std::size_t axes() const { return cuts_.size(); }
  std::size_t at(std::size_t axis) const { return cuts_[axis].dim + kernels::ConvolutionShape::most_dims - piece_.rank(); }
  const HaloRows& rows(std::size_t axis) const { return cuts_[axis].rows; }

  // Samples are computed in as many parts as there are exchanges.
  std::size_t parts() const { return std::max<std::size_t>(1, axes()); }
  RowRange part(std::size_t number) const {
    const std::size_t first = piece_[0] * number / parts();
    return {first, piece_[0] * (number + 1) / parts() - first};
  }
  template <class X>
  static auto* from(const X& x, std::size_t sample) {
    return x.data() + (sample == 0 ? 0 : sample * (x.size() / x.shape()[0]));
  }

  // Rows of the line that the piece and its halos are.
  RowRange own(std::size_t axis) const { return {rows(axis).before, piece_[cuts_[axis].dim]}; }
  RowRange halo_of(std::size_t axis, bool before) const {
    return before ? RowRange{0, rows(axis).before} : RowRange{own(axis).end(), rows(axis).after};
  }
  RowRange outputs(std::size_t axis) const { return {0, Lines::outputs(kernels_.s, at(axis))}; }
  // The first or the last outputs, which depend on rows of a neighbour.
  RowRange edge_of(std::size_t axis, bool before) const {
    const std::size_t d = at(axis), all = outputs(axis).count;
    RowRange edge{before ? 0 : all, 0};
    if (halo_of(axis, before).count == 0) return edge;
    if (before)
      while (edge.count < all && Lines::reads(kernels_.s, d, edge.count).first < own(axis).first) ++edge.count;
    else
      while (edge.first > 0 && Lines::reads(kernels_.s, d, edge.first - 1).end() > own(axis).end()) --edge.first, ++edge.count;
    return edge;
  }
  RowRange reads(std::size_t axis, const RowRange& outs) const {
    const std::size_t first = Lines::reads(kernels_.s, at(axis), outs.first).first;
    return {first, Lines::reads(kernels_.s, at(axis), outs.end() - 1).end() - first};
  }

  // Some rows and outputs along an axis, with the halos of the axes before it and without those of later ones.
  Kernels strip(std::size_t axis, const RowRange& some, const RowRange& outs) const {
    Kernels strip = kernels_;
    for (std::size_t later = axes(); --later > axis;) Lines::narrow(strip.s, at(later), own(later), outputs(later));
    Lines::narrow(strip.s, at(axis), some, outs);
    return strip;
  }
  Kernels whole(std::size_t samples) const {
    Kernels piece = axes() == 0 ? kernels_ : strip(0, own(0), outputs(0));
    Lines::take(piece.s, samples, piece_[1]);
    return piece;
  }

  // Own rows of the piece along the axis' dim, with the halos of the axes before it.
  Strip rows_with_halos(std::size_t axis, const Strip& images, const Halos& halos, std::size_t first, std::size_t count) const {
    const std::size_t dim = cuts_[axis].dim;
    Strip strip = rows_of(images, dim, first, count);
    for (std::size_t earlier = 0; earlier < axis; ++earlier) {
      const std::size_t across = cuts_[earlier].dim;
      strip = with_room<Strip>(strip, across, rows(earlier).before, rows(earlier).after);
      put_strips<false>(strip, across, rows_of_both(halos[earlier], dim, first, count));
    }
    return strip;
  }
  std::unique_ptr<HaloExchange<Strip>> start_rows(std::size_t axis, const Strip& images, const Halos& halos) const {
    const auto& [comm, dim, rows] = cuts_[axis];
    const std::size_t count = own(axis).count, first = std::min(rows.to_previous, count), last = std::min(rows.to_next, count);
    const Strip before = rows_with_halos(axis, images, halos, 0, first),
                after = rows_with_halos(axis, images, halos, count - last, last);
    return std::make_unique<HaloExchange<Strip>>(comm, HaloWay::to_halos, dim, count, rows,
                                                 Sides{with_all_rows(before, dim, false, rows.to_previous, rows.beyond.value),
                                                       with_all_rows(after, dim, true, rows.to_next, rows.beyond.value)});
  }

  // The outputs that depend on the axis' halo. Those that depend on a later one are wrong until its turn.
  template <class... Y>
  void edges(std::size_t axis, const Strip& images, const Halos& halos, const Y&... y) const {
    const RowRange first = edge_of(axis, true), last = edge_of(axis, false), piece = own(axis);
    // In a piece with few rows outputs depend on both halos.
    if ((first.count != 0 && reads(axis, first).end() > piece.end()) ||
        (last.count != 0 && reads(axis, last).first < piece.first))
      return compute_edge(axis, {0, rows(axis).around(piece.count)}, outputs(axis), images, halos, y...);
    for (const RowRange& edge : {first, last})
      if (edge.count != 0) compute_edge(axis, reads(axis, edge), edge, images, halos, y...);
  }
  template <class... Y>
  void compute_edge(std::size_t axis, const RowRange& some, const RowRange& outs, const Strip& images, const Halos& halos,
                    const Y&... y) const {
    const std::size_t dim = cuts_[axis].dim;
    const RowRange piece = own(axis);
    const std::size_t first = std::clamp(some.first, piece.first, piece.end()), end = std::clamp(some.end(), first, piece.end());
    const std::size_t before = first - some.first, after = some.end() - end;
    const Strip x = with_room<Strip>(rows_with_halos(axis, images, halos, first - piece.first, end - first), dim, before, after);
    put_strips<false>(x, dim, {rows_of(halos[axis].before, dim, some.first, before), rows_of(halos[axis].after, dim, 0, after)});
    const std::tuple results{strip_t<Y>(device_, with_extent(y.shape(), dim, outs.count))...};
    std::apply(
        [&](const auto&... result) {
          strip(axis, some, outs).forward(device_, x.data(), result.data()...);
          (move_rows<false>(result, dim, 0, y, outs.first, outs.count), ...);
        },
        results);
  }

  template <class... G>
  Strip halo_gradient(std::size_t axis, bool before, const G&... g) const {
    const RowRange edge = edge_of(axis, before), halo = halo_of(axis, before);
    const std::size_t dim = cuts_[axis].dim;
    Shape shape = with_extent(piece_, dim, halo.count);
    for (std::size_t earlier = 0; earlier < axis; ++earlier) shape[cuts_[earlier].dim] = rows(earlier).around(own(earlier).count);
    const Strip dx(device_, shape);
    if (edge.count == 0) fill_zero(device_, dx.data(), dx.size());
    else strip(axis, halo, edge).input_gradient(device_, dx.data(), rows_of(g, dim, edge.first, edge.count).data()...);
    return dx;
  }
  // Sends the gradient of the axis' halo. The rows that came home along later axes have corners, which are part of it.
  template <class... G>
  std::unique_ptr<HaloExchange<Strip>> start_gradient(std::size_t axis, Halos& home, const G&... g) const {
    const CutAxis& cut = cuts_[axis];
    const Sides sums{halo_gradient(axis, true, g...), halo_gradient(axis, false, g...)};
    for (std::size_t later = axes(); --later > axis;) {  // in the order in which they came
      Sides& came = home[later];
      put_strips<true>(sums.before, cuts_[later].dim, rows_of_both(came, cut.dim, 0, cut.rows.before));
      put_strips<true>(sums.after, cuts_[later].dim, rows_of_both(came, cut.dim, own(axis).end(), cut.rows.after));
      came = rows_of_both(came, cut.dim, cut.rows.before, own(axis).count);
    }
    return std::make_unique<HaloExchange<Strip>>(cut.comm, HaloWay::home, cut.dim, own(axis).count, cut.rows, sums);
  }
  static Sides rows_of_both(const Sides& sides, std::size_t dim, std::size_t first, std::size_t count) {
    return {rows_of(sides.before, dim, first, count), rows_of(sides.after, dim, first, count)};
  }

  const Kernels kernels_;
  const std::vector<CutAxis>& cuts_;
  Device<Exec>& device_;
  const Shape piece_;
};

/// y = the outputs of x by kernels without parameters. `kept`: other tensors that they compute, of y's extents, for backward.
template <class Lines, class Kernels, class C, class X, class... Kept>
Variable<C, X> cut_outputs(const Kernels& kernels, const std::vector<CutAxis>& cuts, const Variable<C, X>& x, X y,
                           const Kept&... kept) {
  using Passes = CutPasses<Lines, Kernels, typename X::value_type, typename X::execution_space>;
  typename Passes::Halos halos;
  Passes(kernels, cuts, y.device(), x.shape()).forward(raw(x.value()), halos, raw(y), kept...);
  return record(x, std::move(y), from(x, [kernels, cuts, shape = x.shape(), kept...](const auto&, const auto& g) {
                  const gradient_t<X> dx(g.device(), shape);
                  Passes(kernels, cuts, g.device(), shape).input_gradient(raw(dx), raw(g), kept...);
                  return dx;
                }));
}

}  // namespace weft::detail
