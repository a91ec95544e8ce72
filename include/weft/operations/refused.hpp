// SPDX-License-Identifier: Apache-2.0
#pragma once
// Calls of operations that are refused: with arguments that an operation does not take, and under names of other frameworks. Each
// is one error with the code to write. The result is AlreadyRefused, which all operations pass on silently, so that a chain of
// them with one mistake gives one error. Overload resolution takes these functions last: their operand is converted.
//
//   auto y = relu(conv2d(x, w));   // one error if conv2d has no rule for w
//   auto z = softmax(x, 1);        // weft: softmax cannot be called so: ... softmax<dim>(x)

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <weft/core/text_argument.hpp>
#include <weft/operations/operands.hpp>

namespace weft {

template <class Exec, Placement... P>
class LossSum;
struct AttentionMask;
struct ConvolutionOptions;

namespace operations {

template <class... X>
concept AnyRefused = (std::is_base_of_v<detail::AlreadyRefused, X> || ...);

// clang-format off
// `text` is printed for an operand that is converted to this type.
#define WEFT_REFUSED_AS(id, concept, text)                                                     \
  struct id {                                                                                  \
    template <detail::concept V> id(const V&) {                                                  \
      static_assert(!detail::are_operands<V> || detail::is_silent<V>,                            \
                    "weft: several values in one operand, as topk, sort and chunk return them: name each, "  \
                    "auto [a, b] = topk<1>(x, 2), and pass one");                                 \
      static_assert(detail::are_operands<V> || detail::is_silent<V>, "weft: " text);             \
    }                                                                                            \
  };
#define WEFT_REST detail::AnyArgument = {}, detail::AnyArgument = {}, detail::AnyArgument = {}, detail::AnyArgument = {}, detail::AnyArgument = {}
#define WEFT_REFUSED_CALLS(name)                                                                              \
  inline detail::AlreadyRefused name(as_##name, WEFT_REST) { return {}; }                                     \
  inline detail::AlreadyRefused name(detail::NoOperand, as_##name, WEFT_REST) { return {}; }                  \
  inline detail::AlreadyRefused name(detail::NoOperand, detail::NoOperand, as_##name, WEFT_REST) { return {}; } \
  template <class... X> requires AnyRefused<X...> detail::AlreadyRefused name(const X&...) { return {}; }        \
  template <int, int...> detail::AlreadyRefused name(as_##name, WEFT_REST) { return {}; }                       \
  template <int, int..., class... X> requires AnyRefused<X...> detail::AlreadyRefused name(const X&...) { return {}; }
#define WEFT_OPERATION(name, usage)                                                                                       \
  WEFT_REFUSED_AS(as_##name, Operand, #name " cannot be called with these arguments: write " usage) \
  WEFT_REFUSED_CALLS(name)
// Refuses a function of a loss.
#define WEFT_NO_LOSS(name)                                                                                         \
  template <class C, class E, Placement... P> detail::AlreadyRefused name(const Variable<C, LossSum<E, P...>>&) {      \
    static_assert(sizeof(C) == 0, "weft: " #name " of a loss, which is a sum over samples that weft divides once: " \
                  "return it as it is, apply functions to the samples' losses before sum_losses(x)");              \
    return {};                                                                                                     \
  }
#define WEFT_UNARY(name)            \
  WEFT_OPERATION(name, #name "(x)") \
  WEFT_NO_LOSS(name)
#define WEFT_OPERATION_OF(dims, name, usage)                                                                    \
  WEFT_OPERATION(name, usage)                                                                                   \
  template <dims> detail::AlreadyRefused name(as_##name, WEFT_REST) { return {}; }                              \
  template <dims, class... X> requires AnyRefused<X...> detail::AlreadyRefused name(const X&...) { return {}; }
// Options in braces convert to no template argument, so each place of them has a function.
#define WEFT_CONVOLUTION(name, usage)                                                                                               \
  WEFT_OPERATION(name, usage)                                                                                                       \
  inline detail::AlreadyRefused name(as_##name, detail::AnyArgument, const ConvolutionOptions&) { return {}; }                       \
  inline detail::AlreadyRefused name(as_##name, detail::AnyArgument, detail::AnyArgument, const ConvolutionOptions&) { return {}; }  \
  inline detail::AlreadyRefused name(as_##name, detail::AnyArgument, const ConvolutionOptions&, detail::AnyArgument) { return {}; }
#define WEFT_NO_OPERATION(name, instead)                                                 \
  WEFT_REFUSED_AS(as_##name, Operand, "there is no operation " #name ": " instead) \
  WEFT_REFUSED_CALLS(name)

WEFT_UNARY(exp)
WEFT_UNARY(log)
WEFT_UNARY(sqrt)
WEFT_UNARY(square)
WEFT_UNARY(tanh)
WEFT_UNARY(sigmoid)
WEFT_UNARY(silu)
WEFT_UNARY(gelu)
WEFT_UNARY(gelu_erf)
WEFT_UNARY(relu)
WEFT_UNARY(sin)
WEFT_UNARY(cos)
WEFT_UNARY(abs)
WEFT_UNARY(erf)
WEFT_UNARY(softplus)
WEFT_UNARY(mish)
WEFT_OPERATION(pow, "pow(x, number), pow(number, x), or pow(x, y) of two values")
WEFT_OPERATION(elu, "elu(x), or elu(x, alpha) with a number")
WEFT_NO_LOSS(pow) WEFT_NO_LOSS(elu)
WEFT_OPERATION(clamp, "clamp(x, low, high)")
WEFT_OPERATION(scale, "scale(x, factor)")
WEFT_OPERATION(map, "map(x, f, derivative)")
WEFT_OPERATION(reshape, "reshape(x, {rows, columns}), with the extents in braces")
WEFT_CONVOLUTION(conv1d, "conv1d(x, w, bias, {.stride = 2, .padding = 1}), the bias and the options optional")
WEFT_CONVOLUTION(depthwise_conv1d, "depthwise_conv1d(x, w, bias, {.padding = 1}), the bias and the options optional")
WEFT_CONVOLUTION(conv_transpose1d, "conv_transpose1d(x, w, bias, {.stride = 2}), w [in, out, ...], the bias and the options optional")
WEFT_OPERATION(max_pool1d, "max_pool1d(x, {.kernel = 3, .stride = 2})")
WEFT_OPERATION(avg_pool1d, "avg_pool1d(x, {.kernel = 3, .stride = 2})")
WEFT_OPERATION(global_avg_pool1d, "global_avg_pool1d(x)")
WEFT_CONVOLUTION(conv2d, "conv2d(x, w, bias, {.stride = 2, .padding = 1}), the bias and the options optional")
WEFT_CONVOLUTION(depthwise_conv2d, "depthwise_conv2d(x, w, bias, {.padding = 1}), the bias and the options optional")
WEFT_CONVOLUTION(conv_transpose2d, "conv_transpose2d(x, w, bias, {.stride = 2}), w [in, out, ...], the bias and the options optional")
WEFT_OPERATION(max_pool2d, "max_pool2d(x, {.kernel = 3, .stride = 2})")
WEFT_OPERATION(avg_pool2d, "avg_pool2d(x, {.kernel = 3, .stride = 2})")
WEFT_OPERATION(global_avg_pool2d, "global_avg_pool2d(x)")
WEFT_CONVOLUTION(conv3d, "conv3d(x, w, bias, {.stride = 2, .padding = 1}), the bias and the options optional")
WEFT_CONVOLUTION(depthwise_conv3d, "depthwise_conv3d(x, w, bias, {.padding = 1}), the bias and the options optional")
WEFT_CONVOLUTION(conv_transpose3d, "conv_transpose3d(x, w, bias, {.stride = 2}), w [in, out, ...], the bias and the options optional")
WEFT_OPERATION(max_pool3d, "max_pool3d(x, {.kernel = 3, .stride = 2})")
WEFT_OPERATION(avg_pool3d, "avg_pool3d(x, {.kernel = 3, .stride = 2})")
WEFT_OPERATION(global_avg_pool3d, "global_avg_pool3d(x)")
WEFT_OPERATION(upsample, "upsample(x, {.factor = 2, .mode = UpsampleMode::linear})")
WEFT_OPERATION(pixel_shuffle, "pixel_shuffle(x, factor)")
WEFT_OPERATION(split_heads, "split_heads(x, width)")
WEFT_OPERATION(merge_heads, "merge_heads(x)")
WEFT_OPERATION(sum_rows, "sum_rows(x)")
WEFT_OPERATION(sum_columns, "sum_columns(x)")
WEFT_OPERATION(mean_columns, "mean_columns(x)")
WEFT_OPERATION(sum_all, "sum_all(x)")
WEFT_OPERATION(times_heads, "times_heads(x, gain)")
WEFT_OPERATION(sum_each_head, "sum_each_head(x)")
WEFT_OPERATION(mean_each_head, "mean_each_head(x)")
WEFT_OPERATION(log_sum_exp, "log_sum_exp(x, columns)")
WEFT_OPERATION(mse, "mse(x, targets)")
WEFT_OPERATION(bce_with_logits, "bce_with_logits(x, targets)")
WEFT_OPERATION(cross_entropy, "cross_entropy(logits, labels)")
WEFT_OPERATION(maximum, "maximum(x, y) of two values of one type; clamp(x, low, high) takes numbers")
WEFT_OPERATION(minimum, "minimum(x, y) of two values of one type; clamp(x, low, high) takes numbers")
WEFT_OPERATION(less, "x < number or x < y of two values of one type, or less(x, y)")
WEFT_OPERATION(less_equal, "x <= number or x <= y of two values of one type, or less_equal(x, y)")
WEFT_OPERATION(greater, "x > number or x > y of two values of one type, or greater(x, y)")
WEFT_OPERATION(greater_equal, "x >= number or x >= y of two values of one type, or greater_equal(x, y)")
WEFT_OPERATION(equal, "x == number or x == y of two values of one type, or equal(x, y)")
WEFT_OPERATION(not_equal, "x != number or x != y of two values of one type, or not_equal(x, y)")
WEFT_OPERATION(where, "where(condition, x, y), all three values; number * x makes one of a number")
WEFT_OPERATION(batched_matmul, "batched_matmul(x, y)")
WEFT_OPERATION(batched_matmul_transposed, "batched_matmul_transposed(x, y)")
WEFT_OPERATION(batched_transposed_matmul, "batched_transposed_matmul(x, y)")
WEFT_OPERATION(times_row, "times_row(x, parameter)")
WEFT_OPERATION(merge_samples, "merge_samples(x), x [samples, positions, ...]")
WEFT_OPERATION(split_samples, "split_samples(x), x [samples * positions, ...]")
WEFT_OPERATION(index_select, "index_select(x, ids)")
WEFT_OPERATION(scatter_add, "scatter_add(x, ids, segments)")
WEFT_OPERATION(segment_sum, "segment_sum(x, ids, segments)")
WEFT_OPERATION(segment_mean, "segment_mean(x, ids, segments)")
WEFT_OPERATION(segment_max, "segment_max(x, ids, segments)")
WEFT_OPERATION(segment_softmax, "segment_softmax(x, ids, segments)")
WEFT_OPERATION_OF(class, graph_part, "graph_part<axis>(nodes, senders, receivers), nodes [samples, nodes, ...], edges [samples, edges]")
WEFT_OPERATION_OF(class, cut_pieces, "cut_pieces<Shard<axis, dim>>(x)")
WEFT_OPERATION(attention, "attention(q, k, v, {.causal = false}, mask), the last two optional; a Parameter as the mask is beside(q, parameter)")
WEFT_OPERATION(times_scalar, "times_scalar(x, y)")
WEFT_OPERATION(times_column, "times_column(x, column)")
WEFT_OPERATION(divide_column, "divide_column(x, column)")
WEFT_OPERATION(times_each_head, "times_each_head(x, y)")
WEFT_OPERATION(add, "add(x, y)")
WEFT_OPERATION(subtract, "subtract(x, y)")
WEFT_OPERATION(times, "times(x, y)")
WEFT_OPERATION(divide, "divide(x, y)")
WEFT_OPERATION(matmul, "matmul(x, w), x a value and w [out, in] a value or a Parameter; a bias is added, matmul(x, w) + bias")
WEFT_OPERATION(sum, "sum(x) of all elements, sum<dim>(x) along a dim, sum<1>(sum<2>(x)) along two: dims are template arguments")
WEFT_OPERATION(mean, "mean(x) of all elements, mean<dim>(x) along a dim, mean<1>(mean<2>(x)) along two: dims are template arguments")
WEFT_NO_LOSS(sum) WEFT_NO_LOSS(mean) WEFT_NO_LOSS(sum_all)
WEFT_OPERATION(softmax, "softmax(x) along the last dim, softmax<dim>(x) along another: dims are template arguments")
WEFT_OPERATION(log_softmax, "log_softmax(x) along the last dim, log_softmax<dim>(x) along another: dims are template arguments")
WEFT_OPERATION(max, "max<dim>(x) along a dim, maximum(x, y) of each two elements, relu(x) beside 0")
WEFT_OPERATION(argmax, "argmax<dim>(x): dims are template arguments")
WEFT_OPERATION(unflatten, "unflatten<dim>(x, inner...): dims are template arguments")
WEFT_OPERATION(pad, "pad<dims...>(x, before, after, PaddingMode::periodic), the mode optional: dims are template arguments")
WEFT_OPERATION(fft, "fft<dims...>(z), one to three dims and z [..., 2] with real and imaginary parts: dims are template arguments")
WEFT_OPERATION(ifft, "ifft<dims...>(z), one to three dims and z [..., 2] with real and imaginary parts: dims are template arguments")
WEFT_OPERATION(rfft, "rfft<dims...>(x), one to three dims: dims are template arguments")
WEFT_OPERATION(irfft, "irfft<dims...>(z, n), n the elements along the last of one to three dims: dims are template arguments")
WEFT_OPERATION(flip, "flip<dim>(x): dims are template arguments")
WEFT_OPERATION(roll, "roll<dim>(x, shift): dims are template arguments")
WEFT_OPERATION(cumsum, "cumsum<dim>(x): dims are template arguments")
WEFT_OPERATION(slice, "slice<dim>(x, from, count): dims are template arguments")
WEFT_OPERATION(concat, "concat<dim>(x, y...), values of one type: dims are template arguments")
WEFT_OPERATION_OF(class, cast, "cast<T>(x)")
// Options in the wrong place: a braced list converts to no template argument, so the calls above do not take it.
inline detail::AlreadyRefused attention(as_attention, detail::AnyArgument, const AttentionMask&) { return {}; }
inline detail::AlreadyRefused attention(as_attention, detail::AnyArgument, detail::AnyArgument, detail::AnyArgument, const AttentionMask&) { return {}; }
// Operations with two or more template arguments.
WEFT_OPERATION(flatten, "flatten<first, last>(x): dims are template arguments")
template <int, int> detail::AlreadyRefused flatten(as_flatten, WEFT_REST) { return {}; }
template <int, int, class... X> requires AnyRefused<X...> detail::AlreadyRefused flatten(const X&...) { return {}; }
WEFT_OPERATION(transpose, "transpose<first, second>(x): dims are template arguments")
template <int, int> detail::AlreadyRefused transpose(as_transpose, WEFT_REST) { return {}; }
template <int, int, class... X> requires AnyRefused<X...> detail::AlreadyRefused transpose(const X&...) { return {}; }
WEFT_OPERATION(permute, "permute<dims...>(x): dims are template arguments")
template <int...> detail::AlreadyRefused permute(as_permute, WEFT_REST) { return {}; }
WEFT_OPERATION(einsum, "einsum<\"bij,bjk->bik\">(x, y), the second one a value or a Parameter: the letters are a template argument")
template <detail::TextArgument> detail::AlreadyRefused einsum(as_einsum, WEFT_REST) { return {}; }
template <detail::TextArgument> detail::AlreadyRefused einsum(detail::NoOperand, as_einsum, WEFT_REST) { return {}; }
template <detail::TextArgument, class... X> requires AnyRefused<X...> detail::AlreadyRefused einsum(const X&...) { return {}; }
// chunk gives an array of refused values, so that structured bindings compile.
WEFT_REFUSED_AS(as_chunk, Operand, "chunk cannot be called with these arguments: write chunk<dim, count>(x): dims are template arguments")
template <int Parts> using RefusedParts = std::array<detail::AlreadyRefused, std::size_t(Parts > 0 ? Parts : 1)>;
inline RefusedParts<2> chunk(as_chunk, WEFT_REST) { return {}; }
template <int Parts> RefusedParts<Parts> chunk(as_chunk, WEFT_REST) { return {}; }
template <int, int Parts> RefusedParts<Parts> chunk(as_chunk, WEFT_REST) { return {}; }
template <int, int Parts, class... X> requires AnyRefused<X...> RefusedParts<Parts> chunk(const X&...) { return {}; }
// sort and topk give pairs.
#define WEFT_ORDERED(name, usage)                                                                                    \
  WEFT_REFUSED_AS(as_##name, Operand, #name " cannot be called with these arguments: write " usage) \
  inline RefusedPair name(as_##name, WEFT_REST) { return {}; }                                                       \
  template <int> RefusedPair name(as_##name, WEFT_REST) { return {}; }                                               \
  template <int, class... X> requires AnyRefused<X...> RefusedPair name(const X&...) { return {}; }
using RefusedPair = std::pair<detail::AlreadyRefused, detail::AlreadyRefused>;
WEFT_ORDERED(sort, "auto [values, places] = sort<dim>(x), or sort<dim>(x, SortOrder::descending): dims are template arguments")
WEFT_ORDERED(topk, "auto [values, places] = topk<dim>(x, count): dims are template arguments")
#undef WEFT_ORDERED
// Names of other frameworks and of the C library.
#define WEFT_NO_FUNCTION(name) WEFT_NO_OPERATION(name, "map(x, f, derivative) takes a function of your own")
#define WEFT_NO_PRIMITIVE(name) WEFT_NO_OPERATION(name, "a Primitive with forward(x) and gradient(g, x) is an operation of your own")
WEFT_NO_FUNCTION(tan) WEFT_NO_FUNCTION(asin) WEFT_NO_FUNCTION(acos) WEFT_NO_FUNCTION(atan) WEFT_NO_FUNCTION(sinh) WEFT_NO_FUNCTION(cosh)
WEFT_NO_FUNCTION(atanh) WEFT_NO_FUNCTION(floor) WEFT_NO_FUNCTION(ceil) WEFT_NO_FUNCTION(round) WEFT_NO_FUNCTION(sign) WEFT_NO_FUNCTION(exp2)
WEFT_NO_FUNCTION(log2) WEFT_NO_FUNCTION(log1p) WEFT_NO_FUNCTION(expm1) WEFT_NO_FUNCTION(selu) WEFT_NO_FUNCTION(relu6)
WEFT_NO_FUNCTION(hardswish) WEFT_NO_FUNCTION(hardtanh) WEFT_NO_FUNCTION(log10) WEFT_NO_FUNCTION(cbrt) WEFT_NO_FUNCTION(trunc)
WEFT_NO_FUNCTION(tanhshrink) WEFT_NO_FUNCTION(softsign) WEFT_NO_FUNCTION(logit) WEFT_NO_FUNCTION(celu) WEFT_NO_FUNCTION(hardsigmoid)
WEFT_NO_FUNCTION(hardshrink) WEFT_NO_FUNCTION(softshrink) WEFT_NO_FUNCTION(asinh) WEFT_NO_FUNCTION(acosh) WEFT_NO_FUNCTION(erfc)
WEFT_NO_FUNCTION(erfinv) WEFT_NO_FUNCTION(lgamma) WEFT_NO_FUNCTION(digamma) WEFT_NO_FUNCTION(frac) WEFT_NO_FUNCTION(sinc)
WEFT_NO_PRIMITIVE(median) WEFT_NO_PRIMITIVE(cumprod) WEFT_NO_PRIMITIVE(tril) WEFT_NO_PRIMITIVE(triu) WEFT_NO_PRIMITIVE(one_hot)
WEFT_NO_PRIMITIVE(atan2) WEFT_NO_PRIMITIVE(hypot) WEFT_NO_PRIMITIVE(fmod) WEFT_NO_PRIMITIVE(cummax) WEFT_NO_PRIMITIVE(cummin)
WEFT_NO_PRIMITIVE(logcumsumexp) WEFT_NO_PRIMITIVE(diag) WEFT_NO_PRIMITIVE(diagonal) WEFT_NO_PRIMITIVE(unfold)
WEFT_NO_PRIMITIVE(fold) WEFT_NO_PRIMITIVE(grid_sample) WEFT_NO_PRIMITIVE(affine_grid) WEFT_NO_PRIMITIVE(nonzero) WEFT_NO_PRIMITIVE(unique)
WEFT_NO_PRIMITIVE(bincount) WEFT_NO_PRIMITIVE(searchsorted) WEFT_NO_PRIMITIVE(rot90) WEFT_NO_PRIMITIVE(local_response_norm)
WEFT_NO_PRIMITIVE(inverse) WEFT_NO_PRIMITIVE(det) WEFT_NO_PRIMITIVE(solve) WEFT_NO_PRIMITIVE(cholesky) WEFT_NO_PRIMITIVE(svd)
WEFT_NO_PRIMITIVE(remainder)
#undef WEFT_NO_PRIMITIVE
#undef WEFT_NO_FUNCTION
WEFT_NO_OPERATION(fabs, "abs(x)") WEFT_NO_OPERATION(neg, "-x") WEFT_NO_OPERATION(rsqrt, "1.0 / sqrt(x)") WEFT_NO_OPERATION(reciprocal, "1.0 / x")
WEFT_NO_OPERATION(min, "minimum(x, y) of each two elements, -max<dim>(-x) along a dim") WEFT_NO_OPERATION(leaky_relu, "where(x > 0, x, 0.1 * x)")
WEFT_NO_OPERATION(softmin, "softmax(-x)") WEFT_NO_OPERATION(var, "mean<dim>(square(x - m)) with m = mean<dim>(x) reshaped to one element in that dim")
WEFT_NO_OPERATION(norm, "sqrt(sum<dim>(square(x)))") WEFT_NO_OPERATION(layer_norm, "LayerNorm is a layer: a member `LayerNorm norm`, norm(x)")
WEFT_NO_OPERATION(rms_norm, "RmsNorm is a layer: a member `RmsNorm norm`, norm(x)")
WEFT_NO_OPERATION(batch_norm, "BatchNorm is a layer: a member `BatchNorm<> norm`, norm(x)") WEFT_NO_OPERATION(cat, "concat<dim>(x, y...)")
WEFT_NO_OPERATION(dropout, "Dropout is a layer: a member `Dropout dropout`, made with context / \"dropout\" and a rate, dropout(x)")
WEFT_NO_OPERATION(randn_like, "Noise is a member, `Noise noise`, made with context / \"noise\": noise.normal(x)")
WEFT_NO_OPERATION(rand_like, "Noise is a member, `Noise noise`, made with context / \"noise\": noise.uniform(x)") WEFT_NO_OPERATION(dot, "sum(x * y)")
WEFT_NO_OPERATION(linear, "matmul(x, w) + bias, or the layer Linear: a member `Linear<> layer`, layer(x)") WEFT_NO_OPERATION(bmm, "batched_matmul(x, y)")
WEFT_NO_OPERATION(embedding, "index_select(table, ids), or the layer Embedding") WEFT_NO_OPERATION(squeeze, "reshape(x, {...}) without the dim of extent 1")
WEFT_NO_OPERATION(stack, "concat<dim>(reshape(x, {...}), ...), with one more dim in each") WEFT_NO_OPERATION(view, "reshape(x, {rows, columns})")
WEFT_NO_OPERATION(split, "chunk<dim, count>(x) for equal parts, slice<dim>(x, from, count) for one") WEFT_NO_OPERATION(mm, "matmul(x, w) with w [out, in]")
WEFT_NO_OPERATION(unsqueeze, "reshape(x, {...}) with one more dim, of extent 1") WEFT_NO_OPERATION(masked_fill, "where(condition, x, y)")
WEFT_NO_OPERATION(gather, "index_select(x, ids) takes rows; one element for each place is a Primitive of your own")
WEFT_NO_OPERATION(mse_loss, "mse(x, targets)") WEFT_NO_OPERATION(nll_loss, "cross_entropy(logits, labels)") WEFT_NO_OPERATION(clip, "clamp(x, low, high)")
WEFT_NO_OPERATION(l1_loss, "sum_losses of one number for each sample, such as mean<1>(abs(x - targets))") WEFT_NO_OPERATION(addmm, "matmul(x, w) + bias")
WEFT_NO_OPERATION(binary_cross_entropy, "bce_with_logits(logits, targets)") WEFT_NO_OPERATION(fmin, "minimum(x, y) of two values, clamp(x, low, high)")
WEFT_NO_OPERATION(scaled_dot_product_attention, "attention(q, k, v, {.causal = false}); without it a query does not see later keys")
WEFT_NO_OPERATION(fmax, "maximum(x, y) of two values, relu(x) beside 0, clamp(x, low, high)") WEFT_NO_OPERATION(logsumexp, "log_sum_exp(x, columns)")
WEFT_NO_OPERATION(prod, "exp(sum<dim>(log(x))) of positive x") WEFT_NO_OPERATION(outer, "x * y of a column and a row: times_column(x, column), x * parameter")
WEFT_NO_OPERATION(sub, "x - y") WEFT_NO_OPERATION(mul, "x * y") WEFT_NO_OPERATION(multiply, "x * y") WEFT_NO_OPERATION(div, "x / y")
WEFT_NO_OPERATION(real, "slice<dim>(z, 0, 1) of the last dim of a transform; cast<T>(x) changes the element type")
WEFT_NO_OPERATION(expand, "+ - * / repeat a dim of one element, as in x * beside(x, parameter); concat<dim>(x, x) repeats along a dim")
WEFT_NO_OPERATION(repeat, "+ - * / repeat a dim of one element, as in x * beside(x, parameter); concat<dim>(x, x) repeats along a dim")
WEFT_NO_OPERATION(tile, "+ - * / repeat a dim of one element, as in x * beside(x, parameter); concat<dim>(x, x) repeats along a dim")
WEFT_NO_OPERATION(zeros_like, "0.0 * x of finite x, and + 1.0; where(condition, x, y) chooses element by element")
WEFT_NO_OPERATION(ones_like, "0.0 * x of finite x, and + 1.0; where(condition, x, y) chooses element by element")
WEFT_NO_OPERATION(group_norm, "GroupNorm is a layer: a member `GroupNorm<> norm`, norm(x)")
WEFT_NO_OPERATION(instance_norm, "InstanceNorm is a layer: a member `InstanceNorm<> norm`, norm(x)")
WEFT_NO_OPERATION(normalize, "divide_column(x, sqrt(sum_columns(square(x)))), with a small number added to the sum where it may be 0")
WEFT_NO_OPERATION(huber_loss, "sum_losses(mean<1>(where(abs(e) < 1, 0.5 * square(e), abs(e) - 0.5))) with e = x - targets")
WEFT_NO_OPERATION(smooth_l1_loss, "sum_losses(mean<1>(where(abs(e) < 1, 0.5 * square(e), abs(e) - 0.5))) with e = x - targets")
WEFT_NO_OPERATION(kl_div, "sum_losses of one number for each sample, such as sum<1>(p * (log(p) - log_q))")
WEFT_NO_OPERATION(forward, "this class has no forward that takes this value: write `auto forward(const auto& x) const`; call a layer as a function, layer(x)")
WEFT_NO_OPERATION(adaptive_avg_pool2d, "global_avg_pool2d(x)") WEFT_NO_OPERATION(leakyrelu, "where(x > 0, x, 0.1 * x)") WEFT_NO_OPERATION(swish, "silu(x)")
WEFT_NO_OPERATION(repeat_interleave, "index_select(x, ids) with each row's id as often as the row") WEFT_NO_OPERATION(prelu, "where(x > 0, x, slope * x)")
WEFT_NO_OPERATION(broadcast_to, "+ - * / repeat a dim of one element, as in x * beside(x, parameter); concat<dim>(x, x) repeats along a dim")
WEFT_NO_OPERATION(expand_as, "+ - * / repeat a dim of one element, as in x * beside(x, parameter); concat<dim>(x, x) repeats along a dim")
WEFT_NO_OPERATION(threshold, "where(x > number, x, y)") WEFT_NO_OPERATION(glu, "auto [a, b] = chunk<dim, 2>(x); a * sigmoid(b)")
WEFT_NO_OPERATION(logsigmoid, "-softplus(-x)") WEFT_NO_OPERATION(power, "pow(x, y)") WEFT_NO_OPERATION(absolute, "abs(x)") WEFT_NO_OPERATION(negative, "-x")
WEFT_NO_OPERATION(lerp, "x + weight * (y - x)") WEFT_NO_OPERATION(addcmul, "x + y * z") WEFT_NO_OPERATION(logaddexp, "maximum(x, y) + softplus(-abs(x - y))")
WEFT_NO_OPERATION(clamp_min, "maximum(x, y) of two values, relu(x) beside 0") WEFT_NO_OPERATION(clamp_max, "minimum(x, y) of two values")
WEFT_NO_OPERATION(argmin, "argmax<dim>(-x)") WEFT_NO_OPERATION(amax, "max<dim>(x)") WEFT_NO_OPERATION(amin, "-max<dim>(-x)")
WEFT_NO_OPERATION(argsort, "auto [values, places] = sort<dim>(x)") WEFT_NO_OPERATION(upsample_nearest, "upsample(x, {.factor = 2})")
WEFT_NO_OPERATION(stddev, "sqrt(mean<dim>(square(x - m)) + 1e-12) with m = mean<dim>(x) reshaped to one element in that dim")
WEFT_NO_OPERATION(var_mean, "mean<dim>(square(x - m)) with m = mean<dim>(x) reshaped to one element in that dim")
WEFT_NO_OPERATION(interpolate, "upsample(x, {.factor = 2}), with .mode = UpsampleMode::linear for linear")
WEFT_NO_OPERATION(upsample_bilinear, "upsample(x, {.factor = 2, .mode = UpsampleMode::linear})") WEFT_NO_OPERATION(conv, "conv1d, conv2d or conv3d(x, w)")
WEFT_NO_OPERATION(pixel_unshuffle, "reshape(x, {...}), permute<dims...>(x) and reshape again") WEFT_NO_OPERATION(adaptive_avg_pool1d, "global_avg_pool1d(x)")
WEFT_NO_OPERATION(conv_transpose, "conv_transpose1d, conv_transpose2d or conv_transpose3d(x, w)") WEFT_NO_OPERATION(adaptive_max_pool2d, "max<2>(max<3>(x))")
WEFT_NO_OPERATION(depthwise_conv, "depthwise_conv1d, depthwise_conv2d or depthwise_conv3d(x, w)") WEFT_NO_OPERATION(global_max_pool2d, "max<2>(max<3>(x))")
WEFT_NO_OPERATION(max_pool, "max_pool1d, max_pool2d or max_pool3d(x, {.kernel = 2})") WEFT_NO_OPERATION(adaptive_avg_pool3d, "global_avg_pool3d(x)")
WEFT_NO_OPERATION(avg_pool, "avg_pool1d, avg_pool2d or avg_pool3d(x, {.kernel = 2})") WEFT_NO_OPERATION(rfft2, "rfft<2, 3>(x)")
WEFT_NO_OPERATION(lp_pool2d, "pow(4.0 * avg_pool2d(pow(abs(x), p), {.kernel = 2}), 1.0 / p) for 2 x 2 windows")
WEFT_NO_OPERATION(fft2, "fft<2, 3>(z), z [..., 2] with real and imaginary parts") WEFT_NO_OPERATION(rfftn, "rfft<dims...>(x), one to three dims")
WEFT_NO_OPERATION(ifft2, "ifft<2, 3>(z), z [..., 2] with real and imaginary parts") WEFT_NO_OPERATION(segment_min, "-segment_max(-x, ids, segments)")
WEFT_NO_OPERATION(irfft2, "irfft<2, 3>(z, n), n the elements along the last dim") WEFT_NO_OPERATION(segment_add, "segment_sum(x, ids, segments)")
WEFT_NO_OPERATION(fftn, "fft<dims...>(z), one to three dims and z [..., 2] with real and imaginary parts")
WEFT_NO_OPERATION(ifftn, "ifft<dims...>(z), one to three dims and z [..., 2] with real and imaginary parts")
WEFT_NO_OPERATION(irfftn, "irfft<dims...>(z, n), n the elements along the last of one to three dims")
WEFT_NO_OPERATION(imag, "slice<dim>(z, 1, 1) of the last dim of a transform") WEFT_NO_OPERATION(scatter, "scatter_add(x, ids, segments)")
WEFT_NO_OPERATION(scatter_sum, "segment_sum(x, ids, segments)") WEFT_NO_OPERATION(scatter_mean, "segment_mean(x, ids, segments)")
WEFT_NO_OPERATION(scatter_max, "segment_max(x, ids, segments)") WEFT_NO_OPERATION(scatter_min, "-segment_max(-x, ids, segments)")
WEFT_NO_OPERATION(scatter_softmax, "segment_softmax(x, ids, segments)") WEFT_NO_OPERATION(index_add, "scatter_add(x, ids, segments)")
WEFT_NO_OPERATION(global_mean_pool, "segment_mean(x, ids, graphs)") WEFT_NO_OPERATION(global_add_pool, "segment_sum(x, ids, graphs)")
WEFT_NO_OPERATION(global_max_pool, "segment_max(x, ids, graphs)")
WEFT_NO_OPERATION(take, "index_select(x, ids) takes rows; one element for each place is a Primitive of your own")
WEFT_NO_OPERATION(take_along_dim, "index_select(x, ids) takes rows; one element for each place is a Primitive of your own")
WEFT_NO_OPERATION(dropout2d, "Dropout drops elements: a member `Dropout dropout`, made with context / \"dropout\" and a rate, dropout(x)")
WEFT_NO_OPERATION(alpha_dropout, "Dropout drops elements: a member `Dropout dropout`, made with context / \"dropout\" and a rate, dropout(x)")
WEFT_NO_OPERATION(bernoulli, "where(noise.uniform(x) < p, x, y) with a member `Noise noise`") WEFT_NO_OPERATION(full_like, "0.0 * x + number, of finite x")
WEFT_NO_OPERATION(gumbel_softmax, "softmax(x - log(-log(clamp(noise.uniform(x), 1e-6, 0.99)))) with a member `Noise noise`")
WEFT_NO_OPERATION(meshgrid, "a field of the batch with the coordinates, or a constant that a Primitive computes") WEFT_NO_OPERATION(fliplr, "flip<dim>(x)")
WEFT_NO_OPERATION(arange, "a field of the batch, or a constant that a Primitive computes") WEFT_NO_OPERATION(empty_like, "0.0 * x, of finite x")
WEFT_NO_OPERATION(linspace, "a field of the batch, or a constant that a Primitive computes") WEFT_NO_OPERATION(concatenate, "concat<dim>(x, y...)")
WEFT_NO_OPERATION(hstack, "concat<1>(x, y...)") WEFT_NO_OPERATION(vstack, "concat<0>(x, y...)") WEFT_NO_OPERATION(movedim, "permute<dims...>(x)")
WEFT_NO_OPERATION(moveaxis, "permute<dims...>(x)") WEFT_NO_OPERATION(swapaxes, "transpose<first, second>(x)") WEFT_NO_OPERATION(flipud, "flip<dim>(x)")
WEFT_NO_OPERATION(narrow, "slice<dim>(x, from, count)") WEFT_NO_OPERATION(ravel, "flatten<first, last>(x)") WEFT_NO_OPERATION(inner, "sum<dim>(x * y)")
WEFT_NO_OPERATION(baddbmm, "batched_matmul(x, y) + z") WEFT_NO_OPERATION(vdot, "sum(x * y)") WEFT_NO_OPERATION(tensordot, "einsum<\"bij,bjk->bik\">(x, y)")
WEFT_NO_OPERATION(cdist, "sqrt(sum<2>(square(x - y))) of x and y reshaped to [n, 1, d] and [1, m, d]") WEFT_NO_OPERATION(logical_not, "x == 0 of a mask x")
WEFT_NO_OPERATION(pairwise_distance, "sqrt(sum<1>(square(x - y)))") WEFT_NO_OPERATION(cross, "slice the three components, and multiply and subtract them")
WEFT_NO_OPERATION(cosine_similarity, "sum<dim>(x * y) / sqrt(sum<dim>(square(x)) * sum<dim>(square(y)))") WEFT_NO_OPERATION(gt, "x > y")
WEFT_NO_OPERATION(logical_and, "where(a, where(b, x, y), y) of two masks") WEFT_NO_OPERATION(logical_or, "where(a, x, where(b, x, y)) of two masks")
WEFT_NO_OPERATION(lt, "x < y") WEFT_NO_OPERATION(ge, "x >= y") WEFT_NO_OPERATION(le, "x <= y") WEFT_NO_OPERATION(eq, "x == y") WEFT_NO_OPERATION(ne, "x != y")
WEFT_NO_OPERATION(binary_cross_entropy_with_logits, "bce_with_logits(logits, targets)")
WEFT_NO_OPERATION(softmax_cross_entropy, "cross_entropy(logits, labels)")
WEFT_NO_OPERATION(isnan, "a step whose gradients are not finite is skipped; ModelOptions::numerics.trace_nonfinite names the tensor")
WEFT_NO_OPERATION(isinf, "a step whose gradients are not finite is skipped; ModelOptions::numerics.trace_nonfinite names the tensor")
WEFT_NO_OPERATION(isfinite, "a step whose gradients are not finite is skipped; ModelOptions::numerics.trace_nonfinite names the tensor")
#undef WEFT_NO_OPERATION
#undef WEFT_OPERATION_OF
#undef WEFT_UNARY
#undef WEFT_NO_LOSS
#undef WEFT_CONVOLUTION
#undef WEFT_OPERATION
#undef WEFT_REFUSED_CALLS

// Operators, of which a tensor has none.
#define WEFT_NO_OPERATOR(op, id, concept, text)                                                              \
  WEFT_REFUSED_AS(id, concept, "operator" #op ": " text)                                                     \
  inline detail::AlreadyRefused operator op(id, detail::AnyArgument) { return {}; }                          \
  inline detail::AlreadyRefused operator op(detail::NoOperand, id) { return {}; }                            \
  template <class X, class Y> requires AnyRefused<X, Y> detail::AlreadyRefused operator op(const X&, const Y&) { return {}; }
#define WEFT_NO_COMPARISON(op, id)                                                                                              \
  WEFT_NO_OPERATOR(op, id, ForwardOperand, "not of these operands: it compares two values of one type, or a value and a "        \
                   "number, and gives 1 and 0 for where(condition, a, b); a Parameter is beside(x, parameter)")
#define WEFT_NO_ARITHMETIC(op, id, function)                                                                                   \
  WEFT_NO_OPERATOR(op, id, Operand, "not of these operands: it takes two values of a forward, or one and a number or a "       \
                   "Parameter as a row, value " #op " Parameter; a Parameter in another place is beside(x, parameter), a "     \
                   "constant Variable x.detach(), and tensors in a Primitive have functions, " function)                        \
  template <class... R, class... S> detail::AlreadyRefused operator op(const Parameter<R...>&, const Parameter<S...>&) {         \
    static_assert(sizeof(Parameter<R...>) == 0, "weft: operator" #op " of two Parameters: the first becomes a value beside "     \
                  "a value of the forward, beside(x, first) " #op " second");                                                   \
    return {};                                                                                                                   \
  }
WEFT_NO_COMPARISON(>, as_more)
WEFT_NO_COMPARISON(<, as_below)
WEFT_NO_COMPARISON(>=, as_not_less)
WEFT_NO_COMPARISON(<=, as_not_more)
WEFT_NO_COMPARISON(==, as_alike)
WEFT_NO_COMPARISON(!=, as_different)
WEFT_NO_OPERATOR(<<, as_printed, ForwardOperand, "a forward is recorded and prints nothing; copy_to_host(x.value()) has the elements of this rank")
WEFT_NO_OPERATOR(%, as_modulo, ForwardOperand, "map(x, f, derivative) takes a function of your own")
WEFT_NO_OPERATOR(^, as_caret, ForwardOperand, "it is no power of values: pow(x, number), pow(x, y)")
WEFT_NO_ARITHMETIC(+, as_plus, "add(x, y)")
WEFT_NO_ARITHMETIC(-, as_minus, "subtract(x, y)")
WEFT_NO_ARITHMETIC(*, as_star, "times(x, y)")
WEFT_NO_ARITHMETIC(/, as_slash, "divide(x, y)")
#undef WEFT_NO_ARITHMETIC
#undef WEFT_NO_COMPARISON
#undef WEFT_NO_OPERATOR
#undef WEFT_REST
#undef WEFT_REFUSED_AS
// Exact matches: a built-in operator would take the operands as conditions.
#define WEFT_NO_LOGIC(op, instead)                                                                                            \
  template <class X, class Y> requires(detail::ForwardOperand<X> || detail::ForwardOperand<Y>)                                \
  detail::AlreadyRefused operator op(const X&, const Y&) {                                                                    \
    static_assert(AnyRefused<X, Y>, "weft: operator" #op ": a value is no condition of the program: write " instead);         \
    return {};                                                                                                                \
  }
WEFT_NO_LOGIC(&&, "where(a, where(b, x, y), y) of two masks")
WEFT_NO_LOGIC(||, "where(a, x, where(b, x, y)) of two masks")
#undef WEFT_NO_LOGIC
template <detail::ForwardOperand X>
detail::AlreadyRefused operator!(const X&) {
  static_assert(detail::is_silent<X>, "weft: operator!: a value is no condition of the program: write x == 0 of a mask x");
  return {};
}
inline detail::AlreadyRefused operator-(detail::AlreadyRefused refused) { return refused; }
// clang-format on

}  // namespace operations

}  // namespace weft
