// SPDX-License-Identifier: Apache-2.0
#include <weft/kernels/cross_entropy.hpp>

#include <tests/kernels/support.hpp>

using namespace kernels_test;
namespace kernels = weft::kernels;

namespace {

/// A vocabulary of `valid` entries, spread over `ranks` shards whose last columns may be padding, as ranks would hold it.
template <class T>
void check(std::size_t ranks, std::size_t shard, std::size_t valid, std::size_t rows) {
  CAPTURE(ranks);
  CAPTURE(shard);
  CAPTURE(valid);
  using A = accumulate_t<T>;
  DefaultDevice device;
  std::vector<std::int32_t> targets(rows);
  for (std::size_t r = 0; r < rows; ++r) targets[r] = r % 5 == 4 ? -1 : std::int32_t(r * 13 % valid);
  std::vector<std::vector<T>> logits(ranks), gradient(ranks);
  std::vector<A> max(rows, A(-1e30)), sum(rows), target(rows);
  const auto here = [&](std::size_t rank) { return valid <= rank * shard ? 0 : std::min(shard, valid - rank * shard); };
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    logits[rank] = normal<T>(rows * shard, unsigned(rank), 4);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = here(rank); i < shard; ++i) logits[rank][r * shard + i] = to<T>(1000);  // padding must not count
    std::vector<A> m(rows);
    kernels::row_max<T>(device, rows, shard, here(rank), logits[rank].data(), m.data());
    for (std::size_t r = 0; r < rows; ++r) max[r] = std::max(max[r], m[r]);
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<A> s(rows), t(rows);
    kernels::softmax_sums<T>(device, rows, shard, here(rank), logits[rank].data(), max.data(), targets.data(),
                             std::int64_t(rank * shard), s.data(), t.data());
    for (std::size_t r = 0; r < rows; ++r) sum[r] += s[r], target[r] += t[r];
  }
  double loss = 0, reference = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    gradient[rank].assign(rows * shard, to<T>(5));
    kernels::cross_entropy_finish<T>(device, rows, shard, here(rank), logits[rank].data(), max.data(), sum.data(), target.data(),
                                     targets.data(), std::int64_t(rank * shard), &loss, gradient[rank].data());
  }
  for (std::size_t r = 0; r < rows; ++r) {
    double total = 0;
    const auto at = [&](std::size_t c) { return double(logits[c / shard][r * shard + c % shard]); };
    for (std::size_t c = 0; c < valid; ++c) total += std::exp(at(c));
    if (targets[r] >= 0) reference += std::log(total) - at(std::size_t(targets[r]));
    for (std::size_t c = 0; c < ranks * shard; ++c) {
      const double right = c >= valid || targets[r] < 0 ? 0 : std::exp(at(c)) / total - (std::int32_t(c) == targets[r]);
      CHECK(std::abs(double(gradient[c / shard][r * shard + c % shard]) - right) <= std::min(tolerance<T>, 4e-3));
    }
  }
  CHECK(std::abs(loss - reference) <= (std::is_same_v<T, double> ? 1e-12 : 1e-6) * reference);
}

}  // namespace

TEST_CASE_TEMPLATE("cross-entropy over a vocabulary in one piece and in several, padded or not", T, float, double, bfloat16) {
  check<T>(1, 61, 61, 23);
  check<T>(1, 64, 61, 23);
  check<T>(2, 32, 50, 23);
  check<T>(4, 16, 33, 23);  // the last shard is only padding
}

TEST_CASE("the loss alone needs no gradient, large logits do not overflow, and the gradient may replace the logits") {
  DefaultDevice device;
  std::vector<float> logits{3e38f, 1, 2, -3e38f};
  const std::vector<std::int32_t> targets{0};
  std::vector<float> max(1), sum(1), target(1);
  double loss = -1;
  kernels::row_max<float>(device, 1, 4, 4, logits.data(), max.data());
  kernels::softmax_sums<float>(device, 1, 4, 4, logits.data(), max.data(), targets.data(), 0, sum.data(), target.data());
  kernels::cross_entropy_finish<float>(device, 1, 4, 4, logits.data(), max.data(), sum.data(), target.data(), targets.data(), 0,
                                       &loss, static_cast<float*>(nullptr));
  CHECK(loss == 0);
  kernels::cross_entropy_finish<float>(device, 1, 4, 4, logits.data(), max.data(), sum.data(), target.data(), targets.data(), 0,
                                       nullptr, logits.data());
  CHECK(logits == std::vector<float>{0, 0, 0, 0});
}

TEST_CASE("a logit that is not a number makes the loss none") {
  DefaultDevice device;
  for (const std::size_t at : {0, 5, 17}) {
    std::vector<float> logits(19, 1.f), max(1), sum(1), target(1);
    logits[at] = NAN;
    const std::vector<std::int32_t> targets{2};
    double loss = 0;
    kernels::row_max<float>(device, 1, 19, 19, logits.data(), max.data());
    kernels::softmax_sums<float>(device, 1, 19, 19, logits.data(), max.data(), targets.data(), 0, sum.data(), target.data());
    kernels::cross_entropy_finish<float>(device, 1, 19, 19, logits.data(), max.data(), sum.data(), target.data(), targets.data(),
                                         0, &loss, static_cast<float*>(nullptr));
    CHECK(std::isnan(loss));
  }
}
