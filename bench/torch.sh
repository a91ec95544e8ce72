# SPDX-License-Identifier: Apache-2.0
# Sourced by benchmarks that compare with PyTorch. It goes into .deps/torch, an environment of its own. If the machine has the
# CUDA toolkit of its wheel, only the few libraries that the toolkit lacks are fetched.
torch_version=2.11.0
torch_venv=$weft_deps/torch
torch_libraries=

# torch_environment: installs it; then $torch_venv/bin/python runs it, with $torch_libraries on the loader's path.
torch_environment() {
  local stamp=$torch_venv/installed-$torch_version python=/usr/bin/python3
  if [ ! -e "$stamp" ]; then
    "$python" -c 'import ensurepip, venv' 2>/dev/null || python=python3
    "$python" -c 'import ensurepip, venv' 2>/dev/null || packages python3-venv
    rm -rf "$torch_venv"
    logged "making a Python environment for PyTorch" "$python" -m venv "$torch_venv"
    local pip=("$torch_venv/bin/pip" install --disable-pip-version-check --no-input -q)
    if [ -e "${CUDA_HOME:-/usr/local/cuda}/lib64/libcublas.so.13" ] && [ -e "${CUDA_HOME:-/usr/local/cuda}/lib64/libcudnn.so.9" ]; then
      logged "installing PyTorch" "${pip[@]}" --no-deps torch==$torch_version numpy typing_extensions sympy mpmath networkx jinja2 markupsafe fsspec filelock
      logged "installing what PyTorch needs beside the CUDA toolkit" "${pip[@]}" --no-deps nvidia-cusparselt-cu13==0.8.0 nvidia-nvshmem-cu13==3.4.5 nvidia-cufile
    else
      logged "installing PyTorch (some gigabytes)" "${pip[@]}" torch==$torch_version numpy
    fi
    touch "$stamp"
  fi
  torch_libraries=$(find "$torch_venv"/lib/python3*/site-packages/nvidia -maxdepth 2 -name lib -type d 2>/dev/null | tr '\n' ':')${CUDA_HOME:-/usr/local/cuda}/lib64
}

# switch_for_mkl: builds $unlock_mkl. Intel's MKL takes a slow path on other makers' processors; these two functions make it
# take the fast one.
unlock_mkl=$torch_venv/unlock_mkl.so
switch_for_mkl() {
  [ -e "$unlock_mkl" ] && return 0
  printf 'int mkl_serv_intel_cpu_true(void) { return 1; }\nint mkl_serv_intel_cpu(void) { return 1; }\n' >"$torch_venv/unlock_mkl.c"
  logged "building the switch for MKL" "${CC:-cc}" -shared -fPIC -O1 -o "$unlock_mkl" "$torch_venv/unlock_mkl.c"
}
