// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/attention_mask_gradient.hpp weft/kernels/detail/attention_hidden.hpp
// Attention under every mask compared with the textbook's formulas over an explicit matrix of visible keys: by tiles and by rows,
// forward and backward, and gradients by finite differences, including those of numbers added to the scores. A mask that hides no
// more than causal gives causal's bits.
#include <weft/kernels/attention.hpp>
#include <weft/kernels/attention_mask.hpp>
#include <weft/kernels/attention_mask_gradient.hpp>
#include <weft/kernels/detail/attention_hidden.hpp>

#include <tests/kernels/support.hpp>

using namespace kernels_test;
namespace kernels = weft::kernels;

namespace {

template <class T>
struct Case {
  std::size_t sequences, length, heads, kv_heads, head_width;
  weft::AttentionMask mask = {};
  std::vector<std::int32_t> documents = {};
  std::vector<std::uint8_t> visible = {};
  std::vector<accumulate_t<T>> added = {};
  std::size_t sequence_step = 0, head_step = 0, query_step = 0, group = 1, member_step = 0;
  std::size_t rows = sequences * length, width = heads * head_width, kv_width = kv_heads * head_width,
              stride = width + 2 * kv_width;
  std::vector<T> fused = normal<T>(rows * stride, 1, 1.3), d_out = normal<T>(rows * width, 2), out = std::vector<T>(rows * width);
  std::vector<T> d_fused = std::vector<T>(rows * stride);
  std::vector<accumulate_t<T>> d_added = {};
  std::vector<accumulate_t<T>> lse = std::vector<accumulate_t<T>>(sequences * heads * length);

