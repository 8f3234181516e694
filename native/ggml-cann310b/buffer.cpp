#include "buffer.h"

#include "runner.h"

#include "ggml-impl.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <unordered_map>
#include <vector>

namespace cann310b {
namespace {

constexpr size_t kAlignment    = 128;
constexpr size_t kUploadBytes  = size_t{16} << 20; // one staging piece of converted weights
constexpr unsigned kMaxThreads = 4;
constexpr float kMinusF32 = -3.0e38F;  // a stored -inf is not documented to work on the chip (fact sheet 4.8)
constexpr uint16_t kMinusF16 = 0xfbff; // -65504
constexpr uint16_t kInfF16   = 0xfc00; // -inf

struct Buffer {
    void * base = nullptr;
    size_t size = 0;
    // The original bytes of quantised tensors in buffers that are not weights, for whoever reads them back.
    std::unordered_map<const void *, std::vector<uint8_t>> originals;
};

Buffer * context(ggml_backend_buffer_t buffer) {
    return static_cast<Buffer *>(buffer->context);
}

// Runs body and turns a failed call into one log line; ggml's data functions have no way to report.
template <typename Body> bool guarded(const char * what, Body body) {
    try {
        body();
        return true;
    } catch (const AclFailure & failure) {
        if (device().is_open()) {
            device().note_failure(failure.code, std::string(what) + ": " + failure.what());
        }
        return false;
    }
}

void to_f16(const ggml_tensor * tensor, const uint8_t * data, int64_t row_begin, int64_t row_end,
            ggml_fp16_t * out) {
    const ggml_to_float_t to_float = ggml_get_type_traits(tensor->type)->to_float;
    const size_t row_bytes         = ggml_row_size(tensor->type, tensor->ne[0]);
    std::vector<float> row(static_cast<size_t>(tensor->ne[0]));
    for (int64_t i = row_begin; i < row_end; ++i) {
        to_float(data + size_t(i) * row_bytes, row.data(), tensor->ne[0]);
        ggml_fp32_to_fp16_row(row.data(), out + (i - row_begin) * tensor->ne[0], tensor->ne[0]);
    }
}

// Converts rows [begin, end) of a quantised tensor, `data` holding row `begin` first, and uploads them.
void upload_rows(const ggml_tensor * tensor, const uint8_t * data, int64_t begin, int64_t end) {
    const size_t row_out   = size_t(tensor->ne[0]) * sizeof(ggml_fp16_t);
    const size_t row_in    = ggml_row_size(tensor->type, tensor->ne[0]);
    const int64_t per_step = std::max<int64_t>(1, int64_t(kUploadBytes / row_out));
    std::vector<ggml_fp16_t> staging(size_t(std::min(per_step, end - begin)) * size_t(tensor->ne[0]));
    for (int64_t at = begin; at < end; at += per_step) {
        const int64_t n = std::min(per_step, end - at);
        const unsigned n_parts =
            std::max(1U, std::min({kMaxThreads, std::thread::hardware_concurrency(), unsigned(n)}));
        const uint8_t * from = data + size_t(at - begin) * row_in;
        std::vector<std::thread> workers;
        for (unsigned p = 1; p < n_parts; ++p) {
            workers.emplace_back([&, p] {
                to_f16(tensor, from, n * p / n_parts, n * (p + 1) / n_parts,
                       staging.data() + (n * p / n_parts) * tensor->ne[0]);
            });
        }
        to_f16(tensor, from, 0, n / n_parts, staging.data());
        for (std::thread & worker : workers) {
            worker.join();
        }
        device().copy(static_cast<char *>(tensor->data) + size_t(at) * row_out, staging.data(),
                      size_t(n) * row_out, ACL_MEMCPY_HOST_TO_DEVICE);
    }
}

// -inf becomes the lowest finite number. Weights hold none, so only small uploads (masks) are looked through.
const void * without_infinities(const ggml_tensor * tensor, const void * data, size_t size,
                                std::vector<uint8_t> & copy) {
    bool found = false;
    if (tensor->type == GGML_TYPE_F32) {
        const auto * values = static_cast<const float *>(data);
        found = std::any_of(values, values + size / sizeof(float), [](float v) { return v < kMinusF32; });
    } else if (tensor->type == GGML_TYPE_F16) {
        const auto * values = static_cast<const uint16_t *>(data);
        found               = std::find(values, values + size / 2, kInfF16) != values + size / 2;
    }
    if (!found) {
        return data;
    }
    copy.assign(static_cast<const uint8_t *>(data), static_cast<const uint8_t *>(data) + size);
    if (tensor->type == GGML_TYPE_F32) {
        auto * values = reinterpret_cast<float *>(copy.data());
        std::replace_if(
            values, values + size / sizeof(float), [](float v) { return v < kMinusF32; }, kMinusF32);
    } else {
        auto * values = reinterpret_cast<uint16_t *>(copy.data());
        std::replace(values, values + size / 2, kInfF16, kMinusF16);
    }
    return copy.data();
}

// ---- buffer ----

void free_buffer(ggml_backend_buffer_t buffer) {
    forget_weight_copies(context(buffer)->base, context(buffer)->size);
    device().release(context(buffer)->base, context(buffer)->size);
    delete context(buffer);
}

void * get_base(ggml_backend_buffer_t buffer) {
    return context(buffer)->base;
}

void clear(ggml_backend_buffer_t buffer, uint8_t value) {
    guarded("clear", [&] {
        device().bind();
        check(acl().aclrtMemset(context(buffer)->base, context(buffer)->size, value, context(buffer)->size),
              "aclrtMemset");
    });
}

void memset_tensor(ggml_backend_buffer_t, ggml_tensor * tensor, uint8_t value, size_t offset, size_t size) {
    guarded("memset_tensor", [&] {
        device().bind();
        check(acl().aclrtMemset(static_cast<char *>(tensor->data) + offset, size, value, size),
              "aclrtMemset");
    });
}

void set_tensor(ggml_backend_buffer_t buffer, ggml_tensor * tensor, const void * data, size_t offset,
                size_t size) {
    if (size == 0) {
        return;
    }
    guarded("set_tensor", [&] {
        const bool is_weights = buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
        if (!is_stored_as_f16(tensor)) {
            std::vector<uint8_t> copy;
            const void * from = is_weights ? data : without_infinities(tensor, data, size, copy);
            device().copy(static_cast<char *>(tensor->data) + offset, from, size, ACL_MEMCPY_HOST_TO_DEVICE);
            return;
        }
        const size_t row = ggml_row_size(tensor->type, tensor->ne[0]);
        if (offset % row != 0 || size % row != 0) {
            throw AclFailure(ACL_ERROR_INVALID_PARAM,
                             std::string(tensor->name) + ": a quantised tensor is set by whole rows");
        }
        upload_rows(tensor, static_cast<const uint8_t *>(data), int64_t(offset / row),
                    int64_t((offset + size) / row));
        if (!is_weights) {
            std::vector<uint8_t> & original = context(buffer)->originals[tensor->data];
            original.resize(ggml_nbytes(tensor));
            std::memcpy(original.data() + offset, data, size);
        }
    });
}

void get_tensor(ggml_backend_buffer_t buffer, const ggml_tensor * tensor, void * data, size_t offset,
                size_t size) {
    if (size == 0) {
        return;
    }
    const bool ok = guarded("get_tensor", [&] {
        if (!is_stored_as_f16(tensor)) {
            device().copy(data, static_cast<const char *>(tensor->data) + offset, size,
                          ACL_MEMCPY_DEVICE_TO_HOST);
            return;
        }
        const auto found = context(buffer)->originals.find(tensor->data);
        if (found != context(buffer)->originals.end() && found->second.size() >= offset + size) {
            std::memcpy(data, found->second.data() + offset, size);
            return;
        }
        // The quantised bytes are gone; quantising the stored values again comes close.
        const size_t row = ggml_row_size(tensor->type, tensor->ne[0]);
        if (offset % row != 0 || size % row != 0) {
            throw AclFailure(ACL_ERROR_INVALID_PARAM,
                             std::string(tensor->name) + ": a quantised tensor is read by whole rows");
        }
        const auto n = int64_t(size / row), ne0 = tensor->ne[0];
        std::vector<ggml_fp16_t> half(size_t(n * ne0));
        device().copy(half.data(), static_cast<const char *>(tensor->data) + offset / row * size_t(ne0) * 2,
                      half.size() * 2, ACL_MEMCPY_DEVICE_TO_HOST);
        std::vector<float> full(half.size());
        ggml_fp16_to_fp32_row(half.data(), full.data(), int64_t(half.size()));
        ggml_quantize_chunk(tensor->type, full.data(), data, 0, n, ne0, nullptr);
    });
    if (!ok) {
        std::memset(data, 0, size); // never what lay there before
    }
}

bool copy_tensor(ggml_backend_buffer_t, const ggml_tensor * src, ggml_tensor * dst) {
    if (!is_our_buffer(src->buffer) || is_stored_as_f16(src) || is_stored_as_f16(dst)) {
        return false; // ggml then goes through get_tensor and set_tensor
    }
    return guarded("copy_tensor", [&] {
        device().copy(dst->data, src->data, ggml_nbytes(src), ACL_MEMCPY_DEVICE_TO_DEVICE);
    });
}

const ggml_backend_buffer_i kBufferInterface = {
    /* .free_buffer   = */ free_buffer,
    /* .get_base      = */ get_base,
    /* .init_tensor   = */ nullptr,
    /* .memset_tensor = */ memset_tensor,
    /* .set_tensor    = */ set_tensor,
    /* .get_tensor    = */ get_tensor,
    /* .set_tensor_2d = */ nullptr,
    /* .get_tensor_2d = */ nullptr,
    /* .cpy_tensor    = */ copy_tensor,
    /* .clear         = */ clear,
    /* .reset         = */ nullptr,
};

// ---- buffer type ----

const char * get_name(ggml_backend_buffer_type_t) {
    return "CANN0";
}

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
    void * base = nullptr;
    if (!guarded("alloc_buffer", [&] { base = device().allocate(std::max<size_t>(size, 1), "a buffer"); })) {
        return nullptr;
    }
    auto * made = new Buffer;
    made->base  = base;
    made->size  = std::max<size_t>(size, 1);
    return ggml_backend_buffer_init(type, kBufferInterface, made, size);
}

size_t get_alignment(ggml_backend_buffer_type_t) {
    return kAlignment;
}

size_t get_alloc_size(ggml_backend_buffer_type_t, const ggml_tensor * tensor) {
    const size_t n = ggml_nbytes(tensor);
    return is_stored_as_f16(tensor) ? std::max(n, size_t(ggml_nelements(tensor)) * sizeof(ggml_fp16_t)) : n;
}

bool is_host(ggml_backend_buffer_type_t) {
    return false;
}

ggml_backend_buffer_type g_type = {
    /* .iface   = */ {
        /* .get_name       = */ get_name,
        /* .alloc_buffer   = */ alloc_buffer,
        /* .get_alignment  = */ get_alignment,
        /* .get_max_size   = */ nullptr,
        /* .get_alloc_size = */ get_alloc_size,
        /* .is_host        = */ is_host,
    },
    /* .device  = */ nullptr,
    /* .context = */ nullptr,
};

} // namespace

bool is_stored_as_f16(const ggml_tensor * tensor) {
    return ggml_is_quantized(tensor->type) && ggml_get_type_traits(tensor->type)->to_float != nullptr;
}

ggml_backend_buffer_type_t buffer_type() {
    return &g_type;
}

void set_buffer_device(ggml_backend_dev_t dev) {
    g_type.device = dev;
}

bool is_our_buffer(const ggml_backend_buffer * buffer) {
    return buffer != nullptr && buffer->buft == &g_type;
}

} // namespace cann310b
