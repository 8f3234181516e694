// The cost model against published figures: one decoded token issued the way the public 310B4 add-on issues
// it (CreatSthing/llama-cpp-ascend310b4-addon: F32 activations, a cast before and after every matmul,
// composed norms and rope, ND weights or a FRACTAL_NZ copy), for the shapes of Qwen2.5-0.5B and 1.5B. The sum
// of the simulator's predicted times must give the add-on's measured decode speed within 15 %.
#include "acl310b/acl-api.h"
#include "acl310b/aclnn-api.h"
#include "check.h"

#include <array>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <utility>

namespace {

struct Shape {
    const char * name;
    int64_t n_embd, n_layer, n_head, n_kv, head_dim, n_ff, n_vocab;
};
constexpr Shape kQwen05 = {"Qwen2.5-0.5B", 896, 24, 14, 2, 64, 4864, 151936};
constexpr Shape kQwen15 = {"Qwen2.5-1.5B", 1536, 28, 12, 2, 128, 8960, 151936};

// tg32 after an empty prompt: the cache window is padded to 64 positions on average.
constexpr int64_t kWindow    = 64;
constexpr double kTolerance  = 0.15;
constexpr size_t kPieceBytes = size_t{64} << 20;

using Dims = std::vector<int64_t>;

// A device buffer that lives as long as the process's run, found again by nobody: one owner, freed at the
// end.
class Device {
  public:
    Device() {
        REQUIRE(aclInit(nullptr) == ACL_SUCCESS);
        REQUIRE(aclrtSetDevice(0) == ACL_SUCCESS);
        REQUIRE(aclrtCreateStream(&stream) == ACL_SUCCESS);
    }
    Device(const Device &)             = delete;
    Device & operator=(const Device &) = delete;
    ~Device() {
        CHECK_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
        for (void * p : pieces_) {
            CHECK_EQ(aclrtFree(p), ACL_SUCCESS);
        }
        CHECK_EQ(aclrtResetDevice(0), ACL_SUCCESS);
        CHECK_EQ(aclFinalize(), ACL_SUCCESS);
    }
    void * allocate(size_t n_bytes) {
        void * p = nullptr;
        // Room for the chip's 16-row over-read of a matmul operand.
        REQUIRE(aclrtMalloc(&p, n_bytes + (size_t{1} << 20), ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS);
        pieces_.push_back(p);
        return p;
    }

    aclrtStream stream = nullptr;

  private:
    std::vector<void *> pieces_;
};

struct TensorFree {
    void operator()(const aclTensor * t) const { aclDestroyTensor(t); }
};
using Tensor = std::unique_ptr<aclTensor, TensorFree>;
struct ScalarFree {
    void operator()(const aclScalar * s) const { aclDestroyScalar(s); }
};
using Scalar = std::unique_ptr<aclScalar, ScalarFree>;

Tensor dense(void * data, const Dims & dims, aclDataType type) {
    return Tensor(aclCreateTensor(dims.data(), dims.size(), type, nullptr, 0, ACL_FORMAT_ND, dims.data(),
                                  dims.size(), data));
}

Tensor strided(void * data, const Dims & dims, const Dims & strides, aclDataType type) {
    int64_t last = 0;
    for (size_t i = 0; i < dims.size(); ++i) {
        last += (dims[i] - 1) * strides[i];
    }
    const int64_t storage = last + 1;
    return Tensor(
        aclCreateTensor(dims.data(), dims.size(), type, strides.data(), 0, ACL_FORMAT_ND, &storage, 1, data));
}

Scalar number(float value) {
    return Scalar(aclCreateScalar(&value, ACL_FLOAT));
}

// One token of one model in one weight layout.
class Token {
  public:
    Token(Device & device, const Shape & shape, bool nz) : device_(device), s_(shape), nz_(nz) {
        const int64_t widest = s_.n_vocab * s_.n_embd;
        weights_             = device.allocate(size_t(widest) * 2);
        workspace_bytes_     = size_t(widest) * 2 + kPieceBytes;
        workspace_           = device.allocate(workspace_bytes_);
        for (void *& piece : scratch_) {
            piece = device.allocate(kPieceBytes);
        }
    }

    void issue() {
        for (int64_t layer = 0; layer < s_.n_layer; ++layer) {
            attention();
            feed_forward();
        }
        norm();
        matmul(s_.n_embd, s_.n_vocab);
        REQUIRE(aclrtSynchronizeStream(device_.stream) == ACL_SUCCESS);
    }

