// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernels of norms that compute the sums of a residual connection, compared bit by bit with a separate sum and norm, on any
// device of host memory: with the loops of hosts, and with those of GPUs.

#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/norm.hpp>

#include "kernels/support.hpp"

namespace kernels_test {

template <class T, class Exec>
void check_norm_sums(weft::Device<Exec>& device) {
  namespace kernels = weft::kernels;
  using A = accumulate_t<T>;
  for (const bool root_mean_square : {false, true})
    for (const std::size_t width : {1, 7, 33, 100, 384}) {
      CAPTURE(root_mean_square);
      CAPTURE(width);
      const std::size_t rows = 29, n = rows * width;
      const auto x = normal<T>(n, 1, 2), branch = normal<T>(n, 2), gain = normal<T>(width, 3), bias = normal<T>(width, 4),
                 dy = normal<T>(n, 5), others = normal<T>(n, 6);
      struct Forward {
        std::vector<T> sum, y;
        std::vector<A> mean, rstd;
      };
      const Forward empty{std::vector<T>(n), std::vector<T>(n), std::vector<A>(rows), std::vector<A>(rows)};
      const auto norm = [&](const T* in, Forward& to) {
        if (root_mean_square) kernels::rms_norm_forward(device, rows, width, in, gain.data(), to.y.data(), to.rstd.data(), 1e-5);
        else
          kernels::layer_norm_forward(device, rows, width, in, gain.data(), bias.data(), to.y.data(), to.mean.data(),
                                      to.rstd.data(), 1e-5);
      };
      const auto norm_of_sum = [&](const T* a, const T* b, Forward& to) {
        if (root_mean_square)
          kernels::rms_norm_sum_forward(device, rows, width, a, b, gain.data(), to.sum.data(), to.y.data(), to.rstd.data(), 1e-5);
        else
          kernels::layer_norm_sum_forward(device, rows, width, a, b, gain.data(), bias.data(), to.sum.data(), to.y.data(),
                                          to.mean.data(), to.rstd.data(), 1e-5);
      };
      Forward want = empty, got = empty, in_place = empty;
      kernels::add(device, n, x.data(), branch.data(), want.sum.data());
      norm(want.sum.data(), want);
      norm_of_sum(x.data(), branch.data(), got);
      in_place.sum = branch;
      norm_of_sum(x.data(), in_place.sum.data(), in_place);
      for (const Forward* one : {&got, &in_place}) {
        CHECK(same_bits(one->sum, want.sum));
        CHECK(same_bits(one->y, want.y));
        CHECK(same_bits(one->mean, want.mean));
        CHECK(same_bits(one->rstd, want.rstd));
      }
      CHECK_FALSE(same_bits(want.sum, x));

      const auto backward = [&](std::vector<T>& dx, const T* more) {
        if (root_mean_square)
          kernels::rms_norm_backward_input(device, rows, width, want.sum.data(), gain.data(), want.rstd.data(), dy.data(),
                                           dx.data(), more);
        else
          kernels::layer_norm_backward_input(device, rows, width, want.sum.data(), gain.data(), want.mean.data(),
                                             want.rstd.data(), dy.data(), dx.data(), more);
      };
      std::vector<T> alone(n), both(n), fused(n), added = others;
      backward(alone, nullptr);
      kernels::add(device, n, others.data(), alone.data(), both.data());
      backward(fused, others.data());
      backward(added, added.data());
      CHECK(same_bits(fused, both));
      CHECK(same_bits(added, both));
      if (width > 1) CHECK_FALSE(same_bits(both, others));
    }
}

}  // namespace kernels_test
