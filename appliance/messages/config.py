"""Sentences about the configuration file."""

from __future__ import annotations

from appliance.messages.sentence import Sentence

SENTENCES: dict[str, Sentence] = {
    "config_invalid": Sentence(
        "{path} cannot be used:",
        "{path} 无法使用：",
        "Correct these lines; 'appliance config show --defaults' prints every key.",
        "请改正这些行；“appliance config show --defaults” 会列出所有配置项。",
    ),
    "config_unreadable": Sentence(
        "{path} cannot be read: {cause}.",
        "无法读取 {path}：{cause}。",
        "Check that the file exists and that this user may read it.",
        "请检查文件是否存在，以及当前用户是否有读取权限。",
    ),
    "config_syntax": Sentence(
        "line {line}: this is not valid YAML ({cause}).",
        "第 {line} 行：不是有效的 YAML（{cause}）。",
    ),
    "config_unknown_key": Sentence(
        "line {line}: unknown key '{key}'; allowed: {allowed}.",
        "第 {line} 行：未知的配置项 “{key}”；可用的有：{allowed}。",
        "Did you mean '{suggestion}'?",
        "您是不是想写 “{suggestion}”？",
    ),
    "config_bad_value": Sentence(
        "line {line}: '{key}' is {value}, but {allowed} is needed.",
        "第 {line} 行：“{key}” 的值是 {value}，但需要 {allowed}。",
    ),
    "config_duplicate_key": Sentence(
        "line {line}: '{key}' is set twice.",
        "第 {line} 行：“{key}” 被设置了两次。",
    ),
    "config_server_missing": Sentence(
        "'{key}' is needed, because 'engine' says that a server does the work.",
        "需要填写 “{key}”，因为 “engine” 指定由服务器完成该工作。",
        "Set it, or set 'engine.kind' and 'engine.embedding_kind' to llama.",
        "请填写该项，或将 “engine.kind” 和 “engine.embedding_kind” 设为 llama。",
    ),
    "config_bad_url": Sentence(
        "'{key}' is {value}, which is no address of a server.",
        "“{key}” 的值是 {value}，不是服务器地址。",
        "Write it like http://192.168.1.20:8000/v1.",
        "请写成 http://192.168.1.20:8000/v1 的形式。",
    ),
}
