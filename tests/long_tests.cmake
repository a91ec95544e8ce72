# SPDX-License-Identifier: Apache-2.0
# The tests that only `./tests/run --long` builds and runs (WEFT_LONG_TESTS), and those of one day of the week. Every commit has to pass within a time that leaves
# a slow and busy machine room, and each of these shows on other ranks, for another model or in another mode what a test of
# every commit shows too; docs/decisions/0045-tests-of-every-commit.md has the figures.
option(WEFT_LONG_TESTS "Also the tests that ./tests/run runs only with --long" OFF)
set(weft_long_tests
  # between processes what parallel/parity_mpi and parallel/parity_tcp show of other layouts, and threads of these
  parallel/matrix_mpi parallel/context_mpi parallel/zero_mpi parallel/expert_mpi
  # comm/conformance_header_only and the tests of other devices are header-only, too
  nn/composed_header_only headers/two_translation_units_header_only
  # hugging_face/folders and checkpoint/resume for other models and kinds of state
  hugging_face/relatives hugging_face/adapters checkpoint/between_mpi checkpoint/resume_kinds
  # bytes that each stage of ZeRO keeps: plan/rehearsal counts them, too
  parallel/zero_memory
  # the same wrappers around a mixture of experts: parallel/matrix_experts has them
  parallel/attention_options_experts parallel/reproducible_experts parallel/expert_zero
  # comm, data and device have their programs under ThreadSanitizer in every run
  checkpoint/thread_sanitizer parallel/thread_sanitizer
  # parallel/options_thread_sanitizer has the same program, which takes the compiler a minute for each sanitizer
  parallel/options_address_sanitizer
  # a proof of weft with a mistake in it, which runtime/prove covers for wrong programs: one compilation for each program
  runtime/test_mutations.py)
# package/test_install.sh and package/test_subdirectory.sh build the same as Conan, in every run.
option(WEFT_WEEKLY_TESTS "Also the tests that ./tests/run runs for commits of one day of the week" OFF)
set(weft_weekly_tests package/test_conan.sh)

# weft_left_out(VARIABLE TEST): whether this run is without a test.
macro(weft_left_out variable test)
  set(${variable} OFF)
  if(("${test}" IN_LIST weft_long_tests AND NOT WEFT_LONG_TESTS) OR
     ("${test}" IN_LIST weft_weekly_tests AND NOT WEFT_WEEKLY_TESTS AND NOT WEFT_LONG_TESTS))
    set(${variable} ON)
    set_property(GLOBAL APPEND PROPERTY weft_registered_tests ${test})
  endif()
endmacro()
