// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rendezvous of ranks that already share a host backend: it gives each rank a GPU and all ranks an NCCL communicator. Every
// rank publishes its machine's properties, and every rank judges all of them, so that an impossible setup is refused by all ranks
// with the same line, before NCCL is called.

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/nccl/group.hpp>
#include <weft/comm/this_host.hpp>
#include <weft/core/text.hpp>

namespace weft::comm::nccl {

/// Options of a communicator over NCCL.
struct Options {
  std::chrono::duration<double> deadline = std::chrono::minutes(30);  ///< of every wait
  std::chrono::duration<double> patience = std::chrono::minutes(2);   ///< for the first communicator
  bool fingerprints = false;                                          ///< compare the calls of all ranks before every collective
  bool share_gpus = false;                                            ///< allow several ranks on one GPU, each a process
};

/// A rank's description of itself. Plain numbers: it travels as bytes between processes of one architecture.
struct RankInfo {
  std::int32_t nccl = 0;  ///< the version, in ncclGetVersion's form
  std::int32_t gpus = 0, driver = 0, runtime = 0;
  std::int32_t shares = 0;
  std::int32_t process = 0;
  std::uint64_t host = 0;  ///< a hash of the machine's name and boot
  char first[16] = {};     ///< the UUID of its first GPU
  char problem[192] = {};  ///< the CUDA runtime's message, if it failed

