// SPDX-License-Identifier: Apache-2.0
#pragma once
// The norm of all gradients in reproducible runs: squares are added without rounding, so that the norm has the same bits in every
// layout with the same gradients.
//
//   const double norm = exact_norm(device, communicator, parts);

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/kernels/exact_sum.hpp>
#include <weft/layer/hooks.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::optim {

/// The 2-norm over the parts of all ranks. Collective.
template <class Exec>
double exact_norm(Device<Exec>& device, const Communicator& communicator, const std::vector<weft::detail::GradientPart>& parts) {
  constexpr std::size_t words = kernels::exact_sum_words;
  Tensor<std::int64_t, Exec> sums(device, {2, words});  // of the elements that this rank counts, and of the others
  copy_from_host(sums, std::vector<std::int64_t>(2 * words));
  for (const weft::detail::GradientPart& part : parts) {
    std::int64_t* sum = sums.data() + (part.counted ? 0 : words);
    const auto add = [&]<class G>(const G* gradient) {
      kernels::exact_squared_norm(device, part.run.length, part.run.local, gradient + part.run.local, sum);
    };
    if (part.state->gradient_type() == DataType::float32) add(static_cast<const float*>(part.state->gradient().get()));
    else add(static_cast<const double*>(part.state->gradient().get()));
  }
  auto host = copy_to_host(sums);
  host[words - 1] = host[2 * words - 2];
  host.resize(words);
  kernels::carry(host);
  communicator.all_reduce(host);
  return std::sqrt(kernels::exact_value(host));
}

}  // namespace weft::optim
