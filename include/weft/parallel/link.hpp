// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensors between the stages of a pipeline. Sends do not block: buffers live until the peer has taken them. Each tensor goes
// with its shape, so stages and micro-batches may differ in theirs.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

/// Which tensor: the stage and micro-batch that want it, and whether it is an activation or a gradient.
struct Parcel {
  int stage = 0, micro = 0;
  bool forward = true;
  friend auto operator<=>(const Parcel&, const Parcel&) = default;
};

template <class Exec>
class Link {
 public:
  Link(Device<Exec>& device, Communicator comm) : device_(&device), comm_(std::move(comm)) {}

  template <AnyTensor X>
  void send(const X& x, int to, const Parcel& parcel) {
    if (to == comm_.rank()) {
      kept_.emplace(parcel, Kept{x.shape(), x.buffer()});
      return;
    }
    auto header = std::make_unique<Header>();
    header->at(0) = static_cast<std::int64_t>(x.shape().rank());
    for (std::size_t dim = 0; dim < x.shape().rank(); ++dim) header->at(dim + 1) = static_cast<std::int64_t>(x.shape()[dim]);
    // Element by element, so that a request is made before the tensor is handed on.
    Request first = comm_.send_async(*header, to, tag(parcel, 0));
    Request second = comm_.send_async(x, to, tag(parcel, 1));
    sending_.push_back({std::move(header), x.buffer(), std::move(first), std::move(second)});
    progress();
  }

  template <AnyTensor Y>
  Y receive(int from, const Parcel& parcel) {
    if (from == comm_.rank()) {
      auto kept = kept_.extract(parcel).mapped();
      return Y(*device_, kept.shape, std::move(kept.buffer));
    }
    progress();
    Header header{};
    comm_.recv(header, from, tag(parcel, 0));
    Shape shape;
    shape = shape_of(header);
    Y y(*device_, shape);
    comm_.recv(y, from, tag(parcel, 1));
    return y;
  }

  /// Lets go of what peers have taken.
  void progress() {
    std::erase_if(sending_, [](Sending& sending) { return sending.header_request.test() && sending.request.test(); });
  }
  /// Waits until peers have taken everything.
  void finish() {
    for (Sending& sending : sending_) {
      sending.header_request.wait();
      sending.request.wait();
    }
    sending_.clear();
  }

 private:
  using Header = std::array<std::int64_t, Shape::max_rank + 1>;
  struct Kept {
    Shape shape;
    Buffer buffer;
  };
  struct Sending {
    std::unique_ptr<Header> header;
    Buffer buffer;
    Request header_request, request;
  };

  static Shape shape_of(const Header& header) {
    switch (header[0]) {
      case 1: return {std::size_t(header[1])};
      case 2: return {std::size_t(header[1]), std::size_t(header[2])};
      case 3: return {std::size_t(header[1]), std::size_t(header[2]), std::size_t(header[3])};
      default: return {std::size_t(header[1]), std::size_t(header[2]), std::size_t(header[3]), std::size_t(header[4])};
    }
  }
  // MPI promises tags below 32768 only. Messages of one tag arrive in order, and a stage takes its micro-batches in order, so
  // tags may come round again.
  static int tag(const Parcel& parcel, int part) {
    return ((parcel.micro % 16 * 512 + parcel.stage % 512) * 2 + (parcel.forward ? 0 : 1)) * 2 + part;
  }

  Device<Exec>* device_;
  Communicator comm_;
  std::map<Parcel, Kept> kept_;
  std::vector<Sending> sending_;
};

}  // namespace weft
