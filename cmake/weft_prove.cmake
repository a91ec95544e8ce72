# SPDX-License-Identifier: Apache-2.0
# weft_add_proof(NAME TARGET [RANKS n] [ARGUMENTS ...]): the sources of the program TARGET once more, as a program NAME that
# computes in double (WEFT_PROVE_IN_DOUBLE), and a test NAME that proves it in all layouts of up to n ranks (8), started with
# these arguments. The program is no part of `all` if TARGET is not. Sources must compile for any scalar of a context.
function(weft_add_proof name target)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "RANKS" "ARGUMENTS")
  if(NOT TARGET ${target})
    message(FATAL_ERROR "weft_add_proof(${name} ${target}): there is no target ${target}: call it after add_executable(${target} ...)")
  endif()
  if(NOT arg_RANKS)
    set(arg_RANKS 8)
  endif()
  weft_add_proof_program(${name} ${target})
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGUMENTS})
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "WEFT_PROVE=${arg_RANKS};OMP_PROC_BIND=false;OMP_WAIT_POLICY=passive")
endfunction()

# The program alone.
function(weft_add_proof_program name target)
  get_target_property(folder ${target} SOURCE_DIR)
  get_target_property(sources ${target} SOURCES)
  list(TRANSFORM sources REPLACE "^([^/$].*)$" "${folder}/\\1")
  add_executable(${name} ${sources})
  target_compile_definitions(${name} PRIVATE WEFT_PROVE_IN_DOUBLE)
  foreach(property LINK_LIBRARIES COMPILE_DEFINITIONS COMPILE_OPTIONS COMPILE_FEATURES INCLUDE_DIRECTORIES LINK_OPTIONS)
    get_target_property(values ${target} ${property})
    if(values)
      set_property(TARGET ${name} APPEND PROPERTY ${property} ${values})
    endif()
  endforeach()
  foreach(property CXX_STANDARD CXX_STANDARD_REQUIRED CXX_EXTENSIONS EXCLUDE_FROM_ALL)
    get_target_property(value ${target} ${property})
    if(NOT value MATCHES "-NOTFOUND$")  # OFF is a value
      set_target_properties(${name} PROPERTIES ${property} "${value}")
    endif()
  endforeach()
endfunction()
