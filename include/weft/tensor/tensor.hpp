// SPDX-License-Identifier: Apache-2.0
#pragma once
// A tensor: this rank's piece of a value, with its placement on each axis in the type. It is a handle (copies share the elements,
// as with a Kokkos View), row-major and contiguous, with a pointer to its device, so operations need no further argument.
//
//   Tensor<float, Exec, Shard<dp, 0>, Invariant<tp>> x(device, {tokens, width});
//
// Kernels have no placements: they take `data()` and extents.

#include <Kokkos_Core.hpp>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/core/placed.hpp>
#include <weft/core/scalar.hpp>
#include <weft/core/text.hpp>
#include <weft/device/device.hpp>
#include <weft/tensor/made_tensors.hpp>
#include <weft/tensor/members_elsewhere.hpp>
#include <weft/tensor/pending_rows.hpp>
#include <weft/tensor/placement.hpp>
#include <weft/tensor/shape.hpp>

namespace weft {

namespace detail {
// The execution space of a Tensor that names none.
struct NoSpace;
struct ElementPlace;
}  // namespace detail

/// A tensor of up to six dims with element type T, in the memory of Exec, with a placement for each axis in force.
template <detail::Scalar T, class Exec = detail::NoSpace, Placement... P>
class Tensor;

namespace detail {
template <class X>
inline constexpr bool is_tensor = false;
template <class T, class E, class... P>
inline constexpr bool is_tensor<Tensor<T, E, P...>> = true;
template <class T>
inline constexpr bool is_tensor<Tensor<T>> = false;
}  // namespace detail

template <class T, class E, class P, class... R>
inline constexpr bool is_placed<Tensor<T, E, P, R...>> = true;

/// A Tensor of any scalar, execution space and placements, also const or a reference.
template <class X>
concept AnyTensor = detail::is_tensor<std::remove_cvref_t<X>>;

/// A type for "nothing saved", "nothing deferred" and "no gradient" (the gradient of a value that is not Real, such as token
/// ids).
struct Nothing {};

namespace operations {
struct RefusedOperand {};
}  // namespace operations

namespace detail {
// Replaces a value that the compiler has already refused: operations on it give no further errors.
struct AlreadyRefused : operations::RefusedOperand, MembersElsewhere<AlreadyRefused> {
  const AlreadyRefused& value() const { return *this; }
  AlreadyRefused detach() const { return *this; }
  Shape shape() const { return {}; }
  std::size_t rows() const { return 0; }
  std::size_t columns() const { return 0; }
  explicit operator bool() const { return true; }
  template <class V>
  const AlreadyRefused& operator=(const V&) const {
    return *this;
  }
  template <class T>
  requires((std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) || is_tensor<T>) operator T() const { return {}; }
};
}  // namespace detail

/// A Tensor without an execution space. A forward with such a parameter is refused where it is called (autograd/module.hpp).
template <detail::Scalar T>
class Tensor<T, detail::NoSpace> : public detail::AlreadyRefused {
 public:
  Tensor(const detail::AlreadyRefused&) {}
  template <class... A>
  explicit Tensor(const A&...) {
    static_assert(sizeof...(A) > 99,
                  "weft: Tensor<T> has no execution space: Tensor<float, Exec, Placement...> names it and the placement on each "
                  "axis; in a Module's forward take and return `auto`");
  }
};

/// The operations that programs call with tensors and without a namespace: add(x, y), map(x, f), softmax(x). Every Tensor derives
/// from a class in this namespace, so that argument-dependent lookup finds them. `using namespace weft` does not make their names
/// visible.
namespace operations {

// The members of tensors of every type. Copies and destruction are out of line, once for all types: inlined into every layer they
// were a third of the generated code.
class Elements {
 public:
  Elements() { detail::MadeTensors::made(this); }
  Elements(void* device, const Shape& shape, detail::Buffer buffer, void* data)
      : device_(device), shape_(shape), size_(shape.size()), buffer_(std::move(buffer)), data_(data) {
    detail::MadeTensors::made(this);
  }
  Elements(void* device, const Shape& shape, std::shared_ptr<detail::PendingRows> pending)
      : device_(device), shape_(shape), size_(shape.size()), pending_(std::move(pending)) {
    detail::MadeTensors::made(this);
  }
  WEFT_OUT_OF_LINE Elements(const Elements& other) noexcept
      : device_(other.device_),
        shape_(other.shape_),
        size_(other.size_),
        buffer_(other.buffer_),
        data_(other.data_),
        pending_(other.pending_),
        summed_(other.summed_) {
    detail::MadeTensors::made(this);
  }
  WEFT_OUT_OF_LINE Elements(Elements&& other) noexcept
      : device_(other.device_),
        shape_(other.shape_),
        size_(other.size_),
        buffer_(std::move(other.buffer_)),
        data_(std::exchange(other.data_, nullptr)),
        pending_(std::move(other.pending_)),
        summed_(other.summed_) {
    detail::MadeTensors::made(this);
  }
  WEFT_OUT_OF_LINE Elements& operator=(Elements other) noexcept {
    device_ = other.device_;
    shape_ = other.shape_;
    size_ = other.size_;
    data_ = other.data_;
    buffer_.swap(other.buffer_);
    pending_.swap(other.pending_);
    summed_ = other.summed_;
    return *this;
  }
  WEFT_OUT_OF_LINE ~Elements() { detail::MadeTensors::ended(this); }

