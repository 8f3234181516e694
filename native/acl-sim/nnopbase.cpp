// libnnopbase.so: creation and destruction of aclTensor and friends, and executors that are used again.
//
// Objects are plain descriptions: nothing here touches device memory. Every handle is registered when made
// and judged when used (sim-tensor.h).
#include "acl310b/acl-api.h"
#include "sim-core.h"
#include "sim-fp16.h"
#include "sim-op.h"
#include "sim-tensor.h"

#include <cstring>

using namespace sim;

namespace {

template <typename T> T read_as(const void * p) {
    T x;
    std::memcpy(&x, p, sizeof x);
    return x;
}

// Fills in a tensor; false when the arguments describe none.
bool describe(aclTensor & t, const int64_t * ne, uint64_t n_dims, aclDataType dtype, const int64_t * stride,
              int64_t offset, aclFormat format, const int64_t * storage, uint64_t n_storage_dims,
              void * data) {
    if ((ne == nullptr && n_dims > 0) || (storage == nullptr && n_storage_dims > 0)) {
        return false;
    }
    TensorShape s;
    s.dtype  = dtype;
    s.format = format;
    s.offset = offset;
    s.ne.assign(ne, ne + n_dims);
    s.storage.assign(storage, storage + n_storage_dims);
    s.stride.resize(n_dims);
    int64_t dense = 1;
    for (size_t d = n_dims; d-- > 0;) {
        s.stride[d] = stride != nullptr ? stride[d] : dense;
        if (s.ne[d] < 0 || s.stride[d] < 0) {
            return false;
        }
        dense *= s.ne[d];
    }
    if (n_storage_dims == 0) {
        s.storage = s.ne;
    }
    t.shape = std::move(s);
    t.data  = data;
    return true;
}

template <typename T> T * made(T * object, ObjectKind kind, const char * call) {
    object->kind = kind;
    object_created(*object, call);
    return object;
}

template <typename T> aclnnStatus destroy(const T * object, ObjectKind kind, const char * call) {
    if (object == nullptr) {
        return kAclnnOk;
    }
    object_destroyed(object, kind, call);
    delete object;
    return kAclnnOk;
}

aclnnStatus copy_out(const std::vector<int64_t> & from, int64_t ** to, uint64_t * n) {
    if (to == nullptr || n == nullptr) {
        return kAclnnNullptr;
    }
    *to = new int64_t[from.size()]; // the caller frees it with delete[]
    std::copy(from.begin(), from.end(), *to);
    *n = from.size();
    return kAclnnOk;
}

// The i-th operand of an executor among those that are read (inputs) or written (outputs).
const Operand * operand_at(Plan & plan, size_t index, bool outputs, bool both) {
    size_t seen = 0;
    for (int i = 0; i < plan.n_operands(); ++i) {
        const Operand & o  = plan.operand(i);
        const bool counted = both || (o.access == Access::write) == outputs;
        if (counted && seen++ == index) {
            return &o;
        }
    }
    return nullptr;
}

aclnnStatus set_address(const char * call, aclOpExecutor * executor, size_t index, aclTensor * tensor,
                        void * data, bool outputs, bool both) {
    if (executor == nullptr || tensor == nullptr) {
        set_error(call, kAclnnInnerNull, "executor or tensor is null");
        return kAclnnInnerNull;
    }
    check_object(executor, ObjectKind::executor, call, "executor");
    check_object(tensor, ObjectKind::tensor, call, "tensor");
    const Operand * o = operand_at(executor->plan, index, outputs, both);
    if (!executor->repeatable || o == nullptr || o->tensor != tensor) {
        set_error(call, kAclnnInvalid,
                  !executor->repeatable ? "the executor is not repeatable"
                                        : "no operand of that index is this tensor");
        return kAclnnInvalid;
    }
    tensor->data = data;
    return kAclnnOk;
}

} // namespace

ACLNN_EXPORT aclnnStatus aclnnInit(const char *) {
    return kAclnnOk;
}
ACLNN_EXPORT aclnnStatus aclnnFinalize() {
    return kAclnnOk;
}

// ---- tensors ----

