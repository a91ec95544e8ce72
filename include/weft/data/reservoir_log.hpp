// SPDX-License-Identifier: Apache-2.0
#pragma once
// The order in which samples reached a reservoir and steps drew from it: all of a live run that its seed does not determine. A
// text file, a line for each event.
//
//   reservoir.log().save("run.reservoir");
//   data::Reservoir<...> again(shapes, options, data::ReservoirLog::load("run.reservoir"));

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft::data {

struct ReservoirLog {
  /// A sample that arrived, or a draw.
  struct Event {
    std::uint64_t number = 0;  ///< the sample's id, or the step
    std::size_t drawn = 0;     ///< samples of a draw; 0: an arrival
    friend bool operator==(const Event&, const Event&) = default;
  };
  std::vector<Event> events;

  /// Throws UsageError if the file cannot be written.
  void save(const std::string& file) const;
  /// Throws UsageError, with the file's name and the line, if it cannot be read or is no log.
  static ReservoirLog load(const std::string& file);
  friend bool operator==(const ReservoirLog&, const ReservoirLog&) = default;
};

}  // namespace weft::data

#ifndef WEFT_COMPILED
#include <weft/data/reservoir_log_impl.hpp>
#endif
