// SPDX-License-Identifier: Apache-2.0
#pragma once
// The first elements along a dim of an array [outer, extent, inner], in order: all of them, or the largest few. Equal elements
// keep their order. Hosts sort keys with places (detail/radix_sort.hpp), or keep the first few in a heap of them. Elsewhere each
// line is a heap of places in the result's memory, so that it needs no other.
//
//   kernels::order_along<float>(device, {outer, extent, inner}, count, true, x, values, places);

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/kernels/along_dim.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/radix_sort.hpp>

namespace weft::kernels {

namespace detail {

/// A line of elements, and a heap of places in it whose root comes last. A NaN is larger than all other elements.
template <class T>
struct PlaceHeap {
  const T* x;
  std::int32_t* places;
  std::size_t stride;  // of both
  bool descending;

  KOKKOS_FORCEINLINE_FUNCTION std::int32_t& at(std::size_t i) const { return places[i * stride]; }
  KOKKOS_FORCEINLINE_FUNCTION bool comes_before(std::int32_t a, std::int32_t b) const {
    using A = accumulate_t<T>;
    const A left = A(x[std::size_t(a) * stride]), right = A(x[std::size_t(b) * stride]);
    const bool left_nan = left != left, right_nan = right != right;
    if (left_nan != right_nan) return left_nan == descending;
    if (!left_nan && left != right) return (left > right) == descending;
    return a < b;
  }
  /// Restores the heap of `size` places below `root`.
  KOKKOS_FORCEINLINE_FUNCTION void sink(std::size_t root, std::size_t size) const {
    const std::int32_t place = at(root);
    for (std::size_t child = 2 * root + 1; child < size; child = 2 * root + 1) {
      if (child + 1 < size && comes_before(at(child), at(child + 1))) ++child;
      if (!comes_before(place, at(child))) break;
      at(root) = at(child);
      root = child;
    }
    at(root) = place;
  }
  /// The first `count` places of `extent`, in order.
  KOKKOS_FORCEINLINE_FUNCTION void order(std::size_t extent, std::size_t count) const {
    if (count == 0) return;
    for (std::size_t i = 0; i < count; ++i) at(i) = std::int32_t(i);
    for (std::size_t root = count / 2; root-- > 0;) sink(root, count);
    for (std::size_t k = count; k < extent; ++k)
      if (comes_before(std::int32_t(k), at(0))) {
        at(0) = std::int32_t(k);
        sink(0, count);
      }
    for (std::size_t last = count - 1; last > 0; --last) {
      const std::int32_t place = at(last);
      at(last) = at(0);
      at(0) = place;
      sink(0, last);
    }
  }
};

/// The first `count` of these keys in order, each with its place: a heap whose root is the last of those found so far.
template <class Key>
void first_keys(const Key* keys, std::size_t extent, std::size_t count, Keyed<Key>* found) {
  for (std::size_t k = 0; k < count; ++k) found[k] = {keys[k], std::int32_t(k)};
  std::make_heap(found, found + count);
  for (std::size_t k = count; k < extent; ++k)
    if (keys[k] < found[0].key) {
      std::pop_heap(found, found + count);
      found[count - 1] = {keys[k], std::int32_t(k)};
      std::push_heap(found, found + count);
    }
  std::sort_heap(found, found + count);
}

/// order_along by keys, on hosts: the lines in shares, each with memory for a line's keys.
template <class T, class Exec>
void order_by_keys(Device<Exec>& device, Traffic traffic, const Along& along, std::size_t count, bool descending, const T* x,
                   T* values, std::int32_t* places) {
  using Key = sort_key_t<T>;
  const std::size_t extent = along.extent, inner = along.inner, lines = along.outer * inner;
  if (lines == 0 || count == 0) return;
  const bool few = 8 * count < extent;  // a heap of them takes fewer steps than sorting all
  const std::size_t shares = std::min(threads_for(device, 16 * lines * extent), lines);
  const std::size_t items = few ? count : 2 * extent, keys = few ? extent : 0,
                    bytes = items * sizeof(Keyed<Key>) + (keys * sizeof(Key) + 63) / 64 * 64;
  const weft::detail::Buffer memory = device.allocate(shares * bytes);
  for_each_piece(device, traffic, shares, [&](std::size_t share, std::size_t) {
    auto* const item = reinterpret_cast<Keyed<Key>*>(static_cast<char*>(memory.get()) + share * bytes);
    auto* const key = reinterpret_cast<Key*>(item + items);
    for (std::size_t line = lines * share / shares; line < lines * (share + 1) / shares; ++line) {
      const std::size_t first = line / inner * inner, column = line % inner;
      const T* const from = x + first * extent + column;
      const Keyed<Key>* sorted = item;
      if (few) {
        for (std::size_t k = 0; k < extent; ++k) key[k] = sort_key(from[k * inner], descending);
        first_keys(key, extent, count, item);
      } else {
        for (std::size_t k = 0; k < extent; ++k) item[k] = {sort_key(from[k * inner], descending), std::int32_t(k)};
        sorted = sort_keys(item, item + extent, extent);
      }
      for (std::size_t j = 0; j < count; ++j) {
        const std::size_t to = first * count + column + j * inner;
        places[to] = sorted[j].place;
        values[to] = from[std::size_t(sorted[j].place) * inner];
      }
    }
  });
}

/// The same by a heap in the result's memory for each line, in any execution space.
template <class T, class Exec>
void order_by_heaps(Device<Exec>& device, Traffic traffic, const Along& along, std::size_t count, bool descending, const T* x,
                    T* values, std::int32_t* places) {
  const std::size_t extent = along.extent, inner = along.inner;
  for_each(
      device, traffic, along.outer * inner, KOKKOS_LAMBDA(std::size_t line) {
        const std::size_t first = line / inner * inner, column = line % inner;
        const PlaceHeap<T> heap{x + first * extent + column, places + first * count + column, inner, descending};
        heap.order(extent, count);
        for (std::size_t j = 0; j < count; ++j)
          values[first * count + column + j * inner] = heap.x[std::size_t(heap.at(j)) * inner];
      });
}

}  // namespace detail

/// values[o, j, i] = the j-th element of x[o, :, i] in order, j < count, and its place along the dim.
template <class T, class Exec>
void order_along(Device<Exec>& device, const Along& along, std::size_t count, bool descending, const T* x, T* values,
                 std::int32_t* places) {
  const std::size_t ordered = along.outer * count * along.inner;
  const detail::Traffic traffic{"sort", (along.size() + ordered) * sizeof(T) + ordered * sizeof(std::int32_t)};
  if constexpr (weft::detail::on_host<Exec>) detail::order_by_keys(device, traffic, along, count, descending, x, values, places);
  else detail::order_by_heaps(device, traffic, along, count, descending, x, values, places);
}

/// out[o, places[o, j, i], i] = g[o, j, i] for j < count, 0 in all other places; the places of a line differ.
template <class T, class Exec>
void place_ordered(Device<Exec>& device, const Along& along, std::size_t count, const T* g, const std::int32_t* places, T* out) {
  const std::size_t extent = along.extent, inner = along.inner;
  detail::for_each(
      device,
      {"sort", (along.size() + along.outer * count * inner) * sizeof(T) + along.outer * count * inner * sizeof(std::int32_t)},
      along.outer * inner, KOKKOS_LAMBDA(std::size_t line) {
        const std::size_t first = line / inner * inner, column = line % inner, from = first * count + column;
        T* const to = out + first * extent + column;
        for (std::size_t k = 0; k < extent; ++k) to[k * inner] = T(accumulate_t<T>(0));
        for (std::size_t j = 0; j < count; ++j) to[std::size_t(places[from + j * inner]) * inner] = g[from + j * inner];
      });
}

}  // namespace weft::kernels
