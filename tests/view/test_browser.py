"""The page in a real Chromium: what people do with it, hostile texts, accessibility; nothing leaves loopback."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from support.chromium import chromium_path
from support.folders import ended, write_run
from support.page import served_page
from support.stopping import Stops, stopped

from treeforge import views
from treeforge.config import CompressConfig
from treeforge.errors import PolicyUnavailableError
from treeforge.pipeline import resume
from treeforge.problem import make_problem
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, TreeBuilder
from treeforge.verdict import Verdict
from treeforge.view.bundle import write_bundle
from treeforge.view.reader import RunReader

pytestmark = pytest.mark.slow

OPTIONS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
HOSTILE = (
    '</script><script>window.hacked=1</script><img src=x onerror="window.hacked=1"><svg onload=window.hacked=1> '
    "<a href='javascript:window.hacked=1'>x</a> $\\text{<img src=x onerror=window.hacked=1>}$ "
    "$\\href{javascript:window.hacked=1}{y}$ \u202egnp.exe שלום 🎉 &lt;b&gt;"
)


@pytest.fixture(scope="module")
def chromium():
    """A browser; skipped, and said so, where there is none and none can be installed."""
    from playwright.sync_api import sync_playwright

    found = chromium_path()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=OPTIONS)
        yield browser
        browser.close()


def grown():
    """Four ways to begin; the first leads on to a right end by way of a wrong step, and has what pages must show."""
    builder = TreeBuilder()
    first = builder.add(
        0, "Let $x^2 = \\frac{9}{4}$, so\n\\[x = \\sqrt{\\frac{9}{4}}\\]\n", token_count=9, logprob=-1.5
    )
    for text in ("Guess 2.\n", HOSTILE + "\n", "x" * 30_000 + "\n"):
        node = builder.add(0, text, token_count=5)
        builder.rollouts[node] = 3
    wrong = builder.add(first, "Then x is 3 over 4.\n")
    builder.rollouts[wrong] = 6
    right = builder.add(first, "Then x is 3 over 2.\n")
    builder.rollouts[right], builder.rollouts_correct[right] = 5, 5
    for answer, verdict in (("\\frac{3}{2}", Verdict.CORRECT), ("7", Verdict.INCORRECT), (HOSTILE, Verdict.UNPARSABLE)):
        builder.add(
            right, f"The answer is \\boxed{{{answer}}}.", finish=Finish.ANSWERED, answer=answer, verdict=verdict
        )
    builder.add(wrong, "The answer is", finish=Finish.TRUNCATED, verdict=Verdict.NO_ANSWER)
    builder.visits[:] = [20, 12, 3, 3, 3, 6, 8, 1, 1, 1, 1]
    return builder.freeze()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    asked = [
        make_problem("Solve $x^2 = \\frac{9}{4}$ for $x > 0$.", "\\frac{3}{2}", problem_id="solve"),
        make_problem(HOSTILE, HOSTILE, problem_id=HOSTILE[:60]),
        make_problem("כמה הם 3 + 4?", "7", problem_id="hebrew"),
        make_problem("It grows still", "7", problem_id="open"),
    ]
    trees = [ended(grown()), ended(grown(), "exhausted", HOSTILE), ended(grown()), None]
    path = write_run(tmp_path_factory.mktemp("browser") / "run", trees, problems=asked)
    views.label(path)
    views.compress(path, CompressConfig(min_children=2, probability=1.0))
    dataset = path / "dataset" / "data"
    dataset.mkdir(parents=True)
    import polars as pl

    rows = {"prompt": [HOSTILE] * 30, "hard": [True] * 30, "tree_id": [0] * 30, "node_id": list(range(1, 7)) * 5}
    pl.DataFrame(rows).write_parquet(dataset / "train-00000-of-00001.parquet")
    return path


@pytest.fixture(scope="module")
def site(run):
    with served_page(run) as page:
        yield page


@pytest.fixture
def visit(chromium, site):
    """Open a place of the page. In the end: no complaint of the browser, no request elsewhere, no script of others."""
    contexts, complaints, requests, expected = [], [], [], []

    def open_page(place="/", *, width=1280, height=860, scheme="light", address=None, offline=False, complaint=None):
        expected.append(complaint)
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=offline
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: complaints.append("dialog") or dialog.dismiss())
        page.on("request", lambda request: requests.append(request.url))
        page.goto((address or site.address) + "#" + place)
        page.wait_for_selector("h1")
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("window.hacked") is None
            assert (
                page.evaluate("document.querySelectorAll('img, iframe, object, embed, a[href^=javascript]').length")
                == 0
            )
        context.close()
    assert [text for text in complaints if not any(known and known in text for known in expected)] == []
    assert all(url.startswith(("http://127.0.0.1:", "file:///")) for url in requests), requests


def until(page, condition):
    """Wait; as a function, since an expression would be evaluated by the page, which its policy forbids."""
    page.wait_for_function(f"() => {condition}")


def shows_pills(page, *nodes):
    found = "[...document.querySelectorAll('.pill')].map(pill => +pill.dataset.node).sort((a, b) => a - b).join()"
    until(page, f"{found} === '{','.join(map(str, nodes))}'")


def selected(page):
    return page.evaluate("Number(document.querySelector('.pill.selected')?.dataset.node ?? -1)")


def shows_node(page, node):
    name = f"Node {node}" if node else "Root"
    until(page, f"document.querySelector('.panel h2')?.textContent === '{name}'")


def test_the_list_is_searched_filtered_and_sorted(visit):
    page = visit()
    page.wait_for_selector(".row >> nth=3")
    assert page.locator(".found").text_content() == "4 problems"
    assert page.locator(".row math mfrac").count() >= 1
    page.keyboard.press("/")
    page.keyboard.type("SOLVE")
    until(page, "document.querySelector('.found').textContent === '1 of 4 problems'")
    assert page.url.endswith("#/?text=SOLVE")
    page.reload()
    until(page, "document.querySelectorAll('.row').length === 1")
    page.fill("input[type=search]", "")
    page.get_by_label("Status", exact=True).select_option("exhausted")
    until(page, "document.querySelector('.found').textContent === '1 of 4 problems'")
    page.get_by_label("Status", exact=True).select_option("")
    page.get_by_label("Sort by").select_option("nodes")
    page.get_by_role("button", name="Descending").click()
    until(page, "document.querySelectorAll('.row-number')[3]?.textContent === '3'")
    page.locator(".row a >> nth=0").click()
    page.wait_for_selector(".pill")


def test_many_problems_are_a_window_of_rows(chromium, tmp_path):
    count = 20_000
    asked = [make_problem(f"Question {n}", "7", problem_id=f"p{n}") for n in range(count)]
    with served_page(write_run(tmp_path / "run", [None] * count, problems=asked, block=1_000)) as many:
        page = chromium.new_page()
        page.goto(many.address)
        page.wait_for_selector(".row a")
        page.evaluate("rows = document.querySelector('.rows'); rows.scrollTop = rows.scrollHeight")
        page.wait_for_selector(f"a[href='#/problem/{count - 1}']")
        assert page.locator(".row").count() < 60
        page.fill("input[type=search]", "question 19999")
        until(page, "document.querySelectorAll('.row').length === 1")
        page.close()


def test_a_node_is_read_with_its_evidence(visit):
    page = visit("/problem/0")
    shows_node(page, 0)
    page.locator(".pill[data-node='1']").click()
    shows_node(page, 1)
    panel = page.locator(".panel")
    assert panel.locator("section .prose math mfrac").count() >= 2
    assert panel.locator(".facts").text_content().count("nats") == 1
    page.locator(".pill[data-node='6']").click()
    shows_node(page, 6)
    panel.locator(".prefix math").first.wait_for()
    assert panel.get_by_text("5 of 5 right").count() == 1
    panel.locator(".rollout summary").first.click()
    until(page, "document.querySelector('.rollout[open] .route').textContent.includes('Checked by route')")
    panel.get_by_text("Exact prompt").click()
    panel.locator(".prompt pre").first.wait_for()
    assert "Let $x^2" in panel.locator(".prompt pre").text_content()
    assert "3 over 2" not in panel.locator(".prompt pre").text_content()
    panel.get_by_role("button", name="with this step").click()
    until(page, "document.querySelector('.prompt pre').textContent.includes('3 over 2')")
    page.locator(".prefix-value").first.click()
    shows_node(page, 1)


def test_a_permalink_leads_to_its_node(visit):
    page = visit("/problem/0")
    page.locator(".pill[data-node='6']").click()
    until(page, "location.hash === '#/problem/0?node=6'")
    page.reload()
    shows_node(page, 6)
    assert selected(page) == 6
    page.evaluate("location.hash = '#/problem/0?node=7'")
    shows_node(page, 7)
    page.evaluate("location.hash = '#/problem/0?node=999'")
    until(page, "document.querySelector('.told').textContent.includes('There is no node 999')")


def test_a_problem_that_is_not_there_is_said_not_to_be(visit):
    page = visit(complaint="404 (Not Found)")
    page.evaluate("location.hash = '#/problem/77'")
    page.wait_for_selector("[role=alert] >> text=the run has no problem 77")


def test_the_keyboard_does_it_all(visit):
    page = visit("/problem/0")
    shows_node(page, 0)
    page.locator(".canvas").focus()
    page.keyboard.press("ArrowRight")
    shows_node(page, 1)
    page.keyboard.press("ArrowDown")
    shows_node(page, 2)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press(" ")
    until(page, "!document.querySelector('[data-node=\"5\"]')")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("[data-node='5']")
    page.keyboard.press("e")
    until(page, "document.querySelector('.pill.selected').textContent.includes('①')")
    page.keyboard.press("b")
    page.wait_for_selector(".edge.best")
    shows_node(page, 7)
    assert page.locator(".pill.on-best").count() == 4
    page.keyboard.press("o")
    page.wait_for_selector(".toolbar >> text=Tree")
    page.keyboard.press("?")
    assert page.locator("dialog.help").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("3 over 4")
    shows_node(page, 5)
    page.keyboard.press("Escape")
    page.keyboard.press("]")
    until(page, "location.hash.startsWith('#/problem/1')")


def test_the_search_is_replayed(visit):
    page = visit("/problem/0")
    until(page, "document.querySelectorAll('.pill').length === 11")
    page.locator(".replay-range").fill("4")
    shows_pills(page, 0, 1, 2, 3, 4)
    assert page.locator(".replay-text").text_content() == "node 4 of 10"
    until(page, "location.hash.includes('at=4')")
    page.get_by_role("button", name="Play the search").click()
    until(page, "document.querySelectorAll('.pill').length === 11")
    assert page.locator(".replay-text").text_content() == "all 11 nodes"


def test_before_and_after_hnc(visit):
    page = visit("/problem/0?node=1")
    shows_node(page, 1)
    assert page.locator(".pill.merged").count() == 0
    page.get_by_label("Before or after HNC").select_option("1")
    page.locator(".pill.merged").first.wait_for()
    page.locator(".pill.merged").first.click()
    page.wait_for_selector(".panel >> text=merged from")
    page.get_by_label("Show").select_option("merged")
    until(page, "document.querySelector('.told').textContent.includes('of 11 nodes')")
    page.keyboard.press("Escape")
    page.keyboard.press("m")
    until(page, "!document.querySelector('.pill.merged')")
    assert page.get_by_label("Before or after HNC").input_value() == "0"


def test_filters_keep_what_leads_to_them(visit):
    page = visit("/problem/0")
    page.get_by_label("Show").select_option("correct")
    shows_pills(page, 0, 1, 6, 7)
    page.get_by_label("Show").select_option("truncated")
    shows_pills(page, 0, 1, 5, 10)
    page.get_by_label("Find text in the tree").fill("guess")
    until(page, "document.querySelector('.told').textContent === '1 node has it'")
    shows_pills(page, 0, 2)


def test_a_long_step_is_loaded_on_demand(visit):
    page = visit("/problem/0?node=4")
    shows_node(page, 4)
    page.get_by_role("button", name="Show all 30,001 characters").click()
    until(page, "document.querySelector('pre.whole')?.textContent.length === 30001")


def test_hostile_texts_are_shown_as_they_are(visit):
    """The checks are those of `visit`; here every place that shows such a text is visited."""
    page = visit()
    page.wait_for_selector(".row >> text=window.hacked")
    page = visit("/problem/1?node=3")
    shows_node(page, 3)
    assert "<script>window.hacked=1</script>" in page.locator(".panel section .prose").first.text_content()
    assert "<U+202E>gnp.exe" in page.locator(".panel section .prose").first.text_content()
    assert page.locator(".panel section .prose").first.get_attribute("dir") == "auto"
    page.evaluate("location.hash = '#/problem/1?node=9'")
    shows_node(page, 9)
    page.get_by_text("Exact prompt").click()
    page.locator(".prompt pre").first.wait_for()
    page.evaluate("location.hash = '#/dataset'")
    page.wait_for_selector(".rows-table >> text=window.hacked")


def test_a_tree_that_grows_is_followed_until_it_has_ended(visit, tmp_path):
    def apart(call):  # playwright's event loop runs in this thread
        with ThreadPoolExecutor() as pool:
            return pool.submit(call).result()

    def go_on(**parts):
        with suppress(PolicyUnavailableError):
            resume(path, **parts)

    path = apart(lambda: stopped(tmp_path / "run", 9))
    with served_page(path) as growing:
        page = visit("/problem/0?node=1", address=growing.address)
        page.wait_for_selector(".pill >> nth=3")
        assert "9 requests" in page.locator(".banner").text_content()
        shows_node(page, 1)
        apart(lambda: go_on(policy=Stops(5)))
        until(page, "document.querySelector('.banner')?.textContent.includes('14 requests')")
        assert selected(page) == 1
        apart(go_on)
        until(page, "!document.querySelector('.banner') && document.querySelector('h1 .status-done')")
        assert selected(page) == 1
        page.get_by_role("link", name="Live").click()
        until(page, "document.querySelector('.live .chip')?.textContent === 'finished'")


def test_training_rows_lead_to_their_nodes(visit):
    page = visit("/dataset")
    page.wait_for_selector(".rows-table tbody tr >> nth=19")
    assert page.locator(".histogram rect").count() == 10
    page.get_by_role("button", name="Next").click()
    until(page, "document.querySelectorAll('.rows-table tbody tr').length === 10")
    page.locator(".rows-table a >> nth=2").click()
    shows_node(page, 5)


def test_a_run_that_goes_on_is_followed(visit, run):
    page = visit("/live")
    page.wait_for_selector(".summary >> text=stopped")
    line = f'{{"time": {time.time()}, "seconds": 9.0, "tokens_per_second": 1234.0, "trees": 4, "finished": 3}}\n'
    (run / "logs" / "metrics.jsonl").write_text(line)
    page.wait_for_selector(".tile >> text=1,234")
    with RunFolder.open(run) as growing:
        growing.lock()
        page.wait_for_selector(".summary >> text=going")
    page.wait_for_selector(".summary >> text=stopped")
    page.evaluate("location.hash = '#/problem/3'")
    page.wait_for_selector("text=This tree has not ended. So far: 0 requests")


def test_the_bundle_needs_no_server(visit, run, tmp_path):
    write_bundle(RunReader(run), tmp_path / "page.html")
    page = visit(address=(tmp_path / "page.html").as_uri(), offline=True)
    page.wait_for_selector(".row >> nth=2")
    page.fill("input[type=search]", "solve")
    until(page, "document.querySelectorAll('.row').length === 1")
    page.locator(".row a").click()
    page.locator(".pill[data-node='6']").click()
    shows_node(page, 6)
    page.locator(".prefix math").first.wait_for()
    page.locator(".rollout summary").first.click()
    until(page, "document.querySelector('.rollout[open] .route').textContent.includes('Checked by route')")
    page.get_by_text("Exact prompt").click()
    until(page, "document.querySelector('.prompt pre')?.textContent.includes('Let $x^2')")
    page.get_by_label("Before or after HNC").select_option("1")
    page.locator(".pill.merged").first.wait_for()
    page.evaluate("location.hash = '#/problem/1?node=3'")
    shows_node(page, 3)
    page.evaluate("location.hash = '#/dataset'")
    page.wait_for_selector(".rows-table >> text=window.hacked")


PLACES = (
    ("/", ".row a"),
    ("/problem/0?node=6", ".panel .facts"),
    ("/problem/0?node=9&pass=1", ".panel .facts"),
    ("/dataset", ".rows-table td"),
    ("/live", ".reading p"),
    ("/problem/3", ".growing"),
)


@pytest.mark.parametrize(
    ("width", "scheme", "places"),
    [(1280, "light", PLACES), (390, "dark", PLACES[:4]), (1280, "dark", PLACES[2:3]), (390, "light", PLACES[2:3])],
)
def test_axe_finds_no_serious_fault(visit, width, scheme, places):
    from axe_playwright_python.sync_playwright import Axe

    found = []
    page = visit(width=width, scheme=scheme)
    for place, ready in places:
        page.evaluate("place => { location.hash = place }", place)
        page.wait_for_selector(ready)
        page.wait_for_timeout(150)
        found += [
            (place, fault["id"], [node["html"][:160] for node in fault["nodes"][:3]])
            for fault in Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
            if fault["impact"] in ("serious", "critical")
        ]
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, (place, overflow)
    assert found == []


def test_a_server_that_is_gone_is_said_to_be(chromium, run):
    with served_page(run) as gone:
        page = chromium.new_page()
        page.goto(gone.address)
        page.wait_for_selector(".row a")
    page.fill("input[type=search]", "x")
    page.wait_for_selector("[role=alert] >> text=The server does not answer")
    page.close()
