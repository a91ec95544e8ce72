// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/detail/attention_fused.hpp weft/kernels/detail/token_order.hpp weft/kernels/matmul_fused.hpp
// covers: weft/kernels/move_rows.hpp
// Kernels for memory that is not the host's, run on the host. This program's space is declared not to be a host, so the loops,
// teams and fallbacks for GPUs are compiled and compared with those for hosts and with formulas. 32 lanes compute a row in random
// orders; golden/device_paths uses Kokkos' own teams.
#include <Kokkos_Core.hpp>

#include <weft/device/parallel_for.hpp>

// The host's loops stay at hand under another space of the same threads.
template <>
inline constexpr bool weft::detail::on_host<Kokkos::DefaultExecutionSpace> = false;

/// A space with the host's loops, in the calling thread.
struct HostLoops : Kokkos::DefaultExecutionSpace {
  using execution_space = HostLoops;
};
template <>
inline constexpr bool weft::detail::on_host<HostLoops> = true;
template <>
void weft::detail::run_on_host(Device<HostLoops>&, Traffic, const HostLoop& loop) {
  loop.call(loop.body, 0, loop.count);
}

#include "kernels/norm_sums.hpp"
#include "kernels/support.hpp"
#include "support/warp.hpp"

#include <weft/kernels/activation.hpp>
#include <weft/kernels/attention.hpp>
#include <weft/kernels/attention_mask_gradient.hpp>
#include <weft/kernels/attention_merge.hpp>
#include <weft/kernels/cross_entropy.hpp>
#include <weft/kernels/detail/attention_fused.hpp>
#include <weft/kernels/detail/token_order.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/embedding.hpp>
#include <weft/kernels/exact_sum.hpp>
#include <weft/kernels/matmul.hpp>
#include <weft/kernels/matmul_fused.hpp>
#include <weft/kernels/move_rows.hpp>
#include <weft/kernels/norm.hpp>
#include <weft/kernels/optimizer.hpp>
#include <weft/kernels/quantise.hpp>
#include <weft/kernels/random.hpp>
#include <weft/kernels/rope.hpp>
#include <weft/kernels/routing.hpp>
#include <weft/kernels/rows.hpp>
#include <weft/tensor/to.hpp>

using namespace kernels_test;
namespace kernels = weft::kernels;

static_assert(!weft::kernels::detail::on_host<Kokkos::DefaultExecutionSpace>);

TEST_CASE_TEMPLATE("sums in the kernels of norms, by a team of lanes", T, float, double, bfloat16) {
  DefaultDevice device;
  check_norm_sums<T>(device);
}

TEST_CASE_TEMPLATE("norms of a team of lanes", T, float, bfloat16, double) {
  DefaultDevice device;
  using A = accumulate_t<T>;
  for (const std::size_t width : {1, 7, 33, 384}) {
    const std::size_t rows = 13;
    const auto x = normal<T>(rows * width, 1), gain = normal<T>(width, 2), bias = normal<T>(width, 3),
               dy = normal<T>(rows * width, 4);
    std::vector<T> y(rows * width), dx(rows * width);
    std::vector<A> mean(rows), rstd(rows), dgain(width, A(1)), dbias(width, A(2));
    kernels::layer_norm_forward(device, rows, width, x.data(), gain.data(), bias.data(), y.data(), mean.data(), rstd.data(),
                                1e-5);
    dx = dy;  // in place
    kernels::layer_norm_backward_input(device, rows, width, x.data(), gain.data(), mean.data(), rstd.data(), dx.data(),
                                       dx.data());
    kernels::layer_norm_backward_weight(device, rows, width, x.data(), mean.data(), rstd.data(), dy.data(), dgain.data(),
                                        dbias.data(), true);
    std::vector<double> want_y(rows * width), want_dx(rows * width), want_dgain(width, 1), want_dbias(width, 2);
    for (std::size_t r = 0; r < rows; ++r) {
      double center = 0, squares = 0, mean_g = 0, mean_gn = 0;
      for (std::size_t i = 0; i < width; ++i) center += double(x[r * width + i]) / double(width);
      for (std::size_t i = 0; i < width; ++i) squares += std::pow(double(x[r * width + i]) - center, 2) / double(width);
      const double inverse = 1 / std::sqrt(squares + 1e-5);
      const auto n = [&](std::size_t i) { return (double(x[r * width + i]) - center) * inverse; };
      const auto g = [&](std::size_t i) { return double(dy[r * width + i]) * double(gain[i]); };
      for (std::size_t i = 0; i < width; ++i) mean_g += g(i) / double(width), mean_gn += g(i) * n(i) / double(width);
      for (std::size_t i = 0; i < width; ++i) {
        want_y[r * width + i] = n(i) * double(gain[i]) + double(bias[i]);
        want_dx[r * width + i] = inverse * (g(i) - mean_g - n(i) * mean_gn);
        want_dgain[i] += double(dy[r * width + i]) * n(i), want_dbias[i] += double(dy[r * width + i]);
      }
    }
    check_close(y, want_y);
    if (width > 1) check_close(dx, want_dx, 4);  // of one value the derivative is 0, and rounding all there is
    check_close(dgain, want_dgain, 4);
    check_close(dbias, want_dbias, 4);

    std::vector<A> root(rows), dgain2(width);
    kernels::rms_norm_forward(device, rows, width, x.data(), gain.data(), y.data(), root.data(), 1e-5);
    dx = dy;
    kernels::rms_norm_backward_input(device, rows, width, x.data(), gain.data(), root.data(), dx.data(), dx.data());
    kernels::rms_norm_backward_weight(device, rows, width, x.data(), root.data(), dy.data(), dgain2.data(), false);
    std::fill(want_dgain.begin(), want_dgain.end(), 0);
    for (std::size_t r = 0; r < rows; ++r) {
      double squares = 0, mean_gn = 0;
      for (std::size_t i = 0; i < width; ++i) squares += std::pow(double(x[r * width + i]), 2) / double(width);
      const double inverse = 1 / std::sqrt(squares + 1e-5);
      for (std::size_t i = 0; i < width; ++i)
        mean_gn += double(dy[r * width + i]) * double(gain[i]) * double(x[r * width + i]) * inverse / double(width);
      for (std::size_t i = 0; i < width; ++i) {
        const double n = double(x[r * width + i]) * inverse;
        want_y[r * width + i] = n * double(gain[i]);
        want_dx[r * width + i] = inverse * (double(dy[r * width + i]) * double(gain[i]) - n * mean_gn);
        want_dgain[i] += double(dy[r * width + i]) * n;
      }
    }
    check_close(y, want_y);
    check_close(dx, want_dx, 4);
    check_close(dgain2, want_dgain, 4);
  }
}

