// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/schedule/action.hpp weft/pipeline/schedule/table.hpp weft/pipeline/schedule/gpipe.hpp
// covers: weft/pipeline/schedule/one_forward_one_backward.hpp weft/pipeline/schedule/interleaved.hpp
// covers: weft/pipeline/schedule/zero_bubble.hpp
// Small tables of every schedule, proven by the compiler.

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

#include <weft/pipeline/schedule/action.hpp>
#include <weft/pipeline/schedule/check.hpp>
#include <weft/pipeline/schedule/dualpipev.hpp>
#include <weft/pipeline/schedule/gpipe.hpp>
#include <weft/pipeline/schedule/interleaved.hpp>
#include <weft/pipeline/schedule/one_forward_one_backward.hpp>
#include <weft/pipeline/schedule/table.hpp>
#include <weft/pipeline/schedule/zbv.hpp>
#include <weft/pipeline/schedule/zero_bubble.hpp>

using namespace weft::schedule;

namespace {

/// One static evaluation each, so that every table has the compiler's full step budget.
template <class S, int P, int M>
inline constexpr bool holds = !S::applies(P, M) || proven<S>(P, M);

template <class S, int... M>
inline constexpr bool for_counts = ((holds<S, 1, M> && holds<S, 2, M> && holds<S, 3, M> && holds<S, 4, M>)&&...);

/// Fewer counts for two chunks per rank: such tables take twice as long to compile, and the run-time test covers them all.
template <class S>
inline constexpr bool all = [] {
  if constexpr (S::chunks == 1) return for_counts<S, 1, 2, 3, 4, 5, 6, 7, 8>;
  else return for_counts<S, 1, 3, 4, 8>;
}();

static_assert(all<GPipe>);
static_assert(all<OneForwardOneBackward>);
static_assert(all<Interleaved<2>>);
static_assert(all<ZeroBubbleH1>);
static_assert(all<InterleavedZeroBubble<2>>);
static_assert(all<Zbv>);
static_assert(all<DualPipeV>);

/// A schedule whose last rank runs its backwards first: the checker must refuse it at compile time too.
struct Backwards : GPipe {
  static constexpr Order order(int rank, int ranks, int micro_batches) {
    Order order = GPipe::order(rank, ranks, micro_batches);
    if (rank == ranks - 1) std::swap(order.front(), order.back());
    return order;
  }
};
static_assert(!proven<Backwards>(2, 2));

}  // namespace

TEST_CASE("the compiler proved every schedule for P <= 4, M <= 8") { CHECK(all<GPipe>); }
