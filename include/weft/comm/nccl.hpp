// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks with a GPU each, whose device memory NCCL moves and adds. They meet over a backend of the host, which keeps carrying host
// memory, barriers and word of a rank that failed:
//
//   weft::run<comm::Threads, comm::Nccl>(argc, argv, f);                    // torchrun --no-python --nproc-per-node 8 program
//   weft::run<comm::Threads, comm::NcclOver<comm::Mpi>>(argc, argv, f);     // mpirun -np 8 program
//   weft::run<comm::NcclOver<comm::Threads>>(argc, argv, f);                // threads of one process, a GPU each
//
// Compiled, linked and run against a test double of NCCL and the CUDA runtime; never yet on a GPU.

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string_view>

#include <weft/comm/nccl/rendezvous.hpp>
#include <weft/comm/store/ranks.hpp>
#include <weft/comm/run_options.hpp>

namespace weft::comm {

namespace nccl {

/// WEFT_FINGERPRINTS, WEFT_SHARE_GPUS and WEFT_RENDEZVOUS_S.
inline Options options_from_environment(std::chrono::duration<double> deadline) {
  const auto set = [](const char* name) {
    const char* text = std::getenv(name);
    return text != nullptr && *text != '\0' && std::string_view(text) != "0";
  };
  Options options;
  options.deadline = deadline;
  options.patience = std::chrono::duration<double>(runtime::detail::number_from_environment("WEFT_RENDEZVOUS_S", 0.001, 1e6).value_or(120));
  options.fingerprints = set("WEFT_FINGERPRINTS");
  options.share_gpus = set("WEFT_SHARE_GPUS");
  return options;
}

}  // namespace nccl

/// Ranks of the backend Host, with a GPU each.
template <Backend Host>
struct NcclOver {
  static constexpr std::string_view name = "nccl";
  /// Device memory: everything but reductions of 16-bit integers, which NCCL has not. Host memory: as Host does.
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

/// Processes that torchrun started, or that its environment names: they meet at weft's own store, and need neither MPI nor Gloo.
using Nccl = NcclOver<StoreRanks>;
static_assert(Backend<Nccl>);

}  // namespace weft::comm
