# Operators of the simulator: numbers, refusals, misuse, and the kernels below them.
native_test(sim-ops-numerics SOURCES sim-ops-numerics.cpp LIBS acl_sim_client REQUIRES ascendcl nnopbase opapi)
native_test(sim-ops-refusals SOURCES sim-ops-refusals.cpp LIBS acl_sim_client REQUIRES ascendcl nnopbase opapi)
native_test(sim-ops-misuse SOURCES sim-ops-misuse.cpp LIBS acl_sim_client REQUIRES ascendcl nnopbase opapi)
native_test(sim-ops-kernels SOURCES sim-ops-kernels.cpp LIBS acl_sim REQUIRES acl_sim)
native_test(sim-board-rows SOURCES sim-board-rows.cpp LIBS acl_sim_client ${CMAKE_DL_LIBS} REQUIRES ascendcl nnopbase opapi)
