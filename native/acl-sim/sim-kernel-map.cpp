// Element-by-element kernels.
#include "sim-kernel-rows.h"

#include <cstdlib>
#include <thread>

namespace sim {
namespace {

int g_threads = 2;

// a op b in compute type C, y stored in its own type.
template <typename C, typename F> void binary_rows(const Span & a, const Span & b, const Span & y, F f) {
    const Walk<3> walk({&a, &b, &y});
    walk.for_pieces(kPiece, [&](const std::array<int64_t, 3> & at, int64_t n) {
        C p[kPiece], q[kPiece];
        load_run(a.data, a.dtype, at[0], walk.inner(0), n, p);
        load_run(b.data, b.dtype, at[1], walk.inner(1), n, q);
        for (int64_t i = 0; i < n; ++i) {
            p[i] = f(p[i], q[i]);
        }
        store_run(y.data, y.dtype, at[2], walk.inner(2), n, p);
    });
}

template <typename C, typename F> void unary_rows(const Span & x, const Span & y, F f) {
    const Walk<2> walk({&x, &y});
    walk.for_pieces(kPiece, [&](const std::array<int64_t, 2> & at, int64_t n) {
        C p[kPiece];
        load_run(x.data, x.dtype, at[0], walk.inner(0), n, p);
        for (int64_t i = 0; i < n; ++i) {
            p[i] = f(p[i]);
        }
        store_run(y.data, y.dtype, at[1], walk.inner(1), n, p);
    });
}

// Integer overflow wraps on the chip; signed overflow in C++ does not.
int64_t wrap(uint64_t x) {
    return (int64_t) x;
}

template <typename C>
void binary_in(Binary op, double alpha, const Span & a, const Span & b, const Span & y) {
    const C k = (C) alpha;
    if constexpr (std::is_same_v<C, int64_t>) {
        switch (op) {
        case Binary::add:
            return binary_rows<C>(a, b, y,
                                  [k](C p, C q) { return wrap((uint64_t) p + (uint64_t) k * (uint64_t) q); });
        case Binary::sub:
            return binary_rows<C>(a, b, y,
                                  [k](C p, C q) { return wrap((uint64_t) p - (uint64_t) k * (uint64_t) q); });
        case Binary::mul:
            return binary_rows<C>(a, b, y, [](C p, C q) { return wrap((uint64_t) p * (uint64_t) q); });
        default:
            break; // the rest is defined on floating point (aclnnDiv of integers computes in FP32)
        }
    }
    using R         = std::conditional_t<std::is_same_v<C, int64_t>, double, C>;
    const R alpha_r = (R) alpha;
    switch (op) {
    case Binary::add:
        if (alpha == 1) {
            return binary_rows<R>(a, b, y, [](R p, R q) { return p + q; });
        }
        return binary_rows<R>(a, b, y, [alpha_r](R p, R q) { return p + alpha_r * q; });
    case Binary::sub:
        return binary_rows<R>(a, b, y, [alpha_r](R p, R q) { return p - alpha_r * q; });
    case Binary::mul:
        return binary_rows<R>(a, b, y, [](R p, R q) { return p * q; });
    case Binary::div:
        return binary_rows<R>(a, b, y, [](R p, R q) { return p / q; });
    case Binary::pow:
        return binary_rows<R>(a, b, y, [](R p, R q) { return (R) std::pow(p, q); });
    case Binary::less:
        return binary_rows<R>(a, b, y, [](R p, R q) { return (R) (p < q); });
    case Binary::greater:
        return binary_rows<R>(a, b, y, [](R p, R q) { return (R) (p > q); });
    case Binary::equal:
        return binary_rows<R>(a, b, y, [](R p, R q) { return (R) (p == q); });
    }
}

template <typename C> C gelu_tanh(C x) {
    // sqrt(2 / pi) and the cubic term of the published approximation (Hendrycks and Gimpel, 2016).
    const C u = (C) 0.7978845608028654 * (x + (C) 0.044715 * x * x * x);
    return (C) 0.5 * x * ((C) 1 + std::tanh(u));
}

template <typename R> void unary_in(Unary op, const UnaryParams & params, const Span & x, const Span & y) {
    const R a = (R) params.p0, b = (R) params.p1, c = (R) params.p2;
    switch (op) {
    case Unary::identity:
        return unary_rows<R>(x, y, [](R v) { return v; });
    case Unary::neg:
        return unary_rows<R>(x, y, [](R v) { return -v; });
    case Unary::abs:
        return unary_rows<R>(x, y, [](R v) { return v < 0 ? -v : v; });
    case Unary::exp:
        return unary_rows<R>(x, y, [](R v) { return std::exp(v); });
    case Unary::log:
        return unary_rows<R>(x, y, [](R v) { return std::log(v); });
    case Unary::sqrt:
        return unary_rows<R>(x, y, [](R v) { return std::sqrt(v); });
    case Unary::rsqrt:
        return unary_rows<R>(x, y, [](R v) { return (R) 1 / std::sqrt(v); });
    case Unary::sin:
        return unary_rows<R>(x, y, [](R v) { return std::sin(v); });
    case Unary::cos:
        return unary_rows<R>(x, y, [](R v) { return std::cos(v); });
    case Unary::sigmoid:
        return unary_rows<R>(x, y, [](R v) { return (R) 1 / ((R) 1 + std::exp(-v)); });
    case Unary::tanh:
        return unary_rows<R>(x, y, [](R v) { return std::tanh(v); });
    case Unary::relu:
        return unary_rows<R>(x, y, [](R v) { return v > 0 ? v : (R) 0; });
    case Unary::silu:
        return unary_rows<R>(x, y, [](R v) { return v / ((R) 1 + std::exp(-v)); });
    case Unary::gelu_erf:
        return unary_rows<R>(
            x, y, [](R v) { return (R) 0.5 * v * ((R) 1 + std::erf(v * (R) 0.7071067811865476)); });
    case Unary::gelu_tanh:
        return unary_rows<R>(x, y, [](R v) { return gelu_tanh(v); });
    case Unary::scale_add:
        return unary_rows<R>(x, y, [a, b](R v) { return v * a + b; });
    case Unary::clamp:
        return unary_rows<R>(x, y, [a, b](R v) { return v < a ? a : (v > b ? b : v); });
    case Unary::leaky_relu:
        return unary_rows<R>(x, y, [a](R v) { return v > 0 ? v : a * v; });
    case Unary::hardswish:
        return unary_rows<R>(x, y, [](R v) {
            const R t = v + 3;
            return v * (t < 0 ? (R) 0 : (t > 6 ? (R) 6 : t)) / 6;
        });
    case Unary::elu:
        return unary_rows<R>(x, y, [a, b, c](R v) { return b * (v > 0 ? v : a * std::expm1(v * c)); });
    case Unary::pow_scalar:
        return unary_rows<R>(x, y, [a](R v) { return (R) std::pow(v, a); });
    case Unary::scalar_pow:
        return unary_rows<R>(x, y, [a](R v) { return (R) std::pow(a, v); });
    case Unary::less:
        return unary_rows<R>(x, y, [a](R v) { return (R) (v < a); });
    case Unary::greater:
        return unary_rows<R>(x, y, [a](R v) { return (R) (v > a); });
    case Unary::equal:
        return unary_rows<R>(x, y, [a](R v) { return (R) (v == a); });
    }
}

} // namespace

int64_t Span::n_elements() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) {
        n *= ne[d];
    }
    return n;
}

