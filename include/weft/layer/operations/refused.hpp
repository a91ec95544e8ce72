// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operations of this folder on what the compiler has refused already: they pass it on, so that a chain of operations with one
// mistake gives one error.
//
//   auto y = relu(conv2d(x, w));   // one error if conv2d has no rule for w

#include <cstddef>
#include <type_traits>

#include <weft/tensor/tensor.hpp>

namespace weft::operations {

template <class... X>
concept AnyRefused = (std::is_same_v<X, detail::AlreadyRefused> || ...);

// clang-format off
template <class... More> detail::AlreadyRefused exp(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused log(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused sqrt(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused square(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused tanh(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused sigmoid(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused silu(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused gelu(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused relu(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused clamp(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused sum(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused mean(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused softmax(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused log_softmax(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused reshape(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused conv2d(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused max_pool2d(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused avg_pool2d(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused global_avg_pool2d(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused gelu_erf(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused depthwise_conv2d(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused split_heads(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused merge_heads(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused sum_rows(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused sum_columns(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused mean_columns(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused sum_all(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused times_heads(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused sum_each_head(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused mean_each_head(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused log_sum_exp(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused map(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused scale(detail::AlreadyRefused, const More&...) { return {}; }
template <int, int, class... More> detail::AlreadyRefused flatten(detail::AlreadyRefused, const More&...) { return {}; }
template <int, int, class... More> detail::AlreadyRefused transpose(detail::AlreadyRefused, const More&...) { return {}; }
template <int, class... More> detail::AlreadyRefused sum(detail::AlreadyRefused, const More&...) { return {}; }
template <int, class... More> detail::AlreadyRefused mean(detail::AlreadyRefused, const More&...) { return {}; }
template <int, class... More> detail::AlreadyRefused softmax(detail::AlreadyRefused, const More&...) { return {}; }
template <int, class... More> detail::AlreadyRefused unflatten(detail::AlreadyRefused, const More&...) { return {}; }
template <int, class... More> detail::AlreadyRefused slice(detail::AlreadyRefused, const More&...) { return {}; }
template <int, class... More> detail::AlreadyRefused log_softmax(detail::AlreadyRefused, const More&...) { return {}; }
template <int, class... More> detail::AlreadyRefused max(detail::AlreadyRefused, const More&...) { return {}; }
template <int, class... More> detail::AlreadyRefused argmax(detail::AlreadyRefused, const More&...) { return {}; }
template <class, class... More> detail::AlreadyRefused cast(detail::AlreadyRefused, const More&...) { return {}; }
// Of several operands, whichever was refused.
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused mse(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused bce_with_logits(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused cross_entropy(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused maximum(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused minimum(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused greater(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused where(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused batched_matmul(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused batched_matmul_transposed(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused batched_transposed_matmul(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused index_select(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused attention(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused times_scalar(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused times_column(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused divide_column(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused times_each_head(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused add(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused subtract(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused times(const X&...) { return {}; }
template <class... X> requires AnyRefused<X...> detail::AlreadyRefused divide(const X&...) { return {}; }
template <int, class... X> requires AnyRefused<X...> detail::AlreadyRefused concat(const X&...) { return {}; }
// clang-format on

}  // namespace weft::operations
