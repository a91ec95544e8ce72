// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/detail/loops.hpp
// The warp on the host with which kernels/device_paths.cpp runs kernels (support/warp.hpp): correct bodies give the results of
// one thread, and mistakes that one lane cannot reveal are detected.
#include <Kokkos_Core.hpp>

#include <weft/device/parallel_for.hpp>

template <>
inline constexpr bool weft::detail::on_host<Kokkos::DefaultExecutionSpace> = false;

#include "kernels/support.hpp"
#include "support/warp.hpp"

#include <weft/kernels/detail/loops.hpp>

using namespace kernels_test;
using weft_test::Warp;
namespace kernels = weft::kernels;

namespace {

using Team = kernels::detail::row_team<DefaultDevice::execution_space>;

/// The rows of `rows` whose body f(row, team, wrong) calls wrong() in some lane.
template <class F>
int wrong_rows(std::size_t rows, const F& f) {
  DefaultDevice device;
  std::vector<int> wrong(rows);
  kernels::detail::for_each_row(device, {"test", 0}, rows,
                                [&](std::size_t row, Team team) { f(row, team, [&wrong, row] { wrong[row] = 1; }); });
  return int(std::count(wrong.begin(), wrong.end(), 1));
}

}  // namespace

TEST_CASE("lanes share loops out among them, agree on sums, and one of them leads") {
  Warp::forget_errors();
  constexpr std::size_t rows = 50, most = 3 * rows;
  std::vector<int> visits(rows * most), leaders(rows);
  CHECK(wrong_rows(rows, [&](std::size_t row, Team team, auto wrong) {
          const std::size_t n = 3 * row;
          team.each(n, [&](std::size_t i) { ++visits[row * most + i]; });
          if (std::accumulate(&visits[row * most], &visits[row * most] + n, 0) != int(n)) wrong();
          if (team.template total<double>(n, [](std::size_t i, double& total) { total += double(i); }) !=
              double(n) * (double(n) - 1) / 2)
            wrong();
          if (team.template largest<double>(n, -1, [](std::size_t i) { return double(i); }) != double(n) - 1) wrong();
          if (team.leads()) ++leaders[row];
        }) == 0);
  CHECK(*std::max_element(visits.begin(), visits.end()) == 1);
  CHECK(leaders == std::vector<int>(rows, 1));
  CHECK(Warp::errors().empty());
}

TEST_CASE("values that one lane writes and others read without a barrier are wrong in some row") {
  Warp::forget_errors();
  std::vector<double> statistic(200);
  const auto body = [&](bool meets) {
    std::fill(statistic.begin(), statistic.end(), 0.0);
    return wrong_rows(statistic.size(), [&](std::size_t row, Team team, auto wrong) {
      if (team.leads()) statistic[row] = 1;
      if (meets) team.each(0, [](std::size_t) {});
      if (statistic[row] != 1) wrong();
    });
  };
  CHECK(body(true) == 0);
  CHECK(body(false) > 150);  // all rows but those whose first lane is the first to run
  CHECK(Warp::errors().empty());
}

TEST_CASE("what every lane adds to in place is wrong") {
  std::vector<double> sums(10, 1.0);
  CHECK(wrong_rows(sums.size(), [&](std::size_t row, Team team, auto) {
          const double sum = team.template total<double>(64, [](std::size_t i, double& total) { total += double(i); });
          sums[row] += sum;  // not only on the leader
        }) == 0);
  CHECK(sums == std::vector<double>(10, 1.0 + 32 * 63 * 32));
}

TEST_CASE("the value written by the last lane depends on their order") {
  std::vector<std::size_t> last(100);
  wrong_rows(last.size(), [&](std::size_t row, Team team, auto) {
    std::size_t mine = 0;
    team.each(std::size_t(Warp::lanes), [&](std::size_t lane) { mine = lane; });
    last[row] = mine;
  });
  std::sort(last.begin(), last.end());
  CHECK(std::unique(last.begin(), last.end()) - last.begin() > 20);
}

TEST_CASE("a lane that misses a barrier is reported") {
  Warp::forget_errors();
  wrong_rows(1, [](std::size_t, Team team, auto) {
    if (team.leads()) team.each(3, [](std::size_t) {});
  });
  REQUIRE(Warp::errors().size() == 1);
  CHECK(Warp::errors().front() == "lane 0 waits at the end of a loop, and lane 1 has ended");
  Warp::forget_errors();
  wrong_rows(1, [](std::size_t, Team team, auto) {
    if (team.leads()) team.each(3, [](std::size_t) {});
    else team.template total<double>(3, [](std::size_t, double&) {});
  });
  REQUIRE(Warp::errors().size() == 1);
  CHECK(Warp::errors().front() == "lane 0 waits at the end of a loop, and lane 1 waits at a sum");
  Warp::forget_errors();
}
