// libascendcl: the runtime's entry points. Arguments are judged here, the work is done in sim-*.cpp. Codes
// and rules: fact sheet section 2; what a board would not notice ends the process.
#include "sim-state.h"

#include "sim-fp16.h"
#include "sim-kernel.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#define ACL_EXPORT extern "C" __attribute__((visibility("default")))

// Enters a call: counts it, returns an injected fault.
#define ENTER()                                                                                              \
    if (const aclError injected = sim::enter_call(__func__); injected != ACL_SUCCESS) {                      \
        return injected;                                                                                     \
    }

using namespace sim;

namespace {

constexpr size_t kMallocPad      = 32; // aclrtMalloc's own: real size = align32(size) + 32 on a 310B
constexpr int64_t kNpuArch       = 3002;
constexpr int64_t kL2Bytes       = 4 << 20;
constexpr uint32_t kMaxStreamsB4 = 480, kMaxStreamsB1 = 512;
constexpr auto kDeviceBusy = "valid devId range is [0, 0): another process holds the device";

using Lock = std::unique_lock<std::mutex>;

aclError answer(const char * call, aclError rc, const char * why) {
    if (rc != ACL_SUCCESS) {
        set_error(call, rc, why);
    }
    trace_call(call, rc);
    return rc;
}

bool needs_context(State & s, const char * call, aclError * rc) {
    if (current_context(s) != nullptr) {
        return true;
    }
    *rc = answer(call, ACL_ERROR_RT_CONTEXT_NULL, "no context on this thread: call aclrtSetDevice first");
    return false;
}

#define NEED_CONTEXT(s)                                                                                      \
    if (aclError missing = ACL_SUCCESS; !needs_context(s, __func__, &missing)) {                             \
        return missing;                                                                                      \
    }

bool is_healthy(State & s, const char * call, aclError * rc) {
    if (s.is_lost) {
        *rc = answer(call, ACL_ERROR_RT_LOST_HEARTBEAT, "the device is lost");
        return false;
    }
    if (const Context * context = current_context(s); context->failure != ACL_SUCCESS) {
        *rc = answer(call, context->failure, ("the context failed before: " + context->failure_text).c_str());
        return false;
    }
    return true;
}

// For what makes the device work. Memory and clean-up calls stay usable, so that a client can leave in order.
#define NEED_HEALTH(s)                                                                                       \
    if (aclError ill = ACL_SUCCESS; !is_healthy(s, __func__, &ill)) {                                        \
        return ill;                                                                                          \
    }

aclError not_supported(const char * call) {
    return answer(call, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "not supported on a 310B");
}

bool is_init(const State & s) {
    return s.n_init > 0 && !s.was_finalized;
}

void close_context(Lock & lock, State & s, Context & context) {
    for (bool again = true; again;) {
        again = false;
        for (auto & [handle, stream] : s.streams) {
            if (stream->context == context.number && stream->is_default) {
                close_stream(lock, s, *stream, s.is_lost);
                again = true;
                break;
            }
        }
    }
    context.fallback = nullptr;
    context.is_alive = false;
}

const char * direction_of(bool to_device, bool from_device) {
    return to_device ? (from_device ? "D2D" : "H2D") : (from_device ? "D2H" : "H2H");
}

// Direction of a copy, judged against the addresses. A host pointer that claims to be device memory (or the
// other way round) is corruption over PCIe and luck on a board: fatal in both forms.
std::string copy_direction(const char * call, const void * dst, const void * src, aclrtMemcpyKind kind) {
    const bool to = is_device_address(dst), from = is_device_address(src);
    const bool claims_to   = kind == ACL_MEMCPY_HOST_TO_DEVICE || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
    const bool claims_from = kind == ACL_MEMCPY_DEVICE_TO_HOST || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
    if (kind != ACL_MEMCPY_DEFAULT && (to != claims_to || from != claims_from)) {
        fatal(std::string(call) + ": the kind says " + direction_of(claims_to, claims_from) +
              ", the addresses are " + direction_of(to, from));
    }
    return direction_of(to, from);
}

// A copy as the chip does it: addresses of device memory are translated when it runs.
std::function<std::string()> copier(void * dst, const void * src, size_t count,
                                    const std::string & direction) {
    return [=] {
        const bool to   = direction == "H2D" || direction == "D2D",
                   from = direction == "D2H" || direction == "D2D";
        void * d        = to ? dev_ptr(dst, count) : dst;
        const void * f  = from ? dev_ptr(src, count) : src;
        std::memmove(d, f, count);
        return std::string();
    };
}

double copy_us(size_t count) {
    // D2D copies 22.1 GB/s on a 310B1; board copies are all memory to memory (fact sheet 6.1).
    return 14.0 + double(count) / 22.1e3;
}

aclError check_copy(const char * call, const void * dst, size_t dst_max, const void * src, size_t count,
                    aclrtMemcpyKind kind) {
    if (kind < ACL_MEMCPY_HOST_TO_HOST || kind > ACL_MEMCPY_DEFAULT) {
        return answer(call, ACL_ERROR_INVALID_PARAM, "unknown kind of copy");
    }
    if (count > dst_max) {
        return answer(call, ACL_ERROR_RT_PARAM_INVALID, "count is larger than destMax");
    }
    if (count > 0 && (dst == nullptr || src == nullptr)) {
        return answer(call, ACL_ERROR_INVALID_PARAM, "null pointer");
    }
    return ACL_SUCCESS;
}

std::shared_ptr<Event> find_event(State & s, const char * call, aclrtEvent handle, aclError * rc) {
    const auto found = s.events.find(handle);
    if (found == s.events.end()) {
        *rc = answer(call, handle == nullptr ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_RT_PARAM_INVALID,
                     "the event was destroyed or never created");
        return nullptr;
    }
    return found->second;
}

bool is_complete(const Event & e) {
    return e.n_reached >= e.n_records && (e.n_records == 0 || std::chrono::steady_clock::now() >= e.visible);
}

aclError create_event(const char * call, aclrtEvent * out, uint32_t flags, bool is_ex) {
    State & s = state();
    const Lock lock(s.lock);
    if (out == nullptr || flags == 0 || (flags & ~uint32_t(0x0b)) != 0) {
        return answer(call, ACL_ERROR_INVALID_PARAM, "null event or unknown flag");
    }
    if (aclError missing = ACL_SUCCESS; !needs_context(s, call, &missing)) {
        return missing;
    }
    auto made      = std::make_shared<Event>();
    made->number   = s.next_number++;
    made->context  = current_context(s)->number;
    made->flags    = flags;
    made->is_ex    = is_ex;
    *out           = made.get();
    s.events[*out] = std::move(made);
    return answer(call, ACL_SUCCESS, "");
}

aclError wait_event(const char * call, aclrtEvent handle, int64_t timeout_ms) {
    State & s = state();
    Lock lock(s.lock);
    NEED_CONTEXT(s)
    aclError rc      = ACL_SUCCESS;
    const auto event = find_event(s, call, handle, &rc);
    if (event == nullptr) {
        return rc;
    }
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(std::max<int64_t>(0, timeout_ms));
    while (!is_complete(*event)) {
        if (timeout_ms >= 0 && std::chrono::steady_clock::now() >= until) {
            return answer(call, ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, "the event did not complete in time");
        }
        if (event->stream != nullptr && event->stream->failure != ACL_SUCCESS) {
            rc = report_failure(s, *event->stream, call);
            trace_call(call, rc);
            return rc;
        }
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        lock.lock();
        if (find_event(s, call, handle, &rc) != event) {
            fatal(std::string(call) + ": the event was destroyed while it was waited for");
        }
    }
    if (event->stream != nullptr) {
        observe(*event->stream, event->serial);
    }
    return answer(call, ACL_SUCCESS, "");
}

} // namespace

