// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums of the rows of a gradient by token id, on devices. The tokens are sorted by id, so the rows of one id are consecutive.
// Chunks of the sorted tokens are added in parallel, and sums that cross a chunk's border are combined afterwards. The work is
// proportional to the number of tokens, however often an id occurs, and the order of additions depends only on the ids.
//
//   sum_by_id(device, tokens, width, ids, dy, first, rows_here, dtable);

#include <cstddef>
#include <cstdint>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels::detail {

/// The order of tokens by id, stable for equal ids. This generic definition counts the preceding tokens for each token;
/// kernels/cuda/token_order.hpp sorts instead.
template <class Exec>
struct TokenOrder {
  static void sort(Device<Exec>& device, std::size_t tokens, const std::int32_t* ids, std::int32_t* sorted, std::int32_t* order) {
    for_each(
        device, {"embedding", 3 * tokens * sizeof(std::int32_t)}, tokens, KOKKOS_LAMBDA(std::size_t i) {
          const std::int32_t id = ids[i];
          std::size_t place = 0;
          for (std::size_t j = 0; j < tokens; ++j) place += ids[j] < id || (ids[j] == id && j < i) ? 1 : 0;
          sorted[place] = id;
          order[place] = std::int32_t(i);
        });
  }
};

/// dtable[ids[t] - first, :] += dy[t, :] for the ids in [first, first + rows_here).
template <class T, class Exec>
void sum_by_id(Device<Exec>& device, std::size_t tokens, std::size_t width, const std::int32_t* ids, const T* dy,
               std::int64_t first, std::size_t rows_here, accumulate_t<T>* dtable) {
  using A = accumulate_t<T>;
  if (tokens == 0) return;
  constexpr std::size_t chunk = 64;
  const std::size_t chunks = (tokens + chunk - 1) / chunk;
  const weft::detail::Buffer tables = device.allocate(2 * tokens * sizeof(std::int32_t)),
                             shared = device.allocate(2 * chunks * width * sizeof(A));
  std::int32_t* const sorted = static_cast<std::int32_t*>(tables.get());
  std::int32_t* const order = sorted + tokens;
  A* const heads = static_cast<A*>(shared.get());  // of ids that began in an earlier chunk
  A* const tails = heads + chunks * width;         // of ids that continue in the next chunk
  TokenOrder<Exec>::sort(device, tokens, ids, sorted, order);
  for_each(
      device, {"embedding", tokens * (width * (sizeof(T) + 2 * sizeof(A)) + 2 * sizeof(std::int32_t))}, chunks * width,
      KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t begin = item / width * chunk, end = begin + chunk < tokens ? begin + chunk : tokens,
                          column = item % width;
        const auto row_of = [&](std::size_t p) { return std::int64_t(sorted[p]) - first; };
        const auto here = [&](std::int64_t row) { return row >= 0 && row < std::int64_t(rows_here); };
        bool began_before = begin > 0 && sorted[begin - 1] == sorted[begin], first_of_id = true;
        A sum = 0;
        for (std::size_t p = begin; p < end; ++p) {
          const std::int64_t row = row_of(p);
          if (first_of_id) sum = !began_before && here(row) ? dtable[std::size_t(row) * width + column] : A(0);
          sum += A(dy[std::size_t(order[p]) * width + column]);
          const bool last = p + 1 == tokens || sorted[p + 1] != sorted[p];
          first_of_id = last;
          if (!last && p + 1 < end) continue;
          if (began_before) heads[item] = sum;
          else if (!last) tails[item] = sum;
          else if (here(row)) dtable[std::size_t(row) * width + column] = sum;
          began_before = false;
        }
      });
  for_each(
      device, {"embedding", 2 * chunks * width * sizeof(A)}, chunks * width, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t c = item / width, begin = c * chunk, end = begin + chunk, column = item % width;
        if (end >= tokens || sorted[end] != sorted[end - 1]) return;
        const std::int32_t id = sorted[end];
        const std::int64_t row = std::int64_t(id) - first;
        if ((begin > 0 && sorted[begin - 1] == id) || row < 0 || row >= std::int64_t(rows_here)) return;
        A sum = tails[item];
        for (std::size_t d = c + 1; d < chunks && sorted[d * chunk] == id; ++d) sum += heads[d * width + column];
        dtable[std::size_t(row) * width + column] = sum;
      });
}

}  // namespace weft::kernels::detail
