// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrix products by oneDNN 2.6 and 3.x. Creating a primitive takes longer than a small product, so each device caches its
// primitives by shape and types. Uses oneDNN's C interface: the C++ header costs each program half a second of compile time.

#include <dnnl.h>
#include <dnnl_version.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <weft/core/checked.hpp>
#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/matmul_loops.hpp>

namespace weft::kernels::detail {

/// Sets oneDNN's number of threads for the calling thread. oneDNN reads it from OpenMP, which stores it per thread.
class OneDnnThreads {
 public:
#ifdef _OPENMP
  explicit OneDnnThreads(int threads) : before_(omp_get_max_threads()), now_(threads) {
    if (before_ != now_) omp_set_num_threads(now_);
  }
  ~OneDnnThreads() {
    if (before_ != now_) omp_set_num_threads(before_);
  }
  OneDnnThreads(const OneDnnThreads&) = delete;
  OneDnnThreads& operator=(const OneDnnThreads&) = delete;

 private:
  int before_, now_;
#else
  explicit OneDnnThreads(int) {}
#endif
};

/// A matrix in oneDNN's terms.
class OneDnnMatrix {
 public:
  OneDnnMatrix() = default;
  OneDnnMatrix(const OneDnnMatrix&) = delete;
  OneDnnMatrix& operator=(const OneDnnMatrix&) = delete;
#if DNNL_VERSION_MAJOR >= 3
  ~OneDnnMatrix() {
    if (description_ != nullptr) dnnl_memory_desc_destroy(description_);
  }
  const_dnnl_memory_desc_t get() const { return description_; }
#else
  const dnnl_memory_desc_t* get() const { return &description_; }
#endif
  dnnl_status_t describe(std::size_t rows, std::size_t columns, dnnl_data_type_t type, std::size_t row_stride,
                         std::size_t column_stride) {
    const dnnl_dims_t extents = {dim(rows), dim(columns)}, strides = {dim(row_stride), dim(column_stride)};
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_strides(&description_, 2, extents, type, strides);
#else
    return dnnl_memory_desc_init_by_strides(&description_, 2, extents, type, strides);
#endif
  }
  static dnnl_dim_t dim(std::size_t n) { return weft::detail::narrow<dnnl_dim_t>(n); }

 private:
  dnnl_memory_desc_t description_ = {};
};

/// Bytes of oneDNN's scratch memory for a primitive.
std::size_t bytes_beside(const_dnnl_primitive_desc_t of);

/// The primitives of one thread of a device: oneDNN allocates their scratch memory for the thread that creates them. No
/// templates: compiled once for all types.
class OneDnn {
 public:
  using Type = dnnl_data_type_t;
  static constexpr Type bf16 = dnnl_bf16, f32 = dnnl_f32;

  OneDnn();
  OneDnn(const OneDnn&) = delete;
  OneDnn& operator=(const OneDnn&) = delete;
  ~OneDnn() {
    for (auto& bucket : products_) bucket.clear();
    if (stream_ != nullptr) dnnl_stream_destroy(stream_);
    if (engine_ != nullptr) dnnl_engine_destroy(engine_);
  }

  /// Runs the product of one shape; adds to `c` if shape.accumulate is set; `bias` may be null.
  void run(const MatmulShape& s, Type type, Type c_type, const void* a, const void* b, void* c, const void* bias);

  /// False on processors on which oneDNN has no products of bfloat16: those without AVX-512, for example.
  static bool multiplies_bfloat16();
  /// Plain sgemm, without a primitive.
  static void run_sgemm(const MatmulShape& s, const float* a, const float* b, float* c);

