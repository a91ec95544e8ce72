// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/cudnn/use.hpp
// The path from a device's attention to cuDNN's, over a test double of cudnn::Attention that follows its doc comments with
// plain loops: the calls that it receives, and the uses of its results. The surrounding kernels run on the host.
#include <Kokkos_Core.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include <weft/device/parallel_for.hpp>

template <>
inline constexpr bool weft::detail::on_host<Kokkos::DefaultExecutionSpace> = false;

#include "kernels/support.hpp"
#include "support/temporary_folder.hpp"

#include <weft/kernels/attention.hpp>
#include <weft/kernels/cudnn/use.hpp>

using namespace kernels_test;
namespace kernels = weft::kernels;
namespace cudnn = weft::cudnn;

namespace {

/// The last call, and the number of calls of either direction.
struct Asked {
  int forwards = 0, backwards = 0;
  cudnn::AttentionKey last = {};
};
Asked asked;

/// A number of one of cuDNN's types.
double read(cudnnDataType_t type, const void* from, std::size_t i) {
  return type == CUDNN_DATA_FLOAT ? double(static_cast<const float*>(from)[i]) : double(static_cast<const bfloat16*>(from)[i]);
}
void write(cudnnDataType_t type, void* to, std::size_t i, double value) {
  if (type == CUDNN_DATA_FLOAT) static_cast<float*>(to)[i] = float(value);
  else static_cast<bfloat16*>(to)[i] = bfloat16(float(value));
}

class Double {
 public:
  static constexpr std::size_t npos = std::size_t(-1);
  explicit Double(bool) {}
  std::size_t forward_workspace(const cudnn::AttentionKey&) { return 16; }
  std::size_t backward_workspace(const cudnn::AttentionKey&) { return 16; }

  void forward(const cudnn::AttentionKey& key, const void* q, const void* k, const void* v, void* out, float* lse, void*,
               cudaStream_t) {
    ++asked.forwards, asked.last = key;
    each_row(key, [&](std::size_t s, std::size_t h, std::size_t i, std::size_t end) {
      std::vector<double> powers(end);
      double sum = 0;
      for (std::size_t j = 0; j < end; ++j) sum += powers[j] = std::exp(score(key, q, k, s, h, i, j));
      for (std::size_t d = 0; d < key.head_width; ++d) {
        double value = 0;
        for (std::size_t j = 0; j < end; ++j)
          value += powers[j] / sum * read(key.type, v, of_key(key, key.strides.v, s, h, j) + d);
        write(key.out_type, out, of_query(key, key.strides.out, s, h, i) + d, value);
      }
      lse[(s * key.heads + h) * key.statistic_step + i] = float(std::log(sum));
    });
  }
  void backward(const cudnn::AttentionKey& key, const void* q, const void* k, const void* v, const void* out, const void* d_out,
                const float* lse, void* dq, void* dk, void* dv, void*, cudaStream_t) {
    ++asked.backwards, asked.last = key;
    const std::size_t heads = key.splits_groups() ? key.heads : key.kv_heads, group = key.heads / heads, width = key.head_width;
    // [sequences, keys, heads, head_width]
    std::vector<double> all_dk(key.sequences * key.keys * heads * width), all_dv(all_dk.size());
    each_row(key, [&](std::size_t s, std::size_t h, std::size_t i, std::size_t end) {
      const std::size_t row = of_query(key, key.strides.out, s, h, i), d_row = of_query(key, key.strides.d_out, s, h, i);
      std::vector<double> d_query(width);
      double delta = 0;
      for (std::size_t d = 0; d < width; ++d) delta += read(key.type, out, row + d) * read(key.type, d_out, d_row + d);
      for (std::size_t j = 0; j < end; ++j) {
        const double p = std::exp(score(key, q, k, s, h, i, j) - double(lse[(s * key.heads + h) * key.statistic_step + i]));
        double dp = 0;
        for (std::size_t d = 0; d < width; ++d)
          dp += read(key.type, d_out, d_row + d) * read(key.type, v, of_key(key, key.strides.v, s, h, j) + d);
        const double d_score = p * (dp - delta) / std::sqrt(double(width));
        const std::size_t to = ((s * key.keys + j) * heads + h / group) * width;
        for (std::size_t d = 0; d < width; ++d) {
          d_query[d] += d_score * read(key.type, k, of_key(key, key.strides.k, s, h, j) + d);
          all_dk[to + d] += d_score * read(key.type, q, of_query(key, key.strides.q, s, h, i) + d);
          all_dv[to + d] += p * read(key.type, d_out, d_row + d);
        }
      }
      for (std::size_t d = 0; d < width; ++d) write(key.out_type, dq, of_query(key, key.strides.dq, s, h, i) + d, d_query[d]);
    });
    for (std::size_t i = 0; i < all_dk.size(); ++i) {
      const std::size_t column = i % (heads * width), key_row = i / (heads * width);
      const auto place = [&](std::size_t stride) {
        return key.splits_groups() ? i : (key_row / key.keys * key.key_step + key_row % key.keys) * stride + column;
      };
      write(key.out_type, dk, place(key.strides.dk), all_dk[i]);
      write(key.out_type, dv, place(key.strides.dv), all_dv[i]);
    }
  }

