// SPDX-License-Identifier: Apache-2.0
#pragma once
// Variables of Variables: the values inside of grad(f, x) (operations/grad.hpp). The value of one is a Variable of the forward
// around it, so an operation on it computes by an operation of that forward, and its gradient is a Variable there as well: it is
// recorded, and can be differentiated again. The levels are types: a grad inside of a grad has Variables of Variables of
// Variables, and no gradient of one is taken for that of another.
//
//   template <class C, detail::Nested X>
//   auto tanh(const Variable<C, X>& x) {   // x.value() is a Variable, and so are y and g of the rule
//     return detail::unary(x, tanh(x.value()), [](const auto&, const auto& y, const auto& g) { return g - g * square(y); });
//   }

#include <optional>
#include <type_traits>
#include <utility>

#include <weft/autograd/layer_check.hpp>
#include <weft/autograd/tape.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/core/error.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {

/// Whether a Variable of X is inside of a grad.
template <class X>
concept Nested = is_variable<X>;

/// The calls of grad around a Variable of X.
template <class X>
inline constexpr int levels = 0;
template <class C, class X>
inline constexpr int levels<Variable<C, X>> = 1 + levels<X>;

/// The tensor under all levels.
template <class X>
struct Bottom {
  using type = X;
};
template <class C, class X>
struct Bottom<Variable<C, X>> : Bottom<X> {};
template <class X>
using bottom_t = typename Bottom<X>::type;
/// The Variable of the forward around all levels, and its tensor.
template <class C, class X>
const auto& ground_of(const Variable<C, X>& x) {
  if constexpr (Nested<X>) return ground_of(x.value());
  else return x;
}
template <class C, class X>
const bottom_t<X>& bottom_of(const Variable<C, X>& x) {
  return ground_of(x).value();
}

template <class C, class X>
struct GradientOf<Variable<C, X>> {
  using type = std::conditional_t<std::is_same_v<gradient_t<X>, Nothing>, Nothing, Variable<C, gradient_t<X>>>;
};

/// The result y of an operation on x, as record (autograd/variable.hpp) makes it, on any level.
template <class C, class X, class Y, class... From>
Variable<C, Y> record_any(const Variable<C, X>& x, Y y, From... from) {
  if constexpr (!Nested<X>) {
    return record(x, std::move(y), std::move(from)...);
  } else {
    Tape& tape = x.tape();
    if (!(from.wanted() || ...)) return {std::move(y), tape};
    auto& node = tape.record<Recorded<C, Y, From...>>(std::move(from)...);
    return {std::move(y), &node, tape};
  }
}

/// x with the placements of the tensor type Like.
template <class Like, class C, class X>
auto placed_as(const Variable<C, X>& x) {
  const auto same = [](const auto&, const auto& g) { return g; };
  if constexpr (std::is_same_v<bottom_t<X>, Like>) return x;
  else if constexpr (Nested<X>) return record_any(x, placed_as<Like>(x.value()), from(x, same));
  else return record_any(x, to_layout_of<Like>(x.context(), x.value()), from(x, same));
}

/// A tensor as a constant on x's level.
template <class C, class X, class T>
auto constant_at(const Variable<C, X>& x, T tensor) {
  if constexpr (Nested<X>) {
    auto value = constant_at(x.value(), std::move(tensor));
    return Variable<C, decltype(value)>(std::move(value), x.tape());
  } else {
    return Variable<C, T>(std::move(tensor), x.tape());
  }
}

[[noreturn]] WEFT_COLD inline void refuse_other_grad() {
  throw_error<UsageError>(
      {"grad: its function uses a value inside of another grad that is not around it, so that value's gradient would be lost: "
       "differentiate by a value that is computed from the argument of the other grad's function"});
}
/// y, which may be of a forward around that of x, on x's level: there it is a constant. Throws UsageError if y is inside of
/// another grad than x.
template <class C, class X, class Y>
auto raised(const Variable<C, X>& x, const Variable<C, Y>& y) {
  static_assert(levels<Y> <= levels<X>);
  if constexpr (levels<Y> == levels<X>) {
    if (&x.tape() != &y.tape()) refuse_other_grad();
    return y;
  } else {
    auto value = raised(x.value(), y);
    return Variable<C, decltype(value)>(std::move(value), x.tape());
  }
}