  kernels::AttentionExtents extents() const {
    return {.sequences = sequences, .length = length, .heads = heads, .kv_heads = kv_heads, .head_width = head_width};
  }
  kernels::MaskArrays<accumulate_t<T>> arrays() const {
    return {.documents = documents.empty() ? nullptr : documents.data(),
            .visible = visible.empty() ? nullptr : visible.data(),
            .added = added.empty() ? nullptr : added.data(),
            .sequence_step = sequence_step,
            .head_step = head_step,
            .query_step = query_step,
            .group = group,
            .member_step = member_step};
  }
  template <class U>
  kernels::AttentionOperands<U> operands(U* of) const {
    return {.q = of, .k = of + width, .v = of + width + kv_width, .q_stride = stride, .k_stride = stride, .v_stride = stride};
  }
  void forward(DefaultDevice& device) {
    kernels::attention_forward<T>(device, extents(), operands<const T>(fused.data()), {out.data(), width}, lse.data(), mask,
                                  arrays());
  }
  void backward(DefaultDevice& device) {
    kernels::attention_backward<T>(device, extents(), operands<const T>(fused.data()), {out.data(), width}, {d_out.data(), width},
                                   lse.data(), operands(d_fused.data()), mask, arrays());
    if (added.empty()) return;
    d_added.assign(added.size(), NAN);
    kernels::attention_mask_gradient<T>(device, extents(), operands<const T>(fused.data()), {out.data(), width},
                                        {d_out.data(), width}, lse.data(), d_added.data(), mask, arrays());
  }
  // On other spaces than the host.
  void by_rows(DefaultDevice& device) {
    weft::detail::Buffer memory;
    const auto shape =
        kernels::detail::masked_shape(device, kernels::detail::AttentionShape(extents(), mask.causal), mask, arrays(), memory);
    const auto in = operands<const T>(fused.data());
    kernels::detail::attention_rows_forward<T, T>(device, shape, in, {out.data(), width}, lse.data());
    kernels::detail::attention_rows_backward<T, T>(device, shape, in, {out.data(), width}, {d_out.data(), width}, lse.data(),
                                                   operands(d_fused.data()));
  }
  std::size_t place(std::size_t s, std::size_t h, std::size_t i, std::size_t j) const {
    return s / group * sequence_step + s % group * member_step + h * head_step + i * query_step + j;
  }
  /// The number added to a score: -infinity if the key is hidden.
  double term(std::size_t s, std::size_t h, std::size_t i, std::size_t j) const {
    const double lowest = -INFINITY;
    if (mask.causal && j > i) return lowest;
    if (mask.window != 0 && (i > j ? i - j : j - i) >= mask.window) return lowest;
    if (!documents.empty() && documents[s * length + i] != documents[s * length + j]) return lowest;
    if (!visible.empty() && visible[place(s, h, i, j)] == 0) return lowest;
    return added.empty() ? 0 : double(added[place(s, h, i, j)]);
  }
};

struct Expected {
  std::vector<double> out, lse, d_fused, d_added;
};
template <class T>
Expected reference(const Case<T>& c) {
  Expected e{std::vector<double>(c.out.size()), std::vector<double>(c.lse.size()), std::vector<double>(c.d_fused.size()),
             std::vector<double>(c.added.size())};
  const double scale = 1 / std::sqrt(double(c.head_width));
  for (std::size_t s = 0; s < c.sequences; ++s)
    for (std::size_t h = 0; h < c.heads; ++h) {
      const std::size_t kv = h / (c.heads / c.kv_heads);
      const auto q_at = [&](std::size_t i) { return (s * c.length + i) * c.stride + h * c.head_width; };
      const auto k_at = [&](std::size_t j) { return (s * c.length + j) * c.stride + c.width + kv * c.head_width; };
      const auto v_at = [&](std::size_t j) { return k_at(j) + c.kv_width; };
      for (std::size_t i = 0; i < c.length; ++i) {
        const std::size_t o_at = (s * c.length + i) * c.width + h * c.head_width;
        std::vector<double> p(c.length), dp(c.length);
        double sum = 0, mean = 0, top = -INFINITY;
        for (std::size_t j = 0; j < c.length; ++j) {
          for (std::size_t d = 0; d < c.head_width; ++d) {
            p[j] += scale * double(c.fused[q_at(i) + d]) * double(c.fused[k_at(j) + d]);
            dp[j] += double(c.d_out[o_at + d]) * double(c.fused[v_at(j) + d]);
          }
          top = std::max(top, p[j] += c.term(s, h, i, j));
        }
        e.lse[(s * c.heads + h) * c.length + i] = top;
        if (std::isinf(top)) continue;
        for (double& value : p) sum += value = std::exp(value - top);
        e.lse[(s * c.heads + h) * c.length + i] += std::log(sum);
        for (std::size_t j = 0; j < c.length; ++j) mean += (p[j] /= sum) * dp[j];
        for (std::size_t j = 0; j < c.length && !c.added.empty(); ++j) e.d_added[c.place(s, h, i, j)] += p[j] * (dp[j] - mean);
        for (std::size_t j = 0; j < c.length; ++j)
          for (std::size_t d = 0; d < c.head_width; ++d) {
            const double ds = scale * p[j] * (dp[j] - mean);
            e.out[o_at + d] += p[j] * double(c.fused[v_at(j) + d]);
            e.d_fused[v_at(j) + d] += p[j] * double(c.d_out[o_at + d]);
            e.d_fused[q_at(i) + d] += ds * double(c.fused[k_at(j) + d]);
            e.d_fused[k_at(j) + d] += ds * double(c.fused[q_at(i) + d]);
          }
      }
    }
  return e;
}

template <class T>
void compare(const Case<T>& c, const Expected& expected) {
  check_close(c.out, expected.out);
  for (std::size_t i = 0; i < c.lse.size(); ++i) {
    if (std::isinf(expected.lse[i])) {
      CHECK(double(c.lse[i]) == expected.lse[i]);
      continue;
    }
    const double bound = (std::is_same_v<T, double> ? 1e-12 : 2e-5) * std::max(1.0, std::abs(expected.lse[i]));
    CHECK(std::abs(double(c.lse[i]) - expected.lse[i]) <= bound);
  }
  check_close(c.d_fused, expected.d_fused);
  if (!c.d_added.empty()) CHECK(difference(c.d_added, expected.d_added) <= tolerance<T>);  // the output is rounded to T
}

template <class T>
void check(const Case<T>& c) {
  INFO("length " << c.length << ", heads " << c.heads << " / " << c.kv_heads << ", causal " << c.mask.causal << ", window "
                 << c.mask.window << ", documents " << !c.documents.empty() << ", arrays " << c.visible.size() << " "
                 << c.added.size());
  Devices devices;
  const Expected expected = reference(c);
  Case<T> tiles = c, again = c, rows = c;
  tiles.forward(devices.one);
  tiles.backward(devices.one);
  compare(tiles, expected);
  again.forward(devices.all);
  again.backward(devices.all);
  CHECK(same_bits(tiles.out, again.out));
  CHECK(same_bits(tiles.d_fused, again.d_fused));
  CHECK(same_bits(tiles.d_added, again.d_added));
  rows.by_rows(devices.one);
  compare(rows, expected);
}

/// Documents of the given lengths, in turn, until all tokens of all sequences have one; a sequence's last document ends with it.
std::vector<std::int32_t> pack(std::size_t sequences, std::size_t length, const std::vector<std::size_t>& lengths) {
  std::vector<std::int32_t> documents;
  std::size_t next = 0;
  for (std::size_t s = 0; s < sequences; ++s)
    for (std::size_t i = 0; i < length;) {
      const std::size_t count = std::min(lengths[next++ % lengths.size()], length - i);
      documents.insert(documents.end(), count, std::int32_t(3 * next));
      i += count;
    }
  return documents;
}

std::vector<std::uint8_t> coins(std::size_t n, unsigned seed, double chance) {
  std::mt19937 generator(seed);
  std::bernoulli_distribution coin(chance);
  std::vector<std::uint8_t> drawn(n);
  for (auto& value : drawn) value = coin(generator);
  return drawn;
}

}  // namespace

