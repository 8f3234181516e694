// What a 310B refuses, a row each: all of fact sheet 4.4, the dtype lists of 4.3, the matmul rules of 4.2,
// and rules 6 and 7 of section 8 (rules 8 to 10 end the process: sim-ops-misuse.cpp). Phase 1 only.
//
// A real board's answer is the expectation; a row that says 0 is something the board takes.
#include "sim-ops-client.h"

#include <dlfcn.h>

using namespace client;

namespace {

constexpr aclnnStatus kOk = 0, kNull = 161001, kInvalid = 161002, kRuntime = 361001, kInner = 561000,
                      kInnerNull = 561103;

// One phase 1; an accepted plan is thrown away.
template <typename First, typename... Args> aclnnStatus probe(First first, Args &&... args) {
    uint64_t n_bytes         = 0;
    aclOpExecutor * executor = nullptr;
    const aclnnStatus code   = first(args..., &n_bytes, &executor);
    if (code == kOk) {
        CHECK_EQ(aclDestroyAclOpExecutor(executor), 0);
    } else {
        CHECK(executor == nullptr);
        CHECK(aclGetRecentErrMsg() != nullptr); // every refusal says why
    }
    return code;
}

#define PROBE(Name, ...) probe(aclnn##Name##GetWorkspaceSize, __VA_ARGS__)

// 64 x 64 tensors of every kind, and what else the calls want.
struct Things {
    Board board;
    Array half{board, ACL_FLOAT16, 4096}, half2{board, ACL_FLOAT16, 4096}, half3{board, ACL_FLOAT16, 4096};
    Array single{board, ACL_FLOAT, 4096}, single2{board, ACL_FLOAT, 4096};
    Array brain{board, ACL_BF16, 4096}, brain2{board, ACL_BF16, 4096};
    Array bytes{board, ACL_INT8, 4096}, words{board, ACL_INT32, 4096}, longs{board, ACL_INT64, 4096};
    Array flags{board, ACL_BOOL, 4096}, row_index{board, ACL_INT64, 64}, fine_index{board, ACL_DOUBLE, 64};
    Tensor h{half, {64, 64}}, h2{half2, {64, 64}}, h3{half3, {64, 64}}, hv{half2, {64}}, h1{half3, {1}};
    Tensor f{single, {64, 64}}, f2{single2, {64, 64}}, fv{single2, {64}}, fr{single2, {64, 1}};
    Tensor b{brain, {64, 64}}, b2{brain2, {64, 64}}, bv{brain2, {64}};
    Tensor i8{bytes, {64, 64}}, i32{words, {64, 64}}, i64{longs, {64, 64}}, yes{flags, {64, 64}},
        rows{row_index, {64}};
    Tensor h4{half, {1, 1, 64, 64}}, h4b{half2, {1, 1, 64, 64}}, cos{half3, {1, 1, 1, 64}};
    Tensor f_index{fine_index, {64}};
    Scalar one{1.0F};
    Ints dim1{64}, last{-1}, two{2, 2}, pair{1, 1}, no_pad{0, 0};
    char layout[5] = "BNSD";
};

struct Row {
    std::string name;
    aclnnStatus want;
    std::function<aclnnStatus(Things &)> call;
};

#define REFUSES(name, code, expression)                                                                      \
    Row {                                                                                                    \
        name, code, [](Things & t) -> aclnnStatus { return expression; }                                     \
    }

void judge(const std::vector<Row> & rows) {
    Things things;
    for (const Row & row : rows) {
        const aclnnStatus got = row.call(things);
        if (got != row.want) {
            check::report(__FILE__, __LINE__,
                          row.name + ": got " + std::to_string(got) + ", a 310B answers " +
                              std::to_string(row.want));
        }
    }
}

aclnnStatus attention(Things & t, bool prompt) {
    if (prompt) {
        return PROBE(PromptFlashAttention, t.h4, t.h4, t.h4, nullptr, nullptr, nullptr, (int64_t) 1, 0.125,
                     (int64_t) 64, (int64_t) 0, t.layout, (int64_t) 1, t.h4b);
    }
    const aclTensor * member = Tensor(t.half, {1, 1, 64, 64}).release();
    aclTensorList * list     = aclCreateTensorList(&member, 1);
    const aclnnStatus code   = PROBE(IncreFlashAttention, t.h4, list, list, nullptr, nullptr, nullptr,
                                     (int64_t) 1, 0.125, t.layout, (int64_t) 1, t.h4b);
    aclDestroyTensorList(list);
    return code;
}

aclnnStatus cat(Array & x, Array & y) {
    const aclTensor * parts[] = {Tensor(x, {2, 4}).release(), Tensor(x, {2, 4}).release()};
    aclTensorList * list      = aclCreateTensorList(parts, 2);
    const Tensor out(y, {4, 4});
    const aclnnStatus code = PROBE(Cat, list, (int64_t) 0, out);
    aclDestroyTensorList(list);
    return code;
}

// Matmul [m,k] x [k,n] on made-up memory: only phase 1 looks at it.
struct Weight {
    aclDataType self = ACL_FLOAT16, mat2 = ACL_FLOAT16, out = ACL_FLOAT16;
    bool nz = false, transposed = false;
    int8_t cube_math_type = 0;
    aclFormat format      = ACL_FORMAT_UNDEFINED; // instead of FRACTAL_NZ
    uint64_t workspace    = 0;
};

aclnnStatus product_of(int64_t m, int64_t k, int64_t n, Weight w = {}, uint64_t * workspace = nullptr) {
    alignas(64) static char nowhere[64];
    const Dims da = {m, k}, db = {k, n}, dy = {m, n}, plain = {n, 1}, turned = {1, k};
    const Dims fractal = {(n + 15) / 16, (k + 15) / 16, 16, 16}, flat = {k * n};
    const aclFormat nz = w.format != ACL_FORMAT_UNDEFINED ? w.format : ACL_FORMAT_FRACTAL_NZ;
    const Dims & store = w.nz ? fractal : flat;
    aclTensor * a = aclCreateTensor(da.data(), 2, w.self, nullptr, 0, ACL_FORMAT_ND, da.data(), 2, nowhere);
    aclTensor * b = aclCreateTensor(db.data(), 2, w.mat2, (w.transposed ? turned : plain).data(), 0,
                                    w.nz ? nz : ACL_FORMAT_ND, store.data(), store.size(), nowhere);
    aclTensor * y = aclCreateTensor(dy.data(), 2, w.out, nullptr, 0, ACL_FORMAT_ND, dy.data(), 2, nowhere);
    uint64_t n_bytes         = 0;
    aclOpExecutor * executor = nullptr;
    const aclnnStatus code   = aclnnMatmulGetWorkspaceSize(a, b, y, w.cube_math_type, &n_bytes, &executor);
    if (code == kOk) {
        aclDestroyAclOpExecutor(executor);
    }
    if (workspace != nullptr) {
        *workspace = n_bytes;
    }
    aclDestroyTensor(a);
    aclDestroyTensor(b);
    aclDestroyTensor(y);
    return code;
}

Weight nz_weight(bool transposed) {
    Weight w;
    w.nz         = true;
    w.transposed = transposed;
    return w;
}

struct MatmulRow {
    std::string name;
    aclnnStatus want;
    int64_t m, k, n;
    Weight weight;
};

void judge_matmul(const std::vector<MatmulRow> & rows) {
    const Board board;
    for (const MatmulRow & row : rows) {
        const aclnnStatus got = product_of(row.m, row.k, row.n, row.weight);
        if (got != row.want) {
            check::report(__FILE__, __LINE__,
                          row.name + ": got " + std::to_string(got) + ", a 310B answers " +
                              std::to_string(row.want));
        }
    }
}

} // namespace

