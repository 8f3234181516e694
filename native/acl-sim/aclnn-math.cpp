// libopapi.so: element-wise operators. Arithmetic lists of fact sheet 4.3; BF16 is refused (161002).
#include "acl310b/aclnn-api.h"
#include "sim-core.h"
#include "sim-op.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

using namespace sim;

namespace {

const std::vector<aclDataType> kRealTypes   = {ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE};
const std::vector<aclDataType> kSignedTypes = {ACL_FLOAT, ACL_FLOAT16, ACL_INT32, ACL_INT64,
                                               ACL_INT16, ACL_INT8,    ACL_DOUBLE};
const std::vector<aclDataType> kBool        = {ACL_BOOL};

// The chip's kernels want dense operands: a strided one is copied first, a strided result copied back.
void make_all_contiguous(Plan & p) {
    for (int i = 0; i < p.n_operands(); ++i) {
        p.make_contiguous(i);
    }
}

aclnnStatus binary(const char * op, Binary kind, const aclTensor * self, const aclTensor * other,
                   const aclScalar * alpha, bool has_alpha, const aclTensor * out, uint64_t * size,
                   aclOpExecutor ** executor) {
    return plan_op(op, size, executor, [&](Plan & p) {
        const int a = p.in("self", self), b = p.in("other", other);
        const double k = has_alpha ? p.number("alpha", alpha) : 1.0;
        const int y    = p.out("out", out);
        p.dtypes({a, b, y}, kArithmetic);
        p.require_shape(y, p.broadcast(a, b));
        p.require_promotion(a, b, y);
        make_all_contiguous(p);
        p.forbid_alias();
        p.run([=](const Spans & s) { map_binary(kind, k, s[a], s[b], s[y]); });
    });
}

aclnnStatus binary_inplace(const char * op, Binary kind, const aclTensor * self, const aclTensor * other,
                           const aclScalar * alpha, bool has_alpha, uint64_t * size,
                           aclOpExecutor ** executor) {
    return plan_op(op, size, executor, [&](Plan & p) {
        const int y = p.update("selfRef", self), b = p.in("other", other);
        const double k = has_alpha ? p.number("alpha", alpha) : 1.0;
        p.dtypes({y, b}, kArithmetic);
        p.require_shape(y, p.broadcast(y, b));
        p.require_promotion(y, b, y);
        make_all_contiguous(p);
        p.allow_alias();
        p.run([=](const Spans & s) { map_binary(kind, k, s[y], s[b], s[y]); });
    });
}

// y = f(x) with x and y of one shape.
aclnnStatus unary(const char * op, Unary kind, const aclTensor * self, const aclTensor * out,
                  const std::vector<aclDataType> & types, uint64_t * size, aclOpExecutor ** executor,
                  const std::function<UnaryParams(Plan &)> & params = {}) {
    return plan_op(op, size, executor, [&](Plan & p) {
        const int x = p.in("self", self), y = p.out("out", out);
        const UnaryParams q = params ? params(p) : UnaryParams{};
        p.dtypes({x, y}, types);
        p.require_same_shape(x, y);
        p.require_promotion(x, x, y);
        make_all_contiguous(p);
        p.allow_alias();
        p.run([=](const Spans & s) { map_unary(kind, q, s[x], s[y]); });
    });
}

aclnnStatus unary_inplace(const char * op, Unary kind, const aclTensor * self,
                          const std::vector<aclDataType> & types, uint64_t * size, aclOpExecutor ** executor,
                          const std::function<UnaryParams(Plan &)> & params = {}) {
    return plan_op(op, size, executor, [&](Plan & p) {
        const int y         = p.update("selfRef", self);
        const UnaryParams q = params ? params(p) : UnaryParams{};
        p.dtypes({y}, types);
        make_all_contiguous(p);
        p.allow_alias();
        p.run([=](const Spans & s) { map_unary(kind, q, s[y], s[y]); });
    });
}

aclnnStatus compare(const char * op, Binary kind, const aclTensor * self, const aclTensor * other,
                    const aclTensor * out, uint64_t * size, aclOpExecutor ** executor) {
    return plan_op(op, size, executor, [&](Plan & p) {
        const int a = p.in("self", self), b = p.in("other", other), y = p.out("out", out);
        if (p.shape(a).dtype == ACL_INT64 || p.shape(b).dtype == ACL_INT64) {
            fatal("4.4: " + std::string(op) + " on INT64 is a segmentation fault on a 310B: never call it");
        }
        p.dtypes({a, b}, kArithmetic);
        p.dtypes({y}, kBool);
        p.require_shape(y, p.broadcast(a, b));
        make_all_contiguous(p);
        p.run([=](const Spans & s) { map_binary(kind, 1, s[a], s[b], s[y]); });
    });
}

aclnnStatus compare_scalar(const char * op, Unary kind, const aclTensor * self, const aclScalar * other,
                           const aclTensor * out, uint64_t * size, aclOpExecutor ** executor) {
    return plan_op(op, size, executor, [&](Plan & p) {
        const int x    = p.in("self", self);
        const double v = p.number("other", other);
        const int y    = p.out("out", out);
        p.dtypes({x}, kArithmetic);
        p.dtypes({y}, kBool);
        p.require_same_shape(x, y);
        make_all_contiguous(p);
        p.run([=](const Spans & s) { map_unary(kind, {v, 0, 0}, s[x], s[y]); });
    });
}

// x * scale + add, for Muls, Adds, Divs.
using Scaling = std::function<UnaryParams(Plan &)>;

Scaling times(const aclScalar * other) {
    return [other](Plan & p) { return UnaryParams{p.number("other", other), 0, 0}; };
}

Scaling plus(const aclScalar * other, const aclScalar * alpha) {
    return [other, alpha](Plan & p) {
        return UnaryParams{1, p.number("other", other) * p.number("alpha", alpha), 0};
    };
}

Scaling over(const aclScalar * other) {
    return [other](Plan & p) { return UnaryParams{1.0 / p.number("other", other), 0, 0}; };
}

} // namespace

