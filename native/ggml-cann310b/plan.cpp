// What of a graph is fused, and which activations live as FP16 in our own memory instead of ggml's FP32.
//
// The chip multiplies FP16. A matmul's output that only our own operators read stays FP16 (no cast before,
// none after); its place comes from one block, reused as soon as its last reader is queued. Residual sums and
// norm squares stay FP32 (fact sheet 4.6).
#include "buffer.h"
#include "runner.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace cann310b {
namespace {

constexpr size_t kSlotAlign = 512;
constexpr int64_t kTile     = 16;

const ggml_tensor * root_of(const ggml_tensor * t) {
    return t->view_src != nullptr ? t->view_src : t;
}

bool is_view_op(const ggml_tensor * t) {
    return t->op == GGML_OP_NONE || t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE ||
           t->op == GGML_OP_PERMUTE || t->op == GGML_OP_TRANSPOSE;
}

bool is_weight(const ggml_tensor * t) {
    return t->op == GGML_OP_NONE && t->view_src == nullptr && is_our_buffer(t->buffer) &&
           t->buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

bool is_matrix_weight(const ggml_tensor * t) {
    return is_weight(t) && ggml_n_dims(t) == 2 && (is_stored_as_f16(t) || t->type == GGML_TYPE_F16) &&
           t->ne[0] % kTile == 0 && t->ne[1] % kTile == 0;
}

bool is_vector_weight(const ggml_tensor * t) {
    return is_weight(t) && ggml_n_dims(t) == 1 && t->type == GGML_TYPE_F32;
}

int64_t rows_of(const ggml_tensor * t) {
    return ggml_nelements(t) / t->ne[0];
}

// Bytes of an FP16 activation with room for whole tiles of 16 rows, however its readers reshape it into rows.
size_t room_for(const ggml_tensor * t) {
    constexpr int64_t kSmall = 65536; // elements: below, room for 16 rows of all of it costs nothing
    const int64_t n          = ggml_nelements(t);
    if (n <= kSmall) {
        return size_t(n * kTile) * 2;
    }
    int64_t rows = rows_of(t);
    for (int d = 1; d < GGML_MAX_DIMS; ++d) {
        rows = t->ne[d] > 1 ? std::min(rows, t->ne[d]) : rows;
    }
    return size_t(n + (kTile - 1) * (n / rows + 1)) * 2;
}

// `node` can read its operand `s` as FP16 where ggml has FP32.
bool reads_f16(const ggml_tensor * node, const ggml_tensor * root) {
    const auto is = [&](int i) { return node->src[i] != nullptr && root_of(node->src[i]) == root; };
    switch (node->op) {
    case GGML_OP_MUL_MAT:
    case GGML_OP_ADD:
    case GGML_OP_SUB:
    case GGML_OP_MUL:
    case GGML_OP_DIV:
    case GGML_OP_GLU:
    case GGML_OP_SCALE:
    case GGML_OP_UNARY:
    case GGML_OP_NORM:
    case GGML_OP_RMS_NORM:
    case GGML_OP_GET_ROWS:
        return true;
    case GGML_OP_SOFT_MAX:
    case GGML_OP_ROPE:
    case GGML_OP_SET_ROWS:
    case GGML_OP_CONT:
    case GGML_OP_DUP:
        return is(0) && !is(1) && !is(2);
    case GGML_OP_CPY:
        return is(0) && !is(1);
    default:
        return false;
    }
}

} // namespace

bool Runner::is_internal(const ggml_tensor * root) const {
    const auto found = internal_.find(root);
    return found != internal_.end() && found->second;
}

bool Runner::takes_f16(const ggml_tensor * root) const {
    const auto found = consumers_.find(root);
    return found != consumers_.end() && !found->second.empty();
}

int Runner::last_use(const ggml_tensor * root) const {
    return consumers_.at(root).back();
}

size_t Runner::slot(size_t n_bytes, int first, int last) {
    const size_t size = (n_bytes + kSlotAlign - 1) / kSlotAlign * kSlotAlign;
    live_slots_.erase(std::remove_if(live_slots_.begin(), live_slots_.end(),
                                     [&](const Slot & s) { return s.last < first; }),
                      live_slots_.end());
    std::sort(live_slots_.begin(), live_slots_.end(),
              [](const Slot & a, const Slot & b) { return a.at < b.at; });
    size_t at = 0;
    for (const Slot & s : live_slots_) {
        if (s.at >= at + size) {
            break;
        }
        at = std::max(at, s.at + s.size);
    }
    live_slots_.push_back({at, size, last});
    slots_needed_ = std::max(slots_needed_, at + size);
    return at;
}

void Runner::plan(const ggml_cgraph * graph) {
    overrides_.clear();
    index_.clear();
    consumers_.clear();
    internal_.clear();
    groups_.clear();
    group_of_.clear();
    rope_pairs_.clear();
    norms_.clear();
    aliases_.clear();
    graph_tables_.clear();
    live_slots_.clear();
    slots_needed_ = 0;
    tables_at_    = 0;
    is_done_.assign(size_t(graph->n_nodes), 0);

    std::unordered_map<const ggml_tensor *, int> n_uses;
    std::unordered_map<const ggml_tensor *, bool> readable;
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        index_[node]             = i;
        for (const ggml_tensor * s : node->src) {
            if (s == nullptr) {
                continue;
            }
            ++n_uses[s];
            const ggml_tensor * root = root_of(s);
            if (!is_view_op(node)) {
                consumers_[root].push_back(i);
                const auto known = readable.find(root);
                readable[root]   = (known == readable.end() || known->second) && reads_f16(node, root);
            }
        }
    }
    // Internal: made here, no output, and every use that ggml counted, of it and of its views, is in this
    // graph.
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        const ggml_tensor * root = root_of(node);
        const bool closed        = (node->flags & GGML_TENSOR_FLAG_OUTPUT) == 0 &&
                            ggml_node_get_use_count(graph, i) == n_uses[node] && n_uses[node] > 0;
        if (node == root) {
            internal_[root] =
                closed && readable.count(root) != 0 && readable[root] && node->type == GGML_TYPE_F32;
        } else if (internal_.count(root) != 0) {
            internal_[root] = internal_[root] && closed;
        }
    }
    plan_norms(graph);
    plan_groups(graph);
    plan_storage(graph);
    if (!slots_.fits(slots_needed_)) {
        synchronize();
        slots_.grow(slots_needed_ + slots_needed_ / 4);
    }
    for (auto & [root, place] : overrides_) {
        place.base = slots_.base;
    }
}

