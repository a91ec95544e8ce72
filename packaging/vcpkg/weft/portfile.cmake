# weft for vcpkg, from the checkout that holds this file: `vcpkg install weft --overlay-ports=packaging/vcpkg`.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

vcpkg_check_features(OUT_FEATURE_OPTIONS features
  FEATURES
    checkpoint WEFT_CHECKPOINT
    tokenizer WEFT_TOKENIZER
    mpi WEFT_MPI
    compiled WEFT_COMPILED)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${features} -DWEFT_TESTS=OFF -DWEFT_EXAMPLES=OFF -DWEFT_BENCH=OFF -DWEFT_NATIVE=OFF -DWEFT_CUDA=OFF -DWEFT_NCCL=OFF -DWEFT_CUDNN=OFF
          -DWEFT_HDF5=OFF -DWEFT_METIS=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/weft)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
if(NOT compiled IN_LIST FEATURES)
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug" "${CURRENT_PACKAGES_DIR}/lib")
endif()
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/weft")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
