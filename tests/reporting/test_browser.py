"""The page in a real browser, opened from disk: Chromium, headless."""

import json
import shutil
import time

import numpy as np
import pandas as pd
import pytest
from made_stores import EVIL, make_curve, make_record, with_values, write_store

from parvibench.core import registry
from parvibench.reporting.page.report_files import write_report

pytestmark = [pytest.mark.browser, pytest.mark.ci]
CHROMIUM = next((path for n in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(n))), None)


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Seen:
    """What a page did besides being shown."""

    def __init__(self, page):
        self.trouble, self.requests = [], []
        page.on("console", lambda m: self.trouble.append(m.text))
        page.on("pageerror", lambda e: self.trouble.append(str(e)))
        page.on("dialog", lambda d: (self.trouble.append(d.message), d.dismiss()))
        page.on("request", lambda r: self.requests.append(r.url))


def open_page(browser, path, **options):
    page = browser.new_page(**({"viewport": {"width": 1280, "height": 900}} | options))
    seen = Seen(page)
    page.goto(path.as_uri())
    return page, seen


@pytest.fixture
def opened(browser, out):
    page, seen = open_page(browser, out / "index.html")
    yield page
    assert seen.trouble == []
    page.close()


def texts(page, selector):
    return [t.strip() for t in page.locator(selector).all_inner_texts()]


def column(page, title):
    """Shown entries of a column of the leaderboard, by method."""
    return page.evaluate(
        """title => {
          const table = document.getElementById("leaderboard-table");
          const at = Array.from(table.tHead.rows[0].cells).findIndex(c => c.querySelector("bdi").textContent === title);
          return Object.fromEntries(Array.from(table.tBodies[0].rows).filter(r => !r.hidden).map(
            r => [r.cells[0].textContent.trim(), r.cells[at].hidden ? null : r.cells[at].querySelector("bdi").textContent]));
        }""",
        title,
    )


def test_opens_from_disk_without_trouble_or_network(browser, out):
    page, seen = open_page(browser, out / "index.html")
    assert seen.trouble == []
    assert [u for u in seen.requests if not u.startswith(("file:", "data:"))] == []
    assert len([u for u in seen.requests if u.startswith("file:")]) == 1
    pictures = page.evaluate("Array.from(document.images, i => [i.complete, i.naturalWidth, i.alt])")
    pictures += page.evaluate("""
        Array.from(document.querySelectorAll('.panels [role=img]'), i => [
            Array.from(i.querySelectorAll('use')).every(u => document.querySelector(u.getAttribute('href'))),
            i.querySelector('svg svg path').getBBox().width, i.ariaLabel])""")
    assert len(pictures) >= 5
    assert all(complete and width > 0 and alt for complete, width, alt in pictures)
    unnamed = page.evaluate(
        "Array.from(document.querySelectorAll('svg:not([aria-hidden])')).filter(s => !s.closest('[role=img][aria-label], [role=group][aria-label]')).length"
    )
    assert unnamed == 0
    page.close()


def curve_of(page, out):
    """A curve's picture in the page, the label of its first method, and that method's points as the file has them."""
    name = "curve-banana-sliced_w2-score_evaluations"
    picture = page.locator(f"#figure-{name} svg")
    picture.scroll_into_view_if_needed()
    plot = json.loads(picture.get_attribute("data-plot"))
    rows = pd.read_csv(out / "figures" / f"{name}.csv")
    return picture, plot["names"][0], rows[(rows["label"] == plot["names"][0]) & np.isfinite(rows["median"])]


def test_pointing_at_a_curve_shows_its_values(opened, out):
    """At a marker: the method's full name, and the numbers of the figure's file to three digits."""
    picture, label, rows = curve_of(opened, out)
    markers = picture.locator('.pv-line-[data-line="0"]:has(> path) use')
    assert opened.locator("#tip").is_hidden()
    assert markers.count() == len(rows)
    for i, (_, row) in enumerate(rows.iterrows()):
        box = markers.nth(i).bounding_box()
        opened.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        name, spent, value = opened.locator("#tip").inner_text().splitlines()
        assert name == label
        for text, expected in ((spent, row["score_evaluations"]), (value, row["median"])):
            assert float(text.rpartition(" ")[2]) == pytest.approx(expected, rel=0.02), text  # places have two digits
    assert picture.locator(".pv-line-.on").count() == picture.locator('.pv-line-[data-line="0"]').count()
    opened.mouse.move(1, 1)
    assert opened.locator("#tip").is_hidden()


