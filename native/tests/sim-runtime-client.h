// The client of the runtime tests: start, stop, and one launch.
#pragma once

#include "acl310b/acl-api.h"
#include "acl310b/aclnn-api.h"
#include "check.h"

namespace client {

constexpr size_t kBytes  = 4096;
constexpr int64_t kCount = 1024;

inline void begin(const char * config = R"({"chip": "310B4"})") {
    setenv("ACL_SIM_CONFIG", config, 1);
    REQUIRE(aclInit(nullptr) == ACL_SUCCESS);
    REQUIRE(aclrtSetDevice(0) == ACL_SUCCESS);
}

inline void end() {
    CHECK_EQ(aclrtResetDevice(0), ACL_SUCCESS);
    CHECK_EQ(aclFinalize(), ACL_SUCCESS);
}

inline void * device_memory(size_t n = kBytes) {
    void * p = nullptr;
    REQUIRE(aclrtMalloc(&p, n, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS);
    return p;
}

inline aclrtStream stream() {
    aclrtStream s = nullptr;
    REQUIRE(aclrtCreateStream(&s) == ACL_SUCCESS);
    return s;
}

// Queues y = silu(x) on kCount floats.
inline void launch(void * x, void * y, aclrtStream on) {
    const int64_t ne     = kCount;
    aclTensor * a        = aclCreateTensor(&ne, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &ne, 1, x);
    aclTensor * b        = aclCreateTensor(&ne, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &ne, 1, y);
    uint64_t n_workspace = 0;
    aclOpExecutor * plan = nullptr;
    REQUIRE(aclnnSiluGetWorkspaceSize(a, b, &n_workspace, &plan) == 0);
    REQUIRE(aclnnSilu(nullptr, n_workspace, plan, on) == 0);
    aclDestroyTensor(a);
    aclDestroyTensor(b);
}

} // namespace client
