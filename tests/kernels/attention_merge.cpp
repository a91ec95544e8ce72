// SPDX-License-Identifier: Apache-2.0
// Attention in blocks of keys, merged by their log-sum-exp, equals the attention over all keys; gradients of blocks add up to its
// gradients; blocks without visible keys change nothing.

#include <weft/kernels/attention_merge.hpp>

#include <limits>

#include <tests/kernels/support.hpp>

using namespace kernels_test;

namespace {

constexpr std::size_t sequences = 2, length = 96, heads = 4, kv_heads = 2, head_width = 24;
constexpr std::size_t width = heads * head_width, kv_width = kv_heads * head_width, rows = sequences * length;

// The second half of each sequence's queries, causal among themselves, after the first half of the keys, all of which they can
// use.
template <class T>
void check_blocks() {
  using A = accumulate_t<T>;
  DefaultDevice device;
  const auto q = normal<T>(rows * width, 1), k = normal<T>(rows * kv_width, 2), v = normal<T>(rows * kv_width, 3),
             d_out = normal<T>(rows * width, 4);
  std::vector<T> out(rows * width), dq(rows * width), dk(rows * kv_width), dv(rows * kv_width);
  std::vector<A> lse(sequences * heads * length);
  const weft::kernels::AttentionExtents extents{
      .sequences = sequences, .length = length, .heads = heads, .kv_heads = kv_heads, .head_width = head_width};
  // From a query and a key on.
  const auto from = [](auto& of_q, auto& of_k, auto& of_v, std::size_t query, std::size_t key) {
    return weft::kernels::AttentionOperands<std::remove_pointer_t<decltype(of_q.data())>>{.q = of_q.data() + query * width,
                                                                                          .k = of_k.data() + key * kv_width,
                                                                                          .v = of_v.data() + key * kv_width,
                                                                                          .q_stride = width,
                                                                                          .k_stride = kv_width,
                                                                                          .v_stride = kv_width};
  };
  weft::kernels::attention_forward<T>(device, extents, from(q, k, v, 0, 0), {out.data(), width}, lse.data());
  weft::kernels::attention_backward<T>(device, extents, from(q, k, v, 0, 0), {out.data(), width}, {d_out.data(), width},
                                       lse.data(), from(dq, dk, dv, 0, 0));

  constexpr std::size_t half = length / 2;
  const weft::kernels::AttentionBlock early{.sequences = sequences,
                                            .queries = half,
                                            .keys = half,
                                            .query_step = length,
                                            .key_step = length,
                                            .statistic_step = length,
                                            .heads = heads,
                                            .kv_heads = kv_heads,
                                            .head_width = head_width};
  weft::kernels::AttentionBlock own = early;
  own.causal = true;
  std::vector<A> whole(rows * width), part(rows * width), whole_lse(lse.size()), part_lse(lse.size());
  const auto forward = [&](const weft::kernels::AttentionBlock& block, std::size_t query, std::size_t key, std::vector<A>& to,
                           std::vector<A>& statistic) {
    weft::kernels::attention_block_forward<T, A>(device, block, from(q, k, v, query, key), {to.data() + query * width, width},
                                                 statistic.data() + query);
  };
  forward(own, 0, 0, whole, whole_lse);       // the first half alone
  forward(early, half, 0, whole, whole_lse);  // the second half uses the first half's keys
  forward(own, half, half, part, part_lse);
  const auto merge = [&] {
    weft::kernels::merge_attention<A>(device, early, part.data() + half * width, part_lse.data() + half,
                                      {whole.data() + half * width, width}, whole_lse.data() + half);
  };
  merge();
  check_close(whole, widen(out), std::is_same_v<T, weft::bfloat16> ? 1e4 : 4);
  check_close(whole_lse, widen(lse), 4);

  std::vector<A> dq_sum(rows * width), dk_sum(rows * kv_width), dv_sum(rows * kv_width);
  const auto backward = [&](const weft::kernels::AttentionBlock& block, std::size_t query, std::size_t key) {
    std::vector<A> dq_part(rows * width), dk_part(rows * kv_width), dv_part(rows * kv_width);
    weft::kernels::attention_block_backward<T, A>(device, block, from(q, k, v, query, key), {out.data() + query * width, width},
                                                  {d_out.data() + query * width, width}, lse.data() + query,
                                                  from(dq_part, dk_part, dv_part, query, key));
    const auto add = [](std::vector<A>& to, const std::vector<A>& from) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    };
    add(dq_sum, dq_part), add(dk_sum, dk_part), add(dv_sum, dv_part);
  };
  backward(own, 0, 0), backward(early, half, 0), backward(own, half, half);
  const double factor = std::is_same_v<T, weft::bfloat16> ? 1e4 : 8;
  check_close(dq_sum, widen(dq), factor), check_close(dk_sum, widen(dk), factor), check_close(dv_sum, widen(dv), factor);

  // A block without visible keys has no weight, whatever its values.
  const auto before = whole;
  const auto before_lse = whole_lse;
  std::fill(part.begin(), part.end(), std::numeric_limits<A>::quiet_NaN());
  std::fill(part_lse.begin(), part_lse.end(), -std::numeric_limits<A>::infinity());
  merge();
  CHECK(whole == before);
  CHECK(whole_lse == before_lse);
  // No earlier keys: only the part counts; and no keys on either side stay none.
  std::vector<A> nothing(rows * width, std::numeric_limits<A>::quiet_NaN()),
      nothing_lse(lse.size(), -std::numeric_limits<A>::infinity());
  const weft::kernels::AttentionBlock all{
      .sequences = sequences, .queries = length, .keys = length, .heads = heads, .kv_heads = kv_heads, .head_width = head_width};
  weft::kernels::merge_attention<A>(device, all, before.data(), before_lse.data(), {nothing.data(), width}, nothing_lse.data());
  CHECK(nothing == before);
  CHECK(nothing_lse == before_lse);
  std::vector<A> unseen(rows * width, A(0)), unseen_lse(lse.size(), -std::numeric_limits<A>::infinity());
  weft::kernels::merge_attention<A>(device, all, before.data(), unseen_lse.data(), {unseen.data(), width}, unseen_lse.data());
  CHECK(unseen == std::vector<A>(rows * width, A(0)));
  CHECK(unseen_lse[5] == -std::numeric_limits<A>::infinity());
}

}  // namespace

TEST_CASE("blocks in double") { check_blocks<double>(); }
TEST_CASE("blocks in float") { check_blocks<float>(); }
TEST_CASE("blocks in bfloat16") { check_blocks<weft::bfloat16>(); }
