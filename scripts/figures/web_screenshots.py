"""Make the pictures of docs/web.md: the page on a desk and on a phone.

    python scripts/figures/web_screenshots.py --checkpoint piano --out docs/images

The motif is a CC0 one of data/motifs. Needs [dev] and Debian's chromium and chromium-driver.
"""

import argparse
import base64
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from music_transformer.web.models import available_models
from music_transformer.web.run import Server, listen, url_of
from music_transformer.web.server import create_app

MOTIF = "Für Elise"
TIMEOUT_SECONDS = 900


def main() -> None:
    """Serve, drive a headless browser, write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", default="piano")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    listener = listen("127.0.0.1", 0)
    server = Server(create_app(available_models([args.checkpoint])))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    url = url_of(listener)
    _picture(url, args, "web-desktop", width=1280, height=900, takes=2)
    _picture(url, args, "web-dark", width=1280, height=900, takes=2, dark=True)
    _picture(url, args, "web-phone", width=390, height=844, takes=1, phone=True)
    server.should_exit = True
    thread.join()


def _picture(
    url: str,
    args: argparse.Namespace,
    name: str,
    *,
    width: int,
    height: int,
    takes: int,
    phone: bool = False,
    dark: bool = False,
) -> None:
    """One picture: a motif, its takes, and the attention of a note of the first."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = _browser(profile, width, height)
        try:
            metrics = {"width": width, "height": height, "deviceScaleFactor": 1 + phone}
            browser.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride", {**metrics, "mobile": phone}
            )
            browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": phone})
            scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
            browser.get(url)
            _wait(lambda: browser.find_elements("css selector", "body[data-ready]"))
            _compose(browser, args, takes)
            _ask(browser)
            time.sleep(0.5)
            _save(browser, args.out / f"{name}.png")
        finally:
            browser.quit()


def _browser(profile: str, width: int, height: int) -> Any:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (
        *("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "disable-dev-shm-usage"),
        *("no-first-run", "disable-background-networking", "disable-component-update"),
        *("disable-sync", "mute-audio", "hide-scrollbars"),
        *(f"window-size={width},{height}", f"user-data-dir={profile}"),
    ):
        options.add_argument(f"--{flag}")
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def _compose(browser: Any, args: argparse.Namespace, takes: int) -> None:
    browser.find_element("xpath", f"//button[text()='{MOTIF}']").click()
    _wait(lambda: browser.find_elements("css selector", "#motif-roll[data-notes='53']"))
    browser.execute_script(
        "for (const [id, value] of Object.entries(arguments[0])) {"
        "  const field = document.getElementById(id); field.value = value;"
        "  field.dispatchEvent(new Event('input')); }"
        "document.getElementById('go').click()",
        {"seconds": args.seconds, "count": takes, "seed": args.seed},
    )
    done = ".take[data-state='done']"
    _wait(lambda: len(browser.find_elements("css selector", done)) == takes)


def _ask(browser: Any) -> None:
    """Ask what the first take listened to at a note in its middle."""
    browser.execute_script(
        "const roll = document.querySelector('.take .roll'); roll.focus();"
        "const key = (k) => roll.dispatchEvent(new KeyboardEvent('keydown', {key: k}));"
        "const back = Math.floor((Number(roll.dataset.notes) - 53) / 2);"
        "for (let i = 0; i < back; i++) key('ArrowLeft');"
        "roll.blur(); window.scrollTo(0, 0)"
    )
    _wait(lambda: "listened most" in browser.find_element("css selector", ".reading").text)


def _wait(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the page did not get there.")
        time.sleep(0.2)


def _save(browser: Any, path: Path) -> None:
    """The whole page, in 256 colors: a third of the size of what Chromium writes."""
    size = browser.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
    shot = browser.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
    )
    path.write_bytes(base64.b64decode(shot["data"]))
    with Image.open(path) as picture:
        # An octree keeps small patches of a color, such as those of the heads, apart.
        few = picture.convert("RGB").quantize(
            256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
        )
        few.save(path, optimize=True)


if __name__ == "__main__":
    main()
