// SPDX-License-Identifier: Apache-2.0
#pragma once
// A graph of cuDNN operations on tensors with four dims, and the plan that runs it as one or a few kernels. It uses cuDNN's C
// interface (backend API, version 9), so it depends only on cuDNN.
//
//   cudnn::Graph graph(CUDNN_DATA_BFLOAT16);
//   const auto q = graph.memory(1, {b, h, s, d}, {...}), k = graph.memory(2, {b, h, d, s}, {...});
//   const auto scores = graph.multiply(q, k, graph.memory(3, {b, h, s, s}, {...}));
//   cudnn::Plan plan = graph.plan(handle, nullptr, false);
//   plan.run(handle, {1, 2, 3}, {q_pointer, k_pointer, scores_pointer}, workspace);

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include <weft/core/text.hpp>
#include <weft/device/cuda/runtime.hpp>

namespace weft::cudnn {

/// Throws CudaError unless `status` is success; `what` names the call.
WEFT_COLD inline void fail(cudnnStatus_t status, const char* what) {
  char reason[1024] = "";
  cudnnGetLastErrorString(reason, sizeof reason);
  throw_error<CudaError>({"cuda: cuDNN: ", what, " failed: ", cudnnGetErrorString(status), reason[0] == 0 ? "" : ", ", reason});
}
inline void check(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    fail(status, what);
}
inline void report(cudnnStatus_t status, const char* what) noexcept {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    std::fprintf(stderr, "weft: cuda: cuDNN: %s failed: %s\n", what, cudnnGetErrorString(status));
}

/// A descriptor of cuDNN's backend API.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    check(cudnnBackendCreateDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
  }
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() {
    if (descriptor_ != nullptr) report(cudnnBackendDestroyDescriptor(descriptor_), "cudnnBackendDestroyDescriptor");
  }

  cudnnBackendDescriptor_t get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ != nullptr; }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
    check(cudnnBackendSetAttribute(descriptor_, name, type, count, values), "cudnnBackendSetAttribute");
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.descriptor_);
  }
  void finalize(const char* what) { check(cudnnBackendFinalize(descriptor_), what); }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

/// cuDNN's properties of a GPU, from its JSON format: plans can then be made on a computer without that GPU.
inline Descriptor device_properties(const char* json, std::size_t length) {
  Descriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<std::int64_t>(length), json);
  properties.finalize("device properties");
  return properties;
}

/// A compiled graph for one GPU.
class Plan {
 public:
  Plan() = default;
  Plan(Descriptor plan, std::vector<std::pair<std::int64_t, float>> constants)
      : plan_(std::move(plan)), constants_(std::move(constants)) {
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                   &workspace_bytes_),
          "workspace size");
  }
  explicit operator bool() const { return bool(plan_); }
  std::size_t workspace_bytes() const { return static_cast<std::size_t>(workspace_bytes_); }

  /// Runs the graph on the handle's stream. `names` and `pointers` belong to the graph's inputs and outputs.
  void run(cudnnHandle_t handle, std::vector<std::int64_t> names, std::vector<void*> pointers, void* workspace) {
    for (auto& [name, value] : constants_) {
      names.push_back(name);
      pointers.push_back(&value);
    }
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, static_cast<std::int64_t>(names.size()), names.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<std::int64_t>(pointers.size()),
             pointers.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    pack.finalize("variant pack");
    check(cudnnBackendExecute(handle, plan_.get(), pack.get()), "cudnnBackendExecute");
  }

 private:
  Descriptor plan_;
  std::int64_t workspace_bytes_ = 0;
  std::vector<std::pair<std::int64_t, float>> constants_;  // values at addresses that stay valid during a run
};

using Dims = std::array<std::int64_t, 4>;

/// Strides of a contiguous tensor.
constexpr Dims contiguous(const Dims& dims) { return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}; }

class Graph {
 public:
  /// A tensor of this graph: its index in `tensors_`.
  struct Value {
    std::size_t index;
  };

  /// Inputs and outputs have the type `type`, intermediate tensors are float.
  explicit Graph(cudnnDataType_t type) : type_(type) {}