 private:
  static std::size_t of_query(const cudnn::AttentionKey& key, std::size_t stride, std::size_t s, std::size_t h, std::size_t i) {
    return (s * key.query_step + i) * stride + h * key.head_width;
  }
  static std::size_t of_key(const cudnn::AttentionKey& key, std::size_t stride, std::size_t s, std::size_t h, std::size_t j) {
    return (s * key.key_step + j) * stride + h / (key.heads / key.kv_heads) * key.head_width;
  }
  static double score(const cudnn::AttentionKey& key, const void* q, const void* k, std::size_t s, std::size_t h, std::size_t i,
                      std::size_t j) {
    double sum = 0;
    for (std::size_t d = 0; d < key.head_width; ++d)
      sum += read(key.type, q, of_query(key, key.strides.q, s, h, i) + d) *
             read(key.type, k, of_key(key, key.strides.k, s, h, j) + d);
    return sum / std::sqrt(double(key.head_width));
  }
  template <class F>
  static void each_row(const cudnn::AttentionKey& key, const F& f) {
    for (std::size_t s = 0; s < key.sequences; ++s)
      for (std::size_t h = 0; h < key.heads; ++h)
        for (std::size_t i = 0; i < key.queries; ++i) f(s, h, i, key.causal ? i + 1 : key.keys);
  }
};

using Library = cudnn::detail::DeviceAttention<Kokkos::DefaultExecutionSpace, Double>;

/// Values at an address that cuDNN accepts, or `off` bytes after one.
template <class T>
struct Aligned {
  std::vector<T> memory;
  std::size_t first;
  explicit Aligned(const std::vector<T>& values, std::size_t off = 0) : memory(values.size() + 64 / sizeof(T)) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    first = ((address + 15) / 16 * 16 - address + off) / sizeof(T);
    std::copy(values.begin(), values.end(), data());
    size = values.size();
  }
  std::size_t size = 0;
  T* data() { return memory.data() + first; }
  std::vector<T> values() { return std::vector<T>(data(), data() + size); }
};

constexpr std::size_t sequences = 2, length = 12, heads = 6, head = 8, width = heads * head;

/// A ring's step: the first of the queries and the numbers of queries and keys.
struct Step {
  std::size_t first, queries, keys;
  bool causal;
};

/// Output, log-sum-exp and gradients of a ring's step with float results, by the device's library or, without one, by loops.
template <class R>
std::vector<std::vector<double>> step_of(DefaultDevice& device, std::size_t kv_heads, const Step& step) {
  const std::size_t kv = kv_heads * head;
  Aligned<bfloat16> q(normal<bfloat16>(sequences * length * width, 1)), keys(normal<bfloat16>(sequences * length * 2 * kv, 2)),
      d_out(normal<bfloat16>(sequences * length * width, 3)), out(std::vector<bfloat16>(sequences * length * width));
  Aligned<R> wide(std::vector<R>(sequences * length * width)), dq(std::vector<R>(sequences * length * width)),
      d_keys(std::vector<R>(sequences * length * 2 * kv, R(7)));
  Aligned<float> lse(std::vector<float>(sequences * heads * length));
  const kernels::AttentionBlock block{.sequences = sequences,
                                      .queries = step.queries,
                                      .keys = step.keys,
                                      .query_step = length,
                                      .key_step = length,
                                      .statistic_step = length,
                                      .heads = heads,
                                      .kv_heads = kv_heads,
                                      .head_width = head,
                                      .causal = step.causal};
  const kernels::AttentionOperands<const bfloat16> in{.q = q.data() + step.first * width,
                                                      .k = keys.data(),
                                                      .v = keys.data() + kv,
                                                      .q_stride = width,
                                                      .k_stride = 2 * kv,
                                                      .v_stride = 2 * kv};
  kernels::attention_block_forward<bfloat16>(device, block, in, kernels::StridedRows{wide.data() + step.first * width, width},
                                             lse.data() + step.first);
  std::transform(wide.data(), wide.data() + wide.size, out.data(), [](R x) { return bfloat16(float(x)); });
  kernels::attention_block_backward<bfloat16>(device, block, in, {out.data() + step.first * width, width},
                                              {d_out.data() + step.first * width, width}, lse.data() + step.first,
                                              kernels::AttentionOperands<R>{.q = dq.data() + step.first * width,
                                                                            .k = d_keys.data(),
                                                                            .v = d_keys.data() + kv,
                                                                            .q_stride = width,
                                                                            .k_stride = 2 * kv,
                                                                            .v_stride = 2 * kv});
  return {widen(wide.values()), widen(lse.values()), widen(dq.values()), widen(d_keys.values())};
}

}  // namespace

