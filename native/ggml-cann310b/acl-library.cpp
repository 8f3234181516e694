#include "acl-library.h"

#include <cstdlib>
#include <dlfcn.h>

namespace cann310b {
namespace {

// Fact sheet 1.3: what set_env.sh exports first, then the places installers use.
std::vector<std::string> toolkit_folders() {
    std::vector<std::string> folders;
    for (const char * name : {"ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"}) {
        if (const char * value = std::getenv(name); value != nullptr && *value != '\0') {
            folders.emplace_back(value);
        }
    }
    if (folders.empty()) {
        folders = {"/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest",
                   "/usr/local/Ascend/nnrt/latest"};
    }
    return folders;
}

} // namespace

void * AclLibrary::find(const char * symbol) const {
    for (void * handle : handles_) {
        if (void * address = dlsym(handle, symbol)) {
            return address;
        }
    }
    return nullptr;
}

std::string AclLibrary::open() {
    std::string tried;
    for (const std::string & root : toolkit_folders()) {
        for (const char * sub : {"/lib64", "/aarch64-linux/lib64"}) {
            std::vector<void *> opened;
            std::string why;
            for (const char * file : {"libascendcl.so", "libnnopbase.so", "libopapi.so"}) {
                void * handle = dlopen((root + sub + "/" + file).c_str(), RTLD_NOW | RTLD_LOCAL);
                if (handle == nullptr) {
                    why = dlerror();
                    break;
                }
                opened.push_back(handle);
            }
            if (why.empty()) {
                handles_ = opened;
                folder   = root + sub;
                break;
            }
            tried += "\n  " + why;
            for (void * handle : opened) {
                dlclose(handle);
            }
        }
        if (!handles_.empty()) {
            break;
        }
    }
    if (handles_.empty()) {
        return "no CANN toolkit could be opened; set ASCEND_TOOLKIT_HOME or source set_env.sh. Tried:" +
               tried;
    }
    std::string missing;
    const auto miss = [&](const char * name) { missing += std::string(missing.empty() ? "" : ", ") + name; };
    enum { required, optional };
#define ACL_LOAD(result, name, arguments, need)                                                              \
    name = reinterpret_cast<result(*) arguments>(find(#name));                                               \
    if ((need) == required && name == nullptr) {                                                             \
        miss(#name);                                                                                         \
    }
    ACL_RT_FUNCTIONS(ACL_LOAD)
    ACL_BASE_FUNCTIONS(ACL_LOAD)
#undef ACL_LOAD
    // Operators may be missing: supports_op asks for each.
#define ACL_LOAD(name, arguments)                                                                            \
    name##GetWorkspaceSize = reinterpret_cast<aclnnStatus(*) arguments>(find(#name "GetWorkspaceSize"));     \
    name                   = reinterpret_cast<aclnnRunFunction>(find(#name));
    ACLNN_USED_OPS(ACL_LOAD)
    ACLNN_PROBED_OPS(ACL_LOAD)
#undef ACL_LOAD
    if (!missing.empty()) {
        return "the CANN toolkit in " + folder + " lacks " + missing;
    }
    return {};
}

AclLibrary & acl() {
    static AclLibrary * const library = new AclLibrary; // outlives static destructors
    return *library;
}

void check(int code, const char * call) {
    if (code == ACL_SUCCESS) {
        return;
    }
    const char * said = acl().aclGetRecentErrMsg != nullptr ? acl().aclGetRecentErrMsg() : nullptr;
    throw AclFailure(code, std::string(call) + " failed with " + std::to_string(code) +
                               (said != nullptr ? ": " : "") + (said != nullptr ? said : ""));
}

} // namespace cann310b