  /// A tensor in memory, which the caller identifies by `name` (> 0, < 1000) when the plan runs.
  Value memory(std::int64_t name, const Dims& dims, const Dims& strides, cudnnDataType_t type) {
    return add({name, dims, strides, type, false, false});
  }
  Value memory(std::int64_t name, const Dims& dims, const Dims& strides) { return memory(name, dims, strides, type_); }
  /// A number as a tensor.
  Value constant(float value) {
    constants_.emplace_back(next_, value);
    return add({next_++, {1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, false, true});
  }
  /// An intermediate tensor: the result of an operation and an input of the next one.
  Value between(const Dims& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT) { return between(dims, contiguous(dims), type); }
  Value between(const Dims& dims, const Dims& strides, cudnnDataType_t type) {
    return add({next_++, dims, strides, type, true, false});
  }

  Value multiply(Value a, Value b, Value to) {
    Descriptor kind(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    kind.finalize("matmul");
    Descriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensors_[a.index]);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensors_[b.index]);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensors_[to.index]);
    return add_operation(std::move(operation), std::move(kind), to);
  }
  Value pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Value> from, Value to,
                  cudnnDataType_t compute = CUDNN_DATA_FLOAT, std::int64_t axis = -1) {
    constexpr cudnnBackendAttributeName_t places[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                      CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(kind, CUDNN_ATTR_POINTWISE_MATH_PREC, compute);
    if (axis >= 0) kind.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    kind.finalize("pointwise");
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    std::size_t place = 0;
    for (const Value value : from) operation.set(places[place++], tensors_[value.index]);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_[to.index]);
    return add_operation(std::move(operation), std::move(kind), to);
  }
  Value reduce(cudnnReduceTensorOp_t how, Value from, Value to) {
    Descriptor kind(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    set_type(kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    kind.finalize("reduction");
    Descriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensors_[from.index]);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensors_[to.index]);
    return add_operation(std::move(operation), std::move(kind), to);
  }
  Value reshape(Value from, Value to) {
    Descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensors_[from.index]);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensors_[to.index]);
    return add_operation(std::move(operation), Descriptor(), to);
  }

  /// The first of cuDNN's heuristic plans that can be made; an empty plan if there is none. With `same_bits`, only plans with the
  /// same bits in every run. `handle` is the GPU's, or null if `properties` are given.
  Plan plan(cudnnHandle_t handle, const Descriptor* properties, bool same_bits) {
    const Descriptor graph = finished(handle);
    for (const Descriptor& configuration : configurations(graph, properties)) {
      if (same_bits && varies(configuration)) continue;
      Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
      if (handle != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
      if (properties != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *properties);
      if (cudnnBackendFinalize(plan.get()) == CUDNN_STATUS_SUCCESS) return Plan(std::move(plan), constants_);
    }
    return {};
  }

  /// The number of kernels that cuDNN has for the graph on a GPU with these properties. None is compiled.
  std::size_t kernels(const Descriptor& properties, bool same_bits) {
    const Descriptor graph = finished(nullptr);
    std::size_t count = 0;
    for (const Descriptor& configuration : configurations(graph, &properties)) count += !(same_bits && varies(configuration));
    return count;
  }

 private:
  struct Tensor {
    std::int64_t name;
    Dims dims, strides;
    cudnnDataType_t type;
    bool is_virtual, by_value;
  };

  static void set_type(Descriptor& descriptor, cudnnBackendAttributeName_t name, cudnnDataType_t type) {
    descriptor.set(name, CUDNN_TYPE_DATA_TYPE, 1, &type);
  }
  Value add(const Tensor& tensor) {
    Descriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const std::int64_t alignment = 16;
    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &tensor.name);
    set_type(made, CUDNN_ATTR_TENSOR_DATA_TYPE, tensor.type);
    made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, tensor.dims.data());
    made.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, tensor.strides.data());
    made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &tensor.is_virtual);
    if (tensor.by_value) made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &tensor.by_value);
    made.finalize("tensor");
    tensors_.push_back(std::move(made));
    return {tensors_.size() - 1};
  }
  Value add_operation(Descriptor operation, Descriptor kind, Value to) {
    operation.finalize("operation");
    operations_.push_back(std::move(operation));
    if (kind) kinds_.push_back(std::move(kind));
    return to;
  }
  Descriptor finished(cudnnHandle_t handle) const {
    std::vector<cudnnBackendDescriptor_t> operations;
    for (const Descriptor& operation : operations_) operations.push_back(operation.get());
    Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(operations.size()),
              operations.data());
    if (handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    graph.finalize("operation graph");
    return graph;
  }
  // cuDNN's choices for the graph, best first; empty if cuDNN does not support it.
  static std::vector<Descriptor> configurations(const Descriptor& graph, const Descriptor* properties) {
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (properties != nullptr) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *properties);
    std::int64_t count = 0;
    if (cudnnBackendFinalize(heuristics.get()) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                                 nullptr) != CUDNN_STATUS_SUCCESS)
      return {};
    std::vector<Descriptor> found;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (std::int64_t i = 0; i < count; ++i) handles.push_back(found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
    check(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                                   handles.data()),
          "heuristic results");
    found.erase(found.begin() + count, found.end());
    return found;
  }
  static bool varies(const Descriptor& configuration) {
    Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t handle = engine.get();
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                   &handle),
          "engine of a configuration");
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    check(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes),
          "numerical notes");
    for (std::int64_t i = 0; i < count; ++i)
      if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return true;
    return false;
  }

  cudnnDataType_t type_;
  std::int64_t next_ = 1000;
  std::vector<Descriptor> tensors_, kinds_, operations_;
  std::vector<std::pair<std::int64_t, float>> constants_;
};

}  // namespace weft::cudnn
