// SPDX-License-Identifier: Apache-2.0
// The three parts of a parameter without rules: its identity, its stored elements, and the pending sums of its gradient.
#include <doctest/doctest.h>

#include <type_traits>
#include <vector>

#include <weft/engine/hooks.hpp>
#include <weft/engine/parameter_state.hpp>

using namespace weft;

namespace {

ParameterInfo info() {
  ParameterInfo info{
      .name = "P", .global = {4, 6}, .local = {2, 6}, .type = DataType::bfloat16, .gradient_type = DataType::float32};
  info.runs = {{0, 12, 12}};
  info.axes = axis_bit<dp> | axis_bit<tp>;
  info.sharded = axis_bit<tp>;
  return info;
}
detail::Buffer buffer(std::size_t floats) {
  return detail::Buffer(new float[floats](), [](void* memory) { delete[] static_cast<float*>(memory); });
}

struct Sharder : detail::Hooks {};

}  // namespace

TEST_CASE("the description does not change, and gives the sizes") {
  ParameterState state(info());
  static_assert(std::is_const_v<std::remove_reference_t<decltype(state.info())>>);
  CHECK(state.name() == "P");
  CHECK(state.size() == 12);
  CHECK(state.bytes() == 24);
  CHECK(state.gradient_bytes() == 48);
  CHECK(state.kept() == 12);
  CHECK(state.kept_type() == DataType::bfloat16);
  CHECK(state.runs().size() == 1);
  CHECK(state.sharded() == axis_bit<tp>);
  CHECK(state.info().data_bit() == axis_bit<dp>);
}

TEST_CASE("the kept values and those that layers use are one array, until data ranks shard") {
  ParameterState state(info());
  const detail::Buffer value = buffer(12), gradient = buffer(12);
  state.storage().set_value(value);
  state.gradients().set_buffer(gradient);
  CHECK(state.storage().layer_value() == value);
  CHECK(state.gradients().layer_buffer() == gradient);

  Sharder sharder;
  state.shard(sharder);
  CHECK(state.storage().sharder() == &sharder);
  CHECK(state.sharded() == (axis_bit<tp> | axis_bit<dp>));
  CHECK(state.kept() == 0);  // until the pieces are computed
  CHECK(state.runs().empty());
  state.storage().keep({5, DataType::float32, DataType::bfloat16, {{0, 13, 5}}});
  CHECK(state.kept() == 5);
  CHECK(state.kept_type() == DataType::float32);
  CHECK(state.kept_gradient_type() == DataType::bfloat16);
  CHECK(state.runs()[0].global == 13);
  CHECK(state.info().runs[0].global == 12);  // of the elements in layers
  CHECK(state.value() == value);
  CHECK(!state.storage().layer_value());  // released
  const detail::Buffer gathered = buffer(12), whole = buffer(12);
  state.storage().set_gathered(gathered);
  state.gradients().set_layer_buffer(whole);
  CHECK(state.storage().layer_value() == gathered);
  CHECK(state.gradients().layer_buffer() == whole);
  CHECK(state.gradient() == gradient);
  state.storage().release();
  CHECK(!state.storage().layer_value());
}

TEST_CASE("a step's gradient: fresh, touched, unreduced") {
  ParameterState state(info());
  detail::GradientState& gradients = state.gradients();
  gradients.begin_step();
  CHECK(gradients.fresh());
  CHECK(!gradients.touched());
  const auto first = gradients.add(0, axis_bit<dp> | axis_bit<tp>, state.sharded(), 0);
  CHECK(!first.elsewhere);
  CHECK(!first.zero_first);
  CHECK(gradients.touched());
  CHECK(gradients.take_fresh());
  CHECK(!gradients.take_fresh());

  CHECK_THROWS_WITH_AS(state.take_unreduced_over_data(),
                       "weft: the gradient of P is to be summed over dp while it is unreduced over tp: no wrapper sums it",
                       UnreducedGradientError);
  CHECK(state.take_unreduced(tp{}));
  CHECK(!state.take_unreduced(tp{}));
  CHECK(!state.take_unreduced(cp{}));
  CHECK(gradients.unreduced() == axis_bit<dp>);
  state.take_unreduced_over_data();
  CHECK(gradients.unreduced() == 0);
}

TEST_CASE("whole from one use and a term from another: the whole part is the first rank's term") {
  for (const unsigned later : {0u, axis_bit<tp>}) {
    CAPTURE(later);
    detail::GradientState gradients;  // of a parameter that tp does not cut
    gradients.begin_step();
    gradients.add(axis_bit<tp>, 0, 0, later);
    CHECK(gradients.take_fresh());
    CHECK(gradients.whole(axis_bit<tp>));
    CHECK(gradients.add(0, axis_bit<tp>, 0, later).zero_first == (later != 0));  // the existing value belongs to the first rank
    CHECK(gradients.add(axis_bit<tp>, 0, 0, later).elsewhere == (later != 0));
    CHECK(gradients.take_unreduced(tp{}));
  }
  detail::GradientState cut;
  cut.begin_step();
  cut.add(axis_bit<tp>, 0, axis_bit<tp>, axis_bit<tp>);
  CHECK(cut.take_fresh());
  CHECK(!cut.whole(axis_bit<tp>));  // no other rank has this piece
}

TEST_CASE("terms of micro-batches are put aside and resumed") {
  detail::GradientState gradients;
  const detail::Buffer own = buffer(1), leaf = buffer(1);
  gradients.set_buffer(own);
  gradients.begin_term(leaf);
  CHECK(!gradients.leave_term(own));  // nothing was added
  CHECK(gradients.layer_buffer() == own);
  gradients.begin_term(leaf);
  gradients.add(0, axis_bit<tp>, 0, 0);
  CHECK(gradients.take_fresh());
  auto term = gradients.leave_term(own);
  REQUIRE(bool(term));
  CHECK(term->sum == leaf);
  CHECK(term->unreduced == axis_bit<tp>);
  CHECK(gradients.unreduced() == 0);
  CHECK(gradients.fresh());
  gradients.resume_term(std::move(*term));
  CHECK(!gradients.fresh());
  CHECK(gradients.take_unreduced(tp{}));
  gradients.next_term(buffer(1));
  CHECK(gradients.fresh());
  CHECK(gradients.end_term(own).empty());  // nothing was added to the last one
  gradients.begin_term(leaf);
  gradients.add(0, 0, 0, 0);
  CHECK(gradients.take_fresh());
  CHECK(gradients.end_term(own).size() == 1);
}

TEST_CASE("gradient_span is of the type in which gradients are added") {
  ParameterState narrow(info());
  narrow.gradients().set_buffer(buffer(12));
  std::size_t size = 0;
  narrow.gradient_span([&](auto gradient) {
    static_assert(!std::is_const_v<typename decltype(gradient)::element_type>);
    size = std::is_same_v<typename decltype(gradient)::element_type, float> ? gradient.size() : 0;
  });
  CHECK(size == 12);
}
