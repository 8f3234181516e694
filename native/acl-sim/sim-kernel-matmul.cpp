// Matrix products as the cube computes them: FP16 x FP16, FP32 sums, one rounding.
//
// Speed decides how long every test takes, so the loops follow the layouts: a [N,K] weight is read row by
// row, an NZ weight block by block, once per call however many rows A has. Larger M goes through a packed
// FP32 tile.
#include "sim-fp16.h"
#include "sim-kernel-isa.h"
#include "sim-kernel.h"

#include <algorithm>
#include <cstring>

namespace sim {
namespace {

constexpr int64_t kDotRows    = 3;       // up to this M a row-major weight is used without packing
constexpr int64_t kTileN      = 64;      // columns packed at a time
constexpr int64_t kTileK      = 512;     // depth packed at a time: 64 * 512 * 4 B stays in L2
constexpr int64_t kSerialWork = 1 << 18; // multiply-adds below which a thread costs more than it brings

int64_t round_up(int64_t n, int64_t step) {
    return (n + step - 1) / step * step;
}

const uint16_t * halves(const Span & s) {
    return reinterpret_cast<const uint16_t *>(s.data);
}
const float * floats(const Span & s) {
    return reinterpret_cast<const float *>(s.data);
}

float operand_at(const Span & s, int64_t at) {
    if (s.dtype == ACL_FLOAT16) {
        return fp16_to_float(halves(s)[at]);
    }
    return fp16_to_float(float_to_fp16(floats(s)[at]));
}

// A as FP32 values of FP16 numbers, rows padded with zeros to `lda`.
std::vector<float> unpack_a(const Matmul & w, int64_t lda) {
    std::vector<float> a((size_t) (w.m * lda), 0.0f);
    const int64_t row = w.a.stride[0], col = w.a.stride[1];
    for (int64_t i = 0; i < w.m; ++i) {
        float * to = a.data() + i * lda;
        if (w.a.dtype == ACL_FLOAT16 && col == 1) {
            fp16_row_to_float(halves(w.a) + i * row, to, w.k);
            continue;
        }
        for (int64_t j = 0; j < w.k; ++j) {
            to[j] = operand_at(w.a, i * row + j * col);
        }
    }
    return a;
}

// Rounds a tile c[m][ldc] into columns n0.. of y.
void store(const Matmul & w, float * c, int64_t ldc, int64_t n0, int64_t n) {
    for (int64_t i = 0; i < w.m; ++i) {
        float * from = c + i * ldc;
        if (w.alpha != 1 || w.bias != nullptr) {
            for (int64_t j = 0; j < n; ++j) {
                float x = (float) w.alpha * from[j];
                if (w.bias != nullptr) {
                    const int64_t at = i * w.bias->stride[0] + (n0 + j) * w.bias->stride[1];
                    const float bias = w.bias->dtype == ACL_FLOAT16 ? fp16_to_float(halves(*w.bias)[at])
                                                                    : floats(*w.bias)[at];
                    x += (float) w.beta * bias;
                }
                from[j] = x;
            }
        }
        const int64_t base = i * w.y.stride[0] + n0 * w.y.stride[1], col = w.y.stride[1];
        if (w.y.dtype == ACL_FLOAT16) {
            uint16_t * to = reinterpret_cast<uint16_t *>(w.y.data) + base;
            if (col == 1) {
                float_row_to_fp16(from, to, n);
            } else {
                for (int64_t j = 0; j < n; ++j) {
                    to[j * col] = float_to_fp16(from[j]);
                }
            }
        } else {
            float * to = reinterpret_cast<float *>(w.y.data) + base;
            for (int64_t j = 0; j < n; ++j) {
                to[j * col] = saturate_float(from[j]);
            }
        }
    }
}

// Columns n0..n1 of a weight whose columns are contiguous along K, few rows of A.
void columns_by_dot(const Matmul & w, const float * a, int64_t lda, int64_t n0, int64_t n1) {
    const uint16_t * b = halves(w.b);
    const int64_t col  = w.b.stride[1];
    const int64_t n    = n1 - n0;
    std::vector<float> c((size_t) (w.m * round_up(n, 4)));
    const int64_t ldc = round_up(n, 4);
    for (int64_t j = 0; j < n; j += 4) {
        const uint16_t * rows[4];
        for (int64_t u = 0; u < 4; ++u) {
            rows[u] = b + std::min(n0 + j + u, n1 - 1) * col;
        }
        for (int64_t i = 0; i < w.m; ++i) {
            isa().dot4_fp16(a + i * lda, rows, w.k, c.data() + i * ldc + j);
        }
    }
    store(w, c.data(), ldc, n0, n);
}

// Copies columns n0..n0+n, depth k0..k0+k of b into b_tile[n][ldb] as FP32.
void pack_tile(const Matmul & w, int64_t n0, int64_t n, int64_t k0, int64_t k, float * tile, int64_t ldb) {
    const uint16_t * b = w.b.dtype == ACL_FLOAT16 ? halves(w.b) : nullptr;
    if (w.layout == WeightLayout::strided) {
        const int64_t row = w.b.stride[0], col = w.b.stride[1];
        if (b != nullptr && row == 1) {
            for (int64_t j = 0; j < n; ++j) {
                fp16_row_to_float(b + (n0 + j) * col + k0, tile + j * ldb, k);
            }
        } else {
            for (int64_t i = 0; i < k; ++i) {
                for (int64_t j = 0; j < n; ++j) {
                    tile[j * ldb + i] = operand_at(w.b, (k0 + i) * row + (n0 + j) * col);
                }
            }
        }
    } else if (w.layout == WeightLayout::nz_kn) {
        float line[16];
        for (int64_t j = 0; j < n; j += 16) {
            const uint16_t * block = b + (n0 + j) / 16 * w.k * 16;
            for (int64_t i = 0; i < k; ++i) {
                fp16_row_to_float(block + (k0 + i) * 16, line, 16);
                for (int64_t u = 0; u < std::min<int64_t>(16, n - j); ++u) {
                    tile[(j + u) * ldb + i] = line[u];
                }
            }
        }
    } else {
        const int64_t n_padded = round_up(w.n, 16);
        for (int64_t i = 0; i < k; i += 16) {
            const uint16_t * block = b + (k0 + i) * n_padded;
            for (int64_t j = 0; j < n; ++j) {
                fp16_row_to_float(block + (n0 + j) * 16, tile + j * ldb + i, 16);
            }
        }
    }
    const int64_t k_padded = round_up(k, 8);
    for (int64_t j = 0; j < round_up(n, 4); ++j) {
        for (int64_t i = j < n ? k : 0; i < k_padded; ++i) {
            tile[j * ldb + i] = 0.0f;
        }
    }
}

void columns_by_tile(const Matmul & w, const float * a, int64_t lda, int64_t n0, int64_t n1) {
    std::vector<float> b((size_t) (kTileN * kTileK));
    std::vector<float> c((size_t) (w.m * kTileN));
    for (int64_t j = n0; j < n1; j += kTileN) {
        const int64_t n = std::min(kTileN, n1 - j);
        std::fill(c.begin(), c.end(), 0.0f);
        for (int64_t i = 0; i < w.k; i += kTileK) {
            const int64_t k = std::min(kTileK, w.k - i);
            pack_tile(w, j, n, i, k, b.data(), kTileK);
            isa().multiply_packed(a + i, lda, b.data(), kTileK, c.data(), kTileN, w.m, round_up(n, 4),
                                  round_up(k, 8));
        }
        store(w, c.data(), kTileN, j, n);
    }
}

// Few rows of A, NZ of a [K,N] weight: strips of 16 columns, read front to back.
void columns_by_strip(const Matmul & w, const float * a, int64_t lda, int64_t n0, int64_t n1) {
    std::vector<float> c((size_t) (w.m * 16));
    for (int64_t j = n0; j < n1; j += 16) {
        isa().multiply_strip(a, lda, halves(w.b) + j * w.k, c.data(), 16, w.m, w.k);
        store(w, c.data(), 16, j, std::min<int64_t>(16, n1 - j));
    }
}

// Few rows of A, NZ of a [N,K] weight: 16 k of many columns lie together.
void columns_by_block(const Matmul & w, const float * a, int64_t lda, int64_t n0, int64_t n1) {
    constexpr int64_t kColumns = 128; // 16 FP16 each: 4 KiB read in a row
    const int64_t n_padded     = round_up(w.n, 16);
    std::vector<float> sums((size_t) (w.m * kColumns * 8));
    std::vector<float> c((size_t) (w.m * kColumns));
    for (int64_t j = n0; j < n1; j += kColumns) {
        const int64_t n = std::min(kColumns, n1 - j);
        std::fill(sums.begin(), sums.end(), 0.0f);
        for (int64_t i = 0; i < w.k; i += 16) {
            isa().add_block(a + i, lda, halves(w.b) + i * n_padded + j * 16, sums.data(), w.m, n);
        }
        for (int64_t i = 0; i < w.m; ++i) {
            isa().fold_sums(sums.data() + i * n * 8, c.data() + i * kColumns, n);
        }
        store(w, c.data(), kColumns, j, n);
    }
}

void columns(const Matmul & w, const float * a, int64_t lda, int64_t n0, int64_t n1) {
    const bool half_b = w.b.dtype == ACL_FLOAT16;
    if (w.layout == WeightLayout::nz_kn && w.m < 16) {
        columns_by_strip(w, a, lda, n0, n1);
    } else if (w.layout == WeightLayout::nz_nk && w.m < 16) {
        columns_by_block(w, a, lda, n0, n1);
    } else if (w.layout == WeightLayout::strided && half_b && w.b.stride[0] == 1 && w.m <= kDotRows) {
        columns_by_dot(w, a, lda, n0, n1);
    } else {
        columns_by_tile(w, a, lda, n0, n1);
    }
}

} // namespace

void matmul(const std::vector<Matmul> & batch) {
    if (batch.empty()) {
        return;
    }
    const Matmul & first = batch.front();
    const int64_t lda    = round_up(first.k, 16);
    const int64_t work   = first.m * first.n * first.k;
    if (batch.size() > 1) {
        const int64_t grain = std::max<int64_t>(1, kSerialWork / std::max<int64_t>(1, work));
        parallel_for((int64_t) batch.size(), grain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const std::vector<float> a = unpack_a(batch[(size_t) i], lda);
                columns(batch[(size_t) i], a.data(), lda, 0, batch[(size_t) i].n);
            }
        });
        return;
    }
    const std::vector<float> a = unpack_a(first, lda);
    const int64_t n_strips     = round_up(first.n, 16) / 16;
    const int64_t strip_work   = std::max<int64_t>(1, first.m * first.k * 16);
    parallel_for(n_strips, std::max<int64_t>(1, kSerialWork / strip_work), [&](int64_t begin, int64_t end) {
        columns(first, a.data(), lda, begin * 16, std::min(first.n, end * 16));
    });
}

void pack_nz(uint16_t * data, int64_t n, int64_t k) {
    const std::vector<uint16_t> plain(data, data + n * k);
    const int64_t n_padded = round_up(n, 16), k_padded = round_up(k, 16);
    parallel_for(k_padded / 16, 4, [&](int64_t begin, int64_t end) {
        for (int64_t kb = begin; kb < end; ++kb) {
            const size_t n_line = (size_t) std::min<int64_t>(16, k - kb * 16) * sizeof(uint16_t);
            for (int64_t j = 0; j < n_padded; ++j) {
                uint16_t * line = data + (kb * n_padded + j) * 16;
                std::memset(line, 0, 16 * sizeof(uint16_t));
                if (j < n) {
                    std::memcpy(line, plain.data() + j * k + kb * 16, n_line);
                }
            }
        }
    });
}

} // namespace sim
