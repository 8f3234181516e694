native_test(sim-runtime-rules SOURCES sim-runtime-rules.cpp LIBS acl_sim_client REQUIRES ascendcl nnopbase opapi)