// RMS_NORM or NORM, then MUL by the weight, then ADD of the bias, each directly after the other and read by
// nobody else.
void Runner::plan_norms(const ggml_cgraph * graph) {
    const auto follows = [&](int i, ggml_op op) -> const ggml_tensor * {
        const ggml_tensor * node = graph->nodes[i];
        if (i + 1 >= graph->n_nodes || !is_internal(node) || consumers_[node].size() != 1 ||
            consumers_[node][0] != i + 1) {
            return nullptr;
        }
        const ggml_tensor * next = graph->nodes[i + 1];
        if (next->op != op || next->type != GGML_TYPE_F32 || (next->src[0] != node && next->src[1] != node)) {
            return nullptr;
        }
        const ggml_tensor * other = next->src[0] == node ? next->src[1] : next->src[0];
        const bool is_row         = other != node && other->type == GGML_TYPE_F32 &&
                            ggml_nelements(other) == other->ne[0] && other->ne[0] == node->ne[0] &&
                            overrides_.count(root_of(other)) == 0 && other->op == GGML_OP_NONE;
        return is_row && ggml_are_same_shape(next, node) ? next : nullptr;
    };
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        if (node->op != GGML_OP_NORM && node->op != GGML_OP_RMS_NORM) {
            continue;
        }
        if (const ggml_tensor * by = follows(i, GGML_OP_MUL)) {
            const ggml_tensor * plus = follows(i + 1, GGML_OP_ADD);
            norms_[node]             = {by, plus};
            is_done_[size_t(i) + 1]  = 1;
            if (plus != nullptr) {
                is_done_[size_t(i) + 2] = 1;
            }
        }
    }
}

