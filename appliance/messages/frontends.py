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
    "document_not_found": Sentence(
        "There is no document '{name}', or several files have that name.",
        "找不到文档 “{name}”，或有多个文件同名。",
        "See 'appliance kb list' and give the path as it is shown there.",
        "请运行 “appliance kb list”，并使用其中显示的路径。",
    ),
    "conversation_not_found": Sentence(
        "There is no conversation '{name}', or it was forgotten.",
        "找不到对话 “{name}”，或它已被清除。",
        "Start a new one.",
        "请开始新的对话。",
    ),
    "collection_not_found": Sentence(
        "There is no collection '{name}'.",
        "找不到文档集 “{name}”。",
        "A collection is a folder inside the inbox; 'appliance kb list' shows them.",
        "文档集就是收件文件夹里的子文件夹；可用 “appliance kb list” 查看。",
    ),
    "daemon_unreachable": Sentence(
        "No daemon is running for {path}.",
        "{path} 没有正在运行的服务。",
        "Start it with 'appliance serve --data {path}'.",
        "请用 “appliance serve --data {path}” 启动它。",
    ),
    "daemon_lost": Sentence(
        "The daemon at {url} does not answer.",
        "位于 {url} 的服务没有响应。",
        "See whether it still runs ('appliance status'), and its log.",
        "请用 “appliance status” 查看它是否仍在运行，并查看日志。",
    ),
    "bad_request": Sentence(
        "'{field}' cannot be used: {allowed} is needed.",
        "“{field}” 无法使用：需要 {allowed}。",
        "Correct the request.",
        "请改正请求。",
    ),
    "request_refused": Sentence(
        "The request cannot be read: {cause}.",
        "无法读取该请求：{cause}。",
        "Correct the request.",
        "请改正请求。",
    ),
    "json_invalid": Sentence(
        "The request's body is not the JSON that is needed: {cause}.",
        "请求内容不是所需的 JSON：{cause}。",
        "Send one JSON object in UTF-8.",
        "请发送一个 UTF-8 编码的 JSON 对象。",
    ),
    "not_offered": Sentence(
        "'{field}' asks for something this box does not do.",
        "“{field}” 请求的功能本机不提供。",
        "Leave it out.",
        "请去掉该项。",
    ),
    "body_too_large": Sentence(
        "The request is larger than {limit} bytes.",
        "请求超过了 {limit} 字节。",
        "Send less at once; documents can also be copied into the inbox folder.",
        "请减少单次发送的内容；文档也可以直接拷贝到收件文件夹。",
    ),
    "upload_bad_name": Sentence(
        "'{name}' cannot be the name of a file or folder in the inbox.",
        "“{name}” 不能作为收件文件夹中的文件或文件夹名称。",
        "Use a plain name without '/', and not one that begins with a dot.",
        "请使用不含 “/” 且不以点开头的普通名称。",
    ),
    "route_not_found": Sentence(
        "There is nothing at {path}.",
        "{path} 不存在。",
        "See docs/http-api.md for what there is.",
        "可用的接口见 docs/http-api.md。",
    ),
    "method_not_allowed": Sentence(
        "{path} does not take {method}.",
        "{path} 不支持 {method}。",
        "See docs/http-api.md.",
        "请查看 docs/http-api.md。",
    ),
    "api_model_unknown": Sentence(
        "There is no model '{name}' here; there are: {known}.",
        "本机没有模型 “{name}”；可用的有：{known}。",
        "Use one of these names; 'documents' answers from your documents.",
        "请使用其中一个名称；“documents” 会根据您的文档回答。",
    ),
    "key_needed": Sentence(
        "A key is needed.",
        "需要访问密钥。",
        "Send it as 'Authorization: Bearer KEY'; the owner finds it in 'http.api_key_file'.",
        "请以 “Authorization: Bearer 密钥” 发送；密钥保存在 “http.api_key_file” 指定的文件中。",
    ),
    "host_refused": Sentence(
        "A request for the host '{host}' is not answered here.",
        "本服务不响应发往主机 “{host}” 的请求。",
        "Use the address that 'appliance status' shows.",
        "请使用 “appliance status” 显示的地址。",
    ),
    "origin_refused": Sentence(
        "A web page of {origin} may not use this box.",
        "来自 {origin} 的网页不能使用本机。",
        "Open the box's own address instead.",
        "请直接打开本机自己的地址。",
    ),
    "http_needs_key": Sentence(
        "'http.host' is {host}, which other machines reach, but there is no key.",
        "“http.host” 是 {host}，其他机器可以访问，但没有设置密钥。",
        "Put a key of 8 or more characters into a file and name it in 'http.api_key_file'.",
        "请把至少 8 个字符的密钥写入一个文件，并在 “http.api_key_file” 中指定该文件。",
    ),
    "key_file_unusable": Sentence(
        "The key file {path} cannot be used: {cause}.",
        "密钥文件 {path} 无法使用：{cause}。",
        "Write the key into it as one line.",
        "请把密钥写成一行保存在该文件中。",
    ),
    "port_in_use": Sentence(
        "Port {port} on {host} is already in use.",
        "{host} 的端口 {port} 已被占用。",
        "Stop the other program, or set 'http.port' (0 picks a free one).",
        "请停止占用该端口的程序，或修改 “http.port”（0 表示自动选择）。",
    ),
    "address_unusable": Sentence(
        "The address {host} cannot be listened on: {cause}.",
        "无法监听地址 {host}：{cause}。",
        "Correct 'http.host', or use a port of 1024 or more.",
        "请改正 “http.host”，或使用 1024 及以上的端口。",
    ),
    "inbox_unreadable": Sentence(
        "The inbox folder {path} cannot be read: {cause}.",
        "无法读取收件文件夹 {path}：{cause}。",
        "Check that it exists and that the daemon's user may read it.",
        "请检查它是否存在，以及服务的用户是否有读取权限。",
    ),
    "thread_ended": Sentence(
        "The part '{thread}' of the daemon ended unexpectedly ({cause}), so all of it was stopped.",
        "服务的 “{thread}” 部分意外结束（{cause}），因此整个服务已停止。",
        "Start it again; nothing is lost. If it repeats, run it with --debug and report the log.",
        "请重新启动，数据不会丢失；如反复出现，请加上 --debug 运行并反馈日志。",
    ),
    "data_unusable": Sentence(
        "The data folder {path} cannot be used: {cause}.",
        "数据文件夹 {path} 无法使用：{cause}。",
        "Choose another one with --data, or correct its permissions.",
        "请用 --data 选择其他文件夹，或改正其权限。",
    ),
    "file_unwritable": Sentence(
        "{path} cannot be written: {cause}.",
        "无法写入 {path}：{cause}。",
        "Check the folder and its permissions.",
        "请检查文件夹及其权限。",
    ),
    "reload_refused": Sentence(
        "The configuration was changed but cannot be used; the old one stays in force: {cause}",
        "配置已更改但无法使用，仍沿用原配置：{cause}",
        "Run 'appliance config check', then reload again.",
        "请运行 “appliance config check”，然后重新加载。",
    ),
    "wait_timeout": Sentence(
        "There is still work to do after {timeout_s} s ({n_files} files, {n_passages} passages).",
        "{timeout_s} 秒后仍有工作未完成（{n_files} 个文件，{n_passages} 个段落）。",
        "Wait longer, or see 'appliance kb list' for what is being read.",
        "请延长等待时间，或运行 “appliance kb list” 查看正在读取的内容。",
    ),
    "wait_stuck": Sentence(
        "Keyword search works, but the passages cannot get vectors: {cause}",
        "关键词搜索可用，但无法为段落生成向量：{cause}",
        "See 'appliance status'.",
        "请查看 “appliance status”。",
    ),
    "store_inconsistent": Sentence(
        "The knowledge base has {n_problems} inconsistencies.",
        "知识库存在 {n_problems} 处不一致。",
        "Run 'appliance kb reindex --all'; if it repeats, report what is listed above.",
        "请运行 “appliance kb reindex --all”；如仍出现，请反馈上面列出的内容。",
    ),
    "passage_not_shown": Sentence(
        "There is no source [{n}] in the last answer.",
        "上一个回答中没有来源 [{n}]。",
        "/sources lists them.",
        "输入 /来源 查看列表。",
    ),
}
