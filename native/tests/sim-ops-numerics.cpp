// Every operator against a naive FP64 reference with the chip's roundings: FP16 storage to nearest even, one
// rounding per operator, matmul with FP32 sums, saturation instead of infinity, NaN stored as 0.
#include "sim-ops-client.h"

#include <memory>
#include <thread>

using namespace client;

namespace {

constexpr aclDataType kFloatTypes[] = {ACL_FLOAT, ACL_FLOAT16};

double sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}
double gelu_erf(double x) {
    return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
}
double gelu_tanh(double x) {
    return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

// Tolerance in units of the last place. FP32 results of libm-grade approximations: a few; FP16: the one
// rounding.
double allowed(aclDataType t) {
    return t == ACL_FLOAT16 ? 1.01 : 8.0;
}

using First = aclnnStatus (*)(const aclTensor *, aclTensor *, uint64_t *, aclOpExecutor **);

void check_unary(Board & board, const char * name, First first, aclnnRunFunction second, double (*f)(double),
                 double shift, double extra_ulp = 0) {
    for (const aclDataType t : kFloatTypes) {
        // 5000: more than one piece of the kernel's loop, and an odd tail.
        Values in = stored(random_values(5000, 7, 2.0), t);
        for (double & x : in) {
            x = stored(shift > 0 ? std::fabs(x) + shift : x, t);
        }
        const Array x(board, t, in);
        Array y(board, t, 5000);
        const Tensor tx(x, {2, 2500}), ty(y, {2, 2500});
        CHECK_EQ(board.call(first, second, (const aclTensor *) tx, (aclTensor *) ty), 0);
        Values want = in;
        for (double & v : want) {
            v = f(v);
        }
        const double ulp = worst_ulp(y.download(), want, t);
        if (!(ulp <= allowed(t) + extra_ulp)) {
            check::report(__FILE__, __LINE__, std::string(name) + ": off by " + std::to_string(ulp) + " ulp");
        }
    }
}

Values matmul_reference(const Values & a, const Values & b, int64_t m, int64_t k, int64_t n, bool b_is_nk) {
    Values y((size_t) (m * n));
    for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t l = 0; l < k; ++l) {
                sum += a[(size_t) (i * k + l)] * b[(size_t) (b_is_nk ? j * k + l : l * n + j)];
            }
            y[(size_t) (i * n + j)] = sum;
        }
    }
    return y;
}

// FP32 sums in any order over k products, then one rounding to FP16.
void check_matmul(const Values & got, const Values & want, int64_t k, double mean, const char * what) {
    double worst = got.size() == want.size() ? 0 : INFINITY;
    for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
        const double limit = std::fabs(want[i]) * 0x1p-11 * 1.01 + (double) k * 0x1p-23 * mean + 0x1p-25;
        worst              = std::max(worst, std::fabs(got[i] - want[i]) / limit);
    }
    if (!(worst <= 1.0)) {
        check::report(__FILE__, __LINE__,
                      std::string(what) + ": error is " + std::to_string(worst) + " of the limit");
    }
}

} // namespace

TEST_CASE(unary_operators_round_once) {
    Board board;
#define UNARY(Name, f, shift, extra)                                                                         \
    check_unary(                                                                                             \
        board, #Name, aclnn##Name##GetWorkspaceSize, aclnn##Name, [](double x) -> double { return f; },      \
        shift, extra)
    UNARY(Silu, x * sigmoid(x), 0, 0);
    UNARY(Sigmoid, sigmoid(x), 0, 0);
    // erf and tanh cancel near -1: the FP32 result is good to some 1e-7 absolute, not relative.
    for (const aclDataType t : kFloatTypes) {
        const Values in = stored(random_values(3000, 3, 2.0), t);
        const Array x(board, t, in);
        const Array y(board, t, 3000);
        const Tensor tx(x, {3000}), ty(y, {3000});
        for (const int64_t form : {0, 1}) {
            CHECK_EQ(CALL(board, GeluV2, tx, form, ty), 0);
            const Values got = y.download();
            for (size_t i = 0; i < in.size(); ++i) {
                const double want = form == 1 ? gelu_tanh(in[i]) : gelu_erf(in[i]);
                CHECK_NEAR(got[i], want, 2e-6 + (t == ACL_FLOAT16 ? std::fabs(want) * 0x1p-10 : 0));
            }
        }
    }
    UNARY(Tanh, std::tanh(x), 0, 0);
    UNARY(Exp, std::exp(x), 0, 0);
    UNARY(Neg, -x, 0, 0);
    UNARY(Abs, std::fabs(x), 0, 0);
    UNARY(Sqrt, std::sqrt(x), 0.01, 0);
    UNARY(Rsqrt, 1.0 / std::sqrt(x), 0.01, 0);
    UNARY(Log, std::log(x), 1.5, 0);
    UNARY(Sin, std::sin(x), 0, 0);
    UNARY(Cos, std::cos(x), 0, 0);
#undef UNARY
    const Values in = {-2, -0.0, 0.5, 3};
    const Array x(board, ACL_FLOAT16, in), y(board, ACL_FLOAT16, 4);
    const Tensor tx(x, {4}), ty(y, {4});
    CHECK_EQ(CALL(board, Relu, tx, ty), 0);
    CHECK(y.download() == (Values{0, 0, 0.5, 3}));
    CHECK_EQ(CALL(board, Hardswish, tx, ty), 0);
    CHECK_NEAR(y.download()[3], 3.0, 1e-3);
    const Scalar slope(0.5F), low(-1.0F), high(2.0F), one(1.0F);
    CHECK_EQ(CALL(board, LeakyRelu, tx, slope, ty), 0);
    CHECK(y.download() == (Values{-1, 0, 0.5, 3}));
    CHECK_EQ(CALL(board, Clamp, tx, low, high, ty), 0);
    CHECK(y.download() == (Values{-1, 0, 0.5, 2}));
    CHECK_EQ(CALL(board, Clamp, tx, nullptr, high, ty), 0);
    CHECK(y.download() == (Values{-2, 0, 0.5, 2}));
    CHECK_EQ(CALL(board, Elu, tx, one, one, one, ty), 0);
    CHECK_NEAR(y.download()[0], std::exp(-2.0) - 1.0, 1e-3);
    CHECK_EQ(CALL(board, InplaceNeg, tx), 0);
    CHECK(x.download() == (Values{2, 0, -0.5, -3}));
}

