// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays of other libraries by DLPack, the exchange format of NumPy, PyTorch and JAX: their tensors as fields of a batch or a
// dataset, without a copy, and weft's values as tensors for them.
//
//   const auto u = data::Dlpack::take(tensor);            // a DLManagedTensor* or DLManagedTensorVersioned*, released once
//   batch[state].view(u.array<double>());                 // of any strides; `u` outlives the batch's use
//   batch[state].view(device, u.array<double>(device));   // a tensor of the GPU on which weft computes
//   DLManagedTensor* out = data::to_dlpack<DLManagedTensor>(std::move(prediction.values), prediction.shape);
//
// Structs: DLPack 1.0, https://dmlc.github.io/dlpack/latest/c_api.html. Those of the program's dlpack.h have the same members and
// are taken as they are; data::dlpack has them for programs without it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/scalar.hpp>
#include <weft/data/arrays.hpp>
#include <weft/tensor/strided_array.hpp>
#include <weft/tensor/strided_copy.hpp>

namespace weft::data {

/// The structs of dlpack.h with their members' names. A program that includes dlpack.h uses those.
namespace dlpack {
struct Device {
  std::int32_t device_type, device_id;
};
struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null: row-major
  std::uint64_t byte_offset;
};
/// DLManagedTensor.
struct ManagedTensor {
  Tensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(ManagedTensor*);
};
struct Version {
  std::uint32_t major, minor;
};
/// DLManagedTensorVersioned.
struct VersionedTensor {
  Version version;
  void* manager_ctx;
  void (*deleter)(VersionedTensor*);
  std::uint64_t flags;
  Tensor dl_tensor;
};
static_assert(sizeof(void*) != 8 || (sizeof(Tensor) == 48 && sizeof(ManagedTensor) == 64 && sizeof(VersionedTensor) == 80));
}  // namespace dlpack

namespace detail {

template <class M>
concept DlpackTensor = requires(M* tensor) {
  tensor->deleter(tensor);
  tensor->manager_ctx;
  tensor->dl_tensor.byte_offset;
};
template <class M>
concept VersionedDlpackTensor = DlpackTensor<M> && requires(M* tensor) {
  tensor->version.major;
  tensor->flags;
};

/// A DLDataType of one lane; its codes are those of DLDataTypeCode.
struct DlpackType {
  std::uint8_t code = 0, bits = 0;
  friend bool operator==(const DlpackType&, const DlpackType&) = default;
  std::string text() const {
    constexpr const char* names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
    if (code < std::size(names)) return weft::detail::joined({names[code], std::size_t(bits)});
    return weft::detail::joined({"type code ", std::size_t(code), " of ", std::size_t(bits), " bits"});
  }
};
template <class T>
constexpr DlpackType dlpack_type_of() {
  constexpr std::uint8_t bits = 8 * sizeof(T);
  if constexpr (std::is_same_v<T, bfloat16>) return {4, bits};
  else if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, float16>) return {2, bits};
  else if constexpr (std::is_same_v<T, bool>) return {6, bits};
  else return {std::uint8_t(std::is_signed_v<T> ? 0 : 1), bits};
}
template <class T>
concept DlpackElement = (std::is_arithmetic_v<T> && sizeof(T) <= 8) || std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

[[noreturn]] WEFT_COLD inline void refuse_dlpack(weft::detail::Words reason) {
  throw_error<UsageError>({"dlpack: ", weft::detail::joined(reason)});
}

constexpr std::uint64_t dlpack_read_only = 1;  // DLPACK_FLAG_BITMASK_READ_ONLY
constexpr std::int32_t dlpack_cpu = 1, dlpack_cuda = 2, dlpack_cuda_host = 3;

/// The memory of an execution space's instance, by its DLDeviceType and number.
template <class Exec>
struct DlpackPlace {
  static dlpack::Device of(const Exec& exec) {
    if constexpr (requires { exec.cuda_device(); }) {
      return {dlpack_cuda, std::int32_t(exec.cuda_device())};
    } else {
      static_assert(weft::detail::on_host<Exec>,
                    "weft: DLPack tensors are of host memory or of CUDA's, and this Kokkos computes on "
                    "other GPUs");
      return {dlpack_cpu, 0};
    }
  }
};

}  // namespace detail

