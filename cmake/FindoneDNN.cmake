# SPDX-License-Identifier: Apache-2.0
# Finds oneDNN by its header and library and defines DNNL::dnnl, as oneDNN's own CMake package does. That package is not used
# because Debian's demands the headers of OpenCL, which nothing here needs. Set oneDNN_ROOT to choose another one.

if(NOT TARGET DNNL::dnnl)
  find_path(oneDNN_INCLUDE_DIR dnnl.hpp)
  find_library(oneDNN_LIBRARY dnnl)
  mark_as_advanced(oneDNN_INCLUDE_DIR oneDNN_LIBRARY)
  if(EXISTS ${oneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h)
    file(STRINGS ${oneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h lines REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
    string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2.\\3" oneDNN_VERSION "${lines}")
  endif()
endif()

include(FindPackageHandleStandardArgs)
if(TARGET DNNL::dnnl)
  set(oneDNN_FOUND TRUE)
else()
  find_package_handle_standard_args(oneDNN
    REQUIRED_VARS oneDNN_LIBRARY oneDNN_INCLUDE_DIR
    VERSION_VAR oneDNN_VERSION
    REASON_FAILURE_MESSAGE "Debian's package is libdnnl-dev, oneDNN_ROOT chooses another")
  if(oneDNN_FOUND)
    add_library(DNNL::dnnl UNKNOWN IMPORTED)
    set_target_properties(DNNL::dnnl PROPERTIES
      IMPORTED_LOCATION ${oneDNN_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${oneDNN_INCLUDE_DIR})
  endif()
endif()
