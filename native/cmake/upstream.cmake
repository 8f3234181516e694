# What we build of the pinned llama.cpp tree: its judge of backends, against the stock ggml libraries.
# EXCLUDE_FROM_ALL: only `make native-sweep` asks for it.
set(LLAMA_SOURCE ${GGML_HEADERS}/..)
foreach(name ggml ggml-base ggml-cpu llama)
    string(TOUPPER ${name} variable)
    string(REPLACE "-" "_" variable ${variable})
    find_library(STOCK_${variable} NAMES ${name} PATHS ${GGML_LIB} NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
endforeach()

if(STOCK_GGML AND STOCK_GGML_BASE AND EXISTS ${LLAMA_SOURCE}/tests/test-backend-ops.cpp)
    add_executable(test-backend-ops EXCLUDE_FROM_ALL ${LLAMA_SOURCE}/tests/test-backend-ops.cpp)
    target_include_directories(test-backend-ops SYSTEM PRIVATE ${GGML_HEADERS}/include ${GGML_HEADERS}/src)
    target_link_libraries(test-backend-ops PRIVATE ${STOCK_GGML} ${STOCK_GGML_BASE} Threads::Threads)
    target_link_options(test-backend-ops PRIVATE -Wl,-rpath-link,${GGML_LIB})
    set_target_properties(test-backend-ops PROPERTIES BUILD_RPATH ${GGML_LIB})
endif()

# Loads a model with the stock libllama and our plugin, generates greedily, prints tokens: the C++ end-to-end
# check that also runs under qemu, where there is no Python.
if(STOCK_LLAMA AND EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/tests/generate.cpp)
    add_executable(generate EXCLUDE_FROM_ALL ${CMAKE_CURRENT_SOURCE_DIR}/tests/generate.cpp)
    target_include_directories(generate SYSTEM PRIVATE ${GGML_HEADERS}/include ${LLAMA_SOURCE}/include)
    target_link_libraries(generate PRIVATE native_options ${STOCK_LLAMA} ${STOCK_GGML} ${STOCK_GGML_BASE})
    target_link_options(generate PRIVATE -Wl,-rpath-link,${GGML_LIB})
    set_target_properties(generate PROPERTIES BUILD_RPATH ${GGML_LIB})
endif()
