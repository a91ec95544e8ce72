// SPDX-License-Identifier: Apache-2.0
#pragma once
// The creation and the execution of oneDNN's convolutions. Definitions for kernels/detail/convolution_onednn.hpp.

#include <string_view>
#include <utility>

#include <weft/core/inline.hpp>
#include <weft/kernels/detail/convolution_onednn.hpp>
#include <weft/kernels/detail/onednn_room.hpp>

namespace weft::kernels::detail {

/// True if oneDNN runs this by its plain loops over elements, a hundred times slower than its other implementations.
WEFT_INLINE bool is_plain_loop(const_dnnl_primitive_desc_t description) {
  const char* name = nullptr;
  return dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
         std::string_view(name).starts_with("ref");
}

/// One operand: in the caller's layout, and in the primitive's.
struct OneDnnOperand {
  OneDnnLayout plain;
  dnnl_memory_t outside = nullptr, inside = nullptr;
  dnnl_primitive_t reorder = nullptr;  // null if both layouts are equal
  std::size_t bytes = 0;               // of `inside`, if it is separate memory
  bool written = false;
  ~OneDnnOperand() {
    if (reorder != nullptr) dnnl_primitive_destroy(reorder);
    for (const dnnl_memory_t memory : {outside, inside})
      if (memory != nullptr) dnnl_memory_destroy(memory);
  }
};

struct OneDnnConvolutions::Convolution {
  ConvolutionShape shape;
  ConvolutionPass pass;
  Type type, w_type;
  bool with_bias;
  int threads;
  bool served = false;
  dnnl_primitive_t primitive = nullptr;
  OneDnnOperand x, w, y;
  OneDnnLayout bias_layout;
  dnnl_memory_t bias = nullptr;

