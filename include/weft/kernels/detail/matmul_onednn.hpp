// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrix products by oneDNN 2.6 and 3.x. Making a primitive costs more than small products, so each device keeps those that it
// has made, by shape and types.

#include <dnnl_version.h>
// nvcc 13.0 ends with an internal error in the C++ header of oneDNN 2, at a std::vector of a struct without a tag. Programs that
// it compiles need oneDNN 3 for fast products on the host; with oneDNN 2 they get the loops.
#if defined(__CUDACC__) && DNNL_VERSION_MAJOR < 3
#define WEFT_DETAIL_ONEDNN 0
#else
#define WEFT_DETAIL_ONEDNN 1
#include <dnnl.hpp>
#endif

#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <weft/core/checked.hpp>
#include <weft/core/error.hpp>
#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/matmul_loops.hpp>

namespace weft::kernels::detail {

inline constexpr bool onednn_is_usable = WEFT_DETAIL_ONEDNN;

template <class T, class C, class Exec>
void matmul_onednn(Device<Exec>& device, const MatmulShape& s, const T* a, const T* b, C* c, const T* bias);

#if WEFT_DETAIL_ONEDNN
/// oneDNN's own threads number as many as the execution space has: it asks OpenMP for a count that is kept for each thread.
class OneDnnThreads {
 public:
#ifdef _OPENMP
  explicit OneDnnThreads(int threads) : before_(omp_get_max_threads()) {
    if (before_ != threads) omp_set_num_threads(threads);
  }
  ~OneDnnThreads() { omp_set_num_threads(before_); }
  OneDnnThreads(const OneDnnThreads&) = delete;
  OneDnnThreads& operator=(const OneDnnThreads&) = delete;

 private:
  int before_;
#else
  explicit OneDnnThreads(int) {}
#endif
};

/// The primitives of one device.
struct OneDnn {
  using Key = std::tuple<MatmulShape, int, int, bool, int>;  // shape, types of a and c, bias, threads
  struct Product {
    dnnl::matmul primitive;
    dnnl::memory a, b, c, bias;
    std::unordered_map<int, dnnl::memory> arguments;
  };
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, Product> products;

  template <class T>
  static constexpr dnnl::memory::data_type type_of() {
    return std::is_same_v<T, bfloat16> ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  }
  static dnnl::memory::desc describe(std::size_t rows, std::size_t columns, dnnl::memory::data_type type, std::size_t row_stride,
                                     std::size_t column_stride) {
    using Dim = dnnl::memory::dim;
    return {dnnl::memory::dims{narrow<Dim>(rows), narrow<Dim>(columns)}, type,
            dnnl::memory::dims{narrow<Dim>(row_stride), narrow<Dim>(column_stride)}};
  }

  template <class T, class C>
  Product& product(const MatmulShape& s, bool bias, int threads) {
    const Key key{s, int(type_of<T>()), int(type_of<C>()), bias, threads};
    if (const auto found = products.find(key); found != products.end()) return found->second;
    const auto a = describe(s.m, s.k, type_of<T>(), s.transpose_a ? 1 : s.lda, s.transpose_a ? s.lda : 1);
    const auto b = describe(s.k, s.n, type_of<T>(), s.transpose_b ? 1 : s.ldb, s.transpose_b ? s.ldb : 1);
    const auto c = describe(s.m, s.n, type_of<C>(), s.ldc, 1);
    const auto row = bias ? describe(1, s.n, type_of<T>(), s.n, 1) : dnnl::memory::desc();
    dnnl::primitive_attr attributes;
    if (s.accumulate) {
      dnnl::post_ops operations;
      operations.append_sum(1.f);
      attributes.set_post_ops(operations);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc description = bias ? dnnl::matmul::primitive_desc(engine, a, b, row, c, attributes)
                                                          : dnnl::matmul::primitive_desc(engine, a, b, c, attributes);
#else
    const dnnl::matmul::primitive_desc description(bias ? dnnl::matmul::desc(a, b, row, c) : dnnl::matmul::desc(a, b, c),
                                                   attributes, engine);
#endif
    Product product{dnnl::matmul(description),
                    dnnl::memory(a, engine, DNNL_MEMORY_NONE),
                    dnnl::memory(b, engine, DNNL_MEMORY_NONE),
                    dnnl::memory(c, engine, DNNL_MEMORY_NONE),
                    {},
                    {}};
    product.arguments = {{DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.c}};
    if (bias) {
      product.bias = dnnl::memory(row, engine, DNNL_MEMORY_NONE);
      product.arguments.insert({DNNL_ARG_BIAS, product.bias});
    }
    return products.emplace(key, std::move(product)).first->second;
  }
};

template <class T, class C, class Exec>
void matmul_onednn(Device<Exec>& device, const MatmulShape& s, const T* a, const T* b, C* c, const T* bias) {
  const int threads = threads_of(device.exec());
  const OneDnnThreads guard(threads);
  if constexpr (std::is_same_v<T, float>)
    if (bias == nullptr && (s.transpose_a || !s.transpose_b)) {  // plain sgemm is 1 to 5 % faster there, not for a b^T
      using Dim = dnnl::memory::dim;
      const dnnl_status_t status =
          dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', narrow<Dim>(s.m), narrow<Dim>(s.n), narrow<Dim>(s.k),
                     1.f, a, narrow<Dim>(s.lda), b, narrow<Dim>(s.ldb), s.accumulate ? 1.f : 0.f, c, narrow<Dim>(s.ldc));
      if (status == dnnl_success) return;
      throw Error("matmul: oneDNN's sgemm failed with status " + std::to_string(int(status)) + " for m " + std::to_string(s.m) +
                  ", n " + std::to_string(s.n) + ", k " + std::to_string(s.k));
    }
  OneDnn& library = device.template cache<OneDnn>();
  OneDnn::Product& product = library.template product<T, C>(s, bias != nullptr, threads);
  product.a.set_data_handle(const_cast<T*>(a));
  product.b.set_data_handle(const_cast<T*>(b));
  product.c.set_data_handle(c);
  if (bias != nullptr) product.bias.set_data_handle(const_cast<T*>(bias));
  product.primitive.execute(library.stream, product.arguments);
}
#endif

}  // namespace weft::kernels::detail
#undef WEFT_DETAIL_ONEDNN
