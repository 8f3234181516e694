// Device memory: one memfd, mapped for the client without access and for the chip with it.
#include "sim-state.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace sim {
namespace {

constexpr size_t kMiB        = size_t{1} << 20;
constexpr size_t kHugePage   = 2 * kMiB;
constexpr size_t kGuardBytes = 64 << 10; // free() looks in front of a pointer: that, too, must hit our range
constexpr size_t kSmallStep  = 512;  // distance of small blocks; a block's real size is align32(size) + 32
constexpr size_t kSmallShift = 64;   // a board promises 64 B, so small blocks are aligned to that and no more
constexpr int kPoison        = 0x7b; // as FP16 61,000, as FP32 1.3e36: shows in any sum
constexpr size_t kPoisonMax  = 16 * kMiB;

struct sigaction g_previous = {};

size_t round_up(size_t n, size_t step) {
    return (n + step - 1) / step * step;
}

// Only what a signal handler may do: the fault is synchronous in the client's own load or store, so walking
// the map without the lock is as safe as it gets, and the process ends anyway.
void on_segv(int number, siginfo_t * info, void * context) {
    State & s          = state();
    const auto * where = static_cast<const uint8_t *>(info->si_addr);
    const bool is_ours = s.client != nullptr && where >= s.client && where < s.client + s.span;
    if (is_ours) {
        // No allocation here: the fault may sit inside the C library's free().
        char text[256];
        int n     = std::snprintf(text, sizeof text,
                                  "acl-sim: FATAL: host dereference of device memory that is not allocated\n");
        auto next = s.allocations.upper_bound(where);
        if (next != s.allocations.begin() &&
            where < std::prev(next)->second.base + std::prev(next)->second.real) {
            const Allocation & a = std::prev(next)->second;
            n                    = std::snprintf(
                text, sizeof text,
                "acl-sim: FATAL: host dereference of device memory: %td bytes into memory allocated by "
                                   "%s #%llu (%zu bytes)\n",
                where - a.base, a.call.c_str(), (unsigned long long) a.number, a.asked);
        }
        if (write(STDERR_FILENO, text, size_t(n)) < 0) {
            _exit(134); // nobody to tell
        }
        std::abort();
    }
    if ((g_previous.sa_flags & SA_SIGINFO) != 0 && g_previous.sa_sigaction != nullptr) {
        g_previous.sa_sigaction(number, info, context);
        return;
    }
    if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN &&
        g_previous.sa_handler != nullptr) {
        g_previous.sa_handler(number);
        return;
    }
    signal(SIGSEGV, SIG_DFL); // returning repeats the access, now with the default ending
}

void open_device(State & s) {
    s.span = size_t(config().memory_mb) * kMiB;
    s.fd   = memfd_create("acl-sim-device", MFD_CLOEXEC);
    if (s.fd < 0 || ftruncate(s.fd, off_t(s.span)) != 0) {
        fatal("cannot make the simulated device memory: " + std::string(std::strerror(errno)));
    }
    void * chip = mmap(nullptr, s.span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s.fd, 0);
    void * client =
        config().host_access
            ? mmap(nullptr, s.span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s.fd, 0)
            : mmap(nullptr, s.span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (chip == MAP_FAILED || client == MAP_FAILED) {
        fatal("cannot map the simulated device memory: " + std::string(std::strerror(errno)));
    }
    s.chip   = static_cast<uint8_t *>(chip);
    s.client = static_cast<uint8_t *>(client);
    s.holes.clear();
    s.holes[kGuardBytes]    = s.span - kGuardBytes;
    struct sigaction action = {};
    action.sa_sigaction     = on_segv;
    action.sa_flags         = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &g_previous);
}

const Allocation * find(const State & s, const void * p) {
    const auto * at = static_cast<const uint8_t *>(p);
    auto next       = s.allocations.upper_bound(at);
    if (next == s.allocations.begin()) {
        return nullptr;
    }
    const Allocation & a = std::prev(next)->second;
    return at < a.base + a.real ? &a : nullptr;
}

bool meet(const Range & a, const Range & b) {
    const auto * x = static_cast<const uint8_t *>(a.base);
    const auto * y = static_cast<const uint8_t *>(b.base);
    return a.len > 0 && b.len > 0 && x < y + b.len && y < x + a.len;
}

} // namespace

