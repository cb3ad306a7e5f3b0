# Every tests/<folder>/..._test.c is a Criterion program and a CTest entry labelled with its folder.
# tests/stress/*.c and tests/fuzz/*.c are programs of their own. SLUICE_TEST_BIN is the folder of the tool,
# SLUICE_TEST_DATA that of small inputs, SLUICE_TEST_CHECKPOINT what tools/real-checkpoint brings.
set(sanitizer_environment "ASAN_OPTIONS=abort_on_error=1:detect_stack_use_after_return=1"
    "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1" "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1")

file(GLOB_RECURSE support_sources CONFIGURE_DEPENDS tests/support/*.c)
add_library(sluice_test_support STATIC ${support_sources})
target_include_directories(sluice_test_support PUBLIC ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(sluice_test_support PUBLIC sluice_private sluice_faults PRIVATE sluice_test_flags)

# sluice_register(name label seconds command...): a CTest entry.
function(sluice_register name label seconds)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${seconds} ENVIRONMENT "${sanitizer_environment}")
endfunction()

# sluice_test_program(source label): an executable named after its path below tests/.
function(sluice_test_program source ret_name)
  file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/tests ${source})
  string(REGEX REPLACE "\\.c$" "" name ${name})
  string(REPLACE "/" "_" name ${name})
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE sluice_test_support sluice_test_flags sluice_allocator)
  target_compile_definitions(${name} PRIVATE SLUICE_TEST_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
      SLUICE_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data"
      SLUICE_TEST_CHECKPOINT="${CMAKE_SOURCE_DIR}/build/checkpoints/all-minilm-l6-v2/model.safetensors")
  set_target_properties(${name} PROPERTIES C_CLANG_TIDY "")
  if(TARGET sluice_tool)
    add_dependencies(${name} sluice_tool)
  endif()
  set(${ret_name} ${name} PARENT_SCOPE)
endfunction()

if(SLUICE_CRITERION)
  foreach(folder unit conformance sim fault integration)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS tests/${folder}/*_test.c)
    foreach(source IN LISTS sources)
      sluice_test_program(${source} name)
      target_link_libraries(${name} PRIVATE PkgConfig::CRITERION)
      sluice_register(${name} ${folder} 300 ${name})
    endforeach()
  endforeach()
endif()

# Tests that let calls of the system fail get them before the system does.
function(sluice_wrap name)
  if(TARGET ${name})
    list(TRANSFORM ARGN PREPEND -Wl,--wrap=)
    target_link_options(${name} PRIVATE ${ARGN})
  endif()
endfunction()
sluice_wrap(unit_control_sockets_test socket bind listen connect accept4 getsockname getsockopt setsockopt send recv)
sluice_wrap(unit_backend_host_nth_call_test socket bind listen connect accept4 sendmsg recvmsg memfd_create ftruncate
    epoll_create1 epoll_ctl eventfd pthread_create)

file(GLOB stress_sources CONFIGURE_DEPENDS tests/stress/*.c)
foreach(source IN LISTS stress_sources)
  sluice_test_program(${source} name)
  sluice_register(${name} stress 300 ${name})
endforeach()

# The fault matrix: some thousand seeds in every run, a million with `cmake --build --preset release --target nightly`.
if(SLUICE_SANITIZE OR SLUICE_FUZZ)
  set(fault_seeds 1500)
else()
  set(fault_seeds 20000)
endif()
sluice_register(sim_faults fault 900 sluice_tool sim --faults --seeds ${fault_seeds})
add_custom_target(nightly COMMAND sluice_tool sim --faults --seeds 1000000 USES_TERMINAL)

# These judge who is silent, so nothing runs beside them.
if(TARGET bench_kill_tally)
  sluice_register(fault_kill_tally fault 300 bench_kill_tally 12 1 30)
  set_tests_properties(fault_kill_tally PROPERTIES RUN_SERIAL TRUE)
endif()
if(TARGET bench_soak)
  sluice_register(fault_soak fault 300 bench_soak 25 1 4)
  set_tests_properties(fault_soak PROPERTIES RUN_SERIAL TRUE)
endif()

# A model has none of our code in it: once is enough.
find_program(SLUICE_SPIN spin)
if(SLUICE_SPIN AND (SLUICE_SANITIZE OR SLUICE_FUZZ))
  message(STATUS "Models: checked in a build without sanitizers")
elseif(SLUICE_SPIN)
  set(model ${CMAKE_SOURCE_DIR}/tests/model/check ${CMAKE_SOURCE_DIR}/tests/model/commit.pml -DRANKS=3 -DLOSSES=1)
  sluice_register(model_commit_whole model 900 ${model} -DWHOLE=1)
  sluice_register(model_commit_partial model 900 ${model} -DWHOLE=0)
else()
  message(STATUS "Models: not checked (no spin)")
endif()

# tests/gpu/*.c without _test are programs of their own (exit status 77: no device); work.cu is for the others.
# pairs.c, plans.c and wire.c call NCCL themselves; plans.c is NCCL's profiler plugin as well, found by its symbol.
file(GLOB gpu_sources CONFIGURE_DEPENDS tests/gpu/*.c)
if(SLUICE_CRITERION AND SLUICE_HAVE_CUDA)
  add_library(sluice_gpu_work STATIC tests/gpu/work.cu)
  target_include_directories(sluice_gpu_work PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  foreach(source IN LISTS gpu_sources)
    sluice_test_program(${source} name)
    target_link_libraries(${name} PRIVATE sluice_gpu_work sluice_cuda_headers CUDA::cudart_static)
    add_dependencies(${name} sluice_cuda)
    if(source MATCHES "/(pairs|plans|wire)\\.c$")
      target_link_libraries(${name} PRIVATE ${NCCL_LIBRARY})
      set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON)
    endif()
    if(source MATCHES "_test\\.c$")
      target_link_libraries(${name} PRIVATE PkgConfig::CRITERION)
      sluice_register(${name} gpu 600 ${name} -j1)
    else()
      sluice_register(${name} gpu 600 ${name})
    endif()
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK gpu SKIP_RETURN_CODE 77)
  endforeach()
elseif(gpu_sources)
  message(STATUS "GPU tests: left out (no CUDA module)")
endif()

# Fuzz targets: with libFuzzer each runs for some seconds from its corpus (tests/fuzz/corpus/<target>, one file an input,
# what once failed among them); without it the corpus is gone through once. `fuzzers` builds them all.
file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/*.c)
add_custom_target(fuzzers)
foreach(source IN LISTS fuzz_sources)
  sluice_test_program(${source} name)
  get_filename_component(stem ${source} NAME_WE)
  file(GLOB seeds CONFIGURE_DEPENDS tests/fuzz/corpus/${stem}/*)
  if(SLUICE_FUZZ)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    list(JOIN seeds "," seeds) # by name: a folder would be written to
    sluice_register(${name} fuzz 300 ${name} -max_total_time=5 -timeout=10
        -artifact_prefix=${CMAKE_BINARY_DIR}/${name}- -seed_inputs=${seeds})
  else()
    target_sources(${name} PRIVATE tests/fuzz/replay/main.c)
    sluice_register(${name} fuzz 60 ${name} ${seeds})
  endif()
  add_dependencies(fuzzers ${name})
endforeach()

include(SluiceBuildTests)
