// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/self.hpp
// A communicator's support for ranks on devices, with a device that is an array of the host. Spans of its memory are
// distinguished from others, a group of one rank copies there in stream order, and backends of host memory refuse it before
// anything is read.
#include <doctest/doctest.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/comm/self.hpp>
#include <weft/comm/threads.hpp>

using namespace weft;

namespace {

float pretended[16];
int copies = 0;
void* last_stream = nullptr;
bool holds(const void* address) { return address >= pretended && address < pretended + 16; }
void copy(void* stream, void* to, const void* from, std::size_t bytes) {
  ++copies;
  last_stream = stream;
  std::memcpy(to, from, bytes);
}
constexpr comm::DeviceMemory memory{holds, copy};
const int instance = 0;
const comm::StreamOrder order{&instance, nullptr, [](const void* of) -> void* { return const_cast<void*>(of); }, &memory};

}  // namespace

TEST_CASE("a group of one rank copies device memory in its stream") {
  const Communicator comm(std::make_shared<comm::SelfGroup>(), order);
  copies = 0;
  pretended[0] = 3;
  comm.all_gather(std::span<const float>(pretended, 4), std::span<float>(pretended + 8, 4));
  CHECK(copies == 1);
  CHECK(last_stream == &instance);
  CHECK(pretended[8] == 3);
  comm.all_reduce(std::span<float>(pretended, 4));  // in place: nothing to do
  CHECK(copies == 1);
  std::vector<float> here{1, 2}, there(2);
  comm.all_gather(std::span<const float>(here), std::span<float>(there));
  CHECK(copies == 1);
  CHECK(there == here);
  const Communicator part = comm.split(0, 0, "part");
  part.all_gather(std::span<const float>(pretended, 4), std::span<float>(pretended + 8, 4));
  CHECK(copies == 2);
  CHECK_THROWS_WITH_AS(comm.send(std::span<const float>(pretended, 4), 0),
                       "weft: the backend self does not do send of 4 float32 with tag 0 to rank 0 in device memory", UsageError);
}

TEST_CASE("threads refuse device memory, and accept the host memory beside it") {
  comm::run_threads(2, [](const Communicator& host) {
    const Communicator comm(host.group(), order);
    bool refused = false;
    try {
      comm.all_reduce(std::span<float>(pretended, 4));
    } catch (const UsageError& error) {
      refused = std::string(error.what()).find("in device memory") != std::string::npos;
    }
    CHECK(refused);
    std::vector<float> values{1, 2};
    comm.all_reduce(std::span<float>(values));
    CHECK(values == std::vector<float>{2, 4});
  });
}