ACLNN_EXPORT aclTensor * aclCreateTensor(const int64_t * view_dims, uint64_t view_dims_num,
                                         aclDataType data_type, const int64_t * stride, int64_t offset,
                                         aclFormat format, const int64_t * storage_dims,
                                         uint64_t storage_dims_num, void * tensor_data) {
    auto * t = new aclTensor;
    if (!describe(*t, view_dims, view_dims_num, data_type, stride, offset, format, storage_dims,
                  storage_dims_num, tensor_data)) {
        delete t;
        set_error("aclCreateTensor", kAclnnInvalid, "null dims, or a negative dim or stride");
        return nullptr;
    }
    return made(t, ObjectKind::tensor, "aclCreateTensor");
}

ACLNN_EXPORT aclnnStatus aclDestroyTensor(const aclTensor * tensor) {
    return destroy(tensor, ObjectKind::tensor, "aclDestroyTensor");
}

ACLNN_EXPORT aclnnStatus aclInitTensor(aclTensor * tensor, const int64_t * view_dims, uint64_t view_dims_num,
                                       aclDataType data_type, const int64_t * stride, int64_t offset,
                                       aclFormat format, const int64_t * storage_dims,
                                       uint64_t storage_dims_num, void * tensor_data) {
    if (tensor == nullptr) {
        return kAclnnNullptr;
    }
    check_object(tensor, ObjectKind::tensor, "aclInitTensor", "tensor");
    return describe(*tensor, view_dims, view_dims_num, data_type, stride, offset, format, storage_dims,
                    storage_dims_num, tensor_data)
               ? kAclnnOk
               : kAclnnInvalid;
}

ACLNN_EXPORT aclnnStatus aclGetViewShape(const aclTensor * tensor, int64_t ** view_dims,
                                         uint64_t * view_dims_num) {
    check_object(tensor, ObjectKind::tensor, "aclGetViewShape", "tensor");
    return copy_out(tensor->shape.ne, view_dims, view_dims_num);
}

ACLNN_EXPORT aclnnStatus aclGetStorageShape(const aclTensor * tensor, int64_t ** storage_dims,
                                            uint64_t * storage_dims_num) {
    check_object(tensor, ObjectKind::tensor, "aclGetStorageShape", "tensor");
    return copy_out(tensor->shape.storage, storage_dims, storage_dims_num);
}

ACLNN_EXPORT aclnnStatus aclGetViewStrides(const aclTensor * tensor, int64_t ** strides,
                                           uint64_t * strides_num) {
    check_object(tensor, ObjectKind::tensor, "aclGetViewStrides", "tensor");
    return copy_out(tensor->shape.stride, strides, strides_num);
}

ACLNN_EXPORT aclnnStatus aclGetViewOffset(const aclTensor * tensor, int64_t * offset) {
    check_object(tensor, ObjectKind::tensor, "aclGetViewOffset", "tensor");
    if (offset == nullptr) {
        return kAclnnNullptr;
    }
    *offset = tensor->shape.offset;
    return kAclnnOk;
}

ACLNN_EXPORT aclnnStatus aclGetFormat(const aclTensor * tensor, aclFormat * format) {
    check_object(tensor, ObjectKind::tensor, "aclGetFormat", "tensor");
    if (format == nullptr) {
        return kAclnnNullptr;
    }
    *format = tensor->shape.format;
    return kAclnnOk;
}

ACLNN_EXPORT aclnnStatus aclGetDataType(const aclTensor * tensor, aclDataType * data_type) {
    check_object(tensor, ObjectKind::tensor, "aclGetDataType", "tensor");
    if (data_type == nullptr) {
        return kAclnnNullptr;
    }
    *data_type = tensor->shape.dtype;
    return kAclnnOk;
}

ACLNN_EXPORT aclnnStatus aclGetRawTensorAddr(const aclTensor * tensor, void ** addr) {
    check_object(tensor, ObjectKind::tensor, "aclGetRawTensorAddr", "tensor");
    if (addr == nullptr) {
        return kAclnnNullptr;
    }
    *addr = tensor->data;
    return kAclnnOk;
}

