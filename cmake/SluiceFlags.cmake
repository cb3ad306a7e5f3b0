# sluice_common_flags: warnings, sanitizers and definitions of all our own code.
set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wvla -Wcast-qual
    -Wcast-function-type -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wpointer-arith
    -Wwrite-strings -Wformat=2 -Wimplicit-fallthrough -Wswitch-enum -Wnull-dereference -Walloca)

add_library(sluice_common_flags INTERFACE)
target_compile_definitions(sluice_common_flags INTERFACE _GNU_SOURCE)
# Messages of the program name source files relative to the tree, wherever it was built.
target_compile_options(sluice_common_flags INTERFACE "$<$<COMPILE_LANGUAGE:C>:${warnings};-fno-common>"
    "$<$<AND:$<COMPILE_LANGUAGE:C>,$<BOOL:${SLUICE_WERROR}>>:-Werror>"
    "$<$<COMPILE_LANGUAGE:C>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>")
if(SLUICE_LIBC_ALLOCATOR)
  target_compile_definitions(sluice_common_flags INTERFACE SLUICE_LIBC_ALLOCATOR=1)
endif()

set(sanitizers ${SLUICE_SANITIZE})
if(SLUICE_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "SLUICE_FUZZ needs clang: use the preset fuzz (packages clang and libclang-rt-dev)")
  endif()
  set(sanitizers fuzzer-no-link,address,undefined)
endif()
if(sanitizers)
  target_compile_options(sluice_common_flags INTERFACE -fsanitize=${sanitizers} -fno-sanitize-recover=all
      -fno-omit-frame-pointer)
  target_link_options(sluice_common_flags INTERFACE -fsanitize=${sanitizers})
endif()

# Tests calculate with literals of any width, and Criterion's macros convert: no conversion warnings there.
add_library(sluice_flags INTERFACE)
target_link_libraries(sluice_flags INTERFACE sluice_common_flags)
target_compile_options(sluice_flags INTERFACE "$<$<COMPILE_LANGUAGE:C>:-Wconversion;-Wsign-conversion>")
add_library(sluice_test_flags INTERFACE)
target_link_libraries(sluice_test_flags INTERFACE sluice_common_flags)

# jemalloc for a program. Nothing refers to its symbols strongly, so the linker would drop it.
add_library(sluice_allocator INTERFACE)
if(NOT SLUICE_LIBC_ALLOCATOR)
  target_link_libraries(sluice_allocator INTERFACE -Wl,--no-as-needed PkgConfig::JEMALLOC -Wl,--as-needed)
endif()
