// SPDX-License-Identifier: Apache-2.0
// Context parallelism over MPI processes gives the results of one rank, by a ring and by Ulysses.

#include "support/context.hpp"

#include <weft/comm/mpi.hpp>

using namespace weft_test;

namespace {

using Model = models::BasicLlama<double>;

template <class Method>
void check_processes() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const Reference reference = reference_of<Model>(llama_config());
  using Composition = DataParallel<ContextParallel<TensorParallel<PipelineParallel<Model>>, Method>>;
  check_context<Composition, comm::Mpi>(llama_config(), reference, std::size_t(size), {.cp = std::size_t(size)});
  if (size > 1)
    check_context<Composition, comm::Mpi>(llama_config(), reference, std::size_t(size), {.cp = std::size_t(size) / 2, .pp = 2});
}

}  // namespace

TEST_CASE("ring") { check_processes<Ring>(); }
TEST_CASE("Ulysses") { check_processes<Ulysses>(); }