  private:
    template <typename First, typename Second, typename... Args>
    void run(First first, Second second, Args... args) {
        uint64_t n_bytes         = 0;
        aclOpExecutor * executor = nullptr;
        REQUIRE(first(args..., &n_bytes, &executor) == 0);
        REQUIRE(n_bytes <= workspace_bytes_);
        REQUIRE(second(n_bytes != 0 ? workspace_ : nullptr, n_bytes, executor, device_.stream) == 0);
    }

    void cast(const Tensor & from, aclDataType type, const Tensor & to) {
        run(aclnnCastGetWorkspaceSize, aclnnCast, from.get(), type, to.get());
    }
    void mul(const Tensor & a, const Tensor & b, const Tensor & out) {
        run(aclnnMulGetWorkspaceSize, aclnnMul, a.get(), b.get(), out.get());
    }
    void add(const Tensor & a, const Tensor & b, const Tensor & out) {
        const Scalar one = number(1.0F);
        run(aclnnAddGetWorkspaceSize, aclnnAdd, a.get(), b.get(), one.get(), out.get());
    }

    // Mul, Mean, Add(eps), Sqrt, Div, then Mul by the weight: six launches.
    void norm() {
        const Dims row     = {1, s_.n_embd};
        const Tensor x     = dense(scratch_[0], row, ACL_FLOAT);
        const Tensor y     = dense(scratch_[1], row, ACL_FLOAT);
        const Tensor m     = dense(scratch_[2], {1, 1}, ACL_FLOAT);
        const Tensor e     = dense(scratch_[3], {1, 1}, ACL_FLOAT);
        const Tensor r     = dense(scratch_[4], {1, 1}, ACL_FLOAT);
        const Tensor w     = dense(scratch_[5], {s_.n_embd}, ACL_FLOAT);
        const Tensor z     = dense(scratch_[6], row, ACL_FLOAT);
        const int64_t d    = -1;
        aclIntArray * dims = aclCreateIntArray(&d, 1);
        mul(x, x, y);
        run(aclnnMeanGetWorkspaceSize, aclnnMean, y.get(), dims, true, ACL_FLOAT, m.get());
        aclDestroyIntArray(dims);
        add(m, e, r);
        run(aclnnSqrtGetWorkspaceSize, aclnnSqrt, r.get(), m.get());
        run(aclnnDivGetWorkspaceSize, aclnnDiv, x.get(), m.get(), y.get());
        mul(y, w, z);
    }

    // Cast to FP16, multiply, cast back: three launches and one pass over the weights.
    void matmul(int64_t k, int64_t n) {
        const Tensor in   = dense(scratch_[0], {1, k}, ACL_FLOAT);
        const Tensor half = dense(scratch_[1], {1, k}, ACL_FLOAT16);
        const Tensor out  = dense(scratch_[2], {1, n}, ACL_FLOAT16);
        const Tensor full = dense(scratch_[3], {1, n}, ACL_FLOAT);
        Tensor w;
        if (nz_) {
            const Dims dims = {k, n}, strides = {n, 1}, storage = {n / 16, k / 16, 16, 16};
            w.reset(aclCreateTensor(dims.data(), 2, ACL_FLOAT16, strides.data(), 0, ACL_FORMAT_FRACTAL_NZ,
                                    storage.data(), 4, weights_));
        } else {
            w = strided(weights_, {k, n}, {1, k}, ACL_FLOAT16);
        }
        cast(in, ACL_FLOAT16, half);
        run(aclnnMatmulGetWorkspaceSize, aclnnMatmul, half.get(), w.get(), out.get(), int8_t{0});
        cast(out, ACL_FLOAT, full);
    }