 private:
  struct Key {
    MatmulShape shape;
    Type type, c_type;
    bool bias;
    bool operator==(const Key&) const = default;
    std::size_t bucket() const;
  };
  struct Product {
    explicit Product(const Key& k) : key(k) {}
    Product(const Product&) = delete;
    Product& operator=(const Product&) = delete;
    ~Product() {
      if (primitive != nullptr) dnnl_primitive_destroy(primitive);
      for (const dnnl_memory_t memory : {a, b, c, bias})
        if (memory != nullptr) dnnl_memory_destroy(memory);
    }
    const Key key;
    dnnl_primitive_t primitive = nullptr;
    dnnl_memory_t a = nullptr, b = nullptr, c = nullptr, bias = nullptr;
  };
  // Objects that exist only while a primitive is created.
  struct Making {
    Making() = default;
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;
    ~Making() {
      if (description != nullptr) dnnl_primitive_desc_destroy(description);
      if (attributes != nullptr) dnnl_primitive_attr_destroy(attributes);
      if (operations != nullptr) dnnl_post_ops_destroy(operations);
    }
    OneDnnMatrix a, b, c, bias;
    dnnl_post_ops_t operations = nullptr;
    dnnl_primitive_attr_t attributes = nullptr;
    dnnl_primitive_desc_t description = nullptr;
  };
  static constexpr std::size_t buckets = 64, most_in_bucket = 32;

  static void check(dnnl_status_t status, const MatmulShape& s);

  Product& find(const Key& key);

  dnnl_status_t describe(Making& making, const Key& key) const;
  void make(Product& product) const;

  dnnl_engine_t engine_ = nullptr;
  dnnl_stream_t stream_ = nullptr;
  std::vector<std::unique_ptr<Product>> products_[buckets];
};

struct OneDnnOfThreads {
  std::unique_ptr<OneDnn[]> threads;
};

/// A product of one thread.
template <class T, class C>
void matmul_onednn(OneDnn& products, const MatmulShape& s, const T* a, const T* b, C* c, const T* bias) {
  const OneDnnThreads alone(1);
  if constexpr (std::is_same_v<T, float>)
    if (bias == nullptr && (s.transpose_a || !s.transpose_b))  // plain sgemm is 1 to 5 % faster here, but not for a b^T
      return OneDnn::run_sgemm(s, a, b, c);
  constexpr auto type_of = []<class N>(const N*) { return std::is_same_v<N, bfloat16> ? OneDnn::bf16 : OneDnn::f32; };
  products.run(s, type_of(a), type_of(c), a, b, c, bias);
}

/// Each thread computes some rows of c, often those that it reads in the next loop, or columns if there are few rows.
template <class T, class C, class Exec>
void matmul_onednn(Device<Exec>& device, const MatmulShape& s, const T* a, const T* b, C* c, const T* bias) {
  constexpr std::size_t least_rows = 32, step = 16;  // a register or two
  OneDnnOfThreads& products = device.template cache<OneDnnOfThreads>();
  const std::size_t threads = std::size_t(device.threads());
  if (products.threads == nullptr) products.threads = std::make_unique<OneDnn[]>(threads);
  const std::size_t pieces = threads_for(device, s.m * s.n * s.k);
  const bool by_rows = s.m >= least_rows * pieces || s.m >= s.n;
  const std::size_t whole = by_rows ? s.m : s.n, each = ((whole + pieces - 1) / pieces + step - 1) / step * step;
  for_each_piece(
      device, {"product", matmul_bytes<T, C>(s)}, (whole + each - 1) / each, [&](std::size_t piece, std::size_t thread) {
        const std::size_t first = piece * each, count = std::min(each, whole - first);
        MatmulShape part = s;
        (by_rows ? part.m : part.n) = count;
        if (by_rows)
          matmul_onednn(products.threads[thread], part, a + first * (s.transpose_a ? 1 : s.lda), b, c + first * s.ldc, bias);
        else
          matmul_onednn(products.threads[thread], part, a, b + first * (s.transpose_b ? s.ldb : 1), c + first,
                        bias == nullptr ? bias : bias + first);
      });
}

}  // namespace weft::kernels::detail

#ifndef WEFT_COMPILED
#include <weft/kernels/detail/matmul_onednn_impl.hpp>
#endif
