"""Mixed Chinese and English text for agreement tests: our own words, about the box itself."""

from __future__ import annotations

MIXED = """\
The board draws nine watts and sits under the counter of a village library.
它没有风扇的噪音,也不需要联网。 A visitor asks: 图书馆星期天几点关门?
The answer quotes page 3 of the house rules: 周日开放时间为上午九点至下午四点,法定节假日另行通知。
Model files are kept on an SD card; the index is one SQLite file, so a backup is one copy.
如果断电,重新启动后一切照旧:文档、段落、向量和对话都在同一个数据库里。
def area(width, height): return width * height
昇腾 310B 的矩阵单元每个时钟周期完成 16×16×16 次半精度乘加,内存带宽才是生成速度的上限。
In numbers: 0.99 GB of weights at 14 GB/s takes 71 milliseconds, which leaves fourteen tokens.
老师把教材放进文件夹,几分钟后学生就能提问;答案后面的方括号 [1] 指向原文的页码。
Nothing leaves the room. If no passage fits, the box says so instead of guessing.
编号 INV-2024-001 的发票金额为 1,280.00 元,付款期限是三十天。
Please keep the receipt; 收据遗失不补。 The serial port speaks UTF-8 or GB18030 at 115200 baud,
and a line that starts with a brace is a frame for machines, not for people.
"""

# Six sentences for the embedder: pairs in two languages.
SENTENCES = [
    "query: 图书馆星期天几点关门?",
    "passage: 周日开放时间为上午九点至下午四点,法定节假日另行通知。",
    "query: When does the library close on Sundays?",
    "passage: Opening hours on Sundays are from nine in the morning to four in the afternoon.",
    "passage: The invoice INV-2024-001 over 1,280.00 yuan is due within thirty days.",
    "passage: 昇腾 310B 的内存带宽才是生成速度的上限。",
]
