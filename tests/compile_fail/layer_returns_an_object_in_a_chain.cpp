// SPDX-License-Identifier: Apache-2.0
// A layer with its own backward, inside a Sequential, returns a struct with a member that is not a tensor.
// expect: this layer returns something else than a tensor, or a std::tuple or a struct of tensors
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

template <class X>
struct Timed {
  X x;
#ifdef WEFT_FAIL
  double time = 0;
#endif
};
struct Clock : Primitive<Clock> {
  auto forward(const auto&, const auto& x) const { return Result{Timed<std::remove_cvref_t<decltype(x)>>{x}, Nothing{}}; }
  auto backward(const auto&, Nothing, const auto& g) const { return g.x; }
};
struct Read : Module<Read> {
  auto forward(const auto& timed) const { return timed.x; }
};
auto go() {
  return testing::check_layer([](const auto&) { return Sequential(Clock(), Read()); }, {4, 8});
}
