native_test(sim-runtime-rules SOURCES sim-runtime-rules.cpp LIBS acl_sim_client REQUIRES ascendcl nnopbase opapi)
native_test(sim-runtime-device SOURCES sim-runtime-device.cpp LIBS acl_sim_client ${CMAKE_DL_LIBS} REQUIRES ascendcl nnopbase opapi)
