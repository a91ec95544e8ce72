# SPDX-License-Identifier: Apache-2.0
# The Debian package of `cpack -G DEB`: its fields, and the smallest program by pkg-config from its files.
. "$WEFT_SOURCE/tests/support/environment.sh"

command -v dpkg-deb >/dev/null || skip "dpkg-deb is not here"
command -v pkg-config >/dev/null || skip "pkg-config is not here"
must cmake -S "$WEFT_SOURCE" -B "$scratch/build" -G Ninja -DCMAKE_CXX_COMPILER="$WEFT_CXX" -DWEFT_INSTALL_ONLY=ON >"$scratch/log"
(cd "$scratch" && must cpack -G DEB --config build/CPackConfig.cmake) || { cat "$scratch/log"; exit 1; }
package=$scratch/libweft-dev_${WEFT_VERSION}_all.deb
[ -e "$package" ] || fail "there is no $package: $(ls "$scratch")"
for field in "Version: $WEFT_VERSION" "Section: libdevel" "Depends: libdnnl-dev" "Maintainer: The weft developers"; do
  dpkg-deb --info "$package" | grep -q "^ $field" || fail "the package has no field '$field': $(dpkg-deb --info "$package")"
done
must dpkg-deb -x "$package" "$scratch/unpacked"
[ -e "$scratch/unpacked/usr/share/doc/weft/LICENSE" ] || fail "the licence is missing"

# Anywhere else than in /usr, too: the file of pkg-config does not remember the prefix.
prefix=$(dirname "$(dirname "$(dirname "$Kokkos_DIR")")")
export PKG_CONFIG_PATH=$scratch/unpacked/usr/lib/pkgconfig
[ -e "$PKG_CONFIG_PATH/weft.pc" ] || export PKG_CONFIG_PATH=$(dirname "$(find "$scratch/unpacked" -name weft.pc)")
must pkg-config --exact-version="$WEFT_VERSION" weft
read -ra flags <<<"$(pkg-config --define-variable=kokkos="$prefix" --define-variable=kokkos_libdir="$(dirname "$(dirname "$Kokkos_DIR")")" --cflags --libs weft)"
must "$WEFT_CXX" -O1 "$WEFT_SOURCE/tests/package/consumer/main.cpp" "${flags[@]}" -o "$scratch/consumer"
must "$scratch/consumer" | grep "weft $WEFT_VERSION" || fail "the program did not print weft's version"
