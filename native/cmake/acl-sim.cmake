# The simulator, laid out like an installed toolkit: <build>/sim-toolkit/lib64/lib{ascendcl,nnopbase,opapi}.so.
#
# Sources are found by name, so that adding a file needs no edit here:
#   acl-sim/acl-*.cpp      libascendcl.so   the runtime's entry points
#   acl-sim/nnopbase*.cpp  libnnopbase.so   aclTensor and friends, executors
#   acl-sim/aclnn-*.cpp    libopapi.so      operators, one vendor header a file
#   acl-sim/sim-*.cpp      libacl-sim.so    all state and all kernels; internal, the other three need it
#   *-v3.cpp               as above, compiled for x86-64-v3 (AVX2, FMA, F16C) where the target is x86-64;
#                          the caller checks the CPU before it goes there
set(ACL_SIM_DIR ${PROJECT_SOURCE_DIR}/acl-sim)
set(ACL_SIM_LIB_DIR ${PROJECT_BINARY_DIR}/sim-toolkit/lib64)

function(acl_sim_library target output)
    file(GLOB sources CONFIGURE_DEPENDS ${ARGN})
    if(NOT sources)
        message(STATUS "acl-sim: no source yet for ${output}")
        return()
    endif()
    add_library(${target} SHARED ${sources})
    target_link_libraries(${target} PRIVATE native_options)
    target_include_directories(${target} PRIVATE ${ACL_SIM_DIR})
    set_target_properties(${target} PROPERTIES
        OUTPUT_NAME ${output}
        LIBRARY_OUTPUT_DIRECTORY ${ACL_SIM_LIB_DIR}
        BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN")
    # Kernels must be quick even in a debug or sanitizer build, else one token takes minutes.
    foreach(source IN LISTS sources)
        get_filename_component(name ${source} NAME)
        if(name MATCHES "^sim-kernel-" AND NOT NATIVE_SANITIZE MATCHES thread)
            set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -O3)
        endif()
        if(name MATCHES "-v3\\.cpp$" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
            set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -march=x86-64-v3)
        endif()
    endforeach()
endfunction()

acl_sim_library(acl_sim acl-sim ${ACL_SIM_DIR}/sim-*.cpp)
acl_sim_library(ascendcl ascendcl ${ACL_SIM_DIR}/acl-*.cpp)
acl_sim_library(nnopbase nnopbase ${ACL_SIM_DIR}/nnopbase*.cpp)
acl_sim_library(opapi opapi ${ACL_SIM_DIR}/aclnn-*.cpp)

# Everything that defines a vendor symbol hides the rest: an unknown operator must be absent (dlsym null).
foreach(target ascendcl nnopbase opapi)
    if(TARGET ${target})
        set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
        if(TARGET acl_sim)
            target_link_libraries(${target} PRIVATE acl_sim)
        endif()
    endif()
endforeach()
if(TARGET opapi AND TARGET nnopbase)
    target_link_libraries(opapi PRIVATE nnopbase)
endif()

# What a client test links: the three libraries, as an application linked to a toolkit would.
add_library(acl_sim_client INTERFACE)
target_link_libraries(acl_sim_client INTERFACE native_options)
foreach(target ascendcl nnopbase opapi)
    if(TARGET ${target})
        target_link_libraries(acl_sim_client INTERFACE ${target})
    endif()
endforeach()