def test_the_legend_switches_curves(opened, out):
    """By mouse and by keyboard; what is off is neither drawn nor pointed at."""
    picture, label, _ = curve_of(opened, out)
    entry = picture.locator('[role=button][data-line="0"]')
    said = entry.get_attribute("aria-label")
    assert said.startswith(entry.text_content().strip())  # what is seen can be said
    assert label in said
    line = picture.locator('.pv-line-[data-line="0"]').first
    assert line.is_visible()
    entry.click()
    assert entry.get_attribute("aria-pressed") == "false"
    assert not line.is_visible()
    entry.press("Enter")
    assert entry.get_attribute("aria-pressed") == "true"
    assert line.is_visible()


def test_the_first_screen_answers(opened, results):
    """A sentence, a row for every kind of target and a picture, in which the methods of the sentence are drawn."""
    assert len(texts(opened, ".headline:visible")) == 1
    kinds = [kind.where for kind in results.recommended[""] if kind.where]
    rows = texts(opened, ".use:visible tbody th")
    assert [row.startswith(kind) for row, kind in zip(rows[-len(kinds) :], kinds, strict=True)] == [True] * 2
    (picture,) = opened.locator(".first figure:visible svg").all()
    drawn = json.loads(picture.get_attribute("data-plot"))["names"]
    assert {k.methods[0].label for k in results.recommended[""] if k.methods} <= set(drawn)
    assert picture.bounding_box()["y"] < 800


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out(browser, out, width, scheme):
    viewport = {"width": width, "height": 800}
    page, _ = open_page(browser, out / "index.html", viewport=viewport, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    brightness = "getComputedStyle(document.body).{}.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0)"
    ink, paper = (page.evaluate(brightness.format(p)) for p in ("color", "backgroundColor"))
    assert (ink < 200 and paper > 600) if scheme == "light" else (ink > 600 and paper < 200)
    page.close()


def test_tables_sort_by_keyboard(opened):
    """Best average rank first from the start, the other way round at the first key."""
    third = "#leaderboard-table tbody tr td:nth-child(3)"
    ranks = texts(opened, third)
    shown = [float(r) for r in ranks if r]
    assert shown == sorted(shown)
    assert ranks[len(shown) :] == [""] * (len(ranks) - len(shown))  # nothing comes last
    header = opened.locator("#leaderboard-table thead button").nth(2)
    header.focus()
    opened.keyboard.press("Enter")
    assert [float(r) for r in texts(opened, third) if r] == shown[::-1]
    assert opened.locator("#leaderboard-table th[aria-sort=descending]").count() == 1
    opened.keyboard.press("Space")
    assert [float(r) for r in texts(opened, third) if r] == shown


def test_numbers_sort_as_numbers(opened):
    """By the number shown, or by the one beside it: never as text."""
    header = opened.locator("table[id^=task-] thead th", has_text="score evaluations").first
    table = header.locator("xpath=ancestor::table")
    at = header.evaluate("th => th.cellIndex")
    for down in (False, True):
        header.click(position={"x": 2, "y": 2})  # left of the button
        shown = [t for t in texts(table, f"tbody tr > :nth-child({at + 1})") if t]
        numbers = [float(t.split()[0].replace(",", "")) for t in shown]
        assert len(set(numbers)) > 1
        assert numbers == sorted(numbers, reverse=down)


def test_the_script_ranks_as_pandas_does(opened, out):
    """Over all tasks, and over the tasks of a group."""
    board = pd.read_csv(out / "leaderboard.csv")
    board["place"] = board.groupby("task")["rank"].rank(method="average")
    for group in (None, "curved, 2-D"):
        if group:
            opened.select_option("#group", group)
        rows = board if group is None else board[board["group"] == group]
        expected = rows.groupby("label")["place"].mean()
        shown = column(opened, "average rank")
        assert set(shown) == set(expected.index)
        for label, rank in expected.items():
            assert shown[label] == ("" if np.isnan(rank) else f"{rank:.2f}")


def test_groups_kinds_and_words_filter(opened):
    opened.select_option("#group", "curved, 2-D")
    assert set(column(opened, "plug/in").values()) == {None}
    assert opened.locator("section.task:visible").count() == 1
    opened.select_option("#group", "")
    opened.select_option("#kind", "particles")
    assert set(column(opened, "banana")) == {EVIL, "exact", "initial"}  # anchors stay
    assert column(opened, "average rank")[EVIL] == "1.00"  # among those shown
    opened.select_option("#kind", "")
    opened.fill("#filter", "half")
    assert set(column(opened, "banana")) == {"half"}
    shown = opened.evaluate(
        "Array.from(document.querySelectorAll('main tbody tr:not([hidden])')).filter(r => !r.closest('[data-view][hidden]')).length"
    )
    assert opened.locator("#filtered").inner_text().split(" of ")[0] == str(shown)


def test_what_is_said_follows_the_filters(opened, out):
    """Headline, best methods, ranks and sentences among one kind, recomputed by hand from the table."""
    assert len(texts(opened, ".headline:visible")) == 1
    board = pd.read_csv(out / "leaderboard.csv")
    opened.select_option("#kind", "chains")
    chains = board[(board["kind"] == "chains") & board["rank"].notna() & (board["status"] == "ok")]
    for task, rows in chains.groupby("task"):
        first = rows.sort_values("rank")["label"].iloc[0]  # the other chain has no finite median
        section = opened.locator("section.task", has=opened.locator("h2", has_text=task)).first
        best = section.locator("table").first.locator("tbody tr:not([hidden])", has_text="yes")
        assert best.locator("th").text_content().strip() == first  # one row
        assert best.locator("td").first.text_content().strip() == "1"
        assert section.locator("p.lead:not([hidden]) [data-s]").get_attribute("data-s") == f"task|{task}|chains"
        bold = opened.evaluate(
            """task => { const t = document.getElementById("leaderboard-table");
              const at = Array.from(t.tHead.rows[0].cells).findIndex(c => c.querySelector("bdi").textContent === task);
              return Array.from(t.tBodies[0].rows).filter(r => !r.hidden && r.cells[at].matches(".best.strong")).map(r => r.cells[0].textContent.trim()); }""",
            task,
        )
        assert bold == [first]
    shown = "Array.from(document.querySelectorAll('.first [data-s]')).filter(e => e.offsetParent !== null).map(e => e.dataset.s)"
    assert opened.evaluate(shown) == ["headline|chains", "use||chains", "use|curved, 2-D|chains", "use|other|chains"]
    opened.select_option("#group", "curved, 2-D")
    assert opened.evaluate(shown) == ["kind|curved, 2-D|chains", "use|curved, 2-D|chains"]


def test_pictures_follow_the_kind(opened):
    """Curves of other kinds are gone while a kind is shown, and back after."""
    picture = opened.locator(".first figure:visible svg")
    names = json.loads(picture.get_attribute("data-plot"))["names"]
    shown = "svg => Array.from(svg.querySelectorAll('.pv-line-:not(.off)'), m => Number(m.dataset.line))"
    assert {names[i] for i in picture.evaluate(shown)} == set(names)
    opened.select_option("#kind", "chains")
    chains = {k for k, v in column(opened, "kind").items() if v == "chains"}
    assert {names[i] for i in picture.evaluate(shown)} == set(names) & chains != set()
    opened.select_option("#kind", "")
    assert {names[i] for i in picture.evaluate(shown)} == set(names)


def test_divisions_filter_and_the_search_is_charged(opened):
    """Tuned: the one method with a step size of the grid; its cost with the search, among the costs of all."""
    opened.select_option("#kind", "tuned")
    assert set(column(opened, "banana")) == {"ula", "exact", "initial"}
    assert opened.locator(".headline:visible [data-s]").get_attribute("data-s") == "headline|tuned"
    opened.select_option("#kind", "self-tuning")
    assert not {"ula"} & set(column(opened, "banana"))
    opened.select_option("#kind", "")
    spent = column(opened, "score evaluations")
    opened.select_option("#axis", "with_tuning")
    assert opened.locator("figure[data-axis=score_evaluations]:visible").count() >= 1
    charged = column(opened, "score evaluations with tuning")
    assert {k for k in spent if spent[k] != charged[k]} == {"ula"}
    assert float(charged["ula"].replace(",", "")) > 400_000


def test_the_board_is_sorted_again_when_it_changes(opened):
    opened.select_option("#kind", "chains")
    ranks = [float(v) for v in column(opened, "average rank").values() if v]
    assert ranks == sorted(ranks)
    opened.locator("#leaderboard-table thead button", has_text="banana").click()
    choice = next(o for o in texts(opened, "#metric option") if o.startswith("ksd"))
    opened.select_option("#metric", label=choice)
    values = [float(v) for v in column(opened, "banana").values() if v.replace(".", "").isdigit()]
    assert values == sorted(values)


def test_choices_stay_in_the_address(browser, out):
    page, seen = open_page(browser, out / "index.html")
    page.select_option("#kind", "chains")
    page.fill("#filter", "mala")
    page.locator("#leaderboard-table thead button").first.click()
    page.locator("nav a", has_text="Metrics").click()
    page.wait_for_function("location.hash.startsWith('#metrics?')")  # set in answer to an event of its own
    address = page.evaluate("location.hash")
    again = browser.new_page()
    again.goto(f"{(out / 'index.html').as_uri()}{address}")
    assert again.input_value("#kind") == "chains"
    assert again.input_value("#filter") == "mala"
    assert again.locator("#leaderboard-table th[aria-sort]").inner_text().startswith("method")
    assert set(column(again, "banana")) == {"mala"}
    other = browser.new_page()
    other.goto(f"{(out / 'index.html').as_uri()}#?kind=nonsense&sort=99&metric=%3Cb%3E")
    assert other.input_value("#kind") == ""
    assert seen.trouble == []
    for p in (page, again, other):
        p.close()


def test_metrics_and_budget_axes_switch(opened, out):
    board = pd.read_csv(out / "leaderboard.csv").set_index(["task", "label"])
    choice = next(o for o in texts(opened, "#metric option") if o.startswith("ksd"))
    opened.select_option("#metric", label=choice)
    shown = column(opened, "banana")
    assert float(shown["ula"]) == pytest.approx(board.loc[("banana", "ula"), "ksd"], rel=0.005)
    assert shown["mala"] == "crashed"
    assert shown["half"] == "∞"
    for axis in ("score_evaluations", "iteration", "seconds"):
        opened.select_option("#axis", axis)
        figures = opened.evaluate(
            "Array.from(document.querySelectorAll('figure[data-axis]')).filter(f => !f.hidden).map(f => f.dataset.axis)"
        )
        assert set(figures) == {axis}
    assert float(column(opened, "seconds")["ula"]) == pytest.approx(0.1)


def test_prints_without_controls(opened):
    opened.emulate_media(media="print")
    assert not opened.locator("nav").is_visible()
    assert not opened.locator("#controls").is_visible()
    assert opened.locator("#leaderboard-table").is_visible()


def test_hostile_names_are_shown_and_not_executed(browser, tmp_path):
    image = "\"'><img src=x onerror=alert(2)>"
    names = [EVIL, "</script><script>alert(1)</script>", image, "\u202eright to left", "y" * 10_000]
    curve = make_curve(np.random.default_rng(0), ["sliced_w2", EVIL], 1.0)
    made = [
        make_record(f"{task}{i}", task, "svgd", label=label, reason=label, absent={EVIL: label})
        for task in ("banana", EVIL)
        for i, label in enumerate(names)
    ]
    cells = [(with_values(record, curve), curve, None) for record in made]
    results = write_store(tmp_path, cells, suite={"name": EVIL, "description": f"</title>{EVIL}"})
    path = write_report(results, tmp_path / "report")
    page, seen = open_page(browser, path, viewport={"width": 390, "height": 800})
    assert seen.trouble == []
    assert len(seen.requests) == 1
    assert EVIL in texts(page, "#leaderboard-table tbody th")
    assert page.evaluate("document.scripts.length") == 2
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    loaded = json.loads(page.locator("#numbers").text_content())
    assert EVIL in [m["name"] for m in loaded["metrics"]]
    page.close()


@pytest.mark.slow
def test_five_thousand_cells(browser, tmp_path):
    """Written in a minute of computing; opened and filtered within seconds."""
    generator = np.random.default_rng(0)
    tasks = [*list(registry.tasks())[:25], *(f"task-{i}" for i in range(25))]
    cells = []
    for task in tasks:
        for m in range(100):
            key, label = f"{task}-{m}", "exact" if m == 0 else f"method-{m}"
            if m % 17 == 5:
                crashed = make_record(key, task, "svgd", label=label, status="crashed", reason="lost")
                cells.append((crashed, None, None))
                continue
            metrics = ["sliced_w2", "ksd", "mmd2", "mean_error"]
            curve = make_curve(generator, metrics, generator.lognormal(0, 0.5))
            record = make_record(key, task, "exact" if m == 0 else "svgd", label=label)
            cells.append((with_values(record, curve), curve, generator.normal(size=(7, 100, 2))))
    results = write_store(tmp_path, cells)
    began = time.process_time()
    path = write_report(results, tmp_path / "report")
    assert time.process_time() - began < 60
    page, seen = open_page(browser, path)
    assert page.evaluate("performance.getEntriesByType('navigation')[0].domComplete") < 15_000
    for control, option in (("group", 1), ("metric", 2), ("axis", 1)):
        took = page.evaluate(
            """([id, option]) => {
              const began = performance.now(), select = document.getElementById(id);
              select.selectedIndex = option;
              select.dispatchEvent(new Event("change"));
              document.body.offsetHeight;
              return performance.now() - began;
            }""",
            [control, option],
        )
        assert took < 3000
    assert seen.trouble == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.close()
