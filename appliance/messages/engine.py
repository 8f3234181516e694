"""Sentences about generation, embeddings and the device."""

from __future__ import annotations

from appliance.messages.sentence import Sentence

SENTENCES: dict[str, Sentence] = {
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
        "The prompt has {n_prompt_tokens} tokens, but the model's context holds {n_ctx}.",
        "提示词有 {n_prompt_tokens} 个词元，而模型的上下文只能容纳 {n_ctx} 个。",
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
}