TEST_CASE_TEMPLATE("sliding windows, causal and symmetric, narrower and wider than blocks", T, float, double, bfloat16) {
  for (const bool causal : {true, false})
    for (const std::size_t window : {1, 3, 40, 129, 1000}) {
      check(Case<T>{1, 300, 2, 1, 16, {causal, window}});
      check(Case<T>{2, 37, 2, 2, 20, {causal, window}});
    }
}

TEST_CASE_TEMPLATE("packed documents, under every pattern", T, float, double, bfloat16) {
  for (const bool causal : {true, false})
    for (const std::size_t window : {0, 20}) {
      check(Case<T>{2, 300, 2, 1, 16, {causal, window}, pack(2, 300, {5, 130, 1, 70, 64, 300, 7})});
      check(Case<T>{3, 33, 2, 2, 24, {causal, window}, pack(3, 33, {33, 1, 1, 31})});
    }
}

TEST_CASE_TEMPLATE("keys that are padding, and booleans for each query, head and sequence", T, float, double, bfloat16) {
  for (const bool causal : {true, false}) {
    Case<T> padded{2, 150, 2, 1, 16, {causal}};
    padded.visible.assign(2 * 150, 1);
    std::fill(padded.visible.begin() + 90, padded.visible.begin() + 150, 0);
    std::fill(padded.visible.begin() + 150, padded.visible.begin() + 190, 0);  // at the left: causal queries without keys
    padded.sequence_step = 150;
    check(padded);
    Case<T> drawn{2, 70, 4, 2, 16, {causal}};
    drawn.visible = coins(2 * 4 * 70 * 70, 3, 0.3);
    std::fill(drawn.visible.begin() + 70 * 24, drawn.visible.begin() + 70 * 40, 0);  // tiles without visible keys
    drawn.sequence_step = 4 * 70 * 70, drawn.head_step = 70 * 70, drawn.query_step = 70;
    check(drawn);
    drawn.documents = pack(2, 70, {20, 40, 9});
    check(drawn);
  }
  Case<T> none{1, 140, 1, 1, 16, {.causal = false}};
  none.visible.assign(140, 0);
  check(none);
}

TEST_CASE_TEMPLATE("numbers added to the scores", T, float, double, bfloat16) {
  Case<T> c{2, 150, 2, 2, 16, {.causal = true, .window = 90}};
  c.added = normal<accumulate_t<T>>(2 * 150 * 150, 5);
  for (std::size_t i = 0; i < c.added.size(); i += 7) c.added[i] = -std::numeric_limits<accumulate_t<T>>::infinity();
  c.head_step = 150 * 150, c.query_step = 150;
  check(c);
  c.mask = {.causal = false}, c.visible = coins(c.added.size(), 6, 0.5);
  check(c);
}

TEST_CASE_TEMPLATE("numbers that groups, their members, heads or queries share", T, float, double, bfloat16) {
  const std::size_t sequences = 6, length = 19, heads = 4;
  for (const std::size_t group : {1, 2})
    for (int shared = 0; shared < 16; ++shared) {
      Case<T> c{sequences, length, heads, 2, 10, {.causal = shared % 3 == 0}};
      c.group = group;
      std::size_t step = length;
      const auto of = [&](int bit, std::size_t extent) {
        if (shared & bit) return std::size_t(0);
        return std::exchange(step, step * extent);
      };
      c.query_step = of(1, length), c.head_step = of(2, heads), c.member_step = of(4, group);
      c.sequence_step = of(8, sequences / group);
      c.added = normal<accumulate_t<T>>(step, 7);
      c.added[3] = -std::numeric_limits<accumulate_t<T>>::infinity();
      check(c);
    }
}

TEST_CASE("scores far below zero of keys behind the first block") {
  Case<double> c{1, 600, 1, 1, 16, {.causal = true, .window = 30}};
  for (double& x : c.fused) x = std::abs(x);
  for (std::size_t row = 0; row < c.rows; ++row)
    for (std::size_t d = 0; d < c.head_width; ++d) c.fused[row * c.stride + d] *= -300;  // scores around -1000
  check(c);
}

