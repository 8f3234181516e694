// The simulator's state, for its own files only. One lock guards all of it; streams' threads take it briefly
// between tasks, never while a kernel runs.
#pragma once

#include "sim-core.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>

namespace sim {

constexpr size_t kStreamDepth = 2048; // entries of a stream; a full queue blocks the launching thread

struct Allocation {
    const uint8_t * base = nullptr;
    size_t asked         = 0;
    size_t real          = 0; // with the runtime's own padding and rounding
    uint64_t number      = 0; // n-th aclrtMalloc
    std::string call;
};

struct Event;

struct Pending {
    uint64_t serial = 0;
    std::string what; // "aclnnMatmul #12 on stream 1"
    std::vector<Range> reads, writes;
};

struct Stream {
    uint64_t number  = 0;
    uint64_t context = 0;
    bool is_default  = false;
    std::deque<std::pair<uint64_t, Task>> queue;
    std::deque<Pending> pending; // enqueued and not yet waited for
    uint64_t n_enqueued = 0;
    uint64_t n_done     = 0;
    uint64_t n_waited   = 0;
    double predicted_us = 0;
    aclError failure    = ACL_SUCCESS; // asynchronous fault, reported by the next synchronisation
    std::string failure_text;
    bool is_hung    = false; // an injected hang: nothing completes any more
    bool is_closing = false;
    int n_waiters   = 0; // threads inside a wait for this stream, or for room in its queue
    std::condition_variable moved;
    std::thread worker;
    std::mt19937_64 random;
};

struct Event {
    uint64_t number    = 0;
    uint64_t context   = 0;
    uint32_t flags     = 0;
    bool is_ex         = false;
    uint64_t n_records = 0; // asked for
    uint64_t n_reached = 0; // by the stream
    std::shared_ptr<Stream> stream;
    uint64_t serial  = 0;                          // in that stream, of the last record
    double stream_us = 0;                          // predicted time of the stream at that point
    std::chrono::steady_clock::time_point visible; // not complete before
};

struct Context {
    uint64_t number   = 0;
    int32_t device    = 0;
    bool is_primary   = false;
    bool is_alive     = true;
    Stream * fallback = nullptr;    // the context's default stream
    aclError failure = ACL_SUCCESS; // an asynchronous fault that was reported: nothing can be queued any more
    std::string failure_text;
};

struct State {
    std::mutex lock;
    // process
    int n_init         = 0;
    bool was_finalized = false;
    // Read before the lock is taken: in a forked child another thread may have owned it for ever.
    std::atomic<bool> is_forked{false};
    int pid          = 0;
    int n_set_device = 0;
    int lock_file    = -1;  // of Config::exclusive, while this process holds the device
    std::string acl_config; // path given to the first aclInit
    bool has_acl_config = false;
    // device memory
    uint8_t * client   = nullptr;
    uint8_t * chip     = nullptr;
    size_t span        = 0;
    int fd             = -1;
    size_t n_allocated = 0;
    uint64_t n_mallocs = 0;
    std::map<const uint8_t *, Allocation> allocations;
    std::map<size_t, size_t> holes;            // offset to length
    std::map<const void *, std::string> freed; // what last lived at an address
    std::map<void *, void *> host_blocks;      // address given out to the malloc'ed block
    // objects
    uint64_t next_number = 1;
    std::map<const void *, std::unique_ptr<Context>> contexts;
    std::map<const void *, std::shared_ptr<Stream>> streams;
    std::map<const void *, std::shared_ptr<Event>> events; // queued waits and records keep theirs alive
    Context * primary = nullptr;
    // faults
    std::map<std::string, int64_t> n_calls;
    int64_t n_launches = 0;
    bool is_lost       = false;
    bool is_hung       = false;    // the task scheduler: all streams, new ones too
    std::set<const Fault *> spent; // device faults that happened; one that persists comes back at reset
};

State & state();
const char * current_call(); // the entry point this thread is in, for messages
void set_current_call(const char * call);
const char * recent_error(); // and forgets it; null when there is none
std::string leaks_now();     // what is alive, one line each; state().lock is held

// ---- memory ----
aclError allocate(void ** out, size_t size, size_t pad, const char * call);
aclError release(void * address, const char * call);
bool is_client_range(const State & s, const void * p);
// Ends the process when memory of the range is named by pending work. `verb` completes "<call> <verb>
// memory".
void forbid_pending(State & s, const Range & range, bool writes_only, const std::string & call,
                    const char * verb);

// ---- contexts and streams; state().lock is held ----
Context * current_context(State & s);
void set_current_context(Context * context);
Stream * find_stream(State & s, aclrtStream stream, aclError * rc);
Stream * create_stream(State & s, Context & context, bool is_default);
void close_stream(std::unique_lock<std::mutex> & lock, State & s, Stream & stream, bool drop);
// Waits; timeout_ms < 0 means for ever. Marks everything as waited for and returns the failure of the stream,
// or of its context, if any; a reported failure is the whole context's from then on.
aclError wait_stream(std::unique_lock<std::mutex> & lock, Stream & stream, int64_t timeout_ms);
void observe(Stream & stream, uint64_t serial);
// Notes that a fault of the stream was reported: its context is unusable from now on. Returns the code.
aclError report_failure(State & s, Stream & stream, const char * call);

// ---- the device among processes; state().lock is held ----
// Whether this process has the device or could have it; takes it when `take` is set. Always true without
// Config::exclusive.
bool hold_device(State & s, bool take);
void let_device_go(State & s);

} // namespace sim
