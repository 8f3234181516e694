// Kernels along a dimension: softmax, sums, means, norms, arg max, running sums.
#include "sim-kernel-rows.h"

namespace sim {
namespace {

// All lines of a span along one dim: the offset of a line's first element, in elements.
struct Lines {
    Span rest;
    explicit Lines(const Span & x, int dim) : rest(x) {
        for (int d = dim; d + 1 < x.rank; ++d) {
            rest.ne[d]     = x.ne[d + 1];
            rest.stride[d] = x.stride[d + 1];
        }
        rest.rank = x.rank > 0 ? x.rank - 1 : 0;
    }
    int64_t count() const { return rest.n_elements(); }
    int64_t offset(int64_t i) const {
        int64_t at = 0;
        for (int d = rest.rank - 1; d >= 0; --d) {
            at += i % rest.ne[d] * rest.stride[d];
            i /= rest.ne[d];
        }
        return at;
    }
};

int64_t grain_for(int64_t line) {
    return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, line));
}

} // namespace

void softmax(const Span & x, int dim, const Span & y, bool log) {
    const int64_t n = x.ne[dim];
    const Lines in(x, dim), out(y, dim);
    parallel_for(in.count(), grain_for(n), [&](int64_t begin, int64_t end) {
        std::vector<float> row((size_t) n);
        for (int64_t i = begin; i < end; ++i) {
            load_run(x.data, x.dtype, in.offset(i), x.stride[dim], n, row.data());
            // A stored -inf counts as the most negative finite number, so a fully masked row is uniform
            // (4.8).
            float max = -FLT_MAX;
            for (float & v : row) {
                v   = saturate_float(v);
                max = std::max(max, v);
            }
            float sum = 0;
            for (float & v : row) {
                const float shifted = std::max(v - max, -FLT_MAX);
                const float e       = std::exp(shifted);
                sum += e;
                v = log ? shifted : e;
            }
            const float scale = log ? std::log(sum) : 1.0f / sum;
            for (float & v : row) {
                v = log ? v - scale : v * scale;
            }
            store_run(y.data, y.dtype, out.offset(i), y.stride[dim], n, row.data());
        }
    });
}

void reduce_sum(const Span & x, const Span & y, bool divide) {
    // The reduced dims as one inner walk per element of y.
    Span kept = x, reduced = x;
    int n_kept = 0, n_reduced = 0;
    for (int d = 0; d < x.rank; ++d) {
        Span & to    = y.ne[d] == 1 ? reduced : kept;
        int & n      = y.ne[d] == 1 ? n_reduced : n_kept;
        to.ne[n]     = x.ne[d];
        to.stride[n] = x.stride[d];
        ++n;
    }
    kept.rank    = n_kept;
    reduced.rank = n_reduced;
    Span out     = y;
    out.rank     = 0;
    for (int d = 0; d < x.rank; ++d) {
        if (y.ne[d] != 1) {
            out.ne[out.rank]     = y.ne[d];
            out.stride[out.rank] = y.stride[d];
            ++out.rank;
        }
    }
    const Walk<1> inner({&reduced});
    const int64_t n   = reduced.n_elements();
    const bool whole  = !is_float_type(x.dtype) && x.dtype != ACL_DOUBLE;
    const auto offset = [](const Span & s, int64_t i) {
        int64_t at = 0;
        for (int d = s.rank - 1; d >= 0; --d) {
            at += i % s.ne[d] * s.stride[d];
            i /= s.ne[d];
        }
        return at;
    };
    parallel_for(kept.n_elements(), grain_for(n), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t base = offset(kept, i), to = offset(out, i);
            double sum        = 0;
            int64_t whole_sum = 0;
            for (int64_t r = 0; r < inner.n_runs() && n > 0; ++r) {
                const int64_t at = base + inner.offsets(r)[0];
                for (int64_t first = 0; first < inner.run(); first += kPiece) {
                    const int64_t m  = std::min(kPiece, inner.run() - first);
                    const int64_t p0 = at + first * inner.inner(0);
                    if (whole) {
                        int64_t p[kPiece];
                        load_run(x.data, x.dtype, p0, inner.inner(0), m, p);
                        for (int64_t j = 0; j < m; ++j) {
                            whole_sum = (int64_t) ((uint64_t) whole_sum + (uint64_t) p[j]);
                        }
                    } else if (x.dtype == ACL_DOUBLE) {
                        double p[kPiece];
                        load_run(x.data, x.dtype, p0, inner.inner(0), m, p);
                        for (int64_t j = 0; j < m; ++j) {
                            sum += p[j];
                        }
                    } else {
                        // FP32 partial sums in eight lanes, as a vector unit reduces; no FP64 on the chip.
                        float p[kPiece];
                        load_run(x.data, x.dtype, p0, inner.inner(0), m, p);
                        float lanes[8] = {};
                        for (int64_t j = 0; j < m; ++j) {
                            lanes[j % 8] += p[j];
                        }
                        float piece = 0;
                        for (const float lane : lanes) {
                            piece += lane;
                        }
                        sum = (double) ((float) sum + piece);
                    }
                }
            }
            if (whole && !divide) {
                store_run(y.data, y.dtype, to, 1, 1, &whole_sum);
                continue;
            }
            double result = whole ? (double) whole_sum : sum;
            result        = divide ? result / (double) n : result;
            if (is_float_type(y.dtype)) {
                const float rounded = (float) result;
                store_run(y.data, y.dtype, to, 1, 1, &rounded);
            } else {
                store_run(y.data, y.dtype, to, 1, 1, &result);
            }
        }
    });
}