TEST_CASE_TEMPLATE("sums over more rows than a block", T, float, bfloat16, double) {
  DefaultDevice device;
  for (const std::size_t rows : {0, 1, 64, 65, 300}) {
    const std::size_t columns = 37;
    const auto x = normal<T>(rows * columns, 5);
    std::vector<accumulate_t<T>> sums(columns, accumulate_t<T>(3)), more(columns, accumulate_t<T>(3));
    kernels::column_sums(device, rows, columns, x.data(), columns, sums.data(), false);
    kernels::column_sums(device, rows, columns, x.data(), columns, more.data(), true);
    std::vector<double> want(columns), want_more(columns, 3);
    for (std::size_t i = 0; i < x.size(); ++i) want[i % columns] += double(x[i]), want_more[i % columns] += double(x[i]);
    check_close(sums, want);
    check_close(more, want_more);
  }
}

TEST_CASE_TEMPLATE("cross-entropy of a team of lanes, in place and with padding", T, float, bfloat16, double) {
  DefaultDevice device;
  using A = accumulate_t<T>;
  const std::size_t rows = 9, columns = 50, valid = 45;
  const std::int64_t first = 100;
  const auto logits = normal<T>(rows * columns, 6, 3);
  std::vector<std::int32_t> targets{100, 144, -1, 120, 99, 145, 101, 143, 130};  // the 5th and 6th are other ranks'
  std::vector<A> max(rows), sums(rows), target(rows);
  double loss = -1;
  auto gradient = logits;
  kernels::row_max(device, rows, columns, valid, logits.data(), max.data());
  kernels::softmax_sums(device, rows, columns, valid, logits.data(), max.data(), targets.data(), first, sums.data(),
                        target.data());
  kernels::cross_entropy_finish(device, rows, columns, valid, gradient.data(), max.data(), sums.data(), target.data(),
                                targets.data(), first, &loss, gradient.data());
  std::vector<double> want(rows * columns);
  double want_loss = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    if (targets[r] < 0) continue;
    double total = 0, top = -1e300;
    for (std::size_t c = 0; c < valid; ++c) top = std::max(top, double(logits[r * columns + c]));
    for (std::size_t c = 0; c < valid; ++c) total += std::exp(double(logits[r * columns + c]) - top);
    const std::int64_t column = targets[r] - first;
    const bool here = column >= 0 && column < std::int64_t(valid);
    want_loss += std::log(total) - (here ? double(logits[r * columns + std::size_t(column)]) - top : 0);
    for (std::size_t c = 0; c < valid; ++c)
      want[r * columns + c] =
          std::exp(double(logits[r * columns + c]) - top) / total - (here && std::int64_t(c) == column ? 1 : 0);
    CHECK(double(max[r]) == top);
  }
  check_close(gradient, want);
  CHECK(std::abs(loss - want_loss) < 1e-4 * std::abs(want_loss));
  std::vector<A> none(1);
  kernels::row_max(device, 1, columns, 0, logits.data(), none.data());
  CHECK(none[0] == std::numeric_limits<A>::lowest());
}

TEST_CASE_TEMPLATE("the gradient of a table adds up tokens in their order", T, float, bfloat16, double) {
  DefaultDevice device;
  using A = accumulate_t<T>;
  const std::size_t tokens = 70, width = 150, here = 6;
  const std::int64_t first = 3;
  std::vector<std::int32_t> ids(tokens);
  for (std::size_t i = 0; i < tokens; ++i) ids[i] = std::int32_t(i * 7 % 11);
  const auto dy = normal<T>(tokens * width, 7);
  std::vector<A> table(here * width, A(0.5)), want = table;
  kernels::embedding_backward(device, tokens, width, ids.data(), dy.data(), first, here, table.data());
  for (std::size_t t = 0; t < tokens; ++t)
    if (ids[t] >= first && ids[t] < first + std::int64_t(here))
      for (std::size_t i = 0; i < width; ++i) want[std::size_t(ids[t] - first) * width + i] += A(dy[t * width + i]);
  CHECK(same_bits(table, want));
}