// ---- process ----

ACL_EXPORT aclError aclInit(const char * configPath) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    if (configPath != nullptr && access(configPath, R_OK) != 0) {
        return answer(__func__, ACL_ERROR_INVALID_FILE, "the configuration file cannot be read");
    }
    const std::string path = configPath != nullptr ? configPath : "";
    if (s.has_acl_config && path != s.acl_config) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "an earlier aclInit had another configuration");
    }
    if (is_init(s)) {
        ++s.n_init;
        return answer(__func__, ACL_ERROR_REPEAT_INITIALIZE, "aclInit was already called in this process");
    }
    s.n_init         = 1;
    s.was_finalized  = false;
    s.acl_config     = path;
    s.has_acl_config = true;
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclFinalize(void) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    if (!is_init(s)) {
        return answer(__func__, ACL_ERROR_REPEAT_FINALIZE, "aclInit was not called");
    }
    if (s.n_set_device > 0) {
        fatal("aclFinalize before aclrtResetDevice");
    }
    const std::string left = leaks_now();
    if (!left.empty()) {
        fatal("leak at aclFinalize:" + left);
    }
    s.n_init        = 0;
    s.was_finalized = true;
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclFinalizeReference(uint64_t * refCount) {
    {
        State & s = state();
        const Lock lock(s.lock);
        if (s.n_init > 1) {
            --s.n_init;
            if (refCount != nullptr) {
                *refCount = uint64_t(s.n_init);
            }
            return answer(__func__, ACL_SUCCESS, "");
        }
    }
    if (refCount != nullptr) {
        *refCount = 0;
    }
    return aclFinalize();
}

ACL_EXPORT const char * aclGetRecentErrMsg(void) {
    return recent_error();
}

ACL_EXPORT aclError aclrtGetVersion(int32_t * major, int32_t * minor, int32_t * patch) {
    ENTER()
    if (major == nullptr || minor == nullptr || patch == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "null pointer");
    }
    *major = 1;
    *minor = config().cann == "8.3" ? 13 : 15;
    *patch = 0;
    return answer(__func__, ACL_SUCCESS, "");
}

// ---- device ----

