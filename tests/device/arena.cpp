// SPDX-License-Identifier: Apache-2.0
// covers: weft/device/block_bytes.hpp weft/device/memory_use.hpp
#include <weft/device/arena.hpp>
#include <weft/device/block_bytes.hpp>
#include <weft/device/memory_use.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <Kokkos_Core.hpp>

using Arena = weft::detail::Arena<Kokkos::HostSpace>;

TEST_CASE("a freed block is handed out again, and nothing more is taken from the system") {
  Arena arena;
  void* first = arena.allocate(100000).get();
  const auto reserved = arena.use().reserved;
  CHECK(arena.use().current == 0);
  for (int step = 0; step < 10; ++step) CHECK(arena.allocate(100000).get() == first);
  CHECK(arena.use().reserved == reserved);
}

TEST_CASE("blocks in use never overlap, and at most an eighth of one is wasted") {
  Arena arena;
  std::vector<weft::detail::Buffer> buffers;
  std::size_t bytes = 0;
  for (std::size_t size = 0; size < 300000; size = size * 5 / 4 + 1) {
    buffers.push_back(arena.allocate(size));
    auto* data = static_cast<unsigned char*>(buffers.back().get());
    CHECK(reinterpret_cast<std::uintptr_t>(data) % 64 == 0);
    for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<unsigned char>(buffers.size());
    bytes += size < 1024 ? (size + 64) / 64 * 64 : size + size / 8;
  }
  CHECK(arena.use().current <= bytes);
  std::size_t size = 0;
  for (std::size_t k = 0; k < buffers.size(); ++k, size = size * 5 / 4 + 1) {
    const auto* data = static_cast<const unsigned char*>(buffers[k].get());
    for (std::size_t i = 0; i < size; ++i) REQUIRE(data[i] == static_cast<unsigned char>(k + 1));
  }
}

TEST_CASE("the peak is counted, and can be counted anew") {
  Arena arena;
  { const auto a = arena.allocate(1 << 20), b = arena.allocate(1 << 20); }
  CHECK(arena.use().peak == 2 << 20);
  arena.reset_peak();
  CHECK(arena.use().peak == 0);
  const auto c = arena.allocate(1 << 20);
  CHECK(arena.use().peak == 1 << 20);
}

TEST_CASE("a buffer may outlive its arena") {
  weft::detail::Buffer buffer;
  {
    Arena arena;
    buffer = arena.allocate(4096);
  }
  static_cast<char*>(buffer.get())[4095] = 1;
  CHECK(static_cast<char*>(buffer.get())[4095] == 1);
}

TEST_CASE("unused blocks are returned before memory counts as full, and the error has the requested size") {
  Arena arena;
  const auto kept = arena.allocate(1 << 16);
  { const auto unused = arena.allocate(1 << 20); }
  CHECK(arena.use().reserved == (1 << 16) + (1 << 20));
  std::string text;
  try {
    const auto none = arena.allocate(std::size_t(1) << 60);
  } catch (const weft::MemoryError& error) {
    text = error.what();
  }
  CHECK(text.find(
            "weft: out of memory: Host memory has no room for 1152921504606846976 more bytes; this rank uses 65536 there") == 0);
  CHECK(arena.use().reserved == 1 << 16);
  CHECK(arena.use().current == 1 << 16);
  static_cast<char*>(kept.get())[0] = 1;
}

TEST_CASE("sizes of blocks: whole cache lines, then eighths of a power of two") {
  using weft::detail::block_bytes, weft::detail::persistent_block_bytes;
  CHECK((block_bytes(0) == 64 && block_bytes(1) == 64 && block_bytes(65) == 128 && block_bytes(1024) == 1024));
  CHECK((block_bytes(1025) == 1152 && block_bytes(2047) == 2048 && block_bytes(2049) == 2304));
  for (std::size_t bytes = 1025; bytes < 100000; bytes += 37)
    CHECK((block_bytes(bytes) >= bytes && block_bytes(bytes) * 8 <= bytes * 9 + 8));
  CHECK((persistent_block_bytes(0) == 64 && persistent_block_bytes(2049) == 2112));
}

TEST_CASE("memory in use is counted by its purpose") {
  using weft::MemoryCategory;
  weft::MemoryUse use;
  use.by_category[std::size_t(MemoryCategory::optimizer_state)] = 5;
  CHECK((use.of(MemoryCategory::optimizer_state) == 5 && use.of(MemoryCategory::gradients) == 0));
  CHECK(weft::name_of(MemoryCategory::optimizer_state) == "optimizer state");
}