TEST_CASE_TEMPLATE("the gradient of a table adds up ids that fill many chunks of tokens", T, float, bfloat16, double) {
  DefaultDevice device;
  using A = accumulate_t<T>;
  const std::size_t width = 5, here = 4;
  const std::int64_t first = 2;
  for (const std::size_t tokens : {1, 63, 64, 65, 128, 129, 1000})
    for (const int kinds : {1, 2, 9}) {
      CAPTURE(tokens);
      CAPTURE(kinds);
      std::vector<std::int32_t> ids(tokens);
      for (std::size_t i = 0; i < tokens; ++i) ids[i] = std::int32_t(i * i / 3) % kinds + (kinds == 1 ? 3 : 0);
      const auto dy = normal<T>(tokens * width, 8);
      std::vector<A> table(here * width, A(0.5));
      std::vector<double> want(here * width, 0.5);
      kernels::embedding_backward(device, tokens, width, ids.data(), dy.data(), first, here, table.data());
      for (std::size_t t = 0; t < tokens; ++t)
        if (ids[t] >= first && ids[t] < first + std::int64_t(here))
          for (std::size_t i = 0; i < width; ++i) want[std::size_t(ids[t] - first) * width + i] += double(dy[t * width + i]);
      check_close(table, want, 4);
    }
}

TEST_CASE("a matrix of one long row is spread over threads") {
  DefaultDevice device;
  const std::size_t n = 10000;
  std::vector<float> drawn(n), one_by_one(n);
  kernels::initialise_normal(device, 1, n, drawn.data(), 5, 2, 7, 100, 1.0, 0.5);
  for (std::size_t i = 0; i < n; ++i) kernels::initialise_normal(device, 1, 1, &one_by_one[i], 5, 2, 7 + i, 100, 1.0, 0.5);
  CHECK(same_bits(drawn, one_by_one));
  std::vector<int> visits(n);
  std::size_t rows = 0;
  int* const visit = visits.data();
  std::size_t* const seen = &rows;
  weft::detail::for_each_entry(
      device, {}, 1, n, KOKKOS_LAMBDA(std::size_t row, std::size_t column) {
        ++visit[column];
        if (row != 0) ++*seen;
      });
  CHECK(visits == std::vector<int>(n, 1));
  CHECK(rows == 0);
}

// A GPU has 100,000 threads and more: a launch with one thread per row, or per parameter, leaves most of them idle.
TEST_CASE("a launch has a thread for every few elements, however few rows there are") {
  DefaultDevice device;
  weft::Rehearsal notes;
  device.rehearse(notes);
  constexpr std::size_t rows = 4, width = 4096, lanes = kernels::detail::row_lanes;
  using T = bfloat16;
  using A = float;
  T* const none = nullptr;
  A* const sums = nullptr;
  const std::int32_t* const ids = nullptr;
  const auto least = [&](const auto& kernel) {
    notes.kernels.clear();
    kernel();
    REQUIRE(!notes.kernels.empty());
    std::size_t threads = notes.kernels[0].least_threads;
    for (const weft::Rehearsal::Kernels& one : notes.kernels) threads = std::min(threads, one.least_threads);
    return threads;
  };
  CHECK(least([&] { kernels::initialise_normal(device, 1, rows * width, none, 5, 2, 7, 100, 1.0, 0.5); }) == rows * width);
  CHECK(least([&] { kernels::initialise_uniform(device, 1, rows * width, none, 5, 2, 7, 100, 1.0, 0.5); }) == rows * width);
  CHECK(least([&] { kernels::dropout(device, 1, width, none, none, 0.3, 9, 0, 0, width); }) >= width / 4);
  CHECK(least([&] { kernels::swiglu_forward(device, rows, width, none, width, none, width, none); }) == rows * lanes);
  CHECK(least([&] { kernels::swiglu_backward(device, rows, width, none, width, none, width, none, none, width, none, width); }) ==
        rows * lanes);
  CHECK(least([&] { kernels::gather_rows(device, rows, width, ids, 2, none, sums, none); }) == rows * lanes);
  CHECK(least([&] { kernels::sum_places(device, rows, width, ids, 2, none, sums, none); }) == rows * lanes);
  CHECK(least([&] { kernels::dot_places(device, rows, width, ids, 2, none, none, sums); }) >= rows * lanes);
  CHECK(least([&] { kernels::embedding_forward(device, rows, width, ids, none, 0, 100, none); }) == rows * lanes);
  CHECK(least([&] { kernels::row_sums(device, rows, width, none, A(1), sums); }) == rows * lanes);
  CHECK(least([&] { kernels::multiply_column(device, rows, width, none, sums, none); }) >= rows * lanes);
  CHECK(least([&] { kernels::add_row(device, rows, width, none, none, none); }) >= rows * lanes);
  CHECK(least([&] { kernels::quantise(device, rows * width, none, static_cast<std::int8_t*>(nullptr), sums); }) ==
        kernels::quantised_blocks(rows * width) * lanes);
  CHECK(least([&] { weft::detail::copy_rows(device, 1, width, sums, rows * width, sums, width); }) == width);
}