TEST_CASE_TEMPLATE("steps of a ring with grouped heads are the library's, forward and backward", R, float, bfloat16) {
  DefaultDevice by_library, by_loops;
  auto& fused = by_library.cache<kernels::detail::FusedAttention>();
  fused.library = std::make_shared<Library>(by_library, nullptr, cudnn::Bits::vary);
  // Steps of a ring: with a rank's own keys, all queries with the first half of the keys, the second half of the queries with all
  // keys. Statistics of a half begin at a multiple of 16 bytes only if the half has 4 rows.
  for (const std::size_t kv_heads : {6, 3, 2, 1})
    for (const Step& step : {Step{0, 12, 12, true}, Step{0, 12, 6, false}, Step{4, 8, 12, false}}) {
      asked = {};
      const auto got = step_of<R>(by_library, kv_heads, step), want = step_of<R>(by_loops, kv_heads, step);
      CHECK((asked.forwards == 1 && asked.backwards == 1));
      CHECK((asked.last.heads == heads && asked.last.kv_heads == kv_heads));  // keys are not repeated for their query heads
      CHECK(asked.last.splits_groups() == (kv_heads != heads && std::is_same_v<R, float>));
      CHECK_FALSE(fused.told);
      for (std::size_t i = 0; i < want.size(); ++i)
        CHECK(difference(got[i], want[i]) <= (std::is_same_v<R, float> ? 1e-5 : 2e-2));
    }
}

TEST_CASE("calls that cuDNN does not support go elsewhere, with one notice") {
  const weft_test::TemporaryFolder folder;
  // The standard error output of f.
  const auto said = [&](const auto& f) {
    const std::string path = (folder.path / "said").string();
    const int kept = dup(2), file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(file, 2);
    f();
    dup2(kept, 2);
    close(kept), close(file);
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  // Attention of 4 tokens, forward and backward, twice. Rows of keys are `key_stride` values apart, all others 16.
  const auto run = [&]<class T>(T, std::size_t head_width, std::size_t off, std::size_t key_stride,
                                const weft::AttentionMask& mask) {
    constexpr std::size_t stride = 16;
    DefaultDevice device;
    device.cache<kernels::detail::FusedAttention>().library = std::make_shared<Library>(device, nullptr, cudnn::Bits::vary);
    Aligned<T> q(normal<T>(4 * stride, 1)), k(normal<T>(4 * key_stride, 2)), out(std::vector<T>(4 * stride)),
        dq(std::vector<T>(4 * stride)), dk(std::vector<T>(4 * key_stride)), dv(std::vector<T>(4 * key_stride));
    Aligned<float> lse(std::vector<float>(8), off);
    const kernels::AttentionOperands<const T> in{q.data(), k.data(), k.data(), stride, key_stride, key_stride};
    const kernels::AttentionExtents extents{.length = 4, .head_width = head_width};
    asked = {};
    return said([&] {
      for (int i = 0; i < 2; ++i) {
        kernels::attention_forward<T>(device, extents, in, {out.data(), stride}, lse.data(), mask);
        kernels::attention_backward<T>(device, extents, in, {out.data(), stride}, {q.data(), stride}, lse.data(),
                                       {dq.data(), dk.data(), dv.data(), stride, key_stride, key_stride}, mask);
      }
    });
  };
  const auto refused = [&](const std::string& text) {
    CHECK((asked.forwards == 0 && asked.backwards == 0));
    CHECK(std::count(text.begin(), text.end(), '\n') == 1);
    return text.starts_with("weft: attention in ") && text.find("many times slower") != text.npos;
  };
  CHECK(run(bfloat16(), 8, 0, 8, {}) == "");
  CHECK((asked.forwards == 2 && asked.backwards == 2));
  CHECK(refused(run(bfloat16(), 12, 0, 16, {})));           // heads of a width that 8 does not divide
  CHECK(refused(run(bfloat16(), 8, 4, 8, {})));             // statistics of the half of a sequence whose half no multiple of 4 is
  CHECK(refused(run(bfloat16(), 8, 0, 12, {})));            // rows of 24 bytes
  CHECK(refused(run(float(), 8, 0, 8, {})));                // another type
  CHECK(refused(run(bfloat16(), 8, 0, 8, {.window = 2})));  // another mask
}
