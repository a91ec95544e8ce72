// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state that all MPI groups of a process share, with the notices of the watch over waits (comm/watch.hpp) on a communicator
// of their own.
//
//   auto process = std::make_shared<mpi::Process>(MPI_COMM_WORLD, deadline, true);

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include <weft/comm/mpi/api.hpp>
#include <weft/comm/shared_memory/group.hpp>
#include <weft/comm/store/heartbeat.hpp>
#include <weft/comm/watch.hpp>

namespace weft::comm::mpi {

class Notices final : public Watch {
 public:
  /// Takes ownership of `comm`.
  Notices(int rank, std::uint64_t number, Handle comm) : Watch(rank, number), comm_(std::move(comm)) {
    check(MPI_Comm_size(comm_.get(), &size_), "MPI_Comm_size");
  }
  ~Notices() override {
    if (leftovers().writes.empty()) forget_sent();
    for (Message& message : leaving_) leftovers().memory.push_back(std::move(message.bytes));
    if (sent_) comm_.leave();  // a receiver may not have received them yet
  }

 protected:
  int size() const override { return size_; }
  void send(int rank, const std::string& notice) override {
    if (!leftovers().writes.empty()) return;
    forget_sent();
    sent_ = true;
    Message& message = leaving_.emplace_back();
    message.bytes = std::make_shared<std::string>(notice);
    check(MPI_Isend(message.bytes->data(), int(notice.size()), MPI_BYTE, rank, 0, comm_.get(), &message.request), "MPI_Isend");
  }
  bool receive(std::string& notice) override {
    if (!leftovers().writes.empty()) return false;
    int arrived = 0, bytes = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, 0, comm_.get(), &arrived, &status), "MPI_Iprobe");
    if (arrived == 0) return false;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    notice.resize(std::size_t(bytes));
    check(MPI_Recv(notice.data(), bytes, MPI_BYTE, status.MPI_SOURCE, 0, comm_.get(), MPI_STATUS_IGNORE), "MPI_Recv");
    return true;
  }

 private:
  struct Message {
    std::shared_ptr<std::string> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  void forget_sent() {
    std::erase_if(leaving_, [](Message& message) {
      int done = 0;
      return MPI_Test(&message.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0;
    });
  }

  Handle comm_;
  int size_ = 1;
  bool sent_ = false;
  std::deque<Message> leaving_;
};

struct Process final : shared_memory::Sharing {
  /// Collective over `of`, whose ranks are the world.
  Process(MPI_Comm of, std::chrono::duration<double> wait_at_most, bool check_calls,
          std::shared_ptr<store::Heartbeat> heartbeat_of_rank)
      : heartbeat(std::move(heartbeat_of_rank)) {
    deadline = wait_at_most;
    fingerprints = check_calls;
    Handle handle = Handle::duplicate(of);
    check(MPI_Comm_rank(handle.get(), &rank), "MPI_Comm_rank");
    world = handle.get();
    int size = 0;
    check(MPI_Comm_size(world, &size), "MPI_Comm_size");
    recorder.belongs_to(rank, size, "mpi");
    int on[] = {check_calls, !check_calls};
    check(MPI_Allreduce(MPI_IN_PLACE, on, 2, MPI_INT, MPI_MAX, world), "MPI_Allreduce");
    if (on[0] == on[1]) throw_error<UsageError>({"mpi: WEFT_FINGERPRINTS is on for some ranks and off for others"});
    auto number = std::uint64_t(std::chrono::system_clock::now().time_since_epoch().count());
    check(MPI_Bcast(&number, 1, MPI_UINT64_T, 0, world), "MPI_Bcast");
    watch = std::make_unique<Notices>(rank, number, std::move(handle));
  }

  bool disturbed() const override { return heartbeat && heartbeat->disturbed(); }
  int lost() override { return heartbeat && (heartbeat->lost() != rank || disturbed()) ? heartbeat->lost() : -1; }
  std::string fate(int) const override { return heartbeat->fate(); }

  std::shared_ptr<store::Heartbeat> heartbeat;  ///< null where the ranks' machines share no address that is theirs alone
  MPI_Comm world;
  std::uint64_t next_group = 0;
};

}  // namespace weft::comm::mpi
