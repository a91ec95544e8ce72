# SPDX-License-Identifier: Apache-2.0
# The CUDA runtime and cuBLASLt, as weft_deps::cuda, and cuDNN beside them where it is, as weft_deps::cudnn.
find_package(CUDAToolkit 12.0 QUIET)
if(TARGET CUDA::cudart AND TARGET CUDA::cublasLt)
  set(weft_cuda_libraries CUDA::cudart CUDA::cublasLt)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(weft_cuda REQUIRED_VARS weft_cuda_libraries VERSION_VAR CUDAToolkit_VERSION)
if(weft_cuda_FOUND)
  find_path(WEFT_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(WEFT_CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
  mark_as_advanced(WEFT_CUDNN_INCLUDE WEFT_CUDNN_LIBRARY)
  if(NOT TARGET weft_deps::cuda)
    add_library(weft_deps::cuda INTERFACE IMPORTED GLOBAL)
    set_target_properties(weft_deps::cuda PROPERTIES INTERFACE_LINK_LIBRARIES "${weft_cuda_libraries}")
  endif()
  if(WEFT_CUDNN_INCLUDE AND WEFT_CUDNN_LIBRARY AND NOT TARGET weft_deps::cudnn)
    add_library(weft_deps::cudnn INTERFACE IMPORTED GLOBAL)
    set_target_properties(weft_deps::cudnn PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${WEFT_CUDNN_INCLUDE}"
      INTERFACE_LINK_LIBRARIES "${WEFT_CUDNN_LIBRARY};weft_deps::cuda")
  endif()
endif()
