# SPDX-License-Identifier: Apache-2.0
# What ./examples/run, ./tests/run and ./bench/run share: install what is missing, find Kokkos, configure, build.
# All of it prints to standard error, so that the output of a program stays its own. Sourced by bash, run from anywhere.

weft_source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
weft_deps=$weft_source/.deps
weft_venv=$weft_deps/venv
weft_build=${WEFT_BUILD:-$weft_source/build/release}
weft_kokkos_wheel=pygenten==0.1.5
weft_conan_version=2.34.0

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "error: $*"
  exit 1
}

# One at a time: the copies that a launcher starts wait here for the first, which builds for all of them.
lock() {
  mkdir -p "$weft_deps"
  exec 9>"$weft_deps/lock"
  flock 9
}
unlock() { exec 9>&-; }

# logged WHAT COMMAND...: runs it with its output in a log, shows what it does if that takes more than a moment, and the end
# of the log if it fails.
logged() {
  local what=$1 log pid status started=$SECONDS shown=
  shift
  log=$weft_deps/log/$(printf '%s' "$what" | tr -c 'a-zA-Z0-9_.=-' '_').txt
  mkdir -p "$weft_deps/log"
  "$@" >"$log" 2>&1 9>&- </dev/null &
  pid=$!
  trap 'pkill -P $pid 2>/dev/null; kill $pid 2>/dev/null; wait $pid; exit 130' INT TERM
  local ticks=0
  while kill -0 $pid 2>/dev/null; do
    sleep 0.05
    ticks=$((ticks + 1))
    ((ticks < 20)) && continue
    if [ -t 2 ]; then
      printf '\r%s %s (%s s)\033[K' "$what" "$(tail -n 1 "$log" 2>/dev/null | grep -o '^\[[0-9/]*\]')" $((SECONDS - started)) >&2
      shown=1
    elif [ -z "$shown" ]; then
      say "$what ..."
      shown=1
    fi
  done
  wait $pid
  status=$?
  trap - INT TERM
  if [ $status -ne 0 ]; then
    [ -t 2 ] && [ -n "$shown" ] && printf '\n' >&2
    say "$what failed; the end of $log:"
    local first
    first=$(grep -n -m 1 -E '^FAILED|error:|CMake Error|^E: |ERROR' "$log" | cut -d: -f1)
    if [ -n "$first" ]; then sed -n "$first,$((first + 40))p" "$log" >&2; else tail -n 40 "$log" >&2; fi
    exit 1
  fi
  if [ -n "$shown" ] && [ -t 2 ]; then printf '\r%s: %s s\033[K\n' "$what" $((SECONDS - started)) >&2; fi
  return 0
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    return 1
  fi
}