ACLNN_EXPORT aclnnStatus aclSetRawTensorAddr(aclTensor * tensor, void * addr) {
    check_object(tensor, ObjectKind::tensor, "aclSetRawTensorAddr", "tensor");
    tensor->data = addr;
    return kAclnnOk;
}

// ---- scalars and arrays ----

ACLNN_EXPORT aclScalar * aclCreateScalar(void * value, aclDataType data_type) {
    if (value == nullptr) {
        set_error("aclCreateScalar", kAclnnNullptr, "value is null");
        return nullptr;
    }
    auto * s = new aclScalar;
    s->dtype = data_type;
    switch (data_type) {
    case ACL_FLOAT:
        s->value = (double) read_as<float>(value);
        break;
    case ACL_DOUBLE:
        s->value = read_as<double>(value);
        break;
    case ACL_FLOAT16:
        s->value = (double) fp16_to_float(read_as<uint16_t>(value));
        break;
    case ACL_BF16:
        s->value = (double) float_of((uint32_t) read_as<uint16_t>(value) << 16);
        break;
    case ACL_INT8:
        s->whole = (int64_t) read_as<int8_t>(value); // NOLINT(bugprone-signed-char-misuse)
        break;
    case ACL_UINT8:
    case ACL_BOOL:
        s->whole = read_as<uint8_t>(value);
        break;
    case ACL_INT16:
        s->whole = read_as<int16_t>(value);
        break;
    case ACL_UINT16:
        s->whole = read_as<uint16_t>(value);
        break;
    case ACL_INT32:
        s->whole = read_as<int32_t>(value);
        break;
    case ACL_UINT32:
        s->whole = read_as<uint32_t>(value);
        break;
    case ACL_INT64:
    case ACL_UINT64:
        s->whole = read_as<int64_t>(value);
        break;
    default:
        delete s;
        set_error("aclCreateScalar", kAclnnInvalid, std::string("dtype ") + std::to_string((int) data_type));
        return nullptr;
    }
    if (s->whole != 0) {
        s->value = (double) s->whole;
    }
    return made(s, ObjectKind::scalar, "aclCreateScalar");
}

ACLNN_EXPORT aclnnStatus aclDestroyScalar(const aclScalar * scalar) {
    return destroy(scalar, ObjectKind::scalar, "aclDestroyScalar");
}

