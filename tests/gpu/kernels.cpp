// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/cudnn/attention.hpp weft/kernels/cudnn/graph.hpp weft/kernels/detail/matmul_cublas.hpp
// Every kernel on a GPU compared with the same call on the host (./tests/run --gpu). A program without a test framework: the
// computer with the GPU may have none.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <weft/kernels/activation.hpp>
#include <weft/kernels/attention.hpp>
#include <weft/kernels/attention_mask_gradient.hpp>
#include <weft/kernels/cross_entropy.hpp>
#include <weft/kernels/cudnn/attention.hpp>
#include <weft/kernels/cudnn/graph.hpp>
#include <weft/kernels/cudnn/use.hpp>
#include <weft/kernels/detail/matmul_cublas.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/embedding.hpp>
#include <weft/kernels/exact_sum.hpp>
#include <weft/kernels/matmul.hpp>
#include <weft/kernels/matmul_fused.hpp>
#include <weft/kernels/norm.hpp>
#include <weft/kernels/optimizer.hpp>
#include <weft/kernels/random.hpp>
#include <weft/kernels/rope.hpp>
#include <weft/kernels/routing.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/transfer.hpp>

using namespace weft;

namespace {

int failures = 0;

template <class T>
constexpr double tolerance = std::is_same_v<T, double>  ? 1e-11
                             : std::is_same_v<T, float> ? 2e-5
                                                        : 2e-2;
template <class T>
constexpr const char* name_of_type = std::is_same_v<T, double>     ? "double"
                                     : std::is_same_v<T, float>    ? "float"
                                     : std::is_same_v<T, bfloat16> ? "bfloat16"
                                                                   : "float16";

/// Arrays of one device, used by a case as `in` and `out`.
template <class Exec>
class Arrays {
 public:
  explicit Arrays(Device<Exec>& device) : device_(device) {}
  Device<Exec>& device() { return device_; }
  template <class T>
  T* in(const std::vector<T>& values) {
    const Tensor<T, Exec> tensor(device_, {std::max<std::size_t>(1, values.size())});
    if (!values.empty()) copy_from_host(tensor, std::span<const T>(values));
    kept_.push_back(tensor.buffer());
    return tensor.data();
  }
  template <class T>
  T* out(std::size_t n) {
    const Tensor<T, Exec> tensor(device_, {n});
    kept_.push_back(tensor.buffer());
    results_.push_back([tensor] {
      const auto host = copy_to_host(tensor);
      return std::vector<double>(host.begin(), host.end());
    });
    return tensor.data();
  }
  std::vector<std::vector<double>> results() const {
    std::vector<std::vector<double>> all;
    for (const auto& result : results_) all.push_back(result());
    return all;
  }

