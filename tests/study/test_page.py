"""The page of a listening test in a real browser: hear, answer, stop, save.

Skipped where there is no Chromium or no selenium; with MUSIC_TRANSFORMER_BROWSER=required, as in
`.ci/run`, that is a failure instead.
"""

import json
import os
import shutil
import time
import wave
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from music_transformer.study.analysis import Key, Trial, name_clips, plan_trials, read_answers
from music_transformer.study.build import page

SOURCES, PRIMERS = ("one", "two", "real"), ["p"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium that may play without being clicked."""
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        _missing("selenium is not installed: pip install music-transformer[dev]")
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    binary, driver = (
        next(filter(None, map(shutil.which, names)), None),
        shutil.which("chromedriver"),
    )
    if binary is None or driver is None:
        _missing("there is no Chromium with its chromedriver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (
        *("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "mute-audio"),
        *("no-first-run", "disable-background-networking", "window-size=1000,900"),
        "autoplay-policy=no-user-gesture-required",
        f"user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    downloads = tmp_path_factory.mktemp("downloads")
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    chromium = webdriver.Chrome(options=options, service=Service(driver))
    chromium.downloads = downloads
    yield chromium
    chromium.quit()


def _missing(reason: str) -> None:
    if os.environ.get("MUSIC_TRANSFORMER_BROWSER") == "required":
        pytest.fail(f"the browser test is required, but {reason}")
    pytest.skip(reason)


def wait(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if result := condition():
            return result
        time.sleep(0.05)
    raise AssertionError("it never happened")


@pytest.fixture
def key(tmp_path: Path) -> Key:
    """A study of three trials, its page and clips of a tenth of a second in `tmp_path`."""
    clips = name_clips(SOURCES, PRIMERS, seed=0, suffix=".wav")
    key = Key("a study", SOURCES, plan_trials(SOURCES, PRIMERS, seed=0), clips, {})
    (tmp_path / "clips").mkdir()
    tone = np.rint(8000 * np.sin(np.arange(800) / 3)).astype("<i2").tobytes()
    for source in SOURCES:
        with wave.open(str(tmp_path / "clips" / clips[source]["p"]), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(tone)

    def address(trial: Trial) -> tuple[str, str]:
        return f"clips/{clips[trial.a]['p']}", f"clips/{clips[trial.b]['p']}"

    html = page(key.study, key.trials, [address(trial) for trial in key.trials])
    (tmp_path / "index.html").write_text(html, encoding="utf-8")
    return key


def test_a_listener_hears_both_answers_stops_goes_on_and_saves(
    browser: Any, key: Key, tmp_path: Path
) -> None:
    def one(selector: str) -> Any:
        return browser.find_element("css selector", selector)

    def begin() -> None:
        browser.get((tmp_path / "index.html").as_uri())
        one("#name").send_keys("Zoë 1")
        one("#who button").click()

    def choice(score: int) -> Any:
        return one(f'input[name="score"][value="{score}"]')

    def hear_both() -> None:
        for name in ("a", "b"):
            browser.execute_script(f"return document.getElementById('{name}').play()")
            wait(lambda name=name: one(f"#{name}").get_property("ended"))

    begin()
    assert one("#count").text == "Pair 1 of 3"
    assert not choice(2).is_enabled()
    hear_both()
    assert not one("#next").is_enabled()
    wait(choice(2).is_enabled)
    choice(2).click()
    one("#next").click()
    assert one("#count").text == "Pair 2 of 3"
    assert not choice(-1).is_enabled()
    hear_both()
    wait(choice(-1).is_enabled)
    choice(-1).click()
    one("#back").click()
    assert choice(2).is_selected()

    begin()  # the page was closed, and opened again
    assert one("#count").text == "Pair 3 of 3"
    one("#stop").click()
    assert "2 of 3 pairs" in one("#summary").text

    def saved(button: str, pattern: str) -> Path:
        one(button).click()
        return wait(lambda: next(iter(browser.downloads.glob(pattern)), None))

    by_json = read_answers(saved("#json", "answers*.json"), key)
    assert sorted(answer.score for answer in by_json) == [-1, 2]
    assert {answer.listener for answer in by_json} == {"Zoë 1"}
    assert read_answers(saved("#csv", "answers*.csv"), key) == by_json
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []
    pieces = json.loads(json.dumps(asdict(key)))["trials"]
    assert {answer.trial for answer in by_json} < {trial["name"] for trial in pieces}


def test_the_page_fits_a_phone(browser: Any, key: Key, tmp_path: Path) -> None:
    browser.set_window_size(500, 800)
    browser.get((tmp_path / "index.html").as_uri())
    wide = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not browser.execute_script(wide)
    browser.find_element("css selector", "#name").send_keys("x")
    browser.find_element("css selector", "#who button").click()
    assert not browser.execute_script(wide)
    if folder := os.environ.get("MUSIC_TRANSFORMER_SCREENSHOTS"):
        browser.save_screenshot(f"{folder}/listening-phone.png")
        browser.set_window_size(1000, 900)
        browser.save_screenshot(f"{folder}/listening-desktop.png")
