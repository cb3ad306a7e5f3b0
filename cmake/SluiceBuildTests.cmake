# Checks of what is built: headers that stand alone, exported symbols, loading, installing.
enable_language(CXX)

# Each public header compiles alone, as C11 and as C++17, with strict warnings.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/include include/*.h)
set(header_sources "")
foreach(header IN LISTS headers)
  string(MAKE_C_IDENTIFIER ${header} name)
  foreach(extension c cc)
    set(source ${CMAKE_BINARY_DIR}/headers/${name}.${extension})
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\nextern int ${name};\n")
    list(APPEND header_sources ${source})
  endforeach()
endforeach()
add_library(sluice_headers_alone OBJECT ${header_sources})
target_include_directories(sluice_headers_alone PRIVATE ${CMAKE_SOURCE_DIR}/include)
target_compile_options(sluice_headers_alone PRIVATE -Wall -Wextra -Wpedantic -Wundef -Werror)
set_target_properties(sluice_headers_alone PROPERTIES C_STANDARD 11 CXX_STANDARD 17 CXX_EXTENSIONS OFF
    C_CLANG_TIDY "")

add_test(NAME build_settings_doc COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:settings_doc>
    -DEXPECTED=${CMAKE_SOURCE_DIR}/docs/settings.md -P ${CMAKE_SOURCE_DIR}/tests/build/same_output.cmake)
set_tests_properties(build_settings_doc PROPERTIES LABELS build TIMEOUT 60)

# A sanitizer's runtime must be loaded first, so a sanitized library cannot be loaded late.
if(SLUICE_SANITIZE OR SLUICE_FUZZ)
  return()
endif()

find_package(Python3 COMPONENTS Interpreter)
add_executable(build_load tests/build/load.c)
target_link_libraries(build_load PRIVATE sluice_flags ${CMAKE_DL_LIBS})
target_include_directories(build_load PRIVATE ${CMAKE_SOURCE_DIR}/include)

function(sluice_build_test name)
  add_test(NAME build_${name} COMMAND ${ARGN})
  set_tests_properties(build_${name} PROPERTIES LABELS build TIMEOUT 300)
endfunction()

sluice_build_test(load build_load $<TARGET_FILE:sluice>)
# The same in a program whose own allocator is another one.
find_library(SLUICE_OTHER_ALLOCATOR jemalloc)
if(SLUICE_OTHER_ALLOCATOR)
  sluice_build_test(load_other_allocator build_load $<TARGET_FILE:sluice>)
  set_tests_properties(build_load_other_allocator PROPERTIES ENVIRONMENT LD_PRELOAD=${SLUICE_OTHER_ALLOCATOR})
endif()
sluice_build_test(symbols ${CMAKE_SOURCE_DIR}/tests/build/symbols.sh $<TARGET_FILE:sluice>
    ${CMAKE_SOURCE_DIR}/include/sluice)
sluice_build_test(install ${CMAKE_SOURCE_DIR}/tests/build/install.sh ${CMAKE_BINARY_DIR} ${CMAKE_COMMAND}
    ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER} ${CMAKE_SOURCE_DIR}/tests/build/consumer ${CMAKE_SOURCE_DIR}/README.md)
sluice_build_test(missing_package ${CMAKE_SOURCE_DIR}/tests/build/missing_package.sh ${CMAKE_SOURCE_DIR}
    ${CMAKE_COMMAND} ${CMAKE_C_COMPILER})
sluice_build_test(packages ${CMAKE_SOURCE_DIR}/tests/build/packages.sh ${CMAKE_SOURCE_DIR})
if(Python3_FOUND)
  sluice_build_test(lint ${CMAKE_SOURCE_DIR}/tests/build/lint.sh ${CMAKE_SOURCE_DIR})
  sluice_build_test(load_python ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/build/load.py $<TARGET_FILE:sluice>)
endif()
