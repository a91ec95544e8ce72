// SPDX-License-Identifier: Apache-2.0
#pragma once
// The check of options, and the updates of the bias and of the load report. Definitions for nn/router.hpp.

#include <weft/core/inline.hpp>
#include <weft/nn/router.hpp>

namespace weft::detail {

WEFT_INLINE void require_router(const RouterOptions& o) {
  if (o.top_k == 0 || o.top_k > o.experts)
    throw_error<LayoutError>({"top-k(", o.top_k, ") of experts(", o.experts, "): can be 1 to ", o.experts});
  if (o.drop != nn::Drop::none && !(o.capacity_factor > 0))
    throw_error<UsageError>(
        {"capacity factor ", std::to_string(o.capacity_factor), ": where tokens are dropped it must be above 0"});
  if (o.drop == nn::Drop::none && o.capacity_factor != 0)
    throw_error<UsageError>({"capacity factor ", std::to_string(o.capacity_factor), " without a rule for dropping: set drop"});
  if (!(o.auxiliary_loss >= 0 && o.z_loss >= 0 && o.bias_rate >= 0))
    throw_error<UsageError>({"auxiliary loss, z-loss and bias rate must be at least 0"});
}

WEFT_INLINE void renew_bias(StepBuffer& buffer) {
  double mean = 0;
  for (const double load : buffer.sum) mean += load / double(buffer.sum.size());
  for (std::size_t e = 0; e < buffer.value.size(); ++e)
    buffer.value[e] += buffer.rate * double((buffer.sum[e] < mean) - (buffer.sum[e] > mean));
}

WEFT_INLINE void renew_report(StepBuffer& buffer) {
  const double rows = std::max(buffer.sum.back(), 1.0);
  for (std::size_t i = 0; i < buffer.value.size(); ++i) buffer.value[i] = buffer.sum[i] / rows;
}

WEFT_INLINE void Router::add_counted(const std::vector<double>& counted) const {
  for (std::size_t i = 0; i < counted.size(); ++i) report_->sum[i] += counted[i];
  if (bias_ && !counted.empty())
    for (std::size_t e = 0; e < options_.experts; ++e) bias_->sum[e] += counted[e];
}

}  // namespace weft::detail
