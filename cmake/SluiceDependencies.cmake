# What must be there. Everything missing is told at once, by the name of its Debian and Ubuntu package.
find_package(Threads REQUIRED)
find_package(PkgConfig)
if(NOT PKG_CONFIG_FOUND)
  message(FATAL_ERROR "pkg-config is missing; install the package pkgconf")
endif()

set(missing_packages "")

# sluice_need(PREFIX package modules...): an imported target PkgConfig::PREFIX.
macro(sluice_need prefix package)
  pkg_check_modules(${prefix} QUIET IMPORTED_TARGET GLOBAL ${ARGN})
  if(NOT ${prefix}_FOUND)
    list(APPEND missing_packages ${package})
  endif()
endmacro()

sluice_need(LIBEVENT libevent-dev libevent_core>=2.1 libevent_extra>=2.1 libevent_pthreads>=2.1)
sluice_need(JANSSON libjansson-dev jansson>=2.13)
sluice_need(XXHASH libxxhash-dev libxxhash>=0.8)
sluice_need(SODIUM libsodium-dev libsodium>=1.0.18)
if(NOT SLUICE_LIBC_ALLOCATOR)
  sluice_need(JEMALLOC libjemalloc-dev jemalloc>=5.2)
endif()
# Criterion cannot run under ThreadSanitizer, and fuzz targets do not use it.
set(SLUICE_CRITERION OFF)
if(BUILD_TESTING AND NOT SLUICE_SANITIZE MATCHES "thread" AND NOT SLUICE_FUZZ)
  set(SLUICE_CRITERION ON)
  sluice_need(CRITERION libcriterion-dev criterion>=2.4)
endif()

if(missing_packages)
  list(JOIN missing_packages " " missing_packages)
  message(FATAL_ERROR "missing dependencies; on Debian and Ubuntu install: ${missing_packages}")
endif()
