// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for data/reservoir_log.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <charconv>
#include <string_view>

#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/input_file.hpp>
#include <weft/core/output_file.hpp>
#include <weft/data/reservoir_log.hpp>

namespace weft::data {

namespace detail {
inline constexpr std::string_view reservoir_title = "weft reservoir log 1";

// "sample ID" or "draw STEP COUNT"; false for any other line.
WEFT_COLD WEFT_INLINE bool read_event(std::string_view line, ReservoirLog::Event& event) {
  const bool draw = line.starts_with("draw ");
  if (!draw && !line.starts_with("sample ")) return false;
  line.remove_prefix(draw ? 5 : 7);
  auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), event.number);
  if (error != std::errc()) return false;
  line.remove_prefix(std::size_t(end - line.data()));
  if (!draw) return line.empty();
  if (!line.starts_with(' ')) return false;
  const auto count = std::from_chars(line.data() + 1, line.data() + line.size(), event.drawn);
  return count.ec == std::errc() && count.ptr == line.data() + line.size() && event.drawn != 0;
}
}  // namespace detail

WEFT_COLD WEFT_INLINE void ReservoirLog::save(const std::string& file) const {
  std::string text(detail::reservoir_title);
  text += '\n';
  for (const Event& event : events) {
    if (event.drawn == 0) weft::detail::append_to(text, {"sample ", event.number, "\n"});
    else weft::detail::append_to(text, {"draw ", event.number, " ", event.drawn, "\n"});
  }
  weft::detail::write_output("reservoir", file, text);
}

WEFT_COLD WEFT_INLINE ReservoirLog ReservoirLog::load(const std::string& file) {
  const weft::detail::InputFile input("reservoir", file, "log of a reservoir", weft::detail::half_of_memory());
  const std::string text = input.read();
  ReservoirLog log;
  std::size_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    ++number;
    Event event;
    if (number == 1 ? line != detail::reservoir_title : !detail::read_event(line, event))
      input.refuse({"line ", number, " is '", std::string(line.substr(0, 80)), "', expected ",
                    number == 1 ? "'weft reservoir log 1'" : "'sample ID' or 'draw STEP COUNT'"});
    if (number > 1) log.events.push_back(event);
    if (end == std::string_view::npos) input.refuse({"line ", number, " does not end: the file was cut"});
    rest.remove_prefix(end + 1);
  }
  if (number == 0) input.refuse({"it is empty"});
  return log;
}

}  // namespace weft::data
