# SPDX-License-Identifier: Apache-2.0
"""weft as a Conan 2 package: the headers and the CMake package that `cmake --install` gives; with -o "weft/*:compiled=True" the library
weft::compiled, too.

The options checkpoint and tokenizer require the packages of ConanCenter for the component of that name. Without one, the CMake package finds
the machine's libraries when a program asks for the component. Kokkos, oneDNN and MPI are always the machine's: ConanCenter has no Kokkos, and
MPI belongs to the machine.
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
    options = {"compiled": [True, False], "checkpoint": [True, False], "tokenizer": [True, False]}
    default_options = {"compiled": False, "checkpoint": False, "tokenizer": False}
    machine = "Kokkos 4.7 or newer (Kokkos_ROOT), oneDNN 2.6 or newer (oneDNN_ROOT) and, for weft::mpi, MPI 3.1"
    exports_sources = "CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*"
    no_copy_source = True

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "include/weft/core/version.hpp"))
        self.version = ".".join(re.search(rf"WEFT_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))

    def configure(self):
        if self.options.compiled:
            self.package_type = "static-library"

    def requirements(self):
        if self.options.checkpoint or self.options.tokenizer:
            self.requires("nlohmann_json/[>=3.7 <4]", transitive_headers=True)
        if self.options.checkpoint:
            self.requires("xxhash/[>=0.8 <1]", transitive_headers=True)
        if self.options.tokenizer:
            self.requires("pcre2/[>=10.40 <11]", transitive_headers=True, transitive_libs=True)
            self.requires("utf8proc/[>=2.6 <3]", transitive_headers=True, transitive_libs=True)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        toolchain.cache_variables["WEFT_INSTALL_ONLY"] = True
        toolchain.cache_variables["WEFT_COMPILED"] = bool(self.options.compiled)  # this alone needs Kokkos and oneDNN here
        toolchain.cache_variables["WEFT_NATIVE"] = False  # the profile says for which processor
        toolchain.cache_variables["CMAKE_INSTALL_LIBDIR"] = "lib"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        if self.options.compiled:
            cmake.build()

    def package(self):
        CMake(self).install()

    def package_id(self):
        if not self.info.options.compiled:
            self.info.clear()

    def package_info(self):
        # The package's own weft-config.cmake is what programs find: it knows the targets and what they need.
        self.output.info(f"the machine has to have {self.machine}")
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = ["lib"] if self.options.compiled else []
        self.cpp_info.builddirs = ["lib/cmake/weft"]
        self.cpp_info.set_property("cmake_find_mode", "none")