TEST_CASE(binary_operators_broadcast_and_promote) {
    Board board;
    const Scalar two(2.0F), one(1.0F);
    for (const aclDataType t : kFloatTypes) {
        const Values p = stored(random_values(4200, 1), t), q = stored(random_values(700, 2), t);
        const Array a(board, t, p), b(board, t, q), y(board, t, 4200);
        const Tensor ta(a, {2, 3, 700}), tb(b, {1, 700}), ty(y, {2, 3, 700});
        const auto check = [&](auto f, const char * what) {
            Values want = p;
            for (size_t i = 0; i < want.size(); ++i) {
                want[i] = f(p[i], q[i % 700]);
            }
            const double ulp = worst_ulp(y.download(), want, t);
            if (!(ulp <= allowed(t) + 1)) {
                check::report(__FILE__, __LINE__,
                              std::string(what) + ": off by " + std::to_string(ulp) + " ulp");
            }
        };
        CHECK_EQ(CALL(board, Mul, ta, tb, ty), 0);
        check([](double u, double v) { return u * v; }, "Mul");
        CHECK_EQ(CALL(board, Div, ta, tb, ty), 0);
        check([](double u, double v) { return u / v; }, "Div");
        // Differences cancel: compare absolutely.
        CHECK_EQ(CALL(board, Add, ta, tb, two, ty), 0);
        const Values sum = y.download();
        CHECK_EQ(CALL(board, Sub, ta, tb, one, ty), 0);
        const Values difference = y.download();
        const double epsilon    = t == ACL_FLOAT16 ? 0x1p-11 : 0x1p-22;
        for (size_t i = 0; i < sum.size(); ++i) {
            const double s = p[i] + 2 * q[i % 700], d = p[i] - q[i % 700];
            CHECK_NEAR(sum[i], s, epsilon * (std::fabs(s) + 1e-6) + 1e-6 * (t == ACL_FLOAT));
            CHECK_NEAR(difference[i], d, epsilon * (std::fabs(d) + 1e-6) + 1e-6 * (t == ACL_FLOAT));
        }
        CHECK_EQ(CALL(board, InplaceMul, ta, tb), 0);
        Values want = p;
        for (size_t i = 0; i < want.size(); ++i) {
            want[i] *= q[i % 700];
        }
        CHECK(worst_ulp(a.download(), want, t) <= allowed(t));
    }
    // FP16 with FP32 gives FP32.
    const Array h(board, ACL_FLOAT16, Values{1.5, -2}), f(board, ACL_FLOAT, Values{0x1p-20, 1}),
        y(board, ACL_FLOAT, 2);
    const Tensor th(h, {2}), tf(f, {2}), ty(y, {2});
    CHECK_EQ(CALL(board, Add, th, tf, one, ty), 0);
    CHECK(y.download() == (Values{1.5 + 0x1p-20, -1}));
    // Integers stay integers and wrap.
    const Array i(board, ACL_INT32, Values{2147483647, 7}), j(board, ACL_INT32, Values{1, 3}),
        k(board, ACL_INT32, 2);
    const Tensor ti(i, {2}), tj(j, {2}), tk(k, {2});
    CHECK_EQ(CALL(board, Add, ti, tj, one, tk), 0);
    CHECK(k.download() == (Values{-2147483648.0, 10}));
}

TEST_CASE(scalar_forms) {
    Board board;
    const Scalar half(0.5F), three(3.0F), one(1.0F);
    const Values in = {1, -2, 4, 0.25};
    for (const aclDataType t : kFloatTypes) {
        const Array x(board, t, in), y(board, t, 4);
        const Tensor tx(x, {4}), ty(y, {4});
        CHECK_EQ(CALL(board, Muls, tx, half, ty), 0);
        CHECK(y.download() == (Values{0.5, -1, 2, 0.125}));
        CHECK_EQ(CALL(board, Adds, tx, three, half, ty), 0);
        CHECK(y.download() == (Values{2.5, -0.5, 5.5, 1.75}));
        CHECK_EQ(CALL(board, Divs, tx, half, ty), 0);
        CHECK(y.download() == (Values{2, -4, 8, 0.5}));
        CHECK_EQ(CALL(board, PowTensorScalar, tx, three, ty), 0);
        CHECK(y.download() == (Values{1, -8, 64, 0.015625}));
        CHECK_EQ(CALL(board, PowScalarTensor, half, tx, ty), 0);
        CHECK_NEAR(y.download()[1], 4.0, 1e-2);
        CHECK_EQ(CALL(board, InplaceMuls, tx, three), 0);
        CHECK_EQ(CALL(board, InplaceAdds, tx, one, one), 0);
        CHECK(x.download() == (Values{4, -5, 13, 1.75}));
    }
}

TEST_CASE(nothing_infinite_is_stored) {
    Board board;
    const Array big(board, ACL_FLOAT16, Values{60000, -60000, 60000, 0}), y(board, ACL_FLOAT16, 4);
    const Tensor tb(big, {4}), ty(y, {4});
    CHECK_EQ(CALL(board, Mul, tb, tb, ty), 0);
    CHECK(y.download() == (Values{65504, 65504, 65504, 0}));
    // 0 / 0 is NaN: stored as 0. x / 0 saturates.
    const Array zero(board, ACL_FLOAT16, Values{0, 0, 0, 0});
    const Tensor tz(zero, {4});
    CHECK_EQ(CALL(board, Div, tb, tz, ty), 0);
    CHECK(y.download() == (Values{65504, -65504, 65504, 0}));
    // The same in FP32, and in casts down.
    const float stored_words[4] = {-INFINITY, INFINITY, NAN, 70000};
    Array f(board, ACL_FLOAT, 4);
    f.upload_bytes(stored_words, sizeof stored_words);
    const Array g(board, ACL_FLOAT, 4);
    const Tensor tf(f, {4}), tg(g, {4});
    const Scalar one(1.0F);
    CHECK_EQ(CALL(board, Muls, tf, one, tg), 0);
    CHECK(g.download() == (Values{-(double) FLT_MAX, (double) FLT_MAX, 0, 70000}));
    CHECK_EQ(CALL(board, Cast, tf, ACL_FLOAT16, ty), 0);
    CHECK(y.download() == (Values{-65504, 65504, 0, 65504}));
    // A copy moves bits and changes nothing.
    CHECK_EQ(CALL(board, InplaceCopy, tg, tf), 0);
    CHECK(std::isinf(g.download()[0]) && std::isnan(g.download()[2]));
}

TEST_CASE(casts_round_and_truncate) {
    Board board;
    // 2049 and 2051 lie between FP16 numbers: ties go to even.
    const Array x(board, ACL_FLOAT, Values{2049, 2051, -1.75, 1e-8}), h(board, ACL_FLOAT16, 4),
        i(board, ACL_INT32, 4);
    const Tensor tx(x, {4}), th(h, {4}), ti(i, {4});
    CHECK_EQ(CALL(board, Cast, tx, ACL_FLOAT16, th), 0);
    CHECK(h.download() == (Values{2048, 2052, -1.75, 0}));
    CHECK_EQ(CALL(board, Cast, tx, ACL_INT32, ti), 0);
    CHECK(i.download() == (Values{2049, 2051, -1, 0}));
    const Array l(board, ACL_INT64, Values{5, -6, 1LL << 40, 0}), f(board, ACL_FLOAT, 4);
    const Tensor tl(l, {4}), tf(f, {4});
    CHECK_EQ(CALL(board, Cast, tl, ACL_FLOAT, tf), 0);
    CHECK(f.download() == (Values{5, -6, 1099511627776.0, 0}));
}

