// SPDX-License-Identifier: Apache-2.0
#pragma once
// The creation and the execution of oneDNN's products. Definitions for kernels/detail/matmul_onednn.hpp.

#include <cstdint>

#include <weft/core/inline.hpp>
#include <weft/kernels/detail/matmul_onednn.hpp>
#include <weft/kernels/detail/onednn_room.hpp>

namespace weft::kernels::detail {

WEFT_INLINE OneDnn::OneDnn() {
  const OneDnnRoom room;
  check(dnnl_engine_create(&engine_, dnnl_cpu, 0), {});
  check(dnnl_stream_create(&stream_, engine_, dnnl_stream_default_flags), {});
}

WEFT_INLINE void OneDnn::check(dnnl_status_t status, const MatmulShape& s) {
  if (status == dnnl_out_of_memory)
    throw_error<MemoryError>({"out of memory: the host has no room for a product of oneDNN, m ", s.m, ", n ", s.n, ", k ", s.k,
                              ": fewer ranks on this machine, a smaller model or micro-batch, or a higher limit (ulimit -v)"});
  if (status != dnnl_success)
    throw_error<Error>({"matmul: oneDNN failed with status ", int(status), " for m ", s.m, ", n ", s.n, ", k ", s.k});
}

WEFT_COLD WEFT_INLINE std::size_t bytes_beside(const_dnnl_primitive_desc_t of) {
  std::int64_t bytes = 0;
  const bool known = dnnl_primitive_desc_query(of, dnnl_query_memory_consumption_s64, 0, &bytes) == dnnl_success;
  return known && bytes > 0 ? std::size_t(bytes) : 0;
}

WEFT_COLD WEFT_INLINE dnnl_status_t OneDnn::describe(Making& making, const Key& key) const {
  const MatmulShape& s = key.shape;
  check(making.a.describe(s.m, s.k, key.type, s.transpose_a ? 1 : s.lda, s.transpose_a ? s.lda : 1), s);
  check(making.b.describe(s.k, s.n, key.type, s.transpose_b ? 1 : s.ldb, s.transpose_b ? s.ldb : 1), s);
  check(making.c.describe(s.m, s.n, key.c_type, s.ldc, 1), s);
  if (key.bias) check(making.bias.describe(1, s.n, key.type, s.n, 1), s);
  check(dnnl_primitive_attr_create(&making.attributes), s);
  if (s.accumulate) {
    check(dnnl_post_ops_create(&making.operations), s);
#if DNNL_VERSION_MAJOR >= 3
    check(dnnl_post_ops_append_sum(making.operations, 1.f, 0, dnnl_data_type_undef), s);
#else
    check(dnnl_post_ops_append_sum(making.operations, 1.f), s);
#endif
    check(dnnl_primitive_attr_set_post_ops(making.attributes, making.operations), s);
  }
  const auto bias = key.bias ? making.bias.get() : nullptr;
#if DNNL_VERSION_MAJOR >= 3
  return dnnl_matmul_primitive_desc_create(&making.description, engine_, making.a.get(), making.b.get(), bias, making.c.get(),
                                           making.attributes);
#else
  dnnl_matmul_desc_t operation;
  check(dnnl_matmul_desc_init(&operation, making.a.get(), making.b.get(), bias, making.c.get()), s);
  return dnnl_primitive_desc_create(&making.description, &operation, making.attributes, engine_, nullptr);
#endif
}

WEFT_COLD WEFT_INLINE void OneDnn::make(Product& product) const {
  const Key& key = product.key;
  const MatmulShape& s = key.shape;
  const OneDnnRoom room;
  Making making;
  check(describe(making, key), s);
  room.require(bytes_beside(making.description));
  check(dnnl_primitive_create(&product.primitive, making.description), s);
  check(dnnl_memory_create(&product.a, making.a.get(), engine_, DNNL_MEMORY_NONE), s);
  check(dnnl_memory_create(&product.b, making.b.get(), engine_, DNNL_MEMORY_NONE), s);
  check(dnnl_memory_create(&product.c, making.c.get(), engine_, DNNL_MEMORY_NONE), s);
  if (key.bias) check(dnnl_memory_create(&product.bias, making.bias.get(), engine_, DNNL_MEMORY_NONE), s);
}

WEFT_COLD WEFT_INLINE bool OneDnn::multiplies_bfloat16() {
  static const bool known = [] {
    const OneDnn products;
    const OneDnnRoom room;
    constexpr std::size_t n = 32;
    const MatmulShape shape{
        .transpose_a = false, .transpose_b = false, .m = n, .n = n, .k = n, .lda = n, .ldb = n, .ldc = n, .accumulate = false};
    Making making;
    return products.describe(making, {shape, bf16, bf16, false}) != dnnl_unimplemented;
  }();
  return known;
}

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

/// Makes oneDNN generate the kernels of sgemm, which it otherwise does in the first calls of a process.
WEFT_COLD WEFT_INLINE bool make_sgemm() {
  const OneDnnRoom room;
  constexpr dnnl_dim_t n = 32;
  const std::vector<float> ones(n * n, 1.f);
  std::vector<float> sum(n * n);
  bool made = true;
  for (const dnnl_dim_t columns : {dnnl_dim_t(1), n})
    for (const char a : {'N', 'T'})
      for (const char b : {'N', 'T'})
        for (const float beta : {0.f, 1.f})
          made =
              dnnl_sgemm(a, b, n, columns, n, 1.f, ones.data(), n, ones.data(), n, beta, sum.data(), n) == dnnl_success && made;
  if (!made) throw_error<MemoryError>({"out of memory: the host has no room for oneDNN's first product"});
  return true;
}

WEFT_INLINE void OneDnn::run_sgemm(const MatmulShape& s, const float* a, const float* b, float* c) {
  constexpr auto dim = OneDnnMatrix::dim;
  [[maybe_unused]] static const bool made = make_sgemm();
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
  // Decoding has a new shape at each step, so a full cache is cleared.
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
