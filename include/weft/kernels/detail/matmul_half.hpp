// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of 16-bit numbers on hosts that do not multiply them: of float16, and of bfloat16 without AVX-512. Operands are
// widened to float (exactly), and the result is rounded once. Such a type saves memory and messages, not time.

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

#include <weft/core/error.hpp>
#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/matmul_loops.hpp>

namespace weft::kernels::detail {

/// Converts rows of `width` numbers to another type; each array has its own stride.
template <class From, class To, class Exec>
void convert_rows(Device<Exec>& device, std::size_t rows, std::size_t width, const From* from, std::size_t from_stride, To* to,
                  std::size_t to_stride) {
  using V = lanes_for<Exec, float>;
  for_each(device, {"packing", rows * width * (sizeof(From) + sizeof(To))}, rows, [=](std::size_t row) {
    sweep<V>(width, [&](std::size_t i, std::size_t count) {
      V::load(from + row * from_stride + i, count).store(to + row * to_stride + i, count);
    });
  });
}

/// Memory for the operands of a product of bfloat16 in float, as much as the largest one has needed. It is not the device's: most
/// processors need none, so rehearsals count none, as with oneDNN's own memory.
class WideNumbers {
 public:
  float* room(std::size_t numbers) {
    if (numbers > size_) {
      numbers_.reset();
      numbers_.reset(new (std::nothrow) float[numbers]);
      size_ = numbers_ == nullptr ? 0 : numbers;
    }
    if (size_ == 0)
      throw_error<MemoryError>({"out of memory: the host has no room for a product of bfloat16 in float, ",
                                numbers * sizeof(float), " bytes: fewer ranks on this machine, a smaller model or micro-batch, ",
                                "or a higher limit (ulimit -v)"});
    return numbers_.get();
  }

 private:
  std::unique_ptr<float[]> numbers_;
  std::size_t size_ = 0;
};

/// Converts the operands; `multiply(shape, a, b, c, bias)` computes the product on float arrays.
template <class T, class C, class Exec, class Multiply>
void matmul_half(Device<Exec>& device, const MatmulShape& s, const T* a, const T* b, C* c, const T* bias,
                 const Multiply& multiply) {
  constexpr bool narrow_result = std::is_same_v<C, T>;
  const auto rows_of = [](bool transpose, std::size_t rows, std::size_t columns) { return transpose ? columns : rows; };
  const std::size_t a_rows = rows_of(s.transpose_a, s.m, s.k), b_rows = rows_of(s.transpose_b, s.k, s.n),
                    a_columns = s.m * s.k / a_rows, b_columns = s.k * s.n / b_rows;
  const std::size_t numbers = s.m * s.k + s.k * s.n + (narrow_result ? s.m * s.n : 0) + s.n;
  weft::detail::Buffer buffer;
  float* wide_a = nullptr;
  if constexpr (std::is_same_v<T, float16>) {
    buffer = device.allocate(numbers * sizeof(float));
    wide_a = static_cast<float*>(buffer.get());
  } else {
    wide_a = device.template cache<WideNumbers>().room(numbers);
  }
  float *const wide_b = wide_a + s.m * s.k, *const wide_bias = wide_b + s.k * s.n, *const result = wide_bias + s.n;
  convert_rows(device, a_rows, a_columns, a, s.lda, wide_a, a_columns);
  convert_rows(device, b_rows, b_columns, b, s.ldb, wide_b, b_columns);
  if (bias != nullptr) convert_rows(device, 1, s.n, bias, s.n, wide_bias, s.n);
  MatmulShape wide = s;
  wide.lda = a_columns, wide.ldb = b_columns;
  if constexpr (narrow_result) {
    if (s.accumulate) convert_rows(device, s.m, s.n, c, s.ldc, result, s.n);
    wide.ldc = s.n;
    multiply(wide, wide_a, wide_b, result, bias != nullptr ? wide_bias : nullptr);
    convert_rows(device, s.m, s.n, result, s.n, c, s.ldc);
  } else {
    multiply(wide, wide_a, wide_b, c, bias != nullptr ? wide_bias : nullptr);
  }
}

}  // namespace weft::kernels::detail