ACL_EXPORT aclError aclrtGetDeviceCount(uint32_t * count) {
    ENTER()
    if (count == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "count is null");
    }
    State & s = state();
    const Lock lock(s.lock);
    *count = 0;
    if (!hold_device(s, false)) {
        return answer(__func__, ACL_ERROR_RT_INVALID_DEVICEID, kDeviceBusy);
    }
    *count = 1;
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclrtSetDevice(int32_t deviceId) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    if (!is_init(s)) {
        return answer(__func__, ACL_ERROR_UNINITIALIZE, "aclInit was not called");
    }
    if (deviceId != 0) {
        return answer(__func__, ACL_ERROR_RT_INVALID_DEVICEID, "valid devId range is [0, 1)");
    }
    if (!hold_device(s, true)) {
        return answer(__func__, ACL_ERROR_RT_INVALID_DEVICEID, kDeviceBusy);
    }
    if (s.primary == nullptr) {
        auto made             = std::make_unique<Context>();
        made->number          = s.next_number++;
        made->is_primary      = true;
        s.primary             = made.get();
        s.contexts[s.primary] = std::move(made);
    }
    ++s.n_set_device;
    set_current_context(s.primary);
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclrtGetDevice(int32_t * deviceId) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    NEED_CONTEXT(s)
    if (deviceId == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "deviceId is null");
    }
    *deviceId = current_context(s)->device;
    return answer(__func__, ACL_SUCCESS, "");
}

namespace {

aclError reset(const char * call, int32_t device, bool force) {
    State & s = state();
    Lock lock(s.lock);
    if (device != 0) {
        return answer(call, ACL_ERROR_RT_INVALID_DEVICEID, "valid devId range is [0, 1)");
    }
    if (s.n_set_device == 0) {
        return answer(call, ACL_ERROR_RT_CONTEXT_RELEASE_ERROR, "more resets than aclrtSetDevice calls");
    }
    s.n_set_device = force ? 0 : s.n_set_device - 1;
    if (s.n_set_device > 0) {
        return answer(call, ACL_SUCCESS, "");
    }
    const std::string left = leaks_now();
    if (!left.empty()) {
        fatal(std::string(call) + " before everything on the device was freed:" + left);
    }
    close_context(lock, s, *s.primary);
    s.primary = nullptr;
    // A reset brings the device back; a fault that persists may strike again.
    s.is_lost = s.is_hung = false;
    for (auto fault = s.spent.begin(); fault != s.spent.end();) {
        fault = (*fault)->persistent ? s.spent.erase(fault) : std::next(fault);
    }
    let_device_go(s);
    return answer(call, ACL_SUCCESS, "");
}

} // namespace

ACL_EXPORT aclError aclrtResetDevice(int32_t deviceId) {
    ENTER()
    return reset(__func__, deviceId, false);
}

ACL_EXPORT aclError aclrtResetDeviceForce(int32_t deviceId) {
    ENTER()
    return reset(__func__, deviceId, true);
}

namespace {

aclError wait_device(const char * call, int64_t timeout_ms) {
    State & s = state();
    Lock lock(s.lock);
    if (aclError missing = ACL_SUCCESS; !needs_context(s, call, &missing)) {
        return missing;
    }
    std::vector<const void *> all;
    for (const auto & [handle, stream] : s.streams) {
        all.push_back(handle);
    }
    aclError rc = ACL_SUCCESS;
    for (const void * handle : all) {
        const auto found = s.streams.find(handle);
        if (found == s.streams.end()) {
            continue; // destroyed by another thread, which waited for it
        }
        const aclError one = wait_stream(lock, *found->second, timeout_ms);
        rc                 = rc == ACL_SUCCESS ? one : rc;
    }
    trace_call(call, rc);
    return rc;
}

} // namespace

ACL_EXPORT aclError aclrtSynchronizeDevice(void) {
    ENTER()
    return wait_device(__func__, -1);
}

ACL_EXPORT aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
    ENTER()
    if (timeout == 0 || timeout < -1) {
        return answer(__func__, ACL_ERROR_RT_PARAM_INVALID, "timeout is 0 or below -1");
    }
    return wait_device(__func__, timeout);
}

// No vendor's library has this name: by it a program can tell that there is no chip behind its figures.
ACL_EXPORT int aclSimulatorIsNoChip(void);

ACL_EXPORT int aclSimulatorIsNoChip(void) {
    return 1;
}

ACL_EXPORT const char * aclrtGetSocName(void) {
    return config().chip == "310B1" ? "Ascend310B1" : "Ascend310B4";
}

