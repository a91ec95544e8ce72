# SPDX-License-Identifier: Apache-2.0
# ccache in front of the compiler, where it is installed. Read before the first target, for a target takes its launcher when it is made.
# Precompiled headers need its sloppiness; without the folder in the hash, a second clone hits too.
find_program(WEFT_CCACHE ccache)
if(NOT WEFT_CCACHE OR CMAKE_CXX_COMPILER_LAUNCHER)
  return()
endif()
set(weft_ccache_settings CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1)
if(Kokkos_ENABLE_CUDA)
  # What nvcc's preprocessor prints is one side of __CUDA_ARCH__ alone, so ccache goes by the files that are included; and
  # nvcc_wrapper is known by its text and its toolkit, for its time of change is that of its installation.
  file(SHA256 ${CMAKE_CXX_COMPILER} weft_compiler_text)
  list(APPEND weft_ccache_settings CCACHE_DEPEND=1 CCACHE_COMPILERCHECK=string:${weft_compiler_text}-${CUDAToolkit_VERSION})
endif()
set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${weft_ccache_settings} ${WEFT_CCACHE})
