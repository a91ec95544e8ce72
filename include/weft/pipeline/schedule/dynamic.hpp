// SPDX-License-Identifier: Apache-2.0
#pragma once
// Schedules chosen at run time, by name or from a file, for programs with a command line. One compiled model runs all of them.
//
//   PipelineParallel<models::Gpt> model(mesh, config, {.pipeline = {.schedule = schedule::choose("zbv")}});
//   PipelineParallel<models::Gpt> model(mesh, config, {.pipeline = {.schedule = schedule::choose_file("own.csv")}});

#include <memory>
#include <string>
#include <utility>

#include <weft/core/input_file.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/schedule/csv.hpp>
#include <weft/pipeline/schedule/named.hpp>

namespace weft::schedule {

namespace detail {

class NamedSource final : public AnySchedule::Source {
 public:
  NamedSource(std::string name, int chunks)
      : name_(std::move(name)), chunks_(named_chunks(name_, chunks)), v_shape_(named_v_shape(name_)) {}
  int chunks() const override { return chunks_; }
  int stage(int rank, int chunk, int ranks) const override {
    return v_shape_ ? VShape::stage(rank, chunk, ranks) : Loop::stage(rank, chunk, ranks);
  }
  Table table(int ranks, int micro_batches) const override { return named_table(name_, ranks, micro_batches, chunks_); }

 private:
  std::string name_;
  int chunks_;
  bool v_shape_;
};

}  // namespace detail

/// The schedule of that name (see `names`) with `chunks` stages per rank; 0 means the schedule's own number, or 2 if it takes
/// any. Throws UsageError for an unknown name, LayoutError for a number of stages that the schedule does not take.
inline std::shared_ptr<const AnySchedule> choose(std::string name, int chunks = 0) {
  return std::make_shared<const AnySchedule>(std::make_shared<const detail::NamedSource>(std::move(name), chunks));
}

/// The table in a CSV file (see csv.hpp). Throws UsageError if the file cannot be read, LayoutError with the reason if the table
/// does not pass the checker.
inline std::shared_ptr<const AnySchedule> choose_file(const std::string& path) {
  Table table = from_csv(weft::detail::InputFile("schedule", path, "CSV file", most_csv_bytes).read(), path);
  return std::make_shared<const AnySchedule>(std::make_shared<const detail::TableSource>(std::move(table), path));
}

}  // namespace weft::schedule
