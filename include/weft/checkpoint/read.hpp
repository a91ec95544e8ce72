// SPDX-License-Identifier: Apache-2.0
#pragma once
// The elements that a rank needs, read from the files of a checkpoint. Each rank reads and verifies only the chunks that hold
// some of its elements.
//
//   read_items(system, path, index, ranks, tensors, items, out);

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <weft/checkpoint/blocks.hpp>
#include <weft/checkpoint/checksum.hpp>
#include <weft/checkpoint/error.hpp>
#include <weft/checkpoint/file_system.hpp>
#include <weft/checkpoint/folder.hpp>
#include <weft/checkpoint/index.hpp>
#include <weft/checkpoint/state.hpp>
#include <weft/checkpoint/together.hpp>
#include <weft/comm/communicator.hpp>

namespace weft::checkpoint::detail {

/// The files of a checkpoint, opened when they are needed.
class OpenFiles {
 public:
  OpenFiles(FileSystem& system, std::string folder, const Index& index)
      : system_(&system), folder_(std::move(folder)), index_(&index) {}

  const File& operator[](std::size_t i) {
    auto at = open_.find(i);
    if (at == open_.end()) {
      if (open_.size() == most) open_.erase(open_.begin());
      const StoredFile& stored = index_->files[i];
      File file = File::open(*system_, in_folder(folder_, stored.name));
      if (file.length() != stored.bytes)
        refuse({file.path(), {}, std::min(file.length(), stored.bytes)},
               {"has ", file.length(), " bytes, and the index has ", stored.bytes});
      at = open_.emplace(i, std::move(file)).first;
    }
    return at->second;
  }
  /// Verifies the bytes before the tensors.
  void check_header(std::size_t i) {
    const File& file = (*this)[i];
    const StoredFile& stored = index_->files[i];
    if (stored.header_bytes > largest_header + 8)
      refuse({file.path()}, {"has a header of ", stored.header_bytes, " bytes, more than ", largest_header});
    std::string header(stored.header_bytes, '\0');
    file.read(header.data(), header.size(), 0);
    if (const std::uint64_t found = checksum_of(header.data(), header.size()); found != stored.header_checksum)
      refuse({file.path(), {}, 0},
             {"its header is damaged: checksum ", hex(found), ", and the index has ", hex(stored.header_checksum)});
  }
  void read_chunk(const LogicalTensor& tensor, const StoredPiece& piece, std::size_t chunk, std::byte* to, std::size_t bytes) {
    const std::uint64_t offset = piece.offset + chunk * index_->chunk_bytes;
    const File& file = (*this)[piece.file];
    file.read(to, bytes, offset, tensor.name);
    if (const std::uint64_t found = checksum_of(to, bytes); found != piece.checksums[chunk])
      refuse({file.path(), tensor.name, offset},
             {"its ", bytes, " bytes are damaged: checksum ", hex(found), ", and the index has ", hex(piece.checksums[chunk])});
  }

