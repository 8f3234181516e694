"""Sentences the assistant itself says: refusals and notices, fixed so that they can be tested."""

from __future__ import annotations

from appliance.messages.sentence import Sentence

SENTENCES: dict[str, Sentence] = {
    "selftest_running": Sentence(
        "A self-test is running already.",
        "自检正在进行。",
        "Wait for its end, or stop it.",
        "请等待结束，或先停止。",
    ),
    "selftest_no_questions": Sentence(
        "No document states a figure that could be asked for.",
        "文档中没有可以用来提问的数字。",
        "Put in documents with figures (times, amounts, numbers) and try again.",
        "请放入含有数字（时间、数量、编号）的文档后再试。",
    ),
    "no_documents": Sentence(
        "There are no documents yet, so I cannot answer from them.",
        "还没有任何文档，所以我无法根据文档回答。",
        "Put files into the inbox folder and ask again.",
        "请把文件放进收件文件夹，然后再问一次。",
    ),
    "indexing": Sentence(
        "Your documents are still being read ({n_pending} left), and what is ready so far does not "
        "answer this.",
        "文档还在读取中（剩余 {n_pending} 个），目前已读好的内容里没有答案。",
        "Please ask again in a little while.",
        "请稍后再问。",
    ),
    "nothing_relevant": Sentence(
        "This is not in your documents.",
        "您的文档中没有这方面的内容。",
        "Try other words, or add a document that covers it.",
        "请换一种说法，或添加相关的文档。",
    ),
    "embedder_changed": Sentence(
        "The index was made with another embedding model ({indexed_with}) and must be rebuilt "
        "before I can answer.",
        "索引是用另一个嵌入模型（{indexed_with}）建立的，需要重建后才能回答。",
        "Run 'appliance kb reindex --all'.",
        "请运行 “appliance kb reindex --all”。",
    ),
    "turns_left_out": Sentence(
        "The {n_left_out} oldest turns of this conversation no longer fit and were left out.",
        "本次对话最早的 {n_left_out} 轮已放不下，没有参与这次回答。",
    ),
    "question_empty": Sentence(
        "The question is empty.",
        "问题是空的。",
        "Write what you want to know.",
        "请写下您想知道的内容。",
    ),
    "question_too_long": Sentence(
        "The question has {n_chars} characters; at most {max_chars} can be searched for.",
        "问题有 {n_chars} 个字符，最多可以搜索 {max_chars} 个。",
        "Ask shorter, and put long texts into the inbox as a document.",
        "请缩短问题；较长的文字请作为文档放进收件文件夹。",
    ),
}