aclError allocate(void ** out, size_t size, size_t pad, const char * call) {
    State & s = state();
    const std::lock_guard<std::mutex> guard(s.lock);
    if (s.client == nullptr) {
        open_device(s);
    }
    ++s.n_mallocs;
    size_t real = round_up(size, 32) + pad;
    if (real > kMiB) {
        real = round_up(real, kHugePage);
    }
    const size_t limit = size_t(std::max<int64_t>(0, config().memory_mb - config().used_mb)) * kMiB;
    const size_t align = real > kMiB ? kHugePage : kSmallStep;
    const size_t shift = real > kMiB ? 0 : kSmallShift;
    if (s.n_allocated + real <= limit) {
        for (auto hole = s.holes.begin(); hole != s.holes.end(); ++hole) {
            const size_t at  = round_up(hole->first, align) + shift;
            const size_t end = hole->first + hole->second;
            if (at + real > end) {
                continue;
            }
            const size_t before = at - hole->first, after = end - at - real, first = hole->first;
            s.holes.erase(hole);
            if (before > 0) {
                s.holes[first] = before;
            }
            if (after > 0) {
                s.holes[at + real] = after;
            }
            uint8_t * base      = s.client + at;
            s.allocations[base] = {base, size, real, s.n_mallocs, call};
            s.n_allocated += real;
            // Contents are undefined on the chip: whoever relies on zeros must see it.
            std::memset(s.chip + at, kPoison, std::min(real, kPoisonMax));
            *out = base;
            return ACL_SUCCESS;
        }
    }
    set_error(call, ACL_ERROR_RT_MEMORY_ALLOCATION,
              "out of memory: " + std::to_string(size) + " bytes wanted, " +
                  std::to_string(limit > s.n_allocated ? limit - s.n_allocated : 0) + " free");
    return ACL_ERROR_RT_MEMORY_ALLOCATION;
}

aclError release(void * address, const char * call) {
    State & s = state();
    const std::lock_guard<std::mutex> guard(s.lock);
    const auto found = s.allocations.find(static_cast<const uint8_t *>(address));
    if (found == s.allocations.end()) {
        const auto grave = s.freed.find(address);
        if (grave != s.freed.end()) {
            fatal("double free: " + std::string(call) + " of memory that " + grave->second);
        }
        if (is_client_range(s, address)) {
            fatal(std::string(call) + " of an address inside an allocation, not its start");
        }
        set_error(call, ACL_ERROR_RT_PARAM_INVALID, "the address was not returned by aclrtMalloc");
        return ACL_ERROR_RT_PARAM_INVALID;
    }
    const Allocation a = found->second;
    forbid_pending(s, {a.base, a.real}, false, call, "frees");
    const size_t at = size_t(a.base - s.client);
    std::memset(s.chip + at, kPoison, std::min(a.real, kPoisonMax));
    if (a.real >= kHugePage) {
        fallocate(s.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(at), off_t(a.real));
    }
    s.n_allocated -= a.real;
    s.freed[address] =
        "was already freed by " + std::string(call) + " (allocation #" + std::to_string(a.number) + ")";
    s.allocations.erase(found);
    size_t begin = at, end = at + a.real;
    auto next = s.holes.lower_bound(at);
    if (next != s.holes.end() && next->first == end) {
        end += next->second;
        next = s.holes.erase(next);
    }
    if (next != s.holes.begin() && std::prev(next)->first + std::prev(next)->second == begin) {
        begin = std::prev(next)->first;
        s.holes.erase(std::prev(next));
    }
    s.holes[begin] = end - begin;
    return ACL_SUCCESS;
}

bool is_client_range(const State & s, const void * p) {
    const auto * at = static_cast<const uint8_t *>(p);
    return s.client != nullptr && at >= s.client && at < s.client + s.span;
}

bool is_device_address(const void * p) {
    State & s = state();
    const std::lock_guard<std::mutex> guard(s.lock);
    return is_client_range(s, p);
}

bool is_mapped(const void * client_address, size_t len) {
    State & s = state();
    const std::lock_guard<std::mutex> guard(s.lock);
    const Allocation * a = find(s, client_address);
    return a != nullptr && static_cast<const uint8_t *>(client_address) + len <= a->base + a->real;
}

uint8_t * dev_ptr(const void * client_address, size_t len) {
    State & s = state();
    const std::lock_guard<std::mutex> guard(s.lock);
    const auto * at      = static_cast<const uint8_t *>(client_address);
    const Allocation * a = find(s, at);
    if (a == nullptr) {
        fatal(std::string(current_call()) +
              (is_client_range(s, at) ? ": the memory is not allocated (any more)"
                                      : ": a host pointer was given where device memory is needed"));
    }
    if (at + len > a->base + a->real) {
        fatal(std::string(current_call()) + ": " + std::to_string(len) + " bytes from offset " +
              std::to_string(at - a->base) + " leave the allocation #" + std::to_string(a->number) + " of " +
              std::to_string(a->asked) + " bytes");
    }
    return s.chip + (at - s.client);
}

void forbid_pending(State & s, const Range & range, bool writes_only, const std::string & call,
                    const char * verb) {
    for (const auto & [handle, stream] : s.streams) {
        for (const Pending & p : stream->pending) {
            const auto named = [&](const std::vector<Range> & ranges) {
                return std::any_of(ranges.begin(), ranges.end(),
                                   [&](const Range & r) { return meet(r, range); });
            };
            if (named(p.writes) || (!writes_only && named(p.reads))) {
                fatal("memory in use: " + call + " " + verb + " memory that " + p.what +
                      " still needs; nothing has waited for it");
            }
        }
    }
}

} // namespace sim
