// Every word the page says of its own, in both languages. What the box says comes translated.

const WORDS = {
  title: ["知识库问答", "Ask the documents"],
  welcome: ["想知道什么？", "What would you like to know?"],
  lead: ["答案只来自这里的文件，并标明出处。", "Answers come only from the documents here, with their sources."],
  join: ["用手机扫码提问", "Scan to ask from your phone"],
  suggestions: ["可以这样问", "Questions you could ask"],
  ask_label: ["您的问题", "Your question"],
  ask_hint: ["输入问题……", "Type a question …"],
  ask: ["提问", "Ask"],
  stop: ["停止", "Stop"],
  again: ["重新开始", "Start again"],
  larger: ["文字大小", "Text size"],
  theme: ["明暗与对比度", "Light, dark, high contrast"],
  switch_lang: ["切换到英文", "Switch to Chinese"],
  other_lang: ["EN", "中"],
  tools: ["页面设置", "Page settings"],
  answer: ["回答", "Answer"],
  evidence: ["依据", "Sources"],
  close: ["关闭", "Close"],
  page: ["第 {page} 页", "page {page}"],
  line: ["第 {line} 行", "line {line}"],
  open_source: ["打开来源 {n}：{file}", "Open source {n}: {file}"],
  searching: ["正在查找……", "Searching …"],
  queued: ["排队中：第 {position} 位", "You are number {position} in the queue"],
  queued_eta: ["排队中：第 {position} 位，约 {seconds} 秒", "You are number {position} in the queue, about {seconds} s"],
  reading: ["正在阅读依据……", "Reading the sources …"],
  writing: ["正在回答……", "Answering …"],
  done: ["回答完毕", "Answer complete"],
  stopped: ["已停止", "Stopped"],
  cut: ["回答达到了最大长度", "The answer reached its longest length"],
  refused: ["文件里没有找到答案", "The documents do not answer this"],
  failed: ["没有成功", "That did not work"],
  lost: ["与设备的连接断了，请再试一次。", "The connection to the box was lost. Please try again."],
  no_documents: ["还没有文件。放入文件后就可以提问。", "There are no documents yet. Add some, then ask."],
  idle_title: ["还在吗？", "Are you still there?"],
  idle_left: ["{seconds} 秒后清除这里的内容。", "Everything here is cleared in {seconds} s."],
  idle_stay: ["继续", "Continue"],
  keyboard: ["屏幕键盘", "On-page keyboard"],
  candidates: ["候选词", "Candidates"],
  key_space: ["空格", "space"],
  key_delete: ["删除", "Delete"],
  key_shift: ["大写", "Capital letters"],
  key_signs: ["数字和标点", "Digits and punctuation"],
  key_mode: ["拼音或英文", "Pinyin or Latin"],
  key_fuzzy: ["模糊音", "Fuzzy pinyin"],
  key_hide: ["收起键盘", "Hide the keyboard"],
  key_other: ["中/En", "中/En"],
  loading_text: ["正在打开……", "Opening …"],
};

let lang = 0;

export function setLang(code) {
  lang = code === "en" ? 1 : 0;
  document.documentElement.lang = code;
  document.title = word("title");
  for (const node of document.querySelectorAll("[data-word]")) node.textContent = word(node.dataset.word);
  for (const node of document.querySelectorAll("[data-label]")) {
    node.setAttribute("aria-label", word(node.dataset.label));
  }
}

export const langCode = () => (lang ? "en" : "zh");

export function word(name, facts = {}) {
  return WORDS[name][lang].replace(/\{(\w+)\}/g, (_, key) => facts[key]);
}
