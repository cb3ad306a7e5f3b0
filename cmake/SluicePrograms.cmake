# The tool, benches and examples: every file of tools/bench and tools/examples is a program.
function(sluice_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE sluice_private sluice_flags sluice_allocator)
endfunction()

# Made-up worlds under faults: for sluice sim --faults and for tests.
file(GLOB fault_sources CONFIGURE_DEPENDS tools/faults/*.c)
add_library(sluice_faults STATIC ${fault_sources})
target_link_libraries(sluice_faults PUBLIC sluice_private PRIVATE sluice_flags)

file(GLOB tool_sources CONFIGURE_DEPENDS tools/sluice/*.c)
if(tool_sources)
  sluice_program(sluice_tool ${tool_sources})
  target_link_libraries(sluice_tool PRIVATE sluice_faults)
  set_target_properties(sluice_tool PROPERTIES OUTPUT_NAME sluice)
endif()

file(GLOB bench_sources CONFIGURE_DEPENDS tools/bench/*.c)
foreach(source IN LISTS bench_sources)
  get_filename_component(name ${source} NAME_WE)
  sluice_program(bench_${name} ${source})
endforeach()

file(GLOB kill_tally_sources CONFIGURE_DEPENDS tools/bench/kill_tally/*.c)
sluice_program(bench_kill_tally ${kill_tally_sources})

file(GLOB soak_sources CONFIGURE_DEPENDS tools/bench/soak/*.c)
sluice_program(bench_soak ${soak_sources})

# Examples see what a user sees: public headers and the shared library. Each prints what it verified, at the end and
# only when all went well.
file(GLOB example_sources CONFIGURE_DEPENDS tools/examples/*.c)
foreach(source IN LISTS example_sources)
  get_filename_component(name ${source} NAME_WE)
  add_executable(example_${name} ${source})
  target_link_libraries(example_${name} PRIVATE sluice sluice_flags PkgConfig::LIBEVENT Threads::Threads)
  if(BUILD_TESTING)
    add_test(NAME example_${name} COMMAND example_${name})
    set_tests_properties(example_${name} PROPERTIES LABELS example TIMEOUT 120
        PASS_REGULAR_EXPRESSION "verified [1-9][0-9]* bytes")
  endif()
endforeach()

# Prints docs/settings.md from the table of settings.
sluice_program(settings_doc ${CMAKE_SOURCE_DIR}/tools/docs/settings.c)
