# SPDX-License-Identifier: Apache-2.0
# What checkpoints need, as weft_deps::checkpoint: libxxhash's header (nothing of it is linked) and nlohmann's JSON.
find_path(WEFT_XXHASH_INCLUDE xxhash.h)
mark_as_advanced(WEFT_XXHASH_INCLUDE)
find_package(nlohmann_json 3.7 QUIET GLOBAL)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(weft_checkpoint REQUIRED_VARS WEFT_XXHASH_INCLUDE nlohmann_json_FOUND)
if(weft_checkpoint_FOUND AND NOT TARGET weft_deps::checkpoint)
  find_package(Threads REQUIRED)
  add_library(weft_deps::checkpoint INTERFACE IMPORTED GLOBAL)
  set_target_properties(weft_deps::checkpoint PROPERTIES INTERFACE_LINK_LIBRARIES "nlohmann_json::nlohmann_json;Threads::Threads")
  # In its own place and not among the system's folders, where gcc would look for it in another order.
  if(NOT WEFT_XXHASH_INCLUDE STREQUAL "/usr/include")
    set_target_properties(weft_deps::checkpoint PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${WEFT_XXHASH_INCLUDE}")
  endif()
endif()
