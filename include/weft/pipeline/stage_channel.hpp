// SPDX-License-Identifier: Apache-2.0
#pragma once
// The channel for tensors between the stages of a pipeline. Sends do not block: buffers live until the peer has received them.
// Receives are posted before a rank computes, so that tensors arrive meanwhile. Each tensor is sent with its shape, so stages and
// micro-batches may differ in shape. If both sides agree on its shape (pipeline/agreed_shapes.hpp), the receive of its elements
// is posted with that of its shape; if the tensor has another shape nevertheless, elements without meaning fill that receive, and
// the tensor follows.
//
//   channel.send(hidden, next_rank, {stage + 1, micro, true});
//   Hidden hidden = channel.receive<Hidden>(previous_rank, {stage, micro, true});

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/text.hpp>
#include <weft/data/batch_share.hpp>
#include <weft/pipeline/agreed_shapes.hpp>
#include <weft/pipeline/peer_progress.hpp>
#include <weft/pipeline/stage_shapes.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

template <class Exec>
class StageChannel {
 public:
  StageChannel(Device<Exec>& device, Communicator comm) : device_(&device), comm_(std::move(comm)) {}
  /// `share` and `agreed` outlive the channel; `agreed` is kept from run to run.
  StageChannel(Device<Exec>& device, Communicator comm, const BatchShare& share, AgreedShapes& agreed)
      : device_(&device), comm_(std::move(comm)), share_(&share), agreed_(&agreed) {}

  template <AnyTensor X>
  void send(const X& x, int to, const StageMessage& message) {
    send_elements(raw(x), to, message);
  }

  template <AnyTensor Y>
  Y receive(int from, const StageMessage& message) {
    WaitingTensor received =
        from == comm_.rank() ? take_waiting(message) : wait_for(from, message, &open<typename Y::value_type>);
    return Y(*device_, received.shape, std::move(received.buffer));
  }

  /// Posts the receive of a tensor with elements of T, for a later `receive`.
  template <class T>
  void expect(int from, const StageMessage& message) {
    if (from != comm_.rank()) post(from, message, &open<T>);
  }

  /// Starts a rehearsal: from now on no stage announces its messages. `peers`, if not null, determines when a message has been
  /// received. Both arguments outlive the channel.
  void rehearse(const StageShapes& shapes, PeerProgress* peers) {
    shapes_ = &shapes;
    peers_ = peers;
  }
  /// Adds the shapes of messages that this rank sent to itself and has not received, for micro-batches of this size.
  void add_shapes(const MicroBatch& size, StageShapes& shapes) const;

  /// Releases the buffers that peers have received, and advances the receives.
  void progress();
  /// Waits until peers have received everything.
  void wait_for_sends();

 private:
  enum class Content { shape, elements, other_elements };
  struct WaitingTensor {
    StageMessage message;
    Shape shape;
    Buffer buffer;
  };
  struct Sending {
    std::unique_ptr<MessageHeader> header;  // null: of elements without meaning
    Buffer buffer;
    Request header_request, request;
    StageMessage message;
  };

  struct Coming;
  using Open = void (*)(StageChannel&, Coming&, const MessageHeader&);  // posts the receive of the elements

  // A tensor in flight: announced by its header, and received into a buffer of its shape.
  struct Coming {
    StageMessage message;
    int from = 0, body_tag = 0;
    Open open = nullptr;
    MessageHeader header{}, expected{};
    bool agreed = false;  // the elements are received in the shape `expected`
    Buffer buffer;
    Request header_request, request;
  };
  template <class T>
  static void open(StageChannel& link, Coming& coming, const MessageHeader& header) {
    Tensor<T, Exec> body(*link.device_, shape_of(header));
    coming.request = link.comm_.recv_async(body, coming.from, coming.body_tag);
    coming.buffer = body.buffer();
  }
  // All that placements do not change: a program compiles it once for each type of elements.
  template <class T>
  void send_elements(const Tensor<T, Exec>& x, int to, const StageMessage& message);
  // Receives from another rank. No step depends on the elements' type but `open`.
  WaitingTensor wait_for(int from, const StageMessage& message, Open open);
  void post(int from, const StageMessage& message, Open open);
  std::unique_ptr<Coming>* find_coming(const StageMessage& message);
  // Parts of a value have the same tag, and so have messages of some micro-batches: their elements are received in the order in
  // which they are sent. True if none that is expected before this one still waits for its shape.
  bool is_next(const Coming& coming) const;

  const MessageHeader* agreed_on(const StageMessage& message) const {
    return agreed_ == nullptr || shapes_ != nullptr ? nullptr
                                                    : agreed_->find(share_->micro_batch(std::size_t(message.micro)), message);
  }
  void note(const StageMessage& message, const MessageHeader& header) {
    if (agreed_ != nullptr) agreed_->note(share_->micro_batch(std::size_t(message.micro)), message, header);
  }
  WEFT_OUT_OF_LINE WaitingTensor take_waiting(const StageMessage& message);
  static MessageHeader header_of(const Shape& shape);
  static Shape shape_of(const MessageHeader& header);
  // MPI guarantees only tags below 32768. Messages of one tag arrive in order, and a stage takes its micro-batches in order, so
  // tags may repeat.
  static int tag(const StageMessage& message, Content content);

  Device<Exec>* device_;
  Communicator comm_;
  const StageShapes* shapes_ = nullptr;
  const BatchShare* share_ = nullptr;
  AgreedShapes* agreed_ = nullptr;
  PeerProgress* peers_ = nullptr;
  std::vector<WaitingTensor> kept_;  // for another stage of this rank
  std::vector<Sending> sending_;
  std::vector<std::unique_ptr<Coming>> coming_;
};

