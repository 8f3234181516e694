"""Sentences about the knowledge base's file."""

from __future__ import annotations

from appliance.messages.sentence import Sentence

SENTENCES: dict[str, Sentence] = {
    "vacuum_no_space": Sentence(
        "Tidying needs {needed} bytes of free space for a moment; there are {free}.",
        "整理时需要临时占用 {needed} 字节的空间，目前剩余 {free} 字节。",
        "Free some space on the data disk and try again.",
        "请在数据盘上清理空间后重试。",
    ),
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
    "backup_failed": Sentence(
        "The backup failed: {cause}.",
        "备份失败：{cause}。",
        "Nothing was changed; try again.",
        "未做任何更改；请重试。",
    ),
    "backup_nothing": Sentence(
        "There is nothing to save yet: {path} is not there.",
        "还没有可备份的内容：{path} 不存在。",
        "Start the box once, or name its data folder with --data.",
        "请先启动一次，或用 --data 指定数据文件夹。",
    ),
    "backup_no_space": Sentence(
        "There is not enough space in {path} ({n_bytes} bytes are needed).",
        "{path} 空间不足（需要 {n_bytes} 字节）。",
        "Free some space, name another place with --to, or leave documents out.",
        "请清理空间，用 --to 指定其他位置，或不包含文档。",
    ),
    "backup_unwritable": Sentence(
        "{path} cannot be used: {cause}.",
        "无法使用 {path}：{cause}。",
        "Check that the disk or stick is there and may be written to.",
        "请检查磁盘或 U 盘是否存在且可写。",
    ),
    "backup_document_changed": Sentence(
        "{path} changed while it was copied.",
        "{path} 在复制时被修改。",
        "Wait until it is written, then take the backup again.",
        "请等文件写完后重新备份。",
    ),
    "backup_not_found": Sentence(
        "There is no backup {path}.",
        "没有备份 {path}。",
        "'appliance backup list' shows those that are here.",
        "用 “appliance backup list” 查看现有备份。",
    ),
    "backup_damaged": Sentence(
        "{path} is no whole backup ({cause}).",
        "{path} 不是完整的备份（{cause}）。",
        "Use another one; take sticks out only after the backup says it is done.",
        "请使用另一个备份；备份提示完成后再拔出 U 盘。",
    ),
    "backup_would_replace": Sentence(
        "{path} already holds documents or a knowledge base.",
        "{path} 中已有文档或知识库。",
        "Add --replace: the old content is moved into a folder beside it, not deleted.",
        "请加上 --replace：旧内容会移到旁边的文件夹中，不会删除。",
    ),
    "conversation_not_found": Sentence(
        "There is no conversation {name}.",
        "没有对话 {name}。",
        "It may have been deleted; start a new one.",
        "它可能已被删除；请开始新的对话。",
    ),
}
