# SPDX-License-Identifier: Apache-2.0
# What weft's own programs (tests, examples, benchmarks) share. Nothing here reaches a user of weft::weft.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()

# ccache, if it is there. Precompiled headers need its sloppiness; without the folder in the hash, a second clone hits too.
find_program(WEFT_CCACHE ccache)
if(WEFT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${WEFT_CCACHE})
endif()

add_library(weft_own INTERFACE)
target_link_libraries(weft_own INTERFACE weft::weft)
target_compile_options(weft_own INTERFACE -Wall -Wextra $<$<BOOL:${WEFT_NATIVE}>:-march=native>)

# weft_program(NAME SOURCES...): an executable with the warnings, the standard and the processor of our own programs.
function(weft_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE weft_own)
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF)
endfunction()
