// SPDX-License-Identifier: Apache-2.0
// Schedules as CSV, any text: it is refused in one line, or it is a table that the checker proved, and writes itself down again.
#include <weft/pipeline/schedule/csv.hpp>
#include <weft/pipeline/schedule/named.hpp>

#include "fuzz/support/fuzz.hpp"

using namespace weft;

void weft_test::target(Input input) {
  const std::string_view text = input.rest();
  try {
    const schedule::Table table = schedule::from_csv(text, "file.csv");
    const std::string written = schedule::to_csv(table);
    expect(schedule::to_csv(schedule::from_csv(written, "again.csv")) == written);
  } catch (const Error& error) {
    expect_message(error.what());
  }
}

std::vector<std::string> weft_test::seeds() {
  std::vector<std::string> texts{"0F0,0B0\n1F0,1B0\n", "0F0,,0I0,0W0\n", "0F0,(0F1;0B0),0B1\n"};
  for (const char* name : {"1f1b", "interleaved", "zbv", "dualpipev"})
    texts.push_back(schedule::to_csv(schedule::named_table(name, 2, 4)));
  return texts;
}
