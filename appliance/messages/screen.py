"""What the command line and the terminal print beside errors, in both languages.

``say`` fills ``{name}`` fields. A test demands that both languages of a label use the same fields
and that every label used in the package exists.
"""

from __future__ import annotations

# code: (English, Chinese)
LABELS: dict[str, tuple[str, str]] = {
    # answers
    "sources": ("Sources:", "来源："),
    "evidence": ("Reading {n} passages:", "正在阅读 {n} 个段落："),
    "page": ("p. {page}", "第 {page} 页"),
    "line": ("line {line}", "第 {line} 行"),
    "lines": ("lines {line_from}-{line_to}", "第 {line_from}-{line_to} 行"),
    "queued": ("Waiting: number {position} in the queue", "排队中：第 {position} 位"),
    "queued_eta": (
        "Waiting: number {position} in the queue, about {wait_s} s",
        "排队中：第 {position} 位，约 {wait_s} 秒",
    ),
    "reading": ("Reading: {percent} %", "阅读中：{percent} %"),
    "suggest_topic": ("What is said about “{topic}”?", "关于“{topic}”有什么内容？"),
    "model_loading": (
        "The model is still loading; the question waits ...",
        "模型仍在加载，问题会等待……",
    ),
    "stopped": ("(stopped)", "（已停止）"),
    "cut": ("(the answer reached its longest length)", "（回答已达到最大长度）"),
    "answer_stats": (
        "{model}: {n_out} tokens, first after {ttft_s} s, {tok_s} tok/s, {n_in} tokens read",
        "{model}：{n_out} 个词元，首字 {ttft_s} 秒，{tok_s} 词元/秒，读入 {n_in} 个词元",
    ),
    "inbox_counts": (
        "Documents: {ready} ready, {partial} readable in part, {failed} not readable, "
        "{waiting} waiting, {ignored} removed by you.",
        "文档：{ready} 个就绪，{partial} 个部分可读，{failed} 个无法读取，{waiting} 个等待处理，"
        "{ignored} 个已由您移除。",
    ),
    "inbox_progress": (
        "Left: {files} files, {passages} passages; {rate} passages/s, about {eta} min.",
        "剩余：{files} 个文件，{passages} 个段落；每秒 {rate} 个段落，约 {eta} 分钟。",
    ),
    "inbox_search_works": (
        "Keyword search works already.",
        "关键词搜索现在就可以使用。",
    ),
    "inbox_done": ("Everything is read.", "全部处理完毕。"),
    "inbox_more": ("... and {n} more.", "……以及另外 {n} 个。"),
    "import_done": (
        "{n_copied} documents copied ({size}), {n_there} were there already, {n_left} left out.",
        "已复制 {n_copied} 个文档（{size}），{n_there} 个已存在，{n_left} 个未导入。",
    ),
    "import_progress": ("Copying {n} of {total}: {path}", "正在复制第 {n}/{total} 个：{path}"),
    "vacuumed": (
        "The store had {before} and has {after} now.",
        "数据库原为 {before}，现为 {after}。",
    ),
    "reembedding": (
        "{n_passages} passages get new vectors; keyword search works meanwhile.",
        "正在为 {n_passages} 个段落重新计算向量；期间关键词搜索可用。",
    ),
    "selftest_progress": ("Question {done} of {total}", "第 {done}/{total} 题"),
    "selftest_lang": (
        "{lang}: {found} of {answerable} found, {wrong} wrong, {refused} refused; "
        "of {unanswerable} that no document answers {refused_rightly} refused, {invented} invented",
        "{lang}：可答的 {answerable} 题答对 {found}、答错 {wrong}、拒答 {refused}；"
        "文档中没有答案的 {unanswerable} 题拒答 {refused_rightly}、编造 {invented}",
    ),
    "selftest_before": ("The run before:", "上一次："),
    "selftest_changed": (
        "Model, embedder or settings are others than in the run before.",
        "模型、向量模型或设置与上一次不同。",
    ),
    "selftest_outdated": (
        "Model or settings changed since the last self-test; run 'appliance selftest'.",
        "上次自检之后模型或设置有变化，请运行 “appliance selftest”。",
    ),
    "why_read_as": ("Read as: {query}", "按拼音读作：{query}"),
    "why_terms": (
        "Terms, passages that hold them (weight): {terms}",
        "检索词及包含它的段落数（权重）：{terms}",
    ),
    "why_weights": ("Arms: {weights}; k = {rrf_k}", "两路权重：{weights}；k = {rrf_k}"),
    "why_bar": (
        "Relevance {score}, bar {bar}: coverage {coverage}, loose {loose}, closeness {closeness}",
        "相关度 {score}，门槛 {bar}：覆盖 {coverage}，宽松 {loose}，接近 {closeness}",
    ),
    "why_codes": ("Not in the documents: {codes}", "文档中没有：{codes}"),
    "why_cost": ("Searched {n} passages in {ms} ms", "在 {n} 个段落中检索，用时 {ms} 毫秒"),
    # status
    "state_ready": ("Ready.", "就绪。"),
    "state_loading": (
        "Loading the models; search already works.",
        "模型加载中；搜索已可使用。",
    ),
    "state_degraded": ("Works in part; see the problems below.", "部分可用；问题见下。"),
    "state_failed": ("Works in part; see the problems below.", "部分可用；问题见下。"),
    "state_stopped": ("Stopping.", "正在停止。"),
    "row_model": ("Answers with", "回答模型"),
    "row_embedder": ("Searches with", "搜索模型"),
    "row_device": ("Runs on", "运行设备"),
    "row_layout": ("Weights laid out", "权重布局"),
    "row_memory": ("Memory", "内存"),
    "row_queue": ("Queue", "队列"),
    "row_documents": ("Documents", "文档"),
    "row_work": ("Work left", "剩余工作"),
    "row_history": ("History", "历史记录"),
    "row_uptime": ("Running for", "已运行"),
    "row_versions": ("Versions", "版本"),
    "row_address": ("Address", "地址"),
    "row_problem": ("Problem", "问题"),
    "model_state_ready": ("{name}", "{name}"),
    "model_state_loading": ("{name} (loading)", "{name}（加载中）"),
    "model_state_failed": ("{name} (not usable)", "{name}（不可用）"),
    "model_state_stopped": ("{name} (stopped)", "{name}（已停止）"),
    "memory_line": (
        "{resident} in use: weights {weights}, conversation cache {kv}, compute {compute}, "
        "the rest {rest}",
        "已用 {resident}：权重 {weights}，对话缓存 {kv}，计算 {compute}，其余 {rest}",
    ),
    "memory_own": (
        "{own} without weights and conversation cache; {available} of {total} free",
        "不含权重和对话缓存 {own}；整机 {total} 中剩余 {available}",
    ),
    "queue_line": (
        "{running} of {slots} running, {waiting} waiting",
        "{slots} 个槽位中 {running} 个在回答，{waiting} 个在等待",
    ),
    "speed_line": (
        "{prefill} tok/s reading, {decode} tok/s writing",
        "阅读 {prefill} 词元/秒，书写 {decode} 词元/秒",
    ),
    "documents_line": (
        "{documents} with {passages} passages, {vectors} vectors",
        "{documents} 个，{passages} 个段落，{vectors} 个向量",
    ),
    "documents_failed": (
        "{n} failed; see 'appliance kb list'",
        "{n} 个失败；见 “appliance kb list”",
    ),
    "history_kept": ("conversations are kept", "保留对话"),
    "history_unkept": ("no conversation is kept", "不保留对话"),
    "duration_days": ("{days} d {hours} h", "{days} 天 {hours} 小时"),
    "duration_hours": ("{hours} h {minutes} min", "{hours} 小时 {minutes} 分"),
    "duration_minutes": ("{minutes} min {seconds} s", "{minutes} 分 {seconds} 秒"),
    "duration_seconds": ("{seconds} s", "{seconds} 秒"),
    # documents
    "file_seen": ("waiting", "等待中"),
    "file_settled": ("waiting", "等待中"),
    "file_hashed": ("being read", "读取中"),
    "file_linked": ("ready", "就绪"),
    "file_searchable": ("searchable", "可搜索"),
    "file_ready": ("ready", "就绪"),
    "file_partial": ("partly readable", "部分可读"),
    "file_failed": ("failed", "失败"),
    "file_ignored": ("removed", "已移除"),
    "no_files": (
        "There are no documents yet. Put files into {inbox}.",
        "还没有文档。请把文件放入 {inbox}。",
    ),
    "list_head_path": ("file", "文件"),
    "list_head_state": ("state", "状态"),
    "list_head_pages": ("pages", "页数"),
    "list_head_passages": ("passages", "段落"),
    "page_problem": ("page {page}: {reason}", "第 {page} 页：{reason}"),
    "nothing_found": ("Nothing found.", "没有找到。"),
    "below_bar": (
        "(nothing here clears the bar for an answer)",
        "（以下内容都不足以作为回答依据）",
    ),
    "removed": (
        "{path}: forgotten. The file stays in the folder and is ignored until it changes.",
        "{path}：已移除。文件仍保留在文件夹中，内容改变前不会再读取。",
    ),
    "requeued": ("{n_files} files will be read again.", "将重新读取 {n_files} 个文件。"),
    "stats_line": (
        "{documents} documents, {passages} passages, {vectors} vectors",
        "{documents} 个文档，{passages} 个段落，{vectors} 个向量",
    ),
    "check_ok": ("The knowledge base is consistent.", "知识库一致，没有问题。"),
    "work_files": (
        "{waiting} of {n_files} files to read",
        "还有 {waiting} 个文件待读取（共 {n_files} 个）",
    ),
    "work_passages": ("{passages} passages to embed", "还有 {passages} 个段落待生成向量"),
    "work_rate": ("{rate} passages/s", "{rate} 段落/秒"),
    "work_eta": ("about {eta} left", "约剩 {eta}"),
    "work_current": ("reading {path}", "正在读取 {path}"),
    "work_done": ("Everything is read.", "全部读取完毕。"),
    # models
    "model_here": ("here", "已安装"),
    "model_not_here": ("can be pulled", "可下载"),
    "model_starter": ("starter", "入门"),
    "models_folder": ("Models are kept in {path}", "模型保存在 {path}"),
    "pulled": ("{name}: ready ({path})", "{name}：已就绪（{path}）"),
    "verified": ("{name}: SHA-256 {sha256}, as it should be", "{name}：SHA-256 {sha256}，校验通过"),
    "imported": ("{name}: imported ({path})", "{name}：已导入（{path}）"),
    "model_removed": ("{name}: removed", "{name}：已删除"),
    "model_finishing": (
        "{n} answers of the model before are left ...",
        "前一个模型还有 {n} 个回答……",
    ),
    "model_being_loaded": ("{name} is being loaded ...", "正在加载 {name}……"),
    "model_used": ("{name} answers now", "现在由 {name} 回答"),
    "model_used_later": (
        "{name} answers from the next start on (the box does not run now)",
        "下次启动后由 {name} 回答（设备现在没有运行）",
    ),
    "source_file": ("copying", "复制"),
    "source_verify": ("checking", "校验"),
    "source_hub": ("from Hugging Face", "来自 Hugging Face"),
    "source_modelscope": ("from ModelScope", "来自 ModelScope"),
    "source_index": ("from the package index", "来自软件包索引"),
    # doctor
    "doctor_summary": (
        "{failed} failed, {warned} to look at.",
        "{failed} 项失败，{warned} 项需注意。",
    ),
    "doctor_bundle": (
        "Support file: {path} (no documents, questions or keys in it)",
        "支持文件：{path}（不含文档、提问和密钥）",
    ),
    # bench
    "bench_measuring": ("measuring: {what}", "测量中：{what}"),
    "bench_head": ("{model} on {machine}, {date}", "{model}，{machine}，{date}"),
    "bench_col_device": ("device", "设备"),
    "bench_col_weights": ("weights", "权重"),
    "bench_col_threads": ("threads", "线程"),
    "bench_col_ttft": ("first token", "首字"),
    "bench_col_prefill": ("reading", "阅读"),
    "bench_col_decode": ("writing", "书写"),
    "bench_col_kind": ("figure", "数据"),
    "bench_measured": ("measured", "实测"),
    "bench_simulated": ("simulated", "模拟"),
    "bench_embedding": ("Embedding: {n} passages/s", "生成向量：{n} 段落/秒"),
    "bench_reading": ("Reading text: {n} pages/s", "读取文本：{n} 页/秒"),
    "bench_search": ("Keyword search: {n} ms", "关键词搜索：{n} 毫秒"),
    "bench_plan": (
        "Fastest here: {device} with {threads} threads; used from the next start on.",
        "本机最快：{device}，{threads} 线程；下次启动起生效。",
    ),
    "bench_slower": (
        "Slower than the baseline of {date}: {what}, {old} then, {new} now.",
        "比 {date} 的基线慢：{what}，当时 {old}，现在 {new}。",
    ),
    "bench_kept": ("Kept as the baseline in {path}.", "已存为基线：{path}。"),
    # backups
    "backup_done": (
        "{path}: {documents} documents, {passages} passages, {files} files, {size}. Done.",
        "{path}：{documents} 个文档，{passages} 个段落，{files} 个文件，{size}。已完成。",
    ),
    "backup_rotated": ("removed the older backup {path}", "已删除较旧的备份 {path}"),
    "backup_none": ("There are no backups in {path}.", "{path} 中没有备份。"),
    "backup_whole": (
        "{path} is whole: {created}, version {version}, {documents} documents, {files} files.",
        "{path} 完整：由版本 {version} 于 {created} 创建，{documents} 个文档，{files} 个文件。",
    ),
    "backup_restored": (
        "Restored {documents} documents and {files} files. Start the box now.",
        "已恢复 {documents} 个文档和 {files} 个文件。现在可以启动。",
    ),
    "backup_old_kept": ("What was there before is in {path}.", "原有内容在 {path} 中。"),
    "backup_progress": ("{done} of {size}", "{done} / {size}"),
    # configuration and history
    "config_ok": ("{path}: no mistakes.", "{path}：没有错误。"),
    "config_absent": (
        "{path} is not there; the defaults are in force.",
        "{path} 不存在；使用默认配置。",
    ),
    "history_none": ("No conversation is kept.", "没有保留的对话。"),
    "history_forgotten": ("{n} conversations forgotten.", "已清除 {n} 个对话。"),
    # serving
    "serving": (
        "The box runs at {url}; put documents into {inbox}. Ctrl-C stops it.",
        "服务运行于 {url}；请把文档放入 {inbox}。按 Ctrl-C 停止。",
    ),
    # serial lines
    "serial_banner": (
        "A box that answers, on {name}. Your questions are not kept.",
        "会回答的盒子（{name}）。您的提问不会被保存。",
    ),
    "serial_pin": ("PIN:", "请输入口令："),
    "serial_pin_wrong": ("That is not the PIN.", "口令不对。"),
    "serial_pin_wait": ("Wait {wait_s} s, then try again.", "请等待 {wait_s} 秒后再试。"),
    "serial_idle": (
        "Nobody was there for a while; the chat is forgotten. Enter begins another.",
        "长时间无人操作，对话已清除。按回车重新开始。",
    ),
    # chat
    "chat_hello": (
        "Ask about your documents. /help lists commands, Ctrl-C stops an answer, Ctrl-D leaves.",
        "请就您的文档提问。/帮助 查看命令，Ctrl-C 停止回答，Ctrl-D 离开。",
    ),
    "chat_placeholder": ("Ask a question (/help)", "请输入问题（/帮助）"),
    "chat_how_to_leave": ("(Ctrl-D or /bye leaves)", "（按 Ctrl-D 或输入 /退出 离开）"),
    "chat_bye": ("Bye.", "再见。"),
    "chat_unknown": (
        "There is no command {name}. Did you mean {suggestion}?",
        "没有命令 {name}。您是不是想输入 {suggestion}？",
    ),
    "chat_using": ("Answers come from the collection '{name}'.", "仅根据文档集 “{name}” 回答。"),
    "chat_using_all": ("Answers come from all documents.", "根据全部文档回答。"),
    "chat_collections": ("Collections: {names}", "文档集：{names}"),
    "chat_strict_on": (
        "Strict: only what the documents say is answered.",
        "严格模式：只根据文档回答。",
    ),
    "chat_strict_off": (
        "Open: the model may add what it knows; that may be wrong.",
        "开放模式：模型可补充自己的知识，可能有误。",
    ),
    "chat_lang": ("Answers in: {name}", "回答语言：{name}"),
    "chat_forgotten": ("This conversation is forgotten.", "本次对话已清除。"),
    "chat_no_sources": ("The last answer has no sources.", "上一个回答没有来源。"),
    "chat_nothing_to_retry": ("Nothing was asked yet.", "还没有提过问题。"),
    "chat_verbose_on": ("Figures are shown after each answer.", "每次回答后显示统计。"),
    "chat_verbose_off": ("Figures are hidden.", "不再显示统计。"),
    "help_help": ("this list", "显示本列表"),
    "help_docs": ("the documents and their state", "文档及其状态"),
    "help_use": (
        "answer from one collection; without a name from all",
        "只用某个文档集；不带名称则用全部",
    ),
    "help_sources": ("the sources of the last answer", "上一个回答的来源"),
    "help_open": ("show source N in full", "查看第 N 个来源的全文"),
    "help_why": ("what the search for the last question found", "上一个问题的检索过程"),
    "help_strict": ("on: documents only; off: the model may add", "on 只根据文档；off 模型可补充"),
    "help_lang": ("zh, en or auto", "zh、en 或 auto"),
    "help_retry": ("ask the last question again", "重新提问上一个问题"),
    "help_status": ("how the box is", "系统状态"),
    "help_verbose": ("show figures after answers, or stop it", "显示或隐藏回答统计"),
    "help_privacy": ("forget this conversation", "清除本次对话"),
    "help_bye": ("leave", "离开"),
    "help_multi_line": (
        'Three quotes (""") begin and end a text of several lines.',
        '用三个引号（"""）开始和结束多行输入。',
    ),
}


def say(code: str, lang: str, /, **facts: object) -> str:
    """Return the label ``code`` in ``zh`` or ``en`` with its fields filled in."""
    english, chinese = LABELS[code]
    return (chinese if lang == "zh" else english).format_map(facts)
