// SPDX-License-Identifier: Apache-2.0
#pragma once
// The norm of all gradients in reproducible runs. Squares are added without rounding, so the norm has the same bits in every
// layout with the same gradients.
//
//   const double norm = exact_norm(device, communicator, parts);

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/kernels/exact_sum.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::detail {

/// The number of neighbours whose squares are one block: 32, or fewer if tp divides 32 neighbours at one of the degrees for which
/// sums keep their bits (`terms` is Device::sum_terms). A function of the whole parameter and of that degree only.
WEFT_COLD inline std::size_t undivided_block(const ParameterInfo& info, std::size_t terms) {
  std::size_t block = kernels::exact_sum_block;
  if (terms == 0 || (info.sharded & axis_bit<tp>) == 0) return block;
  const AxisCut& cut = info.cut;
  std::size_t inner = 1;
  for (std::size_t dim = cut.dim + 1; dim < info.global.rank(); ++dim) inner *= info.global[dim];
  const auto divide = [&](std::size_t extent) {
    while ((extent * inner) % (cut.ranks * terms * block) != 0 && block > 1) block /= 2;
  };
  if (cut.sharding.segments.empty()) divide(info.global[cut.dim]);
  for (const ParameterSharding::Segment& segment : cut.sharding.segments) divide(segment.extent);
  return block;
}

}  // namespace weft::detail

namespace weft::optim {

/// The 2-norm over the parts of all ranks. Collective.
template <class Exec>
double exact_norm(Device<Exec>& device, const Communicator& communicator, const std::vector<weft::detail::GradientPart>& parts) {
  constexpr std::size_t words = kernels::exact_sum_words;
  Tensor<std::int64_t, Exec> sums(device, {2, words});  // of elements that this rank counts, and of the others
  kernels::clear_exact_sums(device, 2, sums.data());
  std::vector<kernels::ExactPart<float>> narrow;
  std::vector<kernels::ExactPart<double>> wide;
  for (const weft::detail::GradientPart& part : parts) {
    const auto add = [&]<class G>(std::vector<kernels::ExactPart<G>>& to) {
      const std::size_t skipped = part.run.local % kernels::exact_sum_block;
      const G* gradient = static_cast<const G*>(part.state->gradient().get()) + part.run.local;
      to.push_back({gradient - skipped, part.run.length + skipped, skipped, part.counted ? std::size_t(0) : std::size_t(1),
                    weft::detail::undivided_block(part.state->info(), device.sum_terms())});
    };
    if (part.state->gradient_type() == DataType::float32) add(narrow);
    else add(wide);
  }
  if (!narrow.empty()) kernels::exact_squared_norms<float>(device, narrow, sums.data());
  if (!wide.empty()) kernels::exact_squared_norms<double>(device, wide, sums.data());
  auto host = copy_to_host(sums);
  host[words - 1] = host[2 * words - 2];
  host.resize(words);
  kernels::carry(host);
  communicator.all_reduce(host);
  return std::sqrt(kernels::exact_value(host));
}

}  // namespace weft::optim
