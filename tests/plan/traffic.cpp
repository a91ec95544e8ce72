// SPDX-License-Identifier: Apache-2.0
// The bytes that kernels declare, counted by hand for small shapes, and summed by kind in a rehearsal.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <weft/runtime/rehearse.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

/// The notes of one call: its launches and bytes, all of one kind.
template <class F>
void check(const char* kind, double bytes, const F& call, std::uint64_t launches = 1) {
  Rehearsal notes;
  DefaultDevice device;
  device.rehearse(notes);
  call(device);
  INFO(kind);
  CHECK(notes.kernels.size() == 1);
  CHECK(notes.of(kind).launches == launches);
  CHECK(notes.of(kind).bytes == bytes);
  CHECK(notes.launches == launches);
  CHECK(notes.kernel_bytes == bytes);
}

template <class T>
T* none = nullptr;
const std::int32_t* const ids = nullptr;

}  // namespace

TEST_CASE("elements and casts") {
  using namespace kernels;
  check("fill", 400, [](auto& d) { fill(d, 100, none<float>, 1.0f); });
  check("elementwise", 1200, [](auto& d) { add(d, 100, none<float>, none<float>, none<float>); });
  check("elementwise", 800, [](auto& d) { scale(d, 100, 2.0f, none<float>, none<float>); });
  check("elementwise", 1000, [](auto& d) { accumulate(d, 100, none<bfloat16>, none<float>); });
  check("elementwise", 8 * 10 * 2 * 4 + 10 * 4, [](auto& d) { add_row(d, 8, 10, none<float>, none<float>, none<float>); });
  check("cast", 600, [](auto& d) { cast(d, 100, none<float>, none<bfloat16>); });
  check("activation", 800, [](auto& d) { gelu_forward(d, 100, none<float>, none<float>); });
  check("activation", 8 * 10 * 3 * 2,
        [](auto& d) { swiglu_forward(d, 8, 10, none<bfloat16>, 20, none<bfloat16>, 20, none<bfloat16>); });
  check("copy", 8 * 10 * 4 * 2, [](auto& d) { weft::detail::copy_rows(d, 8, 10, none<float>, 10, none<float>, 20); });
  check("dropout", 8 * 10 * 4 * 2, [](auto& d) { dropout(d, 8, 10, none<float>, none<float>, 0.1, 1, 0, 0, 10); });
  const float* const residual = reinterpret_cast<const float*>(64);  // never read
  check("dropout", 8 * 10 * 4 * 3, [=](auto& d) { dropout(d, 8, 10, none<float>, none<float>, 0.1, 1, 0, 0, 10, residual); });
}