/// A tensor of another library, in any memory. Copies share it; its deleter is called once, with the last of them.
class Dlpack {
 public:
  /// Takes over a DLManagedTensor or DLManagedTensorVersioned, also if it throws. Throws UsageError for a tensor that has more
  /// than six dims or a negative stride, or is of another major version than 1.
  template <detail::DlpackTensor M>
  static Dlpack take(M* tensor) {
    if (tensor == nullptr) detail::refuse_dlpack({"the tensor is null"});
    const std::shared_ptr<const void> owner(tensor, [](M* ours) {
      if (ours->deleter != nullptr) ours->deleter(ours);
    });
    Dlpack taken;
    taken.owner_ = owner;
    if constexpr (detail::VersionedDlpackTensor<M>) {
      if (tensor->version.major != 1)
        detail::refuse_dlpack({"the tensor is of version ", std::size_t(tensor->version.major), ".",
                               std::size_t(tensor->version.minor), ", and weft reads version 1"});
      taken.read_only_ = (tensor->flags & detail::dlpack_read_only) != 0;
    }
    taken.read(tensor->dl_tensor);
    return taken;
  }

  const Shape& shape() const { return shape_; }
  /// The elements, to be read: valid as long as a copy of this object. Throws UsageError if they are of another type than T, at
  /// an address that does not fit T, or not in host memory (kDLCPU or kDLCUDAHost).
  template <detail::DlpackElement T>
  weft::detail::StridedArray<const T> array() const {
    require_host();
    return elements<const T>();
  }
  /// The same on the device on which weft computes: kDLCUDA with the number of its GPU; on hosts kDLCPU. They are read in the
  /// order of device.exec(), which is the stream to name to the other library, `x.__dlpack__(stream=...)`; this object outlives
  /// that work. Throws UsageError for a tensor of any other memory.
  template <detail::DlpackElement T, class Exec>
  weft::detail::DeviceArray<const T, Exec> array(const Device<Exec>& device) const {
    require_on(detail::DlpackPlace<Exec>::of(device.exec()));
    return {elements<const T>()};
  }
  /// The elements, to be written, as by inference::Model. Throws also for a tensor that is read-only, or in which several
  /// elements share memory.
  template <detail::DlpackElement T>
  weft::detail::StridedArray<T> writable() const {
    require_host();
    require_writable();
    return elements<T>();
  }
  /// The same on the device on which weft computes.
  template <detail::DlpackElement T, class Exec>
  weft::detail::DeviceArray<T, Exec> writable(const Device<Exec>& device) const {
    require_on(detail::DlpackPlace<Exec>::of(device.exec()));
    require_writable();
    return {elements<T>()};
  }
  std::shared_ptr<const void> owner() const { return owner_; }

