#include "sim-tensor.h"

#include "sim-core.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace sim {
namespace {

struct Birth {
    ObjectKind kind;
    uint64_t serial;
    std::string call;
};

struct Registry {
    std::mutex lock;
    uint64_t next_serial = 1;
    std::unordered_map<const void *, Birth> living;
    std::unordered_map<const void *, std::string> graves; // how an address lost its last object
};

// Never destroyed: objects may be touched by exit handlers that run after static destructors.
Registry & registry() {
    static Registry * const r = new Registry;
    return *r;
}

std::string story_of(const Registry & r, const void * handle) {
    const auto grave = r.graves.find(handle);
    return grave != r.graves.end() ? "already destroyed: " + grave->second : "it was never created";
}

} // namespace

const char * object_kind_name(ObjectKind kind) {
    switch (kind) {
    case ObjectKind::tensor:
        return "aclTensor";
    case ObjectKind::scalar:
        return "aclScalar";
    case ObjectKind::int_array:
        return "aclIntArray";
    case ObjectKind::float_array:
        return "aclFloatArray";
    case ObjectKind::bool_array:
        return "aclBoolArray";
    case ObjectKind::tensor_list:
        return "aclTensorList";
    case ObjectKind::scalar_list:
        return "aclScalarList";
    case ObjectKind::executor:
        return "aclOpExecutor";
    }
    return "?";
}

void object_created(Object & object, std::string_view call) {
    Registry & r = registry();
    const std::lock_guard<std::mutex> guard(r.lock);
    object.serial     = r.next_serial++;
    r.living[&object] = {object.kind, object.serial, std::string(call)};
    r.graves.erase(&object);
}

void check_object(const void * handle, ObjectKind kind, std::string_view call, std::string_view argument) {
    Registry & r = registry();
    std::string complaint;
    {
        const std::lock_guard<std::mutex> guard(r.lock);
        const auto found = r.living.find(handle);
        if (found != r.living.end() && found->second.kind == kind) {
            return;
        }
        complaint = found == r.living.end()
                        ? story_of(r, handle)
                        : std::string("it is an ") + object_kind_name(found->second.kind) + " made by " +
                              found->second.call;
    }
    fatal("rule 8: " + std::string(call) + ": '" + std::string(argument) + "' is no living " +
          object_kind_name(kind) + ": " + complaint);
}

void object_destroyed(const void * handle, ObjectKind kind, std::string_view call) {
    check_object(handle, kind, call, "handle");
    Registry & r = registry();
    const std::lock_guard<std::mutex> guard(r.lock);
    const auto found = r.living.find(handle);
    r.graves[handle] = std::string(object_kind_name(kind)) + " #" + std::to_string(found->second.serial) +
                       " made by " + found->second.call + ", destroyed by " + std::string(call);
    r.living.erase(found);
}

bool is_alive(const void * handle, uint64_t serial) {
    Registry & r = registry();
    const std::lock_guard<std::mutex> guard(r.lock);
    const auto found = r.living.find(handle);
    return found != r.living.end() && found->second.serial == serial;
}

std::vector<std::string> living_objects() {
    Registry & r = registry();
    const std::lock_guard<std::mutex> guard(r.lock);
    std::vector<Birth> births;
    for (const auto & entry : r.living) {
        births.push_back(entry.second);
    }
    std::sort(births.begin(), births.end(),
              [](const Birth & a, const Birth & b) { return a.serial < b.serial; });
    std::vector<std::string> lines;
    for (const Birth & b : births) {
        lines.push_back(std::string(object_kind_name(b.kind)) + " #" + std::to_string(b.serial) +
                        " made by " + b.call);
    }
    return lines;
}

// ---- shapes ----

namespace {

int64_t product(const std::vector<int64_t> & v) {
    int64_t n = 1;
    for (const int64_t x : v) {
        n *= x;
    }
    return n;
}

} // namespace

int64_t TensorShape::n_elements() const {
    return product(ne);
}
int64_t TensorShape::n_storage() const {
    return product(storage);
}

int64_t TensorShape::reach() const {
    if (n_elements() == 0) {
        return 0;
    }
    int64_t last = 0;
    for (size_t d = 0; d < ne.size(); ++d) {
        last += (ne[d] - 1) * stride[d];
    }
    return last + 1;
}

bool TensorShape::is_contiguous() const {
    int64_t expected = 1;
    for (size_t d = ne.size(); d-- > 0;) {
        if (ne[d] != 1 && stride[d] != expected) {
            return false;
        }
        expected *= ne[d];
    }
    return true;
}

std::string TensorShape::text() const {
    return dtype_name(dtype) + dims_text(ne);
}

std::string dims_text(const std::vector<int64_t> & dims) {
    std::string text = "[";
    for (const int64_t n : dims) {
        text += (text.size() > 1 ? "," : "") + std::to_string(n);
    }
    return text + "]";
}

const char * dtype_name(aclDataType dtype) {
    switch (dtype) {
    case ACL_FLOAT:
        return "FLOAT";
    case ACL_FLOAT16:
        return "FLOAT16";
    case ACL_INT8:
        return "INT8";
    case ACL_INT32:
        return "INT32";
    case ACL_UINT8:
        return "UINT8";
    case ACL_INT16:
        return "INT16";
    case ACL_UINT16:
        return "UINT16";
    case ACL_UINT32:
        return "UINT32";
    case ACL_INT64:
        return "INT64";
    case ACL_UINT64:
        return "UINT64";
    case ACL_DOUBLE:
        return "DOUBLE";
    case ACL_BOOL:
        return "BOOL";
    case ACL_BF16:
        return "BF16";
    case ACL_COMPLEX64:
        return "COMPLEX64";
    case ACL_COMPLEX128:
        return "COMPLEX128";
    case ACL_INT4:
        return "INT4";
    default:
        return "dtype?";
    }
}

} // namespace sim