bool Span::is_contiguous() const {
    int64_t expected = 1;
    for (int d = rank - 1; d >= 0; --d) {
        if (ne[d] != 1 && stride[d] != expected) {
            return false;
        }
        expected *= ne[d];
    }
    return true;
}

int64_t dtype_size(aclDataType dtype) {
    switch (dtype) {
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_BOOL:
        return 1;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
    case ACL_UINT16:
        return 2;
    case ACL_FLOAT:
    case ACL_INT32:
    case ACL_UINT32:
        return 4;
    case ACL_INT64:
    case ACL_UINT64:
    case ACL_DOUBLE:
    case ACL_COMPLEX64:
        return 8;
    case ACL_COMPLEX128:
        return 16;
    default:
        return 0;
    }
}

void set_kernel_threads(int n_threads) {
    g_threads = std::max(1, n_threads);
}

// Threads are started per call: 20-50 us each, paid only by work of milliseconds, and nothing is left behind
// for fork() or exit to trip over.
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)> & body) {
    const int64_t pieces = std::min<int64_t>(g_threads, grain > 0 ? n / grain : n);
    if (pieces <= 1) {
        if (n > 0) {
            body(0, n);
        }
        return;
    }
    std::vector<std::thread> others;
    for (int64_t i = 1; i < pieces; ++i) {
        others.emplace_back([&body, n, pieces, i] { body(n * i / pieces, n * (i + 1) / pieces); });
    }
    body(0, n / pieces);
    for (std::thread & t : others) {
        t.join();
    }
}

