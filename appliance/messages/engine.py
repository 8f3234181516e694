"""Sentences about generation, embeddings and the device."""

from __future__ import annotations

from appliance.messages.sentence import Sentence

SENTENCES: dict[str, Sentence] = {
    "requantise_failed": Sentence(
        "llama.cpp could not write {path} with F16 weights.",
        "llama.cpp 无法以 F16 权重写出 {path}。",
        "Check that there is space on the disk and that the file is a language model.",
        "请检查磁盘空间，并确认该文件是语言模型。",
    ),
    "engine_unloadable": Sentence(
        "llama.cpp cannot be loaded: {cause}.",
        "无法加载 llama.cpp：{cause}。",
        "Run 'appliance doctor'; it says which library is missing and how to get it.",
        "请运行 “appliance doctor”，它会指出缺少的库及解决办法。",
    ),
    "safe_mode": Sentence(
        "The box runs in safe mode, without a model, because {n_failed} starts in a row broke off.",
        "由于连续 {n_failed} 次启动中断，系统以安全模式运行，未加载模型。",
        "Search works. Run 'appliance doctor', mend what it names, then restart the box.",
        "搜索仍可使用。请运行 “appliance doctor”，排除其指出的问题，然后重新启动。",
    ),
    "engine_failed": Sentence(
        "The engine failed: {cause}.",
        "推理引擎出错：{cause}。",
        "Try again; if it repeats, run 'appliance status' and look at the log.",
        "请重试；如反复出现，请运行 “appliance status” 并查看日志。",
    ),
    "engine_stopped": Sentence(
        "The model is not ready ({state}).",
        "模型尚未就绪（{state}）。",
        "Wait until 'appliance status' says ready; search already works.",
        "请等到 “appliance status” 显示就绪；搜索功能现在就可以使用。",
    ),
    "context_overflow": Sentence(
        "The prompt has {n_prompt_tokens} tokens, but the model's context holds {n_ctx}, "
        "the answer included.",
        "提示词有 {n_prompt_tokens} 个词元，而模型的上下文连同回答只能容纳 {n_ctx} 个。",
        "Shorten it, or raise 'engine.n_ctx'.",
        "请缩短内容，或调大 “engine.n_ctx”。",
    ),
    "device_lost": Sentence(
        "The NPU failed during the answer: {cause}.",
        "NPU 在回答过程中出错：{cause}。",
        "Ask again in a moment: the box restarts the NPU or goes on with the CPU; "
        "'appliance status' says which.",
        "请稍后重试：系统会重启 NPU 或改用 CPU；运行 “appliance status” 可查看当前状态。",
    ),
    "queue_full": Sentence(
        "{n_waiting} questions are already waiting.",
        "已有 {n_waiting} 个问题在排队。",
        "Please try again in {retry_after_s} s.",
        "请在 {retry_after_s} 秒后重试。",
    ),
    "embed_overflow": Sentence(
        "The text has {n_prompt_tokens} tokens, but the embedding model takes {n_ctx}.",
        "文本有 {n_prompt_tokens} 个词元，而向量模型最多接受 {n_ctx} 个。",
        "Split it into shorter pieces.",
        "请拆分成更短的文本。",
    ),
    "bad_dimensions": Sentence(
        "This embedding model gives vectors of {allowed} numbers, not of {dimensions}.",
        "此向量模型的维数为 {allowed}，不支持 {dimensions}。",
        "Ask for one of these, or choose a model whose vectors may be cut (Qwen3-Embedding).",
        "请使用允许的维数，或选择支持截短向量的模型（Qwen3-Embedding）。",
    ),
    "empty_prompt": Sentence(
        "The prompt is empty.",
        "提示词为空。",
        "Write something.",
        "请输入内容。",
    ),
    "chat_template_missing": Sentence(
        "The model {model} has no chat template, so it cannot hold a conversation.",
        "模型 {model} 没有对话模板，无法进行对话。",
        "Choose an 'instruct' or 'chat' model from 'appliance models list'.",
        "请从 “appliance models list” 中选择 instruct 或 chat 模型。",
    ),
    "chat_template_invalid": Sentence(
        "The model's chat template cannot be used: {cause}.",
        "模型的对话模板无法使用：{cause}。",
        "Choose another model, or get this one again from another source.",
        "请选择其他模型，或从其他来源重新获取该模型。",
    ),
    "tools_unsupported": Sentence(
        "The model {model} has no way to call tools in its chat template.",
        "模型 {model} 的对话模板不支持调用工具。",
        "Leave the tools out, or choose a model that has it (Qwen has).",
        "请去掉 tools，或选择支持的模型（如 Qwen）。",
    ),
    "bad_grammar": Sentence(
        "The grammar cannot be used: {cause}.",
        "语法无法使用：{cause}。",
        "Write it as GBNF with a rule named 'root' and no left recursion.",
        "请使用 GBNF 格式，包含名为 root 的规则，且不要左递归。",
    ),
    "bad_schema": Sentence(
        "The JSON schema cannot be used: {cause}.",
        "JSON 模式无法使用：{cause}。",
        "Simplify the schema; references must lie inside it.",
        "请简化该模式；引用必须位于其内部。",
    ),
    "grammar_dead_end": Sentence(
        "The grammar leaves no way to go on that this model can write.",
        "按照该语法，此模型已无法继续生成。",
        "Allow more characters in the grammar, or take away the bias against tokens it needs.",
        "请在语法中允许更多字符，或去掉对所需词元的抑制。",
    ),
    "device_pending": Sentence(
        "The device is not chosen yet.",
        "尚未选择运行设备。",
    ),
    "device_configured": Sentence(
        "The configuration says CPU.",
        "配置指定使用 CPU。",
        "Set 'engine.device' to auto to use an NPU.",
        "如需使用 NPU，请将 “engine.device” 设为 auto。",
    ),
    "plugin_missing": Sentence(
        "No NPU plugin is installed.",
        "未安装 NPU 插件。",
        "Nothing is wrong without an NPU; with one, run 'make native' or set 'engine.plugin'.",
        "请运行 “make native”，或在 “engine.plugin” 中指定插件文件；没有 NPU 时无需处理。",
    ),
    "plugin_absent": Sentence(
        "The NPU plugin {path} is not there.",
        "找不到 NPU 插件 {path}。",
        "Correct 'engine.plugin'.",
        "请修改 “engine.plugin”。",
    ),
    "plugin_refused": Sentence(
        "The NPU plugin {path} cannot be loaded.",
        "无法加载 NPU 插件 {path}。",
        "It must fit this version of llama-cpp-python: run 'make native'. The log says more.",
        "插件必须与当前版本的 llama-cpp-python 匹配：请运行 “make native”。详情见日志。",
    ),
    "plugin_too_old": Sentence(
        "The NPU plugin has no function {missing}.",
        "NPU 插件缺少函数 {missing}。",
        "Build it again with 'make native' and restart the daemon.",
        "请用 “make native” 重新构建插件，然后重启服务。",
    ),
    "npu_absent": Sentence(
        "No NPU can be used: {cause}.",
        "没有可用的 NPU：{cause}。",
        "Check 'npu-smi info' and that no other program holds the NPU, then restart the daemon.",
        "请检查 “npu-smi info”，确认没有其他程序占用 NPU，然后重启服务。",
    ),
    "npu_found": Sentence(
        "The plugin found an NPU.",
        "插件检测到 NPU。",
    ),
    "npu_failed": Sentence(
        "The NPU failed and the CPU has taken over: {cause}.",
        "NPU 出错，已改由 CPU 运行：{cause}。",
        "The NPU is tried again when the box is idle ('device.retry_s'); answers work meanwhile.",
        "系统空闲时会再次尝试 NPU（“device.retry_s”）；在此期间可正常提问。",
    ),
    "npu_restarting": Sentence(
        "The NPU failed and is being restarted: {cause}.",
        "NPU 出错，正在重启：{cause}。",
        "Search works meanwhile; ask again in a moment.",
        "在此期间搜索可用；请稍后再提问。",
    ),
    "npu_load_failed": Sentence(
        "The NPU could not load the model: {cause}.",
        "NPU 无法加载模型：{cause}。",
        "Choose a smaller model, set 'device.layout: nd', or set 'engine.device' to auto.",
        "请选择更小的模型、设置 “device.layout: nd”，或将 “engine.device” 设为 auto。",
    ),
    "npu_without_model": Sentence(
        "The answering model runs on the CPU because the NPU could not take it: {cause}.",
        "NPU 无法加载回答模型，该模型改由 CPU 运行：{cause}。",
        "Choose a smaller model or set 'device.layout: nd' if memory is short.",
        "如内存不足，请选择更小的模型，或设置 “device.layout: nd”。",
    ),
    "layout_fits": Sentence(
        "A second copy of the weights was made for faster decoding: {layout_needed_mb} MB with "
        "reserve, {layout_free_mb} MB were free.",
        "已为加快解码保存第二份权重：含预留共需 {layout_needed_mb} MB，"
        "当时空闲 {layout_free_mb} MB。",
    ),
    "layout_memory": Sentence(
        "No second copy of the weights: {layout_needed_mb} MB with reserve would be needed and "
        "{layout_free_mb} MB were free, so decoding is slower.",
        "未保存第二份权重：含预留需要 {layout_needed_mb} MB，而空闲只有 {layout_free_mb} MB，"
        "因此解码较慢。",
    ),
    "layout_configured": Sentence(
        "The configuration says so ('device.layout').",
        "由配置指定（“device.layout”）。",
    ),
    "layout_undecided": Sentence(
        "No weights needed a decision so far.",
        "目前尚无需要决定布局的权重。",
    ),
    "bad_sampling": Sentence(
        "The sampler setting '{field}' is {value}; it must lie between {least} and {most}.",
        "采样参数 “{field}” 的值是 {value}，应在 {least} 与 {most} 之间。",
        "Correct the request.",
        "请修改请求。",
    ),
    "model_change_running": Sentence(
        "Another model is being loaded already.",
        "正在换用另一个模型。",
        "Wait until 'appliance status' says that it is ready.",
        "请等到 “appliance status” 显示就绪。",
    ),
    "model_not_for_answers": Sentence(
        "The model '{model}' makes vectors and cannot answer.",
        "模型 “{model}” 用于生成向量，不能回答问题。",
        "'appliance models list' shows which models there are.",
        "用 “appliance models list” 查看有哪些模型。",
    ),
    "model_too_large": Sentence(
        "The model '{model}' needs about {n_needed_mib} MiB of memory, but {n_free_mib} MiB are "
        "free.",
        "模型 “{model}” 约需 {n_needed_mib} MiB 内存，可用 {n_free_mib} MiB。",
        "Choose a smaller model, or lower 'engine.n_ctx' or 'engine.n_slots'.",
        "请选择更小的模型，或调低 “engine.n_ctx” 或 “engine.n_slots”。",
    ),
    "done_by_server": Sentence(
        "A server does this for the box.",
        "该工作由服务器完成。",
    ),
    "device_remote": Sentence(
        "Another server answers ('engine.kind: openai').",
        "由另一台服务器回答（“engine.kind: openai”）。",
    ),
    "remote_unreachable": Sentence(
        "The server {url} does not answer: {cause}.",
        "服务器 {url} 没有响应：{cause}。",
        "Check that it runs and that this box reaches it; search by keywords works meanwhile.",
        "请确认服务器正在运行且网络可达；在此期间可使用关键词搜索。",
    ),
    "remote_broke_off": Sentence(
        "The server {url} broke off in the middle of the answer: {cause}.",
        "服务器 {url} 在回答中途断开：{cause}。",
        "What was shown so far is incomplete; ask again.",
        "已显示的内容不完整，请重新提问。",
    ),
    "remote_busy": Sentence(
        "The server {url} has too much to do.",
        "服务器 {url} 过于繁忙。",
        "Please try again in {retry_after_s} s.",
        "请在 {retry_after_s} 秒后重试。",
    ),
    "remote_refused": Sentence(
        "The server {url} refused the request (HTTP {status}): {cause}",
        "服务器 {url} 拒绝了请求（HTTP {status}）：{cause}",
        "Correct the request; 'remote.extensions: false' sends only what OpenAI knows.",
        "请修改请求；设置 “remote.extensions: false” 可只发送 OpenAI 标准字段。",
    ),
    "remote_key_refused": Sentence(
        "The server {url} refused the key (HTTP {status}): {cause}",
        "服务器 {url} 拒绝了密钥（HTTP {status}）：{cause}",
        "Put the right key into the file that 'api_key_file' names, then restart.",
        "请将正确的密钥写入 “api_key_file” 指定的文件，然后重启。",
    ),
    "remote_failed": Sentence(
        "The server {url} failed (HTTP {status}): {cause}",
        "服务器 {url} 出错（HTTP {status}）：{cause}",
        "Ask again; if it repeats, look at that server's log.",
        "请重试；如反复出现，请查看该服务器的日志。",
    ),
    "remote_nonsense": Sentence(
        "What the server {url} answered makes no sense: {cause}.",
        "服务器 {url} 的回复无法理解：{cause}。",
        "Check that the address is that of an OpenAI-compatible server, '/v1' included.",
        "请确认该地址是 OpenAI 兼容服务器的地址（包含 “/v1”）。",
    ),
    "remote_model_unknown": Sentence(
        "The server {url} has no model {model}; it has: {known}.",
        "服务器 {url} 上没有模型 {model}；可用的有：{known}。",
        "Correct 'remote.model'.",
        "请修改 “remote.model”。",
    ),
    "remote_no_word": Sentence(
        "'{field}' cannot be asked of the server {url}.",
        "无法向服务器 {url} 请求 “{field}”。",
        "Leave it out, or set 'remote.extensions: true' if the server knows it.",
        "请去掉该项；如果服务器支持，请设置 “remote.extensions: true”。",
    ),
}
