// SPDX-License-Identifier: Apache-2.0
#pragma once
// The NCCL backend: ranks with a GPU each, whose device memory NCCL moves and adds. The ranks meet over a host backend, which
// continues to carry host memory, barriers and notices of failed ranks:
//
//   weft::run<comm::Threads, comm::Nccl>(argc, argv, f);                    // torchrun --no-python --nproc-per-node 8 program
//   weft::run<comm::Threads, comm::NcclOver<comm::Mpi>>(argc, argv, f);     // mpirun -np 8 program
//   weft::run<comm::NcclOver<comm::Threads>>(argc, argv, f);                // threads of one process, a GPU each
//
// Tested against a double of NCCL and the CUDA runtime, and with several ranks that share one GPU; not on several GPUs.

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

#include <weft/comm/nccl/rendezvous.hpp>
#include <weft/comm/run_options.hpp>
#include <weft/comm/tcp.hpp>

namespace weft::comm {

namespace nccl {

/// Options from WEFT_FINGERPRINTS, WEFT_SHARE_GPUS and WEFT_RENDEZVOUS_S.
inline Options options_from_environment(std::chrono::duration<double> deadline) {
  using runtime::detail::switch_from_environment;
  Options options;
  options.deadline = deadline;
  options.patience =
      std::chrono::duration<double>(runtime::detail::number_from_environment("WEFT_RENDEZVOUS_S", 0.001, 1e6).value_or(120));
  options.fingerprints = switch_from_environment("WEFT_FINGERPRINTS", false);
  options.share_gpus = switch_from_environment("WEFT_SHARE_GPUS", false);
  return options;
}

}  // namespace nccl

/// Ranks of the backend Host with a GPU each.
template <Backend Host>
struct NcclOver {
  static constexpr std::string_view name = "nccl";
  /// Device memory: everything except reductions of 16-bit integers, which NCCL lacks. Host memory: the same as Host.
  static constexpr bool supports(Operation operation, DataType type, MemoryKind memory) {
    if (memory == MemoryKind::host || operation == Operation::barrier) return Host::supports(operation, type, MemoryKind::host);
    return !reduces(operation) || nccl::reducible(type);
  }
  static bool detected() { return Host::detected(); }

  class Session : public Host::Session {
   public:
    using Host::Session::Session;

    auto run(int ranks, std::chrono::duration<double> deadline, const std::function<void(std::shared_ptr<Group>)>& body) {
      return Host::Session::run(ranks, deadline, [&](std::shared_ptr<Group> host) {
        const nccl::Options options = nccl::options_from_environment(deadline);
        body(nccl::over(Communicator(std::move(host)), options).group());
      });
    }
  };
};

/// Processes started by torchrun or described by its environment variables; TCP carries host memory.
using Nccl = NcclOver<Tcp>;
static_assert(Backend<Nccl>);

}  // namespace weft::comm
