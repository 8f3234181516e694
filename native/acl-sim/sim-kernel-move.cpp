// Kernels that move elements: copies, casts, gathers, scatters, rolls, repeats.
#include "sim-kernel-rows.h"

#include <atomic>
#include <cstring>

namespace sim {
namespace {

void copy_run(uint8_t * to, int64_t to_stride, const uint8_t * from, int64_t from_stride, int64_t n,
              int64_t size) {
    if (to_stride == 1 && from_stride == 1) {
        std::memmove(to, from, (size_t) (n * size));
        return;
    }
    const auto each = [&](auto sample) {
        using S     = decltype(sample);
        S * y       = reinterpret_cast<S *>(to);
        const S * x = reinterpret_cast<const S *>(from);
        for (int64_t i = 0; i < n; ++i) {
            y[i * to_stride] = x[i * from_stride];
        }
    };
    switch (size) {
    case 1:
        return each(uint8_t{});
    case 2:
        return each(uint16_t{});
    case 4:
        return each(uint32_t{});
    case 8:
        return each(uint64_t{});
    default:
        for (int64_t i = 0; i < n; ++i) {
            std::memcpy(to + i * to_stride * size, from + i * from_stride * size, (size_t) size);
        }
    }
}

// The first or last dims of x as a span of their own; data is shared.
Span dims_of(const Span & x, int from, int to) {
    Span y = x;
    y.rank = to - from;
    for (int i = from; i < to; ++i) {
        y.ne[i - from]     = x.ne[i];
        y.stride[i - from] = x.stride[i];
    }
    return y;
}

// Element offset of the i-th element of x in row-major order.
int64_t offset_of(const Span & x, int64_t i) {
    int64_t at = 0;
    for (int d = x.rank - 1; d >= 0; --d) {
        at += i % x.ne[d] * x.stride[d];
        i /= x.ne[d];
    }
    return at;
}

int64_t index_at(const Span & index, int64_t i) {
    int64_t value = 0;
    load_run(index.data, index.dtype, offset_of(index, i), 1, 1, &value);
    return value;
}

void copy_serial(const Span & x, const Span & y) {
    const Walk<2> walk({&x, &y});
    const int64_t size = dtype_size(x.dtype);
    for (int64_t r = 0; r < walk.n_runs(); ++r) {
        const auto at = walk.offsets(r);
        copy_run(y.data + at[1] * size, walk.inner(1), x.data + at[0] * size, walk.inner(0), walk.run(),
                 size);
    }
}

void accumulate(const Span & x, const Span & y) {
    if (is_float_type(x.dtype)) {
        const Walk<2> walk({&x, &y});
        for (int64_t r = 0; r < walk.n_runs(); ++r) {
            const auto at = walk.offsets(r);
            for (int64_t i = 0; i < walk.run(); ++i) {
                float a = 0, b = 0;
                load_run(x.data, x.dtype, at[0] + i * walk.inner(0), 1, 1, &a);
                load_run(y.data, y.dtype, at[1] + i * walk.inner(1), 1, 1, &b);
                b += a;
                store_run(y.data, y.dtype, at[1] + i * walk.inner(1), 1, 1, &b);
            }
        }
        return;
    }
    map_binary(Binary::add, 1, y, x, y);
}

} // namespace

void cast(const Span & x, const Span & y) {
    const Walk<2> walk({&x, &y});
    const bool whole = !is_float_type(x.dtype) && x.dtype != ACL_DOUBLE;
    walk.for_pieces(kPiece, [&](const std::array<int64_t, 2> & at, int64_t n) {
        if (is_float_type(x.dtype)) {
            float p[kPiece];
            load_run(x.data, x.dtype, at[0], walk.inner(0), n, p);
            store_run(y.data, y.dtype, at[1], walk.inner(1), n, p);
        } else if (whole && !is_float_type(y.dtype)) {
            int64_t p[kPiece];
            load_run(x.data, x.dtype, at[0], walk.inner(0), n, p);
            store_run(y.data, y.dtype, at[1], walk.inner(1), n, p);
        } else {
            double p[kPiece];
            load_run(x.data, x.dtype, at[0], walk.inner(0), n, p);
            store_run(y.data, y.dtype, at[1], walk.inner(1), n, p);
        }
    });
}

void copy_elements(const Span & x, const Span & y) {
    if (x.dtype != y.dtype) {
        cast(x, y);
        return;
    }
    const Walk<2> walk({&x, &y});
    const int64_t size = dtype_size(x.dtype);
    walk.for_pieces(1 << 16, [&](const std::array<int64_t, 2> & at, int64_t n) {
        copy_run(y.data + at[1] * size, walk.inner(1), x.data + at[0] * size, walk.inner(0), n, size);
    });
}

bool gather_rows(const Span & x, int dim, const Span & index, const Span & y) {
    const int64_t size  = dtype_size(x.dtype);
    const int64_t n     = index.n_elements();
    const int64_t outer = dims_of(x, 0, dim).n_elements();
    // y: [outer dims of x, index dims, inner dims of x]
    const Span x_outer = dims_of(x, 0, dim), x_inner = dims_of(x, dim + 1, x.rank);
    const Span y_outer = dims_of(y, 0, dim), y_index = dims_of(y, dim, dim + index.rank);
    const Span y_inner = dims_of(y, dim + index.rank, y.rank);
    std::atomic<bool> in_range{true};
    const int64_t row = std::max<int64_t>(1, x_inner.n_elements());
    parallel_for(outer * n, std::max<int64_t>(1, 65536 / row), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t at = index_at(index, i % n);
            if (at < 0 || at >= x.ne[dim]) {
                in_range = false;
                continue;
            }
            Span from = x_inner, to = y_inner;
            from.data = x.data + (offset_of(x_outer, i / n) + at * x.stride[dim]) * size;
            to.data   = y.data + (offset_of(y_outer, i / n) + offset_of(y_index, i % n)) * size;
            copy_serial(from, to);
        }
    });
    return in_range;
}

