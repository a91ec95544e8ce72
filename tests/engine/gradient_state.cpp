// SPDX-License-Identifier: Apache-2.0
// The state of a gradient during a step: the first addition overwrites, sums over axes are made once, a whole part counts on one
// rank.
#include <weft/engine/gradient_state.hpp>

#include <memory>
#include <utility>

#include <doctest/doctest.h>

using namespace weft;
using detail::GradientState;

namespace {
constexpr unsigned tp_bit = axis_bit<tp>, cp_bit = axis_bit<cp>;
detail::Buffer buffer() { return std::shared_ptr<void>(std::make_shared<int>(0)); }
}  // namespace

TEST_CASE("the first addition of a step overwrites, later ones add") {
  GradientState state;
  state.begin_step();
  CHECK(state.fresh());
  CHECK_FALSE(state.touched());
  state.add(0, 0, 0, 0);
  CHECK(state.touched());
  CHECK(state.take_fresh());
  CHECK_FALSE(state.take_fresh());
  state.begin_step();
  CHECK(state.take_fresh());
}

TEST_CASE("unreduced gradients are taken once, axis by axis") {
  GradientState state;
  state.begin_step();
  state.add(0, tp_bit | cp_bit, 0, 0);
  CHECK(state.unreduced(tp{}));
  CHECK(state.take_unreduced(tp{}));
  CHECK_FALSE(state.take_unreduced(tp{}));
  CHECK(state.unreduced() == cp_bit);
  CHECK(state.hand_on_unreduced() == cp_bit);
  CHECK(state.unreduced() == 0);
  state.mark_unreduced(tp_bit);
  state.discard();
  CHECK(state.unreduced() == 0);
}

TEST_CASE("a gradient that is whole from one use and a term of a sum from another counts its whole part once") {
  // The term first: the first rank adds the whole part, the others do not.
  for (const unsigned later : {0u, tp_bit}) {
    GradientState state;
    state.begin_step();
    state.add(0, tp_bit, 0, later);
    state.take_fresh();
    const auto second = state.add(tp_bit, 0, 0, later);
    CHECK(second.elsewhere == (later != 0));
    CHECK_FALSE(second.zero_first);
  }
  // The whole part first: on other ranks it makes room for zeros.
  for (const unsigned later : {0u, tp_bit}) {
    GradientState state;
    state.begin_step();
    CHECK_FALSE(state.add(tp_bit, 0, 0, later).elsewhere);
    state.take_fresh();
    CHECK(state.whole(tp_bit));
    const auto second = state.add(0, tp_bit, 0, later);
    CHECK(second.zero_first == (later != 0));
    CHECK_FALSE(second.elsewhere);
    CHECK(state.unreduced(tp{}));
  }
  // On an axis that shards the parameter, every rank has its own elements.
  GradientState state;
  state.begin_step();
  state.add(tp_bit, 0, tp_bit, tp_bit);
  state.take_fresh();
  CHECK_FALSE(state.whole(tp_bit));
}

TEST_CASE("layers add to the kept buffer, or to one of their own") {
  GradientState state;
  const auto kept = buffer(), layers = buffer();
  state.set_buffer(kept);
  CHECK(state.layer_buffer() == kept);
  state.separate();
  CHECK_FALSE(state.layer_buffer());
  state.set_layer_buffer(layers);
  CHECK(state.buffer() == kept);
  CHECK(state.layer_buffer() == layers);
}

TEST_CASE(
    "terms of micro-batches are put aside, resumed and handed over, and nothing is left of one to which nothing was added") {
  GradientState state;
  const auto outside = buffer(), first = buffer(), second = buffer();
  state.begin_step();
  state.begin_term(first);
  CHECK_FALSE(state.leave_term(outside));
  state.begin_term(first);
  state.add(0, tp_bit, 0, 0);
  state.take_fresh();
  auto term = state.leave_term(outside);
  REQUIRE(term);
  CHECK(term->sum == first);
  CHECK(term->unreduced == tp_bit);
  CHECK(state.unreduced() == 0);
  CHECK(state.layer_buffer() == outside);
  state.resume_term(std::move(*term));
  CHECK(state.unreduced() == tp_bit);
  CHECK_FALSE(state.fresh());
  state.next_term(second);
  CHECK(state.fresh());
  state.take_fresh();
  const auto terms = state.end_term(outside);
  REQUIRE(terms.size() == 2);
  CHECK(terms[0] == first);
  CHECK(terms[1] == second);
  state.begin_term(first);
  CHECK(state.end_term(outside).empty());
}
