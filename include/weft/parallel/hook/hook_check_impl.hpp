// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for parallel/hook/hook_check.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/parallel/hook/hook_check.hpp>

namespace weft::hook::detail {

WEFT_INLINE Request Checked::start(Bucket& bucket, const Communicator& comm) {
  if (comm.size() > 1)
    if (Watched& watched = watched_[bucket.index]; watched.due)
      bucket.visit([&]<class G>(std::span<G> gradients) {
        watched.own = device_->allocate(gradients.size_bytes());
        kernels::cast<G, G>(*device_, gradients.size(), gradients.data(), static_cast<G*>(watched.own.get()));
      });
  return hook_->start(bucket, comm);
}

WEFT_INLINE void Checked::finish(Bucket& bucket, const Communicator& comm) {
  hook_->finish(bucket, comm);
  if (const auto place = watched_.find(bucket.index); place != watched_.end() && place->second.own)
    bucket.visit([&](auto gradients) { check(bucket, gradients, comm, place->second); });
}

WEFT_INLINE void Checked::check_next_step() {
  for (auto& [index, watched] : watched_) watched.due = true;
}

WEFT_COLD WEFT_INLINE void Checked::decide(const Bucket& bucket, const Communicator& comm, const std::array<double, norms>& norm,
                                           Watched& watched) {
  bool finite = true;
  for (const double value : norm) finite = finite && std::isfinite(value);
  const double noise = 1e-6 * norm[own_norm];  // the rest of gradients that cancel out
  std::array<int, 5> all{
      norm[result_less_own] <= tolerance * norm[own_norm], norm[sum_less_own] <= 4 * tolerance * norm[sum_norm],
      norm[sum_norm] > noise && norm[result_less_mean] <= tolerance * norm[sum_norm] / comm.size(),
      norm[sum_norm] > noise && norm[result_less_multiple] <= tolerance * norm[sum_norm] * comm.size(), finite};
  comm.all_reduce(std::span<int>(all), Reduction::min);
  const auto [is_own, own_is_sum, is_mean, is_multiple, all_finite] = all;
  watched.due = !all_finite;  // the loss scale is still being sought: the next step checks
  if (!all_finite) return;
  const auto shown = [](double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g", value);
    return std::string(text);
  };
  const std::string result = shown(norm[result_norm]), own = shown(norm[own_norm]), sum = shown(norm[sum_norm]);
  if (is_own && !own_is_sum)
    throw_error<UsageError>({"the communication hook did not add the ranks' gradients: after it bucket ", bucket.index, " on ",
                             comm.axis(), " rank ", comm.rank(), " of ", comm.size(), " still holds this rank's own (norm ",
                             result, ", own ", own, ", their sum ", sum,
                             "): return comm.all_reduce_async(bucket.all()), or add them in `finish`"});
  if (is_mean)
    throw_error<UsageError>(
        {"the communication hook averages: after it bucket ", bucket.index, " on ", comm.axis(), " holds the sum of ",
         comm.size(), " ranks' gradients divided by ", comm.size(), " (norm ", result, ", sum ", sum,
         "); weft's gradients are sums: the loss is already divided by the tokens of the global batch. Leave the division out"});
  if (is_multiple)
    throw_error<UsageError>({"the communication hook adds too often: after it bucket ", bucket.index, " on ", comm.axis(),
                             " holds the sum of ", comm.size(), " ranks' gradients ", comm.size(), " times (norm ", result,
                             ", sum ", sum, "): one sum is enough, in `start` or in `finish`"});
}

}  // namespace weft::hook::detail
