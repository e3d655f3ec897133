"""Tests of a study's page in a real browser: from a file, on a phone, in dark mode, and in a frame as in MLflow."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from sweeps.show import tables
from sweeps.show.page import report
from sweeps.show.trials import TrialFiles
from sweeps.trial.job import Outcome, State
from tests.show.pages import STUDIES, search
from tests.show.records import with_trials
from tests.tracking.test_dashboard import BROWSER_ARGUMENTS, chromium

Pages = Callable[[str], Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=BROWSER_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the path of each study's page."""
    folder = tmp_path_factory.mktemp("pages")
    return {name: report.write(make(folder / name)) for name, make in STUDIES.items()}


@pytest.fixture(scope="module")
def pages(browser: Browser, files: dict[str, Path]) -> Iterator[Pages]:
    """Yield a function that shows the page of a study; at the end, check that no script failed on any page.

    Each page is opened once, because plotly's script takes a second.
    """
    troubles: list[str] = []
    opened = dict[str, Page]()

    def show(name: str) -> Page:
        if name not in opened:
            page = opened[name] = context.new_page()
            page.on("pageerror", lambda error: troubles.append(str(error)))
            page.on(
                "console",
                lambda message: troubles.append(message.text) if message.type in ("error", "warning") else None,
            )
            page.goto(f"file://{files[name]}", wait_until="commit")
        opened[name].bring_to_front()  # because browsers draw hidden pages rarely
        return opened[name]

    with browser.new_context(viewport={"width": 1300, "height": 900}) as context:
        yield show
    assert not troubles


def section(page: Page, title: str) -> Locator:
    return page.locator("section", has=page.get_by_role("heading", name=title, exact=True))


def figure(page: Page, title: str) -> Locator:
    """Return the section of a figure after it is drawn, which happens near the visible part of the page."""
    drawn = section(page, title)
    drawn.scroll_into_view_if_needed()
    drawn.locator(".main-svg").first.wait_for()
    return drawn


def points(figure: Locator) -> Locator:
    return figure.locator(".scatterlayer .points path.point")


@pytest.mark.long
def test_search_page_shows_all_trials(pages: Pages) -> None:
    page = pages("search")
    expect(page.locator(".counts li")).to_have_text(
        ["● 6 completed", "▼ 9 pruned", "✖ 3 failed (2 failed, 1 diverged)", "○ 2 running", "□ 5 queued"]
    )
    expect(section(page, "Reproduce")).to_contain_text("sweepyard best search")
    expect(page.locator(".reasons > li")).to_have_count(2)
    expect(page.locator(".reasons > li").first).to_contain_text("2 failed: OSError: block 4 of '<data>'")
    assert points(figure(page, "History")).count() == 20
    assert points(figure(page, "Parameters and objective")).count() == 20 * 4
    curves = figure(page, "Learning curves")
    assert curves.locator(".scatterlayer path.js-line").count() == 19  # because the diverged trial has no curve
    two = figure(page, "Two parameters")
    assert points(two).count() == 20
    assert two.locator(".contourlayer path").count() > 3
    expect(two.locator(".xtitle")).to_have_text("lr (log)")
    assert points(figure(page, "Slices").locator(".figure").nth(0)).count() == 20
    expect(section(page, "Slices")).to_contain_text("from 10 completed trials on; there are 6.")


@pytest.mark.long
def test_grid_page_shows_cells(pages: Pages) -> None:
    page = pages("grid")
    cells = figure(page, "Two parameters")
    expect(cells.locator(".heatmap-label text")).to_have_count(11)
    assert points(cells).count() == 1  # the trial without memory has a cross in the cell
    expect(cells.locator(".xaxislayer-above .xtick text")).to_have_text(["0.001", "0.003", "0.01", "0.03"])


@pytest.mark.long
def test_two_objectives_show_the_front(pages: Pages) -> None:
    page = pages("two_objectives")
    answer = section(page, "Best trials")
    expect(answer).to_contain_text("Not dominated in accuracy (maximized), seconds (minimized)")
    front = figure(page, "Pareto front")
    assert points(front).count() == 11
    named = json.loads(page.evaluate("JSON.stringify(document.querySelector('.figure').data.map(t => t.customdata))"))
    assert {int(text) for text in re.findall(r"trial (\d+)", answer.inner_text())} == {*named[-1]}