 private:
  Device<Exec>& device_;
  std::vector<detail::Buffer> kept_;
  std::vector<std::function<std::vector<double>()>> results_;
};

template <class T>
std::vector<T> normal(std::size_t n, unsigned seed, double deviation = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> distribution(0, deviation);
  std::vector<T> values(n);
  for (T& value : values) value = T(accumulate_t<T>(distribution(generator)));
  return values;
}
std::vector<std::int32_t> whole_numbers(std::size_t n, int below, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<std::int32_t> values(n);
  for (auto& value : values) value = std::int32_t(generator() % unsigned(below));
  return values;
}

Device<Kokkos::DefaultExecutionSpace>* the_gpu = nullptr;
Device<Kokkos::DefaultHostExecutionSpace>* the_host = nullptr;

/// `body(arrays)` gives the same on both devices, up to rounding.
template <class T, class F>
void compare(const std::string& what, F&& body, double factor = 1) {
  Arrays on_gpu(*the_gpu);
  Arrays on_host(*the_host);
  body(on_gpu);
  body(on_host);
  const auto got = on_gpu.results(), want = on_host.results();
  double worst = 0;
  for (std::size_t r = 0; r < want.size(); ++r) {
    double scale = 1;
    for (const double x : want[r]) scale = std::max(scale, std::abs(x));
    for (std::size_t i = 0; i < want[r].size(); ++i) {
      const double d = std::abs(got[r][i] - want[r][i]) / scale;
      worst = d >= 0 ? std::max(worst, d) : INFINITY;
    }
  }
  const bool good = worst <= factor * tolerance<T>;
  std::printf("%-6s %s, %s: differs by %.1e of at most %.1e\n", good ? "ok" : "FAILED", what.c_str(), name_of_type<T>, worst,
              factor * tolerance<T>);
  failures += !good;
}

/// Masks other than causal and full: a window, packed documents, padded keys, and a bias of heads and keys.
struct Masked {
  const char* name = "";
  AttentionMask mask = {};
  bool documents = false, padding = false, bias = false;
};

template <class T>
void attention(const std::string& how, std::size_t kv_heads, const Masked& masked) {
  const std::size_t sequences = 2, length = 128, heads = 4, head = 64, width = heads * head, kv = kv_heads * head,
                    fused = width + 2 * kv;
  const auto values = normal<T>(sequences * length * fused, 1), gradient = normal<T>(sequences * length * width, 2);
  std::vector<std::int32_t> documents;
  for (std::size_t i = 0; i < sequences * length; ++i) documents.push_back(std::int32_t((i + 11) / 37));
  std::vector<std::uint8_t> visible;
  for (std::size_t i = 0; i < sequences * length; ++i) visible.push_back(i % length < 90 && i % 7 != 3);
  const auto added = normal<accumulate_t<T>>(heads * length, 3);
  compare<T>("attention " + how + ", " + std::to_string(kv_heads) + " key-value heads" + masked.name, [&](auto& a) {
    const T* x = a.in(values);
    const T* g = a.in(gradient);
    T *out = a.template out<T>(sequences * length * width), *d = a.template out<T>(sequences * length * fused);
    auto* lse = a.template out<accumulate_t<T>>(sequences * heads * length);
    const kernels::AttentionExtents extents{
        .sequences = sequences, .length = length, .heads = heads, .kv_heads = kv_heads, .head_width = head};
    const auto operands = [&](auto* of) {
      return kernels::AttentionOperands<std::remove_pointer_t<decltype(of)>>{
          .q = of, .k = of + width, .v = of + width + kv, .q_stride = fused, .k_stride = fused, .v_stride = fused};
    };
    kernels::MaskArrays<accumulate_t<T>> arrays;
    if (masked.documents) arrays.documents = a.in(documents);
    if (masked.padding) arrays.visible = a.in(visible), arrays.sequence_step = length;
    if (masked.bias) arrays.added = a.in(added), arrays.head_step = length;
    kernels::attention_forward<T>(a.device(), extents, operands(x), {out, width}, lse, masked.mask, arrays);
    kernels::attention_backward<T>(a.device(), extents, operands(x), {out, width}, {g, width}, lse, operands(d), masked.mask,
                                   arrays);
    if (masked.bias)
      kernels::attention_mask_gradient<T>(a.device(), extents, operands(x), {out, width}, {g, width}, lse,
                                          a.template out<accumulate_t<T>>(heads * length), masked.mask, arrays);
  });
}
template <class T>
void attention(const std::string& how, std::size_t kv_heads, bool causal) {
  attention<T>(how, kv_heads, Masked{causal ? ", causal" : "", {.causal = causal}});
}
template <class T>
void masked_attention(const std::string& how) {
  attention<T>(how, 2, Masked{", causal, a window", {.window = 19}});
  attention<T>(how, 2, Masked{", a window both ways", {.causal = false, .window = 19}});
  attention<T>(how, 2, Masked{", causal, documents", {}, true});
  attention<T>(how, 2, Masked{", documents and padding", {.causal = false}, true, true});
  attention<T>(how, 2, Masked{", causal, a bias", {}, false, false, true});
}

/// The bits of results `first` and `second` of a body on the GPU are the same.
template <class T, class F>
void same_bits(const std::string& what, std::size_t first, std::size_t second, F&& body) {
  Arrays arrays(*the_gpu);
  body(arrays);
  const auto results = arrays.results();
  const bool good = results[first] == results[second];
  std::printf("%-6s %s, %s: the same bits\n", good ? "ok" : "FAILED", what.c_str(), name_of_type<T>);
  failures += !good;
}

/// The sums of a residual connection in the kernels of norms: as on the host, and with the bits of separate kernels.
template <class T>
void norms_with_sums() {
  using A = accumulate_t<T>;
  for (const std::size_t width : {384, 768, 100}) {
    const std::size_t rows = 130, n = rows * width;
    const auto x = normal<T>(n, 21), branch = normal<T>(n, 22), gain = normal<T>(width, 23), bias = normal<T>(width, 24),
               dy = normal<T>(n, 25), others = normal<T>(n, 26);
    const auto layer = [&](auto& a) {
      T *sum = a.template out<T>(n), *y = a.template out<T>(n), *fused = a.template out<T>(n);
      A *mean = a.template out<A>(rows), *rstd = a.template out<A>(rows);
      T *sum_apart = a.template out<T>(n), *y_apart = a.template out<T>(n), *d = a.template out<T>(n),
        *apart = a.template out<T>(n);
      const T *other = a.in(others), *scale = a.in(gain), *shift = a.in(bias), *g = a.in(dy);
      kernels::layer_norm_sum_forward(a.device(), rows, width, a.in(x), a.in(branch), scale, shift, sum, y, mean, rstd, 1e-5);
      kernels::layer_norm_backward_input(a.device(), rows, width, sum, scale, mean, rstd, g, fused, other);
      kernels::add(a.device(), n, a.in(x), a.in(branch), sum_apart);
      kernels::layer_norm_forward(a.device(), rows, width, sum_apart, scale, shift, y_apart, mean, rstd, 1e-5);
      kernels::layer_norm_backward_input(a.device(), rows, width, sum_apart, scale, mean, rstd, g, d);
      kernels::add(a.device(), n, other, d, apart);
    };
    const auto root = [&](auto& a) {
      T *sum = a.template out<T>(n), *y = a.template out<T>(n), *fused = a.template out<T>(n);
      A* rstd = a.template out<A>(rows);
      T *sum_apart = a.template out<T>(n), *y_apart = a.template out<T>(n), *d = a.template out<T>(n),
        *apart = a.template out<T>(n);
      const T *other = a.in(others), *scale = a.in(gain), *g = a.in(dy);
      kernels::rms_norm_sum_forward(a.device(), rows, width, a.in(x), a.in(branch), scale, sum, y, rstd, 1e-5);
      kernels::rms_norm_backward_input(a.device(), rows, width, sum, scale, rstd, g, fused, other);
      kernels::add(a.device(), n, a.in(x), a.in(branch), sum_apart);
      kernels::rms_norm_forward(a.device(), rows, width, sum_apart, scale, y_apart, rstd, 1e-5);
      kernels::rms_norm_backward_input(a.device(), rows, width, sum_apart, scale, rstd, g, d);
      kernels::add(a.device(), n, other, d, apart);
    };
    const std::string of = ", width " + std::to_string(width);
    compare<T>("LayerNorm of a sum" + of, layer, 2);
    compare<T>("RMSNorm of a sum" + of, root, 2);
    same_bits<T>("LayerNorm's sum" + of, 0, 5, layer);
    same_bits<T>("LayerNorm of a sum" + of, 1, 6, layer);
    same_bits<T>("LayerNorm's gradient beside others" + of, 2, 8, layer);
    same_bits<T>("RMSNorm's sum" + of, 0, 4, root);
    same_bits<T>("RMSNorm of a sum" + of, 1, 5, root);
    same_bits<T>("RMSNorm's gradient beside others" + of, 2, 7, root);
  }
}

/// A step of a ring: the second half of the queries against all keys, with float results.
template <class T>
void ring_step(const std::string& how, std::size_t kv_heads) {
  const std::size_t sequences = 2, length = 128, heads = 4, head = 64, width = heads * head, kv = kv_heads * head;
  const auto q = normal<T>(sequences * length * width, 1), keys = normal<T>(sequences * length * 2 * kv, 2),
             gradient = normal<T>(sequences * length * width, 3);
  const kernels::AttentionBlock block{.sequences = sequences,
                                      .queries = length / 2,
                                      .keys = length,
                                      .query_step = length,
                                      .key_step = length,
                                      .statistic_step = length,
                                      .heads = heads,
                                      .kv_heads = kv_heads,
                                      .head_width = head};
  compare<T>("attention of a ring's step " + how + ", " + std::to_string(kv_heads) + " key-value heads", [&](auto& a) {
    const std::size_t first = length / 2 * width;
    const T *in_q = a.in(q) + first, *in_k = a.in(keys), *g = a.in(gradient) + first;
    float *out = a.template out<float>(sequences * length * width), *dq = a.template out<float>(sequences * length * width),
          *d_keys = a.template out<float>(sequences * length * 2 * kv), *lse = a.template out<float>(sequences * heads * length);
    for (float* array : {out, dq}) kernels::fill<float>(a.device(), sequences * length * width, array, 0.f);
    kernels::fill<float>(a.device(), sequences * heads * length, lse, 0.f);
    T* rounded = a.template out<T>(sequences * length * width);
    const kernels::AttentionOperands<const T> in{
        .q = in_q, .k = in_k, .v = in_k + kv, .q_stride = width, .k_stride = 2 * kv, .v_stride = 2 * kv};
    kernels::attention_block_forward<T>(a.device(), block, in, kernels::StridedRows{out + first, width}, lse + length / 2);
    kernels::cast<float, T>(a.device(), sequences * length * width, out, rounded);
    kernels::attention_block_backward<T>(
        a.device(), block, in, {rounded + first, width}, {g, width}, lse + length / 2,
        kernels::AttentionOperands<float>{
            .q = dq + first, .k = d_keys, .v = d_keys + kv, .q_stride = width, .k_stride = 2 * kv, .v_stride = 2 * kv});
  });
}

template <class T>
void cases() {
  using A = accumulate_t<T>;
  using kernels::Transpose;
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const bool accumulate : {false, true}) {
        const std::size_t m = 96, n = 72, k = 136;
        const auto x = normal<T>(m * k, 1), y = normal<T>(k * n, 2), before = normal<T>(m * n, 3), bias = normal<T>(n, 4);
        compare<T>(std::string("product, ") + (ta ? "a turned, " : "") + (tb ? "b turned, " : "") +
                       (accumulate ? "added" : "with a bias"),
                   [&](auto& a) {
                     T* c = a.template out<T>(m * n);
                     kernels::cast<T, T>(a.device(), m * n, a.in(before), c);
                     kernels::matmul(a.device(), ta ? Transpose::yes : Transpose::no, tb ? Transpose::yes : Transpose::no, m, n,
                                     k, a.in(x), ta ? m : k, a.in(y), tb ? k : n, c, n, accumulate,
                                     accumulate ? nullptr : a.in(bias));
                     A* wide = a.template out<A>(m * n);
                     kernels::matmul(a.device(), ta ? Transpose::yes : Transpose::no, tb ? Transpose::yes : Transpose::no, m, n,
                                     k, a.in(x), ta ? m : k, a.in(y), tb ? k : n, wide, n, false, a.in(bias));
                   });
      }
  for (const std::size_t n : {72, 36})  // epilogues of GELU need multiples of 8
    for (const Transpose turned : {Transpose::no, Transpose::yes}) {
      const std::size_t m = 96, k = 136;
      const auto x = normal<T>(m * k, 1), y = normal<T>(k * n, 2, 0.1), bias = normal<T>(n, 4), g = normal<T>(m * k, 5),
                 rows = normal<T>(m * n, 6);
      compare<T>("product with a GELU around it, and with sums of rows", [&](auto& a) {
        T *before = a.template out<T>(m * n), *after = a.template out<T>(m * n), *gradient = a.template out<T>(m * n);
        kernels::matmul_gelu(a.device(), turned, m, n, k, a.in(x), a.in(y), a.in(bias), before, after);
        kernels::matmul_gelu_backward(a.device(), turned, m, n, k, a.in(g), a.in(y), before, gradient);
        A *c = a.template out<A>(k * n), *left = a.template out<A>(k), *right = a.template out<A>(n);
        kernels::matmul_sums<kernels::Factor::left>(a.device(), k, n, m, a.in(x), a.in(rows), c, false, left);
        kernels::matmul_sums<kernels::Factor::right>(a.device(), k, n, m, a.in(x), a.in(rows), c, true, right);
      });
    }
  {
    // Rows that cuBLASLt may not assume to be aligned.
    const std::size_t m = 5, n = 7, k = 3;
    const auto x = normal<T>(m * k + 1, 1), y = normal<T>(k * n + 1, 2);
    compare<T>("product, small and not aligned", [&](auto& a) {
      kernels::matmul(a.device(), Transpose::no, Transpose::no, m, n, k, a.in(x) + 1, k, a.in(y) + 1, n, a.template out<T>(m * n),
                      n);
    });
  }
  for (const std::size_t kv_heads : {4, 2})
    for (const bool causal : {true, false}) attention<T>("by what the device has", kv_heads, causal);
  masked_attention<T>("by what the device has");
  const std::size_t rows = 130, width = 384;
  const auto x = normal<T>(rows * width, 5), gain = normal<T>(width, 6), bias = normal<T>(width, 7),
             dy = normal<T>(rows * width, 8);
  compare<T>(
      "LayerNorm",
      [&](auto& a) {
        A *mean = a.template out<A>(rows), *rstd = a.template out<A>(rows);
        kernels::layer_norm_forward(a.device(), rows, width, a.in(x), a.in(gain), a.in(bias), a.template out<T>(rows * width),
                                    mean, rstd, 1e-5);
        kernels::layer_norm_backward_input(a.device(), rows, width, a.in(x), a.in(gain), mean, rstd, a.in(dy),
                                           a.template out<T>(rows * width));
        kernels::layer_norm_backward_weight(a.device(), rows, width, a.in(x), mean, rstd, a.in(dy), a.template out<A>(width),
                                            a.template out<A>(width), false);
      },
      2);
  compare<T>(
      "RMSNorm",
      [&](auto& a) {
        A* rstd = a.template out<A>(rows);
        kernels::rms_norm_forward(a.device(), rows, width, a.in(x), a.in(gain), a.template out<T>(rows * width), rstd, 1e-5);
        kernels::rms_norm_backward_input(a.device(), rows, width, a.in(x), a.in(gain), rstd, a.in(dy),
                                         a.template out<T>(rows * width));
        kernels::rms_norm_backward_weight(a.device(), rows, width, a.in(x), rstd, a.in(dy), a.template out<A>(width), false);
      },
      2);
  norms_with_sums<T>();
  compare<T>("GELU and SwiGLU", [&](auto& a) {
    kernels::gelu_forward(a.device(), rows * width, a.in(x), a.template out<T>(rows * width));
    kernels::gelu_backward(a.device(), rows * width, a.in(x), a.in(dy), a.template out<T>(rows * width));
    kernels::swiglu_forward(a.device(), rows, width, a.in(x), width, a.in(dy), width, a.template out<T>(rows * width));
    kernels::swiglu_backward(a.device(), rows, width, a.in(x), width, a.in(dy), width, a.in(x), a.template out<T>(rows * width),
                             width, a.template out<T>(rows * width), width);
  });
  const auto targets = whole_numbers(rows, 300, 9);
  compare<T>("cross-entropy, in place", [&](auto& a) {
    T* gradient = a.template out<T>(rows * width);
    kernels::cast<T, T>(a.device(), rows * width, a.in(x), gradient);
    const std::int32_t* wanted = a.in(targets);
    A *max = a.template out<A>(rows), *sums = a.template out<A>(rows), *target = a.template out<A>(rows);
    kernels::row_max(a.device(), rows, width, std::size_t(300), gradient, max);
    kernels::softmax_sums(a.device(), rows, width, std::size_t(300), gradient, max, wanted, 0, sums, target);
    kernels::cross_entropy_finish(a.device(), rows, width, std::size_t(300), gradient, max, sums, target, wanted, 0,
                                  a.template out<double>(1), gradient);
  });
  const auto ids = whole_numbers(rows, 20, 10);
  compare<T>("embedding", [&](auto& a) {
    kernels::embedding_forward(a.device(), rows, width, a.in(ids), a.in(x), 3, 12, a.template out<T>(rows * width));
    A* table = a.template out<A>(12 * width);
    kernels::fill<A>(a.device(), 12 * width, table, A(0));
    kernels::embedding_backward(a.device(), rows, width, a.in(ids), a.in(dy), 3, 12, table);
  });
  compare<T>("rotary positions", [&](auto& a) {
    kernels::rope(a.device(), rows, 6, 64, a.in(x), width, a.template out<T>(rows * width), width,
                  a.in(whole_numbers(rows, 2000, 11)), 10000.0, false);
  });
  compare<T>("dropout", [&](auto& a) {
    kernels::dropout(a.device(), rows, width, a.in(x), a.template out<T>(rows * width), 0.3, 77, 5, 0, width, a.in(dy));
  });
  compare<T>("initial weights", [&](auto& a) {
    kernels::initialise_normal(a.device(), rows, width, a.template out<T>(rows * width), 5, 2, 0, width, 0.0, 0.02);
  });
  const auto gradient = normal<A>(rows * width, 12);
  compare<T>("AdamW and norms of gradients", [&](auto& a) {
    T* parameter = a.template out<T>(rows * width);
    kernels::cast<T, T>(a.device(), rows * width, a.in(x), parameter);
    A *m = a.in(std::vector<A>(rows * width)), *v = a.in(std::vector<A>(rows * width));
    kernels::adamw_update(a.device(), rows * width, parameter, static_cast<A*>(nullptr), a.in(gradient), m, v, {});
    kernels::squared_norm(a.device(), rows * width, a.in(gradient), a.template out<double>(1));
  });
  compare<T>("updates, norms and exact norms of many parameters at once", [&](auto& a) {
    using Exec = typename std::remove_cvref_t<decltype(a.device())>::execution_space;
    using Arrays = kernels::UpdateArrays<T, A, 2>;
    std::vector<Arrays> all;
    std::vector<kernels::NormPart<A>> parts;
    std::vector<kernels::ExactPart<A>> exact;
    for (const std::size_t n : {std::size_t(1), std::size_t(33), std::size_t(4097), rows * width}) {
      T* parameter = a.template out<T>(n);
      kernels::cast<T, T>(a.device(), n, a.in(x), parameter);
      A* master = nullptr;
      if constexpr (!std::is_same_v<T, A>) kernels::cast<T, A>(a.device(), n, parameter, master = a.template out<A>(n));
      const A* g = a.in(gradient);
      all.push_back({n, parameter, master, g, {a.in(std::vector<A>(n)), a.in(std::vector<A>(n))}});
      parts.push_back({g, n});
      exact.push_back({g, n, n % 32, exact.size() % 2});
    }
    double* const squares = a.template out<double>(parts.size());
    kernels::squared_norms<A>(a.device(), parts, squares);
    const kernels::AdamwElement<A> element{kernels::AdamwOptions()};
    const kernels::GradientScale scale{.value = 0.5};
    if constexpr (detail::on_host<Exec>) {
      for (const Arrays& arrays : all) kernels::update_elements(a.device(), arrays, element, scale);
    } else {
      kernels::update_elements(a.device(), std::span<const Arrays>(all), element, scale);
      const std::vector<double> not_finite{NAN};
      kernels::update_elements(a.device(), std::span<const Arrays>(all), element, {.squares = a.in(not_finite)});  // does nothing
    }
    const Tensor<std::int64_t, Exec> words(a.device(), {2, kernels::exact_sum_words});
    kernels::clear_exact_sums(a.device(), 2, words.data());
    kernels::exact_squared_norms<A>(a.device(), exact, words.data());
    auto sums = copy_to_host(words);
    std::vector<double> values;
    for (const std::size_t sum : {0, 1})
      values.push_back(kernels::exact_value(std::span(sums).subspan(sum * kernels::exact_sum_words, kernels::exact_sum_words)));
    kernels::cast<double, double>(a.device(), 2, a.in(values), a.template out<double>(2));
  });
  const auto scores = normal<A>(rows * 8, 13);
  compare<A>("routes to experts", [&](auto& a) {
    kernels::route<A>(a.device(), rows, 8, 2, a.in(scores), nullptr, true, a.template out<A>(rows * 8), a.template out<A>(rows),
                      a.template out<std::int32_t>(rows * 2), a.template out<A>(rows * 2));
  });
}

}  // namespace

