// SPDX-License-Identifier: Apache-2.0
// The smallest program: what it includes must be found, what it calls must link, and two ranks must meet.
#include <cstdio>
#include <vector>

#include <dnnl.hpp>
#include <weft/comm/threads.hpp>
#include <weft/core/version.hpp>
#include <weft/runtime/run.hpp>
#ifdef WEFT_TEST_checkpoint
#include <weft/checkpoint/checksum.hpp>
#include <weft/checkpoint/safetensors.hpp>
#endif
#ifdef WEFT_TEST_tokenizer
#include <weft/hugging_face/tokenizer/nfc.hpp>
#include <weft/hugging_face/tokenizer/pattern.hpp>
#endif

#ifdef WEFT_COMPILED
constexpr const char* mode = "compiled";
#else
constexpr const char* mode = "header-only";
#endif

int main(int argc, char** argv) {
  return weft::run<weft::comm::Threads>(argc, argv, [](weft::World& world) {
    std::vector<int> ranks{1};
    world.communicator().all_reduce(ranks);
    if (world.rank() == 0)
      std::printf("weft %d.%d.%d %s, oneDNN %d, %d ranks\n", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR, WEFT_VERSION_PATCH, mode,
                  dnnl_version()->major, ranks[0]);
  });
}
