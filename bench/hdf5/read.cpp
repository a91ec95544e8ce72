// SPDX-License-Identifier: Apache-2.0
// Reads a part of the samples of an HDF5 set into the memory of a batch, in file order or shuffled. Prints the seconds of each
// round and the sum of the first values of all samples.
//
//   bench_hdf5_read FILE SET PART PARTS ORDER ROUNDS       ORDER: 0 that of the file, 1 shuffled

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include <weft/data/fields.hpp>
#include <weft/data/hdf5.hpp>

inline constexpr weft::data::Field<"state", float> state;

int main(int argc, char** argv) {
  using namespace weft;
  if (argc != 7) return std::fprintf(stderr, "bench_hdf5_read FILE SET PART PARTS ORDER ROUNDS\n"), 2;
  constexpr std::size_t batch_samples = 16;
  const data::Hdf5 file = data::Hdf5::open(argv[1]);
  const data::Arrays samples(data::array<state>(file[argv[2]]));
  const std::size_t parts = std::strtoul(argv[4], nullptr, 10), count = samples.size() / parts;
  const std::size_t first = std::strtoul(argv[3], nullptr, 10) * count;
  const bool shuffled = argv[5][0] == '1';
  FieldBatch<state> batch;
  FieldBatch<state>::Shapes shapes;
  samples.shapes(shapes);
  batch.resize(batch_samples, shapes);
  double sum = 0;
  std::printf("{\"seconds\": [");
  for (int round = 0, rounds = std::atoi(argv[6]); round < rounds; ++round) {
    sum = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < count; ++i) {
      auto sample = batch.sample(i % batch_samples);
      samples.load(first + (shuffled ? i * 389 % count : i), sample);  // count is no multiple of the prime 389
      sum += double(sample[state][0]);
    }
    std::printf("%s%.6f", round == 0 ? "" : ", ",
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::printf("], \"sum\": %.9g}\n", sum);
}
