// The one NPU of the board: start and end, the calling thread's context, memory.
#pragma once

#include "acl-library.h"

#include <atomic>
#include <cstddef>
#include <mutex>
#include <set>
#include <string>

namespace cann310b {

class Device {
  public:
    // Opens ACL and looks for an NPU. Empty when there is one, else why not. aclInit happens here, once.
    std::string start();
    // Makes the calling thread able to call ACL; sets the device on the first call of the process.
    void bind();
    // Frees what is left, resets and finalizes, once; later calls from ggml become no-ops. Runs at exit, too.
    void shutdown();
    bool is_open() const;

    // Device memory with a mapped tail (a matmul may read a 16-row tile past its operand). Throws AclFailure.
    void * allocate(size_t n_bytes, const char * purpose);
    void release(void * address, size_t n_bytes);
    aclrtStream create_stream();
    void destroy_stream(aclrtStream stream);
    void copy(void * dst, const void * src, size_t n_bytes, aclrtMemcpyKind kind);
    void memory(size_t * free_bytes, size_t * total_bytes);

    std::string soc_name;
    // {"used": bytes, "peak": bytes, "allocations": n, "free": bytes, "total": bytes, "layout": "..."}
    std::string memory_json();
    void note_layout(const std::string & layout);

  private:
    std::mutex lock_;
    bool is_init_         = false;
    bool is_closed_       = false;
    int pid_              = 0;
    aclrtContext context_ = nullptr;
    std::set<void *> blocks_;
    std::set<aclrtStream> streams_;
    size_t used_ = 0, peak_ = 0, n_allocations_ = 0;
    std::string layout_ = "undecided";
};

Device & device();

} // namespace cann310b
