// ACL_SIM_CONFIG: reads the JSON, refuses what it does not know. A typo in a test's configuration must not
// pass as a simulation without that setting.
#include "sim-core.h"
#include "sim-kernel.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <unistd.h>

namespace sim {
namespace {

struct Json {
    enum class Kind { null, boolean, number, text, list, object } kind = Kind::null;
    bool boolean                                                       = false;
    double number                                                      = 0;
    std::string text;
    std::vector<Json> list;
    std::map<std::string, Json> object;
};

class Parser {
  public:
    explicit Parser(const std::string & source) : s_(source) {}

    Json document() {
        Json value = next();
        skip();
        if (at_ != s_.size()) {
            fail("something follows the value");
        }
        return value;
    }

  private:
    [[noreturn]] void fail(const char * what) const {
        fatal("ACL_SIM_CONFIG: " + std::string(what) + " at character " + std::to_string(at_) + " of: " + s_);
    }

    void skip() {
        while (at_ < s_.size() && std::isspace((unsigned char) s_[at_]) != 0) {
            ++at_;
        }
    }

    bool take(char c) {
        skip();
        if (at_ < s_.size() && s_[at_] == c) {
            ++at_;
            return true;
        }
        return false;
    }

    bool take_word(const char * word) {
        const std::string w = word;
        if (s_.compare(at_, w.size(), w) == 0) {
            at_ += w.size();
            return true;
        }
        return false;
    }

    std::string string() {
        if (!take('"')) {
            fail("a string is missing");
        }
        std::string out;
        while (at_ < s_.size() && s_[at_] != '"') {
            if (s_[at_] == '\\' && at_ + 1 < s_.size()) {
                ++at_; // escapes stand for themselves; paths need only \" and backslashes
            }
            out += s_[at_++];
        }
        if (at_ == s_.size()) {
            fail("a string does not end");
        }
        ++at_;
        return out;
    }

    Json next() {
        skip();
        Json value;
        if (take('{')) {
            value.kind = Json::Kind::object;
            while (!take('}')) {
                const std::string key = string();
                if (!take(':')) {
                    fail("a colon is missing");
                }
                value.object[key] = next();
                take(',');
            }
        } else if (take('[')) {
            value.kind = Json::Kind::list;
            while (!take(']')) {
                value.list.push_back(next());
                take(',');
            }
        } else if (at_ < s_.size() && s_[at_] == '"') {
            value.kind = Json::Kind::text;
            value.text = string();
        } else if (take_word("true")) {
            value.kind    = Json::Kind::boolean;
            value.boolean = true;
        } else if (take_word("false")) {
            value.kind = Json::Kind::boolean;
        } else if (take_word("null")) {
            value.kind = Json::Kind::null;
        } else {
            char * end   = nullptr;
            value.kind   = Json::Kind::number;
            value.number = std::strtod(s_.c_str() + at_, &end);
            if (end == s_.c_str() + at_) {
                fail("no value");
            }
            at_ = size_t(end - s_.c_str());
        }
        return value;
    }

    const std::string & s_;
    size_t at_ = 0;
};

[[noreturn]] void unknown(const std::string & key, const char * known) {
    fatal("ACL_SIM_CONFIG: unknown key '" + key + "'; known: " + known);
}

Fault fault_of(const Json & value) {
    Fault fault;
    for (const auto & [key, v] : value.object) {
        if (key == "call") {
            fault.call = v.text;
        } else if (key == "fault") {
            fault.kind = v.text;
        } else if (key == "nth") {
            fault.nth = (int64_t) v.number;
        } else if (key == "persistent") {
            fault.persistent = v.boolean;
        } else if (key == "code") {
            fault.code = (aclError) v.number;
        } else if (key == "after_launches") {
            fault.after_launches = (int64_t) v.number;
        } else {
            unknown(key, "call fault nth persistent code after_launches");
        }
    }
    const bool known = fault.kind.empty() || fault.kind == "device_lost" || fault.kind == "stream_timeout" ||
                       fault.kind == "hang" || fault.kind == "aicore_exception";
    if (!known || fault.call.empty() == fault.kind.empty()) {
        fatal("ACL_SIM_CONFIG: a fault has either 'call' or 'fault' "
              "(device_lost, stream_timeout, hang, aicore_exception)");
    }
    return fault;
}

std::string accepted_op(const std::string & name) {
    for (const char * known : {"aclnnRmsNorm", "aclnnSwiGlu", "aclnnGeGluV3", "aclnnLayerNorm"}) {
        if (name == known) {
            return name;
        }
    }
    fatal("ACL_SIM_CONFIG: accepts: no kernel for '" + name +
          "'; there are aclnnRmsNorm aclnnSwiGlu aclnnGeGluV3 aclnnLayerNorm");
}

std::string default_lock_file() {
    return "/tmp/acl-sim-device-" + std::to_string(getuid()) + ".lock";
}

Config load() {
    Config c;
    const char * said = std::getenv("ACL_SIM_CONFIG");
    if (said == nullptr || *said == '\0') {
        return c;
    }
    std::string source = said;
    if (source.find('{') == std::string::npos) {
        std::ifstream file(source);
        if (!file) {
            fatal("ACL_SIM_CONFIG: cannot read the file " + source);
        }
        std::ostringstream text;
        text << file.rdbuf();
        source = text.str();
    }
    const Json root = Parser(source).document();
    for (const auto & [key, v] : root.object) {
        if (key == "chip") {
            c.chip = v.text;
        } else if (key == "cann") {
            c.cann = v.text;
        } else if (key == "memory_mb") {
            c.memory_mb = (int64_t) v.number;
        } else if (key == "used_mb") {
            c.used_mb = (int64_t) v.number;
        } else if (key == "run_mode") {
            c.unified = v.text == "unified";
            if (!c.unified && v.text != "separate") {
                fatal("ACL_SIM_CONFIG: run_mode is 'unified' or 'separate', not '" + v.text + "'");
            }
        } else if (key == "host_access") {
            c.host_access = v.boolean;
        } else if (key == "nz_m_over_16") {
            c.nz_m_over_16 = v.boolean;
        } else if (key == "seed") {
            c.seed = (uint64_t) v.number;
        } else if (key == "delay_us_max") {
            c.delay_us_max = (int64_t) v.number;
        } else if (key == "event_late_us") {
            c.event_late_us = (int64_t) v.number;
        } else if (key == "threads") {
            c.threads = (int) v.number;
        } else if (key == "trace") {
            c.trace = v.text;
        } else if (key == "exclusive") {
            c.exclusive = v.kind == Json::Kind::text ? v.text : v.boolean ? default_lock_file() : "";
        } else if (key == "faults") {
            for (const Json & fault : v.list) {
                c.faults.push_back(fault_of(fault));
            }
        } else if (key == "accepts") {
            for (const Json & op : v.list) {
                c.accepts.push_back(accepted_op(op.text));
            }
        } else {
            unknown(key, "chip cann memory_mb used_mb run_mode host_access nz_m_over_16 seed delay_us_max "
                         "event_late_us threads trace exclusive faults accepts");
        }
    }
    if (c.chip != "310B4" && c.chip != "310B1") {
        fatal("ACL_SIM_CONFIG: chip is '310B4' or '310B1', not '" + c.chip + "'");
    }
    return c;
}

} // namespace

const Config & config() {
    static const Config c = [] {
        Config loaded = load();
        set_kernel_threads(loaded.threads);
        return loaded;
    }();
    return c;
}

bool is_accepted(std::string_view op) {
    const std::vector<std::string> & all = config().accepts;
    return std::find(all.begin(), all.end(), op) != all.end();
}

} // namespace sim
