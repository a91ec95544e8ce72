// SPDX-License-Identifier: Apache-2.0
// weft over MPI compared with raw MPI calls, under mpirun. The ways take turns in one process, round by round. Each line of the
// output is "OPERATION BYTES WAY MEDIAN FASTEST" in seconds. BYTES are of float32: of the buffer (all_reduce, broadcast,
// send_recv) or of one rank's piece. Ways: raw, weft (through shared memory), tensors (the same with buffers where the tensors of
// a World lie), messages (weft through MPI's messages, as between computers).
#include <weft/comm/mpi.hpp>
#include <weft/comm/mpi/api.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using weft::comm::mpi::check;

struct Way {
  std::string name;
  std::function<void()> step;
  std::vector<double> seconds = {};
};

void barrier() { check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); }

void compare(const char* operation, std::size_t bytes, std::vector<Way> ways, int rounds, int rank) {
  const std::size_t repetitions = std::clamp<std::size_t>((std::size_t(16) << 20) / bytes, 2, 1000);
  if (bytes > std::size_t(1) << 20) rounds = std::min(rounds, 9);  // each round is long enough
  for (int round = -1; round < rounds; ++round)
    for (Way& way : ways) {
      barrier();
      const auto start = Clock::now();
      for (std::size_t k = 0; k < repetitions; ++k) way.step();
      barrier();  // finished when all ranks are
      if (round >= 0) way.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count() / double(repetitions));
    }
  for (Way& way : ways) {
    std::sort(way.seconds.begin(), way.seconds.end());
    if (rank == 0)
      std::printf("%s %zu %s %.9f %.9f\n", operation, bytes, way.name.c_str(), way.seconds[way.seconds.size() / 2],
                  way.seconds.front());
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 21;
  MPI_Init(&argc, &argv);
  {
    const weft::Communicator weft = weft::comm::mpi::over(MPI_COMM_WORLD);
    ::setenv("WEFT_SHARED_MEMORY", "0", 1);
    const weft::Communicator messages = weft::comm::mpi::over(MPI_COMM_WORLD);
    const int rank = weft.rank(), other = rank ^ 1;
    const auto n = std::size_t(weft.size());
    for (const std::size_t bytes :
         {std::size_t(4096), std::size_t(65536), std::size_t(1) << 20, std::size_t(16) << 20, std::size_t(64) << 20}) {
      const std::size_t count = bytes / sizeof(float);
      const int number = int(count);
      struct Buffers {
        std::span<float> x, y, wide;
      };
      std::vector<float> memory(count * (2 + n), 0.0f);
      const auto cut = [&](float* data) { return Buffers{{data, count}, {data + count, count}, {data + 2 * count, count * n}}; };
      const Buffers own = cut(memory.data());
      const auto& [x, y, wide] = own;
      const auto* const blocks = weft.group()->shared_blocks();
      const std::unique_ptr<void, void (*)(void*)> block(
          blocks != nullptr ? blocks->take(memory.size() * sizeof(float)) : nullptr,
          blocks != nullptr ? blocks->give_back : std::free);
      const Buffers tensors = blocks != nullptr ? cut(static_cast<float*>(block.get())) : own;
      const auto ways = [&](std::function<void()> raw, std::function<void(const weft::Communicator&, const Buffers&)> step) {
        return std::vector<Way>{{"raw", std::move(raw)},
                                {"weft", [&, step] { step(weft, own); }},
                                {"tensors", [&, step] { step(weft, tensors); }},
                                {"messages", [&, step] { step(messages, own); }}};
      };
      compare(
          "all_reduce", bytes,
          ways([&] { check(MPI_Allreduce(MPI_IN_PLACE, x.data(), number, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce"); },
               [](const auto& c, const Buffers& of) { c.all_reduce(of.x); }),
          rounds, rank);
      compare("all_gather", bytes,
              ways(
                  [&] {
                    check(MPI_Allgather(x.data(), number, MPI_FLOAT, wide.data(), number, MPI_FLOAT, MPI_COMM_WORLD),
                          "MPI_Allgather");
                  },
                  [](const auto& c, const Buffers& of) { c.all_gather(std::span<const float>(of.x), of.wide); }),
              rounds, rank);
      compare("reduce_scatter", bytes,
              ways(
                  [&] {
                    check(MPI_Reduce_scatter_block(wide.data(), x.data(), number, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
                          "MPI_Reduce_scatter_block");
                  },
                  [](const auto& c, const Buffers& of) { c.reduce_scatter(std::span<const float>(of.wide), of.x); }),
              rounds, rank);
      compare("broadcast", bytes,
              ways([&] { check(MPI_Bcast(x.data(), number, MPI_FLOAT, 0, MPI_COMM_WORLD), "MPI_Bcast"); },
                   [](const auto& c, const Buffers& of) { c.broadcast(of.x, 0); }),
              rounds, rank);
      if (n % 2 == 0)
        compare("send_recv", bytes,
                ways(
                    [&] {  // to the other rank and back
                      const auto status = MPI_STATUS_IGNORE;
                      if (rank < other) {
                        check(MPI_Send(x.data(), number, MPI_FLOAT, other, 0, MPI_COMM_WORLD), "MPI_Send");
                        check(MPI_Recv(y.data(), number, MPI_FLOAT, other, 0, MPI_COMM_WORLD, status), "MPI_Recv");
                      } else {
                        check(MPI_Recv(y.data(), number, MPI_FLOAT, other, 0, MPI_COMM_WORLD, status), "MPI_Recv");
                        check(MPI_Send(x.data(), number, MPI_FLOAT, other, 0, MPI_COMM_WORLD), "MPI_Send");
                      }
                    },
                    [&](const auto& c, const Buffers& of) {
                      if (rank < other) {
                        c.send(std::span<const float>(of.x), other);
                        c.recv(of.y, other);
                      } else {
                        c.recv(of.y, other);
                        c.send(std::span<const float>(of.x), other);
                      }
                    }),
                rounds, rank);
    }
  }
  MPI_Finalize();
  return 0;
}
