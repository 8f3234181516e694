// What a 310B refuses in phase 1, a row each: the dtype lists of fact sheet 4.3 and the matmul rules of 4.2
// in full. The refusals of 4.4 are in sim-board-rows.cpp.
//
// A real board's answer is the expectation; a row that says 0 is something the board takes.
#include "sim-ops-rows.h"

#include <dlfcn.h>

using namespace client;

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
