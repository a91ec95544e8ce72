#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cmake/kokkos_source.sh FOLDER: the sources of Kokkos 4.7.0 in FOLDER/kokkos. They are in the source package of the wheel that weft's
# host Kokkos comes from. Needs a network.
set -e
folder=$(realpath -m "$1")
mkdir -p "$folder"
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" -q install scikit_build_core
# pip asks a source package for its name before it keeps it, by the package's own build tool.
"$folder/venv/bin/pip" -q download --no-deps --no-binary :all: --no-build-isolation -d "$folder" pygenten==0.1.5
tar xzf "$folder"/pygenten-0.1.5.tar.gz -C "$folder" pygenten-0.1.5/tpls/kokkos
mv "$folder/pygenten-0.1.5/tpls/kokkos" "$folder/kokkos"
