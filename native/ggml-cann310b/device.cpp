#include "device.h"

#include "ggml-impl.h"

#include <algorithm>
#include <cstdlib>
#include <unistd.h>

namespace cann310b {
namespace {

constexpr size_t kTailBytes = size_t{1} << 20; // 15 rows of the widest FP16 operand (19 k columns) and some

thread_local int t_epoch = 0; // of the context this thread is bound to; 0: none

} // namespace

Device & device() {
    static Device * const d = new Device; // outlives static destructors
    return *d;
}

std::string Device::start() {
    const std::lock_guard<std::mutex> guard(lock_);
    if (is_init_) {
        return {};
    }
    if (!has_acl_) {
        if (std::string why = acl().open(); !why.empty()) {
            return why;
        }
        has_acl_ = true;
    }
    const aclError rc = acl().aclInit(nullptr);
    if (rc != ACL_SUCCESS && rc != ACL_ERROR_REPEAT_INITIALIZE) {
        return "aclInit failed with " + std::to_string(rc);
    }
    uint32_t n = 0;
    if (const aclError count_rc = acl().aclrtGetDeviceCount(&n); count_rc != ACL_SUCCESS || n == 0) {
        const char * said      = acl().aclGetRecentErrMsg();
        const std::string more = said != nullptr ? ": " + std::string(said) : "";
        acl().aclFinalize();
        return "no NPU is usable (aclrtGetDeviceCount answered " + std::to_string(count_rc) + " and " +
               std::to_string(n) + " devices" + more +
               "); is the driver loaded, is this user in the group HwHiAiUser, does another process or "
               "container hold the device?";
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

bool Device::is_taken() {
    const std::lock_guard<std::mutex> guard(lock_);
    return context_ != nullptr;
}

void Device::bind() {
    if (!is_open()) {
        throw AclFailure(ACL_ERROR_RT_CONTEXT_NULL,
                         is_closed_ ? "the NPU was shut down" : "the NPU cannot be used in a forked child");
    }
    const std::lock_guard<std::mutex> guard(lock_);
    if (context_ != nullptr && t_epoch == epoch_) {
        return;
    }
    if (context_ == nullptr) {
        check(acl().aclrtSetDevice(0), "aclrtSetDevice");
        check(acl().aclrtGetCurrentContext(&context_), "aclrtGetCurrentContext");
    } else {
        check(acl().aclrtSetCurrentContext(context_), "aclrtSetCurrentContext");
    }
    t_epoch = epoch_;
}

std::string Device::reset() {
    const std::lock_guard<std::mutex> guard(lock_);
    if (!is_open() || context_ == nullptr) {
        return {};
    }
    if (!blocks_.empty() || !streams_.empty()) {
        return std::to_string(blocks_.size()) + " blocks of device memory and " +
               std::to_string(streams_.size()) + " streams are still in use";
    }
    // Of a lost device this may fail; the reset is what brings it back.
    acl().aclrtSetCurrentContext(context_);
    const aclError rc = acl().aclrtResetDevice(0);
    context_          = nullptr;
    ++epoch_;
    peak_ = 0;
    return rc == ACL_SUCCESS ? std::string() : "aclrtResetDevice failed with " + std::to_string(rc);
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

void Device::note_layout(const char * layout, const char * why, size_t needed_bytes, size_t free_bytes) {
    const std::lock_guard<std::mutex> guard(lock_);
    layout_        = layout;
    layout_why_    = why;
    layout_needed_ = needed_bytes;
    layout_free_   = free_bytes;
}

void Device::note_failure(int code, const std::string & text) {
    GGML_LOG_ERROR("CANN: %s\n", text.c_str());
    const std::lock_guard<std::mutex> guard(lock_);
    if (failure_.empty()) {
        failure_ = std::to_string(code) + " " + text;
    }
}

std::string Device::take_failure() {
    const std::lock_guard<std::mutex> guard(lock_);
    std::string text;
    text.swap(failure_);
    return text;
}

void Device::note_fused(const std::vector<std::string> & names) {
    const std::lock_guard<std::mutex> guard(lock_);
    fused_ = names;
}

std::string Device::memory_json() {
    size_t free_bytes = 0, total_bytes = 0;
    if (is_open() && is_taken()) {
        memory(&free_bytes, &total_bytes);
    }
    const std::lock_guard<std::mutex> guard(lock_);
    std::string fused;
    for (const std::string & name : fused_) {
        fused += (fused.empty() ? "\"" : ", \"") + name + "\"";
    }
    const auto number = [](const char * key, size_t value) {
        return "\"" + std::string(key) + "\": " + std::to_string(value) + ", ";
    };
    return "{" + number("used", used_) + number("peak", peak_) + number("allocations", n_allocations_) +
           number("blocks", blocks_.size()) + number("free", free_bytes) + number("total", total_bytes) +
           "\"layout\": \"" + layout_ + "\", \"layout_why\": \"" + layout_why_ + "\", " +
           number("layout_needed", layout_needed_) + number("layout_free", layout_free_) + "\"fused\": [" +
           fused + "]}";
}

} // namespace cann310b
