"""Sentences about generation, embeddings and the device."""

from __future__ import annotations

from appliance.messages.sentence import Sentence

SENTENCES: dict[str, Sentence] = {
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
        "The accelerator stopped answering: {cause}.",
        "加速器停止响应：{cause}。",
        "The box goes on without it; restart the daemon to try it again.",
        "系统会在没有加速器的情况下继续运行；重启服务可再次尝试。",
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
    "not_supported": Sentence(
        "This engine cannot do what '{field}' asks for.",
        "此引擎不支持 “{field}” 的要求。",
        "Leave it out of the request.",
        "请从请求中去掉该项。",
    ),
    "device_unavailable": Sentence(
        "The device '{device}' was demanded but cannot be used: {cause}.",
        "指定的设备 “{device}” 无法使用：{cause}。",
        "Set 'engine.device' to auto or cpu, or run 'appliance status' to see what was found.",
        "请将 “engine.device” 设为 auto 或 cpu，或运行 “appliance status” 查看检测结果。",
    ),
    "bad_sampling": Sentence(
        "The sampler setting '{field}' is {value}; it must lie between {least} and {most}.",
        "采样参数 “{field}” 的值是 {value}，应在 {least} 与 {most} 之间。",
        "Correct the request.",
        "请修改请求。",
    ),
}
