// The ACL libraries, opened at run time: one table of function pointers, made from the rows of acl310b/*.h.
#pragma once

#include "acl310b/acl-api.h"
#include "acl310b/aclnn-api.h"

#include <stdexcept>
#include <string>
#include <vector>

namespace cann310b {

// A failed ACL call. Thrown inside the plugin only; every entry from ggml catches it and answers with a
// status.
struct AclFailure : std::runtime_error {
    AclFailure(int code_, const std::string & what) : std::runtime_error(what), code(code_) {}
    int code;
};

struct AclLibrary {
    // NOLINTBEGIN(bugprone-macro-parentheses) these arguments are declarators, not expressions
#define ACL_MEMBER(result, name, arguments, need) result(*name) arguments = nullptr;
    ACL_RT_FUNCTIONS(ACL_MEMBER)
    ACL_BASE_FUNCTIONS(ACL_MEMBER)
#undef ACL_MEMBER
#define ACL_MEMBER(name, arguments)                                                                          \
    aclnnStatus(*name##GetWorkspaceSize) arguments = nullptr;                                                \
    aclnnRunFunction name                          = nullptr;
    ACLNN_USED_OPS(ACL_MEMBER)
    ACLNN_PROBED_OPS(ACL_MEMBER)
#undef ACL_MEMBER
    // NOLINTEND(bugprone-macro-parentheses)

    // Opens the libraries below the toolkit folder. Empty when all is well, else why not and what to do.
    std::string open();
    std::string folder; // where they were found

  private:
    std::vector<void *> handles_;
    void * find(const char * symbol) const;
};

// The only instance. Its pointers are null until open() succeeded.
AclLibrary & acl();

// Throws AclFailure with ACL's own last words when `code` is not success.
void check(int code, const char * call);

} // namespace cann310b
