# Native targets, included by the top Makefile. Needs cmake, a C++17 compiler and a venv with llama-cpp-python.
#
#   make native                plugin and simulator             make native-test      unit tests, then ASan/UBSan, TSan
#   make native-sweep          test-backend-ops on the plugin   make native-predict   predicted speeds, from the cost model
#   make native-header-check   our declarations, the vendor's   make native-lint      clang-format, clang-tidy
#   make native-format         clang-format alone
#   make native-arm64          cross build, tests under qemu

VENV          ?= .venv
NATIVE_PYTHON ?= $(VENV)/bin/python
NATIVE_BUILD  ?= build/native
NATIVE_CACHE  ?= .cache/native
NATIVE_JOBS   ?= $(shell nproc)

NATIVE_SDIST  := $(NATIVE_CACHE)/llama_cpp_python-0.3.36
NATIVE_LLAMA   = $(NATIVE_SDIST)/vendor/llama.cpp
# The libraries of the installed package: the plugin must meet exactly the ggml that will load it.
NATIVE_GGML_LIB = $(shell $(NATIVE_PYTHON) -c 'import importlib.util as u; print(u.find_spec("llama_cpp").submodule_search_locations[0] + "/lib")')
# By the environment, not by -G: a folder that was begun without ninja keeps its generator.
NATIVE_CMAKE     = $(if $(shell command -v ninja),CMAKE_GENERATOR=Ninja) cmake
NATIVE_CONFIGURE = $(NATIVE_CMAKE) -S native -DGGML_HEADERS=$(abspath $(NATIVE_LLAMA))/ggml

.PHONY: native native-test native-test-fast native-sweep native-predict native-header-check native-format native-lint native-arm64 native-clean

$(NATIVE_SDIST)/.unpacked:
	$(NATIVE_PYTHON) native/tools/fetch.py sdist

native: $(NATIVE_SDIST)/.unpacked
	$(NATIVE_CONFIGURE) -B $(NATIVE_BUILD) -DGGML_LIB=$(NATIVE_GGML_LIB)
	cmake --build $(NATIVE_BUILD) -j $(NATIVE_JOBS)

native-test-fast: native
	ctest --test-dir $(NATIVE_BUILD) --output-on-failure -LE slow

native-test: native
	ctest --test-dir $(NATIVE_BUILD) --output-on-failure
	$(NATIVE_CONFIGURE) -B $(NATIVE_BUILD)-asan -DGGML_LIB=$(NATIVE_GGML_LIB) -DNATIVE_SANITIZE=address,undefined
	cmake --build $(NATIVE_BUILD)-asan -j $(NATIVE_JOBS)
	ctest --test-dir $(NATIVE_BUILD)-asan --output-on-failure
	$(NATIVE_CONFIGURE) -B $(NATIVE_BUILD)-tsan -DGGML_LIB=$(NATIVE_GGML_LIB) -DNATIVE_SANITIZE=thread
	cmake --build $(NATIVE_BUILD)-tsan -j $(NATIVE_JOBS)
	# libgomp and the stock ggml are not instrumented: what happens inside them is none of our races.
	TSAN_OPTIONS=ignore_noninstrumented_modules=1 setarch -R ctest --test-dir $(NATIVE_BUILD)-tsan --output-on-failure

native-sweep: native
	cmake --build $(NATIVE_BUILD) -j $(NATIVE_JOBS) --target test-backend-ops
	$(NATIVE_PYTHON) native/tools/sweep.py --build $(NATIVE_BUILD)
	# Once more where they matter, on a board that has the fused operators.
	ACL_SIM_CONFIG='{"accepts": ["aclnnRmsNorm", "aclnnLayerNorm", "aclnnSwiGlu", "aclnnGeGluV3"]}' \
		$(NATIVE_PYTHON) native/tools/sweep.py --build $(NATIVE_BUILD) \
		--ops NORM,RMS_NORM,NORM_MUL_ADD,RMS_NORM_MUL_ADD,ADD_RMS_NORM,SWIGLU,GEGLU,GEGLU_ERF

native-predict: native
	$(NATIVE_PYTHON) native/tools/predict.py --build $(NATIVE_BUILD)

native-header-check:
	$(NATIVE_PYTHON) native/tools/header_check.py

native-format:
	$(NATIVE_PYTHON) native/tools/lint.py --build $(NATIVE_BUILD) --no-tidy

native-lint: native
	$(NATIVE_PYTHON) native/tools/lint.py --build $(NATIVE_BUILD)

native-arm64: native
	$(NATIVE_PYTHON) native/tools/arm64.py --jobs $(NATIVE_JOBS)

native-clean:
	rm -rf $(NATIVE_BUILD) $(NATIVE_BUILD)-asan $(NATIVE_BUILD)-tsan $(NATIVE_BUILD)-arm64
