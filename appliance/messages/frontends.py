"""Sentences about front ends, the command line and requests."""

from __future__ import annotations

from appliance.messages.sentence import Sentence

SENTENCES: dict[str, Sentence] = {
    "internal": Sentence(
        "Something unexpected happened: {what}.",
        "发生了意外错误：{what}。",
        "Run the command again with --debug and report what it prints.",
        "请加上 --debug 再运行一次，并反馈输出内容。",
    ),
    "frontend_failed": Sentence(
        "A front end could not start: {cause}.",
        "前端无法启动：{cause}。",
        "Check the configuration.",
        "请检查配置。",
    ),
    "not_found": Sentence(
        "There is no {kind} '{name}'.",
        "找不到{kind} “{name}”。",
        "Check the name.",
        "请检查名称。",
    ),
    "daemon_unreachable": Sentence(
        "No daemon is running for {path}.",
        "{path} 没有正在运行的服务。",
        "Start it with 'appliance serve --data {path}'.",
        "请用 “appliance serve --data {path}” 启动它。",
    ),
    "bad_request": Sentence(
        "'{field}' cannot be used: {allowed} is needed.",
        "“{field}” 无法使用：需要{allowed}。",
        "Correct the request.",
        "请改正请求。",
    ),
    "port_in_use": Sentence(
        "Port {port} on {host} is already in use.",
        "{host} 的端口 {port} 已被占用。",
        "Stop the other program, or set 'http.port' (0 picks a free one).",
        "请停止占用该端口的程序，或修改 “http.port”（0 表示自动选择）。",
    ),
    "inbox_unreadable": Sentence(
        "The inbox folder {path} cannot be read: {cause}.",
        "无法读取收件文件夹 {path}：{cause}。",
        "Check that it exists and that the daemon's user may read it.",
        "请检查它是否存在，以及服务的用户是否有读取权限。",
    ),
}
