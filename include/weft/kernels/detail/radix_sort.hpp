// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stable sorting of numbers with their places, on hosts: by bytes of unsigned keys whose order is that of the numbers, from the
// last byte to the first (LSD radix sort; Knuth, The Art of Computer Programming 3, 5.2.5), and by insertion if there are few.
//
//   Keyed<std::uint32_t>* sorted = sort_keys(a, b, n);   // a or b, in order of their keys

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <weft/core/scalar.hpp>

namespace weft::kernels::detail {

template <std::size_t Bytes>
using unsigned_of = std::conditional_t<
    Bytes == 1, std::uint8_t,
    std::conditional_t<Bytes == 2, std::uint16_t, std::conditional_t<Bytes == 4, std::uint32_t, std::uint64_t>>>;
template <class T>
using sort_key_t = unsigned_of<sizeof(accumulate_t<T>)>;

/// An unsigned number in whose order x is: equal numbers have equal keys, also 0 and -0, and a NaN has the largest one. Reversed
/// if `descending`.
template <class T>
sort_key_t<T> sort_key(T x, bool descending) {
  using A = accumulate_t<T>;
  using Key = sort_key_t<T>;
  constexpr Key top = Key(Key(1) << (8 * sizeof(Key) - 1));
  Key key;
  if constexpr (std::is_floating_point_v<A>) {
    const A value = A(x) + A(0);  // of -0, 0
    const Key bits = std::bit_cast<Key>(value);
    key = value != value ? Key(~Key(0)) : Key(bits & top ? ~bits : bits | top);
  } else {
    key = std::is_signed_v<A> ? Key(Key(x) ^ top) : Key(x);
  }
  return descending ? Key(~key) : key;
}

/// A key and the place of its number in a line.
template <class Key>
struct Keyed {
  Key key;
  std::int32_t place;
  friend bool operator<(const Keyed& a, const Keyed& b) { return a.key != b.key ? a.key < b.key : a.place < b.place; }
};

template <class Key>
void insertion_sort(Keyed<Key>* a, std::size_t n) {
  for (std::size_t i = 1; i < n; ++i) {
    const Keyed<Key> item = a[i];
    std::size_t at = i;
    for (; at > 0 && item.key < a[at - 1].key; --at) a[at] = a[at - 1];
    a[at] = item;
  }
}

/// Sorts a[0 .. n) by keys, equal ones in their order, with b[0 .. n) for the passes between. Returns a or b, where the result
/// lies.
template <class Key>
Keyed<Key>* sort_keys(Keyed<Key>* a, Keyed<Key>* b, std::size_t n) {
  constexpr std::size_t few = 40;
  if (n <= few) {
    insertion_sort(a, n);
    return a;
  }
  std::array<std::array<std::uint32_t, 256>, sizeof(Key)> counts{};
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t byte = 0; byte < sizeof(Key); ++byte) ++counts[byte][a[i].key >> (8 * byte) & 255];
  for (std::size_t byte = 0; byte < sizeof(Key); ++byte) {
    auto& starts = counts[byte];
    if (starts[a[0].key >> (8 * byte) & 255] == n) continue;  // all keys have this byte
    std::uint32_t start = 0;
    for (std::uint32_t& bucket : starts) start += std::exchange(bucket, start);
    for (std::size_t i = 0; i < n; ++i) b[starts[a[i].key >> (8 * byte) & 255]++] = a[i];
    std::swap(a, b);
  }
  return a;
}

}  // namespace weft::kernels::detail
