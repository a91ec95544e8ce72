// SPDX-License-Identifier: Apache-2.0
#pragma once
// Many arrays as one list of pieces in device memory, so that one launch processes all of them: a model has hundreds of
// parameters, most of them small, and each launch costs microseconds.
//
//   const auto& table = device.cache<PartTables<NormPart<float>, 16384>>().of(device, parts);
//   for_each_row(device, traffic, table.pieces(), KOKKOS_LAMBDA(std::size_t i, Team team) { ... table.part_of(i) ... });

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <weft/device/device.hpp>
#include <weft/device/host_copies.hpp>

namespace weft::kernels::detail {

/// The pieces of a list of parts, for kernels.
template <class Part, std::size_t piece>
class PieceList {
 public:
  struct Piece {
    std::uint32_t part, number;
  };
  PieceList() = default;
  PieceList(const Part* parts, const std::size_t* firsts, const Piece* pieces)
      : parts_(parts), firsts_(firsts), pieces_(pieces) {}
  KOKKOS_FORCEINLINE_FUNCTION const Part& part_of(std::size_t i) const { return parts_[pieces_[i].part]; }
  /// The first element of piece i in its part.
  KOKKOS_FORCEINLINE_FUNCTION std::size_t begin(std::size_t i) const { return pieces_[i].number * piece; }
  /// The end of piece i in its part.
  KOKKOS_FORCEINLINE_FUNCTION std::size_t end(std::size_t i) const {
    const std::size_t n = part_of(i).n, full = begin(i) + piece;
    return full < n ? full : n;
  }
  /// The index of the first piece of part p. For p = the number of parts: the number of pieces.
  KOKKOS_FORCEINLINE_FUNCTION std::size_t first_of(std::size_t p) const { return firsts_[p]; }

 private:
  const Part* parts_ = nullptr;
  const std::size_t* firsts_ = nullptr;
  const Piece* pieces_ = nullptr;
};

/// A list of parts on a device. A Part is trivially copyable and has a length `n`. Its pieces have `piece` elements; the last one
/// may have fewer.
template <class Part, std::size_t piece>
class PartTable {
  static_assert(std::is_trivially_copyable_v<Part>);
  using List = PieceList<Part, piece>;

 public:
  bool holds(std::span<const Part> parts) const { return std::equal(parts_.begin(), parts_.end(), parts.begin(), parts.end()); }

  /// Writes the list. Waits for the device to read the host's copy.
  template <class Exec>
  void write(Device<Exec>& device, std::span<const Part> parts) {
    parts_.assign(parts.begin(), parts.end());
    std::vector<std::size_t> firsts{0};
    std::vector<typename List::Piece> pieces;
    elements_ = 0;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      for (std::size_t number = 0; number * piece < parts[p].n; ++number)
        pieces.push_back({std::uint32_t(p), std::uint32_t(number)});
      firsts.push_back(pieces.size());
      elements_ += parts[p].n;
    }
    pieces_ = pieces.size();
    const std::size_t sizes[] = {parts_.size() * sizeof(Part), firsts.size() * sizeof(std::size_t),
                                 pieces.size() * sizeof(typename List::Piece)};
    memory_ = device.allocate_persistent(sizes[0] + sizes[1] + sizes[2]);
    char* const to = static_cast<char*>(memory_.get());
    weft::detail::copy_to_device(device, to, parts_.data(), sizes[0]);
    weft::detail::copy_to_device(device, to + sizes[0], firsts.data(), sizes[1]);
    weft::detail::copy_to_device(device, to + sizes[0] + sizes[1], pieces.data(), sizes[2]);
    device.exec().fence("weft: a table of parts");
    list_ = List(reinterpret_cast<const Part*>(to), reinterpret_cast<const std::size_t*>(to + sizes[0]),
                 reinterpret_cast<const typename List::Piece*>(to + sizes[0] + sizes[1]));
  }

  const List& list() const { return list_; }
  std::size_t pieces() const { return pieces_; }
  std::size_t elements() const { return elements_; }  ///< in all parts

 private:
  std::vector<Part> parts_;
  std::size_t pieces_ = 0, elements_ = 0;
  weft::detail::Buffer memory_;
  List list_;
};

/// The tables of a device, reused between steps: arrays of parameters do not move.
template <class Part, std::size_t piece>
class PartTables {
 public:
  using Table = PartTable<Part, piece>;

  /// The table of these parts, which is valid until the next call.
  template <class Exec>
  const Table& of(Device<Exec>& device, std::span<const Part> parts) {
    for (const Table& table : tables_)
      if (table.holds(parts)) return table;
    if (tables_.size() < most) tables_.emplace_back();
    Table& oldest = tables_[next_++ % most];
    oldest.write(device, parts);
    return oldest;
  }

 private:
  static constexpr std::size_t most = 16;  // an optimizer has one per set of options
  std::vector<Table> tables_;
  std::size_t next_ = 0;
};

}  // namespace weft::kernels::detail