void Runner::plan_groups(const ggml_cgraph * graph) {
    std::unordered_map<const ggml_tensor *, std::vector<int>> by_input;
    std::vector<const ggml_tensor *> inputs; // in graph order
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        if (node->op == GGML_OP_MUL_MAT && is_matrix_weight(node->src[0]) &&
            node->src[1]->type == GGML_TYPE_F32) {
            if (by_input[node->src[1]].empty()) {
                inputs.push_back(node->src[1]);
            }
            by_input[node->src[1]].push_back(i);
        }
    }
    std::vector<std::vector<const ggml_tensor *>> copies;
    for (const ggml_tensor * input : inputs) {
        Group with_bias, without;
        for (const int i : by_input[input]) {
            ggml_tensor * node = graph->nodes[i];
            ggml_tensor * sum  = nullptr;
            if (is_internal(node) && consumers_[node].size() == 1) {
                ggml_tensor * next = graph->nodes[consumers_[node][0]];
                const bool adds    = next->op == GGML_OP_ADD && next->src[0] == node &&
                                  is_vector_weight(next->src[1]) && next->src[1]->ne[0] == node->ne[0] &&
                                  is_internal(next);
                sum = adds ? next : nullptr;
            }
            if (!is_internal(sum != nullptr ? sum : node)) {
                copies.push_back({node->src[0]}); // on its own, like the logits
                continue;
            }
            Group & group = sum != nullptr ? with_bias : without;
            group.members.push_back(node);
            if (sum != nullptr) {
                group.sums.push_back(sum);
            }
        }
        for (Group * group : {&with_bias, &without}) {
            if (group->members.empty()) {
                continue;
            }
            // What is rotated comes first, side by side: query and key then turn in one go.
            const auto is_rotated = [&](const ggml_tensor * sum_or_member) {
                const auto & readers = consumers_[sum_or_member];
                return std::any_of(readers.begin(), readers.end(),
                                   [&](int c) { return graph->nodes[c]->op == GGML_OP_ROPE; });
            };
            std::stable_partition(
                group->members.begin(), group->members.end(), [&](const ggml_tensor * member) {
                    return is_rotated(group->sums.empty() ? member : graph->nodes[consumers_[member][0]]);
                });
            std::stable_partition(group->sums.begin(), group->sums.end(), is_rotated);
            // SwiGlu wants the gate in front of what it gates.
            if (fused().swi_glu && group->sums.empty()) {
                std::stable_partition(
                    group->members.begin(), group->members.end(), [&](const ggml_tensor * member) {
                        const auto & readers = consumers_[member];
                        return std::any_of(readers.begin(), readers.end(), [&](int c) {
                            return graph->nodes[c]->op == GGML_OP_GLU && graph->nodes[c]->src[0] == member;
                        });
                    });
            }
            std::vector<const ggml_tensor *> weights;
            for (const ggml_tensor * member : group->members) {
                group->n += member->ne[0];
                weights.push_back(member->src[0]);
            }
            group->k = input->ne[0];
            group->m = rows_of(input);
            copies.push_back(weights);
            groups_.push_back(*group);
        }
    }
    const bool is_small =
        std::any_of(groups_.begin(), groups_.end(), [](const Group & g) { return g.m < kTile; }) ||
        std::any_of(inputs.begin(), inputs.end(), [](const ggml_tensor * t) { return rows_of(t) < kTile; });
    if (is_small) {
        make_weight_copies(*this, copies);
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
        Group & group = groups_[g];
        char * next   = weight_copy(group.members[0]->src[0]);
        group.nz      = next;
        for (const ggml_tensor * member : group.members) { // side by side?
            if (weight_copy(member->src[0]) != next) {
                group.nz = nullptr;
            }
            next += next != nullptr ? member->src[0]->ne[0] * member->src[0]->ne[1] * 2 : 0;
        }
        if (!group.sums.empty()) {
            std::vector<const ggml_tensor *> biases;
            for (const ggml_tensor * sum : group.sums) {
                biases.push_back(sum->src[1]);
            }
            group.bias = bias_copy(*this, biases);
        }
        const ggml_tensor * first = *std::min_element(
            group.members.begin(), group.members.end(),
            [&](const ggml_tensor * a, const ggml_tensor * b) { return index_[a] < index_[b]; });
        group_of_[first] = g;
        for (size_t i = 0; i < group.members.size(); ++i) {
            is_done_[size_t(index_[group.members[i]])] = group.members[i] != first;
            if (!group.sums.empty()) {
                is_done_[size_t(index_[group.sums[i]])] = 1;
            }
        }
    }
}

bool Runner::plan_rope_pair(const ggml_cgraph * graph, int i) {
    const ggml_tensor * a = graph->nodes[i];
    if (a->ne[2] != 1 || a->ne[3] != 1 || !is_internal(a) || overrides_.count(root_of(a->src[0])) == 0) {
        return false;
    }
    const Loc xa = loc(a->src[0]);
    for (int j = i + 1; j < graph->n_nodes; ++j) {
        const ggml_tensor * b = graph->nodes[j];
        if (b->op != GGML_OP_ROPE || is_done_[size_t(j)] != 0) {
            continue;
        }
        if (b->ne[0] != a->ne[0] || b->ne[2] != 1 || b->ne[3] != 1 || !is_internal(b) ||
            b->src[1] != a->src[1] || b->src[2] != a->src[2] ||
            std::memcmp(a->op_params, b->op_params, sizeof a->op_params) != 0 ||
            overrides_.count(root_of(b->src[0])) == 0) {
            return false;
        }
        const Loc xb       = loc(b->src[0]);
        const bool follows = xb.dtype == xa.dtype && xb.offset == xa.offset + a->ne[0] * a->ne[1] &&
                             xa.st[1] == a->ne[0] && xb.st[1] == a->ne[0];
        if (!follows) {
            return false;
        }
        const auto n        = size_t(a->ne[0] * (a->ne[1] + b->ne[1]));
        const auto place    = int64_t(slot(n * 2, i, std::max(last_use(a), last_use(b)))) / 2;
        overrides_[a]       = {nullptr, place, ACL_FLOAT16, a->ne[0]};
        overrides_[b]       = {nullptr, place + a->ne[0] * a->ne[1], ACL_FLOAT16, b->ne[0]};
        rope_pairs_[a]      = b;
        is_done_[size_t(j)] = 1;
        return true;
    }
    return false;
}

