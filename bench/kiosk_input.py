"""How long a key waits while an answer streams: from its event to after the next frame.

python bench/kiosk_input.py
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from appliance import daemon
from appliance.cli import run_command
from appliance.config import Config, HttpConfig, InboxConfig
from appliance.system.clock import Clock
from tests.doubles import ScriptedEngine
from tests.kiosk.conftest import FLAGS, LIBRARY, SIZES, Visit

OBSERVE = """() => {
  window.seen = [];
  addEventListener('keydown', (event) => {
    const begun = event.timeStamp;
    requestAnimationFrame(() => setTimeout(() => window.seen.push(performance.now() - begun)));
  });
}"""


def main() -> None:
    """Print the quantiles."""
    engine = ScriptedEngine(default="周末下午五点关门 [1]。" * 60, token_delay_s=0.01)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        config = Config(
            data=Path(folder) / "box", http=HttpConfig(port=0), inbox=InboxConfig(settle_s=0.0)
        )
        config.inbox_dir.mkdir(parents=True)
        (config.inbox_dir / "library.txt").write_text(LIBRARY, encoding="utf-8")
        with daemon.open_box(config, Clock(), lambda _config: engine) as box:
            daemon.announce(box)
            run_command(["kb", "wait", "--data", str(config.data)])
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=FLAGS
            )
            page = (visit := Visit(browser, box.http.url, SIZES["touch"], "zh-CN")).open()
            page.evaluate(OBSERVE)
            page.fill("#box", "图书馆周末几点关门？")
            page.click("#send")
            page.wait_for_selector("#answer .mark")
            page.focus("#box")
            for _ in range(60):
                page.keyboard.press("a")
                page.wait_for_timeout(40)
            is_streaming = page.get_attribute("#answer", "aria-busy") == "true"
            took = sorted(page.evaluate("window.seen"))
            print(f"{len(took)} keys, answer still streaming at the end: {is_streaming}")
            print(f"median {took[len(took) // 2]:.0f} ms, ", end="")
            print(f"95 % below {took[int(len(took) * 0.95)]:.0f} ms, longest {took[-1]:.0f} ms")
            visit.context.close()
            browser.close()


if __name__ == "__main__":
    main()