TEST_CASE("rows: norms, softmax, cross-entropy, embeddings, rotations") {
  using namespace kernels;
  // 8 rows of 16: x and y, gain and bias, mean and 1 / deviation.
  check("norm", 2 * 512 + 2 * 64 + 2 * 32, [](auto& d) {
    layer_norm_forward(d, 8, 16, none<float>, none<float>, none<float>, none<float>, none<float>, none<float>, 1e-5);
  });
  for (const bool more : {false, true}) {
    // x, the gain, both statistics and dy; dx; the gradient of x's other uses.
    const float* const others = more ? reinterpret_cast<const float*>(64) : nullptr;  // never read
    check("norm", (more ? 4 : 3) * 512 + 64 + 64, [=](auto& d) {
      layer_norm_backward_input(d, 8, 16, none<float>, none<float>, none<float>, none<float>, none<float>, none<float>, others);
    });
    check("norm", (more ? 4 : 3) * 512 + 64 + 32, [=](auto& d) {
      rms_norm_backward_input(d, 8, 16, none<float>, none<float>, none<float>, none<float>, none<float>, others);
    });
    check("norm", 2 * 512 + 64 + (more ? 2 : 1) * 2 * 64, [=](auto& d) {
      layer_norm_backward_weight(d, 8, 16, none<float>, none<float>, none<float>, none<float>, none<float>, none<float>, more);
    });
    check("reduction", 512 + (more ? 2 : 1) * 64, [=](auto& d) { column_sums(d, 8, 16, none<float>, 16, none<float>, more); });
  }
  check("norm", 2 * 256 + 32 + 32,
        [](auto& d) { rms_norm_forward(d, 8, 16, none<bfloat16>, none<bfloat16>, none<bfloat16>, none<float>, 1e-5); });
  // Norm of a sum: both terms are read, the sum and y are written; separate sum and norm kernels touch five matrices.
  check("norm", 4 * 512 + 2 * 64 + 2 * 32, [](auto& d) {
    layer_norm_sum_forward(d, 8, 16, none<float>, none<float>, none<float>, none<float>, none<float>, none<float>, none<float>,
                           none<float>, 1e-5);
  });
  check("norm", 4 * 256 + 32 + 32, [](auto& d) {
    rms_norm_sum_forward(d, 8, 16, none<bfloat16>, none<bfloat16>, none<bfloat16>, none<bfloat16>, none<bfloat16>, none<float>,
                         1e-5);
  });
  check("softmax", 2 * 512, [](auto& d) { softmax_along<false>(d, {8, 16, 1}, none<float>, none<float>); });
  // 4 rows of 10 columns, 8 of them classes: the maximum; then the sums and the target's logit; then the gradient.
  check("cross_entropy", 4 * (8 * 4 + 4), [](auto& d) { row_max(d, 4, 10, 8, none<float>, none<float>); });
  check("cross_entropy", 4 * (8 * 4 + 4 + 4 + 2 * 4),
        [](auto& d) { softmax_sums(d, 4, 10, 8, none<float>, none<float>, ids, 0, none<float>, none<float>); });
  check("cross_entropy", 4 * (8 * 4 + 2 * 4 + 4 + 10 * 4), [](auto& d) {
    cross_entropy_gradient(d, 4, 10, 8, none<float>, none<float>, none<float>, ids, 0, none<double>, none<float>);
  });
  check("embedding", 6 * (4 + 2 * 5 * 4), [](auto& d) { embedding_forward(d, 6, 5, ids, none<float>, 0, 9, none<float>); });
  check("embedding", 6 * (4 + 5 * 4 + 2 * 5 * 4),
        [](auto& d) { embedding_backward(d, 6, 5, ids, none<float>, 0, 9, none<float>); });
  check("rope", 8 * (2 * 4 * 16 * 4 + 4),
        [](auto& d) { rope(d, 8, 4, 16, none<float>, 64, none<float>, 64, ids, RopeFrequencies(), false); });
  check("routing", 6 * (5 * 4 + 5 * 4 + 4 + 2 * (4 + 4)), [](auto& d) {
    route(d, 6, 5, 2, none<float>, none<float>, true, none<float>, none<float>, none<std::int32_t>, none<float>);
  });
  check("quantise", 512 * (4 + 1) + 2 * 4, [](auto& d) { quantise(d, 512, none<float>, none<std::int8_t>, none<float>); });
}

TEST_CASE("products and attention") {
  using namespace kernels;
  check("product", (32 * 8 + 8 * 16) * 4 + 2 * 32 * 16 * 4, [](auto& d) {
    matmul<float, float>(d, Transpose::no, Transpose::no, 32, 16, 8, none<float>, 8, none<float>, 16, none<float>, 16, true);
  });
  check("product", (32 * 8 + 8 * 16) * 2 + 32 * 16 * 4, [](auto& d) {
    matmul<bfloat16, float>(d, Transpose::no, Transpose::no, 32, 16, 8, none<bfloat16>, 8, none<bfloat16>, 16, none<float>, 16);
  });
  // 2 sequences of 8 tokens, 4 query heads and 2 key heads of width 16.
  const AttentionExtents extents{.sequences = 2, .length = 8, .heads = 4, .kv_heads = 2, .head_width = 16};
  const double queries = 2 * 8 * 4 * 16 * 4, keys = queries / 2, statistics = 2 * 8 * 4 * 4;
  const AttentionOperands<const float> in{.q_stride = 64, .k_stride = 32, .v_stride = 32};
  check("attention", 2 * queries + 2 * keys + statistics, [&](auto& d) {
    attention_forward(d, extents, in, StridedRows<float>{nullptr, 64}, none<float>, {.causal = true});
  });
  const AttentionOperands<float> gradients{.q_stride = 64, .k_stride = 32, .v_stride = 32};
  const StridedRows<const float> rows{nullptr, 64};
  check("attention", 4 * queries + 4 * keys + statistics, [&](auto& d) {
    attention_backward(d, extents, in, rows, rows, static_cast<const float*>(nullptr), gradients, {.causal = true});
  });
}

