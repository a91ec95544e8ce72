// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files of the flight recorder, one a rank: DIR/weft_flight_RANK.json for DIR in the environment variable WEFT_FLIGHT_DIR, and
// none without it. `run` writes them if a rank's function throws, if a rank does not end after another one's failure, and on the
// first Ctrl-C or SIGTERM; `./examples/run flight DIR` reads them. The fields are named as those of PyTorch's flight recorder
// (torch/csrc/distributed/c10d/FlightRecorder), as far as both have them.
//
//   comm::write_flights("the loss is not finite");   // in a program with its own main: those of this process

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft::comm {

class FlightRecorder;

inline constexpr const char* flight_variable = "WEFT_FLIGHT_DIR";

enum class FlightFiles { all, missing };  ///< missing: of ranks that have written none themselves

/// Writes the files of this process's ranks, or only that of `rank`, in place of older ones: each with mode 0600, and complete or
/// not at all. Never throws; waits at most 2 s for a file system that does not answer. Returns how many were written.
int write_flights(std::string_view reason, int rank = -1, FlightFiles which = FlightFiles::all) noexcept;

/// Runs f, which is a rank's program, and writes the rank's file if it throws: its communicators must outlive the call.
template <class F>
void with_flight_record(int rank, F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    write_flights(error.what(), rank);
    throw;
  } catch (...) {
    write_flights("an exception that is no std::exception", rank);
    throw;
  }
}

/// " (the last calls of every rank: ./examples/run flight DIR)", or how to get them, for the line of an error.
std::string flight_hint();

namespace detail {

/// WEFT_FLIGHT_DIR, or null.
const char* flight_folder();

/// The recorders of this process, so that an error of one rank or a signal finds them all.
class FlightRecorders {
 public:
  static void add(FlightRecorder& recorder);
  static void remove(FlightRecorder& recorder);
  /// The ranks' numbers and their files' content.
  struct File {
    int rank;
    std::string text;
  };
  static std::vector<File> files(std::string_view reason, int rank, FlightFiles which);
};

/// The content of a file. `recorders`: those of one rank.
std::string flight_json(const std::vector<FlightRecorder*>& recorders, std::string_view reason);

/// Makes the folder if it is missing, and the file in it with mode 0600 by a rename. True if it is there.
bool write_flight_file(const std::string& folder, int rank, std::string_view text) noexcept;

/// Throws UsageError if WEFT_FLIGHT_DIR names a folder in which no file could be made.
void require_flight_folder();

}  // namespace detail

}  // namespace weft::comm

#ifndef WEFT_COMPILED
#include <weft/comm/flight_file_impl.hpp>
#endif