apt_install() {
  export DEBIAN_FRONTEND=noninteractive
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" && return 0
  echo "a second try with fresh package lists"
  as_root apt-get update && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

# packages NAME[:COMMAND]...: Debian packages that must be there; one with a COMMAND counts as there if the command is.
packages() {
  local entry name command missing=() names=()
  for entry in "$@"; do
    name=${entry%%:*}
    command=${entry#"$name"}
    command=${command#:}
    if [ -n "$command" ]; then
      command -v "$command" >/dev/null || missing+=("$name")
    else
      names+=("$name")
    fi
  done
  if command -v dpkg-query >/dev/null && [ ${#names[@]} -gt 0 ]; then
    local installed
    installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' "${names[@]}" 2>/dev/null)"
    for name in "${names[@]}"; do
      [[ $installed == *" installed:$name "* ]] || missing+=("$name")
    done
  fi
  [ ${#missing[@]} -eq 0 ] && return 0
  if ! command -v apt-get >/dev/null; then
    say "note: this is not a Debian system; these must be there (names of Debian's packages): ${missing[*]}"
    return 0
  fi
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "these packages are missing, and there is neither root nor sudo to install them: ${missing[*]}"
    say "installing (sudo): ${missing[*]}"
    sudo -v || fail "sudo was refused; install these packages and run again: ${missing[*]}"
  else
    say "installing: ${missing[*]}"
  fi
  logged "installing Debian packages" apt_install "${missing[@]}"
}

# The Python environment of the checkout, made by the system's Python: wheels exist for it.
python_environment() {
  [ -x "$weft_venv/bin/pip" ] && return 0
  local python
  for python in /usr/bin/python3 python3; do
    "$python" -c 'import ensurepip, venv' 2>/dev/null && break
    python=
  done
  if [ -z "$python" ]; then
    packages python3-venv
    python=/usr/bin/python3
  fi
  rm -rf "$weft_venv"
  logged "making a Python environment" "$python" -m venv "$weft_venv"
}

# python_package NAME==VERSION [options of pip]: once; the stamp says that it went through to its end.
python_package() {
  local stamp=$weft_venv/installed-$1
  [ -e "$stamp" ] && return 0
  python_environment
  logged "installing $1" "$weft_venv/bin/pip" install --disable-pip-version-check --no-input -q "$@"
  touch "$stamp"
}

# python_requirements FILE: the packages that a file pins; once for each text of the file.
python_requirements() {
  local stamp
  stamp=$weft_venv/installed-requirements-$(sha256sum <"$1" | cut -c 1-16)
  [ -e "$stamp" ] && return 0
  python_environment
  logged "installing what $(basename "$1") pins" "$weft_venv/bin/pip" install --disable-pip-version-check --no-input -q --no-deps -r "$1"
  touch "$stamp"
}

# kokkos_in FOLDER: the CMake package of Kokkos below a prefix, if there is one.
kokkos_in() {
  local found
  for found in "$1" "$1"/lib*/cmake/Kokkos "$1"/lib/*/cmake/Kokkos "$1"/share/cmake/Kokkos; do
    if [ -e "$found/KokkosConfig.cmake" ]; then
      (cd "$found" && pwd)
      return 0
    fi
  done
  return 1
}

# The version that a CMake package of Kokkos states.
kokkos_version() { sed -n 's/^ *set(PACKAGE_VERSION "\([0-9.]*\)").*/\1/p' "$1/KokkosConfigVersion.cmake" | head -n 1; }

# Sets kokkos_dir: the user's own Kokkos first, else that of a wheel. On processors for which there is no wheel it is the system's if
# that is new enough, else one that is built here.
find_kokkos() {
  local name prefix
  for name in Kokkos_DIR Kokkos_ROOT KOKKOS_ROOT; do
    if [ -n "${!name:-}" ]; then
      kokkos_dir=$(kokkos_in "${!name}") || fail "$name is ${!name}, but there is no KokkosConfig.cmake in it or in its lib*/cmake/Kokkos"
      return 0
    fi
  done
  local IFS=':;'
  for prefix in ${CMAKE_PREFIX_PATH:-}; do
    kokkos_dir=$(kokkos_in "$prefix") && return 0
  done
  unset IFS
  if [ "$(uname -s) $(uname -m)" != "Linux x86_64" ]; then
    for prefix in /usr/local /usr; do
      kokkos_dir=$(kokkos_in "$prefix") && [ "$(printf '%s\n' 4.7 "$(kokkos_version "$kokkos_dir")" | sort -V | head -n 1)" = 4.7 ] && return 0
    done
    logged "building Kokkos" "$weft_source/cmake/kokkos_host.sh" "$weft_deps/kokkos"
    kokkos_dir=$(kokkos_in "$weft_deps/kokkos")
    return 0
  fi
  python_package $weft_kokkos_wheel --no-deps
  kokkos_dir=$(compgen -G "$weft_venv/lib/python3*/site-packages/pygenten/lib*/cmake/Kokkos" | head -n 1)
  [ -e "$kokkos_dir/KokkosConfig.cmake" ] || fail "$weft_kokkos_wheel holds no CMake package of Kokkos below $weft_venv"
}

# configure [-DNAME=VALUE...]: only when something differs from the last time.
configure() {
  find_kokkos
  local option cache=$weft_build/CMakeCache.txt generator=() changed=
  if [ -e "$weft_build/build.ninja" ] || [ -e "$weft_build/Makefile" ]; then
    for option in -DKokkos_DIR="$kokkos_dir" "$@"; do
      option=${option#-D}
      grep -q "^${option%%=*}:[A-Z]*=${option#*=}\$" "$cache" || changed=1
    done
    [ -z "$changed" ] && return 0
  elif command -v ninja >/dev/null; then
    generator=(-G Ninja)
  fi
  logged "configuring" cmake -S "$weft_source" -B "$weft_build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DKokkos_DIR="$kokkos_dir" "$@"
}

# build WHAT TARGET...
build() {
  local what=$1
  shift
  logged "building $what" cmake --build "$weft_build" --parallel "${WEFT_JOBS:-$(nproc)}" --target "$@"
}

weft_build_packages=(g++:c++ cmake:cmake ninja-build:ninja libdnnl-dev zlib1g-dev)
