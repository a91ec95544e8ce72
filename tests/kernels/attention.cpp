// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/attention_arguments.hpp weft/kernels/detail/attention_host.hpp weft/kernels/detail/attention_pairs.hpp
// covers: weft/kernels/detail/attention_rows.hpp weft/kernels/detail/attention_tiles.hpp
#include <weft/kernels/attention.hpp>
#include <weft/kernels/attention_arguments.hpp>
#include <weft/kernels/detail/attention_host.hpp>
#include <weft/kernels/detail/attention_pairs.hpp>
#include <weft/kernels/detail/attention_rows.hpp>
#include <weft/kernels/detail/attention_tiles.hpp>

#include <tests/kernels/support.hpp>

using namespace kernels_test;

namespace {

/// q, k and v are slices of one array, as a fused projection makes them; so are their gradients.
template <class T>
struct Case {
  std::size_t sequences, length, heads, kv_heads, head_width;
  bool causal;
  std::size_t rows = sequences * length, width = heads * head_width, kv_width = kv_heads * head_width,
              stride = width + 2 * kv_width + 3;
  std::vector<T> fused = normal<T>(rows * stride, 1, 1.3), d_out = normal<T>(rows * width, 2), out = std::vector<T>(rows * width);
  std::vector<T> d_fused = std::vector<T>(rows * stride);
  std::vector<accumulate_t<T>> lse = std::vector<accumulate_t<T>>(sequences * heads * length);

  weft::kernels::AttentionExtents extents() const {
    return {.sequences = sequences, .length = length, .heads = heads, .kv_heads = kv_heads, .head_width = head_width};
  }
  /// Query, key and value of a fused array.
  template <class U>
  weft::kernels::AttentionOperands<U> operands(U* of) const {
    return {.q = of, .k = of + width, .v = of + width + kv_width, .q_stride = stride, .k_stride = stride, .v_stride = stride};
  }
  void forward(DefaultDevice& device) {
    weft::kernels::attention_forward<T>(device, extents(), operands<const T>(fused.data()), {out.data(), width}, lse.data(),
                                        {.causal = causal});
  }
  void backward(DefaultDevice& device) {
    weft::kernels::attention_backward<T>(device, extents(), operands<const T>(fused.data()), {out.data(), width},
                                         {d_out.data(), width}, lse.data(), operands(d_fused.data()), {.causal = causal});
  }
};

/// The textbook's formulas, with the whole matrix of probabilities.
template <class T>
void reference(const Case<T>& c, std::vector<double>& out, std::vector<double>& lse, std::vector<double>& d_fused) {
  out.assign(c.out.size(), 0), lse.assign(c.lse.size(), 0), d_fused.assign(c.d_fused.size(), 0);
  const double scale = 1 / std::sqrt(double(c.head_width));
  for (std::size_t s = 0; s < c.sequences; ++s)
    for (std::size_t h = 0; h < c.heads; ++h) {
      const std::size_t kv = h / (c.heads / c.kv_heads);
      const auto q_at = [&](std::size_t i) { return (s * c.length + i) * c.stride + h * c.head_width; };
      const auto k_at = [&](std::size_t j) { return (s * c.length + j) * c.stride + c.width + kv * c.head_width; };
      const auto v_at = [&](std::size_t j) { return k_at(j) + c.kv_width; };
      for (std::size_t i = 0; i < c.length; ++i) {
        const std::size_t keys = c.causal ? i + 1 : c.length, o_at = (s * c.length + i) * c.width + h * c.head_width;
        std::vector<double> p(keys), dp(keys);
        double sum = 0, mean = 0;
        for (std::size_t j = 0; j < keys; ++j) {
          for (std::size_t d = 0; d < c.head_width; ++d) {
            p[j] += scale * double(c.fused[q_at(i) + d]) * double(c.fused[k_at(j) + d]);
            dp[j] += double(c.d_out[o_at + d]) * double(c.fused[v_at(j) + d]);
          }
          sum += p[j] = std::exp(p[j]);
        }
        for (std::size_t j = 0; j < keys; ++j) mean += (p[j] /= sum) * dp[j];
        lse[(s * c.heads + h) * c.length + i] = std::log(sum);
        for (std::size_t j = 0; j < keys; ++j)
          for (std::size_t d = 0; d < c.head_width; ++d) {
            const double ds = scale * p[j] * (dp[j] - mean);
            out[o_at + d] += p[j] * double(c.fused[v_at(j) + d]);
            d_fused[v_at(j) + d] += p[j] * double(c.d_out[o_at + d]);
            d_fused[q_at(i) + d] += ds * double(c.fused[k_at(j) + d]);
            d_fused[k_at(j) + d] += ds * double(c.fused[q_at(i) + d]);
          }
      }
    }
}

template <class T>
void check(Case<T> c) {
  CAPTURE(c.length);
  CAPTURE(c.heads);
  CAPTURE(c.kv_heads);
  CAPTURE(c.head_width);
  CAPTURE(c.causal);
  Devices devices;
  std::vector<double> out, lse, d_fused;
  reference(c, out, lse, d_fused);
  c.forward(devices.one);
  check_close(c.out, out);
  CHECK(difference(c.lse, lse) <= (std::is_same_v<T, double> ? 1e-12 : 3e-6));
  c.backward(devices.one);
  check_close(c.d_fused, d_fused);
  Case<T> again = c;
  again.forward(devices.all);
  again.backward(devices.all);
  CHECK(same_bits(c.out, again.out));
  CHECK(same_bits(c.d_fused, again.d_fused));
}

}  // namespace

