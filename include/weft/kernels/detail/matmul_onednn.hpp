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
#include <memory>
#include <string>
#include <type_traits>
#include <vector>
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

/// The primitives of one device. Nothing here is a template: it is compiled once, for all types.
class OneDnn {
 public:
  using Type = dnnl::memory::data_type;

  /// Runs the product of one shape; `c` is added to with shape.accumulate, `bias` may be null.
  void run(const MatmulShape& s, Type type, Type c_type, int threads, const void* a, const void* b, void* c, const void* bias) {
    Product& product = find(Key{s, type, c_type, bias != nullptr, threads});
    product.a.set_data_handle(const_cast<void*>(a));
    product.b.set_data_handle(const_cast<void*>(b));
    product.c.set_data_handle(c);
    if (bias != nullptr) product.bias.set_data_handle(const_cast<void*>(bias));
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, product.a.get()},
                                         {DNNL_ARG_WEIGHTS, product.b.get()},
                                         {DNNL_ARG_DST, product.c.get()},
                                         {DNNL_ARG_BIAS, bias != nullptr ? product.bias.get() : nullptr}};
    check(dnnl_primitive_execute(product.primitive.get(), stream_.get(), bias != nullptr ? 4 : 3, arguments), s);
  }

  /// Plain sgemm, without a primitive.
  static void run_sgemm(const MatmulShape& s, const float* a, const float* b, float* c) {
    check(dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', dim(s.m), dim(s.n), dim(s.k), 1.f, a, dim(s.lda), b,
                     dim(s.ldb), s.accumulate ? 1.f : 0.f, c, dim(s.ldc)),
          s);
  }

 private:
  struct Key {
    MatmulShape shape;
    Type type, c_type;
    bool bias;
    int threads;
    bool operator==(const Key&) const = default;
    std::size_t bucket() const {
      std::size_t hash = shape.m;
      for (const std::size_t n : {shape.n, shape.k, shape.lda, shape.ldb, shape.ldc}) hash = hash * 31 + n;
      return (hash ^ (hash >> 13)) % buckets;
    }
  };
  struct Product {
    Key key;
    dnnl::matmul primitive;
    dnnl::memory a, b, c, bias;
  };
  static constexpr std::size_t buckets = 64, most_in_bucket = 32;

  static dnnl::memory::dim dim(std::size_t n) { return narrow<dnnl::memory::dim>(n); }

  static void check(dnnl_status_t status, const MatmulShape& s) {
    if (status != dnnl_success)
      throw Error("matmul: oneDNN failed with status " + std::to_string(int(status)) + " for m " + std::to_string(s.m) + ", n " +
                  std::to_string(s.n) + ", k " + std::to_string(s.k));
  }

  static dnnl::memory::desc describe(std::size_t rows, std::size_t columns, Type type, std::size_t row_stride,
                                     std::size_t column_stride) {
    return {dnnl::memory::dims{dim(rows), dim(columns)}, type, dnnl::memory::dims{dim(row_stride), dim(column_stride)}};
  }

  Product& find(const Key& key) {
    std::vector<std::unique_ptr<Product>>& bucket = products_[key.bucket()];
    for (const auto& product : bucket)
      if (product->key == key) return *product;
    // Text that grows word by word has a new shape each time: forget rather than grow without end.
    if (bucket.size() >= most_in_bucket) bucket.clear();
    bucket.push_back(make(key));
    return *bucket.back();
  }

  std::unique_ptr<Product> make(const Key& key) const {
    const MatmulShape& s = key.shape;
    const auto a = describe(s.m, s.k, key.type, s.transpose_a ? 1 : s.lda, s.transpose_a ? s.lda : 1);
    const auto b = describe(s.k, s.n, key.type, s.transpose_b ? 1 : s.ldb, s.transpose_b ? s.ldb : 1);
    const auto c = describe(s.m, s.n, key.c_type, s.ldc, 1);
    const auto row = key.bias ? describe(1, s.n, key.type, s.n, 1) : dnnl::memory::desc();
    dnnl::primitive_attr attributes;
    if (s.accumulate) {
      dnnl::post_ops operations;
      operations.append_sum(1.f);
      attributes.set_post_ops(operations);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc description = key.bias ? dnnl::matmul::primitive_desc(engine_, a, b, row, c, attributes)
                                                              : dnnl::matmul::primitive_desc(engine_, a, b, c, attributes);
#else
    const dnnl::matmul::primitive_desc description(key.bias ? dnnl::matmul::desc(a, b, row, c) : dnnl::matmul::desc(a, b, c),
                                                   attributes, engine_);
#endif
    const auto memory = [&](const dnnl::memory::desc& desc) { return dnnl::memory(desc, engine_, DNNL_MEMORY_NONE); };
    return std::make_unique<Product>(
        Product{key, dnnl::matmul(description), memory(a), memory(b), memory(c), key.bias ? memory(row) : dnnl::memory()});
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::vector<std::unique_ptr<Product>> products_[buckets];
};

template <class T, class C, class Exec>
void matmul_onednn(Device<Exec>& device, const MatmulShape& s, const T* a, const T* b, C* c, const T* bias) {
  const int threads = threads_of(device.exec());
  const OneDnnThreads guard(threads);
  if constexpr (std::is_same_v<T, float>)
    if (bias == nullptr && (s.transpose_a || !s.transpose_b))  // plain sgemm is 1 to 5 % faster there, not for a b^T
      return OneDnn::run_sgemm(s, a, b, c);
  constexpr auto type_of = []<class N>(const N*) { return std::is_same_v<N, bfloat16> ? OneDnn::Type::bf16 : OneDnn::Type::f32; };
  device.template cache<OneDnn>().run(s, type_of(a), type_of(c), threads, a, b, c, bias);
}
#endif

}  // namespace weft::kernels::detail
#undef WEFT_DETAIL_ONEDNN
