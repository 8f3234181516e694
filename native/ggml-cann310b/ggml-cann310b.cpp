// The plugin's face towards ggml: backend, device, registry.
#include "buffer.h"
#include "runner.h"
#include "settings.h"

#include "ggml-backend-impl.h"
#include "ggml-impl.h"

#include <cstring>

using namespace cann310b;

namespace {

// ----------------------------------------------------------------------------------------------------------------
// backend

ggml_guid_t backend_guid() {
    static ggml_guid guid = {0x31, 0x0b, 0xca, 0x22, 0x5e, 0x3d, 0x4f, 0x8a,
                             0x90, 0x17, 0x66, 0x02, 0xd1, 0x4b, 0x7c, 0xe5};
    return &guid;
}

Runner & runner(ggml_backend_t backend) {
    return *static_cast<Runner *>(backend->context);
}

const char * backend_get_name(ggml_backend_t) {
    return "CANN0";
}

void backend_free(ggml_backend_t backend) {
    delete static_cast<Runner *>(backend->context);
    delete backend;
}

void backend_synchronize(ggml_backend_t) {
    // compute() returns when the stream is done, copies are synchronous: nothing is ever left to wait for.
}

ggml_status backend_graph_compute(ggml_backend_t backend, ggml_cgraph * graph) {
    return runner(backend).compute(graph);
}

const ggml_backend_i kBackend = {
    /* .get_name            = */ backend_get_name,
    /* .free                = */ backend_free,
    /* .set_tensor_async    = */ nullptr,
    /* .get_tensor_async    = */ nullptr,
    /* .set_tensor_2d_async = */ nullptr,
    /* .get_tensor_2d_async = */ nullptr,
    /* .cpy_tensor_async    = */ nullptr,
    /* .synchronize         = */ backend_synchronize,
    /* .graph_plan_create   = */ nullptr,
    /* .graph_plan_free     = */ nullptr,
    /* .graph_plan_update   = */ nullptr,
    /* .graph_plan_compute  = */ nullptr,
    /* .graph_compute       = */ backend_graph_compute,
    /* .event_record        = */ nullptr,
    /* .event_wait          = */ nullptr,
    /* .graph_optimize      = */ nullptr,
};

// ----------------------------------------------------------------------------------------------------------------
// device

const char * device_get_name(ggml_backend_dev_t) {
    return "CANN0";
}

const char * device_get_description(ggml_backend_dev_t) {
    return device().soc_name.c_str();
}

void device_get_memory(ggml_backend_dev_t, size_t * free_bytes, size_t * total_bytes) {
    *free_bytes = *total_bytes = 0;
    try {
        device().memory(free_bytes, total_bytes);
    } catch (const AclFailure & failure) {
        device().note_failure(failure.code, failure.what());
    }
}

enum ggml_backend_dev_type device_get_type(ggml_backend_dev_t) {
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

void device_get_props(ggml_backend_dev_t dev, ggml_backend_dev_props * props) {
    props->name        = device_get_name(dev);
    props->description = device_get_description(dev);
    props->type        = device_get_type(dev);
    props->device_id   = nullptr;
    device_get_memory(dev, &props->memory_free, &props->memory_total);
    props->caps = {
        /* .async                 = */ false,
        /* .host_buffer           = */ false,
        /* .buffer_from_host_ptr  = */ false,
        /* .events                = */ false,
        /* .mmap_support          = */ true,
    };
}

ggml_backend_t device_init_backend(ggml_backend_dev_t dev, const char *) {
    try {
        return new ggml_backend{backend_guid(), kBackend, dev, new Runner};
    } catch (const AclFailure & failure) {
        device().note_failure(failure.code, failure.what());
        return nullptr;
    }
}

ggml_backend_buffer_type_t device_get_buffer_type(ggml_backend_dev_t) {
    return buffer_type();
}

bool device_supports_op(ggml_backend_dev_t, const ggml_tensor * op) {
    return supports(op);
}

bool device_supports_buft(ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
    return type == buffer_type();
}

const ggml_backend_device_i kDevice = {
    /* .get_name             = */ device_get_name,
    /* .get_description      = */ device_get_description,
    /* .get_memory           = */ device_get_memory,
    /* .get_type             = */ device_get_type,
    /* .get_props            = */ device_get_props,
    /* .init_backend         = */ device_init_backend,
    /* .get_buffer_type      = */ device_get_buffer_type,
    /* .get_host_buffer_type = */ nullptr,
    /* .buffer_from_host_ptr = */ nullptr,
    /* .supports_op          = */ device_supports_op,
    /* .supports_buft        = */ device_supports_buft,
    /* .offload_op           = */ nullptr,
    /* .event_new            = */ nullptr,
    /* .event_free           = */ nullptr,
    /* .event_synchronize    = */ nullptr,
};

// ----------------------------------------------------------------------------------------------------------------
// registry

std::string g_why_not; // empty: there is an NPU

// Extra functions, fetched by name as ggml's own convention has it. Strings live until the thread's next
// call.
const char * memory_json() {
    thread_local std::string text;
    try {
        text = device().memory_json();
    } catch (const AclFailure & failure) {
        text = std::string("{\"error\": \"") + std::to_string(failure.code) + "\"}";
    }
    return text.c_str(); // NOLINT(clang-analyzer-cplusplus.InnerPointer): the string outlives the call
}

const char * unavailable_reason() {
    return g_why_not.c_str();
}

void shut_down() {
    device().shutdown();
}

// Empty when done, else why not.
const char * reset() {
    thread_local std::string text;
    text = device().reset();
    return text.c_str(); // NOLINT(clang-analyzer-cplusplus.InnerPointer): the string outlives the call
}

// What went wrong first since this was last asked, "<code> <text>"; empty: nothing.
const char * take_failure() {
    thread_local std::string text;
    text = device().take_failure();
    return text.c_str(); // NOLINT(clang-analyzer-cplusplus.InnerPointer): the string outlives the call
}

const char * configure_by_name(const char * key, const char * value) {
    thread_local std::string text;
    text = configure(key, value);
    return text.c_str(); // NOLINT(clang-analyzer-cplusplus.InnerPointer): the string outlives the call
}

// Looks for an NPU again when there was none. A device found now is new to ggml: register it there.
const char * retry() {
    if (!g_why_not.empty()) {
        g_why_not = device().start();
    }
    return g_why_not.c_str();
}

const char * registry_get_name(ggml_backend_reg_t) {
    return "CANN";
}

size_t registry_get_device_count(ggml_backend_reg_t) {
    return g_why_not.empty() ? 1 : 0;
}

ggml_backend_dev_t registry_get_device(ggml_backend_reg_t registry, size_t index) {
    static ggml_backend_device dev = {kDevice, registry, nullptr};
    set_buffer_device(&dev);
    return index == 0 && g_why_not.empty() ? &dev : nullptr;
}

struct Extra {
    const char * name;
    void * function;
};

void * registry_get_proc_address(ggml_backend_reg_t, const char * name) {
    static const Extra extras[] = {
        {"ggml_backend_cann_memory_json", reinterpret_cast<void *>(memory_json)},
        {"ggml_backend_cann_unavailable_reason", reinterpret_cast<void *>(unavailable_reason)},
        {"ggml_backend_cann_retry", reinterpret_cast<void *>(retry)},
        {"ggml_backend_cann_take_failure", reinterpret_cast<void *>(take_failure)},
        {"ggml_backend_cann_configure", reinterpret_cast<void *>(configure_by_name)},
        {"ggml_backend_cann_reset", reinterpret_cast<void *>(reset)},
        {"ggml_backend_cann_shutdown", reinterpret_cast<void *>(shut_down)},
    };
    for (const Extra & extra : extras) {
        if (std::strcmp(name, extra.name) == 0) {
            return extra.function;
        }
    }
    return nullptr;
}

ggml_backend_reg_t registry() {
    static ggml_backend_reg reg = {
        /* .api_version = */ GGML_BACKEND_API_VERSION,
        /* .iface       = */
        {
            /* .get_name         = */ registry_get_name,
            /* .get_device_count = */ registry_get_device_count,
            /* .get_device       = */ registry_get_device,
            /* .get_proc_address = */ registry_get_proc_address,
        },
        /* .context     = */ nullptr,
    };
    static const bool is_started = [] {
        g_why_not = device().start();
        if (!g_why_not.empty()) {
            GGML_LOG_WARN("CANN: %s\n", g_why_not.c_str());
        }
        return true;
    }();
    (void) is_started;
    return &reg;
}

} // namespace

GGML_BACKEND_DL_IMPL(registry)