void layer_norm(const Span & x, int64_t n_norm_dims, const Span * weight, const Span * bias, double eps,
                const Span & y, const Span * mean, const Span * rstd) {
    const int first = x.rank - (int) n_norm_dims;
    Span row = x, rows = x, y_row = y, y_rows = y;
    row.rank = y_row.rank = (int) n_norm_dims;
    rows.rank = y_rows.rank = first;
    for (int d = 0; d < n_norm_dims; ++d) {
        row.ne[d] = y_row.ne[d] = x.ne[first + d];
        row.stride[d]           = x.stride[first + d];
        y_row.stride[d]         = y.stride[first + d];
    }
    const auto offset = [](const Span & s, int64_t i) {
        int64_t at = 0;
        for (int d = s.rank - 1; d >= 0; --d) {
            at += i % s.ne[d] * s.stride[d];
            i /= s.ne[d];
        }
        return at;
    };
    const int64_t n = row.n_elements();
    const auto load = [&](const Span & s, std::vector<float> & to) {
        for (int64_t j = 0; j < n; ++j) {
            load_run(s.data, s.dtype, offset(s, j), 1, 1, &to[(size_t) j]);
        }
    };
    std::vector<float> w((size_t) n, 1.0f), b((size_t) n, 0.0f);
    if (weight != nullptr) {
        load(*weight, w);
    }
    if (bias != nullptr) {
        load(*bias, b);
    }
    parallel_for(rows.n_elements(), grain_for(n), [&](int64_t begin, int64_t end) {
        std::vector<float> v((size_t) n);
        for (int64_t i = begin; i < end; ++i) {
            Span from = row, to = y_row;
            from.data = x.data + offset(rows, i) * dtype_size(x.dtype);
            to.data   = y.data + offset(y_rows, i) * dtype_size(y.dtype);
            if (row.rank == 1) {
                load_run(from.data, from.dtype, 0, from.stride[0], n, v.data());
            } else {
                load(from, v);
            }
            float sum = 0;
            for (const float e : v) {
                sum += e;
            }
            const float m = sum / (float) n;
            float squares = 0;
            for (const float e : v) {
                squares += (e - m) * (e - m);
            }
            const float r = 1.0f / std::sqrt(squares / (float) n + (float) eps);
            for (int64_t j = 0; j < n; ++j) {
                v[(size_t) j] = (v[(size_t) j] - m) * r * w[(size_t) j] + b[(size_t) j];
            }
            if (to.rank == 1) {
                store_run(to.data, to.dtype, 0, to.stride[0], n, v.data());
            } else {
                for (int64_t j = 0; j < n; ++j) {
                    store_run(to.data, to.dtype, offset(to, j), 1, 1, &v[(size_t) j]);
                }
            }
            if (mean != nullptr) {
                store_run(mean->data, mean->dtype, offset(*mean, i), 1, 1, &m);
            }
            if (rstd != nullptr) {
                store_run(rstd->data, rstd->dtype, offset(*rstd, i), 1, 1, &r);
            }
        }
    });
}

