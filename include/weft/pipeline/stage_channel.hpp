// SPDX-License-Identifier: Apache-2.0
#pragma once
// The channel for tensors between the stages of a pipeline. Sends do not block: buffers live until the peer has received them.
// The receive of the next tensor is posted before a rank computes, so that the tensor arrives meanwhile. Each tensor is sent with
// its shape, so stages and micro-batches may differ in shape.
//
//   channel.send(hidden, next_rank, {stage + 1, micro, true});
//   Hidden hidden = channel.receive<Hidden>(previous_rank, {stage, micro, true});

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/text.hpp>
#include <weft/data/batch_share.hpp>
#include <weft/pipeline/peer_progress.hpp>
#include <weft/pipeline/stage_shapes.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

template <class Exec>
class StageChannel {
 public:
  StageChannel(Device<Exec>& device, Communicator comm) : device_(&device), comm_(std::move(comm)) {}

  template <AnyTensor X>
  void send(const X& x, int to, const StageMessage& message) {
    if (to == comm_.rank()) {
      kept_.push_back({message, x.shape(), x.buffer()});
      return;
    }
    auto header = std::unique_ptr<Header>(new Header());
    header->at(0) = static_cast<std::int64_t>(x.shape().rank());
    for (std::size_t dim = 0; dim < x.shape().rank(); ++dim) header->at(dim + 1) = static_cast<std::int64_t>(x.shape()[dim]);
    // In separate statements: the header is sent before the elements, and both before the buffer is stored.
    Request first = comm_.send_async(*header, to, tag(message, 0));
    Request second = comm_.send_async(raw(x), to, tag(message, 1));
    sending_.push_back({std::move(header), x.buffer(), std::move(first), std::move(second), message});
    progress();
  }

  template <AnyTensor Y>
  Y receive(int from, const StageMessage& message) {
    if (from == comm_.rank()) {
      WaitingTensor kept = take_waiting(message);
      return Y(*device_, kept.shape, std::move(kept.buffer));
    }
    expect<typename Y::value_type>(from, message);
    progress();
    std::unique_ptr<Coming>* place = find_coming(message);
    const std::unique_ptr<Coming> owned = std::move(*place);  // its address is kept: the header is being written
    coming_.erase(coming_.begin() + (place - coming_.data()));
    Coming& coming = *owned;
    coming.header_request.wait();
    if (!coming.buffer) coming.open(*this, coming);
    coming.request.wait();
    if (peers_ != nullptr) [[unlikely]]
      peers_->received(message);
    return Y(*device_, shape_of(coming.header), std::move(coming.buffer));
  }

  /// Posts the receive of a tensor with elements of T, for a later `receive`.
  template <class T>
  void expect(int from, const StageMessage& message) {
    if (from == comm_.rank() || find_coming(message) != nullptr) return;
    coming_.push_back(std::unique_ptr<Coming>(new Coming()));
    Coming& coming = *coming_.back();
    coming.message = message;
    coming.from = from;
    coming.body_tag = tag(message, 1);
    coming.open = &open<T>;
    coming.header_request = comm_.recv_async(coming.header, from, tag(message, 0));
    if (shapes_ != nullptr) [[unlikely]]
      foresee(coming);
  }

  /// Starts a rehearsal: from now on no stage announces its messages. `peers`, if not null, determines when a message has been
  /// received. All arguments outlive the channel.
  void rehearse(const StageShapes& shapes, const BatchShare& share, PeerProgress* peers) {
    shapes_ = &shapes;
    share_ = &share;
    peers_ = peers;
  }
  /// Adds the shapes of messages that this rank sent to itself and has not received, for micro-batches of this size.
  void add_shapes(const MicroBatch& size, StageShapes& shapes) const;

  /// Releases the buffers that peers have received, and advances the receives.
  void progress();
  /// Waits until peers have received everything.
  void wait_for_sends();

 private:
  using Header = std::array<std::int64_t, Shape::max_rank + 1>;
  struct WaitingTensor {
    StageMessage message;
    Shape shape;
    Buffer buffer;
  };
  struct Sending {
    std::unique_ptr<Header> header;
    Buffer buffer;
    Request header_request, request;
    StageMessage message;
  };

