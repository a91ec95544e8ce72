# SPDX-License-Identifier: Apache-2.0
"""The recipes of Spack and vcpkg, read without either: they name options that CMakeLists.txt has, versions that weft needs, and files that are there.

Spack's file runs over directives that only record; vcpkg's port runs in CMake over functions that configure and install for real.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
VERSION = os.environ["WEFT_VERSION"]
CMAKE = (SOURCE / "CMakeLists.txt").read_text()
OPTIONS = set(re.findall(r"option\((WEFT_\w+)", CMAKE)) | {"BUILD_SHARED_LIBS"}
failures = []


def check(holds, text):
    if not holds:
        failures.append(text)


def spack_recipe():
    """The class of package.py, and its directives as (name, arguments, keywords)."""
    directives = []
    package = types.ModuleType("spack.package")
    for name in ("version", "variant", "depends_on", "conflicts", "license"):
        setattr(package, name, lambda *arguments, _name=name, **keywords: directives.append((_name, arguments, keywords)))
    package.CMakePackage = object
    sys.modules.update({"spack": types.ModuleType("spack"), "spack.package": package})
    scope = {"__file__": str(SOURCE / "packaging/spack/packages/weft/package.py"), "__name__": "package"}
    exec(compile(pathlib.Path(scope["__file__"]).read_text(), scope["__file__"], "exec"), scope)  # pylint: disable=exec-used
    return scope["Weft"], directives


def test_spack():
    recipe, directives = spack_recipe()
    check(pathlib.Path(recipe.git.removeprefix("file://")) == SOURCE.resolve(), f"the recipe's repository is {recipe.git}, not this checkout")
    versions = [arguments[0] for name, arguments, _ in directives if name == "version"]
    check(VERSION in versions, f"Spack's recipe has the versions {versions}, and weft is {VERSION}")
    variants = {arguments[0] for name, arguments, _ in directives if name == "variant"}
    for name, arguments, keywords in directives:
        for wish in re.findall(r"\+(\w+)", keywords.get("when", "")):
            check(wish in variants, f"{name}{arguments} depends on a variant {wish} that does not exist")
    used = {}

    class Recorder(recipe):
        def define_from_variant(self, option, variant):
            used[option] = variant
            return f"-D{option}"

        def define(self, option, value):
            used[option] = None
            return f"-D{option}={value}"

    Recorder().cmake_args()
    check(set(used) <= OPTIONS, f"Spack's recipe sets {set(used) - OPTIONS}, which CMakeLists.txt does not have")
    optional = {f"WEFT_{part}" for part in re.findall(r'option\(WEFT_(\w+) "Look for', CMAKE)}
    check(optional <= set(used), f"Spack's recipe leaves {optional - set(used)} to what the machine has")
    check({variant for variant in used.values() if variant} == variants, f"variants without an option: {variants ^ {v for v in used.values() if v}}")
    dependencies = " ".join(arguments[0] for name, arguments, _ in directives if name == "depends_on")
    check(f"kokkos@{re.search(r'find_package.Kokkos ([0-9.]+)', CMAKE)[1]}:" in dependencies, f"another Kokkos than CMakeLists.txt's: {dependencies}")
    check(f"onednn@{re.search(r'find_package.oneDNN ([0-9.]+)', CMAKE)[1]}:" in dependencies, f"another oneDNN than CMakeLists.txt's: {dependencies}")


# vcpkg's functions, as far as the port uses them (learn.microsoft.com/vcpkg/maintainers/functions).
FUNCTIONS = r"""
macro(vcpkg_check_features marker out word)
  set(pairs ${ARGN})
  set(${out} "")
  while(pairs)
    list(POP_FRONT pairs feature option)
    set(value OFF)
    if(feature IN_LIST FEATURES)
      set(value ON)
    endif()
    list(APPEND ${out} -D${option}=${value})
  endwhile()
endmacro()
function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${arg_SOURCE_PATH} -B ${SCRATCH}/build -G Ninja -DWEFT_INSTALL_ONLY=ON -DCMAKE_INSTALL_LIBDIR=lib
    ${arg_OPTIONS} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
  message("options ${arg_OPTIONS}")
endfunction()
function(vcpkg_cmake_install)
  execute_process(COMMAND ${CMAKE_COMMAND} --install ${SCRATCH}/build --prefix ${CURRENT_PACKAGES_DIR} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH" "")
  file(RENAME ${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH} ${CURRENT_PACKAGES_DIR}/share_weft)
  file(MAKE_DIRECTORY ${CURRENT_PACKAGES_DIR}/share)
  file(RENAME ${CURRENT_PACKAGES_DIR}/share_weft ${CURRENT_PACKAGES_DIR}/share/weft)
endfunction()
function(vcpkg_fixup_pkgconfig)
endfunction()
function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
  file(INSTALL ${arg_FILE_LIST} DESTINATION ${CURRENT_PACKAGES_DIR}/share/weft RENAME copyright)
endfunction()
"""


def test_vcpkg():
    port = SOURCE / "packaging/vcpkg/weft"
    manifest = json.loads((port / "vcpkg.json").read_text())
    check(manifest["version"] == VERSION, f"vcpkg.json has version {manifest['version']}, and weft is {VERSION}")
    with tempfile.TemporaryDirectory() as scratch:
        script = pathlib.Path(scratch) / "run.cmake"
        script.write_text(f'cmake_minimum_required(VERSION 3.25)\nset(SCRATCH "{scratch}")\nset(CURRENT_PACKAGES_DIR "{scratch}/package")\nset(FEATURES checkpoint mpi)\n{FUNCTIONS}'
                          f'include("{port}/portfile.cmake")\n')
        run = subprocess.run(["cmake", "-P", script], capture_output=True, text=True)
        check(run.returncode == 0, f"the port failed: {run.stderr}")
        options = dict(re.findall(r"-D(\w+)=(\w+)", run.stderr))
        check(set(options) <= OPTIONS, f"the port sets {set(options) - OPTIONS}, which CMakeLists.txt does not have")
        optional = {f"WEFT_{part}" for part in re.findall(r'option\(WEFT_(\w+) "Look for', CMAKE)}
        check(optional <= set(options), f"the port leaves {optional - set(options)} to what the machine has")
        chosen = {option for option, value in options.items() if value == "ON"}
        check(chosen == {"WEFT_CHECKPOINT", "WEFT_MPI"}, f"the features checkpoint and mpi turn on {chosen}")
        package = pathlib.Path(scratch) / "package"
        for file in ("include/weft/weft.hpp", "share/weft/weft-config.cmake", "share/weft/copyright", "share/weft/usage"):
            check((package / file).exists(), f"the port installs no {file}")
        check(not (package / "lib").exists(), "a port of headers has no lib")
    check(set(re.findall(r"^    (\w+) WEFT_", (port / "portfile.cmake").read_text(), re.MULTILINE)) == set(manifest["features"]),
          f"portfile.cmake and vcpkg.json have other features: {sorted(manifest['features'])}")


test_spack()
test_vcpkg()
if failures:
    sys.exit("\n".join(failures))
print("the recipes of Spack and vcpkg agree with CMakeLists.txt")