void rms_norm(const Span & x, const Span & weight, double eps, const Span & y, const Span & rstd) {
    const int dim   = x.rank - 1;
    const int64_t n = x.ne[dim];
    const Lines in(x, dim), out(y, dim), of(rstd, dim);
    std::vector<float> w((size_t) n);
    load_run(weight.data, weight.dtype, 0, weight.stride[0], n, w.data());
    parallel_for(in.count(), grain_for(n), [&](int64_t begin, int64_t end) {
        std::vector<float> v((size_t) n);
        for (int64_t i = begin; i < end; ++i) {
            load_run(x.data, x.dtype, in.offset(i), x.stride[dim], n, v.data());
            float squares = 0;
            for (const float e : v) {
                squares += e * e;
            }
            const float r = 1.0f / std::sqrt(squares / (float) n + (float) eps);
            for (int64_t j = 0; j < n; ++j) {
                v[(size_t) j] *= r * w[(size_t) j];
            }
            store_run(y.data, y.dtype, out.offset(i), y.stride[dim], n, v.data());
            store_run(rstd.data, rstd.dtype, of.offset(i), 1, 1, &r);
        }
    });
}

void arg_max(const Span & x, int dim, const Span * values, const Span & indices) {
    const int64_t n = x.ne[dim];
    const Lines in(x, dim), at(indices, dim);
    parallel_for(in.count(), grain_for(n), [&](int64_t begin, int64_t end) {
        std::vector<double> row((size_t) n);
        for (int64_t i = begin; i < end; ++i) {
            load_run(x.data, x.dtype, in.offset(i), x.stride[dim], n, row.data());
            int64_t best = 0;
            for (int64_t j = 1; j < n; ++j) {
                best = row[(size_t) j] > row[(size_t) best] ? j : best;
            }
            store_run(indices.data, indices.dtype, at.offset(i), 1, 1, &best);
            if (values != nullptr) {
                const Lines out(*values, dim);
                store_run(values->data, values->dtype, out.offset(i), 1, 1, &row[(size_t) best]);
            }
        }
    });
}

void cumsum(const Span & x, int dim, const Span & y) {
    const int64_t n = x.ne[dim];
    const Lines in(x, dim), out(y, dim);
    const bool whole = !is_float_type(x.dtype) && x.dtype != ACL_DOUBLE;
    parallel_for(in.count(), grain_for(n), [&](int64_t begin, int64_t end) {
        std::vector<float> row((size_t) n);
        std::vector<int64_t> whole_row(whole ? (size_t) n : 0);
        for (int64_t i = begin; i < end; ++i) {
            if (whole) {
                load_run(x.data, x.dtype, in.offset(i), x.stride[dim], n, whole_row.data());
                for (int64_t j = 1; j < n; ++j) {
                    whole_row[(size_t) j] += whole_row[(size_t) (j - 1)];
                }
                store_run(y.data, y.dtype, out.offset(i), y.stride[dim], n, whole_row.data());
            } else {
                load_run(x.data, x.dtype, in.offset(i), x.stride[dim], n, row.data());
                for (int64_t j = 1; j < n; ++j) {
                    row[(size_t) j] += row[(size_t) (j - 1)];
                }
                store_run(y.data, y.dtype, out.offset(i), y.stride[dim], n, row.data());
            }
        }
    });
}

} // namespace sim