// ---- two tensors ----

#define WITH_ALPHA(Name, kind)                                                                               \
    ACLNN_EXPORT aclnnStatus aclnn##Name##GetWorkspaceSize(const aclTensor * self, const aclTensor * other,  \
                                                           const aclScalar * alpha, aclTensor * out,         \
                                                           uint64_t * size, aclOpExecutor ** executor) {     \
        return binary("aclnn" #Name, kind, self, other, alpha, true, out, size, executor);                   \
    }
#define WITHOUT_ALPHA(Name, kind)                                                                            \
    ACLNN_EXPORT aclnnStatus aclnn##Name##GetWorkspaceSize(const aclTensor * self, const aclTensor * other,  \
                                                           aclTensor * out, uint64_t * size,                 \
                                                           aclOpExecutor ** executor) {                      \
        return binary("aclnn" #Name, kind, self, other, nullptr, false, out, size, executor);                \
    }
WITH_ALPHA(Add, Binary::add)
WITH_ALPHA(Sub, Binary::sub)
WITHOUT_ALPHA(Mul, Binary::mul)
WITHOUT_ALPHA(Div, Binary::div)
WITHOUT_ALPHA(PowTensorTensor, Binary::pow)

ACLNN_EXPORT aclnnStatus aclnnInplaceAddGetWorkspaceSize(const aclTensor * self, const aclTensor * other,
                                                         const aclScalar * alpha, uint64_t * size,
                                                         aclOpExecutor ** executor) {
    return binary_inplace("aclnnInplaceAdd", Binary::add, self, other, alpha, true, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnInplaceSubGetWorkspaceSize(aclTensor * self, const aclTensor * other,
                                                         const aclScalar * alpha, uint64_t * size,
                                                         aclOpExecutor ** executor) {
    return binary_inplace("aclnnInplaceSub", Binary::sub, self, other, alpha, true, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnInplaceMulGetWorkspaceSize(aclTensor * self, const aclTensor * other,
                                                         uint64_t * size, aclOpExecutor ** executor) {
    return binary_inplace("aclnnInplaceMul", Binary::mul, self, other, nullptr, false, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnInplaceDivGetWorkspaceSize(aclTensor * self, const aclTensor * other,
                                                         uint64_t * size, aclOpExecutor ** executor) {
    return binary_inplace("aclnnInplaceDiv", Binary::div, self, other, nullptr, false, size, executor);
}

// ---- a tensor and a scalar ----

ACLNN_EXPORT aclnnStatus aclnnMulsGetWorkspaceSize(const aclTensor * self, const aclScalar * other,
                                                   aclTensor * out, uint64_t * size,
                                                   aclOpExecutor ** executor) {
    return unary("aclnnMuls", Unary::scale_add, self, out, kArithmetic, size, executor, times(other));
}
ACLNN_EXPORT aclnnStatus aclnnInplaceMulsGetWorkspaceSize(aclTensor * self, const aclScalar * other,
                                                          uint64_t * size, aclOpExecutor ** executor) {
    return unary_inplace("aclnnInplaceMuls", Unary::scale_add, self, kArithmetic, size, executor,
                         times(other));
}
ACLNN_EXPORT aclnnStatus aclnnAddsGetWorkspaceSize(const aclTensor * self, const aclScalar * other,
                                                   const aclScalar * alpha, aclTensor * out, uint64_t * size,
                                                   aclOpExecutor ** executor) {
    return unary("aclnnAdds", Unary::scale_add, self, out, kArithmetic, size, executor, plus(other, alpha));
}
ACLNN_EXPORT aclnnStatus aclnnInplaceAddsGetWorkspaceSize(const aclTensor * self, const aclScalar * other,
                                                          const aclScalar * alpha, uint64_t * size,
                                                          aclOpExecutor ** executor) {
    return unary_inplace("aclnnInplaceAdds", Unary::scale_add, self, kArithmetic, size, executor,
                         plus(other, alpha));
}
ACLNN_EXPORT aclnnStatus aclnnDivsGetWorkspaceSize(const aclTensor * self, const aclScalar * other,
                                                   aclTensor * out, uint64_t * size,
                                                   aclOpExecutor ** executor) {
    return unary("aclnnDivs", Unary::scale_add, self, out, kArithmetic, size, executor, over(other));
}
ACLNN_EXPORT aclnnStatus aclnnInplaceDivsGetWorkspaceSize(aclTensor * self, const aclScalar * other,
                                                          uint64_t * size, aclOpExecutor ** executor) {
    return unary_inplace("aclnnInplaceDivs", Unary::scale_add, self, kArithmetic, size, executor,
                         over(other));
}
ACLNN_EXPORT aclnnStatus aclnnPowTensorScalarGetWorkspaceSize(const aclTensor * self,
                                                              const aclScalar * exponent,
                                                              const aclTensor * out, uint64_t * size,
                                                              aclOpExecutor ** executor) {
    return unary("aclnnPowTensorScalar", Unary::pow_scalar, self, out, kArithmetic, size, executor,
                 [=](Plan & p) { return UnaryParams{p.number("exponent", exponent), 0, 0}; });
}
ACLNN_EXPORT aclnnStatus aclnnInplacePowTensorScalarGetWorkspaceSize(const aclTensor * self,
                                                                     const aclScalar * exponent,
                                                                     uint64_t * size,
                                                                     aclOpExecutor ** executor) {
    return unary_inplace("aclnnInplacePowTensorScalar", Unary::pow_scalar, self, kArithmetic, size, executor,
                         [=](Plan & p) { return UnaryParams{p.number("exponent", exponent), 0, 0}; });
}
ACLNN_EXPORT aclnnStatus aclnnPowScalarTensorGetWorkspaceSize(const aclScalar * self,
                                                              const aclTensor * exponent,
                                                              const aclTensor * out, uint64_t * size,
                                                              aclOpExecutor ** executor) {
    return unary("aclnnPowScalarTensor", Unary::scalar_pow, exponent, out, kArithmetic, size, executor,
                 [=](Plan & p) { return UnaryParams{p.number("self", self), 0, 0}; });
}
ACLNN_EXPORT aclnnStatus aclnnClampGetWorkspaceSize(const aclTensor * self, const aclScalar * min,
                                                    const aclScalar * max, aclTensor * out, uint64_t * size,
                                                    aclOpExecutor ** executor) {
    return unary("aclnnClamp", Unary::clamp, self, out, kArithmetic, size, executor, [=](Plan & p) {
        if (min == nullptr && max == nullptr) {
            p.refuse(kAclnnNullptr, "clipValueMin and clipValueMax are both null");
        }
        return UnaryParams{min != nullptr ? p.number("clipValueMin", min) : -DBL_MAX,
                           max != nullptr ? p.number("clipValueMax", max) : DBL_MAX, 0};
    });
}
ACLNN_EXPORT aclnnStatus aclnnLeakyReluGetWorkspaceSize(const aclTensor * self,
                                                        const aclScalar * negative_slope, aclTensor * out,
                                                        uint64_t * size, aclOpExecutor ** executor) {
    return unary("aclnnLeakyRelu", Unary::leaky_relu, self, out, kRealTypes, size, executor,
                 [=](Plan & p) { return UnaryParams{p.number("negativeSlope", negative_slope), 0, 0}; });
}
ACLNN_EXPORT aclnnStatus aclnnEluGetWorkspaceSize(const aclTensor * self, const aclScalar * alpha,
                                                  const aclScalar * scale, const aclScalar * input_scale,
                                                  aclTensor * out, uint64_t * size,
                                                  aclOpExecutor ** executor) {
    return unary("aclnnElu", Unary::elu, self, out, kFloats, size, executor, [=](Plan & p) {
        return UnaryParams{p.number("alpha", alpha), p.number("scale", scale),
                           p.number("inputScale", input_scale)};
    });
}

// ---- one tensor ----

// NOLINTBEGIN(bugprone-macro-parentheses): a type cannot be enclosed
#define UNARY(Name, Out, kind, types)                                                                        \
    ACLNN_EXPORT aclnnStatus aclnn##Name##GetWorkspaceSize(const aclTensor * self, Out * out,                \
                                                           uint64_t * size, aclOpExecutor ** executor) {     \
        return unary("aclnn" #Name, kind, self, out, types, size, executor);                                 \
    }
#define UNARY_INPLACE(Name, kind, types)                                                                     \
    ACLNN_EXPORT aclnnStatus aclnnInplace##Name##GetWorkspaceSize(aclTensor * self, uint64_t * size,         \
                                                                  aclOpExecutor ** executor) {               \
        return unary_inplace("aclnnInplace" #Name, kind, self, types, size, executor);                       \
    }
// NOLINTEND(bugprone-macro-parentheses)
UNARY(Silu, aclTensor, Unary::silu, kFloats)
UNARY(Gelu, aclTensor, Unary::gelu_erf, kFloats)
UNARY(Sigmoid, aclTensor, Unary::sigmoid, kRealTypes)
UNARY_INPLACE(Sigmoid, Unary::sigmoid, kRealTypes)
UNARY(Tanh, aclTensor, Unary::tanh, kRealTypes)
UNARY_INPLACE(Tanh, Unary::tanh, kRealTypes)
UNARY(Relu, const aclTensor, Unary::relu, kSignedTypes)
UNARY_INPLACE(Relu, Unary::relu, kSignedTypes)
UNARY(Hardswish, const aclTensor, Unary::hardswish, kFloats)
UNARY(Sqrt, aclTensor, Unary::sqrt, kRealTypes)
UNARY_INPLACE(Sqrt, Unary::sqrt, kRealTypes)
UNARY(Rsqrt, aclTensor, Unary::rsqrt, kRealTypes)
UNARY_INPLACE(Rsqrt, Unary::rsqrt, kRealTypes)
UNARY(Exp, aclTensor, Unary::exp, kRealTypes)
UNARY_INPLACE(Exp, Unary::exp, kRealTypes)
UNARY(Neg, aclTensor, Unary::neg, kSignedTypes)
UNARY_INPLACE(Neg, Unary::neg, kSignedTypes)
UNARY(Abs, aclTensor, Unary::abs, kSignedTypes)
UNARY(Log, aclTensor, Unary::log, kRealTypes)
UNARY_INPLACE(Log, Unary::log, kRealTypes)
UNARY(Sin, aclTensor, Unary::sin, kRealTypes)
UNARY_INPLACE(Sin, Unary::sin, kRealTypes)
UNARY(Cos, aclTensor, Unary::cos, kRealTypes)
UNARY_INPLACE(Cos, Unary::cos, kRealTypes)

ACLNN_EXPORT aclnnStatus aclnnGeluV2GetWorkspaceSize(const aclTensor * x, int64_t approximate, aclTensor * y,
                                                     uint64_t * size, aclOpExecutor ** executor) {
    // 0: erf, 1: tanh form.
    return unary("aclnnGeluV2", approximate == 1 ? Unary::gelu_tanh : Unary::gelu_erf, x, y, kFloats, size,
                 executor, [=](Plan & p) {
                     p.require(approximate == 0 || approximate == 1,
                               "approximate is " + std::to_string(approximate) + ", allowed 0 and 1");
                     return UnaryParams{};
                 });
}

ACLNN_EXPORT aclnnStatus aclnnCastGetWorkspaceSize(const aclTensor * self, aclDataType dtype, aclTensor * out,
                                                   uint64_t * size, aclOpExecutor ** executor) {
    return plan_op("aclnnCast", size, executor, [&](Plan & p) {
        const int x = p.in("self", self), y = p.out("out", out);
        p.dtypes({x, y}, kArithmetic);
        p.require(p.shape(y).dtype == dtype,
                  std::string("dtype is ") + dtype_name(dtype) + ", out is " + p.shape(y).text());
        p.require_same_shape(x, y);
        make_all_contiguous(p);
        p.run([=](const Spans & s) { cast(s[x], s[y]); });
    });
}

// ---- comparisons ----

#define COMPARE(Name, kind)                                                                                  \
    ACLNN_EXPORT aclnnStatus aclnn##Name##TensorGetWorkspaceSize(                                            \
        const aclTensor * self, const aclTensor * other, aclTensor * out, uint64_t * size,                   \
        aclOpExecutor ** executor) {                                                                         \
        return compare("aclnn" #Name "Tensor", Binary::kind, self, other, out, size, executor);              \
    }                                                                                                        \
    ACLNN_EXPORT aclnnStatus aclnn##Name##ScalarGetWorkspaceSize(                                            \
        const aclTensor * self, const aclScalar * other, aclTensor * out, uint64_t * size,                   \
        aclOpExecutor ** executor) {                                                                         \
        return compare_scalar("aclnn" #Name "Scalar", Unary::kind, self, other, out, size, executor);        \
    }
COMPARE(Lt, less)
COMPARE(Gt, greater)
COMPARE(Eq, equal)

// ---- filling ----

namespace {

aclnnStatus fill_inplace(const char * op, const aclTensor * self, const std::function<double(Plan &)> & value,
                         uint64_t * size, aclOpExecutor ** executor) {
    return plan_op(op, size, executor, [&](Plan & p) {
        const int y    = p.out("selfRef", self);
        const double v = value(p);
        p.dtypes({y}, kArithmetic);
        p.run([=](const Spans & s) { fill(s[y], v); });
    });
}

aclnnStatus triangle_op(const char * op, const aclTensor * self, int64_t diagonal, const aclTensor * out,
                        bool inplace, bool lower, uint64_t * size, aclOpExecutor ** executor) {
    return plan_op(op, size, executor, [&](Plan & p) {
        const int x = inplace ? p.update("selfRef", self) : p.in("self", self);
        const int y = inplace ? x : p.out("out", out);
        p.dtypes({x, y}, kArithmetic);
        p.require(p.rank(x) >= 2, "self is " + p.shape(x).text() + ", needs two dimensions");
        p.require_same_shape(x, y);
        p.require_same_dtype(x, y);
        make_all_contiguous(p);
        p.allow_alias();
        p.run([=](const Spans & s) { triangle(s[x], s[y], diagonal, lower); });
    });
}

aclnnStatus ramp(const char * op, const aclScalar * start, const aclScalar * end, const aclScalar * step,
                 const aclTensor * out, bool includes_end, uint64_t * size, aclOpExecutor ** executor) {
    return plan_op(op, size, executor, [&](Plan & p) {
        const double first = p.number("start", start), last = p.number("end", end),
                     by = p.number("step", step);
        const int y     = p.out("out", out);
        // INT64 runs on the AI CPU, the others on the AI Core (4.3).
        p.dtypes({y}, {ACL_FLOAT, ACL_FLOAT16, ACL_INT32, ACL_INT64});
        p.require(by != 0 && (last - first) / by >= 0, "step does not lead from start to end");
        const double steps = (last - first) / by;
        const auto n       = (int64_t) (includes_end ? std::floor(steps) + 1 : std::ceil(steps));
        p.require(p.rank(y) == 1 && p.ne(y)[0] == n,
                  "out is " + p.shape(y).text() + ", the range has " + std::to_string(n) + " elements");
        make_all_contiguous(p);
        p.run([=](const Spans & s) { arange(s[y], first, by); });
    });
}

} // namespace

ACLNN_EXPORT aclnnStatus aclnnInplaceFillScalarGetWorkspaceSize(aclTensor * self, const aclScalar * value,
                                                                uint64_t * size, aclOpExecutor ** executor) {
    return fill_inplace(
        "aclnnInplaceFillScalar", self, [=](Plan & p) { return p.number("value", value); }, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnInplaceZeroGetWorkspaceSize(aclTensor * self, uint64_t * size,
                                                          aclOpExecutor ** executor) {
    return fill_inplace("aclnnInplaceZero", self, [](Plan &) { return 0.0; }, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnInplaceOneGetWorkspaceSize(const aclTensor * self, uint64_t * size,
                                                         aclOpExecutor ** executor) {
    return fill_inplace("aclnnInplaceOne", self, [](Plan &) { return 1.0; }, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnInplaceMaskedFillScalarGetWorkspaceSize(aclTensor * self,
                                                                      const aclTensor * mask,
                                                                      const aclScalar * value,
                                                                      uint64_t * size,
                                                                      aclOpExecutor ** executor) {
    return plan_op("aclnnInplaceMaskedFillScalar", size, executor, [&](Plan & p) {
        const int y = p.update("selfRef", self), m = p.in("mask", mask);
        const double v = p.number("value", value);
        p.dtypes({y}, kArithmetic);
        p.dtypes({m}, kBool);
        p.require_shape(y, p.broadcast(y, m));
        make_all_contiguous(p);
        p.run([=](const Spans & s) { fill_where(s[y], s[m], v); });
    });
}
ACLNN_EXPORT aclnnStatus aclnnTrilGetWorkspaceSize(const aclTensor * self, int64_t diagonal, aclTensor * out,
                                                   uint64_t * size, aclOpExecutor ** executor) {
    return triangle_op("aclnnTril", self, diagonal, out, false, true, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnTriuGetWorkspaceSize(const aclTensor * self, int64_t diagonal, aclTensor * out,
                                                   uint64_t * size, aclOpExecutor ** executor) {
    return triangle_op("aclnnTriu", self, diagonal, out, false, false, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnInplaceTrilGetWorkspaceSize(const aclTensor * self, int64_t diagonal,
                                                          uint64_t * size, aclOpExecutor ** executor) {
    return triangle_op("aclnnInplaceTril", self, diagonal, nullptr, true, true, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnInplaceTriuGetWorkspaceSize(aclTensor * self, int64_t diagonal, uint64_t * size,
                                                          aclOpExecutor ** executor) {
    return triangle_op("aclnnInplaceTriu", self, diagonal, nullptr, true, false, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnArangeGetWorkspaceSize(const aclScalar * start, const aclScalar * end,
                                                     const aclScalar * step, aclTensor * out, uint64_t * size,
                                                     aclOpExecutor ** executor) {
    return ramp("aclnnArange", start, end, step, out, false, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnRangeGetWorkspaceSize(const aclScalar * start, const aclScalar * end,
                                                    const aclScalar * step, aclTensor * out, uint64_t * size,
                                                    aclOpExecutor ** executor) {
    return ramp("aclnnRange", start, end, step, out, true, size, executor);
}