TEST_CASE_TEMPLATE("rows by teams of lanes equal rows by threads", T, float, bfloat16, double) {
  DefaultDevice device;
  weft::Device<HostLoops> host;
  using A = accumulate_t<T>;
  const std::size_t rows = 7, width = 301;
  const auto x = normal<T>(rows * width, 1), u = normal<T>(rows * width, 2), g = normal<T>(rows * width, 3);
  const auto both = [&](auto&& kernel, double factor = 1) {
    std::vector<T> got(2 * rows * width), want(2 * rows * width);
    std::vector<A> got_rows(rows, A(0.25)), want_rows(rows, A(0.25));
    kernel(device, got.data(), got_rows.data());
    kernel(host, want.data(), want_rows.data());
    check_close(got, std::vector<double>(want.begin(), want.end()), factor);
    check_close(got_rows, std::vector<double>(want_rows.begin(), want_rows.end()), factor);
  };
  both([&](auto& on, T* out, A*) { kernels::swiglu_forward(on, rows, width, x.data(), width, u.data(), width, out); });
  both([&](auto& on, T* out, A*) {
    kernels::swiglu_backward(on, rows, width, x.data(), width, u.data(), width, g.data(), out, width, out + rows * width, width);
  });
  for (const std::size_t first : {0, 3})
    both([&](auto& on, T* out, A*) {
      kernels::dropout(on, rows, width, x.data(), out, 0.3, 9, 1, first, 2 * width + 1, first == 0 ? nullptr : u.data());
    });
  both([&](auto& on, T* out, A*) { kernels::add_row(on, rows, width, x.data(), u.data(), out); });
  both(
      [&](auto& on, T* out, A* each) {
        kernels::row_sums(on, rows, width, x.data(), A(0.5), each);
        kernels::multiply_column(on, rows, width, x.data(), each, out);
      },
      4);
  both(
      [&](auto& on, T* out, A* each) {
        const std::vector<A> top(rows, A(4));
        kernels::exp_sums(on, rows, width, width - 2, x.data(), top.data(), each);
        kernels::softmax_backward(on, rows, width, x.data(), g.data(), out);
      },
      8);
  both([&](auto& on, T* out, A*) {
    std::vector<std::int8_t> integers(rows * width);
    std::vector<A> scales(kernels::quantised_blocks(rows * width));
    kernels::quantise(on, rows * width, x.data(), integers.data(), scales.data());
    kernels::dequantise(on, rows * width, integers.data(), scales.data(), out);
  });
  const std::vector<std::int32_t> order{5, -1, 0, 13, 12, 2, 7}, place{3, -1, 0, 6, 1, 2, 4, 5, 0, 0, 1, -1, 2, 6};
  const auto weights = normal<A>(2 * rows, 4);
  both([&](auto& on, T* out, A*) {
    kernels::gather_rows(on, rows, width, order.data(), 2, x.data(), weights.data(), out);
    kernels::sum_places(on, rows, width, place.data(), 2, x.data(), weights.data(), out + rows * width);
  });
  std::vector<A> dots(2 * rows), want_dots(2 * rows);
  kernels::dot_places(device, rows, width, place.data(), 2, x.data(), g.data(), dots.data());
  kernels::dot_places(host, rows, width, place.data(), 2, x.data(), g.data(), want_dots.data());
  check_close(dots, std::vector<double>(want_dots.begin(), want_dots.end()), 8);
}

TEST_CASE_TEMPLATE("squared norms of many arrays at once", T, float, double) {
  DefaultDevice device;
  const auto x = normal<T>(100000, 3);
  for (const std::size_t longest : {0, 5, 16384, 16385, 70000}) {
    const std::vector<kernels::NormPart<T>> parts{{x.data() + 1, longest}, {x.data(), 0}, {x.data() + 7, 3}, {x.data(), 33000}};
    std::vector<double> got(parts.size(), -1), want(parts.size());
    kernels::squared_norms<T>(device, parts, got.data());
    for (std::size_t p = 0; p < parts.size(); ++p)
      for (std::size_t i = 0; i < parts[p].n; ++i) want[p] += double(parts[p].data[i]) * double(parts[p].data[i]);
    for (std::size_t p = 0; p < parts.size(); ++p) CHECK(std::abs(got[p] - want[p]) <= 1e-6 * (1 + want[p]));
  }
}

TEST_CASE_TEMPLATE("exact sums of squares of many arrays at once, the same bits for every cut", T, float, double) {
  DefaultDevice device;
  constexpr std::size_t words = kernels::exact_sum_words;
  auto x = normal<T>(60000, 5);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= T(std::pow(10.0, double(i % 13) - 6));
  x[3] = T(1e9);  // before the first part, in its first block
  // The first sum has the pieces between the cuts, the second one the elements from 50,000 on.
  const auto sums_of = [&](std::vector<std::size_t> cuts) {
    cuts.insert(cuts.begin(), 7);
    cuts.push_back(50000);
    std::vector<kernels::ExactPart<T>> parts{{x.data() + 50000, 10000, 0, 1}};
    for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
      const std::size_t block = cuts[k] / 32 * 32;
      parts.push_back({x.data() + block, cuts[k + 1] - block, cuts[k] - block, 0});
    }
    std::vector<std::int64_t> sums(2 * words, -1);
    kernels::clear_exact_sums(device, 2, sums.data());
    kernels::exact_squared_norms<T>(device, parts, sums.data());
    return sums;
  };
  const auto value_of = [](std::vector<std::int64_t> sums, std::size_t sum) {
    return kernels::exact_value(std::span(sums).subspan(sum * words, words));
  };
  auto whole = sums_of({});
  for (const std::size_t sum : {0, 1}) {
    long double want = 0;
    for (std::size_t i = sum == 0 ? 7 : 50000; i < (sum == 0 ? 50000u : 60000u); ++i)
      want += static_cast<long double>(x[i]) * static_cast<long double>(x[i]);
    CHECK(value_of(whole, sum) == doctest::Approx(double(want)).epsilon(sizeof(T) == 4 ? 1e-6 : 1e-14));
  }
  for (const auto& cuts : std::vector<std::vector<std::size_t>>{{32}, {64, 96, 16384}, {16384 + 32, 32768, 49984}, {64, 64}}) {
    CHECK(value_of(sums_of(cuts), 0) == value_of(whole, 0));
    CHECK(value_of(sums_of(cuts), 1) == value_of(whole, 1));
  }
  x[55000] = T(INFINITY);
  CHECK(value_of(sums_of({32}), 0) == value_of(whole, 0));
  CHECK(std::isnan(value_of(sums_of({32}), 1)));
}

