// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for kernels/detail/matmul_onednn.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/kernels/detail/matmul_onednn.hpp>

namespace weft::kernels::detail {

WEFT_INLINE void OneDnn::run(const MatmulShape& s, Type type, Type c_type, const void* a, const void* b, void* c,
                             const void* bias) {
  const Product& product = find(Key{s, type, c_type, bias != nullptr});
  dnnl_memory_set_data_handle(product.a, const_cast<void*>(a));
  dnnl_memory_set_data_handle(product.b, const_cast<void*>(b));
  dnnl_memory_set_data_handle(product.c, c);
  if (bias != nullptr) dnnl_memory_set_data_handle(product.bias, const_cast<void*>(bias));
  const dnnl_exec_arg_t arguments[] = {
      {DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.c}, {DNNL_ARG_BIAS, product.bias}};
  check(dnnl_primitive_execute(product.primitive, stream_, bias != nullptr ? 4 : 3, arguments), s);
}

WEFT_INLINE void OneDnn::run_sgemm(const MatmulShape& s, const float* a, const float* b, float* c) {
  constexpr auto dim = OneDnnMatrix::dim;
  check(dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', dim(s.m), dim(s.n), dim(s.k), 1.f, a, dim(s.lda), b,
                   dim(s.ldb), s.accumulate ? 1.f : 0.f, c, dim(s.ldc)),
        s);
}

WEFT_INLINE std::size_t OneDnn::Key::bucket() const {
  std::size_t hash = shape.m;
  for (const std::size_t n : {shape.n, shape.k, shape.lda, shape.ldb, shape.ldc}) hash = hash * 31 + n;
  return (hash ^ (hash >> 13)) % buckets;
}

WEFT_INLINE OneDnn::Product& OneDnn::find(const Key& key) {
  std::vector<std::unique_ptr<Product>>& bucket = products_[key.bucket()];
  for (const auto& product : bucket)
    if (product->key == key) return *product;
  // Growing text has a new shape at each step, so the cache is emptied when it is full.
  if (bucket.size() >= most_in_bucket) bucket.clear();
  bucket.push_back(std::unique_ptr<Product>(new Product(key)));
  try {
    make(*bucket.back());
  } catch (...) {
    bucket.pop_back();
    throw;
  }
  return *bucket.back();
}

}  // namespace weft::kernels::detail
