# The library: compiled once, linked as libsluice.so and libsluice.a.
# Sources are found by folder: a new file needs no line here.
file(GLOB_RECURSE SLUICE_SOURCES CONFIGURE_DEPENDS scheduler/*.c runtime/*.c)
list(FILTER SLUICE_SOURCES EXCLUDE REGEX "/runtime/backend/(cuda|template)/")
set(SLUICE_LINKED PkgConfig::LIBEVENT PkgConfig::JANSSON PkgConfig::XXHASH PkgConfig::SODIUM Threads::Threads m
    ${CMAKE_DL_LIBS})

# What a source of ours needs to compile: headers, flags, packages.
add_library(sluice_internal INTERFACE)
target_include_directories(sluice_internal INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR})
target_link_libraries(sluice_internal INTERFACE ${SLUICE_LINKED})

add_library(sluice_objects OBJECT ${SLUICE_SOURCES})
target_link_libraries(sluice_objects PRIVATE sluice_internal sluice_flags)

# Where models are looked for by name, after the folder beside the program.
set_source_files_properties(runtime/core/model_file.c PROPERTIES COMPILE_DEFINITIONS
    "SLUICE_MODELS_INSTALLED=\"${CMAKE_INSTALL_FULL_DATADIR}/sluice/models\";SLUICE_MODELS_SOURCE=\"${CMAKE_SOURCE_DIR}/tools/models\"")

# Exports only what SLUICE_API marks. jemalloc stays out: a shared object linked to it cannot be loaded late.
add_library(sluice SHARED $<TARGET_OBJECTS:sluice_objects>)
set_target_properties(sluice PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${version_ABI} LINKER_LANGUAGE C)
target_link_libraries(sluice PRIVATE $<BUILD_INTERFACE:sluice_flags> ${SLUICE_LINKED})
# Calls inside the library stay inside, also when a process holds two copies of it.
target_link_options(sluice PRIVATE -Wl,-Bsymbolic-functions -Wl,--exclude-libs,ALL -Wl,--as-needed)
if(NOT SLUICE_SANITIZE AND NOT SLUICE_FUZZ)
  target_link_options(sluice PRIVATE -Wl,--no-undefined)
endif()

add_library(sluice_static STATIC $<TARGET_OBJECTS:sluice_objects>)
set_target_properties(sluice_static PROPERTIES OUTPUT_NAME sluice LINKER_LANGUAGE C)
target_link_libraries(sluice_static PRIVATE ${SLUICE_LINKED})

foreach(target sluice sluice_static)
  target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(${target} PROPERTIES C_CLANG_TIDY "")
endforeach()

# The library with its private symbols and headers, for the tool and the tests.
add_library(sluice_private INTERFACE)
target_link_libraries(sluice_private INTERFACE sluice_static sluice_internal)

# The skeleton that a new backend starts from must always compile.
file(GLOB_RECURSE template_sources CONFIGURE_DEPENDS runtime/backend/template/*.c)
if(template_sources)
  add_library(sluice_template OBJECT ${template_sources})
  target_link_libraries(sluice_template PRIVATE sluice_internal sluice_flags)
endif()
