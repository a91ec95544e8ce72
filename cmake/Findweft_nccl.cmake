# SPDX-License-Identifier: Apache-2.0
# NCCL 2.18 or newer, as weft_deps::nccl: where NCCL_ROOT or the CUDA toolkit leads to.
find_package(CUDAToolkit 12.0 QUIET)
find_path(WEFT_NCCL_INCLUDE nccl.h HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} PATHS ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(WEFT_NCCL_LIBRARY nccl HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} PATHS ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
mark_as_advanced(WEFT_NCCL_INCLUDE WEFT_NCCL_LIBRARY)
if(WEFT_NCCL_INCLUDE)
  file(STRINGS ${WEFT_NCCL_INCLUDE}/nccl.h weft_nccl_version REGEX "define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2.\\3" weft_nccl_VERSION "${weft_nccl_version}")
  if(weft_nccl_VERSION VERSION_LESS 2.18)
    set(weft_nccl_too_old TRUE)
  endif()
endif()
if(TARGET CUDA::cudart AND NOT weft_nccl_too_old)
  set(weft_nccl_usable TRUE)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(weft_nccl REQUIRED_VARS WEFT_NCCL_LIBRARY WEFT_NCCL_INCLUDE weft_nccl_usable VERSION_VAR weft_nccl_VERSION)
if(weft_nccl_FOUND AND NOT TARGET weft_deps::nccl)
  add_library(weft_deps::nccl INTERFACE IMPORTED GLOBAL)
  set_target_properties(weft_deps::nccl PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${WEFT_NCCL_INCLUDE}"
    INTERFACE_LINK_LIBRARIES "${WEFT_NCCL_LIBRARY};CUDA::cudart")
endif()
