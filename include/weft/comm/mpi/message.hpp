// SPDX-License-Identifier: Apache-2.0
#pragma once
// A message between two ranks over MPI, which begins with an envelope that describes the sender's call. Short data travels with
// the envelope. Long data follows on a communicator of its own, or stays in the sender's heap. It is received once the receiver
// has found that both ranks mean the same message: no buffer changes before.
//
//   mpi::Message message(comm, payloads, heaps, call, number);
//   while (!message.test()) ...
//   if (message.mismatch()) ... message.found() ...

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include <weft/comm/mpi/api.hpp>
#include <weft/comm/operation.hpp>
#include <weft/comm/shared_memory/peer_heaps.hpp>
#include <weft/core/error.hpp>

namespace weft::comm::mpi {

class Message {
 public:
  struct Head {
    std::uint64_t type = 0, count = 0, payload = 0;
    std::uint64_t function = 0;  ///< in which the sender is: bits of its call's signature
    shared_memory::HeapPlace place;
  };

  /// Starts a send or recv. `payload`: a number of the sender's own for this message.
  Message(MPI_Comm comm, MPI_Comm payloads, const shared_memory::PeerHeaps& heaps, const Call& call, std::uint64_t payload)
      : payloads_(payloads), heaps_(heaps), call_(call) {
    const bool sends = call.operation == Operation::send;
    const std::size_t bytes = call.bytes(), inside = sends && bytes > most_inside ? 0 : std::min(bytes, most_inside);
    staging_.reset(new std::byte[sizeof(Head) + (sends ? inside : most_inside)]);
    if (!sends) {
      check(MPI_Irecv(staging_.get(), int(sizeof(Head) + most_inside), MPI_BYTE, call.root, call.tag, comm, &envelope_),
            "MPI_Irecv");
      return;
    }
    const Head head{std::uint64_t(call.type), call.count, payload % payload_tags, signature(call) & function_bits,
                    heaps.offer(call.input, bytes)};
    std::memcpy(staging_.get(), &head, sizeof head);
    if (inside != 0) std::memcpy(staging_.get() + sizeof head, call.input, inside);
    check(MPI_Isend(staging_.get(), int(sizeof head + inside), MPI_BYTE, call.root, call.tag, comm, &envelope_), "MPI_Isend");
    if (head.place) {
      found_ = head;
      in_heap_ = true;
      check(MPI_Irecv(nullptr, 0, MPI_BYTE, call.root, taken_tag(head), payloads_, &data_), "MPI_Irecv");
    } else if (bytes > most_inside) {
      check(WEFT_MPI(Isend)(call.input, to_count(call.count), type_of(call.type), call.root, data_tag(head), payloads_, &data_),
            "MPI_Isend");
    }
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  /// Keeps the memory of a request that an error has left running: MPI cannot cancel it.
  ~Message() {
    if (envelope_ != MPI_REQUEST_NULL) static_cast<void>(staging_.release());
  }

  /// Advances without waiting; true once the message has gone or come, or is found to be another one than this rank expects.
  bool test() {
    if (envelope_ != MPI_REQUEST_NULL) {
      if (!done(envelope_)) return false;
      if (call_.operation == Operation::recv) open();
    }
    if (lost_) throw_error<Error>({"the sender has given up a message of this communicator"});
    return data_ == MPI_REQUEST_NULL || done(data_);
  }
  /// Whether MPI may still read the caller's buffer.
  bool reads() const { return call_.operation == Operation::send && !in_heap_ && data_ != MPI_REQUEST_NULL; }
  /// False if MPI may still write to it.
  bool take_back() {
    if (in_heap_) static_cast<void>(mpi::take_back({&data_, 1}));  // of no bytes
    return call_.operation == Operation::send || mpi::take_back({&data_, 1});
  }
  /// From now on no rank reads the bytes of this message in the heap. Calls nothing of MPI.
  void give_up() {
    if (in_heap_) heaps_.give_up(found_.place);
  }
  /// True if the message that came has another type or count.
  bool mismatch() const { return mismatch_; }
  const Head& found() const { return found_; }

 private:
  static constexpr std::size_t most_inside = 2048;  // every MPI sends so much at once
  // Two tags for each number: of the data, and of the word that they were taken from the heap.
  static constexpr std::uint64_t payload_tags = 16384;
  static int data_tag(const Head& head) { return int(2 * head.payload); }
  static int taken_tag(const Head& head) { return int(2 * head.payload + 1); }

  static bool done(MPI_Request& request) {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  }
  void open() {
    std::memcpy(&found_, staging_.get(), sizeof found_);
    mismatch_ = found_.type != std::uint64_t(call_.type) || found_.count != call_.count;
    if (mismatch_ || call_.bytes() == 0) return;
    if (call_.bytes() <= most_inside) {
      std::memcpy(call_.output, staging_.get() + sizeof found_, call_.bytes());
    } else if (found_.place) {
      lost_ = !heaps_.copy(call_.root, found_.place, call_.output, call_.bytes());
      check(MPI_Isend(nullptr, 0, MPI_BYTE, call_.root, taken_tag(found_), payloads_, &data_), "MPI_Isend");
    } else {
      check(WEFT_MPI(Irecv)(call_.output, to_count(call_.count), type_of(call_.type), call_.root, data_tag(found_), payloads_,
                            &data_),
            "MPI_Irecv");
    }
  }

  MPI_Comm payloads_;
  const shared_memory::PeerHeaps& heaps_;
  Call call_;
  std::unique_ptr<std::byte[]> staging_;
  MPI_Request envelope_ = MPI_REQUEST_NULL, data_ = MPI_REQUEST_NULL;
  Head found_;
  bool mismatch_ = false, in_heap_ = false, lost_ = false;
};

}  // namespace weft::comm::mpi
