"""One file with everything inside: nothing in it is markup, runs or is loaded but the page's own script and style."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from support.folders import write_run
from support.hand_drawn import A4, P, hand_drawn
from support.runs import EqualStringJudge, problems, scripted_config

from treeforge import views
from treeforge.config import CompressConfig
from treeforge.errors import ConfigError, RunError
from treeforge.pipeline import run as run_pipeline
from treeforge.problem import make_problem
from treeforge.tree import Finish, TreeBuilder
from treeforge.verdict import Verdict
from treeforge.view import bundle
from treeforge.view.bundle import bundle_data, inert_json, joined_modules, write_bundle
from treeforge.view.reader import RunReader
from treeforge.view.web import WEB

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)> & ]]>\u2028 שלום"


class Page(HTMLParser):
    """The elements of a page: [(tag, attributes, text)]."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))
        self.inside = True

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.elements[-1][2].append(data)

    def texts(self, tag):
        return ["".join(text) for name, _, text in self.elements if name == tag]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    builder = TreeBuilder()
    builder.add(0, HOSTILE, finish=Finish.ANSWERED, answer=HOSTILE, verdict=Verdict.INCORRECT)
    asked = [make_problem(HOSTILE, HOSTILE, problem_id=HOSTILE), *problems(2)]
    run = write_run(folder / "run", [builder.freeze(), hand_drawn(), None], problems=asked)
    views.label(run)
    views.compress(run, CompressConfig(min_children=2, probability=1.0))
    report = write_bundle(RunReader(run), folder / "page.html")
    return report, (folder / "page.html").read_text("utf-8"), run


def test_the_page_has_only_its_own_elements(written):
    _, text, _ = written
    page = Page(text)
    scripts = [(attrs.get("type"), attrs.get("src")) for tag, attrs, _ in page.elements if tag == "script"]
    assert scripts == [("application/json", None), ("module", None)]
    assert {tag for tag, _, _ in page.elements} <= {
        *("html", "head", "meta", "title", "style", "body", "a", "header", "bdi", "nav", "main", "noscript", "script")
    }
    assert not any(name in ("src", "srcset") for _, attrs, _ in page.elements for name in attrs)
    assert {attrs["href"] for _, attrs, _ in page.elements if "href" in attrs} == {"#/", "#main"}


def test_script_and_style_are_allowed_by_their_digests_alone(written):
    page = Page(written[1])
    (policy,) = [a["content"] for _, a, _ in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    for tag, text in (("style", page.texts("style")[0]), ("script", page.texts("script")[1])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy


def test_the_data_is_inert_and_whole(written):
    report, text, _ = written
    (stored, _) = Page(text).texts("script")
    assert not set("<>&") & set(stored)
    data = json.loads(stored)
    assert (report.trees, report.left_out, report.size) == (2, 0, len(text.encode()))
    assert data["problems"].keys() == {"0", "1"}
    assert data["rows"][0]["problem_id"] == HOSTILE.replace("\u2028", "<U+2028>")
    problem = data["problems"]["1"]
    assert problem["passes"].keys() == {"0", "1"}
    assert len(problem["passes"]["0"]["nodes"]) == 15
    assert problem["passes"]["0"]["nodes"][P]["step"]["node"] == P
    assert problem["passes"]["0"]["checks"][str(A4)][0]["place"] == -1
    assert problem["passes"]["1"]["tree"]["merged"]
    assert problem["raw"][P] == "p\n"
    assert data["run"]["offline"] is True


def test_training_rows_are_in_it(tmp_path):
    run_pipeline(problems(2), tmp_path / "run", scripted_config(), judge=EqualStringJudge())
    data = bundle_data(RunReader(tmp_path / "run"), [0])
    assert data["rowsBySplit"].keys() == {f"{s['format']}/{s['split']}" for s in data["dataset"]["splits"]}
    assert all(data["rowsBySplit"].values())


def test_some_problems_only(written, tmp_path):
    reader = RunReader(written[2])
    report = write_bundle(reader, tmp_path / "one.html", ["sum-0"])
    assert (report.trees, report.left_out) == (1, 1)
    report = write_bundle(reader, tmp_path / "one.html", limit=1)
    assert (report.trees, report.left_out) == (1, 1)
    with pytest.raises(ConfigError, match="none of these problems' trees has ended"):
        write_bundle(reader, tmp_path / "none.html", ["sum-1"])
    with pytest.raises(RunError, match="no problem 'nobody'"):
        write_bundle(reader, tmp_path / "none.html", ["nobody"])
    assert not (tmp_path / "none.html").exists()


def test_a_bundle_takes_no_more_trees_than_browsers_bear(written, tmp_path, monkeypatch):
    reader = RunReader(written[2])
    monkeypatch.setattr(bundle, "MAX_NODES", 2 * (2 + 15) - 1)  # one pass of HNC counts like another tree
    report = write_bundle(reader, tmp_path / "page.html")
    assert (report.trees, report.left_out) == (1, 1)
    monkeypatch.setattr(bundle, "MAX_NODES", 3)
    with pytest.raises(
        ConfigError, match="the tree of problem 0 has 4 nodes, HNC passes counted, and a bundle holds 3"
    ):
        write_bundle(reader, tmp_path / "large.html")


def test_inert_json_gives_the_data_back():
    data = {"<b>": ["</script>", "&amp;", "\u2028"]}
    assert json.loads(inert_json(data)) == data


def test_modules_can_be_joined():
    """The joiner knows one-line imports and exports of declarations, and nothing else is used."""
    sources = {file.name: file.read_text("utf-8") for file in WEB.iterdir() if file.name.endswith(".js")}
    for name, source in sources.items():
        imports = [line for line in source.splitlines() if re.match(r"\s*import\b", line)]
        assert all(bundle._IMPORT.fullmatch(line) for line in imports), name
        exports = [line for line in source.splitlines() if re.match(r"\s*export\b", line)]
        assert all(bundle._EXPORT.match(line) for line in exports), name
        for line in imports:
            names, module = bundle._IMPORT.fullmatch(line).groups()
            assert set(names.split(", ")) <= set(bundle._EXPORT.findall(sources[f"{module}.js"])), (name, line)
    joined = joined_modules()
    assert not re.search(r"^(import|export)\b", joined, re.MULTILINE)
    for name in sources:
        assert joined.count(f"const module_{name.removesuffix('.js')} = ") == 1


def test_the_page_never_parses_markup_or_loads_from_elsewhere():
    for file in WEB.iterdir():
        if file.name.endswith((".js", ".css", ".html", ".svg")):
            source = file.read_text("utf-8").replace("http://www.w3.org/", "")
            for word in (
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "DOMParser",
                "srcdoc",
            ):
                assert word not in source, file.name
            assert not re.search(r"https?:|//[a-z]+\.[a-z]|@import|url\(| style=", source), file.name
