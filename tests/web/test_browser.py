"""The page in a real browser: everything a musician does with it, and nothing it must not do.

Skipped where there is no Chromium or no selenium; with MUSIC_TRANSFORMER_BROWSER=required, as in
`.ci/run`, that is a failure instead.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from music_transformer.generation.continuation import Continuation
from music_transformer.generation.filling import kept_beside
from music_transformer.generation.loop import NumberedIds
from music_transformer.midi import read_midi, write_midi
from music_transformer.midi.read import read_midi_bytes
from music_transformer.notes import NoteSequence
from music_transformer.sampling import BOLD
from music_transformer.web.takes import Take
from tests.web.conftest import Client

TIMEOUT_SECONDS = 60
SLIDERS = ("temperature", "top-p")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def _missing(reason: str) -> None:
    if os.environ.get("MUSIC_TRANSFORMER_BROWSER") == "required":
        pytest.fail(f"the browser test is required, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium that tells all of its requests and of its console."""
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        _missing("selenium is not installed: pip install music-transformer[dev]")
    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        _missing("there is no Chromium with its chromedriver (Debian: chromium, chromium-driver)")
    assert driver is not None
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (
        *("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "disable-dev-shm-usage"),
        *("no-first-run", "disable-background-networking", "disable-component-update"),
        *("disable-sync", "mute-audio", "window-size=1280,1000"),
        f"user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    downloads = tmp_path_factory.mktemp("downloads")
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    chromium = webdriver.Chrome(options=options, service=Service(driver))
    chromium.downloads = downloads
    chromium.get("about:blank")
    yield chromium
    chromium.quit()


class Page:
    """The page as its user sees it."""

    def __init__(self, browser: Any, client: Client) -> None:
        self.browser = browser
        self.client = client
        browser.get(client.url)
        self.wait(lambda: self.all("body[data-ready]"))

    def reload(self) -> None:
        self.browser.refresh()
        self.wait(lambda: self.all("body[data-ready]"))

    def all(self, selector: str) -> list[Any]:
        return list(self.browser.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        found = self.all(selector)
        assert found, f"nothing on the page is {selector}"
        return found[0]

    def click(self, selector: str) -> None:
        element = self.one(selector)
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def set(self, name: str, value: object) -> None:
        self.browser.execute_script(
            "const field = document.getElementById(arguments[0]); field.value = arguments[1];"
            "for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind))",
            name,
            str(value),
        )

    def wait(self, condition: Callable[[], Any], seconds: float = TIMEOUT_SECONDS) -> Any:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if result := condition():
                return result
            time.sleep(0.05)
        raise AssertionError(f"it never happened; the page says: {self.one('body').text}")

    def notes(self, selector: str = "#motif-roll") -> int:
        return int(self.one(selector).get_attribute("data-notes") or 0)

    def unfold(self) -> None:
        self.browser.execute_script(
            "for (const folded of document.querySelectorAll('details')) folded.open = true"
        )

    def takes(self) -> list[Take]:
        """What the server has of the takes of this page."""
        pages = self.client.app.state.studio._pages
        return list(pages[list(pages)[-1]].takes.values())

    def states(self) -> list[str]:
        return [str(take.get_attribute("data-state")) for take in self.all(".take")]

    def upload(self, path: Path) -> None:
        self.one("#file").send_keys(str(path))

    def second(self, place: int) -> int:
        """Where a playhead is: 0 is the motif's, then come those of the takes."""
        minutes, seconds = self.all(".time")[place].text.split(" / ")[0].split(":")
        return 60 * int(minutes) + int(seconds)

    def continue_motif(self, seconds: int, count: int = 1) -> None:
        """Upload a motif and have it continued to the end."""
        self.set("seconds", seconds)
        self.set("count", count)
        self.click("#go")


@pytest.fixture
def page(browser: Any, client: Client) -> Iterator[Page]:
    """A fresh page; afterwards, whatever it did, it asked nobody else and complained of nothing."""
    browser.get_log("performance")
    browser.get_log("browser")
    yield Page(browser, client)
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert client.url in asked
    own = (client.url, "data:", "blob:", "chrome:")  # the last is the browser's empty tab
    foreign = [url for url in asked if not url.startswith(own)]
    assert foreign == []
    console = browser.get_log("browser")
    # Chromium writes down every refusal, also the one that a test is about.
    refusals = [entry for entry in console if "status of 4" in entry["message"]]
    assert [entry for entry in console if entry not in refusals] == []
    browser.get("about:blank")
    store = {"origin": client.url.rstrip("/"), "storageTypes": "local_storage"}
    browser.execute_cdp_cmd("Storage.clearDataForOrigin", store)


def test_a_file_is_continued_heard_compared_and_downloaded(page: Page, motifs: Path) -> None:
    page.upload(motifs / "twinkle_melody.mid")
    page.wait(lambda: page.notes() == 42)
    assert "twinkle" in page.one("#motif-about").text.lower()

    page.continue_motif(5, count=2)
    page.wait(lambda: page.states() == ["done", "done"])
    assert page.notes(".take .roll") > 42

    # Playing begins at the seam and moves the playhead; the other take goes on at the same second;
    # pausing keeps it; a click moves it anywhere.
    seam = page.second(1)
    assert seam > 10
    first, second = page.all(".play-button")
    best, other = (title.text.lower() for title in page.all(".take h3"))
    assert {best, other} == {"take 1", "take 2"}
    page.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", first)
    first.click()
    page.wait(lambda: page.second(1) > seam)
    assert first.get_attribute("aria-label") == f"Pause {best}"
    second.click()
    page.wait(lambda: page.second(2) >= seam + 2)
    assert first.get_attribute("aria-label") == f"Play {best}"
    second.click()
    kept = page.second(2)
    time.sleep(1.1)
    assert page.second(2) == kept
    page.one(".take .roll").click()  # in its middle
    page.wait(lambda: 0 < page.second(1) < seam)
    page.click(".take .seam")
    page.wait(lambda: page.second(1) >= seam)

    page.click(".take .midi")
    [path] = page.wait(lambda: list(page.browser.downloads.glob("*.mid")))
    assert path.name == f"twinkle_melody-seed-{int(best[-1]) - 1}.mid"
    assert len(read_midi(path)) == page.notes(".take .roll")


def test_four_takes_are_drawn_and_stand_side_by_side_the_best_first(
    page: Page, motifs: Path
) -> None:
    page.upload(motifs / "twinkle_melody.mid")
    page.wait(lambda: page.notes() == 42)
    page.set("seconds", 5)
    page.click("#go")
    page.wait(lambda: page.states() == ["done"] * 4)
    ranks = {f"take {number}": take.rank for number, take in enumerate(page.takes(), start=1)}
    best_first = sorted(ranks, key=lambda name: ranks[name] or (99, 0.0))

    def shown() -> list[str]:
        return [take.text.lower() for take in page.all(".take h3")]

    page.wait(lambda: shown() == best_first)
    assert [one.is_displayed() for one in page.all(".closest")] == [True, False, False, False]
    tops = {take.rect["y"] for take in page.all(".take")[:2]}
    assert len(tops) == 1
    page.wait(lambda: len(page.all(".take .remove:not([hidden])")) == 4)
    notes = [roll.get_attribute("data-notes") for roll in page.all(".take .roll")]
    page.reload()
    page.wait(lambda: page.states() == ["done"] * 4)
    page.wait(
        lambda: notes == [roll.get_attribute("data-notes") for roll in page.all(".take .roll")]
    )
    page.set("task", "accompany")
    assert page.one("#count").get_attribute("value") == "1"


def test_the_name_of_a_file_is_text_wherever_the_page_shows_it(
    page: Page, motifs: Path, tmp_path: Path
) -> None:
    name = "<img src=x onerror=document.title='mine'><script>document.title='mine'<&\"'.mid"
    shutil.copy(motifs / "c_major_scale.mid", tmp_path / name)
    title = page.browser.title
    page.upload(tmp_path / name)
    page.wait(lambda: page.notes() == 8)
    assert "<img src=x" in page.one("#motif-about").text
    page.continue_motif(1)
    page.wait(page.states)  # it is there
    assert not page.all("img[src=x]")
    assert page.browser.title == title


def test_a_take_survives_its_removal_and_a_reload(page: Page, motifs: Path) -> None:
    page.upload(motifs / "c_major_scale.mid")
    page.wait(lambda: page.notes() == 8)
    page.continue_motif(5)
    page.wait(lambda: page.all(".take .remove:not([hidden])"))
    notes, seam = page.notes(".take .roll"), page.second(1)
    page.click(".take .star")
    page.click(".take .remove")
    page.wait(lambda: not page.states())
    page.click("#undo button")
    page.wait(lambda: page.states() == ["done"])
    page.reload()
    page.wait(lambda: page.states() == ["done"])
    assert (page.notes(".take .roll"), page.second(1)) == (notes, seam)
    assert page.one(".take .star").get_attribute("aria-pressed") == "true"
    page.set("count", 1)
    page.click(".take .more")  # with the next seed; the motif is read from the take
    page.wait(lambda: page.states() == ["done", "done"])
    page.wait(lambda: len(page.all(".take .remove:not([hidden])")) == 2)
    page.click(".take .remove")
    page.wait(lambda: page.states() == ["done"])
    page.reload()
    page.wait(lambda: page.states() == ["done"])


def test_a_melody_is_harmonized(page: Page, motifs: Path) -> None:
    page.upload(motifs / "c_major_scale.mid")
    page.wait(lambda: page.notes() == 8)
    page.set("task", "accompany")
    assert [option.text for option in page.all("#model option")] == ["bach"]
    page.click("#go")
    page.wait(lambda: page.states() == ["done"])
    assert page.notes(".take .roll") > 8


def test_a_gap_is_filled(browser: Any, serve: Callable[..., Client], motifs: Path) -> None:
    page = Page(browser, serve("piano-fill"))
    page.upload(motifs / "fur_elise_opening.mid")
    page.wait(lambda: page.notes() == 53)
    page.set("task", "fill")
    assert page.one("#go").text == "Choose from and to"
    page.set("cut-from", 3)
    page.set("cut-to", 5)
    assert page.one("#go").text == "Fill 3 s to 5 s"
    page.click("#go")
    page.wait(lambda: page.states() == ["done"])
    [take] = page.takes()
    kept = kept_beside(read_midi(motifs / "fur_elise_opening.mid"), 3, 5)
    assert take.notes is not None
    assert set(zip(kept.start, kept.pitch, strict=True)) <= set(
        zip(take.notes.start, take.notes.pitch, strict=True)
    )
    assert page.notes(".take .roll") == len(take.notes)
    assert "filled by piano-fill" in page.one(".take .about").text
    assert take.title == "fur_elise_opening-filled-seed-0"
    browser.get("about:blank")


def test_a_take_grows_before_the_eyes_and_can_be_stopped(
    page: Page, motifs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Continuation.ids

    def slowly(self: Continuation) -> Iterator[tuple[int, int]]:
        for drawn in draw(self):
            time.sleep(0.05)  # so that it is not done before the eyes have seen it
            yield drawn

    monkeypatch.setattr(Continuation, "ids", slowly)
    page.upload(motifs / "c_major_scale.mid")
    page.wait(lambda: page.notes() == 8)
    page.continue_motif(120)
    page.wait(lambda: page.states() == ["composing"])
    early = page.wait(lambda: page.notes(".take .roll") > 8 and page.notes(".take .roll"))
    page.wait(lambda: page.notes(".take .roll") > early)
    assert page.states() == ["composing"]
    page.wait(lambda: int(page.one(".take .progress").get_attribute("aria-valuenow")) > 0)
    page.click(".take .stop")
    page.wait(lambda: page.states() == ["stopped"])
    assert "Stopped after" in page.one(".take .state").text
    assert page.one(".take .midi").is_displayed()


def test_a_bad_file_is_a_line_on_the_page(page: Page, tmp_path: Path, motifs: Path) -> None:
    bad = tmp_path / "bad <b>file.mid"
    bad.write_bytes(b"this is no music")
    page.upload(bad)
    page.wait(lambda: page.one("#motif-error").is_displayed())
    assert page.one("#motif-error").text.startswith("bad <b>file.mid: ")
    page.upload(motifs / "c_major_scale.mid")
    page.wait(lambda: page.notes() == 8)
    assert not page.one("#motif-error").is_displayed()


def test_a_motif_of_hours_is_a_roll_of_a_bounded_width(page: Page, tmp_path: Path) -> None:
    hours = [3000.0 * index for index in range(40)]
    notes = NoteSequence(
        pitch=[60] * 40, velocity=[80] * 40, start=hours, end=[at + 1 for at in hours]
    )
    page.upload(write_midi(notes, tmp_path / "hours.mid"))
    page.wait(lambda: page.notes() == 40)
    width = "return document.querySelector('#motif-roll .roll-span').offsetWidth"
    page.wait(lambda: 40_000 < page.browser.execute_script(width) < 60_000)


def test_a_file_can_be_dropped(page: Page, motifs: Path) -> None:
    data = list((motifs / "c_major_scale.mid").read_bytes())
    page.browser.execute_script(
        "const files = new DataTransfer();"
        "files.items.add(new File([new Uint8Array(arguments[0])], 'dropped.mid'));"
        "const drop = new DragEvent('drop', {dataTransfer: files, bubbles: true});"
        "document.getElementById('drop').dispatchEvent(drop)",
        data,
    )
    page.wait(lambda: page.notes() == 8)
    assert "dropped" in page.one("#motif-about").text


def test_notes_are_played_with_the_mouse_and_with_the_keys(page: Page) -> None:
    from selenium.webdriver import ActionChains

    page.click("#record")
    page.click(".key[aria-label='E4']")
    page.browser.execute_script("document.activeElement.blur()")
    ActionChains(page.browser).key_down("a").pause(0.1).key_up("a").perform()
    ActionChains(page.browser).key_down("t").pause(0.1).key_up("t").perform()
    page.wait(lambda: page.notes() >= 3)
    page.click("#record")
    page.wait(lambda: "played: 3 notes" in page.one("#motif-about").text)
    page.continue_motif(5)
    page.wait(lambda: page.states() == ["done"])


def _plug_in(page: Page) -> None:
    """Connect a MIDI keyboard that `play` plays on, and write down what sounds, in order."""
    page.browser.execute_script(
        "const input = {name: 'fake keys'}; window.heard = [];"
        "navigator.requestMIDIAccess = async () => ({inputs: new Map([['1', input]])});"
        "window.send = (...data) => input.onmidimessage({data});"
        "const ramp = AudioParam.prototype.linearRampToValueAtTime;"
        "AudioParam.prototype.linearRampToValueAtTime = function (...all) {"
        "  heard.push(document.querySelector('.take:last-child')?.dataset.state ?? 'nothing');"
        "  return ramp.apply(this, all); };"
    )
    page.click("#midi-in")
    page.wait(lambda: "fake keys" in page.one("#midi-in").text)


def _play(page: Page, *pitches: int) -> None:
    for pitch in pitches:
        page.browser.execute_script("send(0x90, arguments[0], 80)", pitch)
        time.sleep(0.1)
        page.browser.execute_script("send(0x80, arguments[0], 0)", pitch)


def _heard(page: Page) -> list[str]:
    """The state of the last take at every note that sounded."""
    return list(page.browser.execute_script("return heard"))


def test_a_phrase_is_answered_while_the_answer_is_composed(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    sounding, composed = threading.Event(), Continuation.ids

    def held(self: Continuation) -> NumberedIds:
        """Compose, but after some events wait until the page has sounded."""
        for count, numbered in enumerate(composed(self)):
            if count == 30:
                sounding.wait(TIMEOUT_SECONDS)
            yield numbered

    monkeypatch.setattr(Continuation, "ids", held)
    _plug_in(page)
    page.click("#live")
    page.wait(lambda: "play a phrase" in page.one("#live-about").text)  # the weights are read
    _play(page, 60, 64, 67)
    page.wait(lambda: page.one("#live-about").text.startswith("Answered"))
    assert _heard(page)[:4] == ["nothing", "nothing", "nothing", "composing"]
    assert page.states() == ["composing"]
    sounding.set()
    page.wait(lambda: page.states() == ["done"])
    [take] = page.takes()
    assert (take.settings.key, take.settings.seconds) == ("motif", 5)


def test_in_live_the_answer_can_loop_and_a_metronome_ticks(page: Page) -> None:
    _plug_in(page)
    page.set("beats", 240)
    page.click("#metronome")
    page.wait(lambda: len(_heard(page)) > 4)
    page.click("#metronome")
    page.click("#loop")
    page.click("#live")
    page.wait(lambda: "play a phrase" in page.one("#live-about").text)
    _play(page, 60, 64, 67)
    page.wait(lambda: page.states() == ["done"])
    once = page.notes(".take .roll")
    page.wait(lambda: _heard(page).count("done") > once)  # it came round again
    _play(page, 72)  # playing on ends it
    ended = len(_heard(page))
    page.click("#live")
    time.sleep(0.5)
    assert len(_heard(page)) == ended


def test_a_take_is_dragged_out_as_midi(page: Page, motifs: Path) -> None:
    page.upload(motifs / "c_major_scale.mid")
    page.wait(lambda: page.notes() == 8)
    page.continue_motif(5)
    page.wait(lambda: page.states() == ["done"])
    kind, name, url = page.browser.execute_script(
        "const event = new DragEvent('dragstart', {dataTransfer: new DataTransfer()});"
        "document.querySelector('.take .midi').dispatchEvent(event);"
        "const dragged = event.dataTransfer.getData('DownloadURL');"
        "return dragged.match(/^([^:]*):([^:]*):(.*)$/).slice(1)"
    )
    assert (kind, name) == ("audio/midi", "c_major_scale-seed-0.mid")
    status, data, _ = page.client.ask("GET", url.removeprefix(page.client.url.rstrip("/")))
    assert status == 200
    assert len(read_midi_bytes(data, name)) == page.notes(".take .roll")


def test_a_musician_asks_in_words(page: Page, motifs: Path) -> None:
    page.upload(motifs / "fur_elise_opening.mid")
    page.wait(lambda: page.notes() == 53)
    page.click("#wishes summary")
    asked = {"key": "F# minor", "low": "C3", "high": "C6", "pace": "0.5", "loudness": "pp"}
    for name, value in {**asked, "voices": "2", "mood": "bold"}.items():
        page.set(name, value)
    page.continue_motif(5, count=2)
    page.wait(lambda: page.states() == ["done", "done"])
    for take in page.takes():
        assert {name: str(getattr(take.settings, name)) for name in asked} == asked
        assert (take.settings.voices, take.settings.temperature) == (2, BOLD[0])
    assert (
        "bold · F♯ minor · C3 to C6 · pace × 0.5 · loudness pp · 2 voices"
        in page.one(".take .about").text
    )
    page.wait(lambda: len(page.all(".closest:not([hidden])")) == 1)
    page.set("low", "C7")
    page.click("#go")  # what cannot be is refused before composing
    page.wait(lambda: "above" in page.one("#compose-error").text)
    page.set("model", "bach")  # which has no such wishes
    assert not page.one("#wishes").is_displayed()


def test_a_note_shows_what_the_model_listened_to(page: Page, motifs: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    page.upload(motifs / "c_major_scale.mid")
    page.wait(lambda: page.notes() == 8)
    page.continue_motif(5)
    page.wait(lambda: page.states() == ["done"])
    roll = page.one(".take .roll")
    roll.send_keys(Keys.ARROW_LEFT)
    page.wait(lambda: "listened most to" in page.one(".reading").text)
    assert len(page.all(".take .heads button")) == 3
    assert [option.text for option in page.all(".take .layer option")] == ["all", "1", "2"]
    roll.send_keys(Keys.ESCAPE)
    assert not page.one(".attention").is_displayed()

    # A long press on a note asks too; the canvas says where one is by its title.
    from selenium.webdriver import ActionChains

    x, y = page.browser.execute_script(
        "const canvas = document.querySelector('.take canvas');"
        "const box = canvas.getBoundingClientRect();"
        "for (let y = 0; y < box.height; y += 3) for (let x = 40; x < box.width - 40; x += 3) {"
        "  const at = {clientX: box.left + x, clientY: box.top + y};"
        "  canvas.dispatchEvent(new PointerEvent('pointermove', at));"
        "  if (canvas.title) return [x + 4 - box.width / 2, y + 4 - box.height / 2]; }"
    )
    canvas = page.one(".take canvas")
    ActionChains(page.browser).move_to_element_with_offset(
        canvas, int(x), int(y)
    ).click_and_hold().pause(0.7).release().perform()
    page.wait(lambda: page.one(".attention").is_displayed())


def test_the_tab_key_reaches_everything_and_everything_has_a_name(page: Page) -> None:
    nameless = page.browser.execute_script(
        "return [...document.querySelectorAll('button, input, select, a')]"
        ".filter(e => !(e.innerText?.trim() || e.ariaLabel || e.labels?.length"
        "  || e.getAttribute('aria-labelledby')))"
        ".map(e => e.outerHTML)"
    )
    assert nameless == []
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    page.unfold()
    reached = []
    for _ in range(50):
        ActionChains(page.browser).send_keys(Keys.TAB).perform()
        reached.append(page.browser.execute_script("return document.activeElement.id"))
    wanted = [
        "motif-roll",
        "open",
        "record",
        "task",
        "model",
        "seconds",
        *("mood", "key", "low", "high", "pace", "loudness", "voices"),
        "temperature",
        "top-p",
        "seed",
    ]
    places = [reached.index(name) for name in [*wanted, "count", "go"]]
    assert places == sorted(places)


def test_a_model_brings_its_own_settings(page: Page) -> None:
    def shown() -> list[str]:
        return [str(page.one(f"#{name}").get_attribute("value")) for name in SLIDERS]

    page.unfold()
    assert shown() == ["1", "0.95"]
    page.set("temperature", 0.7)
    assert page.one("#mood").get_attribute("value") == "own"
    page.set("model", "bach")
    page.wait(lambda: shown() == ["1.07", "1"])
    assert [page.one(f"#{name}-value").text for name in SLIDERS] == ["1.07", "1.00"]
    page.set("model", "piano")
    page.wait(lambda: shown() == ["1", "0.95"])


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(page: Page, motifs: Path, width: int) -> None:
    page.upload(motifs / "fur_elise_opening.mid")
    page.wait(lambda: page.notes() == 53)
    page.continue_motif(5, count=2)
    page.wait(lambda: page.states() == ["done", "done"])
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page.wait(
            lambda: page.browser.execute_script(
                "return document.documentElement.scrollWidth <= arguments[0]", width
            ),
            seconds=5,
        )
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("leave", ["reload", "elsewhere"])
def test_leaving_the_page_frees_the_model(page: Page, leave: str) -> None:
    page.continue_motif(120)
    page.wait(lambda: page.states() == ["composing"])
    if leave == "elsewhere":  # the browser keeps the page for its back button
        page.browser.get("about:blank")
    page.browser.get(page.client.url)
    page.wait(lambda: page.all("body[data-ready]"))
    page.continue_motif(5)
    page.wait(lambda: page.states() == ["done"])


def test_without_a_sound_font_the_page_plays_by_itself(
    browser: Any, serve: Callable[..., Client], tmp_path: Path, motifs: Path
) -> None:
    page = Page(browser, serve(soundfont=tmp_path / "none.sf2"))
    page.upload(motifs / "twinkle_melody.mid")
    page.wait(lambda: page.notes() == 42)
    page.click("#motif-play")
    page.wait(lambda: page.second(0) >= 1)
    page.click("#motif-play")
    assert page.one("#motif-play").get_attribute("aria-label") == "Play the motif"
    browser.get("about:blank")
