# SPDX-License-Identifier: Apache-2.0
# Gloo with its TCP transport, as weft_deps::gloo. Debian's libgloo-dev lacks one of the headers that its own headers include;
# where it does, weft's stand-in is found instead.
find_path(WEFT_GLOO_INCLUDE gloo/transport/tcp/device.h)
find_library(WEFT_GLOO_LIBRARY gloo)
find_path(WEFT_GLOO_MEMORY gloo/common/memory.h
  HINTS ${WEFT_GLOO_INCLUDE}
  PATHS ${CMAKE_CURRENT_LIST_DIR}/../include/weft/comm/gloo/compat ${weft_include_folder}/weft/comm/gloo/compat)
mark_as_advanced(WEFT_GLOO_INCLUDE WEFT_GLOO_LIBRARY WEFT_GLOO_MEMORY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(weft_gloo REQUIRED_VARS WEFT_GLOO_LIBRARY WEFT_GLOO_INCLUDE WEFT_GLOO_MEMORY)
if(weft_gloo_FOUND AND NOT TARGET weft_deps::gloo)
  find_package(Threads REQUIRED)
  add_library(weft_deps::gloo INTERFACE IMPORTED GLOBAL)
  set_target_properties(weft_deps::gloo PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${WEFT_GLOO_INCLUDE};${WEFT_GLOO_MEMORY}"
    INTERFACE_LINK_LIBRARIES "${WEFT_GLOO_LIBRARY};Threads::Threads")
endif()
