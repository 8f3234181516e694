# Tests that judge plugin and simulator together, through the stock ggml libraries.
if(STOCK_GGML AND STOCK_GGML_BASE)
    native_test(whole-stress SOURCES whole-stress.cpp LIBS ${STOCK_GGML} ${STOCK_GGML_BASE}
        REQUIRES ggml_cann310b ascendcl opapi)
    if(TARGET whole-stress)
        target_include_directories(whole-stress SYSTEM PRIVATE ${GGML_HEADERS}/include)
        target_link_options(whole-stress PRIVATE -Wl,-rpath-link,${GGML_LIB})
        set_target_properties(whole-stress PROPERTIES BUILD_RPATH ${GGML_LIB})
        add_dependencies(whole-stress ggml_cann310b)
    endif()
endif()

# The cost model against the decode speeds that the public add-on published.
native_test(whole-addon-pattern SOURCES whole-addon-pattern.cpp LIBS acl_sim_client REQUIRES ascendcl nnopbase opapi)
