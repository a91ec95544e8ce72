// SPDX-License-Identifier: Apache-2.0
// Calls of one inference::Model from several threads under ThreadSanitizer, with more threads than the pool has had, and results
// that each thread compares. Each object's part of Kokkos is one thread, so all synchronisation is weft's.

#include <cstdio>
#include <thread>
#include <vector>

#include "../models.hpp"

using namespace weft_test;

int main() {
  const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(1).set_disable_warnings(true));
  DefaultDevice device;
  SingleDevice<Mlp<double>> model(device, {});
  inference::Model<Mlp<double>> net(model);
  std::vector<double> expected(64), x = numbers(3 * 64);
  for (std::size_t i = 0; i < 64; ++i) net(std::span(&x[i * 3], 3), std::span(&expected[i], 1));
  bool same = true;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::vector<double>> found(6, std::vector<double>(64));
    std::vector<std::thread> threads;
    for (std::vector<double>& mine : found)
      threads.emplace_back([&] {
        for (std::size_t i = 0; i < 64; ++i) net(std::span(&x[i * 3], 3), std::span(&mine[i], 1));
      });
    for (std::thread& one : threads) one.join();
    for (const std::vector<double>& mine : found) same = same && mine == expected;
  }
  if (!same) std::fprintf(stderr, "threads got other results\n");
  return same ? 0 : 1;
}
