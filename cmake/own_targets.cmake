# SPDX-License-Identifier: Apache-2.0
# What weft's own programs (tests, examples, benchmarks) share. Nothing here reaches a user of weft::weft.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()

# Programs take weft::compiled, where it is built. Those that must see every definition (sanitizers of their own, the tests of the
# header-only library) take weft_own_header_only.
add_library(weft_own_header_only INTERFACE)
target_link_libraries(weft_own_header_only INTERFACE weft::weft)
target_compile_options(weft_own_header_only INTERFACE -Wall -Wextra ${weft_device_errors} $<$<BOOL:${WEFT_NATIVE}>:-march=native>)
# So much is instantiated that g++ spends 7 % of its time collecting garbage, unless it may use 1.5 GB before it begins.
if(NOT Kokkos_ENABLE_CUDA)
  target_compile_options(weft_own_header_only INTERFACE $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1500000>)
endif()
add_library(weft_own INTERFACE)
target_link_libraries(weft_own INTERFACE weft_own_header_only $<TARGET_NAME_IF_EXISTS:weft::compiled>)
# The MPI backend of a program with weft_own.
if(TARGET weft::compiled_mpi)
  set(weft_own_mpi weft::compiled_mpi)
else()
  set(weft_own_mpi weft::mpi)
endif()

# weft_program(NAME SOURCES...): an executable with the warnings, the standard and the processor of our own programs.
# weft_program(NAME HEADER_ONLY SOURCES...): one without weft::compiled.
function(weft_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "HEADER_ONLY" "" "")
  set(own weft_own)
  if(arg_HEADER_ONLY)
    set(own weft_own_header_only)
  endif()
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${own})
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF)
endfunction()