TEST_CASE("attention that a library does not support gives one notice") {
  struct Refuses final : kernels::detail::AttentionLibrary {
    int asked = 0;
    bool forward(const kernels::detail::AttentionCall&) override { return ++asked, false; }
    bool backward(const kernels::detail::AttentionCall&) override { return ++asked, false; }
  };
  DefaultDevice device;
  auto& fused = device.cache<kernels::detail::FusedAttention>();
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const auto x = normal<T>(3 * 12 * 10, 1);
    std::vector<T> out(12 * 10);
    std::vector<float> lse(12);
    const kernels::AttentionExtents extents{.sequences = 1, .length = 12, .heads = 1, .kv_heads = 1, .head_width = 10};
    kernels::attention_forward<T>(device, extents, {x.data(), x.data() + 10, x.data() + 20, 30, 30, 30}, {out.data(), 10},
                                  lse.data(), weft::AttentionMask{});
  };
  run(bfloat16());
  CHECK(!fused.told);  // there is no library
  const auto library = std::make_shared<Refuses>();
  fused.library = library;
  run(bfloat16());
  CHECK(library->asked == 1);
  CHECK(fused.told);
  fused.told = false;
  run(float());  // libraries need 16-bit types
  CHECK(library->asked == 1);
  CHECK(fused.told);
}

TEST_CASE_TEMPLATE("cross-entropy in one sweep, with a factor", T, float, bfloat16, double) {
  DefaultDevice device;
  weft::Device<HostLoops> host;
  using A = accumulate_t<T>;
  const std::size_t rows = 9, columns = 200, valid = 190;
  auto logits = normal<T>(rows * columns, 6, 3);
  logits[3] = to<T>(60), logits[columns + 150] = to<T>(-60);
  const std::vector<std::int32_t> targets{3, 189, -1, 120, 0, 191, 7, 8, 150};
  const double factor = 0.375;
  const auto all = [&](auto& on, std::vector<T>& gradient) {
    std::vector<A> max(rows), sums(rows), target(rows);
    kernels::softmax_statistics(on, rows, columns, valid, logits.data(), targets.data(), max.data(), sums.data(), target.data());
    gradient = logits;  // in place
    kernels::cross_entropy_gradient(on, rows, columns, valid, gradient.data(), max.data(), sums.data(), targets.data(), 0,
                                    &factor, gradient.data());
    max.insert(max.end(), sums.begin(), sums.end());
    max.insert(max.end(), target.begin(), target.end());
    return max;
  };
  std::vector<T> got, want;
  const auto got_rows = all(device, got), want_rows = all(host, want);
  check_close(got, widen(want));
  check_close(got_rows, widen(want_rows), 4);
  double worst = 0;
  for (std::size_t c = 0; c < columns; ++c) {
    const double p = c < valid ? std::exp(double(logits[c]) - want_rows[0]) / want_rows[rows] : 0;
    worst = std::max(worst, std::abs(double(want[c]) - factor * (p - (c == 3 ? 1 : 0))));
  }
  CHECK(worst < tolerance<T>);
}