 protected:
  friend struct detail::ElementPlace;
  void* device_ = nullptr;
  Shape shape_;
  std::size_t size_ = 0;
  detail::Buffer buffer_;
  void* data_ = nullptr;
  std::shared_ptr<detail::PendingRows> pending_;  // holds the elements if it is not null
  bool summed_ = false;
};

}  // namespace operations

namespace detail {

/// The block of a tensor's elements, and their address in it, for moving them (pipeline/host_activations.hpp).
struct ElementPlace {
  static Buffer& buffer(operations::Elements& tensor) { return tensor.buffer_; }
  static void*& data(operations::Elements& tensor) { return tensor.data_; }
};

template <class Exec>
WEFT_OUT_OF_LINE operations::Elements make_elements(Device<Exec>& device, const Shape& shape, std::size_t element_bytes) {
  Buffer buffer = device.allocate(shape.size() * element_bytes);
  void* data = buffer.get();
  return operations::Elements(&device, shape, std::move(buffer), data);
}

}  // namespace detail

template <detail::Scalar T, class Exec, Placement... P>
class Tensor : operations::Elements {
 public:
  using value_type = T;
  using execution_space = Exec;
  using memory_space = typename Exec::memory_space;
  using device_type = Device<Exec>;

  Tensor() = default;
  /// Allocates the elements without initialising them.
  Tensor(device_type& device, const Shape& shape) : Elements(detail::make_elements(device, shape, sizeof(T))) {}
  /// Uses elements in an existing buffer, starting `first` elements into it.
  Tensor(device_type& device, const Shape& shape, detail::Buffer buffer, std::size_t first = 0)
      : Elements(&device, shape, std::move(buffer), nullptr) {
    data_ = static_cast<T*>(buffer_.get()) + first;
  }

  /// Elements whose rows are computed when they are first needed.
  Tensor(device_type& device, const Shape& shape, std::shared_ptr<detail::PendingRows> rows)
      : Elements(&device, shape, std::move(rows)) {}

