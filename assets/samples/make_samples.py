#!/usr/bin/env python3
"""Write the sample documents of the demo; run again after changing a text here.

The results are committed, since the demo must not need the libraries that write PDF and DOCX.
    python assets/samples/make_samples.py
"""

from __future__ import annotations

import datetime
from pathlib import Path

from docx import Document
from fpdf import FPDF

FOLDER = Path(__file__).parent / "documents"
WRITTEN = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)

MANUAL = [
    (
        "RiverBoard 310 User Manual",
        [
            "This manual describes the RiverBoard 310, a small computer for classrooms "
            "and field stations. "
            "It has four processor cores, 16 GB of memory and a neural accelerator. "
            "Read the safety notes "
            "on the next page before you connect anything.",
            "Part number RB-310-16G. Document code INV-2024-001, revision C.",
            "The box contains the board, a heat sink with fan, a USB-C cable and this "
            "manual. A power "
            "supply is not included.",
        ],
    ),
    (
        "Safety",
        [
            "Keep the board dry and out of direct sunlight. The heat sink reaches 70 "
            "degrees Celsius "
            "under full load; let it cool for five minutes before touching it.",
            "Never block the fan. The board slows itself down at 85 degrees Celsius and"
            " switches off "
            "at 105 degrees Celsius.",
            "Children should use the board only together with an adult.",
        ],
    ),
    (
        "Power",
        [
            "Use a USB-C power supply rated at 65 W (20 V, 3.25 A). Weaker supplies "
            "start the board but "
            "cause restarts as soon as the accelerator works.",
            "Connect the supply to the port marked DC-IN. The second USB-C port is for "
            "data only and "
            "does not power the board.",
            "The power light is green in normal use and red when the voltage is too "
            "low. Pulling the "
            "plug is allowed at any time; the board starts again by itself when power returns.",
        ],
    ),
    (
        "Serial console",
        [
            "The three-pin header J12 carries the serial console. The pins are, from "
            "the edge of the "
            "board: ground, transmit, receive. The level is 3.3 V; never connect 5 V.",
            "Set your terminal program to 115200 baud, 8 data bits, no parity, 1 stop bit, no flow "
            "control. Press Enter to see the greeting.",
        ],
    ),
    (
        "Storage and reset",
        [
            "The board starts from a micro SD card of at least 32 GB, or from an NVMe "
            "drive in slot M2. "
            "The switch SW1 selects which one: left for SD, right for NVMe.",
            "To reset the board to factory settings, hold the RESET button for ten "
            "seconds until the "
            "power light blinks three times. Your documents on the data partition are kept.",
            "Warranty: 24 months from the date of purchase. Service address and spare "
            "parts are listed "
            "on the warranty card.",
        ],
    ),
]

HANDBOOK = [
    ("清河中学学生手册", 0, ["本手册适用于全体在校学生，自2025年9月1日起施行。"]),
    (
        "作息时间",
        1,
        [
            "学校每天早上七点二十分开校门，七点五十分开始早读，八点十分上第一节课。",
            "午休时间为十二点至十四点。下午放学时间为十七点十分，晚自习十八点三十分开始，二十一点结束。",
        ],
    ),
    (
        "请假制度",
        1,
        [
            "学生因病请假须由家长在当天早上七点半之前电话告知班主任，返校时交医院证明。",
            "事假三天以内由班主任批准，三天以上由年级主任批准，七天以上须报教务处。",
            "未经批准不到校者按旷课处理。一学期内旷课累计十五节，给予警告处分。",
        ],
    ),
    (
        "实验室守则",
        1,
        [
            "进入化学实验室必须穿实验服、戴护目镜，长发应当束起。",
            "浓硫酸稀释时必须将酸缓慢倒入水中，并不断搅拌，绝不能将水倒入酸中。",
            "实验废液倒入指定的废液桶，不得倒入水槽。",
        ],
    ),
    (
        "论文与引用",
        1,
        [
            "研究性学习的论文按照国家标准 GB/T 7714-2015"
            "《信息与文献 参考文献著录规则》著录参考文献。",
            "论文须在六月十五日之前交给指导教师，篇幅为三千至五千字。",
        ],
    ),
]

BELLS = [
    ("节次", "开始", "结束"),
    ("第一节", "8:10", "8:55"),
    ("第二节", "9:05", "9:50"),
    ("第三节", "10:20", "11:05"),
]