TEST_CASE_TEMPLATE("attention without a library, whole and as merged blocks", T, float, bfloat16, double) {
  DefaultDevice device;
  using A = accumulate_t<T>;
  const std::size_t sequences = 2, length = 12, heads = 4, kv_heads = 2, head = 8, width = heads * head, kv = kv_heads * head;
  const auto q = normal<T>(sequences * length * width, 8), k = normal<T>(sequences * length * kv, 9),
             v = normal<T>(sequences * length * kv, 10);
  const auto d_out = normal<T>(sequences * length * width, 11);
  std::vector<T> out(q.size()), dq(q.size()), dk(k.size()), dv(v.size());
  std::vector<A> lse(sequences * heads * length);
  const kernels::AttentionExtents extents{
      .sequences = sequences, .length = length, .heads = heads, .kv_heads = kv_heads, .head_width = head};
  const kernels::AttentionOperands<const T> in{
      .q = q.data(), .k = k.data(), .v = v.data(), .q_stride = width, .k_stride = kv, .v_stride = kv};
  kernels::attention_forward<T>(device, extents, in, {out.data(), width}, lse.data());
  kernels::attention_backward<T>(
      device, extents, in, {out.data(), width}, {d_out.data(), width}, lse.data(),
      {.q = dq.data(), .k = dk.data(), .v = dv.data(), .q_stride = width, .k_stride = kv, .v_stride = kv});
  std::vector<double> want(q.size()), want_lse(lse.size()), want_dq(q.size()), want_dk(k.size()), want_dv(v.size());
  for (std::size_t s = 0; s < sequences; ++s)
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t i = 0; i < length; ++i) {
        const auto at = [&](std::size_t row) { return (s * length + row) * width + h * head; };
        const auto kv_at = [&](std::size_t row) { return (s * length + row) * kv + h / 2 * head; };
        std::vector<double> p(i + 1), dp(i + 1);
        double total = 0, delta = 0;
        for (std::size_t j = 0; j <= i; ++j) {
          for (std::size_t d = 0; d < head; ++d) p[j] += double(q[at(i) + d]) * double(k[kv_at(j) + d]) / std::sqrt(double(head));
          total += p[j] = std::exp(p[j]);
        }
        want_lse[(s * heads + h) * length + i] = std::log(total);
        for (std::size_t j = 0; j <= i; ++j) {
          p[j] /= total;
          for (std::size_t d = 0; d < head; ++d) {
            want[at(i) + d] += p[j] * double(v[kv_at(j) + d]);
            dp[j] += double(d_out[at(i) + d]) * double(v[kv_at(j) + d]);
          }
          delta += p[j] * dp[j];
        }
        for (std::size_t j = 0; j <= i; ++j)
          for (std::size_t d = 0; d < head; ++d) {
            const double ds = p[j] * (dp[j] - delta) / std::sqrt(double(head));
            want_dq[at(i) + d] += ds * double(k[kv_at(j) + d]);
            want_dk[kv_at(j) + d] += ds * double(q[at(i) + d]);
            want_dv[kv_at(j) + d] += p[j] * double(d_out[at(i) + d]);
          }
      }
  check_close(out, want);
  check_close(lse, want_lse, 4);
  check_close(dq, want_dq, 4);
  check_close(dk, want_dk, 4);
  check_close(dv, want_dv, 4);

  // A block in accumulate_t, as in a ring: without rounding it is the same.
  kernels::AttentionBlock block{.sequences = sequences,
                                .queries = length,
                                .keys = length,
                                .heads = heads,
                                .kv_heads = kv_heads,
                                .head_width = head,
                                .causal = true};
  std::vector<A> wide(q.size()), wide_lse(lse.size()), wide_dq(q.size()), wide_dk(k.size()), wide_dv(v.size());
  kernels::attention_block_forward<T, A>(device, block, in, {wide.data(), width}, wide_lse.data());
  kernels::attention_block_backward<T, A>(
      device, block, in, {out.data(), width}, {d_out.data(), width}, lse.data(),
      {.q = wide_dq.data(), .k = wide_dk.data(), .v = wide_dv.data(), .q_stride = width, .k_stride = kv, .v_stride = kv});
  check_close(wide, want);
  check_close(wide_dk, want_dk, std::is_same_v<T, bfloat16> ? 4e3 : 4);  // `out` was rounded to bfloat16
}

TEST_CASE("two halves of the keys, merged, are attention over all of them; an unseen half counts for nothing") {
  DefaultDevice device;
  const std::size_t sequences = 2, length = 12, heads = 3, head = 40, width = heads * head, half = length / 2;
  const auto q = normal<double>(sequences * length * width, 1), k = normal<double>(sequences * length * width, 2),
             v = normal<double>(sequences * length * width, 3);
  const auto attend = [&](std::size_t first, std::size_t keys, std::vector<double>& out, std::vector<double>& lse) {
    out.assign(q.size(), 0), lse.assign(sequences * heads * length, 0);
    const kernels::AttentionBlock block{.sequences = sequences,
                                        .queries = length,
                                        .keys = keys,
                                        .key_step = length,
                                        .heads = heads,
                                        .kv_heads = heads,
                                        .head_width = head};
    kernels::attention_block_forward<double>(device, block,
                                             {.q = q.data(),
                                              .k = k.data() + first * width,
                                              .v = v.data() + first * width,
                                              .q_stride = width,
                                              .k_stride = width,
                                              .v_stride = width},
                                             kernels::StridedRows{out.data(), width}, lse.data());
    return block;
  };
  std::vector<double> want, want_lse, left, left_lse, right, right_lse;
  const kernels::AttentionBlock block = attend(0, length, want, want_lse);
  attend(0, half, left, left_lse);
  attend(half, half, right, right_lse);
  kernels::merge_attention<double>(device, block, right.data(), right_lse.data(), {left.data(), width}, left_lse.data());
  check_close(left, want);
  check_close(left_lse, want_lse);
  const std::vector<double> unseen(right_lse.size(), -INFINITY);
  kernels::merge_attention<double>(device, block, right.data(), unseen.data(), {left.data(), width}, left_lse.data());
  check_close(left, want);
  std::vector<double> empty_lse = unseen, empty(left.size(), 7.0);
  kernels::merge_attention<double>(device, block, want.data(), want_lse.data(), {empty.data(), width}, empty_lse.data());
  check_close(empty, want);
  check_close(empty_lse, want_lse);
}

TEST_CASE_TEMPLATE("gradients of the heads of a group are added into rows with room between them", A, float, double) {
  DefaultDevice device;
  const std::size_t sequences = 2, rows = 3, step = 5, kv_heads = 2, head = 12, stride = 2 * kv_heads * head;
  for (const std::size_t group : {1, 2, 5}) {
    const auto from = normal<A>(sequences * rows * kv_heads * group * head, 1);
    std::vector<A> got(sequences * step * stride, A(7));
    std::vector<double> want(got.size(), 7);
    for (std::size_t i = 0; i < sequences * rows * kv_heads * head; ++i) {
      const std::size_t column = i % head, kv_head = i / head % kv_heads, row = i / head / kv_heads;
      double& sum = want[(row / rows * step + row % rows) * stride + kv_head * head + column] = 0;
      for (std::size_t g = 0; g < group; ++g) sum += double(from[(i / head * group + g) * head + column]);
    }
    kernels::sum_heads(device, sequences, rows, step, kv_heads, group, head, from.data(), got.data(), stride);
    check_close(got, want);
  }
}

