# SPDX-License-Identifier: Apache-2.0
# cuDNN 9.8 or newer with the CUDA runtime, as weft_deps::cudnn.
find_package(CUDAToolkit 12.0 QUIET)
find_path(WEFT_CUDNN_INCLUDE cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(WEFT_CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
mark_as_advanced(WEFT_CUDNN_INCLUDE WEFT_CUDNN_LIBRARY)
if(WEFT_CUDNN_INCLUDE)
  file(STRINGS ${WEFT_CUDNN_INCLUDE}/cudnn_version.h weft_cudnn_lines REGEX "define CUDNN_(MAJOR|MINOR) ")
  string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2" weft_cudnn_version "${weft_cudnn_lines}")
endif()
include(FindPackageHandleStandardArgs)
if(weft_cudnn_version VERSION_LESS 9.8)
  set(weft_cudnn_version_fits FALSE)
else()
  set(weft_cudnn_version_fits TRUE)
endif()
find_package_handle_standard_args(weft_cudnn REQUIRED_VARS WEFT_CUDNN_LIBRARY WEFT_CUDNN_INCLUDE weft_cudnn_version_fits VERSION_VAR weft_cudnn_version)
if(weft_cudnn_FOUND AND NOT TARGET weft_deps::cudnn)
  add_library(weft_deps::cudnn INTERFACE IMPORTED GLOBAL)
  set_target_properties(weft_deps::cudnn PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${WEFT_CUDNN_INCLUDE}"
    INTERFACE_LINK_LIBRARIES "${WEFT_CUDNN_LIBRARY};CUDA::cudart")
endif()
