// SPDX-License-Identifier: Apache-2.0
// Argument types that collectives accept and refuse, checked by the compiler.
#include <doctest/doctest.h>

#include <array>
#include <complex>
#include <deque>
#include <list>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <Kokkos_Core.hpp>

#include <weft/comm/threads.hpp>

using namespace weft;

static_assert(Contiguous<std::vector<float>> && Contiguous<std::span<const bfloat16>> && Contiguous<std::array<int, 3>>);
static_assert(Contiguous<Kokkos::View<double*>> && Contiguous<Kokkos::View<const float**, Kokkos::LayoutLeft>>);
static_assert(Contiguous<float[4]> && Contiguous<const std::int32_t (&)[2]> && !Contiguous<float[2][3]> && !Contiguous<bool[2]> &&
              !Contiguous<float*>);
static_assert(!Contiguous<std::list<float>> && !Contiguous<std::deque<float>>, "elements are not side by side");
static_assert(!Contiguous<std::vector<bool>> && !Contiguous<std::array<bool, 2>>, "a bool is no Scalar");
static_assert(!Contiguous<std::vector<std::complex<float>>> && !Contiguous<std::vector<std::string>> && !Contiguous<float>);

static_assert(MutableContiguous<std::vector<float>&> && MutableContiguous<std::span<int>> &&
              MutableContiguous<Kokkos::View<int*>> && MutableContiguous<double (&)[1]>);
static_assert(!MutableContiguous<const std::vector<float>&> && !MutableContiguous<std::span<const int>> &&
              !MutableContiguous<const int (&)[2]>);
static_assert(!MutableContiguous<Kokkos::View<const int*>>);

template <class... A>
concept AllReduces = requires(const Communicator& c, A&&... arguments) {
  c.all_reduce(std::forward<A>(arguments)...);
};
static_assert(AllReduces<std::vector<float>&> && AllReduces<std::vector<float>&, Reduction> && AllReduces<std::span<double>>);
static_assert(AllReduces<float (&)[4]> && AllReduces<const float (&)[4], float (&)[4], Reduction> &&
              !AllReduces<const float (&)[4]>);
static_assert(AllReduces<const Kokkos::DefaultExecutionSpace&, Kokkos::View<float*>>);
static_assert(!AllReduces<const std::vector<float>&>, "the result would have nowhere to go");
static_assert(!AllReduces<std::vector<float>&, std::list<float>&> && !AllReduces<>);

static_assert(comm::Backend<comm::Threads> && !comm::Backend<int> && !comm::Backend<Communicator>);
static_assert(comm::Threads::supports(comm::Operation::all_reduce, DataType::bfloat16, comm::MemoryKind::host));
static_assert(!comm::Threads::supports(comm::Operation::all_reduce, DataType::float32, comm::MemoryKind::device));
static_assert(!CommunicatorLike<comm::Group> && !CommunicatorLike<int>);
static_assert(!std::is_copy_constructible_v<Request> && std::is_nothrow_move_constructible_v<Request>);

static_assert(name_of(comm::Operation(200)) == "an unknown operation" && name_of(Reduction(4)) == "an unknown reduction" &&
              name_of(DataType(12)) == "elements of an unknown type");

TEST_CASE("every call that another process claims has a description") {
  CHECK(comm::describe(0x280207c8, 3).find("an unknown operation of 3 uint64") == 0);
  CHECK(comm::describe(0x0000ff00, 3) == "all_reduce(sum) of 3 elements of an unknown type");
  CHECK(comm::describe(0x00090a00, 3) == "all_reduce(an unknown reduction) of 3 float32");
}

TEST_CASE("a communicator lists the operations that it supports") {
  comm::run_threads(2, [](const Communicator& c) {
    if (!c.supports(comm::Operation::all_to_all_v, DataType::int8)) throw Error("host memory");
    if (c.supports(comm::Operation::all_reduce, DataType::float32, comm::MemoryKind::device)) throw Error("device memory");
  });
}
