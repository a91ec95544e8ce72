// SPDX-License-Identifier: Apache-2.0
// covers: weft/dtensor/choose.hpp
// Operations on DTensors compared with PyTorch 2.11 (tests/golden/make_dtensor.py): values and gradients in float64, and in
// random layouts of 2 and of 2 x 2 ranks the placements of the result, or fewer bytes moved.

#include "dtensor/operations_support.hpp"

#include <fstream>
#include <map>
#include <sstream>

#include <weft/dtensor/choose.hpp>
#include <weft/dtensor/operations.hpp>

using namespace weft_test;
using dtensor::partial, dtensor::replicate, dtensor::shard;

namespace {

struct Layout {
  std::string name;
  int ranks;
  std::vector<Placements> operands;  // the last one is that of ids and of the condition
  std::string result;                // "-": PyTorch refuses the operation or computes another value
  double bytes;
};
struct Reference {
  std::map<std::string, std::vector<std::vector<double>>> values;  // of the result and of each gradient
  std::vector<Layout> layouts;
};

Placements placements_of(const std::string& text) {
  Placements all;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');)
    all.push_back(one[0] == 'S'   ? shard(one[1] - '0')
                  : one[0] == 'R' ? replicate()
                                  : partial(one[0] == 'M'   ? Reduction::max
                                            : one[0] == 'N' ? Reduction::min
                                                            : Reduction::sum));
  return all;
}
std::string letters_of(const Placements& placements) {
  std::string all;
  for (const auto& p : placements)
    all += (all.empty() ? "" : ",") + (p.is_shard()       ? "S" + std::to_string(p.dim)
                                       : p.is_replicate() ? "R"
                                                          : std::string(1, "PMNA"[int(p.reduction)]));
  return all;
}

Reference read_reference() {
  std::ifstream file(WEFT_GOLDEN_FOLDER "/dtensor.txt");
  REQUIRE(file.good());
  Reference reference;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> fields;
    std::istringstream in(line);
    for (std::string field; std::getline(in, field, '|');) fields.push_back(field);
    if (fields[0] == "value") {
      std::istringstream numbers(fields[2]);
      auto& of = reference.values[fields[1]].emplace_back();
      for (double x; numbers >> x;) of.push_back(x);
    } else {
      Layout layout{fields[1], std::stoi(fields[2]), {}, fields[4], std::stod(fields[5])};
      std::istringstream operands(fields[3]);
      for (std::string one; operands >> one;) layout.operands.push_back(placements_of(one));
      reference.layouts.push_back(std::move(layout));
    }
  }
  return reference;
}

double worst_of(const std::vector<double>& got, const std::vector<double>& expected) {
  if (got.size() != expected.size()) return 1e300;
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(got[i] - expected[i]) / (1 + std::abs(expected[i]));
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

}  // namespace

TEST_CASE("values, gradients and placements are PyTorch's, or fewer bytes move") {
  const Reference reference = read_reference();
  const auto cases = operation_cases();
  CHECK(reference.values.size() == cases.size());
  CHECK(reference.layouts.size() >= 400);
  int same = 0, cheaper = 0, as_cheap = 0, refused = 0;
  std::string others;
  for (const int ranks : {2, 4})
    CHECK(runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
            const Mesh<dp, tp> mesh(world, {.tp = ranks / 2});
            const dtensor::DeviceMesh grid = ranks == 2 ? dtensor::DeviceMesh(mesh, dp{}) : dtensor::DeviceMesh(mesh, dp{}, tp{});
            for (const Layout& layout : reference.layouts) {
              if (layout.ranks != ranks) continue;
              std::size_t number = 0;
              while (cases[number].name != layout.name) ++number;
              auto operand_layouts = layout.operands;
              operand_layouts.push_back(operand_layouts.back());
              const Operands operands = make_operands(world, grid, cases[number], number, operand_layouts, true);
              const double before = grid.bytes_moved();
              const D y = cases[number].call(operands);
              const double bytes = grid.bytes_moved() - before;
              y.backward(make<double>(world, grid, y.shape(), Placements(grid.axes()),
                                      [&](std::size_t i) { return value_at(number + 1000, i); }));
              const auto& expected = reference.values.at(layout.name);
              double worst = worst_of(copy_to_host(y.full_tensor()), expected[0]);
              for (std::size_t k = 0; k < operands.x.size(); ++k)
                worst = std::max(worst, worst_of(copy_to_host(operands.x[k].grad().full_tensor()), expected[k + 1]));
              if (world.rank() != 0) continue;
              std::string text = layout.name;
              for (const auto& one : layout.operands) text += " " + letters_of(one);
              INFO(text);
              CHECK(worst <= 1e-13);
              // A partial result has yet to be reduced: PyTorch keeps norms partial, for example.
              const auto until_whole = [&](double moved, const Placements& placements) {
                return moved +
                       dtensor::moved_bytes(y.shape(), sizeof(double), grid.places(), placements, Placements(grid.axes()));
              };
              const std::string result = letters_of(y.placements());
              if (layout.result == "-") ++refused;
              else if (result == layout.result && bytes <= layout.bytes) ++same;
              else if (bytes < layout.bytes) ++cheaper;
              else if (until_whole(bytes, y.placements()) <= until_whole(layout.bytes, placements_of(layout.result))) ++as_cheap;
              else
                others += text + " gives " + result + " with " + std::to_string(int(bytes)) + " bytes, PyTorch's " +
                          layout.result + " with " + std::to_string(int(layout.bytes)) + "\n";
            }
          }) == 0);
  CHECK(others == "");
  MESSAGE(same << " with PyTorch's placements, " << cheaper << " with fewer bytes, " << as_cheap
               << " with as many or fewer until the result is whole, " << refused << " that PyTorch refuses");
}