 private:
  static constexpr std::size_t most = 64;
  FileSystem* system_;
  std::string folder_;
  const Index* index_;
  std::map<std::size_t, File> open_;
};

/// This rank's elements of one piece, in the order of the file.
struct Overlap {
  std::uint64_t from, count;  ///< elements of the piece
  std::size_t local;          ///< position of the first one on this rank
};

/// A piece that holds elements of this rank, and their destination.
struct PieceRead {
  const LogicalTensor* tensor;
  const StoredPiece* piece;
  const std::vector<Run>* runs;  ///< this rank's elements of the tensor, by their positions in it
  std::byte* out;                ///< memory for all of them
};

/// Reads this rank's elements of a piece, in the chunks that hold some of them.
inline void read_piece(OpenFiles& files, const Index& index, const PieceRead& read, std::vector<Overlap>& overlaps,
                       std::vector<std::byte>& buffer) {
  const LogicalTensor& tensor = *read.tensor;
  const StoredPiece& piece = *read.piece;
  const std::uint64_t size = size_of(tensor.type), chunk_elements = index.chunk_bytes / size;
  overlaps.clear();
  for_each_overlap(piece.block, *read.runs, [&](std::uint64_t from, std::size_t local, std::uint64_t count) {
    if (!overlaps.empty() && overlaps.back().from + overlaps.back().count == from &&
        overlaps.back().local + overlaps.back().count == local)
      overlaps.back().count += count;
    else overlaps.push_back({from, count, local});
  });
  for (std::size_t at = 0; at < overlaps.size();) {
    const std::size_t chunk = std::size_t(overlaps[at].from / chunk_elements);
    const std::uint64_t begin = chunk * chunk_elements, end = std::min(piece.block.elements(), begin + chunk_elements);
    const std::size_t bytes = std::size_t((end - begin) * size);
    if (overlaps[at].from <= begin && overlaps[at].from + overlaps[at].count >= end) {
      // The whole chunk is contiguous here, as in the file.
      std::byte* to = read.out + (overlaps[at].local + std::size_t(begin - overlaps[at].from)) * size;
      files.read_chunk(tensor, piece, chunk, to, bytes);
    } else {
      buffer.resize(bytes);
      files.read_chunk(tensor, piece, chunk, buffer.data(), bytes);
      for (std::size_t i = at; i < overlaps.size() && end > overlaps[i].from; ++i) {
        const std::uint64_t from = std::max(begin, overlaps[i].from), to = std::min(end, overlaps[i].from + overlaps[i].count);
        std::memcpy(read.out + (overlaps[i].local + std::size_t(from - overlaps[i].from)) * size,
                    buffer.data() + (from - begin) * size, std::size_t(to - from) * size);
      }
    }
    // Skip to the elements of later chunks; one overlap may continue there.
    while (at < overlaps.size() && overlaps[at].from + overlaps[at].count <= end) ++at;
    if (at < overlaps.size() && overlaps[at].from < end) {
      overlaps[at].local += std::size_t(end - overlaps[at].from);
      overlaps[at].count -= end - overlaps[at].from;
      overlaps[at].from = end;
    }
  }
}

/// Reads the pieces in the order of their bytes, so that the system reads ahead, which it would not in the order of names. Ranks
/// begin with different files, so they do not wait for the same bytes of a disk.
inline void read_pieces(OpenFiles& files, const Index& index, std::vector<PieceRead>& reads, int rank) {
  const std::size_t all = index.files.size();
  const auto place = [&](const PieceRead& read) {
    return std::pair((read.piece->file + all - std::size_t(rank) % all) % all, read.piece->offset);
  };
  std::sort(reads.begin(), reads.end(), [&](const PieceRead& a, const PieceRead& b) { return place(a) < place(b); });
  std::vector<Overlap> overlaps;
  std::vector<std::byte> buffer;
  for (const PieceRead& read : reads) read_piece(files, index, read, overlaps, buffer);
}

/// Reads this rank's elements of one tensor into `out`, which has room for all of them.
inline void read_tensor(OpenFiles& files, const Index& index, const LogicalTensor& tensor, const Item& item, std::byte* out,
                        std::vector<std::byte>& buffer) {
  const std::vector<Run> runs = item.runs.sorted();
  std::vector<Overlap> overlaps;
  for (const StoredPiece& piece : tensor.pieces) read_piece(files, index, {&tensor, &piece, &runs, out}, overlaps, buffer);
}

/// The elements of a rank's items, read from the files of a checkpoint. Collective.
inline void read_items(FileSystem& system, const std::string& path, const Index& index, const Communicator& ranks,
                       const std::vector<const LogicalTensor*>& tensors, const std::vector<Item>& items,
                       const std::vector<std::byte*>& out) {
  together(ranks, [&] {
    OpenFiles files(system, path, index);
    for (std::size_t i = std::size_t(ranks.rank()); i < index.files.size(); i += std::size_t(ranks.size())) files.check_header(i);
    std::vector<PieceRead> reads;
    std::vector<std::vector<Run>> runs(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      runs[i] = items[i].runs.sorted();
      for (const StoredPiece& piece : tensors[i]->pieces) reads.push_back({tensors[i], &piece, &runs[i], out[i]});
    }
    read_pieces(files, index, reads, ranks.rank());
  });
}

}  // namespace weft::checkpoint::detail