// A library that records its calls, and accepts every second one.
struct Recorder final : kernels::detail::AttentionLibrary {
  int forwards = 0, backwards = 0;
  bool takes = false;
  kernels::detail::AttentionCall last{.shape = {{}, true}, .type = weft::DataType::float32, .out_type = weft::DataType::float32};
  bool forward(const kernels::detail::AttentionCall& call) override { return last = call, ++forwards, takes; }
  bool backward(const kernels::detail::AttentionCall& call) override { return last = call, ++backwards, takes; }
};

TEST_CASE_TEMPLATE("the gradient of numbers added to the scores", T, float, bfloat16, double) {
  DefaultDevice device;
  using A = accumulate_t<T>;
  const std::size_t sequences = 4, length = 7, head = 10, stride = 3 * head;
  const auto x = normal<T>(sequences * length * stride, 21), d_out = normal<T>(sequences * length * head, 22);
  const auto added = normal<A>(2 * length, 23);  // of two sequences of each group, the same for all queries
  std::vector<T> out(d_out.size());
  std::vector<A> lse(sequences * length), d_added(added.size());
  const kernels::AttentionExtents extents{.sequences = sequences, .length = length, .head_width = head};
  const kernels::AttentionOperands<const T> in{x.data(), x.data() + head, x.data() + 2 * head, stride, stride, stride};
  const kernels::MaskArrays<A> arrays{.added = added.data(), .group = 2, .member_step = length};
  kernels::attention_forward<T>(device, extents, in, {out.data(), head}, lse.data(), {}, arrays);
  kernels::attention_mask_gradient<T>(device, extents, in, {out.data(), head}, {d_out.data(), head}, lse.data(), d_added.data(),
                                      {}, arrays);
  std::vector<double> want(added.size());
  for (std::size_t row = 0; row < sequences * length; ++row) {
    const std::size_t first = row / length * length, place = first / length % 2 * length;
    const auto product = [&](const T* a, const T* b) {
      double sum = 0;
      for (std::size_t d = 0; d < head; ++d) sum += double(a[d]) * double(b[d]);
      return sum;
    };
    std::vector<double> p, dp;
    double total = 0, mean = 0;
    for (std::size_t key = first; key <= row; ++key) {
      p.push_back(std::exp(product(&x[row * stride], &x[key * stride + head]) / std::sqrt(double(head)) +
                           double(added[place + key - first])));
      dp.push_back(product(&d_out[row * head], &x[key * stride + 2 * head]));
      total += p.back();
    }
    for (std::size_t j = 0; j < p.size(); ++j) mean += p[j] / total * dp[j];
    for (std::size_t j = 0; j < p.size(); ++j) want[place + j] += p[j] / total * (dp[j] - mean);
  }
  CHECK(difference(d_added, want) <= 4 * tolerance<T>);  // the output is rounded to T
}

TEST_CASE("a device's library of attention comes first, and only for 16-bit types") {
  DefaultDevice device;
  const auto library = std::make_shared<Recorder>();
  device.cache<kernels::detail::FusedAttention>().library = library;
  const std::size_t length = 4, head = 8;
  const auto q = normal<bfloat16>(length * 3 * head, 12);
  std::vector<bfloat16> out(length * head), untouched = out, d(q.size());
  std::vector<float> lse(length);
  const kernels::AttentionExtents extents{.length = length, .head_width = head};
  const kernels::AttentionOperands<const bfloat16> in{.q = q.data(),
                                                      .k = q.data() + head,
                                                      .v = q.data() + 2 * head,
                                                      .q_stride = 3 * head,
                                                      .k_stride = 3 * head,
                                                      .v_stride = 3 * head};
  const auto forward = [&] { kernels::attention_forward<bfloat16>(device, extents, in, {out.data(), head}, lse.data()); };
  library->takes = true;
  forward();
  CHECK(library->forwards == 1);
  CHECK(same_bits(out, untouched));
  CHECK(library->last.k.data == q.data() + head);
  CHECK((library->last.k.stride == 3 * head && library->last.out.stride == head &&
         library->last.type == weft::DataType::bfloat16 && library->last.shape.causal));
  library->takes = false;
  forward();
  CHECK(library->forwards == 2);
  CHECK(!same_bits(out, untouched));
  kernels::attention_backward<bfloat16>(device, extents, in, {out.data(), head}, {out.data(), head}, lse.data(),
                                        {.q = d.data(),
                                         .k = d.data() + head,
                                         .v = d.data() + 2 * head,
                                         .q_stride = 3 * head,
                                         .k_stride = 3 * head,
                                         .v_stride = 3 * head});
  CHECK(library->backwards == 1);
  CHECK((library->last.dv.data == d.data() + 2 * head && library->last.d_out.data == out.data() &&
         library->last.log_sum_exp == lse.data()));
  // A mask that a library does not support is not passed to it.
  kernels::attention_forward<bfloat16>(device, extents, in, {out.data(), head}, lse.data(), {.window = 2});
  kernels::attention_backward<bfloat16>(device, extents, in, {out.data(), head}, {out.data(), head}, lse.data(),
                                        {.q = d.data(),
                                         .k = d.data() + head,
                                         .v = d.data() + 2 * head,
                                         .q_stride = 3 * head,
                                         .k_stride = 3 * head,
                                         .v_stride = 3 * head},
                                        {.window = 2});
  CHECK((library->forwards == 2 && library->backwards == 1));
  const auto wide = normal<float>(length * head, 13);
  std::vector<float> wide_out(length * head);
  kernels::attention_forward<float>(
      device, extents,
      {.q = wide.data(), .k = wide.data(), .v = wide.data(), .q_stride = head, .k_stride = head, .v_stride = head},
      {wide_out.data(), head}, lse.data());
  CHECK(library->forwards == 2);
}