ACL_EXPORT aclError aclrtGetRunMode(aclrtRunMode * runMode) {
    ENTER()
    if (runMode == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "runMode is null");
    }
    *runMode = config().unified ? ACL_DEVICE : ACL_HOST;
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t * value) {
    ENTER()
    if (deviceId != 0 || value == nullptr) {
        return answer(__func__, ACL_ERROR_RT_PARAM_INVALID, "unknown device or null value");
    }
    switch (attr) {
    case ACL_DEV_ATTR_AICPU_CORE_NUM:
    case ACL_DEV_ATTR_AICORE_CORE_NUM:
    case ACL_DEV_ATTR_CUBE_CORE_NUM:
    case ACL_DEV_ATTR_VECTOR_CORE_NUM:
        *value = 1;
        break;
    case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE:
        *value = config().memory_mb << 20;
        break;
    case ACL_DEV_ATTR_L2_CACHE_SIZE:
        *value = kL2Bytes;
        break;
    case ACL_DEV_ATTR_NPU_ARCH:
        *value = kNpuArch;
        break;
    default:
        return answer(__func__, ACL_ERROR_RT_PARAM_INVALID, "unknown attribute");
    }
    return answer(__func__, ACL_SUCCESS, "");
}

// ---- contexts ----

ACL_EXPORT aclError aclrtCreateContext(aclrtContext * context, int32_t deviceId) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    if (context == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "context is null");
    }
    if (!is_init(s)) {
        return answer(__func__, ACL_ERROR_UNINITIALIZE, "aclInit was not called");
    }
    if (deviceId != 0) {
        return answer(__func__, ACL_ERROR_RT_INVALID_DEVICEID, "valid devId range is [0, 1)");
    }
    auto made    = std::make_unique<Context>();
    made->number = s.next_number++;
    *context     = made.get();
    set_current_context(made.get());
    s.contexts[*context] = std::move(made);
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclrtDestroyContext(aclrtContext context) {
    ENTER()
    State & s = state();
    Lock lock(s.lock);
    const auto found = s.contexts.find(context);
    if (context == nullptr || found == s.contexts.end() || !found->second->is_alive) {
        return answer(__func__, context == nullptr ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_RT_PARAM_INVALID,
                      "no such context");
    }
    if (found->second->is_primary) {
        return answer(__func__, ACL_ERROR_RT_CONTEXT_NULL, "the primary context ends with aclrtResetDevice");
    }
    close_context(lock, s, *found->second);
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclrtSetCurrentContext(aclrtContext context) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    if (context == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "context is null");
    }
    const auto found = s.contexts.find(context);
    if (found == s.contexts.end() || !found->second->is_alive) {
        return answer(__func__, ACL_ERROR_RT_CONTEXT_NULL, "the context was destroyed");
    }
    set_current_context(found->second.get());
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclrtGetCurrentContext(aclrtContext * context) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    NEED_CONTEXT(s)
    if (context == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "context is null");
    }
    *context = current_context(s);
    return answer(__func__, ACL_SUCCESS, "");
}

// ---- streams ----

ACL_EXPORT aclError aclrtCreateStreamWithConfig(aclrtStream * stream, uint32_t priority, uint32_t flag) {
    ENTER()
    (void) priority;
    State & s = state();
    const Lock lock(s.lock);
    NEED_CONTEXT(s)
    NEED_HEALTH(s)
    if (stream == nullptr || flag > 0x3f) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "null stream or unknown flag");
    }
    const uint32_t most = config().chip == "310B1" ? kMaxStreamsB1 : kMaxStreamsB4;
    if (s.streams.size() >= most) {
        return answer(__func__, ACL_ERROR_RT_NO_STREAM_RESOURCE, "no stream left");
    }
    *stream = create_stream(s, *current_context(s), false);
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclrtCreateStream(aclrtStream * stream) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    NEED_CONTEXT(s)
    NEED_HEALTH(s)
    if (stream == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "stream is null");
    }
    const uint32_t most = config().chip == "310B1" ? kMaxStreamsB1 : kMaxStreamsB4;
    if (s.streams.size() >= most) {
        return answer(__func__, ACL_ERROR_RT_NO_STREAM_RESOURCE, "no stream left");
    }
    *stream = create_stream(s, *current_context(s), false);
    return answer(__func__, ACL_SUCCESS, "");
}

namespace {

aclError destroy(const char * call, aclrtStream handle, bool drop) {
    State & s = state();
    Lock lock(s.lock);
    if (handle == nullptr) {
        return answer(call, ACL_ERROR_INVALID_PARAM, "stream is null");
    }
    const auto found = s.streams.find(handle);
    if (found == s.streams.end()) {
        return answer(call, ACL_ERROR_RT_PARAM_INVALID, "the stream was destroyed or never created");
    }
    Context * context = current_context(s);
    if (context == nullptr || found->second->context != context->number) {
        return answer(call, ACL_ERROR_RT_STREAM_CONTEXT, "the stream belongs to another context");
    }
    close_stream(lock, s, *found->second, drop || s.is_lost);
    return answer(call, ACL_SUCCESS, "");
}

aclError wait(const char * call, aclrtStream handle, int64_t timeout_ms) {
    State & s = state();
    Lock lock(s.lock);
    if (aclError missing = ACL_SUCCESS; !needs_context(s, call, &missing)) {
        return missing;
    }
    Stream * stream = nullptr;
    if (handle != nullptr) {
        const auto found = s.streams.find(handle);
        if (found == s.streams.end()) {
            return answer(call, ACL_ERROR_RT_PARAM_INVALID, "the stream was destroyed or never created");
        }
        stream = found->second.get(); // of whatever context: a wait switches implicitly
    } else {
        aclError rc = ACL_SUCCESS;
        stream      = find_stream(s, nullptr, &rc);
        if (stream == nullptr) {
            return rc;
        }
    }
    const aclError rc = wait_stream(lock, *stream, timeout_ms);
    trace_call(call, rc,
               {{"stream", std::to_string(stream->number)},
                {"stream_predicted_us", std::to_string(stream->predicted_us)}});
    return rc;
}

} // namespace

