// SPDX-License-Identifier: Apache-2.0
// The loader of examples/08_imagenet without a network: images per second that it decodes, crops, resizes, flips and normalises.
//
//   bench_imagenet_loader FOLDER THREADS [BATCH] [SIZE]   prints {"images_per_s": ...}: the best of three epochs

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "examples/08_imagenet/image_folder.hpp"

int main(int argc, char** argv) {
  using namespace imagenet;
  if (argc < 3) return std::fputs("bench_imagenet_loader FOLDER THREADS [BATCH] [SIZE]\n", stderr), 2;
  const auto number = [&](int i, std::size_t otherwise) {
    return argc > i ? std::size_t(std::strtoul(argv[i], nullptr, 10)) : otherwise;
  };
  try {
    const auto folder = std::make_shared<const ImageFolder>(argv[1], "FOLDER");
    const TrainingImages pictures{{folder, {.size = number(4, 224)}}, 1};
    double best = 0;
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      data::Loader loader(data::Share{}, pictures, {.global_batch = number(3, 32), .seed = seed, .threads = number(2, 1)});
      const auto start = std::chrono::steady_clock::now();
      std::size_t images = 0;
      for (auto&& batch : loader) images += batch.samples;
      best = std::max(best, double(images) / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::printf("{\"images_per_s\": %.1f}\n", best);
  } catch (const Error& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 2;
  }
}
