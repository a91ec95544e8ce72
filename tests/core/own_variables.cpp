// SPDX-License-Identifier: Apache-2.0
// Variables at global scope, and a function `map`, of a program that is `using namespace weft` (own_names.cpp has types and
// functions). A variable with the name of an operation on tensors hides the operation, which is then called as operations::scale.

#include <doctest/doctest.h>

#include <weft/weft.hpp>

using namespace weft;

int arena = 1, buffer = 2, chain = 3, divide = 4, dot = 5, experts = 6, kind = 7, kind_of = 8, layout = 9, level = 10, links = 11,
    mesh = 12, narrow = 13, order = 14, place = 15, position = 16, record = 17, router = 18, scale = 19, slot = 20, softmax = 21,
    store = 22, table = 23, times = 24, unit = 25, weight = 26, resolve = 27, contains = 28, value_of = 29, reshape = 30;
int map(int x, int (*f)(int)) { return f(x); }

TEST_CASE("a program's own variables of common names") {
  CHECK(arena + buffer + chain + divide + dot + experts + kind + kind_of + layout + level + links + mesh + narrow + order +
            place + position + record + router + scale + slot + softmax + store + table + times + unit + weight + resolve +
            contains + value_of + reshape ==
        30 * 31 / 2);
  CHECK(map(4, [](int x) { return x + 1; }) == 5);

  Device<Kokkos::DefaultHostExecutionSpace> device;
  const Tensor<double, Kokkos::DefaultHostExecutionSpace> x(device, {2});
  x.data()[0] = 1;
  x.data()[1] = 3;
  const auto y = map(operations::scale(add(x, x), 0.5), [](double value) { return value + 1; });
  CHECK(y.data()[1] == 4);
}
