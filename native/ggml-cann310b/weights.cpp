// What is derived from weights once and kept: FRACTAL_NZ copies for fewer than 16 rows, FP16 biases.
//
// Layout of a copy (fact sheet 3.4, way A): element (k, n) at ((n/16)*(K/16) + k/16)*256 + (k%16)*16 + n%16.
// Columns are outermost in tiles of 16, so copies laid side by side are one matrix with more columns.
#include "runner.h"
#include "settings.h"

#include "ggml-backend-impl.h"

#include <algorithm>
#include <cstring>

namespace cann310b {
namespace {

constexpr size_t kReserveBytes   = size_t{512} << 20; // left free for contexts when the layout is chosen
constexpr size_t kBiasBlockBytes = size_t{1} << 20;
constexpr int64_t kTile          = 16;

struct Derived {
    void * block = nullptr;
    size_t size  = 0;
    std::vector<const void *> sources; // weights whose copies it holds
};

struct Registry {
    std::mutex lock;
    std::vector<Derived> blocks;
    std::unordered_map<const void *, char *> copies; // of a weight's data
    std::map<std::vector<const void *>, char *> biases;
    std::unordered_map<const void *, char *> scaled; // norm weights
    char * bias_block = nullptr;                     // the one that still has room
    size_t bias_used = 0, bias_size = 0;
    bool is_short = false; // memory did not suffice: said once
};

Registry & registry() {
    static Registry * const r = new Registry; // outlives static destructors
    return *r;
}

bool has_room(Registry & r, size_t n_bytes) {
    const std::string wanted = settings().layout;
    if (wanted == "nd") {
        device().note_layout("nd", "configured", n_bytes, 0);
        return false;
    }
    size_t free_bytes = 0, total_bytes = 0;
    device().memory(&free_bytes, &total_bytes);
    const size_t needed = n_bytes + (wanted == "dual" ? 0 : kReserveBytes);
    if (free_bytes >= needed) {
        device().note_layout("dual", wanted == "dual" ? "configured" : "fits", needed, free_bytes);
        return true;
    }
    if (!r.is_short) {
        GGML_LOG_WARN("CANN: %zu MB are free, %zu MB would be needed for a second copy of the weights: "
                      "decoding uses the ND layout and is slower\n",
                      free_bytes >> 20, needed >> 20);
        r.is_short = true;
    }
    device().note_layout("nd", "memory", needed, free_bytes);
    return false;
}

// Memory for something small that is derived from weights. Many share a block: an allocation each would cost
// more than the bytes.
char * small_place(Registry & r, size_t n_bytes, const std::vector<const void *> & sources) {
    const size_t need = (n_bytes + 511) / 512 * 512;
    if (r.bias_block == nullptr || r.bias_used + need > r.bias_size) {
        r.bias_size  = std::max(kBiasBlockBytes, need);
        r.bias_block = static_cast<char *>(device().allocate(r.bias_size, "small copies of weights"));
        r.bias_used  = 0;
        r.blocks.push_back({r.bias_block, r.bias_size, {}});
    }
    char * const at = r.bias_block + r.bias_used;
    r.bias_used += need;
    for (Derived & d : r.blocks) {
        if (d.block == r.bias_block) {
            d.sources.insert(d.sources.end(), sources.begin(), sources.end());
        }
    }
    return at;
}

// [N, K] rows to tiles, by one strided copy on the device.
void pack(Runner & runner, const ggml_tensor * weight, char * to) {
    const int64_t k = weight->ne[0], n = weight->ne[1];
    const std::vector<int64_t> tiles = {n / kTile, k / kTile, kTile, kTile};
    const Tensor from =
        tensor(static_cast<char *>(weight->data), 0, ACL_FLOAT16, tiles, {kTile * k, kTile, 1, k});
    const Tensor into = tensor(to, 0, ACL_FLOAT16, tiles, {kTile * k, kTile * kTile, kTile, 1});
    runner.call("aclnnInplaceCopy", acl().aclnnInplaceCopyGetWorkspaceSize, acl().aclnnInplaceCopy,
                into.get(), from.get());
}

} // namespace

void make_weight_copies(Runner & runner, const std::vector<std::vector<const ggml_tensor *>> & groups) {
    Registry & r = registry();
    const std::lock_guard<std::mutex> guard(r.lock);
    std::vector<const ggml_tensor *> missing;
    size_t n_bytes = 0;
    for (const auto & group : groups) {
        const bool is_known = std::all_of(
            group.begin(), group.end(), [&](const ggml_tensor * w) { return r.copies.count(w->data) != 0; });
        if (is_known) {
            continue;
        }
        for (const ggml_tensor * w : group) {
            if (r.copies.count(w->data) == 0 &&
                std::find(missing.begin(), missing.end(), w) == missing.end()) {
                missing.push_back(w);
                n_bytes += size_t(w->ne[0] * w->ne[1]) * 2;
            }
        }
    }
    if (missing.empty() || !has_room(r, n_bytes)) {
        return;
    }
    char * at = static_cast<char *>(device().allocate(n_bytes, "FRACTAL_NZ copies of the weights"));
    r.blocks.push_back({at, n_bytes, {}});
    for (const ggml_tensor * w : missing) {
        pack(runner, w, at);
        r.copies[w->data] = at;
        r.blocks.back().sources.push_back(w->data);
        at += w->ne[0] * w->ne[1] * 2;
    }
    runner.synchronize();
}

char * weight_copy(const ggml_tensor * weight) {
    Registry & r = registry();
    const std::lock_guard<std::mutex> guard(r.lock);
    const auto found = r.copies.find(weight->data);
    return found != r.copies.end() ? found->second : nullptr;
}

char * bias_copy(Runner & runner, const std::vector<const ggml_tensor *> & biases) {
    Registry & r = registry();
    const std::lock_guard<std::mutex> guard(r.lock);
    std::vector<const void *> key;
    int64_t n = 0;
    for (const ggml_tensor * b : biases) {
        key.push_back(b->data);
        n += b->ne[0];
    }
    if (const auto found = r.biases.find(key); found != r.biases.end()) {
        return found->second;
    }
    char * const at = small_place(r, size_t(n) * 2, key);
    int64_t offset  = 0; // a tensor starts at 32 bytes, a row of it anywhere
    for (const ggml_tensor * b : biases) {
        const Loc from = runner.loc(b);
        Loc to         = from.as_contiguous(ACL_FLOAT16, at);
        to.offset      = offset;
        runner.cast(from, to);
        offset += b->ne[0];
    }
    runner.synchronize();
    r.biases[key] = at;
    return at;
}

char * scaled_copy(Runner & runner, const ggml_tensor * weight, float factor) {
    if (weight->buffer == nullptr || weight->buffer->usage != GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
        return nullptr;
    }
    Registry & r = registry();
    const std::lock_guard<std::mutex> guard(r.lock);
    if (const auto found = r.scaled.find(weight->data); found != r.scaled.end()) {
        return found->second;
    }
    const Loc from  = runner.loc(weight);
    char * const at = small_place(r, size_t(from.n_elements()) * sizeof(float), {weight->data});
    runner.scale(from, factor, from.as_contiguous(ACL_FLOAT, at));
    runner.synchronize();
    return r.scaled[weight->data] = at;
}

void forget_weight_copies(const void * base, size_t size) {
    Registry & r = registry();
    const std::lock_guard<std::mutex> guard(r.lock);
    const auto * begin = static_cast<const char *>(base);
    const auto is_gone = [&](const void * p) {
        const auto * at = static_cast<const char *>(p);
        return at >= begin && at < begin + size;
    };
    for (auto it = r.copies.begin(); it != r.copies.end();) {
        it = is_gone(it->first) ? r.copies.erase(it) : std::next(it);
    }
    for (auto it = r.scaled.begin(); it != r.scaled.end();) {
        it = is_gone(it->first) ? r.scaled.erase(it) : std::next(it);
    }
    for (auto it = r.biases.begin(); it != r.biases.end();) {
        it = std::any_of(it->first.begin(), it->first.end(), is_gone) ? r.biases.erase(it) : std::next(it);
    }
    for (auto it = r.blocks.begin(); it != r.blocks.end();) {
        it->sources.erase(std::remove_if(it->sources.begin(), it->sources.end(), is_gone), it->sources.end());
        if (it->sources.empty()) {
            if (it->block == r.bias_block) {
                r.bias_block = nullptr;
            }
            device().release(it->block, it->size);
            it = r.blocks.erase(it);
        } else {
            ++it;
        }
    }
    r.is_short = false;
}

} // namespace cann310b
