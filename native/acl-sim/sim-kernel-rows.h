// Row-wise access to spans, shared by the kernels: load a run of elements in a compute type, store it back
// rounded and saturated, walk the rows of broadcast operands.
//
// Compute types: float for FP16 and FP32, double for DOUBLE, int64_t for integers and BOOL.
#pragma once

#include "sim-fp16.h"
#include "sim-kernel.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <limits>
#include <type_traits>

namespace sim {

inline bool is_float_type(aclDataType t) {
    return t == ACL_FLOAT || t == ACL_FLOAT16;
}

// Calls f with a value of the storage type of t. FP16 is handled by the callers.
template <typename F> void with_storage(aclDataType t, F && f) {
    switch (t) {
    case ACL_FLOAT:
        return f(float{});
    case ACL_DOUBLE:
        return f(double{});
    case ACL_INT8:
        return f(int8_t{});
    case ACL_BOOL:
    case ACL_UINT8:
        return f(uint8_t{});
    case ACL_INT16:
        return f(int16_t{});
    case ACL_UINT16:
        return f(uint16_t{});
    case ACL_INT32:
        return f(int32_t{});
    case ACL_UINT32:
        return f(uint32_t{});
    case ACL_UINT64:
        return f(uint64_t{});
    default:
        return f(int64_t{});
    }
}

template <typename C>
void load_run(const uint8_t * data, aclDataType t, int64_t at, int64_t stride, int64_t n, C * to) {
    if (t == ACL_FLOAT16) {
        const uint16_t * from = reinterpret_cast<const uint16_t *>(data) + at;
        if constexpr (std::is_same_v<C, float>) {
            if (stride == 1) {
                fp16_row_to_float(from, to, n);
                return;
            }
        }
        if (stride == 0) {
            std::fill_n(to, n, (C) fp16_to_float(*from));
            return;
        }
        for (int64_t i = 0; i < n; ++i) {
            to[i] = (C) fp16_to_float(from[i * stride]);
        }
        return;
    }
    // NOLINTBEGIN(bugprone-signed-char-misuse): INT8 elements are numbers, not characters
    with_storage(t, [&](auto sample) {
        using S        = decltype(sample);
        const S * from = reinterpret_cast<const S *>(data) + at;
        if (stride == 1) {
            for (int64_t i = 0; i < n; ++i) {
                to[i] = (C) from[i];
            }
        } else if (stride == 0) {
            std::fill_n(to, n, (C) *from);
        } else {
            for (int64_t i = 0; i < n; ++i) {
                to[i] = (C) from[i * stride];
            }
        }
    });
    // NOLINTEND(bugprone-signed-char-misuse)
}

// Float to integer: towards zero, saturating, NaN to 0. Integer to integer: wraps.
template <typename S, typename C> S convert(C x) {
    if constexpr (std::is_same_v<S, float>) {
        return saturate_float((float) x);
    } else if constexpr (std::is_same_v<S, double>) {
        const double d = (double) x;
        return d != d ? 0.0 : std::min(std::max(d, -DBL_MAX), DBL_MAX);
    } else if constexpr (std::is_floating_point_v<C>) {
        if (x != x) {
            return 0;
        }
        // The bounds as C may round up past the type's range: compare before converting.
        if (x >= (C) std::numeric_limits<S>::max()) {
            return std::numeric_limits<S>::max();
        }
        if (x <= (C) std::numeric_limits<S>::lowest()) {
            return std::numeric_limits<S>::lowest();
        }
        return (S) x;
    } else {
        return (S) x;
    }
}

template <typename C>
void store_run(uint8_t * data, aclDataType t, int64_t at, int64_t stride, int64_t n, const C * from) {
    if (t == ACL_FLOAT16) {
        uint16_t * to = reinterpret_cast<uint16_t *>(data) + at;
        if constexpr (std::is_same_v<C, float>) {
            if (stride == 1) {
                float_row_to_fp16(from, to, n);
                return;
            }
        }
        for (int64_t i = 0; i < n; ++i) {
            to[i * stride] = float_to_fp16((float) from[i]);
        }
        return;
    }
    if (t == ACL_BOOL) {
        for (int64_t i = 0; i < n; ++i) {
            data[at + i * stride] = from[i] != 0;
        }
        return;
    }
    with_storage(t, [&](auto sample) {
        using S = decltype(sample);
        S * to  = reinterpret_cast<S *>(data) + at;
        for (int64_t i = 0; i < n; ++i) {
            to[i * stride] = convert<S>(from[i]);
        }
    });
}

// N views walked together: dims of the last one, strides 0 where an operand broadcasts, dims merged where all
// views allow it, so that contiguous data is one long run.
template <int N> struct Walk {
    int rank             = 0;
    int64_t ne[kMaxDims] = {};
    std::array<std::array<int64_t, kMaxDims>, N> stride{};

    explicit Walk(const std::array<const Span *, N> & spans) {
        const Span & y = *spans[N - 1];
        for (int d = 0; d < y.rank; ++d) {
            std::array<int64_t, N> s{};
            for (int i = 0; i < N; ++i) {
                const Span & x = *spans[i];
                const int at   = d - (y.rank - x.rank);
                s[i]           = at < 0 || x.ne[at] == 1 ? 0 : x.stride[at];
            }
            if (y.ne[d] == 1) {
                continue;
            }
            bool merge = rank > 0;
            for (int i = 0; i < N && merge; ++i) {
                merge = stride[i][rank - 1] == s[i] * y.ne[d];
            }
            if (!merge) {
                ne[rank] = 1;
                ++rank;
            }
            ne[rank - 1] *= y.ne[d];
            for (int i = 0; i < N; ++i) {
                stride[i][rank - 1] = s[i];
            }
        }
        if (rank == 0) {
            rank  = 1;
            ne[0] = 1;
        }
    }

    int64_t run() const { return ne[rank - 1]; }

    int64_t n_runs() const {
        int64_t n = 1;
        for (int d = 0; d + 1 < rank; ++d) {
            n *= ne[d];
        }
        return n;
    }

    std::array<int64_t, N> offsets(int64_t run_index) const {
        std::array<int64_t, N> at{};
        for (int d = rank - 2; d >= 0; --d) {
            const int64_t i = run_index % ne[d];
            run_index /= ne[d];
            for (int v = 0; v < N; ++v) {
                at[v] += i * stride[v][d];
            }
        }
        return at;
    }

    int64_t inner(int view) const { return stride[view][rank - 1]; }

    // body(offsets of the piece, first index in the run, length): pieces of at most `piece` elements.
    template <typename F> void for_pieces(int64_t piece, F && body) const {
        const int64_t pieces_per_run = (run() + piece - 1) / piece;
        const int64_t grain = std::max<int64_t>(1, 65536 / std::max<int64_t>(1, std::min(run(), piece)));
        parallel_for(n_runs() * pieces_per_run, grain, [&](int64_t begin, int64_t end) {
            for (int64_t p = begin; p < end; ++p) {
                auto at             = offsets(p / pieces_per_run);
                const int64_t first = p % pieces_per_run * piece;
                for (int v = 0; v < N; ++v) {
                    at[v] += first * inner(v);
                }
                body(at, std::min(piece, run() - first));
            }
        });
    }
};

constexpr int64_t kPiece = 1024; // elements per load-compute-store step: three float buffers stay in L1

} // namespace sim