// Loops with and without ranges of keys are compiled separately, and a compiler may contract a product and a sum in only one of
// them.
TEST_CASE_TEMPLATE("a mask that hides no more than causal, or full, gives its numbers", T, float, double, bfloat16) {
  DefaultDevice device;
  const double tolerance = std::is_same_v<T, double> ? 1e-14 : std::is_same_v<T, float> ? 2e-6 : 1.0 / 64;
  const auto near = [&](const auto& a, const auto& b) {
    double largest = 0, off = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(double(a[i])));
      off = std::max(off, std::abs(double(a[i]) - double(b[i])));
    }
    return a.size() == b.size() && off <= tolerance * largest;
  };
  for (const bool causal : {true, false}) {
    Case<T> plain{2, 301, 4, 2, 33, {causal}}, window = plain, documents = plain, arrays = plain;
    window.mask.window = 301;
    documents.documents.assign(2 * 301, 7);
    arrays.visible.assign(301, 1);
    plain.forward(device);
    plain.backward(device);
    for (Case<T>* masked : {&window, &documents, &arrays}) {
      masked->forward(device);
      masked->backward(device);
      CHECK(near(masked->out, plain.out));
      CHECK(near(masked->lse, plain.lse));
      CHECK(near(masked->d_fused, plain.d_fused));
    }
  }
}

TEST_CASE_TEMPLATE("packed documents are bitwise the documents one by one, where they begin with a tile", T, float, double) {
  DefaultDevice device;
  const std::size_t unit = 64, length = 4 * unit;  // of both loops' tiles
  Case<T> packed{1, length, 2, 1, 16};
  packed.documents = pack(1, length, {unit, 3 * unit});
  packed.forward(device);
  Case<T> first{1, unit, 2, 1, 16};
  std::copy_n(packed.fused.begin(), first.fused.size(), first.fused.begin());
  first.forward(device);
  CHECK(same_bits(first.out, std::vector<T>(packed.out.begin(), packed.out.begin() + std::ptrdiff_t(first.out.size()))));
}

TEST_CASE("gradients under masks, by finite differences") {
  DefaultDevice device;
  for (const bool causal : {true, false}) {
    Case<double> c{1, 21, 2, 1, 6, {causal, 9}, pack(1, 21, {8, 13})};
    c.added = normal<double>(21 * 21, 8), c.query_step = 21;
    c.visible = coins(21 * 21, 9, 0.8);
    c.forward(device);
    c.backward(device);
    check_gradient(c.fused, c.d_fused, [&](const std::vector<double>& x) {
      Case<double> near = c;
      near.fused = x;
      near.forward(device);
      return dot(near.out, c.d_out);
    });
    check_gradient(c.added, c.d_added, [&](const std::vector<double>& added) {
      Case<double> near = c;
      near.added = added;
      near.forward(device);
      return dot(near.out, c.d_out);
    });
  }
}

TEST_CASE("a document has no influence on another, bit for bit") {
  DefaultDevice device;
  Case<float> a{1, 100, 2, 2, 32, {}, pack(1, 100, {40, 60})}, b = a;
  for (std::size_t i = 0; i < 40 * b.stride; ++i) b.fused[i] += 3;
  a.forward(device);
  b.forward(device);
  const auto rest = [](const Case<float>& c) {
    return std::vector<float>(c.out.begin() + std::ptrdiff_t(40 * c.width), c.out.end());
  };
  CHECK(same_bits(rest(a), rest(b)));
}

TEST_CASE("ranges of keys between the parts of ranks: zig-zag queries against zig-zag keys") {
  using weft::detail::Zigzag;
  DefaultDevice device;
  const std::size_t length = 32, ranks = 4;
  const auto documents = pack(1, length, {5, 11, 2, 14});
  for (const weft::AttentionMask mask : {weft::AttentionMask{}, weft::AttentionMask{.window = 6}, weft::AttentionMask{false, 4}})
    for (std::size_t mine = 0; mine < ranks; ++mine)
      for (std::size_t theirs = 0; theirs < ranks; ++theirs) {
        const Zigzag queries{length, ranks, mine}, keys{length, ranks, theirs};
        std::vector<std::int32_t> first(queries.local()), end(queries.local());
        kernels::find_key_ranges(device, mask, documents.data(),
                                 {.queries = queries, .query_count = queries.local(), .keys = keys, .key_count = keys.local()},
                                 {first.data(), end.data()});
        for (std::size_t i = 0; i < queries.local(); ++i)
          for (std::size_t j = 0; j < keys.local(); ++j) {
            const std::size_t q = queries.position(i), k = keys.position(j);
            const bool sees = (!mask.causal || k <= q) && (mask.window == 0 || (q > k ? q - k : k - q) < mask.window) &&
                              documents[q] == documents[k];
            CHECK(sees == (first[i] <= std::int32_t(j) && std::int32_t(j) < end[i]));
          }
      }
}
