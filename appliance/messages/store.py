"""Sentences about the knowledge base's file."""

from __future__ import annotations

from appliance.messages.sentence import Sentence

SENTENCES: dict[str, Sentence] = {
    "store_failed": Sentence(
        "The knowledge base could not be used: {cause}.",
        "知识库无法使用：{cause}。",
        "Check the disk and the permissions of {path}.",
        "请检查磁盘以及 {path} 的权限。",
    ),
    "store_full": Sentence(
        "No space is left on the disk that holds {path}; nothing was changed.",
        "存放 {path} 的磁盘已满；未做任何更改。",
        "Free some space; work goes on by itself.",
        "请清理磁盘空间；之后会自动继续。",
    ),
    "store_corrupt": Sentence(
        "{path} is damaged: {cause}.",
        "{path} 已损坏：{cause}。",
        "Move it away and start again: the index is rebuilt from the documents in the inbox.",
        "请将它移走并重新启动：索引会根据收件文件夹中的文档重建。",
    ),
    "schema_too_new": Sentence(
        "{path} was written by a newer version (schema {found}, this one knows {known}).",
        "{path} 是由更新的版本写入的（结构版本 {found}，本程序只支持到 {known}）。",
        "Install that version again, or use another data folder.",
        "请重新安装那个版本，或使用另一个数据文件夹。",
    ),
    "store_locked": Sentence(
        "Another daemon already uses {path} (process {pid}).",
        "另一个服务进程（{pid}）正在使用 {path}。",
        "Stop it first, or use another data folder.",
        "请先停止它，或使用另一个数据文件夹。",
    ),
    "conversation_not_found": Sentence(
        "There is no conversation {name}.",
        "没有对话 {name}。",
        "It may have been deleted; start a new one.",
        "它可能已被删除；请开始新的对话。",
    ),
}
