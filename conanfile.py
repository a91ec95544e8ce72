# SPDX-License-Identifier: Apache-2.0
"""weft as a Conan 2 package: the headers and the CMake package that `cmake --install` gives.

Kokkos, oneDNN and MPI are not requirements of it: ConanCenter has no Kokkos, and MPI belongs to the machine. The CMake
package finds them when a program asks for weft (set Kokkos_ROOT).
"""
import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import load

required_conan_version = ">=2.0"


class Weft(ConanFile):
    name = "weft"
    description = "Distributed training as types: a header-only C++20 framework"
    license = "Apache-2.0"
    topics = ("machine-learning", "distributed-training", "kokkos", "mpi", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    exports_sources = "CMakeLists.txt", "LICENSE", "cmake/*", "include/*"
    no_copy_source = True

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "include/weft/core/version.hpp"))
        self.version = ".".join(re.search(rf"WEFT_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        toolchain.cache_variables["WEFT_INSTALL_ONLY"] = True
        toolchain.cache_variables["CMAKE_INSTALL_LIBDIR"] = "lib"
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()

    def package_id(self):
        self.info.clear()

    def package_info(self):
        # The package's own weft-config.cmake is what programs find: it knows the targets and what they need.
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.builddirs = ["lib/cmake/weft"]
        self.cpp_info.set_property("cmake_find_mode", "none")
