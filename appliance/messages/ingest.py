"""Sentences about one document that could not be taken in, and why a page gave no text."""

from __future__ import annotations

from appliance.messages.sentence import Sentence

SENTENCES: dict[str, Sentence] = {
    "ingest_failed": Sentence(
        "The document could not be read: {cause}.",
        "无法读取该文档：{cause}。",
        "Save it again from the program that made it, then put it back.",
        "请用原来的程序重新保存后再放进来。",
    ),
    "unsupported_format": Sentence(
        "Files ending in {suffix} cannot be read.",
        "无法读取扩展名为 {suffix} 的文件。",
        "Save it as one of: {supported}.",
        "请另存为以下格式之一：{supported}。",
    ),
    "limit_exceeded": Sentence(
        "The document is over a limit: {cause}.",
        "文档超出限制：{cause}。",
        "Split it, or raise the limit under 'ingest'.",
        "请拆分文档，或调大 “ingest” 中的限制。",
    ),
    "no_text": Sentence(
        "There is no text in this file.",
        "这个文件里没有文字。",
        "Check that it is the right file.",
        "请确认文件是否正确。",
    ),
    "parse_failed": Sentence(
        "The file cannot be read.",
        "无法读取该文件。",
        "Save it again from the program that made it.",
        "请用原来的程序重新保存。",
    ),
    "empty_file": Sentence(
        "The file is empty (0 bytes).",
        "文件是空的（0 字节）。",
        "Copy it again; the last copy may have been cut off.",
        "请重新复制；上一次复制可能没有完成。",
    ),
    "empty_document": Sentence(
        "The document holds no text.",
        "文档里没有文字。",
        "Check that it is the right file.",
        "请确认文件是否正确。",
    ),
    "not_text": Sentence(
        "The name says text, but the content is not text in any known encoding.",
        "文件名表示是文本，但内容不是任何已知编码的文本。",
        "Check the file's type, or save it as UTF-8.",
        "请检查文件类型，或另存为 UTF-8 编码。",
    ),
    "encrypted": Sentence(
        "The document is protected by a password.",
        "文档有密码保护。",
        "Save a copy without the password and put that in.",
        "请另存一份没有密码的副本再放进来。",
    ),
    "damaged": Sentence(
        "The {format} file is damaged or incomplete.",
        "{format} 文件已损坏或不完整。",
        "Copy it again from the source, or save it again.",
        "请从来源重新复制，或重新保存。",
    ),
    "scanned": Sentence(
        "All {n_pages} pages are pictures without text (a scan).",
        "全部 {n_pages} 页都是没有文字的图片（扫描件）。",
        "Run it through text recognition (OCR) and put in the result.",
        "请先做文字识别（OCR），再放入识别后的文件。",
    ),
    "page_scanned": Sentence(
        "Page {page} is a picture without text.",
        "第 {page} 页是没有文字的图片。",
        "It needs text recognition (OCR).",
        "该页需要文字识别（OCR）。",
    ),
    "page_garbled": Sentence(
        "The text of page {page} is unreadable (its font names no characters).",
        "第 {page} 页的文字无法识别（字体缺少字符对照）。",
        "It needs text recognition (OCR).",
        "该页需要文字识别（OCR）。",
    ),
    "page_damaged": Sentence(
        "Page {page} is damaged.",
        "第 {page} 页已损坏。",
        "Get the file again from its source.",
        "请从来源重新获取该文件。",
    ),
    "file_too_large": Sentence(
        "The file has {size} bytes; at most {limit} are read.",
        "文件有 {size} 字节，最多读取 {limit} 字节。",
        "Split it, or raise 'ingest.max_file_bytes' (uploads: 'http.max_upload_bytes').",
        "请拆分文件，或调大 “ingest.max_file_bytes”（上传为 “http.max_upload_bytes”）。",
    ),
    "too_many_pages": Sentence(
        "The document has {n_pages} pages; at most {limit} are read.",
        "文档有 {n_pages} 页，最多读取 {limit} 页。",
        "Split it, or raise 'ingest.max_pages'.",
        "请拆分文档，或调大 “ingest.max_pages”。",
    ),
    "too_much_text": Sentence(
        "The document holds more than {limit} characters.",
        "文档超过 {limit} 个字符。",
        "Split it into several files.",
        "请拆分为多个文件。",
    ),
    "archive_bomb": Sentence(
        "The file unpacks to more than {limit} bytes and was not opened.",
        "文件解压后超过 {limit} 字节，没有打开。",
        "If you trust it, raise 'ingest.max_inflated_bytes'.",
        "如果确认文件可信，请调大 “ingest.max_inflated_bytes”。",
    ),
    "parse_timeout": Sentence(
        "Reading the file took longer than {seconds} s and was stopped.",
        "读取文件超过 {seconds} 秒，已停止。",
        "Split it, or raise 'ingest.max_seconds'.",
        "请拆分文件，或调大 “ingest.max_seconds”。",
    ),
    "parse_memory": Sentence(
        "Reading the file needed more than {limit_mib} MiB of memory and was stopped.",
        "读取文件需要超过 {limit_mib} MiB 内存，已停止。",
        "Split it, or raise 'ingest.max_memory_bytes'.",
        "请拆分文件，或调大 “ingest.max_memory_bytes”。",
    ),
    "parse_crashed": Sentence(
        "The reader for this file stopped unexpectedly ({signal}).",
        "读取该文件的程序意外停止（{signal}）。",
        "The file is probably damaged; save it again.",
        "文件可能已损坏，请重新保存。",
    ),
    "parse_gave_up": Sentence(
        "Reading was interrupted {attempts} times and given up.",
        "读取已中断 {attempts} 次，不再尝试。",
        "Run 'appliance kb reindex' with its name to try once more.",
        "请用 “appliance kb reindex 文件名” 再试一次。",
    ),
    "file_vanished": Sentence(
        "The file was removed while it was read.",
        "读取过程中文件被删除。",
        "Put it back if it should be read.",
        "如需读取，请重新放入。",
    ),
    "file_unreadable": Sentence(
        "The file may not be read by the daemon's user.",
        "服务的用户没有读取该文件的权限。",
        "Give read permission, e.g. chmod a+r.",
        "请授予读取权限，例如 chmod a+r。",
    ),
    "file_io_error": Sentence(
        "The disk could not deliver the file: {cause}.",
        "磁盘无法读出该文件：{cause}。",
        "Check the disk or stick, then copy the file again.",
        "请检查磁盘或 U 盘，然后重新复制文件。",
    ),
    "ingest_short": Sentence(
        "Reading waits: the system has nothing to spare ({cause}).",
        "读取暂停：系统资源不足（{cause}）。",
        "Close other programs; work goes on by itself.",
        "请关闭其他程序；之后会自动继续。",
    ),
    "stopped": Sentence(
        "Reading was stopped because the box is shutting down.",
        "设备正在关机，读取已停止。",
        "It goes on at the next start.",
        "下次启动后会继续。",
    ),
    "document_not_found": Sentence(
        "There is no document '{name}'.",
        "找不到文档 “{name}”。",
        "'appliance kb list' shows all names.",
        "“appliance kb list” 会列出所有名称。",
    ),
    "upload_bad_name": Sentence(
        "'{name}' cannot be a file or folder name here.",
        "“{name}” 不能用作文件名或文件夹名。",
        "Use a plain name without slashes that does not begin with a dot.",
        "请使用不含斜杠、不以点开头的普通名称。",
    ),
}
