// SPDX-License-Identifier: Apache-2.0
#include <weft/kernels/embedding.hpp>

#include <tests/kernels/support.hpp>

using namespace kernels_test;

TEST_CASE_TEMPLATE("embeddings of two halves of the vocabulary add up to the whole, in both directions", T, float, double,
                   bfloat16) {
  Devices devices;
  const std::size_t vocabulary = 11, width = 37, tokens = 200;
  const auto table = normal<T>(vocabulary * width, 1), dy = normal<T>(tokens * width, 2);
  std::vector<std::int32_t> ids(tokens);
  for (std::size_t t = 0; t < tokens; ++t) ids[t] = std::int32_t(t * t * 7 % vocabulary);
  std::vector<T> whole(tokens * width), low = whole, high = whole;
  weft::kernels::embedding_forward<T>(devices.all, tokens, width, ids.data(), table.data(), 0, vocabulary, whole.data());
  weft::kernels::embedding_forward<T>(devices.all, tokens, width, ids.data(), table.data(), 0, 6, low.data());
  weft::kernels::embedding_forward<T>(devices.all, tokens, width, ids.data(), table.data() + 6 * width, 6, 5, high.data());
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t i = 0; i < width; ++i) {
      CHECK(double(whole[t * width + i]) == double(table[std::size_t(ids[t]) * width + i]));
      CHECK(double(low[t * width + i]) + double(high[t * width + i]) == double(whole[t * width + i]));
    }

  using A = accumulate_t<T>;
  std::vector<A> gradient(vocabulary * width, A(0.5)), halves = gradient, one = gradient;
  std::vector<double> reference(vocabulary * width, 0.5);
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t i = 0; i < width; ++i) reference[std::size_t(ids[t]) * width + i] += double(dy[t * width + i]);
  weft::kernels::embedding_backward<T>(devices.all, tokens, width, ids.data(), dy.data(), 0, vocabulary, gradient.data());
  weft::kernels::embedding_backward<T>(devices.one, tokens, width, ids.data(), dy.data(), 0, vocabulary, one.data());
  weft::kernels::embedding_backward<T>(devices.all, tokens, width, ids.data(), dy.data(), 0, 6, halves.data());
  weft::kernels::embedding_backward<T>(devices.all, tokens, width, ids.data(), dy.data(), 6, 5, halves.data() + 6 * width);
  check_close(gradient, reference);
  CHECK(same_bits(gradient, one));
  CHECK(same_bits(gradient, halves));
}

TEST_CASE("ids outside the table are no one's") {
  DefaultDevice device;
  const std::vector<std::int32_t> ids{-1, 2, 3};
  const std::vector<float> table{1, 2, 3}, dy{1, 1, 1};
  std::vector<float> y(3, 9.f), gradient(3);
  weft::kernels::embedding_forward<float>(device, 3, 1, ids.data(), table.data(), 0, 3, y.data());
  CHECK(y == std::vector<float>{0, 3, 0});
  weft::kernels::embedding_backward<float>(device, 3, 1, ids.data(), dy.data(), 0, 3, gradient.data());
  CHECK(gradient == std::vector<float>{0, 0, 1});
}