TEST_CASE(strided_views_are_taken) {
    Board board;
    // Columns 1 and 3 of a 3 x 4 matrix, written into every second row of another.
    Values v(12);
    std::iota(v.begin(), v.end(), 0.0);
    const Array x(board, ACL_FLOAT, v), y(board, ACL_FLOAT, Values(12, -1.0));
    const Tensor tx(x, {3, 2}, {4, 2}, 1), ty(y, {3, 2}, {4, 2}, 0);
    CHECK_EQ(CALL(board, InplaceCopy, ty, tx), 0);
    CHECK(y.download() == (Values{1, -1, 3, -1, 5, -1, 7, -1, 9, -1, 11, -1}));
    const Scalar two(2.0F);
    CHECK_EQ(CALL(board, InplaceMuls, ty, two), 0);
    CHECK(y.download() == (Values{2, -1, 6, -1, 10, -1, 14, -1, 18, -1, 22, -1}));
    // A transposed view, cast on the way.
    const Array z(board, ACL_FLOAT16, 12);
    const Tensor tt(x, {4, 3}, {1, 4}), tz(z, {4, 3});
    CHECK_EQ(CALL(board, InplaceCopy, tz, tt), 0);
    CHECK(z.download() == (Values{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
    // A repeated (stride 0) input.
    const Tensor row(x, {3, 4}, {0, 1}), out(y, {3, 4});
    const Scalar one(1.0F);
    CHECK_EQ(CALL(board, Adds, row, one, one, out), 0);
    CHECK(y.download() == (Values{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}));
}

TEST_CASE(matmul_is_right_in_every_layout) {
    Board board;
    struct Case {
        int64_t m, k, n;
    };
    for (const Case & c : {Case{1, 64, 48}, Case{3, 96, 32}, Case{5, 40, 24}, Case{16, 64, 48},
                           Case{33, 1040, 80}, Case{70, 600, 130}}) {
        const Values a = stored(random_values((size_t) (c.m * c.k), 1), ACL_FLOAT16);
        const Values b = stored(random_values((size_t) (c.n * c.k), 2), ACL_FLOAT16);
        const Array xa(board, ACL_FLOAT16, a);
        const Array slack_a(board, ACL_FLOAT16, (c.m + 16) * c.k),
            slack_b(board, ACL_FLOAT16, (c.n + 16) * (c.k + 16));
        for (const aclDataType out_type : kFloatTypes) {
            const Array y(board, out_type, c.m * c.n);
            const Tensor ta(slack_a, {c.m, c.k}), ty(y, {c.m, c.n});
            const Tensor plain(xa, {c.m, c.k});
            CHECK_EQ(CALL(board, InplaceCopy, ta, plain), 0);
            for (const bool nk : {false, true}) {
                const Array xb(board, ACL_FLOAT16, b);
                const Tensor source(xb, nk ? Dims{c.n, c.k} : Dims{c.k, c.n});
                const Tensor target(slack_b, nk ? Dims{c.n, c.k} : Dims{c.k, c.n});
                CHECK_EQ(CALL(board, InplaceCopy, target, source), 0);
                const Tensor tb(slack_b, {c.k, c.n}, nk ? Dims{1, c.k} : Dims{c.n, 1});
                CHECK_EQ(CALL(board, Matmul, ta, tb, ty, (int8_t) 0), 0);
                check_matmul(y.download(), matmul_reference(a, b, c.m, c.k, c.n, nk), c.k, 1.0,
                             nk ? "NK" : "KN");
                CHECK_EQ(CALL(board, Mm, ta, tb, ty, (int8_t) 1), 0);
                check_matmul(y.download(), matmul_reference(a, b, c.m, c.k, c.n, nk), c.k, 1.0, "Mm");
            }
        }
    }
}

TEST_CASE(matmul_on_fractal_nz_equals_nd) {
    Board board;
    const int64_t k = 96, n = 160;
    const Values b = stored(random_values((size_t) (n * k), 2), ACL_FLOAT16); // [N,K]
    for (const int64_t m : {1, 2, 3, 8, 15}) {
        const Values a = stored(random_values((size_t) (m * k), (unsigned) m), ACL_FLOAT16);
        const Array xa(board, ACL_FLOAT16, 16 * k), y(board, ACL_FLOAT16, m * n),
            z(board, ACL_FLOAT16, m * n);
        Values padded(a);
        padded.resize((size_t) (16 * k));
        const_cast<Array &>(xa).upload(padded);
        const Tensor ta(xa, {m, k}), ty(y, {m, n}), tz(z, {m, n});

        // Way A: [K,N] packed on the host.
        Values packed((size_t) (n * k));
        for (int64_t i = 0; i < k; ++i) {
            for (int64_t j = 0; j < n; ++j) {
                packed[(size_t) (((j / 16) * (k / 16) + i / 16) * 256 + (i % 16) * 16 + j % 16)] =
                    b[(size_t) (j * k + i)];
            }
        }
        const Array wa(board, ACL_FLOAT16, packed);
        const Tensor nz_a(wa, {k, n}, {n, 1}, 0, ACL_FORMAT_FRACTAL_NZ, {n / 16, k / 16, 16, 16});
        CHECK_EQ(CALL(board, Matmul, ta, nz_a, ty, (int8_t) 0), 0);
        check_matmul(y.download(), matmul_reference(a, b, m, k, n, true), k, 1.0, "NZ, packed on the host");
        CHECK_EQ(board.last_workspace, (uint64_t) (2 * (16 * k + 16 * n))); // M6

        // Way B: [N,K] packed in place, used as its transpose.
        const Array wb(board, ACL_FLOAT16, b);
        const Tensor weight(wb, {n, k});
        CHECK_EQ(CALL(board, TransMatmulWeight, weight), 0);
        CHECK_EQ(board.last_workspace, (uint64_t) (2 * n * k + 512));
        aclFormat format = ACL_FORMAT_ND;
        CHECK_EQ(aclGetFormat(weight, &format), 0);
        CHECK_EQ(format, ACL_FORMAT_FRACTAL_NZ);
        const Tensor nz_b(wb, {k, n}, {1, k}, 0, ACL_FORMAT_FRACTAL_NZ);
        CHECK_EQ(CALL(board, Mm, ta, nz_b, tz, (int8_t) 1), 0);
        check_matmul(z.download(), matmul_reference(a, b, m, k, n, true), k, 1.0, "NZ, TransMatmulWeight");
    }
}

TEST_CASE(matmul_of_batches_broadcasts) {
    Board board;
    // 2 kv heads, 3 queries each, 5 keys of depth 8; keys are a window of a cache of 7 rows.
    const int64_t heads = 2, m = 3, k = 8, n = 5, rows = 7;
    const Values q = stored(random_values((size_t) (heads * m * k), 1), ACL_FLOAT16);
    const Values c = stored(random_values((size_t) (heads * rows * k), 2), ACL_FLOAT16);
    const Array xq(board, ACL_FLOAT16, 1024), xc(board, ACL_FLOAT16, 4096),
        y(board, ACL_FLOAT16, heads * m * n);
    const_cast<Array &>(xq).upload(q);
    const_cast<Array &>(xc).upload(c);
    const Tensor tq(xq, {heads, m, k}), ty(y, {heads, m, n});
    const Tensor keys(xc, {heads, k, n}, {rows * k, 1, k});
    Values want;
    for (int64_t h = 0; h < heads; ++h) {
        const Values part = matmul_reference(
            Values(q.begin() + h * m * k, q.begin() + (h + 1) * m * k),
            Values(c.begin() + h * rows * k, c.begin() + h * rows * k + n * k), m, k, n, true);
        want.insert(want.end(), part.begin(), part.end());
    }
    CHECK_EQ(CALL(board, BatchMatMul, tq, keys, ty, (int8_t) 1), 0);
    check_matmul(y.download(), want, k, 1.0, "BatchMatMul");
    CHECK_EQ(CALL(board, Matmul, tq, keys, ty, (int8_t) 0), 0);
    check_matmul(y.download(), want, k, 1.0, "Matmul 3-D");
    // N-D x 2-D is one matmul.
    const Tensor key0(xc, {k, n}, {1, k}), flat(xq, {heads * m, k});
    CHECK_EQ(CALL(board, Matmul, tq, key0, ty, (int8_t) 0), 0);
    check_matmul(y.download(), matmul_reference(q, c, heads * m, k, n, true), k, 1.0, "N-D x 2-D");
    // 4-D with one head of keys for two of queries.
    const Tensor q4(xq, {1, heads, m, k}), k4(xc, {1, 1, k, n}, {k * n, k * n, 1, k}),
        y4(y, {1, heads, m, n});
    CHECK_EQ(CALL(board, Matmul, q4, k4, y4, (int8_t) 0), 0);
    check_matmul(y.download(), matmul_reference(q, c, heads * m, k, n, true), k, 1.0, "broadcast heads");
    // FP32 operands are cast when cubeMathType allows it.
    const Array f(board, ACL_FLOAT, q);
    const Tensor tf(f, {heads * m, k}), t2(y, {heads * m, n});
    CHECK_EQ(CALL(board, Matmul, tf, key0, t2, (int8_t) 1), 0);
    check_matmul(y.download(), matmul_reference(q, c, heads * m, k, n, true), k, 1.0, "FP32 self");
}

TEST_CASE(addmm_adds_a_scaled_bias) {
    Board board;
    const int64_t m = 16, k = 32, n = 48;
    const Values a = stored(random_values((size_t) (m * k), 1), ACL_FLOAT16);
    const Values b = stored(random_values((size_t) (k * n), 2), ACL_FLOAT16);
    const Values c = stored(random_values((size_t) n, 3), ACL_FLOAT16);
    const Array xa(board, ACL_FLOAT16, a), xb(board, ACL_FLOAT16, b), xc(board, ACL_FLOAT16, c),
        y(board, ACL_FLOAT16, m * n);
    const Tensor ta(xa, {m, k}), tb(xb, {k, n}), tc(xc, {n}), ty(y, {m, n});
    const Scalar beta(2.0F), alpha(0.5F);
    CHECK_EQ(CALL(board, Addmm, tc, ta, tb, beta, alpha, ty, (int8_t) 0), 0);
    Values want = matmul_reference(a, b, m, k, n, false);
    for (size_t i = 0; i < want.size(); ++i) {
        want[i] = 0.5 * want[i] + 2.0 * c[i % (size_t) n];
    }
    check_matmul(y.download(), want, k, 2.0, "Addmm");
    CHECK_EQ(CALL(board, InplaceAddmm, ty, ta, tb, alpha, alpha, (int8_t) 0), 0);
    const Values product = matmul_reference(a, b, m, k, n, false);
    for (size_t i = 0; i < want.size(); ++i) {
        want[i] = 0.5 * product[i] + 0.5 * stored(want[i], ACL_FLOAT16);
    }
    check_matmul(y.download(), want, 3 * k, 64.0, "InplaceAddmm");
}

TEST_CASE(matmul_workspace_follows_the_rules) {
    Board board;
    const auto workspace = [&](int64_t m, int64_t k, int64_t n) {
        // Sizes only: phase 1 of a real 4096 x 12288 matrix, nothing is allocated or run.
        alignas(64) static char nowhere[64];
        const Dims da = {m, k}, db = {k, n}, dy = {m, n}, sb = {1, k};
        aclTensor * a =
            aclCreateTensor(da.data(), 2, ACL_FLOAT16, nullptr, 0, ACL_FORMAT_ND, da.data(), 2, nowhere);
        aclTensor * b =
            aclCreateTensor(db.data(), 2, ACL_FLOAT16, sb.data(), 0, ACL_FORMAT_ND, db.data(), 2, nowhere);
        aclTensor * y =
            aclCreateTensor(dy.data(), 2, ACL_FLOAT16, nullptr, 0, ACL_FORMAT_ND, dy.data(), 2, nowhere);
        uint64_t size            = 1;
        aclOpExecutor * executor = nullptr;
        CHECK_EQ(aclnnMatmulGetWorkspaceSize(a, b, y, 0, &size, &executor), 0);
        CHECK_EQ(aclDestroyAclOpExecutor(executor), 0);
        aclDestroyTensor(a);
        aclDestroyTensor(b);
        aclDestroyTensor(y);
        return size;
    };
    CHECK_EQ(workspace(1, 4096, 12288), 101187584u); // the 101.19 MB a board asked for (M5)
    CHECK_EQ(workspace(16, 4096, 12288), 0u);        // M4
    CHECK_EQ(workspace(64, 4096, 12288), 0u);
    CHECK_EQ(workspace(17, 64, 32), 2u * (32 * 64 + 64 * 32 + 32 * 32));
}

TEST_CASE(softmax_rows_sum_to_one) {
    Board board;
    for (const aclDataType t : kFloatTypes) {
        Values in = stored(random_values(6000, 5, 3.0), t);
        for (size_t i = 2000; i < 4000; ++i) {
            in[i] = t == ACL_FLOAT16 ? -65504 : -3.4e38; // a fully masked row
        }
        const Array x(board, t, in), y(board, t, 6000);
        const Tensor tx(x, {3, 2000}), ty(y, {3, 2000});
        CHECK_EQ(CALL(board, Softmax, tx, (int64_t) -1, ty), 0);
        const Values got = y.download();
        for (size_t r = 0; r < 3; ++r) {
            const double max =
                *std::max_element(in.begin() + (long) r * 2000, in.begin() + (long) (r + 1) * 2000);
            double sum = 0;
            for (size_t i = r * 2000; i < (r + 1) * 2000; ++i) {
                sum += std::exp(in[i] - max);
            }
            for (size_t i = r * 2000; i < (r + 1) * 2000; ++i) {
                const double want = std::exp(in[i] - max) / sum;
                CHECK_NEAR(got[i], want, t == ACL_FLOAT16 ? want * 0x1p-10 + 0x1p-24 : want * 4e-6 + 1e-12);
            }
        }
    }
    // A stored -inf is the lowest number; another dim than the last; log.
    const float words[4] = {-INFINITY, 1, -INFINITY, 1};
    Array x(board, ACL_FLOAT, 4);
    x.upload_bytes(words, sizeof words);
    const Array y(board, ACL_FLOAT, 4);
    const Tensor tx(x, {2, 2}), ty(y, {2, 2});
    CHECK_EQ(CALL(board, Softmax, tx, (int64_t) 1, ty), 0);
    CHECK(y.download() == (Values{0, 1, 0, 1}));
    CHECK_EQ(CALL(board, Softmax, tx, (int64_t) 0, ty), 0);
    CHECK(y.download() == (Values{0.5, 0.5, 0.5, 0.5}));
    CHECK_EQ(CALL(board, LogSoftmax, tx, (int64_t) 0, ty), 0);
    CHECK_NEAR(y.download()[1], std::log(0.5), 1e-6);
}

TEST_CASE(sums_and_means) {
    Board board;
    const Values in = random_values(6000, 9);
    for (const aclDataType t : kFloatTypes) {
        const Values v = stored(in, t);
        const Array x(board, t, v), y(board, t, 20), z(board, t, 300);
        const Tensor tx(x, {4, 5, 300}), kept(y, {4, 5, 1}), dropped(y, {4, 5}), columns(z, {300});
        const Ints last{-1}, first_two{0, 1};
        CHECK_EQ(CALL(board, Mean, tx, last, true, t, kept), 0);
        Values got = y.download();
        CHECK_EQ(CALL(board, ReduceSum, tx, last, false, t, dropped), 0);
        const Values sums = y.download();
        for (size_t r = 0; r < 20; ++r) {
            const double sum =
                std::accumulate(v.begin() + (long) r * 300, v.begin() + (long) (r + 1) * 300, 0.0);
            const double eps = t == ACL_FLOAT16 ? 0x1p-11 : 1e-6;
            CHECK_NEAR(got[r], sum / 300, eps * std::fabs(sum / 300) + 1e-6);
            CHECK_NEAR(sums[r], sum, eps * std::fabs(sum) + 1e-4);
        }
        CHECK_EQ(CALL(board, Mean, tx, first_two, false, t, columns), 0);
        got = z.download();
        for (size_t c = 0; c < 300; ++c) {
            double sum = 0;
            for (size_t r = 0; r < 20; ++r) {
                sum += v[r * 300 + c];
            }
            CHECK_NEAR(got[c], sum / 20, (t == ACL_FLOAT16 ? 0x1p-11 : 1e-6) * std::fabs(sum / 20) + 1e-6);
        }
    }
    const Array i(board, ACL_INT32, Values{1, 2, 3, 4}), s(board, ACL_INT32, 2);
    const Tensor ti(i, {2, 2}), ts(s, {2});
    const Ints rows{1};
    CHECK_EQ(CALL(board, ReduceSum, ti, rows, false, ACL_INT32, ts), 0);
    CHECK(s.download() == (Values{3, 7}));
}

TEST_CASE(layer_norm_fp16) {
    Board board;
    const int64_t rows = 3, n = 384;
    const Values v = stored(random_values((size_t) (rows * n), 4), ACL_FLOAT16);
    const Values w = stored(random_values((size_t) n, 5), ACL_FLOAT16),
                 b = stored(random_values((size_t) n, 6), ACL_FLOAT16);
    const Array x(board, ACL_FLOAT16, v), xw(board, ACL_FLOAT16, w), xb(board, ACL_FLOAT16, b),
        y(board, ACL_FLOAT16, rows * n), m(board, ACL_FLOAT, rows);
    const Tensor tx(x, {rows, n}), tw(xw, {n}), tb(xb, {n}), ty(y, {rows, n}), tm(m, {rows, 1});
    const Ints shape{n};
    CHECK_EQ(CALL(board, LayerNorm, tx, shape, tw, tb, 1e-12, ty, tm, nullptr), 0);
    const Values got = y.download(), means = m.download();
    for (int64_t r = 0; r < rows; ++r) {
        double mean = 0, var = 0;
        for (int64_t i = 0; i < n; ++i) {
            mean += v[(size_t) (r * n + i)] / (double) n;
        }
        for (int64_t i = 0; i < n; ++i) {
            var += std::pow(v[(size_t) (r * n + i)] - mean, 2) / (double) n;
        }
        CHECK_NEAR(means[(size_t) r], mean, 1e-5);
        for (int64_t i = 0; i < n; ++i) {
            const double want =
                (v[(size_t) (r * n + i)] - mean) / std::sqrt(var + 1e-12) * w[(size_t) i] + b[(size_t) i];
            CHECK_NEAR(got[(size_t) (r * n + i)], want, std::fabs(want) * 0x1p-11 + 2e-5);
        }
    }
    CHECK_EQ(CALL(board, LayerNorm, tx, shape, nullptr, nullptr, 1e-5, ty, nullptr, nullptr), 0);
}

TEST_CASE(fused_operators_where_the_board_has_them) {
    configure(R"({"accepts": ["aclnnRmsNorm", "aclnnSwiGlu", "aclnnGeGluV3", "aclnnLayerNorm"]})");
    Board board;
    const int64_t rows = 3, n = 64;
    std::mt19937 random(5);
    std::normal_distribution<double> normal(0.0, 2.0);
    Values x((size_t) (rows * 2 * n)), w((size_t) n);
    std::generate(x.begin(), x.end(), [&] { return double(float(normal(random))); });
    std::generate(w.begin(), w.end(), [&] { return double(float(normal(random))); });
    const Values narrow(x.begin(), x.begin() + rows * n);
    const Array ax(board, ACL_FLOAT, narrow), aw(board, ACL_FLOAT, w), ay(board, ACL_FLOAT, rows * n),
        ar(board, ACL_FLOAT, rows), wide(board, ACL_FLOAT, x), half(board, ACL_FLOAT, rows * n),
        kept(board, ACL_FLOAT, rows * n);
    const Tensor tx(ax, {rows, n}), tw(aw, {n}), ty(ay, {rows, n}), tr(ar, {rows, 1}),
        ta(wide, {rows, 2 * n}), tb(half, {rows, n}), tk(kept, {rows, n});
    const double eps = 1e-6;

    CHECK_EQ(board.call(aclnnRmsNormGetWorkspaceSize, aclnnRmsNorm, (const aclTensor *) tx,
                        (const aclTensor *) tw, eps, (const aclTensor *) ty, (const aclTensor *) tr),
             0);
    const Values normed = ay.download(), rstd = ar.download();
    for (int64_t i = 0; i < rows; ++i) {
        double squares = 0;
        for (int64_t j = 0; j < n; ++j) {
            squares += narrow[(size_t) (i * n + j)] * narrow[(size_t) (i * n + j)];
        }
        const double r = 1.0 / std::sqrt(squares / double(n) + eps);
        CHECK_NEAR(rstd[(size_t) i], r, 1e-6);
        for (int64_t j = 0; j < n; ++j) {
            CHECK_NEAR(normed[(size_t) (i * n + j)], narrow[(size_t) (i * n + j)] * r * w[(size_t) j], 1e-4);
        }
    }
    const Ints shape{n};
    CHECK_EQ(board.call(aclnnLayerNormGetWorkspaceSize, aclnnLayerNorm, (const aclTensor *) tx,
                        (const aclIntArray *) shape, (const aclTensor *) nullptr, (const aclTensor *) nullptr,
                        eps, (aclTensor *) ty, (aclTensor *) nullptr, (aclTensor *) nullptr),
             0);

    const auto expect_gated = [&](const char * name, bool is_left, const auto & act) {
        const Values got = half.download();
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < n; ++j) {
                const double l = x[(size_t) (i * 2 * n + j)], r = x[(size_t) (i * 2 * n + n + j)];
                const double want = is_left ? act(l) * r : act(r) * l;
                if (std::fabs(got[(size_t) (i * n + j)] - want) > 1e-4) {
                    check::report(__FILE__, __LINE__, std::string(name) + " at " + std::to_string(i * n + j));
                }
            }
        }
    };
    CHECK_EQ(board.call(aclnnSwiGluGetWorkspaceSize, aclnnSwiGlu, (const aclTensor *) ta, (int64_t) -1,
                        (const aclTensor *) tb),
             0);
    expect_gated("SwiGlu", true, [](double v) { return v / (1.0 + std::exp(-v)); });
    for (const bool is_left : {true, false}) {
        CHECK_EQ(board.call(aclnnGeGluV3GetWorkspaceSize, aclnnGeGluV3, (const aclTensor *) ta, (int64_t) -1,
                            (int64_t) 0, is_left, (aclTensor *) tb, (aclTensor *) tk),
                 0);
        expect_gated("GeGluV3", is_left,
                     [](double v) { return 0.5 * v * (1.0 + std::erf(v / std::sqrt(2.0))); });
    }
}

TEST_CASE(moves_keep_every_bit) {
    Board board;
    Values v(24);
    std::iota(v.begin(), v.end(), 0.0);
    const Array x(board, ACL_FLOAT16, v), y(board, ACL_FLOAT16, 24), wide(board, ACL_FLOAT16, 48);
    const Tensor tx(x, {2, 3, 4});
    {
        const Tensor ty(y, {4, 2, 3});
        const Ints order{2, 0, 1};
        CHECK_EQ(CALL(board, Permute, tx, order, ty), 0);
        CHECK(y.download()[0] == 0 && y.download()[1] == 4 && y.download()[3] == 12 && y.download()[6] == 1);
    }
    {
        const Tensor ty(wide, {2, 6, 4});
        const aclTensor * parts[] = {Tensor(x, {2, 3, 4}).release(), Tensor(x, {2, 3, 4}).release()};
        aclTensorList * list      = aclCreateTensorList(parts, 2);
        CHECK_EQ(CALL(board, Cat, list, (int64_t) 1, ty), 0);
        const Tensor stacked(wide, {2, 2, 3, 4});
        const Values got = wide.download();
        CHECK(got[11] == 11 && got[12] == 0 && got[24] == 12 && got[36] == 12);
        CHECK_EQ(CALL(board, Stack, list, (int64_t) 0, stacked), 0);
        CHECK(wide.download()[24] == 0 && wide.download()[12] == 12);
        CHECK_EQ(aclDestroyTensorList(list), 0);
    }
    {
        const Tensor small(x, {3}), tiled(y, {2, 6}), each(y, {6});
        const Ints twice{2, 2};
        CHECK_EQ(CALL(board, Repeat, small, twice, tiled), 0);
        Values got = y.download();
        got.resize(12);
        CHECK(got == (Values{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
        CHECK_EQ(CALL(board, RepeatInterleaveIntWithDim, small, (int64_t) 2, (int64_t) 0, (int64_t) 6, each),
                 0);
        got = y.download();
        got.resize(6);
        CHECK(got == (Values{0, 0, 1, 1, 2, 2}));
    }
    {
        const Tensor flat(x, {2, 12}), ty(y, {2, 12});
        const Ints by{5}, along{-1};
        CHECK_EQ(CALL(board, Roll, flat, by, along, ty), 0);
        const Values got = y.download();
        for (size_t i = 0; i < 24; ++i) {
            CHECK_EQ(got[i / 12 * 12 + (i % 12 + 5) % 12], (double) i);
        }
        const Ints both{1, -1}, dims{0, 1};
        CHECK_EQ(CALL(board, Roll, flat, both, dims, ty), 0);
        CHECK(y.download()[0] == 13 && y.download()[11] == 12 && y.download()[12] == 1);
    }
    {
        const Tensor row(x, {1, 4}), expanded(y, {3, 4}), cut(y, {2, 1, 4});
        const Ints shape{3, -1};
        CHECK_EQ(CALL(board, Expand, row, shape, expanded), 0);
        CHECK(y.download()[9] == 1);
        CHECK_EQ(CALL(board, Slice, tx, (int64_t) 1, (int64_t) 1, (int64_t) 2, (int64_t) 1, cut), 0);
        CHECK(y.download()[0] == 4 && y.download()[4] == 16);
        const Tensor padded(y, {3, 4}), two(x, {2, 2}, {4, 1});
        const Ints pad{1, 1, 0, 1};
        const Scalar seven(7.0F);
        CHECK_EQ(CALL(board, ConstantPadNd, two, pad, seven, padded), 0);
        Values got = y.download();
        got.resize(12);
        CHECK(got == (Values{7, 0, 1, 7, 7, 4, 5, 7, 7, 7, 7, 7}));
    }
}

TEST_CASE(rows_by_index) {
    Board board;
    Values v(40);
    std::iota(v.begin(), v.end(), 0.0);
    for (const aclDataType index_type : {ACL_INT32, ACL_INT64}) {
        const Array x(board, ACL_FLOAT, v), i(board, index_type, Values{3, 0, 9}), y(board, ACL_FLOAT, 12);
        const Tensor tx(x, {10, 4}), ti(i, {3}), ty(y, {3, 4});
        const Values want = {12, 13, 14, 15, 0, 1, 2, 3, 36, 37, 38, 39};
        CHECK_EQ(CALL(board, GatherV2, tx, (int64_t) 0, ti, ty), 0);
        CHECK(y.download() == want);
        CHECK_EQ(CALL(board, IndexSelect, tx, (int64_t) 0, ti, ty), 0);
        CHECK(y.download() == want);
        CHECK_EQ(CALL(board, Embedding, tx, ti, ty), 0);
        CHECK(y.download() == want);
        // Along the last dim, with a 2-D index.
        const Array j(board, index_type, Values{1, 2}), z(board, ACL_FLOAT, 20);
        const Tensor tj(j, {1, 2}), tz(z, {10, 1, 2});
        CHECK_EQ(CALL(board, GatherV2, tx, (int64_t) 1, tj, tz), 0);
        CHECK(z.download()[2] == 5 && z.download()[19] == 38);
        // KV write: rows of a cache, strided.
        const Array cache(board, ACL_FLOAT16, Values(80, -1.0)), rows(board, ACL_FLOAT16, want);
        const Tensor tc(cache, {10, 4}, {8, 1}, 4), tr(rows, {3, 4});
        const aclTensor * index[] = {Tensor(i, {3}).release()};
        aclTensorList * list      = aclCreateTensorList(index, 1);
        CHECK_EQ(CALL(board, IndexPutImpl, tc, list, tr, false, true), 0);
        const Values got = cache.download();
        CHECK(got[28] == 12 && got[31] == 15 && got[27] == -1 && got[32] == -1 && got[4] == 0 &&
              got[79] == 39);
        CHECK_EQ(CALL(board, IndexPutImpl, tc, list, tr, true, true), 0);
        CHECK(cache.download()[28] == 24 && cache.download()[20] == -1);
        CHECK_EQ(aclDestroyTensorList(list), 0);
    }
}

TEST_CASE(ramps_fills_and_triangles) {
    Board board;
    const Scalar zero(0.0F), ten(10.0F), three(3.0F), nine(9.0F);
    const Array x(board, ACL_FLOAT, 4);
    const Tensor tx(x, {4});
    CHECK_EQ(CALL(board, Arange, zero, ten, three, tx), 0);
    CHECK(x.download() == (Values{0, 3, 6, 9}));
    CHECK_EQ(CALL(board, Range, zero, nine, three, tx), 0);
    CHECK(x.download() == (Values{0, 3, 6, 9}));
    CHECK_EQ(CALL(board, InplaceFillScalar, tx, three), 0);
    CHECK(x.download() == Values(4, 3.0));
    const Array mask(board, ACL_BOOL, Values{0, 1, 1, 0});
    const Tensor tm(mask, {4});
    CHECK_EQ(CALL(board, InplaceMaskedFillScalar, tx, tm, ten), 0);
    CHECK(x.download() == (Values{3, 10, 10, 3}));
    CHECK_EQ(CALL(board, GtScalar, tx, three, tm), 0);
    CHECK(mask.download() == (Values{0, 1, 1, 0}));
    const Array other(board, ACL_FLOAT, Values{4, 9, 10, 3});
    const Tensor to(other, {4});
    CHECK_EQ(CALL(board, LtTensor, tx, to, tm), 0);
    CHECK(mask.download() == (Values{1, 0, 0, 0}));
    CHECK_EQ(CALL(board, EqTensor, tx, to, tm), 0);
    CHECK(mask.download() == (Values{0, 0, 1, 1}));
    CHECK_EQ(CALL(board, InplaceOne, tx), 0);
    CHECK(x.download() == Values(4, 1.0));
    const Tensor square(x, {2, 2});
    CHECK_EQ(CALL(board, InplaceTril, square, (int64_t) 0), 0);
    CHECK(x.download() == (Values{1, 0, 1, 1}));
    CHECK_EQ(CALL(board, Triu, square, (int64_t) 1, Tensor(other, {2, 2})), 0);
    CHECK(other.download() == Values(4, 0.0));
    CHECK_EQ(CALL(board, InplaceZero, tx), 0);
    CHECK(x.download() == Values(4, 0.0));
}

TEST_CASE(maxima_and_running_sums) {
    Board board;
    const Array x(board, ACL_FLOAT16, Values{1, 5, 5, -2, 0, 7}), i(board, ACL_INT64, 2),
        v(board, ACL_FLOAT16, 2), one(board, ACL_FLOAT16, 1), y(board, ACL_FLOAT16, 6);
    const Tensor tx(x, {2, 3}), ti(i, {2}), tv(v, {2}), t1(one, {}, {}, 0, ACL_FORMAT_ND, {1}), ty(y, {2, 3});
    CHECK_EQ(CALL(board, ArgMax, tx, (int64_t) -1, false, ti), 0);
    CHECK(i.download() == (Values{1, 2})); // the first of equals
    CHECK_EQ(CALL(board, MaxDim, tx, (int64_t) 1, false, tv, ti), 0);
    CHECK(v.download() == (Values{5, 7}));
    CHECK_EQ(CALL(board, Max, tx, t1), 0);
    CHECK(one.download() == Values{7});
    CHECK_EQ(CALL(board, Cumsum, tx, (int64_t) 1, ACL_FLOAT16, ty), 0);
    CHECK(y.download() == (Values{1, 6, 11, -2, -2, 5}));
}

// Views with permuted dims, gaps and an offset, against index arithmetic. The seed is printed with a failure.
TEST_CASE(random_views_match_element_by_element) {
    Board board;
    struct View {
        Dims ne, stride;
        int64_t offset = 0, n_storage = 0;
        int64_t at(const Dims & index) const {
            int64_t element = offset;
            for (size_t d = 0; d < ne.size(); ++d) {
                element += index[d] % ne[d] * stride[d]; // a dim of 1 repeats
            }
            return element;
        }
    };
    for (unsigned seed = 1; seed <= 150; ++seed) {
        std::mt19937 random(seed);
        const auto draw = [&](int64_t low, int64_t high) {
            return low + (int64_t) (random() % (uint64_t) (high - low + 1));
        };
        const auto view_of = [&](const Dims & ne) {
            View v;
            v.ne = ne;
            v.stride.resize(ne.size());
            v.offset = draw(0, 5);
            Dims order(ne.size());
            std::iota(order.begin(), order.end(), 0);
            std::shuffle(order.begin(), order.end(), random);
            int64_t reach = draw(1, 2);
            for (const int64_t d : order) {
                v.stride[(size_t) d] = reach;
                reach *= ne[(size_t) d];
                reach += draw(0, 3) == 0 ? draw(0, 4) : 0;
            }
            v.n_storage = v.offset + reach + 16;
            return v;
        };
        Dims ne((size_t) draw(1, 4));
        for (int64_t & n : ne) {
            n = draw(1, 7);
        }
        ne.back()   = draw(1, 40);
        Dims narrow = ne;
        for (int64_t & n : narrow) {
            n = draw(0, 2) == 0 ? 1 : n;
        }
        const aclDataType t = draw(0, 1) == 0 ? ACL_FLOAT : ACL_FLOAT16;
        const View vx = view_of(ne), vz = view_of(narrow), vy = view_of(ne);
        const Values px = stored(random_values((size_t) vx.n_storage, seed), t);
        const Values pz = stored(random_values((size_t) vz.n_storage, seed + 1000), t);
        const Array x(board, t, px), z(board, t, pz);
        Array y(board, t, Values((size_t) vy.n_storage, -9.0));
        const Tensor tx(x, vx.ne, vx.stride, vx.offset), tz(z, vz.ne, vz.stride, vz.offset),
            ty(y, vy.ne, vy.stride, vy.offset);
        Dims kept        = ne;
        const size_t dim = (size_t) draw(0, (int64_t) ne.size() - 1);
        kept[dim]        = 1;
        const View vm    = view_of(kept);
        Array m(board, t, Values((size_t) vm.n_storage, -9.0));
        const Tensor tm(m, vm.ne, vm.stride, vm.offset);
        const Ints along{(int64_t) dim};
        const Scalar one(1.0F);

        CHECK_EQ(CALL(board, InplaceCopy, ty, tx), 0);
        const Values copied = y.download();
        y.upload(Values((size_t) vy.n_storage, -9.0));
        CHECK_EQ(CALL(board, Sub, tx, tz, one, ty), 0);
        const Values difference = y.download();
        CHECK_EQ(CALL(board, InplaceCopy, ty, tz), 0); // a repeated source
        const Values repeated = y.download();
        CHECK_EQ(CALL(board, ReduceSum, tx, along, true, t, tm), 0);
        const Values sums = m.download();

        Values want_copied((size_t) vy.n_storage, -9.0), want_difference = want_copied,
                                                         want_repeated = want_copied;
        Values want_sums((size_t) vm.n_storage, -9.0);
        for (int64_t i = 0; i < product(ne); ++i) {
            Dims index(ne.size());
            int64_t rest = i;
            for (size_t d = ne.size(); d-- > 0;) {
                index[d] = rest % ne[d];
                rest /= ne[d];
            }
            const auto to       = (size_t) vy.at(index);
            want_copied[to]     = px[(size_t) vx.at(index)];
            want_repeated[to]   = pz[(size_t) vz.at(index)];
            want_difference[to] = stored(want_copied[to] - want_repeated[to], t);
            double & sum        = want_sums[(size_t) vm.at(index)];
            sum                 = index[dim] == 0 ? want_copied[to] : sum + want_copied[to];
        }
        double off = 0;
        for (size_t i = 0; i < sums.size(); ++i) {
            off = std::max(off, std::fabs(sums[i] - want_sums[i]) - std::fabs(want_sums[i]) * 0x1p-10);
        }
        if (copied != want_copied || difference != want_difference || repeated != want_repeated ||
            off > 2e-5) {
            check::report(__FILE__, __LINE__, "seed " + std::to_string(seed));
        }
    }
}

TEST_CASE(four_threads_compute_apart) {
    configure(R"({"delay_us_max": 200, "seed": 7})");
    Board board;
    constexpr int kThreads = 4;
    std::vector<Values> results(kThreads);
    std::vector<std::unique_ptr<Array>> weights, inputs, outputs;
    for (int i = 0; i < kThreads; ++i) {
        weights.push_back(
            std::make_unique<Array>(board, ACL_FLOAT16, stored(random_values(1024, 1), ACL_FLOAT16)));
        inputs.push_back(
            std::make_unique<Array>(board, ACL_FLOAT16, stored(random_values(512, 2), ACL_FLOAT16)));
        outputs.push_back(std::make_unique<Array>(board, ACL_FLOAT16, 512));
    }
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
            REQUIRE(aclrtSetDevice(0) == ACL_SUCCESS); // each thread needs a context
            aclrtStream stream = nullptr;
            REQUIRE(aclrtCreateStream(&stream) == ACL_SUCCESS);
            const Tensor x(*inputs[i], {16, 32}), w(*weights[i], {32, 32}), y(*outputs[i], {16, 32});
            const auto run = [&](auto first, auto second, auto... args) {
                uint64_t size            = 0;
                aclOpExecutor * executor = nullptr;
                REQUIRE(first(args..., &size, &executor) == 0 && size == 0);
                REQUIRE(second(nullptr, size, executor, stream) == 0);
            };
            for (int step = 0; step < 20; ++step) {
                run(aclnnMatmulGetWorkspaceSize, aclnnMatmul, (aclTensor *) x, (aclTensor *) w,
                    (aclTensor *) y, (int8_t) 0);
                run(aclnnTanhGetWorkspaceSize, aclnnTanh, (aclTensor *) y, (aclTensor *) x);
            }
            REQUIRE(aclrtSynchronizeStream(stream) == ACL_SUCCESS);
            results[i] = outputs[i]->download();
            REQUIRE(aclrtDestroyStream(stream) == ACL_SUCCESS);
            REQUIRE(aclrtResetDevice(0) == ACL_SUCCESS);
        });
    }
    for (std::thread & t : threads) {
        t.join();
    }
    for (const Values & r : results) {
        CHECK(r == results[0]);
    }
    CHECK(results[0][0] != 0);
}

TEST_CASE(empty_tensors_run_nothing) {
    Board board;
    const Array x(board, ACL_FLOAT, 4);
    const Tensor tx(x, {0, 4}), ty(x, {0, 4});
    CHECK_EQ(CALL(board, Silu, tx, ty), 0);
    CHECK_EQ(board.last_workspace, 0u);
}

TEST_CASE(repeatable_executor_runs_on_other_addresses) {
    Board board;
    const Array x(board, ACL_FLOAT, Values{1, 2}), other(board, ACL_FLOAT, Values{5, 6}),
        y(board, ACL_FLOAT, 2), z(board, ACL_FLOAT, 2);
    const Tensor tx(x, {2}), ty(y, {2});
    uint64_t size            = 0;
    aclOpExecutor * executor = nullptr;
    REQUIRE(aclnnNegGetWorkspaceSize(tx, ty, &size, &executor) == 0);
    REQUIRE(aclSetAclOpExecutorRepeatable(executor) == 0);
    CHECK_EQ(aclnnNeg(nullptr, size, executor, board.stream), 0);
    CHECK_EQ(aclSetInputTensorAddr(executor, 0, tx, other.data), 0);
    CHECK_EQ(aclSetOutputTensorAddr(executor, 0, ty, z.data), 0);
    CHECK_EQ(aclSetInputTensorAddr(executor, 1, tx, other.data), 161002);
    CHECK_EQ(aclnnNeg(nullptr, size, executor, board.stream), 0);
    board.sync();
    CHECK(y.download() == (Values{-1, -2}));
    CHECK(z.download() == (Values{-5, -6}));
    CHECK_EQ(aclDestroyAclOpExecutor(executor), 0);
}

TEST_MAIN()
