// The objects of libnnopbase (aclTensor, aclScalar, arrays, lists, executors) and the registry that judges
// how they are used: every handle must be alive and of the right kind, everything must be destroyed once.
//
// A real toolkit has no such checks: a wrong handle is memory corruption there. Here it ends the process with
// the names of the calls involved.
#pragma once

#include "acl310b/acl-api.h"
#include "sim-kernel.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sim {

enum class ObjectKind {
    tensor,
    scalar,
    int_array,
    float_array,
    bool_array,
    tensor_list,
    scalar_list,
    executor
};

const char * object_kind_name(ObjectKind kind);

// Common head of all objects.
struct Object {
    ObjectKind kind;
    uint64_t serial = 0; // unique in the process: tells a reused address from the object that was there
};

void object_created(Object & object, std::string_view call);
// Ends the process unless `handle` is alive and of that kind.
void check_object(const void * handle, ObjectKind kind, std::string_view call, std::string_view argument);
void object_destroyed(const void * handle, ObjectKind kind, std::string_view call);
bool is_alive(const void * handle, uint64_t serial);
// One line per object that is still alive: kind, number, the call that made it. For aclFinalize and exit.
std::vector<std::string> living_objects();

// What aclCreateTensor was told. Strides and offset in elements.
struct TensorShape {
    aclDataType dtype = ACL_DT_UNDEFINED;
    aclFormat format  = ACL_FORMAT_ND;
    std::vector<int64_t> ne, stride, storage;
    int64_t offset = 0;

    int64_t n_elements() const;
    int64_t n_storage() const;
    int64_t reach() const; // elements from element 0 of the view to one past its furthest one
    bool is_contiguous() const;
    std::string text() const; // "FLOAT16[1,896]"
};

const char * dtype_name(aclDataType dtype);
std::string dims_text(const std::vector<int64_t> & dims);

} // namespace sim

struct aclTensor : sim::Object {
    sim::TensorShape shape;
    void * data = nullptr; // device address of the storage, as the client sees it
};

struct aclScalar : sim::Object {
    aclDataType dtype = ACL_DT_UNDEFINED;
    double value      = 0;
    int64_t whole     = 0; // the value of an integer type, which a double may not hold
};

struct aclIntArray : sim::Object {
    std::vector<int64_t> values;
};

struct aclFloatArray : sim::Object {
    std::vector<float> values;
};

struct aclBoolArray : sim::Object {
    std::vector<bool> values;
};

struct aclTensorList : sim::Object {
    std::vector<const aclTensor *> tensors;
    std::vector<uint64_t> serials;
};

struct aclScalarList : sim::Object {
    std::vector<const aclScalar *> scalars;
    std::vector<uint64_t> serials;
};