LESSON = """\
# 光合作用 / Photosynthesis

适用年级：初中生物七年级。课时：两节。

## 教学目标

学生能够说出光合作用的原料、产物和条件，并能设计实验证明光合作用产生氧气。

## 反应式

二氧化碳 + 水 → （光能、叶绿体） → 有机物（淀粉） + 氧气

The chloroplast captures light. One glucose molecule needs six molecules of carbon dioxide and six
of water, and releases six molecules of oxygen.

## 实验：绿叶在光下制造淀粉

### 步骤

1. 把盆栽天竺葵放到黑暗处一昼夜，耗尽叶片中原有的淀粉。
2. 用黑纸片把叶片的一部分遮盖起来，移到阳光下照射三到四小时。
3. 摘下叶片，去掉黑纸片，放入盛有酒精的小烧杯中隔水加热，使叶片褪去绿色。
4. 用清水漂洗叶片，滴加碘液，稍候片刻后冲掉碘液。

### 现象

没有遮光的部分变成蓝色，遮光的部分不变蓝，说明光是制造淀粉的条件。

## Homework

Read chapter 4 and answer questions 2, 5 and 7 by Friday. Bring one leaf of a plant that grows in
the shade.
"""

FAQ = """\
清河图书馆常见问题

问：图书馆平日几点开门、几点关门？
答：周一至周五早上九点开门，晚上八点关门。周一上午闭馆整理。

问：图书馆周末几点开门、几点关门？
答：周末下午五点关门，早上十点开门。周末指周六和周日。

问：一次可以借几本书？可以借多久？
答：每张借书证一次最多借五本书，借期三十天，可以续借一次，续借期为十五天。

问：逾期还书怎么办？
答：每本书每逾期一天收取一角钱。逾期超过六十天，暂停借书资格三个月。

问：借书证丢了怎么补办？
答：请携带身份证到一楼服务台补办，工本费十元，当场可取。

问：可以在图书馆里用自己的电脑吗？
答：可以。二楼阅览室有电源插座，无线网络名称为 QH-LIB，密码请向服务台索取。请戴耳机，不要外放声音。

问：儿童阅览室在哪里？
答：儿童阅览室在一楼东侧，六岁以下儿童须有家长陪同。
"""


def write_manual(path: Path) -> None:
    """Five pages with a real text layer."""
    pdf = FPDF(format=(148, 210))
    pdf.set_creation_date(WRITTEN)
    pdf.set_title("RiverBoard 310 User Manual")
    for number, (heading, paragraphs) in enumerate(MANUAL, 1):
        pdf.set_auto_page_break(auto=True, margin=18)
        pdf.add_page()
        pdf.set_font("helvetica", "B", 16)
        pdf.multi_cell(0, 9, heading, new_x="LMARGIN", new_y="NEXT")
        pdf.ln(3)
        pdf.set_font("helvetica", "", 11)
        for paragraph in paragraphs:
            pdf.multi_cell(0, 6, paragraph, new_x="LMARGIN", new_y="NEXT")
            pdf.ln(2)
        pdf.set_auto_page_break(auto=False)
        pdf.set_y(-15)
        pdf.set_font("helvetica", "", 8)
        pdf.cell(0, 5, f"Page {number} of {len(MANUAL)}", align="C")
    pdf.output(str(path))


def write_handbook(path: Path) -> None:
    """Headings, paragraphs and one table."""
    document = Document()
    document.core_properties.title = HANDBOOK[0][0]
    document.core_properties.created = WRITTEN.replace(tzinfo=None)
    document.core_properties.modified = WRITTEN.replace(tzinfo=None)
    for heading, level, paragraphs in HANDBOOK:
        document.add_heading(heading, level)
        for paragraph in paragraphs:
            document.add_paragraph(paragraph)
        if heading == "作息时间":
            table = document.add_table(rows=0, cols=3)
            for row in BELLS:
                cells = table.add_row().cells
                for cell, text in zip(cells, row, strict=True):
                    cell.text = text
    document.save(str(path))


def main() -> None:
    """Write all four."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_manual(FOLDER / "riverboard-manual.pdf")
    write_handbook(FOLDER / "学生手册.docx")
    (FOLDER / "光合作用教案.md").write_text(LESSON, encoding="utf-8")
    (FOLDER / "图书馆常见问题.txt").write_bytes(FAQ.encode("gb18030"))


if __name__ == "__main__":
    main()
