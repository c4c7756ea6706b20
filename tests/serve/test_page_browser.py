"""The page in a real browser: what a person does with it, on a desktop and on a phone, by day and by night."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.browser import barriers, open_browser
from tests.helpers.serving import DOCUMENTS, QUESTION, Client, serving

pytestmark = pytest.mark.slow
EVIL = "<img src=x onerror=\"document.title='hacked'\"> <script>document.title='hacked'</script> lies in Paris."
PRICES = "print,price,size\nOrion,15 pounds,small\nPleiades,18 pounds,large\n"
DROP = """
const carried = new DataTransfer();
for (const [name, text] of arguments[0]) carried.items.add(new File([text], name));
const dropped = new DragEvent("drop", {dataTransfer: carried, bubbles: true, cancelable: true});
document.getElementById("drop").dispatchEvent(dropped);
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


class Person:
    """Somebody at the page, who waits until what is to be seen is there."""

    def __init__(self, driver: Any, client: Client) -> None:
        self.driver, self.client = driver, client

    def look(self, width: int, height: int, scheme: str) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get("about:blank")
        self.driver.get(self.client.base)

    def sees(self, script: str) -> Any:
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            if found := self.driver.execute_script(f"return {script}"):
                return found
            time.sleep(0.05)
        raise AssertionError(script)

    def click(self, selector: str) -> None:
        self.sees(f"document.querySelector({selector!r})")
        self.driver.execute_script(f"document.querySelector({selector!r}).click()")

    def type(self, field: str, text: str) -> None:
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys

        found = self.driver.find_element(By.ID, field)
        found.clear()
        found.send_keys(text, Keys.ENTER)

    def asks(self, question: str) -> None:
        before = self.driver.execute_script("return document.querySelectorAll('.turn').length")
        self.type("question", question)
        self.sees(f"document.querySelectorAll('.turn').length > {before}")
        self.sees("!document.querySelector('.answer.waiting') && !document.querySelector('.head button')")

    def shows(self, what: str) -> None:
        """Check that nothing keeps anybody out or runs over the side, and that nothing in a document has run."""
        assert barriers(self.driver) == [], what
        assert self.driver.execute_script("return document.documentElement.scrollWidth <= innerWidth"), what
        assert "hacked" not in self.driver.title


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width, height", [(1280, 860), (390, 844)])
def test_what_a_person_does(browser: Any, tmp_path: Path, width: int, height: int, scheme: str) -> None:
    with serving([tmp_path / "papers"]) as client:
        person = Person(browser, client)
        browser.get_log("browser")
        person.look(width, height, scheme)
        person.sees("!document.getElementById('view-documents').hidden")  # there is nothing to ask yet
        assert person.sees("document.querySelector('.welcome').textContent").startswith("Nothing to ask yet")
        person.driver.execute_script(DROP, [*DOCUMENTS.items(), ["evil.txt", EVIL], ["prices.csv", PRICES]])
        person.sees("document.querySelectorAll('#jobs .queued, #jobs .running').length")
        person.sees("document.querySelectorAll('#jobs .done').length == 5")
        person.sees("document.querySelectorAll('#documents li').length == 5")
        person.shows("documents")

        person.click("#tab-ask")
        person.sees("document.querySelectorAll('#method option').length > 1")
        assert "?" in person.sees("document.querySelector('#suggested button')?.textContent")
        assert "Several searches" in person.sees("document.querySelector('#method').textContent")
        person.shows("start")
        person.asks(QUESTION)
        assert "Zavrazhye" in person.sees("document.querySelector('.answer').textContent")
        assert "searched for" in person.sees("document.querySelector('.rounds').textContent")
        assert "nearest to the question" in person.sees("document.querySelector('.card').textContent")
        person.shows("answer")
        main, aside = person.sees(
            "['.main', 'aside'].map((part) => document.querySelector(`.card ${part}`).getBoundingClientRect().toJSON())"
        )
        assert aside["left"] >= main["right"] if width > 1000 else aside["top"] >= main["bottom"]
        person.driver.execute_script(
            "[...document.querySelectorAll('.sources li')].find((li) => li.textContent.includes('Zavrazhye'))"
            ".querySelector('button').click()"
        )
        assert "Zavrazhye" in person.sees("document.querySelector('dialog[open] mark')?.textContent")
        person.shows("citation")
        person.click("dialog[open] .close")

        person.look(width, height, scheme)  # what was asked is still there
        assert "Zavrazhye" in person.sees("document.querySelector('.answer')?.textContent")
        person.click("#anew")
        person.click("#how summary")
        person.driver.execute_script("document.getElementById('style').value = 'long'")
        person.asks("Which print costs 18 pounds?")
        assert "Pleiades" in person.sees("document.querySelector('.card table')?.textContent")
        assert not person.driver.execute_script("return document.querySelector('.card tr.marked')")
        assert "[1]" in person.sees("document.querySelector('.card .main').textContent")
        person.shows("table")
        person.driver.execute_script("document.getElementById('style').value = ''")
        person.click("#anew")
        assert person.sees("document.querySelectorAll('.earlier li').length") == 2
        person.asks("Who directed Solaris?")
        person.click("#compare")
        person.asks("Where did he die?")
        answers = person.sees("[...document.querySelectorAll('.turn:last-child .answer')].map((a) => a.textContent)")
        assert len(answers) == 2 and all("Paris" in text for text in answers), answers
        assert "The same answer" in person.sees("document.querySelector('.verdict').textContent")
        person.shows("comparison")

        person.click("#anew")
        person.click("#compare")
        person.click(".earlier li:nth-child(3) .plain")
        person.sees("document.querySelector('.card a')?.textContent.includes('joined by Andrei Tarkovsky')")
        person.click(".card a")
        person.sees("document.querySelector('#canvas canvas') && document.querySelector('#types .ring')")
        person.click("#clear")
        person.type("find", "tarkov")
        person.sees(
            "[...document.querySelectorAll('#matches button')].every((b) => b.textContent.includes('Tarkovsky'))"
        )
        person.sees("document.querySelector('#node h2')?.textContent == 'Andrei Tarkovsky'")
        before = person.sees("document.getElementById('drawn').textContent")
        person.sees(
            "[...document.querySelectorAll('.joined button')].find((b) => b.textContent == 'Solaris')?.click() ?? 1"
        )
        person.sees("document.querySelector('#node h2')?.textContent == 'Solaris'")
        person.click("#node .primary")
        person.sees(f"document.getElementById('drawn').textContent != {before!r}")
        before = person.sees("document.getElementById('drawn').textContent")
        person.click("#types input")
        person.sees(f"document.getElementById('drawn').textContent != {before!r}")
        person.shows("graph")
        assert [row for row in browser.get_log("browser") if row["level"] == "SEVERE"] == []


def test_a_token_is_asked_for_and_a_link_to_a_passage_opens_it(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "tokens.yaml").write_text("tokens: [{name: a, token: sixteen-letters-or-more, rights: [ask, write]}]")
    with serving([tmp_path / "papers"], f"serve.tokens={tmp_path / 'tokens.yaml'}") as client:
        owner = Client(client.port, "sixteen-letters-or-more")
        owner.ended("papers", owner("PUT", "/api/indexes/papers/documents/evil.txt", EVIL.encode())[1]["job"])
        person = Person(browser, client)
        person.look(1280, 860, "light")
        for token in ("wrong", "sixteen-letters-or-more"):
            person.sees("document.querySelector('#token').open")
            person.driver.execute_script("document.getElementById('token-text').value = ''")
            person.type("token-text", token)
        person.sees("document.querySelectorAll('#method option').length > 1")
        person.driver.execute_script("location.hash = '#/papers/passage/evil.txt%231'")
        assert "onerror" in person.sees("document.querySelector('dialog[open] .text')?.textContent")
        person.shows("passage")
