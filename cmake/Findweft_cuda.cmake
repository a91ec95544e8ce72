# SPDX-License-Identifier: Apache-2.0
# The CUDA runtime and cuBLASLt, as weft_deps::cuda.
find_package(CUDAToolkit 12.0 QUIET)
if(TARGET CUDA::cudart AND TARGET CUDA::cublasLt)
  set(weft_cuda_libraries CUDA::cudart CUDA::cublasLt)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(weft_cuda REQUIRED_VARS weft_cuda_libraries VERSION_VAR CUDAToolkit_VERSION)
if(weft_cuda_FOUND AND NOT TARGET weft_deps::cuda)
  add_library(weft_deps::cuda INTERFACE IMPORTED GLOBAL)
  set_target_properties(weft_deps::cuda PROPERTIES INTERFACE_LINK_LIBRARIES "${weft_cuda_libraries}")
endif()
