// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small Modules of which tests make layers: several layers of one input, a layer that backward computes again, a list of layers.
//
//   Sequential(EnterParallelRegion<tp>{}, Branch(query, key, value), attention)

#include <tuple>
#include <utility>
#include <vector>

#include <weft/autograd/module.hpp>
#include <weft/autograd/recompute.hpp>
#include <weft/nn/sequential.hpp>

namespace weft_test {

/// x -> (L(x), ...).
template <class... L>
class Branch : public weft::Module<Branch<L...>> {
 public:
  explicit Branch(L... layers) : layers_(std::move(layers)...) {}
  auto forward(const auto& x) const {
    return std::apply([&](const L&... one) { return std::tuple{weft::call(one, x)...}; }, layers_);
  }

 private:
  std::tuple<L...> layers_;
};
template <class... L>
explicit Branch(Branch<L...>) -> Branch<Branch<L...>>;

/// x on every rank of A.
template <class A>
struct EnterParallelRegion : weft::Module<EnterParallelRegion<A>> {
  auto forward(const auto& x) const { return weft::to<weft::Replicated<A>>(x); }
};

/// L(x), which backward computes again if `active`.
template <class L>
class Recompute : public weft::Module<Recompute<L>> {
 public:
  explicit Recompute(L layer, bool active = true) : layer_(std::move(layer)), active_(active) {}
  auto forward(const auto& x) const {
    return active_ ? weft::recompute([this](const auto& y) { return weft::call(layer_, y); }, x) : weft::call(layer_, x);
  }

 private:
  L layer_;
  bool active_;
};
template <class L>
explicit Recompute(Recompute<L>) -> Recompute<Recompute<L>>;

/// Second(First(x)), of which backward computes First(x) again if `active`.
template <class First, class Second>
auto recompute_input(First first, Second second, bool active = true) {
  return weft::Sequential(Recompute<First>(std::move(first), active), std::move(second));
}

/// Layers of one type, one after the other.
template <class L>
class Repeat : public weft::Module<Repeat<L>> {
 public:
  explicit Repeat(std::vector<L> layers) : layers_(std::move(layers)) {}
  auto forward(const auto& x) const {
    auto y = x;
    for (const L& layer : layers_) y = weft::call(layer, y);
    return y;
  }

 private:
  std::vector<L> layers_;
};

}  // namespace weft_test
