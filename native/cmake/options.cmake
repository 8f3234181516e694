# One interface target with the flags that every object in this tree gets.
add_library(native_options INTERFACE)
target_compile_options(native_options INTERFACE -Wall -Wextra -Wpedantic -Wvla -fno-omit-frame-pointer)
if(NATIVE_WERROR)
    target_compile_options(native_options INTERFACE -Werror)
endif()
if(NATIVE_SANITIZE)
    target_compile_options(native_options INTERFACE -fsanitize=${NATIVE_SANITIZE} -O1 -g)
    # Errors end the test: a report that scrolls by guards nothing.
    target_compile_options(native_options INTERFACE -fno-sanitize-recover=all)
    target_link_options(native_options INTERFACE -fsanitize=${NATIVE_SANITIZE})
endif()
target_include_directories(native_options INTERFACE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(native_options INTERFACE Threads::Threads)
