// What the simulated operators (sim-op.*, aclnn-*.cpp) and entry points (acl-rt.cpp) share: configuration,
// device memory, streams, contexts, faults, trace. The state is one per process and lives in libacl-sim.
//
// Device memory is a memfd mapped twice. The client's mapping is PROT_NONE: an address from aclrtMalloc is
// good for nothing but being handed back to ACL, and a host dereference dies in our SIGSEGV handler, by name.
// The second mapping is the chip's own; dev_ptr() translates, after checking that the range lies in one
// allocation.
//
// Work is queued per stream and run by a thread of that stream, in order, each task after a random delay. A
// task counts as pending until the client has *waited* for it (stream, event or device synchronisation), even
// when its thread has long finished: freeing or overwriting memory of a pending task is a mistake on every
// run, not only on the slow ones.
#pragma once

#include "acl310b/acl-api.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sim {

// ---- configuration: ACL_SIM_CONFIG, a JSON file or inline JSON ----
struct Fault {
    std::string call; // entry point whose nth call fails, or
    // device_lost | stream_timeout (one stream stands still) | hang (all do) | aicore_exception, after so
    // many launches
    std::string kind;
    int64_t nth     = 1;
    bool persistent = false; // every call from the nth on; a fault of the device: again after each reset
    aclError code   = ACL_ERROR_RT_INTERNAL_ERROR;
    int64_t after_launches = 0;
};

struct Config {
    std::string chip      = "310B4";
    std::string cann      = "8.5";
    int64_t memory_mb     = 15609;
    int64_t used_mb       = 2000;
    bool unified          = true;  // run_mode: the process runs on the board; else over PCIe
    bool host_access      = false; // device memory readable by the host, as a real board may allow
    bool nz_m_over_16     = false; // hypothesis of rule M8: NZ weights work above 16 rows when M % 16 != 0
    uint64_t seed         = 1;
    int64_t delay_us_max  = 0; // before each task
    int64_t event_late_us = 0; // an event completes so much later than its stream reached it
    int threads           = 2;
    std::string trace; // file for JSON lines; empty: none
    std::string
        exclusive; // lock file: one process at a time gets the device, as among containers; empty: off
    std::vector<Fault> faults;
    // Operators that a later kernel package might bring and this board then takes: aclnnRmsNorm, aclnnSwiGlu,
    // aclnnGeGluV3, aclnnLayerNorm (its FP32 form).
    std::vector<std::string> accepts;
};
const Config & config();
bool is_accepted(std::string_view op); // named in Config::accepts

// ---- verdicts ----
// Prints `acl-sim: FATAL: <what>` and aborts: a rule is broken that a board would answer with silent
// corruption.
[[noreturn]] void fatal(const std::string & what);
// Leaves a text for aclGetRecentErrMsg on this thread.
void set_error(std::string_view call, int code, std::string_view reason);
// Every entry point starts with it: counts the call and returns the code of an injected fault, else
// ACL_SUCCESS.
aclError enter_call(const char * call);

// ---- memory ----
struct Range {
    const void * base; // as the client sees it
    size_t len;
};
bool is_device_address(const void * p);
// Whether the range lies inside one living allocation (its hidden padding included).
bool is_mapped(const void * client_address, size_t len);
// Where the chip finds it; fatal when the range is not inside one living allocation.
uint8_t * dev_ptr(const void * client_address, size_t len);

// ---- streams ----
struct Task {
    std::string name; // the entry point
    std::string shape, dtype;
    std::vector<Range> reads, writes;
    uint64_t bytes      = 0;
    double predicted_us = 0;
    std::string direction;            // copies only: H2D, D2H, D2D, H2H
    std::function<std::string()> run; // returns what went wrong on the device, empty when nothing did
};
aclError enqueue(aclrtStream stream, Task && task, std::string_view call_site);

// ---- trace ----
void trace_call(std::string_view call, aclError rc,
                const std::vector<std::pair<const char *, std::string>> & more = {});

} // namespace sim