  T* data() const { return static_cast<T*>(pending_ ? pending_->buffer().get() : data_); }
  /// The elements of a tensor that was made with them; null if its rows are or were pending. It waits for nothing.
  const T* stored() const { return static_cast<const T*>(data_); }
  std::size_t size() const { return size_; }
  const Shape& shape() const { return shape_; }
  std::size_t rows() const { return shape_.rows(); }
  std::size_t columns() const { return shape_.columns(); }
  device_type& device() const { return *static_cast<device_type*>(device_); }
  const detail::Buffer& buffer() const { return pending_ ? pending_->buffer() : buffer_; }
  explicit operator bool() const { return data_ != nullptr || pending_ != nullptr; }
  /// True if no other tensor shares the elements, so that an operation may overwrite them with its result.
  bool unique() const { return pending_ ? pending_.use_count() == 1 && buffer().use_count() == 1 : buffer_.use_count() == 1; }
  /// The rows of a tensor that was made with them, computed or not; else null. A sum over ranks is made in their pieces either
  /// way, so a rank that reads its elements before makes the same messages.
  const detail::PendingRows* pending() const { return arriving() != nullptr ? nullptr : pending_.get(); }
  /// The rows of a gather that was started with the tensor, arrived or not; else null. A product takes them as they arrive.
  detail::ArrivingRows* arriving() const { return pending_ ? pending_->arriving() : nullptr; }
  /// True if each rank holds the whole sum of a Partial tensor, in place of a term (tensor/fixed_terms.hpp). Results of
  /// operations are not marked unless the operation is linear and marks them.
  bool summed() const { return summed_; }
  void mark_summed(bool summed) { summed_ = summed; }

  /// The elements as a matrix of rows() times columns(), for user kernels.
  auto view() const {
    using View = Kokkos::View<T**, Kokkos::LayoutRight, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    return View(data(), rows(), columns());
  }