TEST_CASE(refusals_of_real_boards) { // fact sheet 4.4, top to bottom, then section 5 and rule M15
    judge({
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
    });
}

TEST_CASE(refused_operators_are_listed_completely) {
    // Each name of the list has a code; a new name without one ends the process here.
    const char * const names[] = {
#define NAME(name, arguments) #name,
        ACLNN_REFUSED_OPS(NAME)
#undef NAME
    };
    CHECK(sizeof names / sizeof *names >= 41);
    CHECK(sizeof names / sizeof *names <=
          41); // rows above: 41 of the list, LayerNorm and one plain function apart
}

TEST_CASE(unknown_operators_are_absent) { // rule 6: a missing header means a missing symbol
    const Board board;
    void * opapi = dlopen(NATIVE_SIM_TOOLKIT "/lib64/libopapi.so", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(opapi != nullptr);
    for (const char * name :
         {"aclnnFusedInferAttentionScoreV2", "aclnnFusedInferAttentionScoreV2GetWorkspaceSize",
          "aclnnGroupedMatmulV3", "aclnnRecurrentGatedDeltaRule", "aclnnNoSuchOperator"}) {
        CHECK(dlsym(opapi, name) == nullptr);
    }
    CHECK(dlsym(opapi, "aclnnMatmulGetWorkspaceSize") != nullptr);
    dlclose(opapi);
}

TEST_CASE(null_tensors_are_161001) { // rule 6
    judge({
        REFUSES("Add self", kNull, PROBE(Add, nullptr, t.f, t.one, t.f2)),
        REFUSES("Add other", kNull, PROBE(Add, t.f, nullptr, t.one, t.f2)),
        REFUSES("Add alpha", kNull, PROBE(Add, t.f, t.f, nullptr, t.f2)),
        REFUSES("Add out", kNull, PROBE(Add, t.f, t.f, t.one, nullptr)),
        REFUSES("Muls other", kNull, PROBE(Muls, t.f, nullptr, t.f2)),
        REFUSES("Clamp both", kNull, PROBE(Clamp, t.f, nullptr, nullptr, t.f2)),
        REFUSES("Cast out", kNull, PROBE(Cast, t.f, ACL_FLOAT16, nullptr)),
        REFUSES("Permute dims", kNull, PROBE(Permute, t.f, nullptr, t.f2)),
        REFUSES("Cat list", kNull, PROBE(Cat, nullptr, (int64_t) 0, t.f2)),
        REFUSES("Matmul mat2", kNull, PROBE(Matmul, t.h, nullptr, t.h2, (int8_t) 0)),
        REFUSES("GatherV2 index", kNull, PROBE(GatherV2, t.f, (int64_t) 0, nullptr, t.f2)),
        REFUSES("IndexPutImpl indices", kNull, PROBE(IndexPutImpl, t.f, nullptr, t.f2, false, true)),
        REFUSES("LayerNorm shape", kNull,
                PROBE(LayerNorm, t.h, nullptr, nullptr, nullptr, 1e-5, t.h2, nullptr, nullptr)),
        REFUSES("Tril out", kNull, PROBE(Tril, t.f, (int64_t) 0, nullptr)),
        Row{"no room for the answers", kNull,
            [](Things & t) { return aclnnSiluGetWorkspaceSize(t.f, t.f2, nullptr, nullptr); }},
    });
}

TEST_CASE(dtypes_outside_the_lists_are_161002) { // fact sheet 4.3, rule 6
    judge({
        REFUSES("Add BF16", kInvalid, PROBE(Add, t.b, t.b, t.one, t.b2)),
        REFUSES("Sub BF16", kInvalid, PROBE(Sub, t.b, t.b, t.one, t.b2)),
        REFUSES("Mul BF16", kInvalid, PROBE(Mul, t.b, t.b, t.b2)),
        REFUSES("Div BF16", kInvalid, PROBE(Div, t.b, t.b, t.b2)),
        REFUSES("Adds BF16", kInvalid, PROBE(Adds, t.b, t.one, t.one, t.b2)),
        REFUSES("Muls BF16", kInvalid, PROBE(Muls, t.b, t.one, t.b2)),
        REFUSES("InplaceAdd BF16", kInvalid, PROBE(InplaceAdd, t.b, t.b2, t.one)),
        REFUSES("Cast from BF16", kInvalid, PROBE(Cast, t.b, ACL_FLOAT, t.f)),
        REFUSES("Cast to BF16", kInvalid, PROBE(Cast, t.f, ACL_BF16, t.b)),
        REFUSES("Softmax BF16", kInvalid, PROBE(Softmax, t.b, (int64_t) -1, t.b2)),
        REFUSES("Softmax INT32", kInvalid, PROBE(Softmax, t.i32, (int64_t) -1, t.f)),
        REFUSES("Silu BF16", kInvalid, PROBE(Silu, t.b, t.b2)),
        REFUSES("Silu INT32", kInvalid, PROBE(Silu, t.i32, t.i32)),
        REFUSES("Gelu BF16", kInvalid, PROBE(Gelu, t.b, t.b2)),
        REFUSES("GeluV2 BF16", kInvalid, PROBE(GeluV2, t.b, (int64_t) 1, t.b2)),
        REFUSES("GeluV2 form 2", kInvalid, PROBE(GeluV2, t.f, (int64_t) 2, t.f2)),
        REFUSES("LayerNorm BF16", kInvalid,
                PROBE(LayerNorm, t.b, t.dim1, nullptr, nullptr, 1e-5, t.b2, nullptr, nullptr)),
        REFUSES("GatherV2 BF16", kInvalid, PROBE(GatherV2, t.b, (int64_t) 0, t.rows, t.b2)),
        REFUSES("GatherV2 index DOUBLE", kInvalid, PROBE(GatherV2, t.f, (int64_t) 0, t.f_index, t.f2)),
        REFUSES("Embedding BF16", kInvalid, PROBE(Embedding, t.b, t.rows, t.b2)),
        REFUSES("Roll BF16", kInvalid, PROBE(Roll, t.b, t.pair, t.pair, t.b2)),
        REFUSES("Mean BF16", kInvalid, PROBE(Mean, t.b, t.last, true, ACL_BF16, t.bv)),
        REFUSES("Mean dtype against out", kInvalid, PROBE(Mean, t.f, t.last, true, ACL_FLOAT16, t.fr)),
        REFUSES("ReduceSum BF16", kInvalid, PROBE(ReduceSum, t.b, t.last, true, ACL_BF16, t.bv)),
        REFUSES("Addmm FP32", kInvalid, PROBE(Addmm, t.f, t.f, t.f, t.one, t.one, t.f2, (int8_t) 1)),
        REFUSES("Add FP32 into INT32", kInvalid, PROBE(Add, t.f, t.f, t.one, t.i32)),
        REFUSES("Softmax dim 2 of 2", kInvalid, PROBE(Softmax, t.f, (int64_t) 2, t.f2)),
        REFUSES("Silu shape", kInvalid, PROBE(Silu, t.f, t.fv)),
        REFUSES("TransMatmulWeight INT8", kInvalid, PROBE(TransMatmulWeight, t.i8)),
        REFUSES("TransMatmulWeight BF16", kInvalid, PROBE(TransMatmulWeight, t.b)),
        REFUSES("TransMatmulWeight FP32", kInvalid, PROBE(TransMatmulWeight, t.f)),
        REFUSES("TransMatmulWeight 1-D", kInvalid, PROBE(TransMatmulWeight, t.hv)),
        // What generic copies do take, BF16 included.
        Row{"Cat BF16 is taken", kOk, [](Things & t) { return cat(t.brain, t.brain2); }},
        REFUSES("InplaceCopy BF16 is taken", kOk, PROBE(InplaceCopy, t.b, t.b2)),
        REFUSES("InplaceCopy BF16 to FP32", kInvalid, PROBE(InplaceCopy, t.f, t.b)),
        REFUSES("Permute BF16 is taken", kOk, PROBE(Permute, t.b, Ints({1, 0}), t.b2)),
        REFUSES("Add INT64 is taken", kOk, PROBE(Add, t.i64, t.i64, t.one, Tensor(t.longs, {64, 64}))),
    });
}

TEST_CASE(matmul_rules) { // fact sheet 4.2, rule 7
    Weight int8, brain, fp32_self, fp32_all, fp32_hf32, fp32_down, fp32_fp16, type4, out32, nz_fp32, nz_out32,
        nz50;
    int8.self = int8.mat2 = ACL_INT8;
    brain.self = brain.mat2 = brain.out = ACL_BF16;
    fp32_self.self                      = ACL_FLOAT;
    fp32_all.self = fp32_all.mat2 = fp32_all.out = ACL_FLOAT;
    fp32_hf32 = fp32_down = fp32_fp16 = fp32_all;
    fp32_hf32.cube_math_type          = 3;
    fp32_down.cube_math_type          = 1;
    fp32_fp16.cube_math_type          = 2;
    type4.cube_math_type              = 4;
    out32.out                         = ACL_FLOAT;
    nz_fp32                           = nz_weight(false);
    nz_fp32.self                      = ACL_FLOAT;
    nz_fp32.cube_math_type            = 1;
    nz_out32                          = nz_weight(true);
    nz_out32.out                      = ACL_FLOAT;
    nz50                              = nz_weight(false);
    nz50.format                       = ACL_FORMAT_FRACTAL_NZ_C0_16;
    judge_matmul({
        {"M1 INT8", kInvalid, 4, 32, 32, int8},
        {"M1 BF16", kInvalid, 4, 32, 32, brain},
        {"M2 FP32 self, KEEP_DTYPE", kInvalid, 4, 32, 32, fp32_self},
        {"M2 FP32, KEEP_DTYPE", kInvalid, 4, 32, 32, fp32_all},
        {"M2 FP32, HF32", kInvalid, 4, 32, 32, fp32_hf32},
        {"M2 FP32, ALLOW_FP32_DOWN_PRECISION", kOk, 4, 32, 32, fp32_down},
        {"M2 FP32, USE_FP16", kOk, 4, 32, 32, fp32_fp16},
        {"M2 cubeMathType 4", kInvalid, 4, 32, 32, type4},
        {"M3 FP32 out", kOk, 16, 32, 32, out32},
        {"M7 NZ with FP32 self", kInvalid, 4, 32, 32, nz_fp32},
        {"M7 NZ with FP32 out", kInvalid, 4, 32, 32, nz_out32},
        {"NZ, K not a multiple of 16", kInvalid, 4, 40, 32, nz_weight(true)},
        {"format 50 computes garbage", kInvalid, 4, 32, 32, nz50},
        {"M8 NZ, M = 1", kOk, 1, 32, 64, nz_weight(false)},
        {"M8 NZ, M = 1, transposed", kOk, 1, 32, 64, nz_weight(true)},
        {"M8 NZ, M = 8", kOk, 8, 32, 64, nz_weight(true)},
        {"M8 NZ, M = 15", kOk, 15, 32, 64, nz_weight(false)},
        {"M8 NZ, M = 16", kInnerNull, 16, 32, 64, nz_weight(false)},
        {"M8 NZ, M = 17", kInnerNull, 17, 32, 64, nz_weight(true)},
        {"M8 NZ, M = 32", kInnerNull, 32, 32, 64, nz_weight(true)},
        {"M8 NZ, M = 64", kInnerNull, 64, 32, 64, nz_weight(false)},
        {"M12 is not seen on 8.5", kOk, 512, 8960, 64, {}},
        {"ND, any M", kOk, 17, 40, 24, {}},
    });
}

TEST_CASE(matmul_rule_m12_on_cann_83) {
    configure(R"({"cann": "8.3"})");
    judge_matmul({
        {"M12 M = 64, K = 4112", kRuntime, 64, 4112, 64, {}},
        {"M12 M = 512, K = 8960", kRuntime, 512, 8960, 64, {}},
        {"M12 M = 32, any K", kOk, 32, 8960, 64, {}},
        {"M12 M = 1024, K = 4096", kOk, 1024, 4096, 64, {}},
    });
}

TEST_CASE(matmul_rule_m8_hypothesis) {
    configure(R"({"nz_m_over_16": true})");
    judge_matmul({
        {"NZ, M = 17", kOk, 17, 32, 64, nz_weight(true)},
        {"NZ, M = 31", kOk, 31, 32, 64, nz_weight(false)},
        {"NZ, M = 32 stays refused", kInnerNull, 32, 32, 64, nz_weight(false)},
    });
}

TEST_CASE(both_chips_refuse_alike) { // rule 1
    configure(R"({"chip": "310B1", "memory_mb": 23673})");
    judge({
        REFUSES("RmsNorm", kNull, PROBE(RmsNorm, t.f, t.fv, 1e-6, t.f2, t.fr)),
        REFUSES("Topk", kInnerNull, PROBE(Topk, t.h, (int64_t) 4, (int64_t) -1, true, true, t.h2, t.i64)),
        REFUSES(
            "WeightQuantBatchMatmulV2", kRuntime,
            PROBE(WeightQuantBatchMatmulV2, t.h, t.i8, t.hv, nullptr, nullptr, nullptr, nullptr, 0, t.h2)),
        REFUSES("Add BF16", kInvalid, PROBE(Add, t.b, t.b, t.one, t.b2)),
    });
}

TEST_CASE(matmul_workspace_rows) { // rule 7: M4, M5, M6, M9
    const Board board;
    Weight fp32;
    fp32.self           = ACL_FLOAT;
    fp32.cube_math_type = 1;
    struct Size {
        const char * name;
        int64_t m, k, n;
        Weight weight;
        uint64_t want;
    };
    for (const Size & row : {
             Size{"M5, what a board asked for", 1, 4096, 12288, {}, 101187584},
             Size{"M6, 0.53 MB in the same case", 1, 4096, 12288, nz_weight(false), 524288},
             Size{"M4", 16, 4096, 12288, {}, 0},
             Size{"M9, FP32 self is converted all the same", 16, 64, 32, fp32,
                  2 * (16 * 64) + 2 * (16 * 64 + 64 * 32 + 16 * 32)},
         }) {
        uint64_t got = 1;
        CHECK_EQ(product_of(row.m, row.k, row.n, row.weight, &got), kOk);
        if (got != row.want) {
            check::report(__FILE__, __LINE__,
                          std::string(row.name) + ": workspace " + std::to_string(got) + ", want " +
                              std::to_string(row.want));
        }
    }
}

TEST_CASE(weight_size_is_in_elements) {
    const Board board;
    const Ints shape{100, 33}, one{100};
    uint64_t n = 0;
    CHECK_EQ(aclnnCalculateMatmulWeightSize(shape, &n), kOk);
    CHECK_EQ(n, 112u * 48u);
    CHECK_EQ(aclnnCalculateMatmulWeightSize(one, &n), kInvalid);
    CHECK_EQ(aclnnCalculateMatmulWeightSize(nullptr, &n), kNull);
}

TEST_CASE(batch_strides_must_be_row_major) { // M14
    Things t;
    // [2,3,16] with batch inside rows: refused by BatchMatMul.
    const Tensor inside(t.half, {2, 3, 16}, {16, 32, 1}), keys(t.half2, {2, 16, 5}), out(t.half3, {2, 3, 5});
    CHECK_EQ(PROBE(BatchMatMul, inside, keys, out, (int8_t) 0), kInnerNull);
    const Tensor outside(t.half, {2, 3, 16}, {100, 16, 1});
    CHECK_EQ(PROBE(BatchMatMul, outside, keys, out, (int8_t) 0), kOk);
}

TEST_MAIN()