// A copy that only matmuls read, of something they can read where it lies: a cache seen transposed, or data
// that is dense already when one token is computed. Nobody else sees the node, so it need not exist.
bool Runner::plan_alias(const ggml_cgraph * graph, const ggml_tensor * node) {
    if (!is_internal(node) && !(internal_.count(node) != 0 && node->type == GGML_TYPE_F16)) {
        return false;
    }
    const ggml_tensor * source = node->src[0];
    if (consumers_.count(node) == 0) {
        return false;
    }
    for (const int c : consumers_[node]) {
        const ggml_tensor * reader = graph->nodes[c];
        const bool direct =
            reader->op == GGML_OP_MUL_MAT && (reader->src[0] == node || reader->src[1] == node);
        if (!direct) {
            return false;
        }
    }
    // The source must not change before the last reader: nothing in between writes to it.
    const ggml_tensor * root = root_of(source);
    for (int j = index_[node] + 1; j < consumers_[node].back(); ++j) {
        if (!is_view_op(graph->nodes[j]) && root_of(graph->nodes[j]) == root) {
            return false;
        }
    }
    const Loc from = loc(source);
    const Loc shape =
        Loc{nullptr, 0, from.dtype, {node->ne[0], node->ne[1], node->ne[2], node->ne[3]}, {1, 1, 1, 1}};
    const bool same = from.ne == shape.ne && from.dtype == ACL_FLOAT16;
    if (!same && !(from.is_contiguous() && from.dtype == ACL_FLOAT16)) {
        return false;
    }
    aliases_[node] = source;
    if (overrides_.count(root) != 0) { // its place is now needed for longer
        const auto at = size_t(from.offset) * 2;
        for (Slot & s : live_slots_) {
            if (s.at <= at && at < s.at + s.size) {
                s.last = std::max(s.last, consumers_[node].back());
            }
        }
    }
    return true;
}

void Runner::plan_storage(const ggml_cgraph * graph) {
    const auto keep = [&](const ggml_tensor * t, int first) {
        const auto at = int64_t(slot(room_for(t), first, last_use(t))) / 2;
        overrides_[t] = {nullptr, at, ACL_FLOAT16, t->ne[0]};
    };
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        if (const auto found = group_of_.find(node); found != group_of_.end()) {
            const Group & group = groups_[found->second];
            int last            = i;
            for (size_t j = 0; j < group.members.size(); ++j) {
                last = std::max(last, last_use(group.sums.empty() ? group.members[j] : group.sums[j]));
            }
            int64_t at = group.is_merged() ? int64_t(slot(size_t(kTile * group.n) * 2, i, last)) / 2 : 0;
            for (size_t j = 0; j < group.members.size(); ++j) {
                const ggml_tensor * out = group.sums.empty() ? group.members[j] : group.sums[j];
                if (group.is_merged()) {
                    overrides_[out] = {nullptr, at, ACL_FLOAT16, group.n};
                    at += out->ne[0];
                } else {
                    keep(out, i);
                }
            }
            continue;
        }
        if (is_done_[size_t(i)] != 0) {
            continue;
        }
        switch (node->op) {
        case GGML_OP_NORM:
        case GGML_OP_RMS_NORM: {
            const auto fused = norms_.find(node);
            if (fused == norms_.end()) {
                break;
            }
            const ggml_tensor * out =
                fused->second.second != nullptr ? fused->second.second : fused->second.first;
            const bool only_matmuls =
                is_internal(out) && std::all_of(consumers_[out].begin(), consumers_[out].end(), [&](int c) {
                    return graph->nodes[c]->op == GGML_OP_MUL_MAT;
                });
            if (only_matmuls) {
                keep(out, i);
            }
            break;
        }
        case GGML_OP_ROPE:
            if (!plan_rope_pair(graph, i) && is_internal(node)) {
                keep(node, i);
            }
            break;
        case GGML_OP_MUL_MAT:
        case GGML_OP_GLU:
        case GGML_OP_SOFT_MAX:
            if (is_internal(node)) {
                keep(node, i);
            }
            break;
        case GGML_OP_CONT:
            if (plan_alias(graph, node)) {
                is_done_[size_t(i)] = 1;
            } else if (is_internal(node) && overrides_.count(root_of(node->src[0])) != 0) {
                keep(node, i);
            }
            break;
        default:
            break;
        }
    }
}

} // namespace cann310b