  // A tensor on its way: announced by its header, then received into a buffer of its shape.
  struct Coming {
    StageMessage message;
    int from = 0, body_tag = 0;
    void (*open)(StageChannel&, Coming&) = nullptr;
    Header header{};
    Buffer buffer;
    Request header_request, request;
  };
  template <class T>
  static void open(StageChannel& link, Coming& coming) {
    Tensor<T, Exec> body(*link.device_, shape_of(coming.header));
    coming.request = link.comm_.recv_async(body, coming.from, coming.body_tag);
    coming.buffer = body.buffer();
  }
  std::unique_ptr<Coming>* find_coming(const StageMessage& message);
  // The parts of one value have one tag, so the receive of a part is posted after those of the parts before it.
  bool follows_opened(const Coming& coming);

  void foresee(Coming& coming) const;
  WEFT_OUT_OF_LINE WaitingTensor take_waiting(const StageMessage& message);
  static Shape shape_of(const Header& header);
  // MPI guarantees only tags below 32768. Messages of one tag arrive in order, and a stage takes its micro-batches in order, so
  // tags may repeat.
  static int tag(const StageMessage& message, int part);

  Device<Exec>* device_;
  Communicator comm_;
  const StageShapes* shapes_ = nullptr;
  const BatchShare* share_ = nullptr;
  PeerProgress* peers_ = nullptr;
  std::vector<WaitingTensor> kept_;  // for another stage of this rank
  std::vector<Sending> sending_;
  std::vector<std::unique_ptr<Coming>> coming_;
};

template <class Exec>
void StageChannel<Exec>::progress() {
  std::erase_if(sending_, [this](Sending& sending) {
    if (peers_ != nullptr && !peers_->taken(sending.message)) [[unlikely]]
      return false;
    return sending.header_request.test() && sending.request.test();
  });
  for (const auto& coming : coming_) {
    if (!coming->buffer && follows_opened(*coming) && coming->header_request.test()) coming->open(*this, *coming);
    if (coming->buffer) coming->request.test();
  }
}

template <class Exec>
void StageChannel<Exec>::wait_for_sends() {
  for (Sending& sending : sending_) {
    sending.header_request.wait();
    sending.request.wait();
  }
  sending_.clear();
}

template <class Exec>
WEFT_COLD void StageChannel<Exec>::add_shapes(const MicroBatch& size, StageShapes& shapes) const {
  for (const WaitingTensor& kept : kept_) shapes.add(size, kept.message, kept.shape);
}

template <class Exec>
WEFT_COLD void StageChannel<Exec>::foresee(Coming& coming) const {
  const Shape& shape = shapes_->of(share_->micro_batch(std::size_t(coming.message.micro)), coming.message);
  coming.header[0] = std::int64_t(shape.rank());
  for (std::size_t dim = 0; dim < shape.rank(); ++dim) coming.header[dim + 1] = std::int64_t(shape[dim]);
}

template <class Exec>
std::unique_ptr<typename StageChannel<Exec>::Coming>* StageChannel<Exec>::find_coming(const StageMessage& message) {
  for (std::unique_ptr<Coming>& coming : coming_)
    if (coming->message == message) return &coming;
  return nullptr;
}

template <class Exec>
bool StageChannel<Exec>::follows_opened(const Coming& coming) {
  for (int part = 0; part < coming.message.part; ++part) {
    const std::unique_ptr<Coming>* before =
        find_coming({coming.message.stage, coming.message.micro, coming.message.forward, part});
    if (before != nullptr && !(*before)->buffer) return false;
  }
  return true;
}

template <class Exec>
typename StageChannel<Exec>::WaitingTensor StageChannel<Exec>::take_waiting(const StageMessage& message) {
  const auto kept =
      std::find_if(kept_.begin(), kept_.end(), [&](const WaitingTensor& other) { return other.message == message; });
  WaitingTensor taken = std::move(*kept);  // the schedule's check has proved that it is there
  kept_.erase(kept);
  return taken;
}

template <class Exec>
Shape StageChannel<Exec>::shape_of(const Header& header) {
  switch (header[0]) {
    case 1: return {std::size_t(header[1])};
    case 2: return {std::size_t(header[1]), std::size_t(header[2])};
    case 3: return {std::size_t(header[1]), std::size_t(header[2]), std::size_t(header[3])};
    default: return {std::size_t(header[1]), std::size_t(header[2]), std::size_t(header[3]), std::size_t(header[4])};
  }
}

template <class Exec>
int StageChannel<Exec>::tag(const StageMessage& message, int part) {
  return ((message.micro % 16 * 512 + message.stage % 512) * 2 + (message.forward ? 0 : 1)) * 2 + part;
}

}  // namespace weft::detail

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class StageChannel<Kokkos::DefaultHostExecutionSpace>;
}  // namespace weft::detail
#endif
