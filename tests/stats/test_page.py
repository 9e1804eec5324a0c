"""The page of statistics: whole, alone, deaf to what texts say, and drawn by a real browser."""

import json
import re
import sys
from html.parser import HTMLParser

import pytest
from support.chromium import chromium_path
from support.folders import ended, write_run
from support.runs import problems, scripted_config

from treeforge import views
from treeforge.cli import invoke
from treeforge.config import Machine
from treeforge.pipeline import run as run_pipeline
from treeforge.problem import make_problem
from treeforge.tree import Finish, TreeBuilder
from treeforge.verdict import Verdict

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u202e@@CHARTS@@ $`$ <!--"


class Page(HTMLParser):
    """A page's elements and the texts of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self._inside = [], [], ""
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
        else:
            self.text += data


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "run"
    machine = Machine(metrics_seconds=0.01)
    run_pipeline(problems(6), path, scripted_config(world={"latency": 0.02}, machine=machine))
    return path


def hostile_run(path):
    """Everything that a text can stand in on the page is hostile."""
    builder = TreeBuilder()
    for _ in range(5):
        builder.add(0, HOSTILE, finish=Finish.ANSWERED, answer=HOSTILE, verdict=Verdict.INCORRECT)
    right = TreeBuilder()
    right.add(0, HOSTILE, finish=Finish.ANSWERED, answer=HOSTILE, verdict=Verdict.CORRECT)
    some = [builder.freeze(), right.freeze(), ended(TreeBuilder().freeze(), "failed", HOSTILE)]
    named = [make_problem(f"{HOSTILE}{n}", HOSTILE, problem_id=f"{n}{HOSTILE}") for n in range(3)]
    write_run(path, some, problems=named)
    views.label(path)
    return path


def written(path, *runs):
    assert invoke(["stats", *map(str, runs), "--html", str(path)]) == 0
    return path.read_text(encoding="utf-8")


def charts(page):
    return json.loads(next(text for text in page.scripts if text.startswith("{")))


def test_everything_is_inside(finished, tmp_path, capsys):
    text = written(tmp_path / "page.html", finished)
    assert re.fullmatch(r".*page\.html: 0\.\d MB\n", capsys.readouterr().out)
    page = Page(text)
    assert any(len(script) > 500_000 and "vegaEmbed" in script for script in page.scripts)
    assert [(tag, key) for tag, attrs in page.elements for key in attrs if key in ("src", "href", "srcset")] == []
    assert not re.search(r"@import|url\(", text.split("<style>")[1].split("</style>")[0])
    policy = next(attrs["content"] for tag, attrs in page.elements if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    plots = charts(page)
    assert list(plots) == [attrs["id"] for _, attrs in page.elements if attrs.get("class") == "plot"]
    assert all(spec["data"]["values"] for spec in plots.values())
    assert len(plots) >= 12


@pytest.mark.slow
def test_every_plot_says_what_to_look_for(finished, tmp_path):
    text = written(tmp_path / "page.html", finished)
    said = re.findall(r"<figcaption><h3>(.*?)</h3>(.*?)</figcaption>", text)
    assert len(said) == text.count("<figure>")
    assert all(len(words) > 60 for _, words in said)


def test_hostile_texts_are_only_texts(tmp_path):
    path = hostile_run(tmp_path / HOSTILE.replace("/", "")[:40])
    text = written(tmp_path / "page.html", path, hostile_run(tmp_path / "other"))
    page = Page(text)
    ours = [(tag, sorted(attrs)) for tag, attrs in page.elements if tag in ("script", "img", "svg")]
    assert ours == [("script", ["id", "type"]), ("script", []), ("script", [])]
    assert not [key for _, attrs in page.elements for key in attrs if key.startswith("on")]
    assert "window.hacked=1" in page.text  # shown, as text
    assert "\u202e" not in text
    assert "@@CHARTS@@" in page.text
    assert "<!--" not in text.split('id="charts">')[1].split("</script>")[0]
    assert charts(page)


@pytest.mark.slow
def test_runs_side_by_side(finished, tmp_path):
    other = tmp_path / "other"
    run_pipeline(problems(6), other, scripted_config(budget={"simulations": 4}))
    page = Page(written(tmp_path / "page.html", finished, other))
    assert "Settings that differ" in page.text
    assert "budget.simulations" in page.text
    assert any(attrs.get("class") == "differs" for _, attrs in page.elements)
    assert {row["run"] for spec in charts(page).values() for row in spec["data"]["values"]} == {"run", "other"}


@pytest.mark.slow
def test_a_run_without_trees_has_a_page(tmp_path):
    page = Page(written(tmp_path / "page.html", write_run(tmp_path / "run", [None])))
    assert len(charts(page)) == 1


@pytest.mark.slow
def test_with_json_the_page_is_written_too(finished, tmp_path, capsys):
    assert invoke(["stats", str(finished), "--json", "--html", str(tmp_path / "page.html")]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["trees"]["trees"] == 6
    assert "page.html" in captured.err
    assert (tmp_path / "page.html").exists()


@pytest.mark.slow
def test_places_that_cannot_be_written(finished, tmp_path, capsys):
    assert invoke(["stats", str(finished), "--html", str(tmp_path)]) == 2
    assert f"{tmp_path}: that is a folder" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert invoke(["stats", str(finished), "--html", str(tmp_path / "file" / "page.html")]) == 4
    assert "page.html cannot be written" in capsys.readouterr().err
    (tmp_path / "page.html").write_text("old")
    assert invoke(["stats", str(tmp_path), "--html", str(tmp_path / "page.html")]) == 2
    assert (tmp_path / "page.html").read_text() == "old"


def test_the_page_never_goes_over_the_runs_own_files(finished, tmp_path, capsys):
    file = finished / "manifest.json"
    before = file.read_bytes()
    assert invoke(["stats", str(finished), "--html", str(file)]) == 2
    assert f"--html: {file} is a file of the run" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_without_the_extra_it_is_named(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert invoke(["stats", str(finished), "--html", str(tmp_path / "page.html")]) == 2
    assert "treeforge[report]" in capsys.readouterr().err
    assert invoke(["stats", str(finished)]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_every_plot_and_asks_for_nothing(finished, tmp_path, scheme):
    from playwright.sync_api import sync_playwright

    found = chromium_path()
    text = written(tmp_path / "page.html", finished, hostile_run(tmp_path / "hostile"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--headless=new", "--no-sandbox"])
        page = browser.new_page(color_scheme=scheme)
        asked, errors = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text))
        page.goto((tmp_path / "page.html").as_uri())
        plots = text.count('class="plot"')
        page.wait_for_function(f"document.querySelectorAll('.plot svg').length === {plots}", timeout=60_000)
        assert page.evaluate("window.hacked") is None
        assert errors == []
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        browser.close()
