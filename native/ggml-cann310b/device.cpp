#include "device.h"

#include "ggml-impl.h"

#include <algorithm>
#include <cstdlib>
#include <unistd.h>

namespace cann310b {
namespace {

constexpr size_t kTailBytes = size_t{1} << 20; // 15 rows of the widest FP16 operand (19 k columns) and some

thread_local aclrtContext t_context = nullptr;

} // namespace

Device & device() {
    static Device * const d = new Device; // outlives static destructors
    return *d;
}

std::string Device::start() {
    const std::lock_guard<std::mutex> guard(lock_);
    if (std::string why = acl().open(); !why.empty()) {
        return why;
    }
    const aclError rc = acl().aclInit(nullptr);
    if (rc != ACL_SUCCESS && rc != ACL_ERROR_REPEAT_INITIALIZE) {
        return "aclInit failed with " + std::to_string(rc);
    }
    uint32_t n = 0;
    if (const aclError count_rc = acl().aclrtGetDeviceCount(&n); count_rc != ACL_SUCCESS || n == 0) {
        acl().aclFinalize();
        return "no NPU is usable (aclrtGetDeviceCount: " + std::to_string(count_rc) + ", " +
               std::to_string(n) +
               " devices). Is the driver loaded, is this user in the group HwHiAiUser, does another "
               "container hold it?";
    }
    is_init_          = true;
    pid_              = getpid();
    const char * name = acl().aclrtGetSocName();
    soc_name          = name != nullptr ? name : "Ascend310B";
    // Registered after ACL was opened, so that it runs before ACL's own exit code.
    std::atexit([] { device().shutdown(); });
    return {};
}

bool Device::is_open() const {
    return is_init_ && !is_closed_ && pid_ == getpid();
}

void Device::bind() {
    if (!is_open()) {
        throw AclFailure(ACL_ERROR_RT_CONTEXT_NULL,
                         is_closed_ ? "the NPU was shut down" : "the NPU cannot be used in a forked child");
    }
    if (t_context != nullptr) {
        return;
    }
    const std::lock_guard<std::mutex> guard(lock_);
    if (context_ == nullptr) {
        check(acl().aclrtSetDevice(0), "aclrtSetDevice");
        check(acl().aclrtGetCurrentContext(&context_), "aclrtGetCurrentContext");
    } else {
        check(acl().aclrtSetCurrentContext(context_), "aclrtSetCurrentContext");
    }
    t_context = context_;
}

void Device::shutdown() {
    const std::lock_guard<std::mutex> guard(lock_);
    if (!is_open()) {
        return;
    }
    is_closed_ = true;
    if (context_ != nullptr) {
        acl().aclrtSetCurrentContext(context_);
        for (aclrtStream stream : streams_) {
            acl().aclrtDestroyStream(stream);
        }
        for (void * block : blocks_) {
            acl().aclrtFree(block);
        }
        acl().aclrtResetDevice(0);
    }
    acl().aclFinalize();
    streams_.clear();
    blocks_.clear();
}

void * Device::allocate(size_t n_bytes, const char * purpose) {
    bind();
    const std::lock_guard<std::mutex> guard(lock_);
    void * address    = nullptr;
    const aclError rc = acl().aclrtMalloc(&address, n_bytes + kTailBytes, ACL_MEM_MALLOC_HUGE_FIRST);
    if (rc != ACL_SUCCESS) {
        size_t free_bytes = 0, total_bytes = 0;
        acl().aclrtGetMemInfo(ACL_DDR_MEM, &free_bytes, &total_bytes);
        throw AclFailure(rc, std::string("device memory for ") + purpose + ": " + std::to_string(n_bytes) +
                                 " bytes needed, " + std::to_string(free_bytes) + " free (" +
                                 std::to_string(rc) + ")");
    }
    blocks_.insert(address);
    used_ += n_bytes;
    peak_ = std::max(peak_, used_);
    ++n_allocations_;
    return address;
}

void Device::release(void * address, size_t n_bytes) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (address == nullptr || blocks_.erase(address) == 0) {
        return; // the shutdown took it
    }
    used_ -= n_bytes;
    if (const aclError rc = acl().aclrtFree(address); rc != ACL_SUCCESS) {
        GGML_LOG_ERROR("CANN: aclrtFree failed with %d\n", rc);
    }
}

aclrtStream Device::create_stream() {
    bind();
    const std::lock_guard<std::mutex> guard(lock_);
    aclrtStream stream = nullptr;
    check(acl().aclrtCreateStream(&stream), "aclrtCreateStream");
    streams_.insert(stream);
    return stream;
}

void Device::destroy_stream(aclrtStream stream) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (streams_.erase(stream) == 0) {
        return;
    }
    if (const aclError rc = acl().aclrtDestroyStream(stream); rc != ACL_SUCCESS) {
        GGML_LOG_ERROR("CANN: aclrtDestroyStream failed with %d\n", rc);
    }
}

void Device::copy(void * dst, const void * src, size_t n_bytes, aclrtMemcpyKind kind) {
    bind();
    check(acl().aclrtMemcpy(dst, n_bytes, src, n_bytes, kind), "aclrtMemcpy");
}

void Device::memory(size_t * free_bytes, size_t * total_bytes) {
    bind();
    check(acl().aclrtGetMemInfo(ACL_DDR_MEM, free_bytes, total_bytes), "aclrtGetMemInfo");
}

void Device::note_layout(const std::string & layout) {
    const std::lock_guard<std::mutex> guard(lock_);
    layout_ = layout;
}

std::string Device::memory_json() {
    size_t free_bytes = 0, total_bytes = 0;
    if (is_open()) {
        memory(&free_bytes, &total_bytes);
    }
    const std::lock_guard<std::mutex> guard(lock_);
    return "{\"used\": " + std::to_string(used_) + ", \"peak\": " + std::to_string(peak_) +
           ", \"allocations\": " + std::to_string(n_allocations_) +
           ", \"blocks\": " + std::to_string(blocks_.size()) + ", \"free\": " + std::to_string(free_bytes) +
           ", \"total\": " + std::to_string(total_bytes) + ", \"layout\": \"" + layout_ + "\"}";
}

} // namespace cann310b