TEST_CASE_TEMPLATE("products with a GELU around them, and with sums of rows, without a library", T, float, bfloat16, double) {
  DefaultDevice device;
  using A = accumulate_t<T>;
  const std::size_t m = 5, n = 8, k = 6;
  const auto gelu = [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); };
  const auto a = normal<T>(m * k, 14), b = normal<T>(k * n, 15), bias = normal<T>(n, 16), rows = normal<T>(m * n, 17);
  for (const bool turned : {false, true}) {
    const auto transpose = turned ? kernels::Transpose::yes : kernels::Transpose::no;
    std::vector<T> before(m * n), after(m * n), gradient(m * n);
    kernels::matmul_gelu(device, transpose, m, n, k, a.data(), b.data(), bias.data(), before.data(), after.data());
    kernels::matmul_gelu_backward(device, transpose, m, n, k, a.data(), b.data(), before.data(), gradient.data());
    std::vector<double> want(m * n), active(m * n), slopes(m * n);
    for (std::size_t i = 0; i < m * n; ++i) {
      for (std::size_t j = 0; j < k; ++j) want[i] += double(a[i / n * k + j]) * double(b[turned ? i % n * k + j : j * n + i % n]);
      const double x = double(before[i]), h = 1e-5;
      slopes[i] = want[i] * (gelu(x + h) - gelu(x - h)) / (2 * h);
      want[i] += double(bias[i % n]);
      active[i] = gelu(want[i]);
    }
    check_close(before, want);
    check_close(after, active, 2);
    CHECK(difference(gradient, slopes) <= std::max(4 * tolerance<T>, 1e-8));
  }
  std::vector<A> c(k * n, A(1)), of_right(n, A(9)), of_left(k, A(9));
  kernels::matmul_sums<kernels::Factor::right>(device, k, n, m, a.data(), rows.data(), c.data(), true, of_right.data());
  kernels::matmul_sums<kernels::Factor::left>(device, k, n, m, a.data(), rows.data(), c.data(), true, of_left.data());
  std::vector<double> want(k * n, 1), want_right(n), want_left(k);
  for (std::size_t row = 0; row < m; ++row) {
    for (std::size_t i = 0; i < k * n; ++i) want[i] += 2 * double(a[row * k + i / n]) * double(rows[row * n + i % n]);
    for (std::size_t i = 0; i < n; ++i) want_right[i] += double(rows[row * n + i]);
    for (std::size_t i = 0; i < k; ++i) want_left[i] += double(a[row * k + i]);
  }
  check_close(c, want, 2);
  check_close(of_right, want_right);
  check_close(of_left, want_left);
}

TEST_CASE_TEMPLATE("products without a library, angles without a table, sums in double", T, float, bfloat16, double) {
  DefaultDevice device;
  const std::size_t m = 5, n = 7, k = 6;
  const auto a = normal<T>(m * k, 14), b = normal<T>(k * n, 15), bias = normal<T>(n, 16);
  std::vector<T> c(m * n);
  kernels::matmul(device, kernels::Transpose::yes, kernels::Transpose::no, m, n, k, a.data(), m, b.data(), n, c.data(), n, false,
                  bias.data());
  std::vector<double> want(m * n);
  for (std::size_t i = 0; i < m * n; ++i) {
    want[i] = double(bias[i % n]);
    for (std::size_t j = 0; j < k; ++j) want[i] += double(a[j * m + i / n]) * double(b[j * n + i % n]);
  }
  check_close(c, want);
  double squares = -1;
  kernels::squared_norm(device, a.size(), a.data(), &squares);
  double want_squares = 0;
  for (const T x : a) want_squares += double(x) * double(x);
  CHECK(std::abs(squares - want_squares) < 1e-5 * want_squares);
  const std::vector<std::int32_t> positions{0, 3, 1000, 7, 2};
  const auto x = normal<T>(5 * 8, 17);
  std::vector<T> turned(x.size()), back(x.size());
  kernels::rope(device, 5, 2, 4, x.data(), 8, turned.data(), 8, positions.data(), 10000.0, false);
  kernels::rope(device, 5, 2, 4, turned.data(), 8, back.data(), 8, positions.data(), 10000.0, true);
  check_close(back, widen(x), 2);
  const double angle = 1000 * std::pow(10000.0, -2.0 * 1 / 4);
  CHECK(std::abs(double(turned[2 * 8 + 1]) - (double(x[2 * 8 + 1]) * std::cos(angle) - double(x[2 * 8 + 3]) * std::sin(angle))) <
        0.02);
}

TEST_CASE("lanes came to every place where others waited for them") {
  for (const std::string& error : weft_test::Warp::errors()) MESSAGE(error);
  CHECK(weft_test::Warp::errors().empty());
}