template <class Exec>
template <class T>
void StageChannel<Exec>::send_elements(const Tensor<T, Exec>& x, int to, const StageMessage& message) {
  if (to == comm_.rank()) {
    kept_.push_back({message, x.shape(), x.buffer()});
    return;
  }
  auto header = std::make_unique<MessageHeader>(header_of(x.shape()));
  const MessageHeader* const agreed = agreed_on(message);
  // In separate statements: the header is sent before the elements, and both before the buffer is stored.
  Request first = comm_.send_async(*header, to, tag(message, Content::shape));
  if (agreed != nullptr && *agreed != *header) [[unlikely]] {
    const Tensor<T, Exec> unused(*device_, shape_of(*agreed));
    Request fill = comm_.send_async(unused, to, tag(message, Content::elements));
    sending_.push_back({nullptr, unused.buffer(), Request(), std::move(fill), message});
    Request second = comm_.send_async(x, to, tag(message, Content::other_elements));
    sending_.push_back({std::move(header), x.buffer(), std::move(first), std::move(second), message});
  } else {
    Request second = comm_.send_async(x, to, tag(message, Content::elements));
    sending_.push_back({std::move(header), x.buffer(), std::move(first), std::move(second), message});
  }
  note(message, *sending_.back().header);
  progress();
}

template <class Exec>
typename StageChannel<Exec>::WaitingTensor StageChannel<Exec>::wait_for(int from, const StageMessage& message, Open open) {
  post(from, message, open);
  progress();
  std::unique_ptr<Coming>* place = find_coming(message);
  const std::unique_ptr<Coming> owned = std::move(*place);  // its address is kept: the header is being written
  coming_.erase(coming_.begin() + (place - coming_.data()));
  Coming& coming = *owned;
  coming.header_request.wait();
  if (!coming.buffer) coming.open(*this, coming, coming.agreed ? coming.expected : coming.header);
  coming.request.wait();
  if (coming.agreed && coming.expected != coming.header) [[unlikely]] {
    coming.body_tag = tag(message, Content::other_elements);
    coming.open(*this, coming, coming.header);
    coming.request.wait();
  }
  note(message, coming.header);
  if (peers_ != nullptr) [[unlikely]]
    peers_->received(message);
  return {message, shape_of(coming.header), std::move(coming.buffer)};
}

template <class Exec>
void StageChannel<Exec>::post(int from, const StageMessage& message, Open open) {
  if (find_coming(message) != nullptr) return;
  coming_.push_back(std::unique_ptr<Coming>(new Coming()));
  Coming& coming = *coming_.back();
  coming.message = message;
  coming.from = from;
  coming.body_tag = tag(message, Content::elements);
  coming.open = open;
  coming.header_request = comm_.recv_async(coming.header, from, tag(message, Content::shape));
  if (shapes_ != nullptr) [[unlikely]] {
    const MicroBatch size = share_->micro_batch(std::size_t(message.micro));
    coming.header = header_of(shapes_->of(size, message));
    // In the first run no shape is agreed, so elements are received no sooner than they are waited for, if that is rehearsed.
    if (!device_->rehearsal()->early || agreed_->find(size, message) != nullptr) coming.open(*this, coming, coming.header);
    return;
  }
  const MessageHeader* const agreed = agreed_on(message);
  if (agreed == nullptr) return;
  coming.agreed = true;
  coming.expected = *agreed;
  if (is_next(coming)) coming.open(*this, coming, coming.expected);
}

template <class Exec>
void StageChannel<Exec>::progress() {
  std::erase_if(sending_, [this](Sending& sending) {
    if (peers_ != nullptr && !peers_->taken(sending.message)) [[unlikely]]
      return false;
    return sending.header_request.test() && sending.request.test();
  });
  for (const auto& coming : coming_) {
    if (shapes_ == nullptr && !coming->buffer && is_next(*coming)) {
      if (coming->agreed) coming->open(*this, *coming, coming->expected);
      else if (coming->header_request.test()) coming->open(*this, *coming, coming->header);
    }
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
std::unique_ptr<typename StageChannel<Exec>::Coming>* StageChannel<Exec>::find_coming(const StageMessage& message) {
  for (std::unique_ptr<Coming>& coming : coming_)
    if (coming->message == message) return &coming;
  return nullptr;
}

template <class Exec>
bool StageChannel<Exec>::is_next(const Coming& coming) const {
  for (const std::unique_ptr<Coming>& before : coming_) {
    if (before.get() == &coming) break;
    if (before->from == coming.from && before->body_tag == coming.body_tag && !before->buffer) return false;
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
MessageHeader StageChannel<Exec>::header_of(const Shape& shape) {
  MessageHeader header{std::int64_t(shape.rank())};
  for (std::size_t dim = 0; dim < shape.rank(); ++dim) header[dim + 1] = std::int64_t(shape[dim]);
  return header;
}

template <class Exec>
Shape StageChannel<Exec>::shape_of(const MessageHeader& header) {
  return Shape::of(std::span(header).subspan(1, std::size_t(header[0])));
}

template <class Exec>
int StageChannel<Exec>::tag(const StageMessage& message, Content content) {
  return ((message.micro % 8 * 512 + message.stage % 512) * 2 + (message.forward ? 0 : 1)) * 4 + int(content);
}

}  // namespace weft::detail

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class StageChannel<Kokkos::DefaultHostExecutionSpace>;
extern template void StageChannel<Kokkos::DefaultHostExecutionSpace>::send_elements(
    const Tensor<float, Kokkos::DefaultHostExecutionSpace>&, int, const StageMessage&);
extern template void StageChannel<Kokkos::DefaultHostExecutionSpace>::send_elements(
    const Tensor<bfloat16, Kokkos::DefaultHostExecutionSpace>&, int, const StageMessage&);
}  // namespace weft::detail
#endif
