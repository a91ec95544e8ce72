# SPDX-License-Identifier: Apache-2.0
# Kokkos and oneDNN for 64-bit ARM processors on another one, for kernels/aarch64, whose programs run under QEMU. Sourced after setup.sh.

weft_arm=$weft_deps/aarch64

# arm_library PACKAGE: the files of Debian's package for arm64 in $weft_arm/root. Nothing is installed, and the machine's lists of packages stay.
arm_library() {
  local lists=$weft_arm/apt
  mkdir -p "$lists/state/lists/partial" "$lists/cache/archives/partial"
  local apt=(apt-get -o "Dir::State=$lists/state" -o Dir::State::status=/dev/null -o "Dir::Cache=$lists/cache" -o APT::Architecture=arm64
    -o APT::Architectures::=arm64 -o APT::Sandbox::User=root)
  (cd "$lists" && rm -f ./*.deb && "${apt[@]}" update && "${apt[@]}" download "$1" && dpkg-deb -x "$1"_*.deb "$weft_arm/root")
}

# libraries_for_aarch64: makes them once, where the cross compiler is; where something is missing, the test says so.
libraries_for_aarch64() {
  command -v aarch64-linux-gnu-g++ >/dev/null && command -v apt-get >/dev/null || return 0
  if [ ! -e "$weft_arm/kokkos" ]; then
    logged "building Kokkos for aarch64" "$weft_source/cmake/kokkos_host.sh" "$weft_arm/kokkos" -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_SYSTEM_NAME=Linux \
      -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_FIND_ROOT_PATH=/usr/aarch64-linux-gnu
  fi
  [ -e "$weft_arm/root" ] || logged "fetching oneDNN for aarch64" arm_library libdnnl2
}