ACL_EXPORT aclError aclrtDestroyStream(aclrtStream stream) {
    ENTER()
    return destroy(__func__, stream, false);
}

ACL_EXPORT aclError aclrtDestroyStreamForce(aclrtStream stream) {
    ENTER()
    return destroy(__func__, stream, true);
}

ACL_EXPORT aclError aclrtSynchronizeStream(aclrtStream stream) {
    ENTER()
    return wait(__func__, stream, -1);
}

ACL_EXPORT aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
    ENTER()
    if (timeout == 0 || timeout < -1) {
        return answer(__func__, ACL_ERROR_RT_PARAM_INVALID, "timeout is 0 or below -1");
    }
    return wait(__func__, stream, timeout);
}

ACL_EXPORT aclError aclrtStreamQuery(aclrtStream handle, aclrtStreamStatus * status) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    aclError rc     = ACL_SUCCESS;
    Stream * stream = find_stream(s, handle, &rc);
    if (stream == nullptr) {
        return rc;
    }
    if (status == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "status is null");
    }
    *status = stream->queue.empty() ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    if (stream->queue.empty()) {
        observe(*stream, stream->n_enqueued);
        rc = report_failure(s, *stream, __func__);
    }
    trace_call(__func__, rc);
    return rc;
}

ACL_EXPORT aclError aclrtGetStreamAvailableNum(uint32_t * streamCount) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    NEED_CONTEXT(s)
    if (streamCount == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "streamCount is null");
    }
    *streamCount = (config().chip == "310B1" ? kMaxStreamsB1 : kMaxStreamsB4) - uint32_t(s.streams.size());
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclrtSetStreamFailureMode(aclrtStream handle, uint64_t mode) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    aclError rc     = ACL_SUCCESS;
    Stream * stream = find_stream(s, handle, &rc);
    if (stream == nullptr) {
        return rc;
    }
    if (stream->is_default || mode > 1) {
        return answer(__func__, ACL_ERROR_RT_PARAM_INVALID, "not on the default stream; mode is 0 or 1");
    }
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void * args) {
    ENTER()
    if (fn == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "fn is null");
    }
    Task task;
    task.name      = __func__;
    task.direction = "host";
    task.run       = [fn, args] {
        fn(args);
        return std::string();
    };
    return enqueue(stream, std::move(task), __func__);
}

// ---- events ----

ACL_EXPORT aclError aclrtCreateEvent(aclrtEvent * event) {
    ENTER()
    return create_event(__func__, event, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE, false);
}

ACL_EXPORT aclError aclrtCreateEventWithFlag(aclrtEvent * event, uint32_t flag) {
    ENTER()
    return create_event(__func__, event, flag, false);
}

ACL_EXPORT aclError aclrtCreateEventExWithFlag(aclrtEvent * event, uint32_t flag) {
    ENTER()
    return create_event(__func__, event, flag, true);
}

ACL_EXPORT aclError aclrtDestroyEvent(aclrtEvent event) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    NEED_CONTEXT(s)
    aclError rc = ACL_SUCCESS;
    if (find_event(s, __func__, event, &rc) == nullptr) {
        return rc;
    }
    s.events.erase(event);
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclrtRecordEvent(aclrtEvent handle, aclrtStream stream) {
    ENTER()
    State & s = state();
    std::shared_ptr<Event> event;
    {
        const Lock lock(s.lock);
        aclError rc = ACL_SUCCESS;
        event       = find_event(s, __func__, handle, &rc);
        Stream * on = event == nullptr ? nullptr : find_stream(s, stream, &rc);
        if (on == nullptr) {
            return rc;
        }
        ++event->n_records;
        event->stream    = s.streams.at(on);
        event->serial    = on->n_enqueued + 1;
        event->stream_us = on->predicted_us;
    }
    Task task;
    task.name      = __func__;
    task.direction = "event";
    task.run       = [event] {
        const Lock lock(state().lock);
        ++event->n_reached;
        event->visible = std::chrono::steady_clock::now() + std::chrono::microseconds(config().event_late_us);
        return std::string();
    };
    return enqueue(stream, std::move(task), __func__);
}