/// The result y of an operation on x, and its gradient rule(value of x, y, g); on any level.
template <class C, class X, class Y, class F>
auto unary(const Variable<C, X>& x, Y y, F rule) {
  if constexpr (is_refused<Y>) return y;
  else return record_any(x, y, from(x, [a = x.value(), y, rule](const auto&, const auto& g) { return rule(a, y, g); }));
}
/// operation(x, y), and its gradients by x and y, rule(a, b, result, g) of the values of both; on any level, of which one operand
/// may be below the other.
template <class C, class X, class Y, class F, class DX, class DY>
auto binary(const Variable<C, X>& x, const Variable<C, Y>& y, F operation, DX by_x, DY by_y) {
  if constexpr (levels<X> < levels<Y>) {
    return binary(raised(y, x), y, operation, by_x, by_y);
  } else if constexpr (levels<X> > levels<Y>) {
    return binary(x, raised(x, y), operation, by_x, by_y);
  } else {
    const auto a = x.value();
    const auto b = raised(x, y).value();
    auto z = operation(a, b);
    if constexpr (is_refused<decltype(z)>) return z;
    else
      return record_any(x, z, from(x, [a, b, z, by_x](const auto&, const auto& g) { return by_x(a, b, z, g); }),
                        from(y, [a, b, z, by_y](const auto&, const auto& g) { return by_y(a, b, z, g); }));
  }
}
/// operation(g), linear in g, and its transpose; on any level.
template <class C, class G, class F, class T>
auto linear_in(const Variable<C, G>& g, F operation, T transpose) {
  return record_any(g, operation(g.value()), from(g, [transpose](const auto&, const auto& h) { return transpose(h); }));
}

/// forward(x) and the gradient transpose(g): functions of tensors that are linear and transposes of each other; on any level.
template <class F, class T, class C, class X>
auto linear_pair(const F& forward, const T& transpose, const Variable<C, X>& x) {
  const auto gradient = [forward, transpose](const auto&, const auto& g) {
    if constexpr (AnyTensor<decltype(g)>) return transpose(g);
    else return linear_pair(transpose, forward, g);
  };
  if constexpr (Nested<X>) return record_any(x, linear_pair(forward, transpose, x.value()), from(x, gradient));
  else return record(x, forward(x.value()), from(x, gradient));
}

/// The gradient of a value inside of a grad: a Variable of the forward around it.
template <class C, class X>
class ValueNode<Variable<C, X>> {
 public:
  using value_type = Variable<C, X>;
  using gradient_type = gradient_t<value_type>;

  template <class Context, class G>
  void add(const Context&, const G& contribution) {
    if constexpr (!is_refused<G>) {
      auto placed = placed_as<bottom_t<gradient_type>>(contribution);
      require_gradient_of<value_type, decltype(placed)>();
      if constexpr (std::is_same_v<decltype(placed), gradient_type>) {
        if (gradient_) gradient_.emplace(*gradient_ + placed);
        else gradient_.emplace(std::move(placed));
      }
    }
  }

  explicit operator bool() const { return gradient_.has_value(); }
  gradient_type take() {
    gradient_type taken = std::move(*gradient_);
    gradient_.reset();
    return taken;
  }

 private:
  std::optional<gradient_type> gradient_;
};

}  // namespace detail

/// A parameter as a Variable beside a value inside of a grad, where it is a constant: its gradient follows from the forward
/// around.
template <class C, class D, class X, Placement... R>
auto beside(const Variable<C, Variable<D, X>>& x, const Parameter<R...>& parameter) {
  auto w = beside(x.value(), parameter);
  return Variable<C, decltype(w)>(std::move(w), x.tape());
}

}  // namespace weft