 private:
  template <class Tensor>
  void read(const Tensor& from) {
    type_ = {std::uint8_t(from.dtype.code), std::uint8_t(from.dtype.bits)};
    place_ = {std::int32_t(from.device.device_type), std::int32_t(from.device.device_id)};
    if (from.dtype.lanes != 1)
      detail::refuse_dlpack({"the tensor's elements are vectors of ", std::size_t(from.dtype.lanes), " ", type_.text()});
    if (from.ndim < 0 || from.ndim > std::int32_t(Shape::max_rank))
      detail::refuse_dlpack({"the tensor has ", std::int64_t(from.ndim), " dims: 0 to ", Shape::max_rank, " are possible"});
    shape_ = Shape::of_rank(std::size_t(from.ndim));
    for (std::size_t dim = 0; dim < shape_.rank(); ++dim) {
      if (from.shape[dim] < 0)
        detail::refuse_dlpack({"the tensor has the extent ", std::int64_t(from.shape[dim]), " in dim ", dim});
      shape_[dim] = std::size_t(from.shape[dim]);
    }
    shape_.size();  // throws if it is more than can be counted
    if (from.strides == nullptr) strides_ = weft::detail::row_major_strides(shape_);
    for (std::size_t dim = 0; from.strides != nullptr && dim < shape_.rank(); ++dim) {
      if (from.strides[dim] < 0 && shape_[dim] > 1)
        detail::refuse_dlpack({"the tensor has the stride ", std::int64_t(from.strides[dim]), " in dim ", dim, " of ",
                               shape_.text(), ": copy it, numpy.ascontiguousarray(x)"});
      strides_[dim] = shape_[dim] > 1 ? std::size_t(from.strides[dim]) : 1;
    }
    data_ = static_cast<char*>(from.data) + from.byte_offset;
    if (from.data == nullptr && shape_.size() != 0) detail::refuse_dlpack({"the tensor of ", shape_.text(), " has no memory"});
  }
  void require_host() const {
    if (place_.device_type != detail::dlpack_cpu && place_.device_type != detail::dlpack_cuda_host)
      detail::refuse_dlpack({"the tensor is on a device of type ", std::int64_t(place_.device_type), " (DLDeviceType), number ",
                             std::int64_t(place_.device_id), ": give weft's device, u.array<T>(device), or copy it to host ",
                             "memory, x.cpu()"});
  }
  void require_on(const dlpack::Device& here) const {
    if (place_.device_type == here.device_type && place_.device_id == here.device_id) return;
    detail::refuse_dlpack({"the tensor is on a device of type ", std::int64_t(place_.device_type), " (DLDeviceType), number ",
                           std::int64_t(place_.device_id), ", and weft computes on type ", std::int64_t(here.device_type),
                           ", number ", std::int64_t(here.device_id), ": copy it there"});
  }
  template <class T>
  weft::detail::StridedArray<T> elements() const {
    require(detail::dlpack_type_of<std::remove_const_t<T>>(), sizeof(T));
    return {static_cast<T*>(data_), shape_, strides_};
  }
  void require_writable() const {
    if (read_only_) detail::refuse_dlpack({"the tensor is read-only"});
    require_no_overlap();
  }
  // Each dim's stride must exceed the span of the dims with smaller strides.
  void require_no_overlap() const {
    std::array<std::size_t, Shape::max_rank> order{0, 1, 2, 3, 4, 5};
    std::stable_sort(order.begin(), order.begin() + std::ptrdiff_t(shape_.rank()),
                     [this](std::size_t a, std::size_t b) { return strides_[a] < strides_[b]; });
    std::size_t span = 1;
    for (std::size_t i = 0; i < shape_.rank(); ++i) {
      const std::size_t dim = order[i];
      if (shape_[dim] <= 1) continue;
      if (strides_[dim] < span)
        detail::refuse_dlpack({"the tensor has the stride ", strides_[dim], " in dim ", dim, " of ", shape_.text(),
                               ", and its elements share memory: it cannot be written"});
      span += (shape_[dim] - 1) * strides_[dim];
    }
  }
  void require(detail::DlpackType wanted, std::size_t alignment) const {
    if (wanted != type_)
      detail::refuse_dlpack({"the tensor's elements are ", type_.text(), ", ", wanted.text(), " was asked for"});
    if (reinterpret_cast<std::uintptr_t>(data_) % alignment != 0)
      detail::refuse_dlpack(
          {"the tensor's address is no multiple of ", alignment, ", the bytes of its ", type_.text(), ": copy it"});
  }

  std::shared_ptr<const void> owner_;
  void* data_ = nullptr;
  Shape shape_;
  weft::detail::Strides strides_{};
  detail::DlpackType type_;
  dlpack::Device place_{};
  bool read_only_ = false;
};

/// A tensor's elements, [samples, shape...], as a field's values of a dataset, which shares the tensor. They are row-major and of
/// the field's scalar, or of T. Throws ShapeError for other strides, and as Dlpack::array.
template <auto field, class T = typename std::remove_cvref_t<decltype(field)>::scalar>
auto array(const Dlpack& tensor, const ArrayOptions& options = {}) {
  using F = std::remove_cvref_t<decltype(field)>;
  const auto all = tensor.array<T>();
  if (all.shape.rank() == 0 || !all.row_major())
    throw_error<ShapeError>(
        {"field ", F::name, ": the tensor of ", all.shape.text(),
         " is not [samples, ...], contiguous in row-major order: a dataset takes numpy.ascontiguousarray(x); a ",
         "batch takes all strides"});
  const auto viewed = weft::detail::viewed_field(all);
  return detail::checked_array<F, T>(viewed.row_major, viewed.shape, viewed.samples, options, tensor.owner());
}

