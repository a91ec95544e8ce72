// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/stragglers.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>

#include <weft/comm/stragglers.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>

namespace weft::comm {

namespace detail {

WEFT_COLD WEFT_INLINE double median_of(std::vector<double>& values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The mean without the `cut` smallest and the `cut` largest values; sorts them.
WEFT_COLD WEFT_INLINE double middle_mean(std::span<double> values, std::size_t cut) {
  std::sort(values.begin(), values.end());
  return std::accumulate(values.begin() + std::ptrdiff_t(cut), values.end() - std::ptrdiff_t(cut), 0.0) /
         double(values.size() - 2 * cut);
}

/// log(own / median of the others), for each rank of a group.
WEFT_COLD WEFT_INLINE void compare_with_others(std::span<const double> seconds, const std::vector<int>& group,
                                               std::vector<float>& ratios) {
  std::vector<int> order = group;
  std::sort(order.begin(), order.end(), [&](int a, int b) { return seconds[std::size_t(a)] < seconds[std::size_t(b)]; });
  const std::size_t others = order.size() - 1;
  for (std::size_t place = 0; place < order.size(); ++place) {
    const auto other = [&](std::size_t k) { return seconds[std::size_t(order[k + (k >= place)])]; };
    const double middle = others % 2 != 0 ? other(others / 2) : (other(others / 2 - 1) + other(others / 2)) / 2;
    ratios[std::size_t(order[place])] = float(std::log(seconds[std::size_t(order[place])] / middle));
  }
}

}  // namespace detail

WEFT_COLD WEFT_INLINE std::vector<Straggler> Stragglers::add(std::span<const float> seconds,
                                                             std::span<const std::uint32_t> groups) {
  if (++steps_ <= warm_up || std::any_of(seconds.begin(), seconds.end(), [](float s) { return !(s > 0); })) return {};
  sums_.resize(seconds.size(), 0);
  for (std::size_t r = 0; r < seconds.size(); ++r) sums_[r] += double(seconds[r]);
  ++together_;
  std::vector<double> sorted = sums_;
  if (detail::median_of(sorted) < least_s_) return {};
  const std::vector<Straggler> before = slow_;
  observe(groups);
  std::fill(sums_.begin(), sums_.end(), 0);
  together_ = 0;
  std::vector<Straggler> news = slow_;
  std::erase_if(news, [&](const Straggler& one) {
    return std::any_of(before.begin(), before.end(), [&](const Straggler& other) { return other.rank == one.rank; });
  });
  return news;
}

WEFT_COLD WEFT_INLINE std::vector<Straggler> Stragglers::add(std::span<const std::uint64_t> words) {
  std::vector<float> seconds;
  std::vector<std::uint32_t> groups;
  for (const std::uint64_t word : words) {
    seconds.push_back(std::bit_cast<float>(std::uint32_t(word >> 32)));
    groups.push_back(std::uint32_t(word));
  }
  return words.empty() ? std::vector<Straggler>() : add(seconds, groups);
}

WEFT_COLD WEFT_INLINE void Stragglers::observe(std::span<const std::uint32_t> groups) {
  std::map<std::uint32_t, std::vector<int>> members;
  for (std::size_t r = 0; r < groups.size(); ++r) members[groups[r]].push_back(int(r));
  std::vector<float> ratios(groups.size(), 0);
  for (const auto& [number, group] : members)
    if (group.size() > 1) detail::compare_with_others(sums_, group, ratios);
  ratios_.push_back(std::move(ratios));
  if (ratios_.size() > window) ratios_.pop_front();
  if (ratios_.size() < window) return;
  std::vector<Straggler> slow;
  for (const auto& [number, group] : members) {
    std::vector<double> means, newest, deviations, mine(window);
    for (const int rank : group) {
      for (std::size_t i = 0; i < window; ++i) mine[i] = double(ratios_[i][std::size_t(rank)]);
      newest.push_back(detail::middle_mean(std::span(mine).last(window / 2), window / 8));
      means.push_back(detail::middle_mean(mine, cut));
      for (double& ratio : mine) ratio = std::abs(ratio - means.back());
      deviations.push_back(detail::median_of(mine));
    }
    std::vector<double> sorted = deviations;
    const double usual = detail::median_of(sorted);
    for (std::size_t k = 0; k < group.size(); ++k) {
      // 1.4826: a normal distribution's deviation over its median one; 1.2: the error of a mean of the four middle values of 16.
      const double error = 1.2 * 1.4826 * std::max(usual, deviations[k]) / std::sqrt(double(window));
      const auto is_this = [rank = group[k]](const Straggler& one) { return one.rank == rank; };
      const bool known = std::any_of(slow_.begin(), slow_.end(), is_this);
      if (means[k] > (known ? 0.5 : 1.0) * std::log1p(threshold) && means[k] > (known ? 2.5 : 5.0) * error)
        slow.push_back(
            {group[k], std::expm1(newest[k]), sums_[std::size_t(group[k])] / double(together_), int(group.size()) - 1});
    }
  }
  std::sort(slow.begin(), slow.end(), [](const Straggler& a, const Straggler& b) { return a.rank < b.rank; });
  slow_ = std::move(slow);
}

WEFT_COLD WEFT_INLINE std::string describe(const Straggler& slow, const std::string& host) {
  char text[512];
  std::snprintf(
      text, sizeof text,
      "rank %d (host %.60s) computes %.0f %% slower than the median of the %d other rank%s of its stage, %.4g ms a step: "
      "look there for other programs, a low clock (temperature, power) and slow memory; or its work is more (longer "
      "sequences, busier experts)",
      slow.rank, host.c_str(), 100 * slow.slower, slow.others, slow.others == 1 ? "" : "s", 1e3 * slow.seconds);
  return text;
}

WEFT_COLD WEFT_INLINE void report(const Straggler& slow) {
  char host[256] = {};
  (void)::gethostname(host, sizeof host - 1);
  std::fprintf(stderr, "weft: %s\n", describe(slow, host).c_str());
}

}  // namespace weft::comm