ACL_EXPORT aclError aclrtResetEvent(aclrtEvent handle, aclrtStream stream) {
    ENTER()
    State & s = state();
    std::shared_ptr<Event> event;
    {
        const Lock lock(s.lock);
        aclError rc = ACL_SUCCESS;
        event       = find_event(s, __func__, handle, &rc);
        if (event == nullptr) {
            return rc;
        }
        if (event->is_ex || (event->flags & ACL_EVENT_SYNC) == 0) {
            return not_supported(__func__);
        }
    }
    Task task;
    task.name      = __func__;
    task.direction = "event";
    task.run       = [event] {
        const Lock lock(state().lock);
        event->n_reached = 0;
        event->n_records = 1; // not ready until recorded again
        return std::string();
    };
    return enqueue(stream, std::move(task), __func__);
}

ACL_EXPORT aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent handle) {
    ENTER()
    State & s        = state();
    uint64_t records = 0;
    std::shared_ptr<Event> event;
    {
        const Lock lock(s.lock);
        aclError rc = ACL_SUCCESS;
        event       = find_event(s, __func__, handle, &rc);
        if (event == nullptr) {
            return rc;
        }
        if ((event->flags & ACL_EVENT_SYNC) == 0) {
            return not_supported(__func__);
        }
        if (event->n_records == 0 && !event->is_ex) {
            fatal("event misuse: aclrtStreamWaitEvent on an event that was never recorded waits for ever");
        }
        records = event->n_records;
    }
    Task task;
    task.name      = __func__;
    task.direction = "event";
    task.run       = [event, records] {
        for (;;) {
            {
                const Lock lock(state().lock);
                if (event->n_reached >= records) {
                    return std::string();
                }
                if (event->stream == nullptr || event->stream->is_closing ||
                    event->stream->failure != ACL_SUCCESS) {
                    return std::string(
                        "the stream that should have recorded the event failed or was destroyed");
                }
            }
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    };
    return enqueue(stream, std::move(task), __func__);
}

ACL_EXPORT aclError aclrtQueryEvent(aclrtEvent handle, aclrtEventStatus * status) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    aclError rc      = ACL_SUCCESS;
    const auto event = find_event(s, __func__, handle, &rc);
    if (event == nullptr) {
        return rc;
    }
    if (event->is_ex) {
        return not_supported(__func__);
    }
    if (status == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "status is null");
    }
    *status = is_complete(*event) ? ACL_EVENT_STATUS_COMPLETE : ACL_EVENT_STATUS_NOT_READY;
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclrtQueryEventStatus(aclrtEvent handle, aclrtEventRecordedStatus * status) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    aclError rc      = ACL_SUCCESS;
    const auto event = find_event(s, __func__, handle, &rc);
    if (event == nullptr || status == nullptr) {
        return event == nullptr ? rc : answer(__func__, ACL_ERROR_INVALID_PARAM, "status is null");
    }
    const bool done = is_complete(*event) && (event->n_records > 0 || event->is_ex);
    *status         = done ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    if (done && event->stream != nullptr) {
        observe(*event->stream, event->serial);
    }
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclrtQueryEventWaitStatus(aclrtEvent handle, aclrtEventWaitStatus * status) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    aclError rc      = ACL_SUCCESS;
    const auto event = find_event(s, __func__, handle, &rc);
    if (event == nullptr) {
        return rc;
    }
    if (event->is_ex) {
        return not_supported(__func__);
    }
    if (status == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "status is null");
    }
    *status = is_complete(*event) ? ACL_EVENT_WAIT_STATUS_COMPLETE : ACL_EVENT_WAIT_STATUS_NOT_READY;
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclrtSynchronizeEvent(aclrtEvent event) {
    ENTER()
    return wait_event(__func__, event, -1);
}

ACL_EXPORT aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
    ENTER()
    if (timeout == 0 || timeout < -1) {
        return answer(__func__, ACL_ERROR_RT_PARAM_INVALID, "timeout is 0 or below -1");
    }
    return wait_event(__func__, event, timeout);
}

ACL_EXPORT aclError aclrtEventElapsedTime(float * ms, aclrtEvent startEvent, aclrtEvent endEvent) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    aclError rc      = ACL_SUCCESS;
    const auto start = find_event(s, __func__, startEvent, &rc);
    const auto end   = start == nullptr ? nullptr : find_event(s, __func__, endEvent, &rc);
    if (end == nullptr) {
        return rc;
    }
    const uint32_t both = start->flags & end->flags;
    if (ms == nullptr || (both & ACL_EVENT_TIME_LINE) == 0) {
        return answer(__func__, ACL_ERROR_RT_PARAM_INVALID, "ms is null or an event keeps no time");
    }
    if (start->n_records == 0 || end->n_records == 0 || start->stream != end->stream) {
        return answer(__func__, ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, "not both recorded on one stream");
    }
    if (!is_complete(*start) || !is_complete(*end)) {
        return answer(__func__, ACL_ERROR_RT_EVENT_NOT_COMPLETE, "an event is not complete");
    }
    if (end->stream_us < start->stream_us) {
        return answer(__func__, ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL, "the end lies before the start");
    }
    *ms = float((end->stream_us - start->stream_us) / 1000.0); // predicted time of the work in between
    return answer(__func__, ACL_SUCCESS, "");
}

// ---- memory ----