int main(int argc, char** argv) {
  const int code = run<comm::Threads>(RunOptions{.ranks = 1, .argc = argc, .argv = argv}, [](World& world) {
    Device<Kokkos::DefaultHostExecutionSpace> reference;
    the_gpu = &world.device();
    the_host = &reference;
    cases<float>();
    cases<double>();
    cases<bfloat16>();
    cases<float16>();
    for (const auto bits : {cudnn::Bits::vary, cudnn::Bits::same}) {
      cudnn::use_for_attention(world.device(), bits);
      masked_attention<bfloat16>("by Kokkos, since cuDNN is not asked for such masks");
      for (const std::size_t kv_heads : {4, 2, 1}) {
        ring_step<bfloat16>(bits == cudnn::Bits::same ? "by cuDNN with the same bits" : "by cuDNN", kv_heads);
        ring_step<float16>(bits == cudnn::Bits::same ? "by cuDNN with the same bits" : "by cuDNN", kv_heads);
      }
      for (const std::size_t kv_heads : {4, 2})
        for (const bool causal : {true, false}) {
          attention<bfloat16>(bits == cudnn::Bits::same ? "by cuDNN with the same bits" : "by cuDNN", kv_heads, causal);
          attention<float16>(bits == cudnn::Bits::same ? "by cuDNN with the same bits" : "by cuDNN", kv_heads, causal);
        }
    }
    return failures == 0 ? 0 : 1;
  });
  std::printf("%s\n", code == 0 ? "passed" : "failed");
  return code;
}
