// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shapes of messages that both stages of a boundary have seen in earlier runs. The receiver posts the receive of a tensor of
// an agreed shape before the tensor is announced, so that it arrives while the rank computes.
//
//   if (const MessageHeader* agreed = shapes.find(size, message)) ...   // the same answer on the sender and on the receiver
//   shapes.note(size, message, header);                                 // both, for each message of a run
//   shapes.agree();                                                     // both, at the end of the run

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/text.hpp>
#include <weft/data/batch_share.hpp>
#include <weft/pipeline/stage_shapes.hpp>
#include <weft/tensor/shape.hpp>

namespace weft::detail {

/// The rank of a tensor and its extents.
using MessageHeader = std::array<std::int64_t, Shape::max_rank + 1>;

/// The answers change only between runs, so that they do not depend on which of a run's messages a rank has already seen.
class AgreedShapes {
 public:
  /// Begins a run over this communicator; another one's ranks have agreed on nothing.
  void begin(const Communicator& comm) {
    noted_.clear();
    if (ranks_.lock() == comm.group()) return;
    ranks_ = comm.group();
    crossings_.clear();
  }
  /// Null if no earlier run had a micro-batch of this size, or if two micro-batches of one size, whichever it was, had different
  /// shapes at this stage in this direction.
  WEFT_OUT_OF_LINE const MessageHeader* find(const MicroBatch& size, const StageMessage& message) const {
    for (const Crossing& crossing : crossings_)
      if (crossing.stage == message.stage && crossing.forward == message.forward && !crossing.varies)
        return find(crossing.known, {size.sequences, size.length, message.part, {}});
    return nullptr;
  }
  WEFT_OUT_OF_LINE void note(const MicroBatch& size, const StageMessage& message, const MessageHeader& header) {
    Crossing* crossing = nullptr;
    for (Crossing& other : noted_)
      if (other.stage == message.stage && other.forward == message.forward) crossing = &other;
    if (crossing == nullptr) crossing = &noted_.emplace_back(Crossing{message.stage, message.forward, false, {}});
    add(*crossing, {size.sequences, size.length, message.part, header});
  }
  void agree() {
    for (Crossing& noted : noted_) {
      Crossing* crossing = nullptr;
      for (Crossing& other : crossings_)
        if (other.stage == noted.stage && other.forward == noted.forward) crossing = &other;
      if (crossing == nullptr) {
        crossings_.push_back(std::move(noted));
        continue;
      }
      crossing->varies = crossing->varies || noted.varies;
      for (const Known& known : noted.known) add(*crossing, known);
      if (crossing->known.size() > most_known) crossing->known = std::move(noted.known);  // sizes that change with every batch
    }
    noted_.clear();
  }

 private:
  static constexpr std::size_t most_known = 64;
  struct Known {
    std::size_t sequences, length;
    int part;
    MessageHeader header;
  };
  // The messages that enter one stage in one direction.
  struct Crossing {
    int stage;
    bool forward, varies;
    std::vector<Known> known;
  };
  static const MessageHeader* find(const std::vector<Known>& all, const Known& like) {
    for (const Known& known : all)
      if (known.sequences == like.sequences && known.length == like.length && known.part == like.part) return &known.header;
    return nullptr;
  }
  static void add(Crossing& crossing, const Known& known) {
    if (const MessageHeader* const before = find(crossing.known, known); before != nullptr)
      crossing.varies = crossing.varies || *before != known.header;
    else crossing.known.push_back(known);
  }

  std::weak_ptr<comm::Group> ranks_;
  std::vector<Crossing> crossings_, noted_;  // a few for each stage of this rank
};

}  // namespace weft::detail
