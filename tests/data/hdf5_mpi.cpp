// SPDX-License-Identifier: Apache-2.0
// covers: weft/data/hdf5.hpp
// A file that ranks write together by MPI, as a simulation does, and read as their pieces: by the MPI driver and by each rank.

#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <weft/comm/mpi.hpp>
#include <weft/data/hdf5.hpp>
#include <weft/data/loader.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/runtime/run.hpp>

#include "support/temporary_folder.hpp"

using namespace weft;
using namespace weft_test;

namespace {

inline constexpr data::Field<"state", float, data::Cut<dx, 2>> state;

constexpr std::size_t samples = 4, channels = 2, rows = 6, columns = 3;

double value(std::size_t n, std::size_t c, std::size_t i, std::size_t j) {
  return double(((n * channels + c) * rows + i) * columns + j);
}

hid_t parallel_access() {
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  REQUIRE(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL) >= 0);
  return access;
}

/// All ranks write the set together, each the rows of its piece.
void write(const std::string& path, hid_t access, const data::detail::EvenPiece& mine) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
  REQUIRE(file >= 0);
  const hsize_t extents[]{samples, channels, rows, columns}, first[]{0, 0, mine.first, 0},
      count[]{samples, channels, mine.count, columns};
  const hid_t whole = H5Screate_simple(4, extents, nullptr), piece = H5Screate_simple(4, count, nullptr);
  const hid_t set = H5Dcreate2(file, "u", H5T_IEEE_F64LE, whole, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  std::vector<double> values;
  for (std::size_t n = 0; n < samples; ++n)
    for (std::size_t c = 0; c < channels; ++c)
      for (std::size_t i = 0; i < mine.count; ++i)
        for (std::size_t j = 0; j < columns; ++j) values.push_back(value(n, c, mine.first + i, j));
  const hid_t together = H5Pcreate(H5P_DATASET_XFER);
  H5Pset_dxpl_mpio(together, H5FD_MPIO_COLLECTIVE);
  H5Sselect_hyperslab(whole, H5S_SELECT_SET, first, nullptr, count, nullptr);
  CHECK(H5Dwrite(set, H5T_NATIVE_DOUBLE, piece, whole, together, values.data()) >= 0);
  H5Pclose(together), H5Dclose(set), H5Sclose(piece), H5Sclose(whole), H5Fclose(file);
}

}  // namespace

TEST_CASE("ranks read what ranks wrote") {
  std::array<char, 4096> shared{};
  int rank_of_all = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_of_all);
  std::optional<TemporaryFolder> folder;
  if (rank_of_all == 0) {
    folder.emplace();
    folder->path.string().copy(shared.data(), shared.size() - 1);
  }
  MPI_Bcast(shared.data(), int(shared.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  const std::string path = std::string(shared.data()) + "/run.h5";
  CHECK(runtime::run<comm::Mpi>(runtime::RunOptions{}, [&](World& world) {
          const std::size_t ranks = std::size_t(world.size()), rank = std::size_t(world.rank());
          const hid_t access = parallel_access();
          write(path, access, data::detail::EvenPiece(rows, ranks, rank));
          const Mesh mesh(world, axes<dp, dx>, {.dx = ranks});
          for (const hid_t how : {access, hid_t(H5P_DEFAULT)}) {
            const data::Hdf5 file = data::Hdf5::open(path, how);
            const data::Arrays dataset(data::array<state, double>(mesh, file["u"], {.scale = 2}));
            const data::detail::EvenPiece mine(rows, ranks, rank);
            data::Loader loader(mesh, dataset, {.global_batch = 2, .shuffle = false, .ahead = 0});
            std::size_t n = 0;
            for (const auto& batch : loader) {
              CHECK(batch[state].shape() == Shape{channels, mine.count, columns});
              for (std::size_t k = 0; k < 2; ++k, ++n) {
                std::size_t at = 0;
                for (std::size_t c = 0; c < channels; ++c)
                  for (std::size_t i = 0; i < mine.count; ++i)
                    for (std::size_t j = 0; j < columns; ++j)
                      CHECK(batch[state].sample(k)[at++] == float(2 * value(n, c, mine.first + i, j)));
              }
            }
            CHECK(n == samples);
          }
          H5Pclose(access);
        }) == 0);
  MPI_Barrier(MPI_COMM_WORLD);  // rank 0 removes the folder
}
