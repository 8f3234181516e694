// A real board's refusals and the simulator's rules, one row each: fact sheet 4.4 (and the refusals of
// section 5 and rule M15), then section 8 from top to bottom. Every row is a client in a process of its own;
// it either checks what a board answers, or makes the mistake that must end it by name.
#include "sim-ops-rows.h"
#include "sim-runtime-client.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <dlfcn.h>
#include <thread>

using namespace client;

namespace {

struct BoardRow {
    std::string name; // "8.4 free of memory that queued work needs"
    std::string config;
    std::function<void()> client;
    std::string dies; // the client must end by abort() and say this; empty: it must end well
};

std::vector<Row> refusals() {
    return {
        REFUSES("RmsNorm", kNull, PROBE(RmsNorm, t.f, t.fv, 1e-6, t.f2, t.fr)),
        REFUSES("AddRmsNorm", kNull, PROBE(AddRmsNorm, t.h, t.h, t.hv, 1e-6, t.h2, t.fr, t.h3)),
        REFUSES("InplaceAddRmsNorm", kNull, PROBE(InplaceAddRmsNorm, t.h, t.h2, t.hv, 1e-6, t.fr)),
        REFUSES("RotaryPositionEmbedding", kInnerNull,
                PROBE(RotaryPositionEmbedding, t.h4, t.cos, t.cos, (int64_t) 0, t.h4b)),
        REFUSES("ApplyRotaryPosEmb", kInnerNull,
                PROBE(ApplyRotaryPosEmb, t.h4, t.h4b, t.cos, t.cos, (int64_t) 1)),
        REFUSES("FlashAttentionScore", kInner,
                PROBE(FlashAttentionScore, t.h4, t.h4, t.h4, nullptr, nullptr, nullptr, nullptr, nullptr,
                      0.125, 1.0, (int64_t) 64, (int64_t) 0, (int64_t) 1, t.layout, (int64_t) 0, (int64_t) 0,
                      t.fr, t.fr, t.fr, t.h4b)),
        REFUSES("PromptFlashAttention", kInnerNull, attention(t, true)),
        REFUSES("IncreFlashAttention", kInnerNull, attention(t, false)),
        REFUSES(
            "WeightQuantBatchMatmulV2", kRuntime,
            PROBE(WeightQuantBatchMatmulV2, t.h, t.i8, t.hv, nullptr, nullptr, nullptr, nullptr, 0, t.h2)),
        REFUSES(
            "WeightQuantBatchMatmulV3", kRuntime,
            PROBE(WeightQuantBatchMatmulV3, t.h, t.i8, t.hv, nullptr, nullptr, nullptr, nullptr, 0, 0, t.h2)),
        REFUSES("QuantMatmul", kRuntime, PROBE(QuantMatmul, t.i8, t.i8, nullptr, 1.0F, t.h)),
        REFUSES("QuantMatmulV3", kRuntime,
                PROBE(QuantMatmulV3, t.i8, t.i8, t.fv, nullptr, nullptr, false, false, t.h)),
        REFUSES("QuantMatmulV4", kRuntime,
                PROBE(QuantMatmulV4, t.i8, t.i8, t.fv, nullptr, nullptr, nullptr, false, false, t.h)),
        REFUSES("DynamicQuant", kRuntime, PROBE(DynamicQuant, t.h, nullptr, t.i8, t.fv)),
        REFUSES("AscendQuant", kRuntime, PROBE(AscendQuant, t.h, t.hv, nullptr, false, "round", 2, t.i8)),
        Row{"CalculateMatmulWeightSizeV2", kRuntime,
            [](Things & t) -> aclnnStatus {
                uint64_t n = 0;
                return aclnnCalculateMatmulWeightSizeV2(t.two, ACL_FLOAT16, &n);
            }},
        REFUSES("NpuFormatCast", kInvalid, PROBE(NpuFormatCast, t.h, t.h2)),
        REFUSES("LayerNorm FP32", kInnerNull,
                PROBE(LayerNorm, t.f, t.dim1, nullptr, nullptr, 1e-5, t.f2, nullptr, nullptr)),
        REFUSES("LayerNorm FP16 is taken", kOk,
                PROBE(LayerNorm, t.h, t.dim1, nullptr, nullptr, 1e-5, t.h2, nullptr, nullptr)),
        REFUSES("Topk", kInnerNull, PROBE(Topk, t.h, (int64_t) 4, (int64_t) -1, true, true, t.h2, t.i64)),
        REFUSES("Gather", kInnerNull, PROBE(Gather, t.f, (int64_t) 1, t.i64, t.f2)),
        REFUSES("SWhere", kInner, PROBE(SWhere, t.yes, t.f, t.f, t.f2)),
        REFUSES("Flip", kInner, PROBE(Flip, t.f, t.last, t.f2)),
        REFUSES("Dot", kInnerNull, PROBE(Dot, t.hv, t.hv, t.h1)),
        REFUSES("Atan2", kInnerNull, PROBE(Atan2, t.f, t.f, t.f2)),
        REFUSES("Lerps", kInnerNull, PROBE(Lerps, t.f, t.f, t.one, t.f2)),
        REFUSES("Diag", kInnerNull, PROBE(Diag, t.f, (int64_t) 0, t.fv)),
        REFUSES("Softplus", kInnerNull, PROBE(Softplus, t.f, t.one, t.one, t.f2)),
        REFUSES("Mish", kInnerNull, PROBE(Mish, t.f, t.f2)),
        REFUSES("IsClose", kInnerNull, PROBE(IsClose, t.f, t.f, 1e-5, 1e-8, false, t.yes)),
        REFUSES("DropoutDoMask", kInnerNull, PROBE(DropoutDoMask, t.f, t.yes, 0.1, t.f2)),
        REFUSES("RemainderTensorTensor", kInvalid, PROBE(RemainderTensorTensor, t.f, t.f, t.f2)),
        REFUSES("BatchNorm", kInvalid,
                PROBE(BatchNorm, t.h4, t.hv, t.hv, t.hv, t.hv, false, 0.1, 1e-5, t.h4b, t.fv, t.fv)),
        REFUSES("AvgPool2d", kInvalid,
                PROBE(AvgPool2d, t.h4, t.two, t.two, t.no_pad, false, false, (int64_t) 0, (int8_t) 0, t.h4b)),
        REFUSES("IsInf", kNull, PROBE(IsInf, t.f, t.yes)),
        REFUSES("SwiGlu", kNull, PROBE(SwiGlu, t.h, (int64_t) -1, t.h2)),
        REFUSES("GeGluV3", kNull, PROBE(GeGluV3, t.h, (int64_t) -1, (int64_t) 1, true, t.h2, t.h3)),
        REFUSES("GeGlu", kNull, PROBE(GeGlu, t.h, (int64_t) -1, (int64_t) 1, t.h2, t.h3)),
        REFUSES("IndexCopy", kInnerNull, PROBE(IndexCopy, t.f, (int64_t) 0, t.rows, t.f2, t.f2)),
        REFUSES("InplaceIndexCopy", kInnerNull, PROBE(InplaceIndexCopy, t.f, (int64_t) 0, t.rows, t.f2)),
        REFUSES("Sort", kInnerNull, PROBE(Sort, t.f, false, (int64_t) -1, true, t.f2, t.i64)),
        REFUSES("Argsort", kInnerNull, PROBE(Argsort, t.f, (int64_t) -1, true, t.i64)),
        REFUSES("MatmulWeightNz", kInvalid, PROBE(MatmulWeightNz, t.h, t.h2, t.h3, (int8_t) 0)),
        REFUSES("AddmmWeightNz", kInvalid,
                PROBE(AddmmWeightNz, t.h, t.h, t.h2, t.one, t.one, t.h3, (int8_t) 0)),
        // Not operators with a phase 1 that answers.
        Row{"FusedInferAttentionScoreV2", kOk,
            [](Things &) -> aclnnStatus {
                return dlsym(RTLD_DEFAULT, "aclnnFusedInferAttentionScoreV2GetWorkspaceSize") != nullptr;
            }},
        Row{"Memcpy2d", ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
            [](Things & t) -> aclnnStatus {
                std::array<char, 16> host{};
                return aclrtMemcpy2d(t.single.data, 8, host.data(), 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE);
            }},
    };
}

void check_refusal(const Row & row) {
    Things things;
    CHECK_EQ(row.call(things), row.want);
}

template <aclnnStatus (*First)(const aclTensor *, const aclTensor *, aclTensor *, uint64_t *,
                               aclOpExecutor **)>
void compare_int64() {
    Things t;
    probe(First, t.i64, t.i64, t.yes);
}

// ---- clients of section 8 ----

void leave(std::initializer_list<aclrtStream> streams, std::initializer_list<void *> blocks) {
    for (aclrtStream s : streams) {
        CHECK_EQ(aclrtDestroyStream(s), ACL_SUCCESS);
    }
    for (void * block : blocks) {
        CHECK_EQ(aclrtFree(block), ACL_SUCCESS);
    }
    end();
}

void start() {
    REQUIRE(aclInit(nullptr) == ACL_SUCCESS);
    REQUIRE(aclrtSetDevice(0) == ACL_SUCCESS);
}

void chip_is(const char * name, size_t total_mb) {
    start();
    size_t n_free = 0, n_total = 0;
    CHECK_EQ(std::string(aclrtGetSocName()), name);
    CHECK_EQ(aclrtGetMemInfo(ACL_DDR_MEM, &n_free, &n_total), ACL_SUCCESS);
    CHECK_EQ(n_total >> 20, total_mb);
    end();
}

void run_mode_is(aclrtRunMode want) {
    start();
    aclrtRunMode mode = want == ACL_HOST ? ACL_DEVICE : ACL_HOST;
    CHECK_EQ(aclrtGetRunMode(&mode), ACL_SUCCESS);
    CHECK_EQ(mode, want);
    end();
}

void virtual_memory() {
    start();
    void * p = nullptr;
    CHECK_EQ(aclrtReserveMemAddress(&p, kBytes, 0, nullptr, 0), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    end();
}

void wrong_kind() {
    start();
    std::array<char, 16> host{};
    aclrtMemcpy(device_memory(), kBytes, host.data(), host.size(), ACL_MEMCPY_DEVICE_TO_DEVICE);
}

void thread_without_context() {
    start();
    aclError rc = ACL_SUCCESS;
    std::thread([&] {
        void * p = nullptr;
        rc       = aclrtMalloc(&p, kBytes, ACL_MEM_MALLOC_HUGE_FIRST);
    }).join();
    CHECK_EQ(rc, ACL_ERROR_RT_CONTEXT_NULL);
    end();
}

void init_twice() {
    start();
    CHECK_EQ(aclInit(nullptr), ACL_ERROR_REPEAT_INITIALIZE);
    end();
}

void reset_and_finalize_twice() {
    start();
    CHECK_EQ(aclrtResetDevice(0), ACL_SUCCESS);
    CHECK_EQ(aclrtResetDevice(0), ACL_ERROR_RT_CONTEXT_RELEASE_ERROR);
    CHECK_EQ(aclFinalize(), ACL_SUCCESS);
    CHECK_EQ(aclFinalize(), ACL_ERROR_REPEAT_FINALIZE);
}

void exit_without_reset() {
    start();
    std::exit(0);
}

void leak_at_finalize() {
    start();
    device_memory();
    aclrtResetDevice(0);
    aclFinalize();
}

void free_while_queued() {
    start();
    aclrtStream s = stream();
    void * x      = device_memory();
    launch(x, device_memory(), s);
    aclrtFree(x);
}

void overwrite_while_queued() {
    start();
    aclrtStream s = stream();
    void * x      = device_memory();
    launch(x, device_memory(), s);
    const std::array<char, 16> host{};
    aclrtMemcpy(x, kBytes, host.data(), host.size(), ACL_MEMCPY_HOST_TO_DEVICE);
}

void workspace_freed_early() {
    Board board;
    const Array a(board, ACL_FLOAT16, 1024), b(board, ACL_FLOAT16, 4096), y(board, ACL_FLOAT16, 64);
    const Tensor ta(a, {1, 64}), tb(b, {64, 64}), ty(y, {1, 64});
    uint64_t size            = 0;
    aclOpExecutor * executor = nullptr;
    void * workspace         = nullptr;
    aclnnMatmulGetWorkspaceSize(ta, tb, ty, 0, &size, &executor);
    aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST);
    aclnnMatmul(workspace, size, executor, board.stream);
    aclrtFree(workspace);
}

void fault_shows_late_and_poisons() {
    start();
    aclrtStream s = stream();
    void *x = device_memory(), *y = device_memory();
    launch(x, y, s); // breaks; launch() demands 0
    launch(x, y, s);
    CHECK_EQ(aclrtSynchronizeStream(s), ACL_ERROR_RT_AICORE_EXCEPTION);
    CHECK_EQ(aclrtMemsetAsync(x, kBytes, 0, kBytes, s), ACL_ERROR_RT_AICORE_EXCEPTION);
    leave({s}, {x, y});
}

// [1,K] x [K,N] with `n_rows` rows of memory behind the one row of the left operand.
void over_read(int64_t n_rows, aclError want) {
    Board board;
    const int64_t k = 1024, n = 64;
    const Array a(board, ACL_FLOAT16, n_rows * k), b(board, ACL_FLOAT16, n * k), y(board, ACL_FLOAT16, n);
    const Tensor ta(a, {1, k}), tb(b, {k, n}, {1, k}), ty(y, {1, n});
    uint64_t size            = 0;
    aclOpExecutor * executor = nullptr;
    REQUIRE(aclnnMatmulGetWorkspaceSize(ta, tb, ty, 0, &size, &executor) == 0);
    CHECK_EQ(aclnnMatmul(board.allocate(size), size, executor, board.stream), 0);
    CHECK_EQ(aclrtSynchronizeStream(board.stream), want);
}

void phase_1_decides() {
    Things t;
    CHECK_EQ(PROBE(Silu, nullptr, t.f), kNull);
    CHECK_EQ(PROBE(Silu, t.b, t.b2), kInvalid);
    CHECK_EQ(PROBE(Topk, t.h, (int64_t) 4, (int64_t) -1, true, true, t.h2, t.i64), kInnerNull);
    CHECK(dlsym(RTLD_DEFAULT, "aclnnGroupedMatmulV3") == nullptr);
}

void matmul_is(aclnnStatus want, int64_t m, int64_t k, int64_t n, Weight weight) {
    const Board board;
    CHECK_EQ(product_of(m, k, n, weight), want);
}

void workspaces() {
    const Board board;
    uint64_t m4 = 1, m5 = 0, m6 = 0;
    CHECK_EQ(product_of(16, 4096, 12288, {}, &m4), kOk);
    CHECK_EQ(product_of(1, 4096, 12288, {}, &m5), kOk);
    CHECK_EQ(product_of(1, 4096, 12288, nz_weight(false), &m6), kOk);
    CHECK_EQ(m4, 0U);
    CHECK_EQ(m5, 101187584U); // 101.19 MB, what a board asked for
    CHECK_EQ(m6, 524288U);
}

void executor_twice() {
    Board board;
    const Array x(board, ACL_FLOAT, 64), y(board, ACL_FLOAT, 64);
    const Tensor tx(x, {64}), ty(y, {64});
    uint64_t size            = 0;
    aclOpExecutor * executor = nullptr;
    aclnnNegGetWorkspaceSize(tx, ty, &size, &executor);
    aclnnNeg(nullptr, size, executor, board.stream);
    aclnnNeg(nullptr, size, executor, board.stream);
}

void list_twice() {
    Board board;
    const Array x(board, ACL_FLOAT, 64);
    const aclTensor * member = Tensor(x, {64}).release();
    aclTensorList * list     = aclCreateTensorList(&member, 1);
    aclDestroyTensorList(list);
    aclDestroyTensorList(list);
}

void misaligned(size_t shift_of_data, size_t shift_of_workspace) {
    Board board;
    const Array a(board, ACL_FLOAT16, 4096), b(board, ACL_FLOAT16, 4096), y(board, ACL_FLOAT16, 4096);
    Array moved = a;
    moved.data  = static_cast<char *>(a.data) + shift_of_data;
    const Tensor ta(moved, {1, 64}), tb(b, {64, 64}), ty(y, {1, 64});
    uint64_t size            = 0;
    aclOpExecutor * executor = nullptr;
    aclnnMatmulGetWorkspaceSize(ta, tb, ty, 0, &size, &executor);
    auto * workspace = static_cast<char *>(board.allocate(size + 64));
    aclnnMatmul(workspace + shift_of_workspace, size, executor, board.stream);
}

void saturation() {
    Board board;
    const Array x(board, ACL_FLOAT16, Values{60000, -60000, 0}), y(board, ACL_FLOAT16, 3);
    const Array zero(board, ACL_FLOAT, Values{1, -1, 0}), z(board, ACL_FLOAT, 3),
        nought(board, ACL_FLOAT, Values{0, 0, 0});
    CHECK_EQ(board.call(aclnnAddGetWorkspaceSize, aclnnAdd, (const aclTensor *) Tensor(x, {3}),
                        (const aclTensor *) Tensor(x, {3}), (const aclScalar *) Scalar(1.0F),
                        (aclTensor *) Tensor(y, {3})),
             0);
    CHECK_EQ(board.call(aclnnDivGetWorkspaceSize, aclnnDiv, (const aclTensor *) Tensor(zero, {3}),
                        (const aclTensor *) Tensor(nought, {3}), (aclTensor *) Tensor(z, {3})),
             0);
    const Values sums = y.download(), quotients = z.download();
    CHECK_EQ(sums[0], 65504.0);
    CHECK_EQ(sums[1], -65504.0);
    CHECK_EQ(quotients[0], double(FLT_MAX)); // instead of infinity
    CHECK_EQ(quotients[2], 0.0);             // instead of NaN
}

// 2048 + 1 * 15: lost one by one in FP16, kept in FP32 sums that are rounded once.
void matmul_sums_in_fp32() {
    Board board;
    Values row(256, 1.0); // with the rows that a tile reads along
    row[0] = 2048;
    const Array a(board, ACL_FLOAT16, row), b(board, ACL_FLOAT16, Values(256, 1.0)),
        y(board, ACL_FLOAT16, 16);
    CHECK_EQ(board.call(aclnnMatmulGetWorkspaceSize, aclnnMatmul, (const aclTensor *) Tensor(a, {1, 16}),
                        (const aclTensor *) Tensor(b, {16, 16}), (aclTensor *) Tensor(y, {1, 16}),
                        (int8_t) 0),
             0);
    const Values sums = y.download();
    CHECK_EQ(sums[0], 2064.0); // 2063 lies between 2062 and 2064
}

void write_past_the_view() {
    Board board;
    const Array x(board, ACL_FLOAT, 4096), y(board, ACL_FLOAT, 64);
    const Tensor tx(x, {4096}), ty(y, {4096}, {}, 0, ACL_FORMAT_ND, {4096});
    uint64_t size            = 0;
    aclOpExecutor * executor = nullptr;
    aclnnNegGetWorkspaceSize(tx, ty, &size, &executor);
    aclnnNeg(nullptr, size, executor, board.stream);
}

void host_read() {
    start();
    volatile int64_t * p = static_cast<int64_t *>(device_memory());
    std::fprintf(stderr, "%lld\n", static_cast<long long>(p[1]));
}

void host_access_allowed() {
    start();
    auto * p = static_cast<int64_t *>(device_memory());
    p[1]     = 310;
    CHECK_EQ(p[1], 310);
    leave({}, {p});
}

[[maybe_unused]] void c_free() {
    start();
    std::free(device_memory());
}

void predicted_time() {
    start();
    aclrtStream s = stream();
    void *x = device_memory(), *y = device_memory();
    aclrtEvent from = nullptr, to = nullptr;
    REQUIRE(aclrtCreateEvent(&from) == ACL_SUCCESS && aclrtCreateEvent(&to) == ACL_SUCCESS);
    REQUIRE(aclrtRecordEvent(from, s) == ACL_SUCCESS);
    launch(x, y, s);
    REQUIRE(aclrtRecordEvent(to, s) == ACL_SUCCESS);
    REQUIRE(aclrtSynchronizeStream(s) == ACL_SUCCESS);
    float ms = 0;
    CHECK_EQ(aclrtEventElapsedTime(&ms, from, to), ACL_SUCCESS);
    CHECK(ms >= 0.014F && ms < 0.05F); // one launch and 8 KiB
    aclrtDestroyEvent(from);
    aclrtDestroyEvent(to);
    leave({s}, {x, y});
}

void event_late() {
    start();
    aclrtStream s = stream();
    aclrtEvent e  = nullptr;
    REQUIRE(aclrtCreateEvent(&e) == ACL_SUCCESS && aclrtRecordEvent(e, s) == ACL_SUCCESS);
    REQUIRE(aclrtSynchronizeStream(s) == ACL_SUCCESS);
    aclrtEventRecordedStatus recorded = ACL_EVENT_RECORDED_STATUS_COMPLETE;
    aclrtEventWaitStatus waited       = ACL_EVENT_WAIT_STATUS_COMPLETE;
    CHECK_EQ(aclrtQueryEventStatus(e, &recorded), ACL_SUCCESS);
    CHECK_EQ(aclrtQueryEventWaitStatus(e, &waited), ACL_SUCCESS);
    CHECK_EQ(int(recorded), 0); // not ready, and the same state the other way round:
    CHECK_EQ(int(waited), 1);
    CHECK_EQ(aclrtSynchronizeEvent(e), ACL_SUCCESS);
    CHECK_EQ(aclrtQueryEventStatus(e, &recorded), ACL_SUCCESS);
    CHECK_EQ(int(recorded), 1);
    aclrtDestroyEvent(e);
    leave({s}, {});
}

void event_never_recorded() {
    start();
    aclrtEvent e = nullptr;
    aclrtCreateEvent(&e);
    aclrtStreamWaitEvent(stream(), e);
}

void out_of_memory() {
    start();
    size_t n_free = 0, n_total = 0;
    REQUIRE(aclrtGetMemInfo(ACL_DDR_MEM, &n_free, &n_total) == ACL_SUCCESS);
    CHECK_EQ(n_total >> 20, 15609U);
    CHECK_EQ(n_free >> 20, 13609U);
    void * p = nullptr;
    CHECK_EQ(aclrtMalloc(&p, n_free + 1, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_RT_MEMORY_ALLOCATION);
    end();
}

Weight nz() {
    return nz_weight(false);
}

std::vector<BoardRow> rules() {
    const std::string none, aicore = R"({"faults": [{"fault": "aicore_exception"}]})";
    return {
        {"8.1 310B4", none, [] { chip_is("Ascend310B4", 15609); }, ""},
        {"8.1 310B1", R"({"chip": "310B1", "memory_mb": 23673})", [] { chip_is("Ascend310B1", 23673); }, ""},
        {"8.1 310B1 refuses alike", R"({"chip": "310B1"})", phase_1_decides, ""},
        {"8.2 unified is ACL_DEVICE", R"({"run_mode": "unified"})", [] { run_mode_is(ACL_DEVICE); }, ""},
        {"8.2 separate is ACL_HOST", R"({"run_mode": "separate"})", [] { run_mode_is(ACL_HOST); }, ""},
        {"8.2 virtual memory", none, virtual_memory, ""},
        {"8.2 kind against addresses", R"({"run_mode": "separate"})", wrong_kind,
         "the kind says D2D, the addresses are H2D"},
        {"8.3 call without a context", none, thread_without_context, ""},
        {"8.3 init twice", none, init_twice, ""},
        {"8.3 reset and finalize twice", none, reset_and_finalize_twice, ""},
        {"8.3 exit without reset", none, exit_without_reset, "exit without reset"},
        {"8.3 leak at the end", none, leak_at_finalize, "device memory: aclrtMalloc #1, 4096 bytes"},
        {"8.4 free of memory that queued work needs", none, free_while_queued,
         "memory in use: aclrtFree frees memory that aclnnSilu"},
        {"8.4 memory reused while queued", none, overwrite_while_queued,
         "memory in use: aclrtMemcpy overwrites memory that aclnnSilu"},
        {"8.4 workspace freed early", R"({"delay_us_max": 2000})", workspace_freed_early,
         "memory in use: aclrtFree frees memory that aclnnMatmul"},
        {"8.5 fault at the next sync, context poisoned", aicore, fault_shows_late_and_poisons, ""},
        {"8.5 over-read beyond what is mapped", none, [] { over_read(1, ACL_ERROR_RT_AICORE_EXCEPTION); },
         ""},
        {"8.6 phase 1 decides", none, phase_1_decides, ""},
        {"8.7 workspace by M4, M5 and M6", none, workspaces, ""},
        {"8.7 M2 FP32 and KEEP_DTYPE", none,
         [] {
             Weight w;
             w.self = ACL_FLOAT;
             matmul_is(kInvalid, 4, 32, 32, w);
         },
         ""},
        {"8.7 BF16", none,
         [] {
             Weight w;
             w.self = w.mat2 = w.out = ACL_BF16;
             matmul_is(kInvalid, 4, 32, 32, w);
         },
         ""},
        {"8.7 NZ, M = 15", none, [] { matmul_is(kOk, 15, 32, 64, nz()); }, ""},
        {"8.7 NZ, M = 16", none, [] { matmul_is(kInnerNull, 16, 32, 64, nz()); }, ""},
        {"8.7 NZ, M = 17", none, [] { matmul_is(kInnerNull, 17, 32, 64, nz()); }, ""},
        {"8.7 NZ, M = 17 by the switch", R"({"nz_m_over_16": true})",
         [] { matmul_is(kOk, 17, 32, 64, nz()); }, ""},
        {"8.7 M12 on CANN 8.3", R"({"cann": "8.3"})", [] { matmul_is(kRuntime, 64, 4112, 64, {}); }, ""},
        {"8.7 M12 not on CANN 8.5", none, [] { matmul_is(kOk, 64, 4112, 64, {}); }, ""},
        {"8.8 executor used twice", none, executor_twice, "'executor' is no living aclOpExecutor"},
        {"8.8 list destroyed twice", none, list_twice, "rule 8: aclDestroyTensorList"},
        {"8.8 tensor data at 16 bytes", none, [] { misaligned(16, 0); }, "32"},
        {"8.8 workspace at 32 bytes", none, [] { misaligned(0, 32); }, "64"},
        {"8.9 saturation", none, saturation, ""},
        {"8.9 FP32 sums", none, matmul_sums_in_fp32, ""},
        {"8.10 write beyond the memory", none, write_past_the_view, "FATAL"},
        {"8.10 a mapped tile may be read", none, [] { over_read(16, ACL_SUCCESS); }, ""},
        {"8.11 host dereference", none, host_read, "host dereference of device memory: 8 bytes into"},
#ifndef __SANITIZE_THREAD__ // whose allocator ends the process first, in its own words
        {"8.11 free() of a device pointer", none, c_free, "host dereference of device memory"},
#endif
        {"8.11 host access by the switch", R"({"host_access": true})", host_access_allowed, ""},
        {"8.12 predicted time", none, predicted_time, ""},
        {"8.13 late event, inverted enums", R"({"event_late_us": 100000})", event_late, ""},
        {"8.13 wait for an event nobody recorded", none, event_never_recorded, "event misuse"},
        {"8.14 default memory, out of memory", none, out_of_memory, ""},
        {"4.4 LtTensor on INT64", none, compare_int64<aclnnLtTensorGetWorkspaceSize>, "FATAL"},
        {"4.4 GtTensor on INT64", none, compare_int64<aclnnGtTensorGetWorkspaceSize>, "FATAL"},
    };
}

} // namespace

TEST_CASE(every_row_of_the_sheet) {
    std::vector<BoardRow> rows = rules();
    for (const Row & row : refusals()) {
        rows.push_back({"4.4 " + row.name, "", [row] { check_refusal(row); }, ""});
    }
    std::sort(rows.begin(), rows.end(),
              [](const BoardRow & a, const BoardRow & b) { return a.name < b.name; });
    for (const BoardRow & row : rows) {
        const check::Ending ending = check::run_child([&] {
            check::failures() = 0; // those of the rows before are not this one's
            configure(row.config);
            row.client();
        });
        const bool passed =
            row.dies.empty() ? ending.signal == 0 && ending.exit_status == 0
                             : ending.signal == SIGABRT && ending.output.find(row.dies) != std::string::npos;
        std::fprintf(stderr, "  %s %s\n", passed ? "ok  " : "FAIL", row.name.c_str());
        if (!passed) {
            check::report(__FILE__, __LINE__,
                          row.name + ": signal " + std::to_string(ending.signal) + ", exit " +
                              std::to_string(ending.exit_status) + "\n" + ending.output);
        }
    }
    std::fprintf(stderr, "  %zu rows\n", rows.size());
}

TEST_CASE(every_refused_operator_has_a_row) {
    const std::vector<Row> rows = refusals();
    const char * const names[]  = {
#define NAME(name, arguments) #name,
        ACLNN_REFUSED_OPS(NAME)
#undef NAME
    };
    for (const std::string name : names) {
        const bool has_row = std::any_of(rows.begin(), rows.end(),
                                         [&](const Row & row) { return "aclnn" + row.name == name; });
        if (!has_row) {
            check::report(__FILE__, __LINE__, name + " is refused, and no row says so");
        }
    }
}

TEST_MAIN()