    // Rolled copy by two strided halves, then Mul, Mul, Add with the tables: six launches.
    void rope(int64_t n_heads) {
        const int64_t d = s_.head_dim, h = d / 2;
        const Tensor x   = dense(scratch_[0], {1, n_heads, d}, ACL_FLOAT);
        const Tensor y   = dense(scratch_[1], {1, n_heads, d}, ACL_FLOAT);
        const Tensor z   = dense(scratch_[2], {1, n_heads, d}, ACL_FLOAT);
        const Tensor out = dense(scratch_[3], {1, n_heads, d}, ACL_FLOAT);
        const Tensor c   = dense(scratch_[4], {1, 1, d}, ACL_FLOAT);
        const Tensor sn  = dense(scratch_[5], {1, 1, d}, ACL_FLOAT);
        const Tensor sg  = dense(scratch_[6], {1, 1, d}, ACL_FLOAT);
        const Tensor xl  = strided(scratch_[0], {1, n_heads, h}, {n_heads * d, d, 1}, ACL_FLOAT);
        const Tensor yl  = strided(scratch_[1], {1, n_heads, h}, {n_heads * d, d, 1}, ACL_FLOAT);
        run(aclnnInplaceCopyGetWorkspaceSize, aclnnInplaceCopy, yl.get(), xl.get());
        run(aclnnInplaceCopyGetWorkspaceSize, aclnnInplaceCopy, yl.get(), xl.get());
        mul(y, sg, z);
        mul(z, sn, y);
        mul(x, c, z);
        add(z, y, out);
    }

    // Cast to FP16, put one row: two launches.
    void write_cache() {
        const int64_t row    = s_.n_kv * s_.head_dim;
        const Tensor full    = dense(scratch_[0], {1, row}, ACL_FLOAT);
        const Tensor half    = dense(scratch_[1], {1, row}, ACL_FLOAT16);
        const Tensor cache   = dense(scratch_[2], {kWindow, row}, ACL_FLOAT16);
        const aclTensor * at = dense(index(), {1}, ACL_INT64).release();
        aclTensorList * list = aclCreateTensorList(&at, 1); // owns the index tensor from here on
        cast(full, ACL_FLOAT16, half);
        run(aclnnIndexPutImplGetWorkspaceSize, aclnnIndexPutImpl, cache.get(), list, half.get(), false, true);
        aclDestroyTensorList(list);
    }

    void * index() {
        if (index_ == nullptr) {
            index_             = device_.allocate(64);
            const int64_t zero = 0;
            REQUIRE(aclrtMemcpy(index_, 64, &zero, sizeof zero, ACL_MEMCPY_HOST_TO_DEVICE) == ACL_SUCCESS);
        }
        return index_;
    }

    void attention() {
        const int64_t d = s_.head_dim, q = s_.n_head * d, kv = s_.n_kv * d, group = s_.n_head / s_.n_kv;
        norm();
        matmul(s_.n_embd, q);
        matmul(s_.n_embd, kv);
        matmul(s_.n_embd, kv);
        for (const int64_t n : {q, kv, kv}) { // biases
            const Tensor x = dense(scratch_[0], {1, n}, ACL_FLOAT);
            const Tensor b = dense(scratch_[1], {n}, ACL_FLOAT);
            const Tensor y = dense(scratch_[2], {1, n}, ACL_FLOAT);
            add(x, b, y);
        }
        rope(s_.n_head);
        rope(s_.n_kv);
        write_cache();
        write_cache();
        // Scores: cast q, multiply, cast; scale, mask, soft max; cast, multiply, cast; make contiguous.
        const Tensor q32   = dense(scratch_[0], {s_.n_kv, group, d}, ACL_FLOAT);
        const Tensor q16   = dense(scratch_[1], {s_.n_kv, group, d}, ACL_FLOAT16);
        const Tensor keys  = strided(scratch_[2], {s_.n_kv, d, kWindow}, {d, 1, kv}, ACL_FLOAT16);
        const Tensor s16   = dense(scratch_[3], {s_.n_kv, group, kWindow}, ACL_FLOAT16);
        const Tensor s32   = dense(scratch_[4], {s_.n_kv, group, kWindow}, ACL_FLOAT);
        const Tensor mask  = dense(scratch_[5], {1, 1, kWindow}, ACL_FLOAT);
        const Tensor p32   = dense(scratch_[6], {s_.n_kv, group, kWindow}, ACL_FLOAT);
        const Tensor vals  = strided(scratch_[2], {s_.n_kv, kWindow, d}, {d, kv, 1}, ACL_FLOAT16);
        const Tensor o16   = dense(scratch_[1], {s_.n_kv, group, d}, ACL_FLOAT16);
        const Tensor o32   = dense(scratch_[0], {s_.n_kv, group, d}, ACL_FLOAT);
        const Scalar scale = number(0.125F);
        const Scalar one   = number(1.0F);
        cast(q32, ACL_FLOAT16, q16);
        run(aclnnMatmulGetWorkspaceSize, aclnnMatmul, q16.get(), keys.get(), s16.get(), int8_t{0});
        cast(s16, ACL_FLOAT, s32);
        run(aclnnInplaceMulsGetWorkspaceSize, aclnnInplaceMuls, s32.get(), scale.get());
        run(aclnnInplaceAddGetWorkspaceSize, aclnnInplaceAdd, s32.get(), mask.get(), one.get());
        run(aclnnSoftmaxGetWorkspaceSize, aclnnSoftmax, s32.get(), int64_t{-1}, p32.get());
        cast(p32, ACL_FLOAT16, s16);
        run(aclnnMatmulGetWorkspaceSize, aclnnMatmul, s16.get(), vals.get(), o16.get(), int8_t{0});
        cast(o16, ACL_FLOAT, o32);
        run(aclnnInplaceCopyGetWorkspaceSize, aclnnInplaceCopy, q32.get(), o32.get());
        matmul(q, s_.n_embd);
        residual();
    }