 private:
  template <AnyTensor Y, AnyTensor X>
  friend Y relabel(const X& x);
  struct Same {};
  Tensor(Same, const Elements& elements) : Elements(elements) {}
};

namespace detail {
template <class X, class A>
struct PlacementOf {
  using type = Absent<A>;
};
template <class T, class E, class A, class P, class... R>
struct PlacementOf<Tensor<T, E, P, R...>, A> {
  using type = typename std::conditional_t<std::is_same_v<typename P::axis, A>, std::type_identity<P>,
                                           PlacementOf<Tensor<T, E, R...>, A>>::type;
};

template <class X>
struct GradientOf;
template <class T, class E, class... P>
struct GradientOf<Tensor<T, E, P...>> {
  using type = std::conditional_t<Real<T>, Tensor<T, E, dual_t<P>...>, Nothing>;
};
template <>
struct GradientOf<Nothing> {
  using type = Nothing;
};
template <>
struct GradientOf<AlreadyRefused> {
  using type = AlreadyRefused;
};
template <class... X>
struct GradientOf<std::tuple<X...>> {
  using type = std::tuple<typename GradientOf<X>::type...>;
};

template <class X, class Q>
struct Replace;
template <class T, class E, class... P, class Q>
struct Replace<Tensor<T, E, P...>, Q> {
  using type = Tensor<T, E, std::conditional_t<std::is_same_v<typename P::axis, typename Q::axis>, Q, P>...>;
};

template <class X, class U>
struct Rescalar;
template <class T, class E, class... P, class U>
struct Rescalar<Tensor<T, E, P...>, U> {
  using type = Tensor<U, E, P...>;
};

template <class X>
inline constexpr bool any_partial = false;
template <class T, class E, class... P>
inline constexpr bool any_partial<Tensor<T, E, P...>> = (has_terms<P> || ...);

// True for the result of an operation that refused a placement: the dim -1 of that error (shard_dim) is in its type.
template <class X>
inline constexpr bool any_refused_cut = false;
template <class T, class E, class... P>
inline constexpr bool any_refused_cut<Tensor<T, E, P...>> = (std::is_same_v<P, Shard<typename P::axis, -1>> || ...);

template <class X, int Dim>
inline constexpr bool sharded_along = false;
template <class T, class E, class... P, int Dim>
inline constexpr bool sharded_along<Tensor<T, E, P...>, Dim> = ((shard_dim<P> == Dim) || ...);
}  // namespace detail

/// X's placement on axis A (Absent<A> if X's type does not mention the axis).
template <class X, class A>
using placement_t = typename detail::PlacementOf<std::remove_cvref_t<X>, A>::type;
/// The type of the gradient of an X: every placement replaced by its dual; Nothing for an X that is not Real. Also works on
/// tuples of tensors.
template <class X>
using gradient_t = typename detail::GradientOf<std::remove_cvref_t<X>>::type;
/// X with its placement on Q's axis replaced by Q.
template <class X, class Q>
using replace_t = typename detail::Replace<std::remove_cvref_t<X>, Q>::type;
/// X with elements of type U.
template <class X, class U>
using with_scalar_t = typename detail::Rescalar<std::remove_cvref_t<X>, U>::type;

/// The same elements under another type: an unchecked promise about placements. For kernels that label their own result; keep its
/// uses few and tested at 1 and 2 ranks.
template <AnyTensor Y, AnyTensor X>
Y relabel(const X& x) {
  static_assert(std::is_same_v<typename Y::value_type, typename X::value_type>,
                "weft: relabel changes placements, not the element type");
  return Y(typename Y::Same(), static_cast<const operations::Elements&>(x));
}

/// The same elements without placements, for collectives that no placement describes: `comm.all_reduce(raw(x), Reduction::max)`.
/// It shares x's memory, so a collective changes x without changing its type. Nothing checks that the type still holds, and the
/// collective has no backward.
template <class T, class E, class... P>
Tensor<T, E> raw(const Tensor<T, E, P...>& x) {
  return relabel<Tensor<T, E>>(x);
}

namespace detail {
/// Elements of x, from number `first` on, as a Y of this shape, in x's memory.
template <class Y, AnyTensor X>
Y view_of(const X& x, const Shape& shape, std::size_t first = 0) {
  return Y(x.device(), shape, x.buffer(),
           static_cast<std::size_t>(x.data() - static_cast<const typename X::value_type*>(x.buffer().get())) + first);
}
/// `count` rows of the matrix x [rows(), columns()], from row `first` on, in x's memory.
template <AnyTensor X>
X matrix_rows(const X& x, std::size_t first, std::size_t count) {
  return view_of<X>(x, {count, x.columns()}, first * x.columns());
}
}  // namespace detail

/// Refuses, at compile time, a nonlinear operation on a tensor if each rank holds only a term of a sum.
template <AnyTensor X>
constexpr void require_not_partial() {
  static_assert(
      !detail::any_partial<X>,
      "weft: this operation is not linear, but its input is Partial: each rank holds only a term of a sum. Reduce it "
      "first: to<Invariant<axis>>(x) or to<Shard<axis, 0>>(x), on tensors (context, x), or wrap the layers in Residual");
}

/// Refuses, at compile time, a gradient whose placements are not the duals of its tensor's, and Nothing for a tensor that has a
/// gradient.
template <class X, class G>
constexpr void require_gradient_of() {
  constexpr bool refused = std::is_same_v<std::remove_cvref_t<G>, detail::AlreadyRefused>;  // one error is enough
  constexpr bool nothing = std::is_same_v<std::remove_cvref_t<G>, Nothing>,
                 wants_nothing = std::is_same_v<gradient_t<X>, Nothing>;
  static_assert(refused || !nothing || wants_nothing,
                "weft: backward returned Nothing for an input of real numbers, so the layers before it would get no gradient: "
                "return the gradient of the input; only inputs that are not Real (token ids) have none; see X in this "
                "function's template arguments");
  static_assert(refused || nothing || !wants_nothing,
                "weft: backward returned a gradient of an input that has none, since its elements are not Real (token ids): "
                "return Nothing{}; see X in this function's template arguments");
  static_assert(refused || nothing || wants_nothing || std::is_same_v<std::remove_cvref_t<G>, gradient_t<X>>,
                "weft: backward returned a gradient that is not the dual of its input (Replicated <-> Partial): a collective is "
                "missing in backward; see X and G in this function's template arguments");
}

}  // namespace weft

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template operations::Elements make_elements(Device<Kokkos::DefaultHostExecutionSpace>&, const Shape&, std::size_t);
}  // namespace weft::detail
#endif