// NOLINTBEGIN(bugprone-macro-parentheses): a type cannot be enclosed
#define ARRAY(Type, Element, KIND)                                                                           \
    ACLNN_EXPORT Type * aclCreate##KIND(const Element * value, uint64_t size) {                              \
        if (value == nullptr && size > 0) {                                                                  \
            set_error("aclCreate" #KIND, kAclnnNullptr, "value is null");                                    \
            return nullptr;                                                                                  \
        }                                                                                                    \
        auto * a = new Type;                                                                                 \
        a->values.assign(value, value + size);                                                               \
        return made(a, kind_of_##KIND, "aclCreate" #KIND);                                                   \
    }                                                                                                        \
    ACLNN_EXPORT aclnnStatus aclDestroy##KIND(const Type * array) {                                          \
        return destroy(array, kind_of_##KIND, "aclDestroy" #KIND);                                           \
    }

// NOLINTEND(bugprone-macro-parentheses)
static constexpr ObjectKind kind_of_IntArray   = ObjectKind::int_array;
static constexpr ObjectKind kind_of_FloatArray = ObjectKind::float_array;
static constexpr ObjectKind kind_of_BoolArray  = ObjectKind::bool_array;
ARRAY(aclIntArray, int64_t, IntArray)
ARRAY(aclFloatArray, float, FloatArray)
ARRAY(aclBoolArray, bool, BoolArray)

// ---- lists: destroying one destroys its members ----

ACLNN_EXPORT aclTensorList * aclCreateTensorList(const aclTensor * const * value, uint64_t size) {
    if (value == nullptr && size > 0) {
        set_error("aclCreateTensorList", kAclnnNullptr, "value is null");
        return nullptr;
    }
    auto * list = new aclTensorList;
    for (uint64_t i = 0; i < size; ++i) {
        check_object(value[i], ObjectKind::tensor, "aclCreateTensorList", "value");
        list->tensors.push_back(value[i]);
        list->serials.push_back(value[i]->serial);
    }
    return made(list, ObjectKind::tensor_list, "aclCreateTensorList");
}

ACLNN_EXPORT aclnnStatus aclDestroyTensorList(const aclTensorList * list) {
    if (list == nullptr) {
        return kAclnnOk;
    }
    check_object(list, ObjectKind::tensor_list, "aclDestroyTensorList", "handle");
    for (size_t i = 0; i < list->tensors.size(); ++i) {
        if (!is_alive(list->tensors[i], list->serials[i])) {
            fatal("rule 8: aclDestroyTensorList: member " + std::to_string(i) +
                  " was already destroyed by aclDestroyTensor: a list destroys its tensors itself");
        }
        destroy(list->tensors[i], ObjectKind::tensor, "aclDestroyTensorList");
    }
    return destroy(list, ObjectKind::tensor_list, "aclDestroyTensorList");
}

ACLNN_EXPORT aclScalarList * aclCreateScalarList(const aclScalar * const * value, uint64_t size) {
    if (value == nullptr && size > 0) {
        set_error("aclCreateScalarList", kAclnnNullptr, "value is null");
        return nullptr;
    }
    auto * list = new aclScalarList;
    for (uint64_t i = 0; i < size; ++i) {
        check_object(value[i], ObjectKind::scalar, "aclCreateScalarList", "value");
        list->scalars.push_back(value[i]);
        list->serials.push_back(value[i]->serial);
    }
    return made(list, ObjectKind::scalar_list, "aclCreateScalarList");
}

ACLNN_EXPORT aclnnStatus aclDestroyScalarList(const aclScalarList * list) {
    if (list == nullptr) {
        return kAclnnOk;
    }
    check_object(list, ObjectKind::scalar_list, "aclDestroyScalarList", "handle");
    for (size_t i = 0; i < list->scalars.size(); ++i) {
        if (!is_alive(list->scalars[i], list->serials[i])) {
            fatal("rule 8: aclDestroyScalarList: member " + std::to_string(i) +
                  " was already destroyed by aclDestroyScalar: a list destroys its scalars itself");
        }
        destroy(list->scalars[i], ObjectKind::scalar, "aclDestroyScalarList");
    }
    return destroy(list, ObjectKind::scalar_list, "aclDestroyScalarList");
}

// ---- executors that are used again ----

ACLNN_EXPORT aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor * executor) {
    if (executor == nullptr) {
        set_error("aclSetAclOpExecutorRepeatable", kAclnnInnerNull, "executor is null");
        return kAclnnInnerNull;
    }
    check_object(executor, ObjectKind::executor, "aclSetAclOpExecutorRepeatable", "executor");
    executor->repeatable = true;
    return kAclnnOk;
}

// Needed for repeatable executors; also the only way to give back one whose phase 2 is never wanted.
ACLNN_EXPORT aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor * executor) {
    if (executor == nullptr) {
        set_error("aclDestroyAclOpExecutor", kAclnnInnerNull, "executor is null");
        return kAclnnInnerNull;
    }
    return destroy(executor, ObjectKind::executor, "aclDestroyAclOpExecutor");
}

ACLNN_EXPORT aclnnStatus aclSetInputTensorAddr(aclOpExecutor * executor, const size_t index,
                                               aclTensor * tensor, void * addr) {
    return set_address("aclSetInputTensorAddr", executor, index, tensor, addr, false, false);
}

ACLNN_EXPORT aclnnStatus aclSetOutputTensorAddr(aclOpExecutor * executor, const size_t index,
                                                aclTensor * tensor, void * addr) {
    return set_address("aclSetOutputTensorAddr", executor, index, tensor, addr, true, false);
}

ACLNN_EXPORT aclnnStatus aclSetTensorAddr(aclOpExecutor * executor, const size_t index, aclTensor * tensor,
                                          void * addr) {
    return set_address("aclSetTensorAddr", executor, index, tensor, addr, false, true);
}
