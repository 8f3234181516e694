#include "settings.h"

#include "ggml-impl.h"

#include <cstdlib>
#include <mutex>

namespace cann310b {
namespace {

constexpr int kMaxTimeoutMs = 3'600'000;

struct Stored {
    std::mutex lock;
    Settings now;
};

std::string set(Settings & s, const std::string & key, const std::string & value) {
    if (key == "layout") {
        if (value != "auto" && value != "dual" && value != "nd") {
            return "layout is auto, dual or nd, not '" + value + "'";
        }
        s.layout = value;
    } else if (key == "graph_dump") {
        s.graph_dump = value;
    } else if (key == "sync_each_op") {
        if (value != "0" && value != "1") {
            return "sync_each_op is 0 or 1, not '" + value + "'";
        }
        s.sync_each_op = value == "1";
    } else if (key == "timeout_ms") {
        char * end   = nullptr;
        const long n = std::strtol(value.c_str(), &end, 10);
        if (value.empty() || *end != '\0' || n < 1 || n > kMaxTimeoutMs) {
            return "timeout_ms is 1 to " + std::to_string(kMaxTimeoutMs) + ", not '" + value + "'";
        }
        s.timeout_ms = int(n);
    } else {
        return "unknown setting '" + key + "'; known: layout, graph_dump, sync_each_op, timeout_ms";
    }
    return {};
}

Stored & stored() {
    static Stored * const s = [] {
        auto * made = new Stored; // outlives static destructors
        for (const auto & [variable, key] : {std::pair{"GGML_CANN310B_LAYOUT", "layout"},
                                             {"GGML_CANN310B_GRAPH_DUMP", "graph_dump"},
                                             {"GGML_CANN310B_SYNC_EACH_OP", "sync_each_op"},
                                             {"GGML_CANN310B_TIMEOUT_MS", "timeout_ms"}}) {
            const char * value = std::getenv(variable);
            if (value == nullptr || *value == '\0') {
                continue;
            }
            if (const std::string why = set(made->now, key, value); !why.empty()) {
                GGML_LOG_ERROR("CANN: %s is ignored: %s\n", variable, why.c_str());
            }
        }
        return made;
    }();
    return *s;
}

} // namespace

Settings settings() {
    Stored & s = stored();
    const std::lock_guard<std::mutex> guard(s.lock);
    return s.now;
}

std::string configure(const std::string & key, const std::string & value) {
    Stored & s = stored();
    const std::lock_guard<std::mutex> guard(s.lock);
    return set(s.now, key, value);
}

} // namespace cann310b
