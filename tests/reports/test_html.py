"""The page in a real browser, without a network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from harness.events import Event
from reports.build import build
from reports.html import render
from reports.run import Run

Recorded = Callable[[Path, Sequence[Event]], Path]

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)
_REQUIREMENTS = 13


def start_chromium(profile: Path, *, script: bool = True) -> webdriver.Chrome:
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.fail("this test needs a browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    if not script:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


@pytest.fixture
def page(every_result: list[Event], recorded: Recorded, tmp_path: Path) -> Iterator[webdriver.Chrome]:
    run_dir = recorded(tmp_path / "run", every_result)
    build(run_dir)
    browser = start_chromium(tmp_path / "profile")
    try:
        browser.get((run_dir / "report.html").as_uri())
        yield browser
    finally:
        browser.quit()


def visible_ids(page: webdriver.Chrome) -> list[str]:
    rows = page.find_elements(By.CSS_SELECTOR, "tbody[data-result]")
    return [row.get_attribute("id") or "" for row in rows if row.is_displayed()]


def log_of(page: webdriver.Chrome, kind: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = page.get_log(kind)  # type: ignore[no-untyped-call]
    return entries


@pytest.mark.browser
def test_search_and_filter(page: webdriver.Chrome) -> None:
    search = page.find_element(By.ID, "search")
    assert len(visible_ids(page)) == _REQUIREMENTS

    search.send_keys("toleration admits")
    assert visible_ids(page) == ["TNT-01"]
    assert page.find_element(By.ID, "shown").text == "1 of 13 shown"
    search.clear()
    search.send_keys("gpu.dra.test")  # only in evidence that is folded away
    assert visible_ids(page) == ["ER-01"]
    search.clear()
    search.send_keys("no such thing")
    assert visible_ids(page) == []
    assert page.find_element(By.ID, "nothing").is_displayed()
    search.clear()
    search.send_keys(" ")

    for status in ("blocked", "expected-fail"):
        page.find_element(By.CSS_SELECTOR, f"input[value='{status}']").click()
    assert visible_ids(page) == ["ER-10", "QTA-03", "QTA-04", "QTA-05"]
    headings = [item.text for item in page.find_elements(By.CSS_SELECTOR, "section.area h3")]
    assert headings == ["extended 2 of 3 pass", "", "quota 1 of 6 pass"]


@pytest.mark.browser
def test_keyboard_reaches_search_and_evidence(page: webdriver.Chrome) -> None:
    page.find_element(By.TAG_NAME, "body").send_keys("/")
    assert page.switch_to.active_element.get_attribute("id") == "search"

    summary = page.find_element(By.CSS_SELECTOR, "#ER-01 summary")
    evidence = page.find_element(By.XPATH, "//tbody[@id='ER-01']//details[@class='evidence']")
    assert not evidence.is_displayed()
    summary.send_keys(Keys.ENTER)
    evidence.find_element(By.TAG_NAME, "summary").send_keys(Keys.SPACE)

    shown = json.loads(evidence.find_element(By.TAG_NAME, "pre").text)
    assert shown["allocation"]["devices"]["results"][1]["device"] == "gpu-1"


@pytest.mark.browser
def test_expand_and_collapse(page: webdriver.Chrome) -> None:
    opened = "#requirements ~ .area tr.detail > td > details[open]"
    assert len(page.find_elements(By.CSS_SELECTOR, opened)) == 3  # fail, error, unfinished

    page.find_element(By.ID, "expand").click()
    assert len(page.find_elements(By.CSS_SELECTOR, opened)) == 7
    page.find_element(By.ID, "collapse").click()
    assert len(page.find_elements(By.CSS_SELECTOR, opened)) == 0


@pytest.mark.browser
@pytest.mark.parametrize("link", [".more a", "a.id"], ids=["to-check", "to-requirement"])
def test_links_open_what_hides_their_target(page: webdriver.Chrome, link: str) -> None:
    page.find_element(By.CSS_SELECTOR, "input[value='pass']").click()
    page.find_element(By.CSS_SELECTOR, f".card.expected-fail {link}").click()

    target = page.find_element(By.CSS_SELECTOR, "#ER-10 .check")
    assert target.is_displayed()
    assert "PodScheduled=False: Insufficient" in target.text


@pytest.mark.browser
def test_nothing_is_fetched_and_nothing_injected_runs(page: webdriver.Chrome) -> None:
    address = page.current_url
    page.execute_script("for (const item of document.querySelectorAll('details')) item.open = true;")

    assert page.title == "Failed: DRA on Kubernetes v1.37.2, run 20260301-020000-7f3a"
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert len(page.find_elements(By.TAG_NAME, "script")) == 1
    assert page.find_elements(By.TAG_NAME, "img") == []
    assert "<script>document.title='owned'</script>" in page.find_element(By.ID, "TNT-01").text
    assert log_of(page, "browser") == []  # neither an error nor a refusal by the policy
    messages = [json.loads(entry["message"])["message"] for entry in log_of(page, "performance")]
    asked = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent" and message["params"]["documentURL"] == address
    ]
    assert address in asked
    assert set(asked) <= {address, "data:,"}


@pytest.mark.browser
def test_policy_stops_what_would_get_past_escaping(page: webdriver.Chrome) -> None:
    page.execute_script(
        """const script = document.createElement('script');
        script.textContent = "document.title = 'owned'";
        document.body.append(script);
        const image = document.createElement('img');
        image.src = 'http://127.0.0.1:9/x.png';
        document.body.append(image);"""
    )

    assert page.title.startswith("Failed:")
    refusals = [entry["message"] for entry in log_of(page, "browser")]
    assert len(refusals) == 2
    assert all("Content Security Policy" in refusal for refusal in refusals)


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 800, 1920])
def test_no_width_needs_sideways_scrolling(page: webdriver.Chrome, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.find_element(By.ID, "expand").click()

    root = "document.documentElement"
    assert page.execute_script("return innerWidth") == width
    assert page.execute_script(f"return {root}.scrollWidth - {root}.clientWidth") == 0


CONTRAST = """
const luminance = (color) => {
  const [r, g, b] = color.match(/[0-9.]+/g).slice(0, 3).map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  const color = getComputedStyle(element).backgroundColor;
  return color === 'rgba(0, 0, 0, 0)' ? behind(element.parentElement) : color;
};
const shown = '.badge, .muted, .verdict, dt, dd, a.id, .reason, .source, td, th';
return [...document.querySelectorAll(shown)].map((item) => {
  const pair = [luminance(getComputedStyle(item).color), luminance(behind(item))].sort((a, b) => b - a);
  return [(pair[0] + 0.05) / (pair[1] + 0.05), item.className, item.textContent.slice(0, 30)];
}).sort((a, b) => a[0] - b[0])[0];
"""


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(page: webdriver.Chrome, scheme: str) -> None:
    feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)

    ratio, *where = page.execute_script(CONTRAST)

    assert ratio >= 4.5, where


@pytest.mark.browser
def test_page_without_script_shows_everything_but_the_filter(
    every_result: list[Event], recorded: Recorded, tmp_path: Path
) -> None:
    run_dir = recorded(tmp_path / "run", every_result)
    build(run_dir)
    browser = start_chromium(tmp_path / "profile", script=False)
    try:
        browser.get((run_dir / "report.html").as_uri())

        assert len(visible_ids(browser)) == _REQUIREMENTS
        assert not browser.find_element(By.ID, "filter").is_displayed()
        browser.find_element(By.CSS_SELECTOR, "#ER-01 summary").click()
        assert browser.find_element(By.CSS_SELECTOR, "#ER-01 .check").is_displayed()
    finally:
        browser.quit()


def test_page_of_a_thousand_checks_stays_small(big_run: list[Event]) -> None:
    page = render(Run.from_events(big_run))

    assert len(page.encode()) < 5_000_000
    assert page.count('class="check"') == 1000
    assert page.count("more in events.ndjson") == 1000


def test_check_of_two_requirements_is_shown_once(every_result: list[Event]) -> None:
    page = render(Run.from_events(every_result))

    assert page.count('title="suites/quota/test_quota.py::test_charge"') == 1
    assert "shown under QTA-01" in page


def test_run_that_never_got_a_cluster_has_a_page(every_result: list[Event]) -> None:
    page = render(Run.from_events(every_result[:1]))

    assert "No cluster became ready." in page
    assert '<span class="verdict">incomplete</span>' in page
