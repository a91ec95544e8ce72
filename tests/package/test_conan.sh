# SPDX-License-Identifier: Apache-2.0
# `conan create .` with the profile that Conan detects itself; test_package builds a program against the package and runs it.
# Once header-only, once with the library weft::compiled. Kokkos, oneDNN and MPI are the system's. Everything stays below the checkout's .deps.
# Once more with the options checkpoint and tokenizer, in an empty cache with a local remote: its packages are the system's libraries under
# the names of ConanCenter, and the program must be compiled with them.
. "$WEFT_SOURCE/tests/support/environment.sh"

conan=$WEFT_SOURCE/.deps/venv/bin/conan
[ -x "$conan" ] || skip "Conan is not installed (./tests/run does that)"
export CONAN_HOME=$WEFT_SOURCE/.deps/conan Kokkos_DIR
[ -e "$CONAN_HOME/profiles/default" ] || must "$conan" profile detect
for mode in header-only compiled; do
  compiled=False
  [ "$mode" = compiled ] && compiled=True
  "$conan" create "$WEFT_SOURCE" --no-remote -o "weft/*:compiled=$compiled" -c tools.cmake.cmaketoolchain:generator=Ninja \
    -c tools.cmake.cmake_layout:test_folder="$scratch/test_package_$mode" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
  grep "weft $WEFT_VERSION $mode" "$scratch/log" || { cat "$scratch/log"; fail "test_package did not print weft's version and '$mode'"; }
done

# recipe NAME VERSION HEADERS LIBRARY: a recipe of the remote that packages what the system has
recipe() {
  local folder=$scratch/remote/recipes/$1
  mkdir -p "$folder/all"
  printf 'versions:\n  "%s":\n    folder: all\n' "$2" >"$folder/config.yml"
  cat >"$folder/all/conanfile.py" <<END
import glob, os, shutil
from conan import ConanFile

class Double(ConanFile):
    name, package_type = "$1", "$([ -n "$4" ] && echo shared-library || echo header-library)"
    settings = "os", "arch", "compiler", "build_type"

    def package(self):
        os.makedirs(os.path.join(self.package_folder, "lib"))
        os.makedirs(os.path.join(self.package_folder, "include"))
        for path in "$3".split():
            there = os.path.join(self.package_folder, "include", os.path.basename(path))
            shutil.copytree(path, there) if os.path.isdir(path) else shutil.copy(path, there)
        for path in glob.glob("$4*") if "$4" else ():
            shutil.copy(path, os.path.join(self.package_folder, "lib"), follow_symlinks=False)

    def package_info(self):
        self.cpp_info.libs = ["$5"] if "$5" else []
END
}
libraries=/usr/lib/$(gcc -print-multiarch)
for path in /usr/include/{xxhash,pcre2,utf8proc}.h /usr/include/nlohmann "$libraries"/lib{pcre2-8,utf8proc}.so; do
  [ -e "$path" ] || skip "there is no $path to package"
done
recipe nlohmann_json 3.11.3 /usr/include/nlohmann "" ""
recipe xxhash 0.8.2 "/usr/include/xxhash.h /usr/include/xxh3.h" "" ""
recipe pcre2 10.42 /usr/include/pcre2.h "$libraries/libpcre2-8.so" pcre2-8
recipe utf8proc 2.8.0 /usr/include/utf8proc.h "$libraries/libutf8proc.so" utf8proc
export CONAN_HOME=$scratch/conan
must "$conan" profile detect
must "$conan" remote remove conancenter
must "$conan" remote add local "$scratch/remote" --type local-recipes-index
"$conan" create "$WEFT_SOURCE" --build missing -o "weft/*:checkpoint=True" -o "weft/*:tokenizer=True" -c tools.cmake.cmaketoolchain:generator=Ninja \
  -c tools.cmake.cmake_layout:test_folder="$scratch/test_package_options" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
grep "weft $WEFT_VERSION header-only" "$scratch/log" || { cat "$scratch/log"; fail "test_package did not print weft's version"; }
grep -q "the machine has to have Kokkos" "$scratch/log" || fail "the recipe does not name what the machine has to have"
cache=$(find "$scratch/test_package_options" -name CMakeCache.txt)
for found in WEFT_XXHASH_INCLUDE WEFT_PCRE2_INCLUDE WEFT_PCRE2_LIBRARY WEFT_UTF8PROC_INCLUDE WEFT_UTF8PROC_LIBRARY; do
  grep -q "^$found:[A-Z]*=$CONAN_HOME/" "$cache" || fail "$(grep "^$found" "$cache") is not of the Conan package"
done
grep "^nlohmann_json_DIR:" "$cache" | grep -q test_package_options || fail "$(grep ^nlohmann_json_DIR "$cache") is not of Conan's generator"
