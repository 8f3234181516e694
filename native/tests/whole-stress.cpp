// 1,000 graphs on the plugin over the simulator, with random stream delays and four calling threads: every
// one must give the same bits as the first, and the simulator must have nothing to say.
//
// Ten children with ten seeds; in each, four threads with a backend of their own compute 25 times a small
// transformer block at M = 1 and M = 17 (the two matmul paths of the chip). Set NATIVE_SEED to repeat a run.
#include "check.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "ggml.h"

#include <array>
#include <cstdint>
#include <mutex>
#include <random>
#include <set>
#include <thread>

namespace {

constexpr int kSeeds      = 10;
constexpr int kThreads    = 4;
constexpr int kRuns       = 25;
constexpr int kDelayMaxUs = 300;
constexpr int kEmbd = 64, kHeads = 4, kFf = 128;
constexpr std::array<int, 2> kTokens = {1, 17};

std::vector<float> random_floats(size_t n, uint32_t seed, float scale) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0.0F, scale);
    std::vector<float> out(n);
    for (float & value : out) {
        value = normal(engine);
    }
    return out;
}

// One block with its weights on one backend; every instance holds the same numbers.
class Block {
  public:
    Block(ggml_backend_t backend, int n_tokens) : backend_(backend), n_tokens_(n_tokens) {
        const ggml_init_params params = {ggml_tensor_overhead() * 128 + ggml_graph_overhead(), nullptr, true};
        context_.reset(ggml_init(params));
        build(context_.get());
        buffer_.reset(ggml_backend_alloc_ctx_tensors(context_.get(), backend));
        REQUIRE(buffer_ != nullptr);
        fill();
    }

    // Uploads the input, computes and returns the output's bytes.
    std::vector<float> run() {
        const std::vector<float> x = random_floats(size_t(kEmbd) * size_t(n_tokens_), 99, 1.0F);
        ggml_backend_tensor_set(input_, x.data(), 0, ggml_nbytes(input_));
        REQUIRE(ggml_backend_graph_compute(backend_, graph_) == GGML_STATUS_SUCCESS);
        std::vector<float> out(size_t(ggml_nelements(output_)));
        ggml_backend_tensor_get(output_, out.data(), 0, ggml_nbytes(output_));
        return out;
    }

    ggml_cgraph * graph() const { return graph_; }

  private:
    ggml_tensor * weight(int ne0, int ne1) {
        ggml_tensor * w = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F16, ne0, ne1);
        weights_.push_back(w);
        return w;
    }

    void build(ggml_context * ctx) {
        const int head_size = kEmbd / kHeads;
        input_              = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, kEmbd, n_tokens_);
        positions_          = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_tokens_);
        mask_               = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n_tokens_, n_tokens_);
        norm_               = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, kEmbd);

        ggml_tensor * x = ggml_mul(ctx, ggml_rms_norm(ctx, input_, 1e-6F), norm_);
        auto heads = [&](ggml_tensor * t) { return ggml_reshape_3d(ctx, t, head_size, kHeads, n_tokens_); };
        auto turn  = [&](ggml_tensor * t) {
            return ggml_rope_ext(ctx, t, positions_, nullptr, head_size, GGML_ROPE_TYPE_NEOX, 4096, 10000.0F,
                                  1.0F, 0.0F, 1.0F, 32.0F, 1.0F);
        };
        ggml_tensor * q = turn(heads(ggml_mul_mat(ctx, weight(kEmbd, kEmbd), x)));
        ggml_tensor * k = turn(heads(ggml_mul_mat(ctx, weight(kEmbd, kEmbd), x)));
        ggml_tensor * v = heads(ggml_mul_mat(ctx, weight(kEmbd, kEmbd), x));
        q               = ggml_permute(ctx, q, 0, 2, 1, 3);
        k               = ggml_cont(ctx, ggml_permute(ctx, k, 0, 2, 1, 3));
        v               = ggml_cont(ctx, ggml_permute(ctx, v, 1, 2, 0, 3));
        ggml_tensor * s = ggml_soft_max_ext(ctx, ggml_mul_mat(ctx, k, q), mask_, 0.25F, 0.0F);
        ggml_tensor * a =
            ggml_cont_2d(ctx, ggml_permute(ctx, ggml_mul_mat(ctx, v, s), 0, 2, 1, 3), kEmbd, n_tokens_);
        x                  = ggml_add(ctx, ggml_mul_mat(ctx, weight(kEmbd, kEmbd), a), input_);
        ggml_tensor * gate = ggml_mul_mat(ctx, weight(kEmbd, kFf), x);
        ggml_tensor * up   = ggml_mul_mat(ctx, weight(kEmbd, kFf), x);
        output_ = ggml_add(ctx, ggml_mul_mat(ctx, weight(kFf, kEmbd), ggml_swiglu_split(ctx, gate, up)), x);
        graph_  = ggml_new_graph(ctx);
        ggml_build_forward_expand(graph_, output_);
    }

    void fill() {
        uint32_t seed = 1;
        for (ggml_tensor * w : weights_) {
            const size_t n = size_t(ggml_nelements(w));
            std::vector<ggml_fp16_t> half(n);
            ggml_fp32_to_fp16_row(random_floats(n, seed++, 0.12F).data(), half.data(), int64_t(n));
            ggml_backend_tensor_set(w, half.data(), 0, ggml_nbytes(w));
        }
        const std::vector<float> ones = random_floats(kEmbd, seed, 1.0F);
        ggml_backend_tensor_set(norm_, ones.data(), 0, ggml_nbytes(norm_));
        std::vector<int32_t> positions(static_cast<size_t>(n_tokens_));
        std::vector<float> mask(size_t(n_tokens_) * size_t(n_tokens_), 0.0F);
        for (int i = 0; i < n_tokens_; ++i) {
            positions[size_t(i)] = i;
            for (int j = i + 1; j < n_tokens_; ++j) {
                mask[size_t(i) * size_t(n_tokens_) + size_t(j)] = -INFINITY;
            }
        }
        ggml_backend_tensor_set(positions_, positions.data(), 0, ggml_nbytes(positions_));
        ggml_backend_tensor_set(mask_, mask.data(), 0, ggml_nbytes(mask_));
    }

    ggml_backend_t backend_;
    int n_tokens_;
    ggml_context_ptr context_;
    ggml_backend_buffer_ptr buffer_;
    std::vector<ggml_tensor *> weights_;
    ggml_tensor * input_     = nullptr;
    ggml_tensor * positions_ = nullptr;
    ggml_tensor * mask_      = nullptr;
    ggml_tensor * norm_      = nullptr;
    ggml_tensor * output_    = nullptr;
    ggml_cgraph * graph_     = nullptr;
};