def test_failed_study_shows_errors_first(pages: Pages) -> None:
    page = pages("all_failed")
    errors = section(page, "Every trial failed")
    expect(errors).to_be_in_viewport(ratio=1)
    expect(errors.locator("li").first).to_contain_text("5 failed: FileNotFoundError: No such file: '/data/mnist.npz'")
    expect(errors.locator("li").first.locator("a")).to_have_text([f"trial {number}" for number in range(5)])
    expect(errors.locator("pre").first).to_contain_text("Traceback")
    assert page.locator(".figure").count() == 0


def test_click_or_key_opens_a_trial(pages: Pages) -> None:
    page = pages("search")
    panel = page.locator("#trial")
    drawn = figure(page, "History")
    x, y = page.evaluate(
        """() => { const box = document.querySelector("[aria-label=History]"), at = box.getBoundingClientRect();
        const {xaxis, yaxis} = box._fullLayout;
        const chosen = box.data.find(trace => (trace.customdata || []).includes(4)), i = chosen.customdata.indexOf(4);
        return [at.x + xaxis._offset + xaxis.d2p(4), at.y + yaxis._offset + yaxis.d2p(chosen.y[i])]; }"""
    )
    page.mouse.move(x, y)
    expect(drawn.locator(".hoverlayer")).to_contain_text("OSError: block 4 of '<data>' cannot be read")
    page.mouse.click(x, y)
    expect(panel.get_by_role("heading", name="trial 4: failed")).to_be_visible()
    expect(panel.locator(".log")).to_contain_text("epoch 1: accuracy 0.5")
    expect(panel.locator(".log")).to_contain_text("<b>&")
    expect(panel.locator("dl").first).to_contain_text("optimizer")
    expect(panel.locator(".js-line")).to_have_count(1)
    panel.locator("summary").click()
    expect(panel.locator(".config")).to_contain_text("db: ${oc.env:DB}")
    panel.get_by_label("metric").select_option("loss")
    expect(panel.locator(".js-line")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()

    row = page.locator("tr[data-trial='13']")
    row.locator("a").focus()
    page.keyboard.press("Enter")
    expect(panel.get_by_role("heading", name="trial 13: diverged")).to_be_focused()
    expect(row).to_have_class("chosen")
    page.reload()
    expect(panel.get_by_role("heading", name="trial 13: diverged")).to_be_visible()


@pytest.mark.long
def test_tables_are_sorted_by_a_click(pages: Pages) -> None:
    page = pages("search")
    table = section(page, "Trials").locator("table")
    numbers = table.locator("tbody td:first-child")
    for column, key in (("trial", float), ("optimizer", str), ("lr", float)):
        head = table.get_by_role("button", name=column, exact=True)
        at = table.locator("th").all_inner_texts().index(head.inner_text())
        for order in ("ascending", "descending"):
            head.click()
            expect(table.locator("th").nth(at)).to_have_attribute("aria-sort", order)
            values = [key(text) for text in table.locator(f"tbody td:nth-child({at + 1})").all_inner_texts()]
            assert values == sorted(values, reverse=order == "descending")
    order_before = numbers.all_inner_texts()
    page.reload()
    assert numbers.all_inner_texts() == order_before
    table.get_by_role("button", name="accuracy", exact=True).click()
    has_value = [bool(text) for text in table.locator("tbody td:nth-child(5)").all_inner_texts()]
    assert has_value == [True] * 8 + [False] * 12  # six completed trials, and two running trials with their last value


@pytest.mark.long
def test_table_is_filtered_and_its_columns_are_chosen(pages: Pages) -> None:
    page = pages("search")
    trials = section(page, "Trials")
    rows = trials.locator("tbody tr:visible")
    choice = trials.get_by_label("filter of trials")
    for words, count in (
        ("", 20),
        ("state=failed", 2),
        ("lr>0.01", 7),
        ("lr>0.01 adam", 2),
        ("optimizer!=sgd", 9),
        ("zz", 0),
    ):
        choice.fill(words)
        expect(rows).to_have_count(count)
    expect(trials.get_by_role("status")).to_have_text("0 of 20")
    choice.fill("")
    trials.get_by_text("columns").click()
    trials.get_by_label("error").uncheck()
    expect(trials.get_by_role("button", name="error")).to_be_hidden()
    page.reload()
    expect(section(page, "Trials").get_by_role("button", name="error")).to_be_hidden()
    trials.get_by_text("columns").click()
    trials.get_by_label("error").check()


@pytest.mark.long
def test_trials_are_selected_along_an_axis(pages: Pages) -> None:
    page = pages("search")
    drawn = figure(page, "Parameters and objective")
    rows, status = section(page, "Trials").locator("tbody tr:visible"), section(page, "Trials").get_by_role("status")
    box = drawn.locator(".nsewdrag").first.bounding_box()
    assert box

    def drag(left: float, right: float, top: float, bottom: float) -> None:
        """Move the pressed mouse over a part of the figure, in fractions of its width and height."""
        for i, (across, down) in enumerate([(left, top), (right, bottom)]):
            page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"], steps=5)
            page.mouse.down() if i == 0 else page.mouse.up()

    rates = [float(text) for text in rows.locator("td:nth-child(2)").all_inner_texts()]
    high = [rate for rate in rates if rate > 10**-2.5]
    middle = (1.06 - 0.5) / 1.26  # because the figure shows positions from -0.2 to 1.06
    drag(0.001, 0.05, 0.02, middle)  # the upper half of the first axis, lr from 0.0001 to 0.1
    expect(status).to_have_text(f"{len(high)} of 20")
    assert [float(text) for text in rows.locator("td:nth-child(2)").all_inner_texts()] == high
    drag(0.30, 0.36, 0.02, 0.2)  # and the upper part of the second axis, batch_size
    expect(rows).not_to_have_count(len(high))
    assert {*rows.locator("td:nth-child(3)").all_inner_texts()} == {"128"}
    page.mouse.dblclick(box["x"] + 0.2 * box["width"], box["y"] + 0.5 * box["height"])
    expect(rows).to_have_count(20)


@pytest.mark.long
def test_trials_are_shown_side_by_side(pages: Pages) -> None:
    page = pages("search")
    page.evaluate("sessionStorage.clear()")  # because another test may have sorted the table
    page.reload()
    trials, panel = section(page, "Trials"), page.locator("#trial")
    button = trials.get_by_role("button", name="side by side")
    expect(button).to_be_disabled()
    for number in (5, 2, 4):
        trials.get_by_label(f"select trial {number}", exact=True).check()
    button.click()
    expect(panel.get_by_role("heading", name="3 trials side by side")).to_be_focused()
    expect(panel.locator("th")).to_have_text(["", "trial 5: completed", "trial 2: completed", "trial 4: failed"])
    expect(panel.locator("tr.differs").filter(has_text="optimizer")).to_have_text("optimizerrmspropadamrmsprop")
    expect(panel.locator(".scatterlayer .js-line")).to_have_count(3)
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    page.reload()


@pytest.mark.long
def test_curves_of_another_metric_over_time(pages: Pages) -> None:
    page = pages("grid")
    curves = figure(page, "Learning curves")
    box = curves.locator(".figure")
    ends = """box => box.data.filter(({mode}) => mode === "lines").map(({x, y}) => [x.at(-1), y.at(-1)])"""
    expect(box.locator(".js-line").first).to_be_visible()
    before = box.evaluate(ends)
    curves.get_by_label("metrics of the curves").select_option("loss")
    losses = box.evaluate(ends)
    assert [x for x, _ in losses] == [x for x, _ in before]
    assert [y for _, y in losses] == pytest.approx([2 * (1 - y) for _, y in before], abs=1e-4)
    curves.get_by_label("axis of the curves").select_option("seconds")
    assert [x for x, _ in box.evaluate(ends)] == [x for x, _ in before]  # because an epoch takes a second
    expect(box.locator(".xtitle")).to_have_text("seconds")
    page.reload()


@pytest.mark.long
def test_page_fits_a_phone(browser: Browser, pages: Pages, files: dict[str, Path]) -> None:
    def check_width(page: Page) -> None:
        for box in page.locator("section").all():
            box.scroll_into_view_if_needed()
        page.locator("tr[data-trial] a").first.click()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.keyboard.press("Escape")

    for name in ("grid", "two_objectives", "all_failed"):
        page = pages(name)
        page.set_viewport_size({"width": 390, "height": 844})
        check_width(page)
        page.set_viewport_size({"width": 1300, "height": 900})
    with browser.new_context(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True) as context:
        page = context.new_page()
        page.goto(f"file://{files['search']}")
        check_width(page)
        drawn = figure(page, "History").locator(".main-svg").first
        assert 300 < (drawn.bounding_box() or {"width": 0})["width"] <= 390


@pytest.mark.long
def test_page_is_dark_in_dark_mode(pages: Pages) -> None:
    page = pages("search")
    words = figure(page, "History").locator(".xtitle")
    expect(words).to_have_css("fill", "rgb(27, 34, 42)")
    page.emulate_media(color_scheme="dark")
    expect(words).to_have_css("fill", "rgb(228, 232, 237)")
    expect(page.locator("section").first).to_have_css("background-color", "rgb(24, 29, 35)")
    page.emulate_media(color_scheme="light")


@pytest.mark.long
def test_page_works_in_a_sandboxed_frame_and_does_not_reload(browser: Browser, tmp_path: Path) -> None:
    """Open the page in a sandboxed frame, as MLflow shows an artifact."""
    summary = search(tmp_path)
    report.write_live(summary, TrialFiles(summary.objective), again_s=0.2)
    old = re.sub(r'"written":\d+', '"written":0', (tmp_path / tables.HTML).read_text())
    alone = json.dumps(old).replace("<", "\\u003c")
    frame = """<iframe id="f" sandbox="allow-scripts" style="width:100%;height:850px"></iframe>"""
    set_source = 'f.src = URL.createObjectURL(new Blob([page], {type: "text/html"}))'
    (tmp_path / "mlflow.html").write_text(f"<!doctype html>{frame}<script>const page = {alone}; {set_source}</script>")
    with browser.new_page() as page:
        page.goto(f"file://{tmp_path}/mlflow.html")
        inside = page.frame_locator("#f")
        expect(inside.locator("#written")).to_contain_text("reopen the page for a newer one")
        page.wait_for_timeout(1300)
        expect(inside.locator("#written")).not_to_contain_text("not updated")
        expect(inside.locator("#pause")).to_be_hidden()
        shown = inside.locator("section", has=inside.get_by_role("heading", name="History", exact=True))
        shown.scroll_into_view_if_needed()
        expect(shown.locator(".scatterlayer .points path.point")).to_have_count(20)
        inside.locator("tr[data-trial='4'] a").click()
        expect(inside.get_by_role("heading", name="trial 4: failed")).to_be_visible()


def test_figures_have_no_share_button(pages: Pages) -> None:
    buttons = figure(pages("search"), "History").locator(".modebar-btn")
    expect(buttons.first).to_be_attached()
    titles = buttons.evaluate_all("all => all.map(button => button.dataset.title)")
    assert not [title for title in titles if "hare" in title]


def test_camera_saves_an_svg_named_by_study_and_figure(pages: Pages) -> None:
    page = pages("search")
    history = figure(page, "History")
    history.hover()
    with page.expect_download() as download:
        history.locator(".modebar-btn").first.click()
    assert download.value.suggested_filename == "search_history.svg"
    assert download.value.path().read_text().startswith("<svg")


@pytest.mark.long
def test_old_browser_shows_an_error_and_the_trials(files: dict[str, Path], browser: Browser) -> None:
    with browser.new_page() as page:
        page.add_init_script("delete window.DecompressionStream")
        page.goto(f"file://{files['search']}")
        expect(page.locator(".warning").last).to_contain_text("DecompressionStream is not defined")
        page.locator("tr[data-trial='4'] a").click()
        expect(page.locator("#trial .log")).to_contain_text("epoch 1")


@pytest.mark.long
def test_page_refreshes_only_while_the_study_runs(browser: Browser, tmp_path: Path) -> None:
    summary = search(tmp_path)
    trials = TrialFiles(summary.objective)
    report.write_live(summary, trials, again_s=0.2)
    with browser.new_page() as page:
        page.goto(f"file://{tmp_path}/{tables.HTML}")
        expect(page.locator(".status b")).to_have_text("running")
        end = Outcome(State.COMPLETED, objective=[0.5])
        summary = with_trials(summary, summary.rows[-1].with_end(end))
        report.write_live(summary, trials, again_s=0.2)
        expect(page.locator(".counts")).to_contain_text("1 running")
        page.locator("#pause:visible").dispatch_event("click")  # because a use of the pointer pauses the page, too
        expect(page.get_by_role("button", name="resume")).to_be_visible()
        summary = with_trials(summary, summary.rows[-2].with_end(end))
        report.write_live(replace(summary, planned=len(summary.rows)), trials, again_s=0)
        page.wait_for_timeout(1300)
        expect(page.locator(".status b")).to_have_text("running")
        page.reload()
        expect(page.locator(".status b")).to_have_text("finished")
        page.evaluate("window.same = true")
        page.wait_for_timeout(1300)
        assert page.evaluate("window.same") is True
