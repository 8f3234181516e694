// A small client of the simulated toolkit for operator tests: a board, device arrays, one-line calls.
#pragma once

#include "acl310b/acl-api.h"
#include "acl310b/aclnn-api.h"
#include "check.h"
#include "sim-fp16.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace client {

using Dims   = std::vector<int64_t>;
using Values = std::vector<double>;

inline int64_t product(const Dims & dims) {
    return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

// Sets the simulator up before its first call; every test case is a process of its own.
inline void configure(const std::string & json) {
    setenv("ACL_SIM_CONFIG", json.c_str(), 1);
}

class Board {
  public:
    Board() {
        REQUIRE(aclInit(nullptr) == ACL_SUCCESS);
        REQUIRE(aclrtSetDevice(0) == ACL_SUCCESS);
        REQUIRE(aclrtCreateStream(&stream) == ACL_SUCCESS);
    }
    Board(const Board &)             = delete;
    Board & operator=(const Board &) = delete;
    ~Board() {
        CHECK_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
        for (void * p : memory_) {
            CHECK_EQ(aclrtFree(p), ACL_SUCCESS);
        }
        CHECK_EQ(aclrtResetDevice(0), ACL_SUCCESS);
        CHECK_EQ(aclFinalize(), ACL_SUCCESS);
    }

    void * allocate(size_t n_bytes) {
        void * p = nullptr;
        REQUIRE(aclrtMalloc(&p, std::max<size_t>(n_bytes, 64), ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS);
        memory_.push_back(p);
        return p;
    }

    void sync() { REQUIRE(aclrtSynchronizeStream(stream) == ACL_SUCCESS); }

    // Both phases; the code of the first that fails. Workspace lives until the stream is done.
    template <typename First, typename Second, typename... Args>
    aclnnStatus call(First first, Second second, const Args &... args) {
        uint64_t n_bytes          = 0;
        aclOpExecutor * executor  = nullptr;
        const aclnnStatus planned = first(args..., &n_bytes, &executor);
        if (planned != 0) {
            return planned;
        }
        last_workspace   = n_bytes;
        void * workspace = nullptr;
        if (n_bytes > 0) {
            REQUIRE(aclrtMalloc(&workspace, n_bytes, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS);
        }
        const aclnnStatus ran = second(workspace, n_bytes, executor, stream);
        sync();
        if (workspace != nullptr) {
            REQUIRE(aclrtFree(workspace) == ACL_SUCCESS);
        }
        return ran;
    }

    aclrtStream stream      = nullptr;
    uint64_t last_workspace = 0;

  private:
    std::vector<void *> memory_;
};

inline size_t element_size(aclDataType t) {
    switch (t) {
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_BOOL:
        return 1;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
        return 2;
    case ACL_INT64:
    case ACL_DOUBLE:
        return 8;
    default:
        return 4;
    }
}

inline void encode(uint8_t * to, aclDataType t, double x) {
    const auto put = [to](auto v) { std::memcpy(to, &v, sizeof v); };
    switch (t) {
    case ACL_FLOAT:
        return put((float) x);
    case ACL_FLOAT16:
        return put(sim::float_to_fp16((float) x));
    case ACL_DOUBLE:
        return put(x);
    case ACL_INT8:
        return put((int8_t) x);
    case ACL_BOOL:
    case ACL_UINT8:
        return put((uint8_t) x);
    case ACL_INT16:
        return put((int16_t) x);
    case ACL_INT32:
        return put((int32_t) x);
    default:
        return put((int64_t) x);
    }
}

inline double decode(const uint8_t * from, aclDataType t) {
    const auto get = [from](auto v) {
        std::memcpy(&v, from, sizeof v);
        return (double) v;
    };
    switch (t) {
    case ACL_FLOAT:
        return get(float{});
    case ACL_FLOAT16: {
        uint16_t h = 0;
        std::memcpy(&h, from, sizeof h);
        return (double) sim::fp16_to_float(h);
    }
    case ACL_DOUBLE:
        return get(double{});
    case ACL_INT8:
        return get(int8_t{});
    case ACL_BOOL:
    case ACL_UINT8:
        return get(uint8_t{});
    case ACL_INT16:
        return get(int16_t{});
    case ACL_INT32:
        return get(int32_t{});
    default:
        return get(int64_t{});
    }
}

// A device buffer of elements; tensors are views of it.
class Array {
  public:
    Array(Board & board, aclDataType type, int64_t n, int64_t slack = 0)
        : type(type), n(n), data(board.allocate((size_t) (n + slack) * element_size(type))) {}
    Array(Board & board, aclDataType type, const Values & values)
        : Array(board, type, (int64_t) values.size()) {
        upload(values);
    }

    void upload(const Values & values) {
        std::vector<uint8_t> bytes((size_t) n * element_size(type));
        for (size_t i = 0; i < values.size(); ++i) {
            encode(bytes.data() + i * element_size(type), type, values[i]);
        }
        upload_bytes(bytes.data(), bytes.size());
    }
    void upload_bytes(const void * from, size_t n_bytes) {
        REQUIRE(aclrtMemcpy(data, n_bytes, from, n_bytes, ACL_MEMCPY_HOST_TO_DEVICE) == ACL_SUCCESS);
    }
    Values download() const {
        std::vector<uint8_t> bytes((size_t) n * element_size(type));
        REQUIRE(aclrtMemcpy(bytes.data(), bytes.size(), data, bytes.size(), ACL_MEMCPY_DEVICE_TO_HOST) ==
                ACL_SUCCESS);
        Values values((size_t) n);
        for (size_t i = 0; i < values.size(); ++i) {
            values[i] = decode(bytes.data() + i * element_size(type), type);
        }
        return values;
    }

    aclDataType type;
    int64_t n;
    void * data;
};

// An aclTensor with an owner.
class Tensor {
  public:
    Tensor(const Array & a, const Dims & dims, const Dims & strides = {}, int64_t offset = 0,
           aclFormat format = ACL_FORMAT_ND, const Dims & storage = {}) {
        const Dims whole = storage.empty() ? Dims{a.n} : storage;
        handle_ =
            aclCreateTensor(dims.data(), dims.size(), a.type, strides.empty() ? nullptr : strides.data(),
                            offset, format, whole.data(), whole.size(), a.data);
        REQUIRE(handle_ != nullptr);
    }
    Tensor(const Tensor &)             = delete;
    Tensor & operator=(const Tensor &) = delete;
    ~Tensor() {
        if (handle_ != nullptr) {
            aclDestroyTensor(handle_);
        }
    }
    operator aclTensor *() const { return handle_; } // NOLINT: reads like the C call it stands for
    aclTensor * release() {
        aclTensor * t = handle_;
        handle_       = nullptr;
        return t;
    }

  private:
    aclTensor * handle_;
};

class Scalar {
  public:
    explicit Scalar(float value) : handle_(aclCreateScalar(&value, ACL_FLOAT)) {}
    Scalar(const Scalar &)             = delete;
    Scalar & operator=(const Scalar &) = delete;
    ~Scalar() { aclDestroyScalar(handle_); }
    operator aclScalar *() const { return handle_; } // NOLINT

  private:
    aclScalar * handle_;
};

class Ints {
  public:
    Ints(std::initializer_list<int64_t> values) : handle_(aclCreateIntArray(values.begin(), values.size())) {}
    Ints(const Ints &)             = delete;
    Ints & operator=(const Ints &) = delete;
    ~Ints() { aclDestroyIntArray(handle_); }
    operator aclIntArray *() const { return handle_; } // NOLINT

  private:
    aclIntArray * handle_;
};

inline Values random_values(size_t n, unsigned seed, double scale = 1.0) {
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal(0.0, scale);
    Values v(n);
    for (double & x : v) {
        x = normal(generator);
    }
    return v;
}

// What is left of x after being stored in that type.
inline double stored(double x, aclDataType t) {
    uint8_t bytes[8];
    encode(bytes, t, x);
    return decode(bytes, t);
}

inline Values stored(Values v, aclDataType t) {
    for (double & x : v) {
        x = stored(x, t);
    }
    return v;
}

// Largest difference in units of the last place of the type at the wanted value.
inline double worst_ulp(const Values & got, const Values & want, aclDataType t) {
    const int digits = t == ACL_FLOAT16 ? 11 : 24, lowest = t == ACL_FLOAT16 ? -14 : -126;
    double worst = got.size() == want.size() ? 0 : INFINITY;
    for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
        const int e    = std::max(want[i] == 0 ? lowest : std::ilogb(want[i]), lowest);
        const double d = std::fabs(got[i] - want[i]) / std::ldexp(1.0, e - digits + 1);
        worst          = std::max(worst, d == d ? d : INFINITY);
    }
    return worst;
}

} // namespace client

// Both phases of an operator by its name without "aclnn".
#define CALL(board, name, ...) (board).call(aclnn##name##GetWorkspaceSize, aclnn##name, __VA_ARGS__)
