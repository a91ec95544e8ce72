// SPDX-License-Identifier: Apache-2.0
#pragma once
// The macro for definitions in the library weft::compiled. Without WEFT_COMPILED weft is header-only: `foo.hpp` includes
// `foo_impl.hpp`, whose definitions are inline. With WEFT_COMPILED a program includes only declarations, and src/*.cpp compile
// the definitions once.
//
//   WEFT_INLINE std::string joined(Words words) { ... }   // in text_impl.hpp; text.hpp declares it

#include <weft/core/standard.hpp>

#ifdef WEFT_COMPILED
#define WEFT_INLINE
#else
#define WEFT_INLINE inline
#endif

// The bytes of the widest vector register that the compiler may use.
#if defined(__AVX512F__)
#define WEFT_REGISTER_BYTES 64
#elif defined(__AVX__)
#define WEFT_REGISTER_BYTES 32
#else
#define WEFT_REGISTER_BYTES 16
#endif

// Errors of the linker for inconsistent programs. If some translation units are compiled with WEFT_COMPILED and others without,
// linking fails on a symbol that is thread-local in only one of them ("TLS definition ... mismatches non-TLS reference"). A
// program compiled for other vector registers than the library would get sums in another order from it; it refers to a symbol
// that the library does not define.
#define WEFT_JOINED_REGISTERS(bytes) weft_compiled_for_registers_of_##bytes##_bytes
#define WEFT_REGISTERS_OF(bytes) WEFT_JOINED_REGISTERS(bytes)
#define WEFT_REGISTERS WEFT_REGISTERS_OF(WEFT_REGISTER_BYTES)

#if defined(__GNUC__) && defined(__ELF__) && !defined(__CUDA_ARCH__)
namespace weft::detail {
#ifdef WEFT_COMPILED
extern "C" char weft_with_and_without_WEFT_COMPILED, WEFT_REGISTERS;
[[gnu::used]] static const char* const weft_linker_checks[] = {&weft_with_and_without_WEFT_COMPILED, &WEFT_REGISTERS};
#else
extern "C" {
[[gnu::used]] inline thread_local char weft_with_and_without_WEFT_COMPILED = 0;
}
#endif
}  // namespace weft::detail
#endif
