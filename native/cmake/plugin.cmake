# libggml-cann310b.so: a ggml dynamic backend. Sources: ggml-cann310b/*.cpp and ggml-cann310b/ops/*.cpp.
file(GLOB plugin_sources CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/ggml-cann310b/*.cpp ${PROJECT_SOURCE_DIR}/ggml-cann310b/ops/*.cpp)
if(NOT plugin_sources)
    message(STATUS "plugin: no source yet")
    return()
endif()
if(NOT EXISTS ${GGML_HEADERS}/include/ggml-backend.h OR NOT EXISTS ${GGML_HEADERS}/src/ggml-backend-impl.h)
    message(FATAL_ERROR "GGML_HEADERS='${GGML_HEADERS}' is not the ggml folder of llama-cpp-python's sdist: "
        "include/ggml-backend.h and src/ggml-backend-impl.h must be there. `make native` fetches it.")
endif()
find_library(GGML_BASE NAMES ggml-base PATHS ${GGML_LIB} NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
if(NOT GGML_BASE)
    message(FATAL_ERROR "no libggml-base.so in GGML_LIB='${GGML_LIB}': give the lib folder of an installed "
        "llama_cpp package of the version the headers belong to.")
endif()

add_library(ggml_base SHARED IMPORTED)
set_target_properties(ggml_base PROPERTIES
    IMPORTED_LOCATION ${GGML_BASE}
    INTERFACE_INCLUDE_DIRECTORIES "${GGML_HEADERS}/include;${GGML_HEADERS}/src"
    INTERFACE_COMPILE_DEFINITIONS "GGML_SHARED;GGML_BACKEND_SHARED")

add_library(ggml_cann310b MODULE ${plugin_sources})
set_target_properties(ggml_cann310b PROPERTIES
    OUTPUT_NAME ggml-cann310b
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
    # The process that loads the plugin already holds its libggml-base: never carry a path to another copy.
    SKIP_BUILD_RPATH ON)
target_compile_definitions(ggml_cann310b PRIVATE GGML_BACKEND_DL GGML_BACKEND_BUILD)
target_include_directories(ggml_cann310b PRIVATE ${PROJECT_SOURCE_DIR}/ggml-cann310b)
# ggml's headers are not ours to clean: -isystem keeps -Werror for our own lines.
target_include_directories(ggml_cann310b SYSTEM PRIVATE ${GGML_HEADERS}/include ${GGML_HEADERS}/src)
target_link_libraries(ggml_cann310b PRIVATE native_options ggml_base ${CMAKE_DL_LIBS})
