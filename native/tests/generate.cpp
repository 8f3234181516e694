// generate MODEL.gguf PLUGIN.so|cpu N TOKEN...
//
// Loads a model with the stock libllama, on the plugin or on the CPU, feeds the given token numbers and
// prints the N best tokens that follow, one a line. Also the end-to-end check under qemu, where there is no
// Python. Exit status: 0 done, 1 failed (the reason on stderr), 2 usage.
#include "ggml-backend.h"
#include "llama.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace {

constexpr int kContextTokens = 256;
constexpr int kAllLayers     = 999;

struct ModelFree {
    void operator()(llama_model * model) const { llama_model_free(model); }
};
struct ContextFree {
    void operator()(llama_context * context) const { llama_free(context); }
};

int fail(const char * what) {
    std::fprintf(stderr, "generate: %s\n", what);
    return 1;
}

llama_token best_token(const float * logits, int n_vocab) {
    return static_cast<llama_token>(std::max_element(logits, logits + n_vocab) - logits);
}

int generate(const char * model_path, bool on_cpu, long n_predict, std::vector<llama_token> prompt) {
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers       = on_cpu ? 0 : kAllLayers;
    const std::unique_ptr<llama_model, ModelFree> model(llama_model_load_from_file(model_path, model_params));
    if (!model) {
        return fail("the model could not be loaded");
    }
    llama_context_params context_params = llama_context_default_params();
    context_params.n_ctx                = kContextTokens;
    context_params.n_threads            = 1;
    context_params.n_threads_batch      = 1;
    const std::unique_ptr<llama_context, ContextFree> context(
        llama_init_from_model(model.get(), context_params));
    if (!context) {
        return fail("the context could not be created");
    }
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
    for (long i = 0; i < n_predict; ++i) {
        if (llama_decode(context.get(),
                         llama_batch_get_one(prompt.data(), static_cast<int>(prompt.size()))) != 0) {
            return fail("llama_decode failed");
        }
        prompt = {best_token(llama_get_logits_ith(context.get(), -1), n_vocab)};
        std::printf("%d\n", prompt[0]);
    }
    return 0;
}

} // namespace

int main(int argc, char ** argv) {
    if (argc < 5) {
        std::fprintf(stderr, "usage: generate MODEL.gguf PLUGIN.so|cpu N TOKEN...\n");
        return 2;
    }
    const bool on_cpu = std::strcmp(argv[2], "cpu") == 0;
    ggml_backend_load_all();
    if (!on_cpu && ggml_backend_load(argv[2]) == nullptr) {
        return fail("the plugin could not be loaded");
    }
    std::vector<llama_token> prompt;
    for (int i = 4; i < argc; ++i) {
        prompt.push_back(std::atoi(argv[i]));
    }
    llama_backend_init();
    const int status = generate(argv[1], on_cpu, std::strtol(argv[3], nullptr, 10), std::move(prompt));
    llama_backend_free();
    return status;
}