namespace {

aclError allocate_checked(const char * call, void ** out, size_t size, aclrtMemMallocPolicy policy,
                          size_t pad) {
    aclError rc = ACL_SUCCESS;
    {
        State & s = state();
        const Lock lock(s.lock);
        if (!needs_context(s, call, &rc)) {
            return rc;
        }
        if (s.is_lost) {
            return answer(call, ACL_ERROR_RT_LOST_HEARTBEAT, "the device is lost");
        }
    }
    if (out == nullptr || size == 0) {
        return answer(call, ACL_ERROR_INVALID_PARAM, "null pointer or size 0");
    }
    if (policy > ACL_MEM_MALLOC_NORMAL_ONLY) {
        return not_supported(call);
    }
    rc = allocate(out, size, pad, call);
    trace_call(call, rc, {{"bytes", std::to_string(size)}});
    return rc;
}

} // namespace

ACL_EXPORT aclError aclrtMalloc(void ** devPtr, size_t size, aclrtMemMallocPolicy policy) {
    ENTER()
    return allocate_checked(__func__, devPtr, size, policy, kMallocPad);
}

ACL_EXPORT aclError aclrtMallocAlign32(void ** devPtr, size_t size, aclrtMemMallocPolicy policy) {
    ENTER()
    return allocate_checked(__func__, devPtr, size, policy, 0);
}

ACL_EXPORT aclError aclrtFree(void * devPtr) {
    ENTER()
    if (devPtr == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "null pointer");
    }
    const aclError rc = release(devPtr, __func__);
    trace_call(__func__, rc);
    return rc;
}

ACL_EXPORT aclError aclrtFreeWithDevSync(void * devPtr) {
    ENTER()
    if (devPtr == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "null pointer");
    }
    const aclError waited = wait_device(__func__, -1);
    const aclError rc     = release(devPtr, __func__);
    trace_call(__func__, rc);
    return waited != ACL_SUCCESS ? waited : rc;
}

ACL_EXPORT aclError aclrtMallocHost(void ** hostPtr, size_t size) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    NEED_CONTEXT(s)
    if (hostPtr == nullptr || size == 0) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "null pointer or size 0");
    }
    // On a board the address has no 64 B guarantee; ours never has it, so that a client that relies on it
    // fails.
    void * block = std::malloc(size + 128);
    if (block == nullptr) {
        return answer(__func__, ACL_ERROR_BAD_ALLOC, "host memory is used up");
    }
    const auto at = (reinterpret_cast<uintptr_t>(block) + 63) / 64 * 64 + (config().unified ? 16 : 0);
    *hostPtr      = reinterpret_cast<void *>(at);
    s.host_blocks[*hostPtr] = block;
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclrtFreeHost(void * hostPtr) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    const auto found = s.host_blocks.find(hostPtr);
    if (found == s.host_blocks.end()) {
        return answer(__func__, hostPtr == nullptr ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_RT_PARAM_INVALID,
                      "the address was not returned by aclrtMallocHost");
    }
    std::free(found->second);
    s.host_blocks.erase(found);
    return answer(__func__, ACL_SUCCESS, "");
}

ACL_EXPORT aclError aclrtMemcpy(void * dst, size_t destMax, const void * src, size_t count,
                                aclrtMemcpyKind kind) {
    ENTER() {
        State & s = state();
        const Lock lock(s.lock);
        NEED_CONTEXT(s)
        NEED_HEALTH(s)
    }
    if (const aclError rc = check_copy(__func__, dst, destMax, src, count, kind); rc != ACL_SUCCESS) {
        return rc;
    }
    if (count == 0 || dst == src) {
        return answer(__func__, ACL_SUCCESS, "");
    }
    const std::string direction = copy_direction(__func__, dst, src, kind);
    {
        State & s = state();
        const Lock lock(s.lock);
        if (is_client_range(s, dst)) {
            forbid_pending(s, {dst, count}, false, __func__, "overwrites");
        }
        if (is_client_range(s, src)) {
            forbid_pending(s, {src, count}, true, __func__, "reads");
        }
    }
    copier(dst, src, count, direction)();
    trace_call(__func__, ACL_SUCCESS,
               {{"direction", "\"" + direction + "\""},
                {"bytes", std::to_string(count)},
                {"predicted_us", std::to_string(copy_us(count))}});
    return ACL_SUCCESS;
}

ACL_EXPORT aclError aclrtMemcpyAsync(void * dst, size_t destMax, const void * src, size_t count,
                                     aclrtMemcpyKind kind, aclrtStream stream) {
    ENTER()
    if (const aclError rc = check_copy(__func__, dst, destMax, src, count, kind); rc != ACL_SUCCESS) {
        return rc;
    }
    if (count == 0 || dst == src) {
        return answer(__func__, ACL_SUCCESS, "");
    }
    Task task;
    task.name      = __func__;
    task.direction = copy_direction(__func__, dst, src, kind);
    if (task.direction == "H2H" && !config().unified) {
        return not_supported(__func__);
    }
    task.bytes        = count;
    task.predicted_us = copy_us(count);
    if (task.direction[0] == 'D') {
        dev_ptr(src, count);
        task.reads.push_back({src, count});
    }
    if (task.direction[2] == 'D') {
        dev_ptr(dst, count);
        task.writes.push_back({dst, count});
    }
    task.run = copier(dst, src, count, task.direction);
    return enqueue(stream, std::move(task), __func__);
}

