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
}
