"""The page's server: who is answered, with which headers, and what the data says. A real server on loopback."""

import json
import re
import socket

import pytest
from support.folders import write_run
from support.hand_drawn import P, hand_drawn
from support.page import served_page
from support.runs import EqualStringJudge, problems, scripted_config

from treeforge.errors import ConfigError
from treeforge.pipeline import run as run_pipeline
from treeforge.problem import make_problem
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, TreeBuilder
from treeforge.verdict import Verdict
from treeforge.view.server import address_of, allowed_hosts, is_loopback, listen, new_token
from treeforge.view.web import WEB

TOKEN = "a-secret_token"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "run"
    run_pipeline(problems(5), path, scripted_config(children=6), judge=EqualStringJudge())
    return path


@pytest.fixture(scope="module")
def page(run):
    with served_page(run) as page:
        yield page


@pytest.fixture(scope="module")
def guarded(run):
    with served_page(run, host="0.0.0.0", token=TOKEN) as page:
        yield page


def test_the_page_and_its_files(page):
    status, headers, body = page.ask("/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    for name in re.findall(rb'(?:src|href)="(web/[^"]+)"', body):
        assert page.ask("/" + name.decode())[0] == 200
    for file in WEB.iterdir():
        if file.name.endswith((".js", ".css", ".svg")):
            status, headers, _ = page.ask(f"/web/{file.name}")
            assert (status, headers["x-content-type-options"]) == (200, "nosniff")


@pytest.mark.parametrize(
    "path",
    [
        "/web/none.js",
        "/web/__init__.py",
        "/web/../server.py",
        "/web/%2e%2e%2fserver.py",
        "/etc/passwd",
        "/api",
        "/api/x",
    ],
)
def test_nothing_else_is_served(page, path):
    assert page.ask(path)[0] == 404


@pytest.mark.parametrize("path", ["/", "/web/main.js", "/api/run", "/api/problems/99", "/nothing"])
def test_every_answer_has_the_security_headers(page, path):
    _, headers, _ = page.ask(path)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_is_read_only(page, method):
    assert page.ask("/api/run", method=method)[0] == 405


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.7", "", "[::2]", "*"]
)
def test_other_hosts_are_refused(page, host):
    assert page.ask("/api/run", host=host)[0] == (421 if host else 400)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.9.9.9:80", "[::1]:80", "[::1]"])
def test_loopback_hosts_are_answered(page, host):
    assert page.ask("/api/run", host=host)[0] == 200


def test_bound_elsewhere_everything_needs_the_token(guarded):
    assert guarded.ask(f"/{TOKEN}/")[0] == 200
    assert guarded.ask(f"/{TOKEN}/web/main.js")[0] == 200
    assert guarded.json("run")["problems"] == 5
    for path in ("/", "/api/run", "/web/main.js", f"/{TOKEN}x/api/run", f"/{TOKEN[:-1]}/", "//api/run", "/é/", "/%00/"):
        status, headers, body = guarded.ask(path.replace("é", "%C3%A9"))
        assert (status, "content-security-policy" in headers) == (403, True)
        assert TOKEN.encode() not in body


def test_bound_elsewhere_addresses_are_hosts_and_foreign_names_are_not(guarded):
    path = f"/{TOKEN}/api/run"
    assert guarded.ask(path, host="10.0.0.7:80")[0] == 200
    assert guarded.ask(path, host=socket.gethostname())[0] == 200
    assert guarded.ask(path, host="evil.example")[0] == 421


def test_what_counts_as_loopback():
    assert all(map(is_loopback, ["127.0.0.1", "127.8.8.8", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "example.org"]))
    assert allowed_hosts("box.example")("box.example")
    assert not allowed_hosts("127.0.0.1")(socket.gethostname() + ".example")


def test_addresses():
    assert address_of("127.0.0.1", 80, "") == "http://127.0.0.1:80/"
    assert address_of("::1", 80, "") == "http://[::1]:80/"
    assert address_of("0.0.0.0", 80, "t") == f"http://{socket.gethostname()}:80/t/"
    assert len(new_token()) >= 32
    assert new_token() != new_token()


def test_a_port_in_use_names_the_option():
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} of 127.0.0.1 cannot be used: .*--port"):
            listen("127.0.0.1", port)


def test_a_host_that_is_none_names_the_option():
    with pytest.raises(ConfigError, match=r"--host a\.\.b: there is no such host"):
        listen("a..b", 0)


# What the data says ---------------------------------------------------------------------------------------------------


def test_the_run(page):
    data = page.json("run")
    assert (data["name"], data["problems"], data["strategy"], data["passes"]) == ("run", 5, "mcts", 1)
    assert (data["by_status"], data["dataset"], data["labels"]["estimator"]) == ({"done": 5}, True, "policy_mean")


def test_the_list(page, run):
    data = page.json("problems", sort="nodes", descending="true", limit=2)
    assert (data["matching"], len(data["rows"])) == (5, 2)
    sizes = {number: record.tree.size for number, record in RunFolder.open(run).records()}
    assert data["rows"][0]["nodes"] == max(sizes.values())
    assert page.json("problems", text="3 + 3")["rows"][0]["problem_id"] == "sum-3"
    assert page.json("problems", least="0", most="1", disputed="false")["matching"] == 5


@pytest.mark.parametrize("path", ["/api/problems/{}", "/api/problems/2/nodes/{}", "/{}"])
def test_an_endless_address_is_refused(page, path):
    assert page.ask(path.format("9" * 5000))[0] == 414


def test_a_tree_and_its_nodes(page, run):
    record = dict(RunFolder.open(run).records([2]))[2]
    data = page.json("problems/2")
    assert data["tree"]["parent"] == record.tree.parent.tolist()
    assert page.json("problems/2/labels", nodes=f"1,2,x,99999,{'9' * 5000}").keys() == {"1", "2"}
    node = page.json("problems/2/nodes/3")
    assert node["parent"] == record.tree.parent[3]
    assert page.json("problems/2/nodes/3/text")["text"] == record.tree.text[3]
    assert page.json("problems/2/search", text="step 1")["found"] >= 1
    assert page.json("problems/2", **{"pass": 1})["tree"]["compressed"] == 1


def test_the_prompt_before_and_after_a_step(page, run):
    tree = dict(RunFolder.open(run).records([2]))[2].tree
    node = int(tree.parent.max())
    before = page.json(f"problems/2/nodes/{node}/prompt")
    after = page.json(f"problems/2/nodes/{node}/prompt", at="node")
    assert before["at"] == tree.parent[node]
    assert after["messages"][0]["text"] == before["messages"][0]["text"] + tree.text[node]
    assert before["messages"][0]["text"] == "What is 2 + 2?" + tree.prefix(int(tree.parent[node]))


def test_answers_are_checked_with_their_route(page, run):
    record = dict(RunFolder.open(run).records([2]))[2]
    place = next(at for at, rollout in enumerate(record.rollouts) if rollout.answer == "4")
    data = page.json(f"problems/2/nodes/{record.rollouts[place].node}/checks")
    check = next(answer for answer in data["answers"] if answer["place"] == place)
    assert (data["policy"], check["verdict"], check["route"], check["why"]) == ("default", "correct", "string", [])


def test_the_dataset(page, run):
    data = page.json("dataset")
    steps = sum(record.tree.size - 1 for _, record in RunFolder.open(run).records())
    labels = data["labels"]
    assert labels["positive"] + labels["negative"] + labels["unlabelled"] == steps
    (first, *_) = data["splits"]
    assert {split["name"] for split in data["splits"]} == {"hrm", "nodes"}
    rows = page.json("dataset/rows", format=first["format"], split=first["split"], offset=1, limit=2)["rows"]
    assert len(rows) == 2
    assert list(rows[0]) == first["columns"]
    beyond = page.json("dataset/rows", format=first["format"], split=first["split"], offset=first["rows"])
    assert beyond["rows"] == []


@pytest.mark.parametrize(
    ("path", "params", "complaint"),
    [
        ("problems/5", {}, "the run has no problem 5; it has 5"),
        ("problems/0/nodes/9999", {}, "has the nodes 0 to"),
        ("problems/0", {"pass": 7}, "no HNC pass 7"),
        ("problems/0", {"pass": "x"}, "pass must be a whole number, not 'x'"),
        ("problems", {"sort": "size"}, "the list cannot be asked for so"),
        ("problems", {"limit": "many"}, "the list cannot be asked for so"),
        ("problems", {"limit": 99999}, "limit must be 0 to 500"),
        ("problems/0/search", {"text": " "}, "no text to look for"),
        ("problems/0/nodes/0/text", {"part": "rollout", "place": 99999}, "no such text"),
        ("problems/0/nodes/0/text", {"part": "__class__"}, "no such text"),
        ("dataset/rows", {"format": "../trees", "split": "nodes"}, "no nodes rows of ../trees"),
    ],
)
def test_refusals_say_why(page, path, params, complaint):
    status, message = page.error(path, **params)
    assert status == 404
    assert complaint in message


def test_a_run_that_grows_and_has_neither_labels_nor_shards(tmp_path):
    with served_page(write_run(tmp_path / "run", [hand_drawn(), None])) as page:
        assert page.json("problems/1")["tree"] is None
        assert page.error("problems/1/nodes/0") == (404, "the tree of problem 1 has not begun yet")
        assert page.json(f"problems/0/nodes/{P}")["step"]["value"] is not None
        data = page.json("dataset")
        assert (data["labels"], data["splits"]) == (None, [])
        assert page.json("live")["by_status"] == {"done": 1, "open": 1}


def test_damaged_files_are_said_to_be(tmp_path):
    run = write_run(tmp_path / "run", [hand_drawn(), hand_drawn()])
    with served_page(run) as page:
        (run / "trees" / "nodes-00000.parquet").write_bytes(b"PAR1 no more")
        status, message = page.error("problems/0")
        assert status == 500
        assert "nodes-00000.parquet is damaged" in message
        assert page.error("problems")[0] == 500
        assert page.json("run")["problems"] == 2


def test_hostile_texts_are_json_strings(tmp_path):
    hostile = "</script><img src=x onerror=alert(1)>\u202e\x00"
    builder = TreeBuilder()
    builder.add(0, hostile, finish=Finish.ANSWERED, answer=hostile, verdict=Verdict.INCORRECT)
    problem = make_problem(hostile, hostile, problem_id=hostile)
    with served_page(write_run(tmp_path / "run", [builder.freeze()], problems=[problem])) as page:
        for path in ("problems", "problems/0", "problems/0/nodes/1", "problems/0/nodes/1/prompt", "dataset"):
            _, headers, body = page.ask(f"/api/{path}")
            assert headers["content-type"] == "application/json"
            assert "\u202e" not in json.dumps(json.loads(body), ensure_ascii=False)