TEST_CASE_TEMPLATE("attention is the textbook's, at all lengths, widths and groups of heads", T, float, double, bfloat16,
                   float16) {
  check(Case<T>{2, 33, 4, 2, 20, true});
  check(Case<T>{1, 1, 2, 1, 8, true});
  check(Case<T>{1, 150, 2, 2, 64, true});
  check(Case<T>{1, 300, 3, 1, 16, true});   // more than one block of keys
  check(Case<T>{2, 261, 2, 2, 33, false});  // an odd width, no mask
  check(Case<T>{3, 64, 1, 1, 32, true});
}

TEST_CASE_TEMPLATE("attention by rows, for spaces without tiles, is the same", T, float, double, bfloat16) {
  for (const bool causal : {true, false}) {
    Case<T> c{2, 37, 4, 2, 20, causal};
    DefaultDevice device;
    std::vector<double> out, lse, d_fused;
    reference(c, out, lse, d_fused);
    const weft::kernels::detail::AttentionShape shape(c.extents(), causal);
    const auto in = c.template operands<const T>(c.fused.data());
    weft::kernels::detail::attention_rows_forward<T, T>(device, shape, in, {c.out.data(), c.width}, c.lse.data());
    check_close(c.out, out);
    weft::kernels::detail::attention_rows_backward<T, T>(device, shape, in, {c.out.data(), c.width}, {c.d_out.data(), c.width},
                                                         c.lse.data(), c.operands(c.d_fused.data()));
    check_close(c.d_fused, d_fused);
  }
}

TEST_CASE("a later token has no influence on an earlier one, bit for bit") {
  DefaultDevice device;
  Case<float> a{1, 100, 2, 2, 32, true}, b = a;
  for (std::size_t i = 60 * b.stride; i < b.fused.size(); ++i) b.fused[i] += 3;
  a.forward(device);
  b.forward(device);
  a.out.resize(60 * a.width), b.out.resize(60 * b.width);
  CHECK(same_bits(a.out, b.out));
}

TEST_CASE("heads that key-value heads do not divide are refused, with the numbers") {
  DefaultDevice device;
  Case<float> c{1, 4, 6, 4, 8, true};
  CHECK_THROWS_WITH_AS(c.forward(device),
                       "weft: attention: heads(6) % kv_heads(4) != 0: every key-value head serves the same number of query heads",
                       weft::ShapeError);
}