namespace detail {

/// A managed tensor over memory of this place that `owner` keeps.
template <class M, class T>
M* made_dlpack(std::shared_ptr<const void> owner, const weft::detail::StridedArray<T>& of,
               dlpack::Device place = {dlpack_cpu, 0}) {
  struct Made {
    M tensor{};
    std::array<std::int64_t, Shape::max_rank> shape{}, strides{};
    std::shared_ptr<const void> owner;
  };
  static_assert(!std::is_const_v<T> || VersionedDlpackTensor<M>,
                "weft: to_dlpack: the View's elements are const, and only DLManagedTensorVersioned can state that a tensor is "
                "read-only: to_dlpack<DLManagedTensorVersioned>(view)");
  auto made = std::make_unique<Made>();
  for (std::size_t dim = 0; dim < of.shape.rank(); ++dim) {
    made->shape[dim] = std::int64_t(of.shape[dim]);
    made->strides[dim] = std::int64_t(of.strides[dim]);
  }
  auto& tensor = made->tensor.dl_tensor;
  constexpr DlpackType type = dlpack_type_of<std::remove_const_t<T>>();
  tensor.data = const_cast<std::remove_const_t<T>*>(of.data);
  tensor.device.device_type = static_cast<decltype(tensor.device.device_type)>(place.device_type);
  tensor.device.device_id = place.device_id;
  tensor.ndim = std::int32_t(of.shape.rank());
  tensor.dtype.code = type.code;
  tensor.dtype.bits = type.bits;
  tensor.dtype.lanes = 1;
  tensor.shape = made->shape.data();
  tensor.strides = made->strides.data();
  tensor.byte_offset = 0;
  made->owner = std::move(owner);
  made->tensor.manager_ctx = made.get();
  made->tensor.deleter = [](M* ours) { delete static_cast<Made*>(ours->manager_ctx); };
  if constexpr (VersionedDlpackTensor<M>) {
    made->tensor.version.major = 1;
    made->tensor.version.minor = 0;
    made->tensor.flags = std::is_const_v<T> ? dlpack_read_only : 0;
  }
  return &made.release()->tensor;
}

}  // namespace detail

/// A tensor of these values, row-major, which it owns until its consumer calls its deleter. Throws ShapeError if there are not as
/// many as elements of the shape.
template <detail::DlpackTensor M = dlpack::ManagedTensor, detail::DlpackElement T>
M* to_dlpack(std::vector<T>&& values, const Shape& shape) {
  static_assert(!std::is_same_v<T, bool>, "weft: to_dlpack: a vector of bool is packed: use std::uint8_t");
  if (shape.size() != values.size())
    throw_error<ShapeError>({"dlpack: ", values.size(), " values are no tensor of ", shape.text()});
  const auto kept = std::make_shared<std::vector<T>>(std::move(values));
  return detail::made_dlpack<M>(kept, weft::detail::StridedArray<T>{kept->data(), shape, weft::detail::row_major_strides(shape)});
}
/// A tensor of a Kokkos View of host memory, of any layout, which shares the View's memory with the program.
template <detail::DlpackTensor M = dlpack::ManagedTensor, weft::detail::KokkosView V>
requires detail::DlpackElement<typename V::non_const_value_type> M* to_dlpack(const V& view) {
  return detail::made_dlpack<M>(std::make_shared<const V>(view), weft::detail::strided_of(view));
}
/// The same for a View of the memory of weft's device, on a GPU kDLCUDA with its number. The consumer reads it after the work of
/// device.exec() so far, which it or the program waits for.
template <detail::DlpackTensor M = dlpack::ManagedTensor, class Exec, weft::detail::KokkosView V>
requires detail::DlpackElement<typename V::non_const_value_type> M* to_dlpack(const Device<Exec>& device, const V& view) {
  static_assert(std::is_same_v<typename V::memory_space, typename Exec::memory_space>,
                "weft: to_dlpack: this View is not of the memory space of weft's device, Kokkos::DefaultExecutionSpace");
  return detail::made_dlpack<M>(std::make_shared<const V>(view), weft::detail::elements_of<typename V::value_type>(view),
                                detail::DlpackPlace<Exec>::of(device.exec()));
}

}  // namespace weft::data