  GpuMachine machine() const { return {gpus, driver, runtime}; }
};

inline void uuid_of(int device, char (&uuid)[16]) {
  cudaDeviceProp properties;
  cuda_check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  std::memcpy(uuid, properties.uuid.bytes, sizeof uuid);
}

WEFT_COLD inline RankInfo this_rank(const Options& options) {
  RankInfo info;
  info.shares = options.share_gpus;
  info.process = std::int32_t(::getpid());
  info.host = this_host();
  try {
    const GpuMachine machine = gpu_machine();
    info.gpus = machine.gpus;
    info.driver = machine.driver;
    info.runtime = machine.runtime;
    if (info.gpus > 0) uuid_of(0, info.first);
    int version = 0;
    check(ncclGetVersion(&version), "ncclGetVersion");
    info.nccl = version;
  } catch (const Error& error) {
    words_of(error).copy(info.problem, sizeof info.problem - 1);
  }
  return info;
}

/// The GPU of rank `rank`, from the infos of all ranks. Throws UsageError for the lowest rank without a GPU, the same on every
/// rank.
WEFT_COLD inline int assign_gpu(const std::vector<RankInfo>& infos, int rank) {
  const auto size = int(infos.size());
  const auto info = [&](int r) -> const RankInfo& { return infos[std::size_t(r)]; };
  for (int r = 0; r < size; ++r) {
    if (info(r).problem[0] != '\0') throw_error<UsageError>({"nccl: rank ", r, ": ", info(r).problem});
    try {
      require_gpu(info(r).machine());
    } catch (const UsageError& error) {
      throw_error<UsageError>({"nccl: rank ", r, " has no GPU: ", words_of(error)});
    }
    if (info(r).shares != info(0).shares)
      throw_error<UsageError>({"nccl: rank ", r, " and rank 0 disagree whether ranks share GPUs (WEFT_SHARE_GPUS)"});
  }
  for (int r = 1; r < size; ++r)
    if (info(r).nccl != info(0).nccl)
      throw_error<UsageError>({"nccl: rank 0 has NCCL ", version_text(info(0).nccl), ", rank ", r, " has ",
                               version_text(info(r).nccl), ": every rank needs the same"});
  int device = 0;
  for (int r = 0; r < size; ++r) {
    std::vector<int> neighbours;  // ranks on the machine of r, in order
    bool own_view = true;         // each sees one GPU, another one (CUDA_VISIBLE_DEVICES for each process)
    for (int q = 0; q < size; ++q) {
      if (info(q).host != info(r).host) continue;
      for (const int other : neighbours) {
        own_view = own_view && std::memcmp(info(other).first, info(q).first, sizeof info(q).first) != 0;
        if (info(r).shares != 0 && info(other).process == info(q).process)
          throw_error<UsageError>({"nccl: rank ", other, " and rank ", q,
                                   " are threads of one process, which cannot share a GPU: start a process for each rank"});
      }
      own_view = own_view && info(q).gpus == 1;
      neighbours.push_back(q);
    }
    int place = 0;
    while (neighbours[std::size_t(place)] != r) ++place;
    int chosen = 0;
    if (!own_view) {
      try {
        chosen = choose_gpu(info(r).machine(), place, int(neighbours.size()), info(r).shares != 0);
      } catch (const UsageError& error) {
        throw_error<UsageError>({"nccl: rank ", r, ": ", words_of(error)});
      }
    }
    if (r == rank) device = chosen;
  }
  return device;
}

/// Sets what NCCL can only be given in environment variables, which it reads when it is first used. Variables that are set
/// already stay.
inline void set_environment(const Options& options, const RankInfo& info, int rank) {
  // NCCL refuses a GPU that two ranks of one host use, so each rank gets a host name of its own.
  if (options.share_gpus)
    ::setenv("NCCL_HOSTID", weft::detail::joined({"weft-", long(info.host & 0xffffff), "-", rank}).c_str(), 0);
  // A call that is recorded into a graph would exchange its buffers' addresses with other ranks, and so wait for them.
  ::setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

/// A communicator over the ranks of `host`, one GPU each; host memory still goes over `host`. Collective. Sets the calling
/// thread's current device to the rank's GPU. Throws UsageError if the machines lack something and TimeoutError if a rank does
/// not come.
inline Communicator over(const Communicator& host, const Options& options = {}) {
  const Communicator mine = host.split(0, host.rank(), std::string(host.axis()));
  const auto size = std::size_t(host.size());
  const RankInfo info = this_rank(options);
  std::vector<RankInfo> infos(size);
  mine.all_gather(std::span(reinterpret_cast<const std::uint8_t*>(&info), sizeof info),
                  std::span(reinterpret_cast<std::uint8_t*>(infos.data()), size * sizeof info));
  const int device = assign_gpu(infos, host.rank());
  cuda_check(cudaSetDevice(device), "cudaSetDevice");
  set_environment(options, info, host.rank());

  // Before NCCL waits for anyone.
  const ncclUniqueId id = size > 1 ? shared_id(mine) : ncclUniqueId{};

  auto process = std::make_shared<Process>(Process::Options{host.rank(), device, options.deadline, options.fingerprints});
  if (FlightRecorder* recorder = host.group()->flight().recorder) process->recorder = recorder;
  auto comm = std::shared_ptr<Comm>();
  if (size > 1) {
    const Running meeting({.operation = Operation::split}, host.axis(), host.rank(), host.size(), 0, 0);
    comm = process->adopt();
    process->guarded(meeting, [&] {
      comm->connect(host.size(), id, host.rank());
      const auto began = Clock::now(), end = began + std::chrono::duration_cast<Clock::duration>(options.patience);
      for (ncclResult_t state = comm->state(); state != ncclSuccess; state = comm->state()) {
        if (state != ncclInProgress) check(state, "ncclCommInitRankConfig", comm->get());
        if (Clock::now() > end)
          process->fail<TimeoutError>(meeting,
                                      weft::detail::joined({"NCCL did not connect ", host.size(), " ranks within ",
                                                            std::to_string(options.patience.count()), " s (WEFT_RENDEZVOUS_S)"}));
        if (comm::detail::wait_must_end(began)) {
          process->interrupt(meeting);
          process->refuse(meeting);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  }
  const Communicator control = host.split(0, host.rank(), std::string(host.axis()));
  process->listen(host.split(0, host.rank(), "alarm"));
  return Communicator(
      std::make_shared<NcclGroup>(std::move(process), std::move(comm), mine.group(), control.group(), std::string(host.axis())));
}

}  // namespace weft::comm::nccl