void map_unary(Unary op, const UnaryParams & params, const Span & x, const Span & y) {
    const bool whole = !is_float_type(x.dtype) && !is_float_type(y.dtype);
    if (is_float_type(x.dtype) || is_float_type(y.dtype)) {
        return unary_in<float>(op, params, x, y);
    }
    if (whole && x.dtype != ACL_DOUBLE && y.dtype != ACL_DOUBLE) {
        const int64_t a = (int64_t) params.p0, b = (int64_t) params.p1;
        switch (op) {
        case Unary::identity:
            return unary_rows<int64_t>(x, y, [](int64_t v) { return v; });
        case Unary::neg:
            return unary_rows<int64_t>(x, y, [](int64_t v) { return wrap(0 - (uint64_t) v); });
        case Unary::scale_add:
            if ((double) a == params.p0 && (double) b == params.p1) {
                return unary_rows<int64_t>(
                    x, y, [a, b](int64_t v) { return wrap((uint64_t) v * (uint64_t) a + (uint64_t) b); });
            }
            break;
        default:
            break;
        }
    }
    unary_in<double>(op, params, x, y);
}

void map_binary(Binary op, double alpha, const Span & a, const Span & b, const Span & y) {
    if (is_float_type(a.dtype) || is_float_type(b.dtype)) {
        return binary_in<float>(op, alpha, a, b, y);
    }
    if (a.dtype == ACL_DOUBLE || b.dtype == ACL_DOUBLE) {
        return binary_in<double>(op, alpha, a, b, y);
    }
    binary_in<int64_t>(op, alpha, a, b, y);
}

void fill(const Span & y, double value) {
    const Walk<1> walk({&y});
    walk.for_pieces(kPiece, [&](const std::array<int64_t, 1> & at, int64_t n) {
        double p[kPiece];
        std::fill_n(p, n, value);
        store_run(y.data, y.dtype, at[0], walk.inner(0), n, p);
    });
}

void fill_where(const Span & y, const Span & mask, double value) {
    const Walk<2> walk({&mask, &y});
    walk.for_pieces(kPiece, [&](const std::array<int64_t, 2> & at, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
            if (mask.data[at[0] + i * walk.inner(0)] != 0) {
                store_run(y.data, y.dtype, at[1] + i * walk.inner(1), 1, 1, &value);
            }
        }
    });
}

void arange(const Span & y, double start, double step) {
    for (int64_t i = 0; i < y.n_elements(); ++i) {
        const double value = start + (double) i * step;
        store_run(y.data, y.dtype, i * (y.rank > 0 ? y.stride[0] : 1), 1, 1, &value);
    }
}

void triangle(const Span & x, const Span & y, int64_t diagonal, bool lower) {
    const int r        = x.rank - 2;
    const int64_t size = dtype_size(x.dtype);
    int64_t n_matrices = 1;
    for (int d = 0; d < r; ++d) {
        n_matrices *= x.ne[d];
    }
    parallel_for(n_matrices * x.ne[r], 64, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t row = i % x.ne[r];
            int64_t rest = i / x.ne[r], from = row * x.stride[r], to = row * y.stride[r];
            for (int d = r - 1; d >= 0; --d) {
                from += rest % x.ne[d] * x.stride[d];
                to += rest % x.ne[d] * y.stride[d];
                rest /= x.ne[d];
            }
            for (int64_t j = 0; j < x.ne[r + 1]; ++j) {
                const bool keep   = lower ? j - row <= diagonal : j - row >= diagonal;
                uint8_t * element = y.data + (to + j * y.stride[r + 1]) * size;
                if (keep) {
                    std::memmove(element, x.data + (from + j * x.stride[r + 1]) * size, (size_t) size);
                } else {
                    std::memset(element, 0, (size_t) size);
                }
            }
        }
    });
}

} // namespace sim
