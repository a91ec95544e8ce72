// SPDX-License-Identifier: Apache-2.0
#pragma once
// Members of other frameworks' tensors that weft's values lack. They exist only to be refused, with the code to write instead,
// and return AlreadyRefused, so that such a mistake gives one error: without them the compiler would also report the operations
// on the result.
//
//   auto h = x.relu();   // weft: a value has no member relu: operations are functions, relu(x)

#include <type_traits>

#include <weft/core/standard.hpp>

namespace weft::detail {

struct AlreadyRefused;

/// Accepts every argument of a refused call: any type, including a braced list.
struct AnyArgument {
  template <class... V>
  AnyArgument(const V&...) {}
};

// AlreadyRefused, which is complete by the time a member is used.
template <class... A>
struct RefusedLater {
  using type = AlreadyRefused;
};

// clang-format off
#define WEFT_NO_MEMBER(name, instead)                                                                           \
  template <class... A> typename RefusedLater<A...>::type name(const A&...) const {                             \
    static_assert(std::is_same_v<Self, AlreadyRefused> && sizeof...(A) < 99, "weft: a value has no member " #name ": " instead); \
    return {};                                                                                                  \
  }
#define WEFT_NO_METHOD(name) WEFT_NO_MEMBER(name, "operations are functions, " #name "(x)")

/// A base class of Self, a Variable or a Parameter. For AlreadyRefused the same members give no error.
template <class Self>
struct MembersElsewhere {
  WEFT_NO_METHOD(relu) WEFT_NO_METHOD(gelu) WEFT_NO_METHOD(silu) WEFT_NO_METHOD(sigmoid) WEFT_NO_METHOD(tanh) WEFT_NO_METHOD(exp)
  WEFT_NO_METHOD(log) WEFT_NO_METHOD(sqrt) WEFT_NO_METHOD(square) WEFT_NO_METHOD(maximum) WEFT_NO_METHOD(minimum)
  WEFT_NO_MEMBER(clamp, "operations are functions, clamp(x, low, high)")
  WEFT_NO_MEMBER(softmax, "operations are functions, softmax(x) along the last dim, softmax<dim>(x) along another")
  WEFT_NO_MEMBER(log_softmax, "operations are functions, log_softmax(x) along the last dim, log_softmax<dim>(x) along another")
  WEFT_NO_MEMBER(sum, "operations are functions, sum(x) of all elements, sum<dim>(x) along a dim")
  WEFT_NO_MEMBER(mean, "operations are functions, mean(x) of all elements, mean<dim>(x) along a dim")
  WEFT_NO_MEMBER(max, "operations are functions, max<dim>(x) along a dim, maximum(x, y) of each two elements")
  WEFT_NO_MEMBER(min, "operations are functions, minimum(x, y) of each two elements, -max<dim>(-x) along a dim")
  WEFT_NO_MEMBER(argmax, "operations are functions, argmax<dim>(x)")
  WEFT_NO_MEMBER(var, "mean<dim>(square(x)) - square(mean<dim>(x)) is the variance")
  WEFT_NO_MEMBER(std, "sqrt(mean<dim>(square(x)) - square(mean<dim>(x))) is the standard deviation")
  WEFT_NO_MEMBER(norm, "sqrt(sum<dim>(square(x))) is the norm along a dim")
  WEFT_NO_MEMBER(pow, "operations are functions, pow(x, number)")
  WEFT_NO_METHOD(abs) WEFT_NO_METHOD(sin) WEFT_NO_METHOD(cos)
  WEFT_NO_MEMBER(view, "operations are functions, reshape(x, {rows, columns}), with every extent given")
  WEFT_NO_MEMBER(reshape, "operations are functions, reshape(x, {rows, columns}), with every extent given")
  WEFT_NO_MEMBER(flatten, "operations are functions, flatten<first, last>(x) joins these dims")
  WEFT_NO_MEMBER(unflatten, "operations are functions, unflatten<dim>(x, inner...)")
  WEFT_NO_MEMBER(squeeze, "reshape(x, {...}) without the dim of extent 1")
  WEFT_NO_MEMBER(unsqueeze, "reshape(x, {...}) with one more dim, of extent 1")
  WEFT_NO_MEMBER(T, "operations are functions, transpose<0, 1>(x); matmul(x, w) multiplies by the transpose of w [out, in] already")
  WEFT_NO_MEMBER(t, "operations are functions, transpose<0, 1>(x); matmul(x, w) multiplies by the transpose of w [out, in] already")
  WEFT_NO_MEMBER(transpose, "operations are functions, transpose<first, second>(x): dims are template arguments")
  WEFT_NO_MEMBER(permute, "operations are functions, permute<dims...>(x): dims are template arguments")
  WEFT_NO_MEMBER(chunk, "operations are functions, chunk<dim, count>(x)")
  WEFT_NO_MEMBER(split, "chunk<dim, count>(x) is equal parts, slice<dim>(x, from, count) one part")
  WEFT_NO_MEMBER(slice, "operations are functions, slice<dim>(x, from, count)")
  WEFT_NO_MEMBER(narrow, "slice<dim>(x, from, count) is a part along a dim")
  WEFT_NO_MEMBER(select, "slice<dim>(x, from, 1) is a part along a dim")
  WEFT_NO_MEMBER(index_select, "operations are functions, index_select(x, ids)")
  WEFT_NO_MEMBER(gather, "index_select(x, ids) takes rows")
  WEFT_NO_MEMBER(masked_fill, "where(condition, x, y) chooses element by element")
  WEFT_NO_MEMBER(expand, "times_row, times_column and operators with a Parameter spread a vector over the rows")
  WEFT_NO_MEMBER(repeat, "concat<dim>(x, x) repeats along a dim")
  WEFT_NO_MEMBER(matmul, "operations are functions, matmul(x, w) with w [out, in]")
  WEFT_NO_MEMBER(mm, "matmul(x, w) with w [out, in]")
  WEFT_NO_MEMBER(bmm, "batched_matmul(x, y)")
  WEFT_NO_MEMBER(dot, "sum(x * y)")
  WEFT_NO_MEMBER(add, "x + y")
  WEFT_NO_MEMBER(sub, "x - y")
  WEFT_NO_MEMBER(mul, "x * y")
  WEFT_NO_MEMBER(div, "x / y")
  WEFT_NO_MEMBER(add_, "values are not changed in place: x = x + y, or x += y")
  WEFT_NO_MEMBER(mul_, "values are not changed in place: x = x * y, or x *= y")
  WEFT_NO_MEMBER(relu_, "values are not changed in place: x = relu(x)")
  WEFT_NO_MEMBER(zero_, "values are not changed in place; the optimizer's step clears gradients")
  WEFT_NO_MEMBER(fill_, "values are not changed in place; a Parameter takes its initial values as an argument")
  WEFT_NO_MEMBER(size, "x.shape()[dim] is an extent of this rank's part, x.shape().size() the number of its elements")
  WEFT_NO_MEMBER(sizes, "x.shape() has the extents of this rank's part")
  WEFT_NO_MEMBER(numel, "x.shape().size() is the number of this rank's elements")
  WEFT_NO_MEMBER(dim, "x.shape().rank() is the number of dims")
  WEFT_NO_MEMBER(ndim, "x.shape().rank() is the number of dims")
  WEFT_NO_MEMBER(item, "a forward is recorded and has no single numbers; model.train_step returns the loss, model.forward(batch) the outputs")
  WEFT_NO_MEMBER(data, "a forward computes with operations; x.value() is the tensor, a constant to backward")
  WEFT_NO_MEMBER(contiguous, "every value is contiguous already")
  WEFT_NO_MEMBER(clone, "values are not changed in place, so a copy is a second handle: auto y = x")
  WEFT_NO_MEMBER(backward, "model.train_step(batch) runs backward, or a custom training loop does: model.loss(batch).backward()")
  WEFT_NO_MEMBER(grad, "gradients are not read in a forward; model.gradient(name) has that of a parameter")
  WEFT_NO_MEMBER(requires_grad_, "x.detach() has no gradient; model.freeze(pattern) is for parameters")
  WEFT_NO_MEMBER(cuda, "a model computes on the device of its World")
  WEFT_NO_MEMBER(cpu, "a model computes on the device of its World")
  WEFT_NO_MEMBER(to, "cast<T>(x) changes the element type, to<Placement>(x) the placement")
  WEFT_NO_MEMBER(half, "the model's `using scalar` is the element type of its layers; cast<float16>(x)")
  WEFT_NO_MEMBER(operator(), "a value is no function: slice<dim>(x, from, count) is a part, matmul(x, parameter) a product")
  template <class I> typename RefusedLater<I>::type operator[](const I&) const {
    static_assert(std::is_same_v<Self, AlreadyRefused> && sizeof(I) != 0,
                  "weft: a value has no operator[]: slice<dim>(x, from, count) is a part along a dim, chunk<dim, count>(x) equal "
                  "parts, index_select(x, ids) rows; a batch has its fields by name: batch[field]");
    return {};
  }
  template <class Late = Self> AlreadyRefused* begin() const {
    static_assert(std::is_same_v<Late, AlreadyRefused>,
                  "weft: a value is no range of rows: operations work on all rows at once; chunk<dim, count>(x) has parts");
    return nullptr;
  }
  AlreadyRefused* end() const { return nullptr; }
  template <class T> requires std::is_same_v<T, bool> explicit operator T() const {
    static_assert(std::is_same_v<Self, AlreadyRefused> && sizeof(T) != 0,
                  "weft: a value is no condition of the program, since it is recorded for backward and each rank has its part of "
                  "it: where(x > 0, a, b) chooses element by element");
    return true;
  }
};
#undef WEFT_NO_METHOD
#undef WEFT_NO_MEMBER
// clang-format on

}  // namespace weft::detail
