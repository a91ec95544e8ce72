# SPDX-License-Identifier: Apache-2.0
"""weft for Spack, from the checkout that holds this file: `spack repo add packaging/spack && spack install weft`."""
import pathlib

from spack.package import *

try:
    from spack_repo.builtin.build_systems.cmake import CMakePackage  # Spack 1.0 and newer
except ImportError:
    pass  # older ones export it from spack.package


class Weft(CMakePackage):
    """Distributed training as types: a header-only C++20 framework whose parallelism composes at compile time."""

    git = pathlib.Path(__file__).resolve().parents[4].as_uri()

    license("Apache-2.0")

    version("main", branch="main")
    version("0.1.0", tag="v0.1.0")

    variant("compiled", default=True, description="Build weft::compiled, the library of all that is no template")
    variant("shared", default=True, when="+compiled", description="Build it as a shared library")
    variant("mpi", default=True, description="Ranks as MPI processes (weft::mpi)")
    variant("checkpoint", default=True, description="Checkpoints and Hugging Face folders (weft::checkpoint)")
    variant("tokenizer", default=False, description="Tokenizers (weft::tokenizer)")
    variant("cuda", default=False, description="GPUs and NCCL (weft::cuda, weft::nccl)")
    variant("cudnn", default=False, when="+cuda", description="Fused attention by cuDNN (weft::cudnn)")

    depends_on("cxx", type="build")
    depends_on("c", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("kokkos@4.7: +openmp")
    depends_on("kokkos@4.7.1: +cuda +wrapper", when="+cuda")
    depends_on("onednn@2.6:")
    depends_on("zlib-api")
    depends_on("mpi@3.1:", when="+mpi")
    depends_on("xxhash", when="+checkpoint")
    depends_on("nlohmann-json@3.11:", when="+checkpoint")
    depends_on("nlohmann-json@3.11:", when="+tokenizer")
    depends_on("pcre2@10.40:", when="+tokenizer")
    depends_on("utf8proc", when="+tokenizer")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl@2.18:", when="+cuda")
    depends_on("cudnn@9.8:", when="+cudnn")

    conflicts("%gcc@:11", msg="weft needs C++20 as g++ 12 has it")
    conflicts("%clang@:13", msg="weft needs C++20 as clang 14 has it")

    def cmake_args(self):
        arguments = [
            self.define_from_variant("WEFT_COMPILED", "compiled"),
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("WEFT_CHECKPOINT", "checkpoint"),
            self.define_from_variant("WEFT_TOKENIZER", "tokenizer"),
            self.define_from_variant("WEFT_CUDA", "cuda"),
            self.define_from_variant("WEFT_NCCL", "cuda"),
            self.define_from_variant("WEFT_CUDNN", "cudnn"),
            self.define_from_variant("WEFT_MPI", "mpi"),
            self.define("WEFT_HDF5", False),
            self.define("WEFT_METIS", False),
            self.define("WEFT_NATIVE", False),  # Spack's compiler wrapper sets the processor
        ]
        return arguments + [self.define(f"WEFT_{part}", False) for part in ("TESTS", "EXAMPLES", "BENCH")]
