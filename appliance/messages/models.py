"""Sentences about model files."""

from __future__ import annotations

from appliance.messages.sentence import Sentence

SENTENCES: dict[str, Sentence] = {
    "model_failed": Sentence(
        "Model {model}: {cause}.",
        "模型 {model}：{cause}。",
        "See 'appliance models list'.",
        "请查看 “appliance models list”。",
    ),
    "model_missing": Sentence(
        "The model {model} is not on this box.",
        "本机没有模型 {model}。",
        "Run 'appliance models pull {model}' or 'appliance models import FILE'.",
        "请运行 “appliance models pull {model}” 或 “appliance models import 文件”。",
    ),
    "model_rejected": Sentence(
        "{path} is not a model this box can use: {cause}.",
        "{path} 不是本机可用的模型：{cause}。",
        "Get the file again, or choose a model from 'appliance models list'.",
        "请重新获取该文件，或从 “appliance models list” 中选择模型。",
    ),
    "download_failed": Sentence(
        "{model} could not be fetched: {cause}.",
        "无法下载 {model}：{cause}。",
        "What was fetched is kept; run the command again, or import the file from a stick.",
        "已下载的部分会保留；请再次运行该命令，或从 U 盘导入文件。",
    ),
}