    void feed_forward() {
        norm();
        matmul(s_.n_embd, s_.n_ff);
        matmul(s_.n_embd, s_.n_ff);
        const Tensor gate = dense(scratch_[0], {1, s_.n_ff}, ACL_FLOAT);
        const Tensor act  = dense(scratch_[1], {1, s_.n_ff}, ACL_FLOAT);
        const Tensor out  = dense(scratch_[2], {1, s_.n_ff}, ACL_FLOAT);
        run(aclnnSiluGetWorkspaceSize, aclnnSilu, gate.get(), act.get());
        mul(act, gate, out);
        matmul(s_.n_ff, s_.n_embd);
        residual();
    }

    void residual() {
        const Tensor x = dense(scratch_[0], {1, s_.n_embd}, ACL_FLOAT);
        const Tensor y = dense(scratch_[1], {1, s_.n_embd}, ACL_FLOAT);
        const Tensor z = dense(scratch_[2], {1, s_.n_embd}, ACL_FLOAT);
        add(x, y, z);
    }

    Device & device_;
    Shape s_;
    bool nz_;
    void * weights_         = nullptr;
    void * workspace_       = nullptr;
    size_t workspace_bytes_ = 0;
    void * index_           = nullptr;
    std::array<void *, 7> scratch_{};
};

// Sum of the predicted times of every operator in the trace, ms, and their number.
std::pair<double, int> operators_in(const std::string & path) {
    std::ifstream trace(path);
    double total_us = 0;
    int n           = 0;
    for (std::string line; std::getline(trace, line);) {
        const std::string key = "\"predicted_us\":";
        const size_t at       = line.find(key);
        if (at != std::string::npos && line.find("\"aclnn") != std::string::npos) {
            const double us = std::strtod(line.c_str() + at + key.size(), nullptr);
            total_us += us;
            n += us > 0 ? 1 : 0;
        }
    }
    return {total_us / 1000.0, n};
}

void predict(const Shape & shape, bool nz, double published) {
    const std::string trace  = "addon-pattern-" + std::to_string(getpid()) + ".jsonl";
    const std::string config = R"({"chip": "310B4", "cann": "8.5", "threads": 2, "trace": ")" + trace + "\"}";
    setenv("ACL_SIM_CONFIG", config.c_str(), 1);
    const check::Ending ending = check::run_child([&] {
        Device device;
        Token(device, shape, nz).issue();
    });
    if (ending.signal != 0 || ending.exit_status != 0) {
        check::report(__FILE__, __LINE__, "the client failed:\n" + ending.output);
    }
    const auto [ms, n] = operators_in(trace);
    std::remove(trace.c_str());
    const double predicted = 1000.0 / ms;
    std::fprintf(stderr, "%s %-4s %d launches, predicted %.2f tok/s, published %.2f tok/s (%+.1f %%)\n",
                 shape.name, nz ? "dual" : "ND", n, predicted, published,
                 100.0 * (predicted / published - 1.0));
    CHECK_NEAR(predicted, published, kTolerance * published);
}

} // namespace

TEST_CASE(qwen_05b_nd_layout) {
    predict(kQwen05, false, 3.35);
}
TEST_CASE(qwen_05b_dual_layout) {
    predict(kQwen05, true, 10.84);
}
TEST_CASE(qwen_15b_nd_layout) {
    predict(kQwen15, false, 1.42);
}
TEST_CASE(qwen_15b_dual_layout) {
    predict(kQwen15, true, 4.55);
}

TEST_MAIN()
