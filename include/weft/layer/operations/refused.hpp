// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operations of this folder on what the compiler has refused already: they pass it on, so that a chain of operations with one
// mistake gives one error.
//
//   auto y = relu(conv2d(x, w));   // one error if conv2d has no rule for w

#include <cstddef>

#include <weft/tensor/tensor.hpp>

namespace weft::operations {

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
template <class... More> detail::AlreadyRefused mse(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused bce_with_logits(detail::AlreadyRefused, const More&...) { return {}; }
template <class... More> detail::AlreadyRefused cross_entropy(detail::AlreadyRefused, const More&...) { return {}; }
template <int, int, class... More> detail::AlreadyRefused flatten(detail::AlreadyRefused, const More&...) { return {}; }
template <int, int, class... More> detail::AlreadyRefused transpose(detail::AlreadyRefused, const More&...) { return {}; }
template <int, class... More> detail::AlreadyRefused sum(detail::AlreadyRefused, const More&...) { return {}; }
template <int, class... More> detail::AlreadyRefused mean(detail::AlreadyRefused, const More&...) { return {}; }
template <int, class... More> detail::AlreadyRefused softmax(detail::AlreadyRefused, const More&...) { return {}; }
template <int, class... More> detail::AlreadyRefused unflatten(detail::AlreadyRefused, const More&...) { return {}; }
template <int, class... More> detail::AlreadyRefused slice(detail::AlreadyRefused, const More&...) { return {}; }
// clang-format on

}  // namespace weft::operations