std::string digest(const std::vector<float> & values) {
    uint64_t hash = 1469598103934665603ULL; // FNV-1a
    for (const float value : values) {
        uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        hash = (hash ^ bits) * 1099511628211ULL;
    }
    return std::to_string(hash);
}

ggml_backend_dev_t plugin_device() {
    REQUIRE(ggml_backend_load(NATIVE_BUILD "/libggml-cann310b.so") != nullptr);
    ggml_backend_reg_t registry = ggml_backend_reg_by_name("CANN");
    REQUIRE(registry != nullptr && ggml_backend_reg_dev_count(registry) > 0);
    return ggml_backend_reg_dev_get(registry, 0);
}

// The child's work. Writes every distinct result as "digest M=<m> <hash>" to stderr, which the parent reads.
void compute_from_four_threads() {
    ggml_backend_dev_t device = plugin_device();
    std::mutex mutex;
    std::set<std::string> results;
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&] {
            const ggml_backend_ptr backend(ggml_backend_dev_init(device, nullptr));
            REQUIRE(backend != nullptr);
            for (const int n_tokens : kTokens) {
                Block block(backend.get(), n_tokens);
                for (int run = 0; run < kRuns; ++run) {
                    const std::string line =
                        "digest M=" + std::to_string(n_tokens) + " " + digest(block.run());
                    const std::lock_guard<std::mutex> lock(mutex);
                    results.insert(line);
                }
            }
        });
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    for (const std::string & line : results) {
        std::fprintf(stderr, "%s\n", line.c_str());
    }
}

} // namespace

TEST_CASE(thousand_runs_with_random_delays_agree) {
    const char * fixed = std::getenv("NATIVE_SEED");
    const unsigned base =
        fixed != nullptr ? unsigned(std::strtoul(fixed, nullptr, 10)) : std::random_device{}() % 100000;
    std::set<std::string> results;
    for (unsigned seed = base; seed < base + kSeeds; ++seed) {
        const std::string config = "{\"chip\": \"310B4\", \"threads\": 2, \"seed\": " + std::to_string(seed) +
                                   ", \"delay_us_max\": " + std::to_string(kDelayMaxUs) + "}";
        setenv("ACL_SIM_CONFIG", config.c_str(), 1);
        std::fprintf(stderr, "seed %u\n", seed);
        const check::Ending ending = check::run_child(compute_from_four_threads);
        CHECK_EQ(ending.signal, 0);
        CHECK_EQ(ending.exit_status, 0);
        if (ending.output.find("acl-sim:") != std::string::npos || ending.exit_status != 0) {
            check::report(__FILE__, __LINE__, "seed " + std::to_string(seed) + " said:\n" + ending.output);
        }
        std::istringstream lines(ending.output);
        for (std::string line; std::getline(lines, line);) {
            if (line.rfind("digest ", 0) == 0) {
                results.insert(line);
            }
        }
    }
    // One result for each M, over all seeds, threads and runs.
    CHECK_EQ(results.size(), kTokens.size());
}

TEST_CASE(block_agrees_with_the_cpu) {
    const ggml_backend_ptr npu(ggml_backend_dev_init(plugin_device(), nullptr));
    const ggml_backend_ptr cpu(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr));
    REQUIRE(npu != nullptr && cpu != nullptr);
    for (const int n_tokens : kTokens) {
        const std::vector<float> want = Block(cpu.get(), n_tokens).run();
        Block block(npu.get(), n_tokens);
        for (int i = 0; i < ggml_graph_n_nodes(block.graph()); ++i) {
            ggml_tensor * node = ggml_graph_node(block.graph(), i);
            if (!ggml_backend_supports_op(npu.get(), node)) {
                check::report(__FILE__, __LINE__, std::string("not supported: ") + ggml_op_desc(node));
            }
        }
        const std::vector<float> got = block.run();
        double error = 0, power = 0;
        for (size_t i = 0; i < want.size(); ++i) {
            error += std::pow(double(got[i]) - double(want[i]), 2);
            power += std::pow(double(want[i]), 2);
        }
        // FP16 operands and results: a few rounding errors of 2^-11 each, squared.
        CHECK(error / power < 2e-5);
    }
}

TEST_MAIN()