ACL_EXPORT aclError aclrtMemcpy2d(void *, size_t, const void *, size_t, size_t, size_t, aclrtMemcpyKind) {
    ENTER()
    return not_supported(__func__);
}

ACL_EXPORT aclError aclrtMemcpy2dAsync(void *, size_t, const void *, size_t, size_t, size_t, aclrtMemcpyKind,
                                       aclrtStream) {
    ENTER()
    return not_supported(__func__);
}

ACL_EXPORT aclError aclrtMemset(void * devPtr, size_t maxCount, int32_t value, size_t count) {
    ENTER() {
        State & s = state();
        const Lock lock(s.lock);
        NEED_CONTEXT(s)
        NEED_HEALTH(s)
        if (is_client_range(s, devPtr)) {
            forbid_pending(s, {devPtr, count}, false, __func__, "overwrites");
        } else if (s.host_blocks.count(devPtr) != 0) {
            std::memset(devPtr, value, count);
            return answer(__func__, ACL_SUCCESS, "");
        }
    }
    if (devPtr == nullptr || count > maxCount) {
        return answer(__func__, devPtr == nullptr ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_RT_PARAM_INVALID,
                      "null pointer or count larger than maxCount");
    }
    std::memset(dev_ptr(devPtr, count), value, count);
    trace_call(__func__, ACL_SUCCESS,
               {{"bytes", std::to_string(count)}, {"predicted_us", std::to_string(copy_us(count))}});
    return ACL_SUCCESS;
}

ACL_EXPORT aclError aclrtMemsetAsync(void * devPtr, size_t maxCount, int32_t value, size_t count,
                                     aclrtStream stream) {
    ENTER()
    if (devPtr == nullptr || count > maxCount) {
        return answer(__func__, devPtr == nullptr ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_RT_PARAM_INVALID,
                      "null pointer or count larger than maxCount");
    }
    dev_ptr(devPtr, count);
    Task task;
    task.name         = __func__;
    task.bytes        = count;
    task.predicted_us = copy_us(count);
    task.writes.push_back({devPtr, count});
    task.run = [=] {
        std::memset(dev_ptr(devPtr, count), value, count);
        return std::string();
    };
    return enqueue(stream, std::move(task), __func__);
}

ACL_EXPORT aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t * free, size_t * total) {
    ENTER()
    State & s = state();
    const Lock lock(s.lock);
    NEED_CONTEXT(s)
    if (free == nullptr || total == nullptr) {
        return answer(__func__, ACL_ERROR_INVALID_PARAM, "null pointer");
    }
    if (attr > ACL_HBM_MEM_NORMAL) {
        *free = *total = 0; // as a board does: success and zeros
        return answer(__func__, ACL_SUCCESS, "");
    }
    *total             = size_t(config().memory_mb) << 20;
    const size_t taken = (size_t(config().used_mb) << 20) + s.n_allocated;
    *free              = *total > taken ? *total - taken : 0;
    return answer(__func__, ACL_SUCCESS, "");
}

// ---- what the board form lacks ----

ACL_EXPORT aclError aclrtReserveMemAddress(void **, size_t, size_t, void *, uint64_t) {
    ENTER()
    return not_supported(__func__);
}
ACL_EXPORT aclError aclrtReleaseMemAddress(void *) {
    ENTER()
    return not_supported(__func__);
}
ACL_EXPORT aclError aclrtMallocPhysical(aclrtDrvMemHandle *, size_t, const aclrtPhysicalMemProp *, uint64_t) {
    ENTER()
    return not_supported(__func__);
}
ACL_EXPORT aclError aclrtFreePhysical(aclrtDrvMemHandle) {
    ENTER()
    return not_supported(__func__);
}
ACL_EXPORT aclError aclrtMapMem(void *, size_t, size_t, aclrtDrvMemHandle, uint64_t) {
    ENTER()
    return not_supported(__func__);
}
ACL_EXPORT aclError aclrtUnmapMem(void *) {
    ENTER()
    return not_supported(__func__);
}
ACL_EXPORT aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp *, aclrtMemGranularityOptions,
                                                     size_t *) {
    ENTER()
    return not_supported(__func__);
}

// ---- helpers ----

ACL_EXPORT size_t aclDataTypeSize(aclDataType dataType) {
    return size_t(dtype_size(dataType));
}

ACL_EXPORT float aclFloat16ToFloat(aclFloat16 value) {
    return fp16_to_float(value);
}

// NaN and infinities become the largest finite value of their sign.
ACL_EXPORT aclFloat16 aclFloatToFloat16(float value) {
    if (value != value) {
        return std::signbit(value) ? aclFloat16(0xfbff) : aclFloat16(0x7bff);
    }
    return float_to_fp16(value);
}