  ~Convolution() {
    if (bias != nullptr) dnnl_memory_destroy(bias);
    if (primitive != nullptr) dnnl_primitive_destroy(primitive);
  }
  bool is(const ConvolutionShape& s, ConvolutionPass p, Type t, Type wt, bool b, int n) const {
    return shape == s && pass == p && type == t && w_type == wt && with_bias == b && threads == n;
  }
  void check(dnnl_status_t status) const {
    if (status == dnnl_out_of_memory)
      throw_error<MemoryError>({"out of memory: the host has no room for a convolution of oneDNN, ", shape.samples,
                                " samples, channels ", shape.in, " to ", shape.out,
                                ": fewer ranks on this machine, a smaller model or micro-batch, or a higher limit (ulimit -v)"});
    if (status != dnnl_success)
      throw_error<Error>({"conv2d: oneDNN failed with status ", int(status), " for ", shape.samples, " samples, channels ",
                          shape.in, " to ", shape.out, ", image ", shape.extents[0], " x ", shape.extents[1], " x ",
                          shape.extents[2]});
  }
  void make(dnnl_engine_t engine);
  void connect(dnnl_engine_t engine, OneDnnOperand& operand, OneDnnLayout::handle wanted);
  dnnl_status_t describe(dnnl_engine_t engine, dnnl_primitive_desc_t& description, dnnl_primitive_desc_t hint, ConvolutionPass of,
                         const OneDnnLayout& any_x, const OneDnnLayout& any_w, const OneDnnLayout& any_y) const;
  // Creates forward in the image layouts that backward chooses: oneDNN 2.6's own choice for floats takes up to 1.8 times as long.
  // Leaves null if there is no such forward, or only plain loops, as for three-dim images of 4 channels.
  void take_layouts_of_backward(dnnl_engine_t engine, dnnl_primitive_desc_t& description, const OneDnnLayout& any_x,
                                const OneDnnLayout& any_w, const OneDnnLayout& any_y) const;
};

WEFT_INLINE OneDnnConvolutions::OneDnnConvolutions() {
  const OneDnnRoom room;
  if (dnnl_engine_create(&engine_, dnnl_cpu, 0) != dnnl_success ||
      dnnl_stream_create(&stream_, engine_, dnnl_stream_default_flags) != dnnl_success)
    throw_error<Error>({"conv2d: oneDNN has no engine for this processor"});
}
WEFT_INLINE OneDnnConvolutions::~OneDnnConvolutions() {
  convolutions_.clear();
  if (stream_ != nullptr) dnnl_stream_destroy(stream_);
  if (engine_ != nullptr) dnnl_engine_destroy(engine_);
}

WEFT_INLINE dnnl_status_t OneDnnConvolutions::Convolution::describe(dnnl_engine_t engine, dnnl_primitive_desc_t& description,
                                                                    [[maybe_unused]] dnnl_primitive_desc_t hint,
                                                                    ConvolutionPass of, const OneDnnLayout& any_x,
                                                                    const OneDnnLayout& any_w, const OneDnnLayout& any_y) const {
  constexpr auto dim = OneDnnMatrix::dim;
  const ConvolutionShape& s = shape;
  dnnl_dims_t strides = {}, before = {}, dilates = {}, behind = {};
  for (std::size_t i = 0; i < s.dims; ++i) {
    const std::size_t d = s.most_dims - s.dims + i;
    strides[i] = dim(s.stride[d]);
    before[i] = dim(s.before[d]);
    dilates[i] = dim(s.dilation[d] - 1);
    // The padding that is read after the last element: less than s.after if the stride leaves a remainder.
    behind[i] = dim((s.out_extent(d) - 1) * s.stride[d] + s.reach(d)) - dim(s.extents[d]) - dim(s.before[d]);
  }
  const bool biased = with_bias && of == ConvolutionPass::forward;
  const OneDnnLayout::handle bias_of = biased ? bias_layout.get() : nullptr;
  const auto kind = pass == ConvolutionPass::forward ? dnnl_forward_inference : dnnl_forward_training;
#if DNNL_VERSION_MAJOR >= 3
  switch (of) {
    case ConvolutionPass::forward:
      return dnnl_convolution_forward_primitive_desc_create(&description, engine, kind, dnnl_convolution_direct, any_x.get(),
                                                            any_w.get(), bias_of, any_y.get(), strides, dilates, before, behind,
                                                            nullptr);
    case ConvolutionPass::input:
      return dnnl_convolution_backward_data_primitive_desc_create(&description, engine, dnnl_convolution_direct, any_x.get(),
                                                                  any_w.get(), any_y.get(), strides, dilates, before, behind,
                                                                  hint, nullptr);
    default:
      return dnnl_convolution_backward_weights_primitive_desc_create(&description, engine, dnnl_convolution_direct, any_x.get(),
                                                                     any_w.get(), nullptr, any_y.get(), strides, dilates, before,
                                                                     behind, hint, nullptr);
  }
#else
  dnnl_convolution_desc_t operation;
  const dnnl_status_t status =
      of == ConvolutionPass::forward
          ? dnnl_dilated_convolution_forward_desc_init(&operation, kind, dnnl_convolution_direct, any_x.get(), any_w.get(),
                                                       bias_of, any_y.get(), strides, dilates, before, behind)
      : of == ConvolutionPass::input
          ? dnnl_dilated_convolution_backward_data_desc_init(&operation, dnnl_convolution_direct, any_x.get(), any_w.get(),
                                                             any_y.get(), strides, dilates, before, behind)
          : dnnl_dilated_convolution_backward_weights_desc_init(&operation, dnnl_convolution_direct, any_x.get(), any_w.get(),
                                                                nullptr, any_y.get(), strides, dilates, before, behind);
  return status != dnnl_success ? status : dnnl_primitive_desc_create(&description, &operation, nullptr, engine, hint);
#endif
}

WEFT_INLINE void OneDnnConvolutions::Convolution::connect(dnnl_engine_t engine, OneDnnOperand& operand,
                                                          OneDnnLayout::handle wanted) {
  check(dnnl_memory_create(&operand.outside, operand.plain.get(), engine, DNNL_MEMORY_NONE));
  if (dnnl_memory_desc_equal(operand.plain.get(), wanted)) return;
  check(dnnl_memory_create(&operand.inside, wanted, engine, DNNL_MEMORY_NONE));
  operand.bytes = dnnl_memory_desc_get_size(wanted);
  dnnl_primitive_desc_t description = nullptr;
  check(operand.written ? dnnl_reorder_primitive_desc_create(&description, wanted, engine, operand.plain.get(), engine, nullptr)
                        : dnnl_reorder_primitive_desc_create(&description, operand.plain.get(), engine, wanted, engine, nullptr));
  const dnnl_status_t status = dnnl_primitive_create(&operand.reorder, description);
  dnnl_primitive_desc_destroy(description);
  check(status);
}

WEFT_INLINE void OneDnnConvolutions::Convolution::take_layouts_of_backward(dnnl_engine_t engine,
                                                                           dnnl_primitive_desc_t& description,
                                                                           const OneDnnLayout& any_x, const OneDnnLayout& any_w,
                                                                           const OneDnnLayout& any_y) const {
  struct Held {
    dnnl_primitive_desc_t of = nullptr;
    ~Held() {
      if (of != nullptr) dnnl_primitive_desc_destroy(of);
    }
  } forward, backward;
  if (describe(engine, forward.of, nullptr, ConvolutionPass::forward, any_x, any_w, any_y) != dnnl_success ||
      describe(engine, backward.of, forward.of, ConvolutionPass::weight, any_x, any_w, any_y) != dnnl_success)
    return;
  const OneDnnLayout x(dnnl_primitive_desc_query_md(backward.of, dnnl_query_src_md, 0)),
      y(dnnl_primitive_desc_query_md(backward.of, dnnl_query_diff_dst_md, 0));
  Held found;
  if (describe(engine, found.of, nullptr, ConvolutionPass::forward, x, any_w, y) == dnnl_success && !is_plain_loop(found.of))
    description = std::exchange(found.of, nullptr);
}

WEFT_INLINE void OneDnnConvolutions::Convolution::make(dnnl_engine_t engine) {
  constexpr auto dim = OneDnnMatrix::dim;
  const OneDnnRoom room;
  const ConvolutionShape& s = shape;
  const bool groups = s.groups > 1;
  const std::size_t first = groups ? 3 : 2;  // of the weights' spatial dims
  dnnl_dims_t images = {dim(s.samples), dim(s.in)}, results = {dim(s.samples), dim(s.out)}, channels = {dim(s.out)},
              weights = {dim(s.out), dim(s.in)};
  if (groups) weights[0] = dim(s.groups), weights[1] = dim(s.out / s.groups), weights[2] = dim(s.in / s.groups);
  for (std::size_t i = 0; i < s.dims; ++i) {
    const std::size_t d = s.most_dims - s.dims + i;
    images[2 + i] = dim(s.extents[d]);
    results[2 + i] = dim(s.out_extent(d));
    weights[first + i] = dim(s.kernel[d]);
  }
  constexpr dnnl_format_tag_t image_tags[] = {dnnl_ncw, dnnl_nchw, dnnl_ncdhw}, plain_tags[] = {dnnl_oiw, dnnl_oihw, dnnl_oidhw},
                              group_tags[] = {dnnl_goiw, dnnl_goihw, dnnl_goidhw};
  const auto image_tag = image_tags[s.dims - 1];
  OneDnnLayout any_x, any_w, any_y;
  const int rank = int(s.dims) + 2, w_rank = int(first + s.dims);
  check(any_x.describe(rank, images, type, dnnl_format_tag_any));
  check(any_w.describe(w_rank, weights, w_type, dnnl_format_tag_any));
  check(any_y.describe(rank, results, type, dnnl_format_tag_any));
  check(x.plain.describe(rank, images, type, image_tag));
  check(w.plain.describe(w_rank, weights, w_type, (groups ? group_tags : plain_tags)[s.dims - 1]));
  check(y.plain.describe(rank, results, type, image_tag));
  if (with_bias) check(bias_layout.describe(1, channels, type, dnnl_x));
  struct Descriptions {
    dnnl_primitive_desc_t hint = nullptr, own = nullptr;
    ~Descriptions() {
      for (const dnnl_primitive_desc_t one : {own, hint})
        if (one != nullptr) dnnl_primitive_desc_destroy(one);
    }
  } made;
  if (pass != ConvolutionPass::forward) {  // oneDNN requires forward's choice; its weights have the images' type
    OneDnnLayout forward_w;
    check(forward_w.describe(w_rank, weights, type, dnnl_format_tag_any));
    if (describe(engine, made.hint, nullptr, ConvolutionPass::forward, any_x, forward_w, any_y) != dnnl_success) return;
  }
  if (pass == ConvolutionPass::forward && type == dnnl_f32 && DNNL_VERSION_MAJOR < 3)
    take_layouts_of_backward(engine, made.own, any_x, any_w, any_y);
  if (made.own == nullptr && describe(engine, made.own, made.hint, pass, any_x, any_w, any_y) != dnnl_success) return;
  if (is_plain_loop(made.own)) return;  // the product of patches is faster
  const bool input = pass == ConvolutionPass::input, weight = pass == ConvolutionPass::weight;
  (input ? x : weight ? w : y).written = true;
  room.require(bytes_beside(made.own));
  check(dnnl_primitive_create(&primitive, made.own));
  connect(engine, x, dnnl_primitive_desc_query_md(made.own, input ? dnnl_query_diff_src_md : dnnl_query_src_md, 0));
  connect(engine, w, dnnl_primitive_desc_query_md(made.own, weight ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0));
  connect(
      engine, y,
      dnnl_primitive_desc_query_md(made.own, pass == ConvolutionPass::forward ? dnnl_query_dst_md : dnnl_query_diff_dst_md, 0));
  if (with_bias) check(dnnl_memory_create(&bias, bias_layout.get(), engine, DNNL_MEMORY_NONE));
  served = true;
}

WEFT_INLINE OneDnnConvolutions::Convolution* OneDnnConvolutions::find(const ConvolutionShape& s, ConvolutionPass pass, Type type,
                                                                      Type w_type, bool bias, int threads) {
  for (const auto& one : convolutions_)
    if (one->is(s, pass, type, w_type, bias, threads)) return one->served ? one.get() : nullptr;
  constexpr std::size_t most = 512;  // limit for programs with ever-changing image sizes
  if (convolutions_.size() >= most) convolutions_.clear();
  auto made = std::make_unique<Convolution>();
  made->shape = s;
  made->pass = pass;
  made->type = type;
  made->w_type = w_type;
  made->with_bias = bias;
  made->threads = threads;
  made->make(engine_);
  convolutions_.push_back(std::move(made));
  return convolutions_.back()->served ? convolutions_.back().get() : nullptr;
}

WEFT_INLINE std::size_t OneDnnConvolutions::scratch_bytes(const Convolution& convolution) {
  std::size_t bytes = 0;
  for (const OneDnnOperand* operand : {&convolution.x, &convolution.w, &convolution.y}) bytes += (operand->bytes + 63) / 64 * 64;
  return bytes;
}

WEFT_INLINE void OneDnnConvolutions::run(Convolution& convolution, void* x, void* w, void* y, const void* bias, void* scratch) {
  const auto move = [&](OneDnnOperand& operand) {
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, operand.written ? operand.inside : operand.outside},
                                         {DNNL_ARG_TO, operand.written ? operand.outside : operand.inside}};
    convolution.check(dnnl_primitive_execute(operand.reorder, stream_, 2, arguments));
  };
  const auto place = [&](OneDnnOperand& operand, void* data) {
    dnnl_memory_set_data_handle(operand.outside, data);
    if (operand.inside == nullptr) return operand.outside;
    dnnl_memory_set_data_handle(operand.inside, scratch);
    scratch = static_cast<std::byte*>(scratch) + (operand.bytes + 63) / 64 * 64;
    if (!operand.written) move(operand);
    return operand.inside;
  };
  const dnnl_memory_t images = place(convolution.x, x), weights = place(convolution.w, w), results = place(convolution.y, y);
  if (bias != nullptr) dnnl_memory_set_data_handle(convolution.bias, const_cast<void*>(bias));
  const ConvolutionPass pass = convolution.pass;
  const dnnl_exec_arg_t arguments[] = {{pass == ConvolutionPass::input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, images},
                                       {pass == ConvolutionPass::weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, weights},
                                       {pass == ConvolutionPass::forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, results},
                                       {DNNL_ARG_BIAS, convolution.bias}};
  convolution.check(dnnl_primitive_execute(convolution.primitive, stream_, bias != nullptr ? 4 : 3, arguments));
  for (OneDnnOperand* operand : {&convolution.x, &convolution.w, &convolution.y})
    if (operand->written && operand->inside != nullptr) move(*operand);
  dnnl_stream_wait(stream_);
}

}  // namespace weft::kernels::detail