bool put_rows(const Span & x, const std::vector<Span> & indices, const Span & values, bool add) {
    // indices broadcast together to one shape; values: [that shape, remaining dims of x], or broadcastable.
    Span shape = indices.front();
    for (const Span & index : indices) {
        if (index.rank > shape.rank) {
            shape = index;
        }
    }
    for (const Span & index : indices) {
        for (int d = 0; d < index.rank; ++d) {
            int64_t & extent = shape.ne[shape.rank - index.rank + d];
            extent           = std::max(extent, index.ne[d]);
        }
    }
    const int64_t size  = dtype_size(x.dtype);
    const int n_indexed = (int) indices.size();
    const Span x_rest   = dims_of(x, n_indexed, x.rank);
    const int64_t n     = shape.n_elements();
    // Give values the full shape by strides, 0 where it broadcasts.
    Span full = values;
    full.rank = shape.rank + x_rest.rank;
    for (int d = 0; d < full.rank; ++d) {
        const int at     = d - (full.rank - values.rank);
        const bool there = at >= 0 && values.ne[at] != 1;
        full.stride[d]   = there ? values.stride[at] : 0;
        full.ne[d]       = d < shape.rank ? shape.ne[d] : x_rest.ne[d - shape.rank];
    }
    const Span v_index = dims_of(full, 0, shape.rank), v_rest = dims_of(full, shape.rank, full.rank);
    bool in_range = true;
    for (int64_t i = 0; i < n; ++i) { // in order: of two equal indices the later value stays
        int64_t at = 0;
        bool ok    = true;
        for (int k = 0; k < n_indexed; ++k) {
            const Span & index = indices[(size_t) k];
            Span wide          = index;
            wide.rank          = shape.rank;
            for (int d = 0; d < shape.rank; ++d) {
                const int from = d - (shape.rank - index.rank);
                wide.ne[d]     = shape.ne[d];
                wide.stride[d] = from >= 0 && index.ne[from] != 1 ? index.stride[from] : 0;
            }
            int64_t value = index_at(wide, i);
            value += value < 0 ? x.ne[k] : 0;
            ok = ok && value >= 0 && value < x.ne[k];
            at += value * x.stride[k];
        }
        if (!ok) {
            in_range = false;
            continue;
        }
        Span from = v_rest, to = x_rest;
        from.data = values.data + offset_of(v_index, i) * size;
        to.data   = x.data + at * size;
        if (add) {
            accumulate(from, to);
        } else {
            copy_serial(from, to);
        }
    }
    return in_range;
}

void roll(const Span & x, const std::vector<int64_t> & shifts, const std::vector<int64_t> & dims,
          const Span & y) {
    // y[(i + shift) mod n] = x[i]: each rolled dim splits x in two, so 2^dims plain copies.
    const int n_dims = (int) dims.size();
    for (int part = 0; part < 1 << n_dims; ++part) {
        Span from = x, to = y;
        const int64_t size = dtype_size(x.dtype);
        bool empty         = false;
        for (int k = 0; k < n_dims; ++k) {
            const int d         = (int) dims[(size_t) k];
            const int64_t n     = x.ne[d];
            const int64_t shift = n == 0 ? 0 : ((shifts[(size_t) k] % n) + n) % n;
            const bool wrapped  = (part >> k & 1) != 0;
            const int64_t first = wrapped ? n - shift : 0, count = wrapped ? shift : n - shift;
            from.data += first * x.stride[d] * size;
            to.data += (wrapped ? 0 : shift) * y.stride[d] * size;
            from.ne[d] = to.ne[d] = count;
            empty                 = empty || count == 0;
        }
        if (!empty) {
            copy_elements(from, to);
        }
    }
}

void repeat(const Span & x, const Span & y) {
    // A dim repeated r times is a dim of extent r and input stride 0 before it. Copy tile by tile: the tiles
    // along the leading dims are few, the copies themselves long.
    const int64_t size = dtype_size(x.dtype);
    Span tiles         = y; // ne: repeats, stride: in y
    Span to            = y;
    Span from          = x;
    from.rank          = y.rank;
    for (int d = 0; d < y.rank; ++d) {
        const int at    = d - (y.rank - x.rank);
        from.ne[d]      = at < 0 ? 1 : x.ne[at];
        from.stride[d]  = at < 0 ? 0 : x.stride[at];
        to.ne[d]        = from.ne[d];
        tiles.ne[d]     = from.ne[d] == 0 ? 0 : y.ne[d] / from.ne[d];
        tiles.stride[d] = from.ne[d] * y.stride[d];
    }
    const int64_t work = std::max<int64_t>(1, from.n_elements());
    parallel_for(tiles.n_elements(), std::max<int64_t>(1, 65536 / work), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            Span part = to;
            part.data = y.data + offset_of(tiles, i) * size;
            copy_serial(from, part);
        }
    });
}

} // namespace sim