TEST_CASE("optimizers") {
  using namespace kernels;
  check("gradient_norm", 400, [](auto& d) { squared_norm(d, 100, static_cast<const float*>(nullptr), none<double>); });
  // Gradient, two moments and the parameter; all except the gradient are written back.
  check("optimizer", 100 * (4 + 2 * 4 + 2 * 4 + 2 * 4), [](auto& d) {
    adamw_update(d, 100, none<float>, none<float>, static_cast<const float*>(nullptr), none<float>, none<float>, {});
  });
  // With a master copy the bfloat16 parameter is read to detect a value that the program wrote.
  Rehearsal notes;
  DefaultDevice device;
  device.rehearse(notes);
  const weft::detail::Buffer memory = device.allocate(4096);
  adamw_update(device, 100, static_cast<bfloat16*>(memory.get()), static_cast<float*>(memory.get()),
               static_cast<const float*>(nullptr), none<float>, none<float>, {});
  CHECK(notes.kernel_bytes == 100 * (4 + 4 * 4 + 2 * 4 + 2 * 2));
}

TEST_CASE("a step's kernels by kind add up to all, in notes, table and JSON") {
  constexpr std::size_t layers = 2, width = 32, sequences = 2, length = 16, vocabulary = 96;
  // Tied embedding, positions, last norm; of each layer four matrices with biases and two norms.
  constexpr std::size_t parameters = (vocabulary + length + 2) * width + layers * (12 * width * width + 13 * width);
  const Rehearsal notes = rehearse({}, [&](World& world) {
    SingleDevice<models::Gpt> model(
        world.device(),
        models::GptConfig{.vocabulary = vocabulary, .layers = layers, .width = width, .heads = 4, .sequence = length});
    optim::AdamW optimizer(model, {.clip = 1.0});
    Batch batch{.sequences = sequences, .length = length, .micro_batches = 1};
    batch.tokens.assign(sequences * length, 1);
    batch.targets.assign(sequences * length, 2);
    model.train_step(batch);
    optimizer.step();
  });
  std::uint64_t launches = 0;
  double bytes = 0;
  for (const Rehearsal::Kernels& one : notes.kernels) {
    INFO(std::string(one.kind));
    CHECK(one.launches > 0);
    CHECK(one.bytes > 0);
    launches += one.launches;
    bytes += one.bytes;
  }
  CHECK(launches == notes.launches);
  CHECK(bytes == notes.kernel_bytes);
  CHECK(notes.of("product").launches == notes.products);
  CHECK(notes.of("product").bytes == notes.product_bytes);
  CHECK(notes.of("attention").launches == 2 * layers);
  // The forward, input gradient and gains of each norm, once. Matrices of a block: the first norm 2, the second, which is of a
  // sum, 4; gradients with those of the residual connection 4 each; gains 2 each. Matrices of the last norm: 2, 3 and 2.
  constexpr double matrix = 4.0 * sequences * length * width, row = 4.0 * width, column = 4.0 * sequences * length;
  CHECK(notes.of("norm").launches == 3 * (2 * layers + 1));
  CHECK(notes.of("norm").bytes == (18 * layers + 7) * matrix + (2 * layers + 1) * (5 * row + 6 * column));
  // The sums of tokens and positions, and at the end of each block.
  CHECK(notes.of("elementwise").launches == 1 + layers);
  CHECK(notes.of("elementwise").bytes == (1 + layers) * 3 * matrix);
  CHECK(notes.of("optimizer").bytes == 28.0 * double(parameters));
  CHECK(notes.of("gradient_norm").bytes == 4.0 * double(parameters));
  CHECK(notes.of("nothing").launches == 0);
  const nlohmann::json json = nlohmann::json::parse(runtime::json_of(notes));
  CHECK(json["kernel_bytes"].get<double>() == notes.kernel_bytes);
  CHECK(json["kernels"].size() == notes.kernels.size());
  CHECK(json["kernels"][0]["bytes"].get<double>() == notes.kernels[0].bytes);
  CHECK(runtime::table_of(notes).find("cross_entropy") != std::string::npos);
}
