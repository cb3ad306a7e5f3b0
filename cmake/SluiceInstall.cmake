# install, pkg-config file, CMake package.
include(CMakePackageConfigHelpers)

install(TARGETS sluice sluice_static EXPORT sluice-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/sluice DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY tools/models DESTINATION ${CMAKE_INSTALL_DATADIR}/sluice FILES_MATCHING PATTERN "*.json")
if(TARGET sluice_tool)
  install(TARGETS sluice_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET sluice_cuda)
  install(TARGETS sluice_cuda sluice_foreground LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)
install(EXPORT sluice-targets NAMESPACE sluice:: DESTINATION ${package_dir})
configure_package_config_file(cmake/sluice-config.cmake.in ${CMAKE_BINARY_DIR}/sluice-config.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break programs.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/sluice-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/sluice-config.cmake ${CMAKE_BINARY_DIR}/sluice-config-version.cmake
        DESTINATION ${package_dir})

# From the file itself, so that it is right for a prefix that is chosen at install time too.
file(RELATIVE_PATH SLUICE_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" SLUICE_PC_PREFIX "${SLUICE_PC_PREFIX}")
configure_file(cmake/sluice.pc.in ${CMAKE_BINARY_DIR}/sluice.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/sluice.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
