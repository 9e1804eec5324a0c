import ast
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from treeforge.config import Recipe, RunConfig, SearchConfig
from treeforge.configuration import convert, differences, load, to_dict
from treeforge.errors import ConfigError, DataError
from treeforge.recipes import load_config, preset_names

CONFIGS = sorted((Path(__file__).parent.parent / "configs").glob("*.toml"))


def test_a_config_survives_the_manifest():
    config = load(overrides=["search.wave=8", "steps.stop=['a', 'b']"])
    assert convert(to_dict(config), RunConfig) == config


def test_every_field_is_documented():
    folder = Path(__file__).parent.parent / "treeforge" / "config"
    found = [node for file in sorted(folder.glob("*.py")) for node in ast.parse(file.read_text()).body]
    assert sum(isinstance(node, ast.ClassDef) for node in found) > 10
    for node in found:
        if isinstance(node, ast.ClassDef):
            for field, following in pairwise([*node.body, ast.Pass()]):
                if isinstance(field, ast.AnnAssign) and not ast.unparse(field.annotation).endswith(
                    ("Config", "Recipe", "Machine")
                ):
                    documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
                    assert documented, f"{node.name}.{ast.unparse(field.target)}"


def test_configs_are_frozen():
    with pytest.raises(AttributeError):
        Recipe().seed = 3
    with pytest.raises(TypeError):
        SearchConfig("mcts")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("search.wave=0", "recipe.search: wave must be greater than 0, not 0"),
        ("search.wave=x", "recipe.search.wave: Expected `int`, got `str`"),
        ("search.waves=3", "unknown field `waves`"),
        ("sampling.top_p=0", r"top_p must be in \(0, 1\]"),
        ("sampling.temperature=-1", "temperature must not be negative"),
        ("search.strategy=greedy", "greedy"),
        ("search.max_steps=3", "max_steps"),
        ("budget.tokens=-1", "tokens must not be negative"),
        ("label.threshold=1.5", "threshold"),
        ("label.confidence=1", "confidence"),
        ("label.threshold=-0.1", "threshold"),
        ("label.band=1.5", r"band must be in \[0, 1\]"),
        ("label.band=-0.1", "band"),
        ("search.keep=0.9..0.1", r"keep must be LOW\.\.HIGH"),
        ("search.omega.alpha=2", "alpha must be at most 1"),
        ("search.beam.width=0", "width must be greater than 0"),
        ("search.widening_power=1", r"widening_power must be in \(0, 1\)"),
        ("compress.min_children=1", "min_children"),
        ("export.validation_share=1.0", "train"),
        ("steps.prompt=hello", "question"),
        ("steps.delimiter=''", "delimiter"),
        ("machine.servers=['http://user:secret@host/v1']", "environment"),
        ("nonsense.key=1", "sections are"),
        ("search.wave.deep=1", "holds a value|Expected"),
        ("search.wave", "KEY=VALUE"),
        ("machine.request_timeout=inf", "request_timeout"),
        ("budget.seconds=inf", "infinite"),
        ("compress.max_label_shift=nan", "max_label_shift"),
        ("compress.seed=9223372036854775808", "compress.seed: must fit in 64 bits"),
        ("policy.scripted.seed=-9223372036854775809", r"policy\.scripted\.seed: must fit in 64 bits"),
        ("machine.concurrency=99999999999999999999", "machine.concurrency: must fit in 64 bits"),
    ],
)
def test_bad_values_name_the_key(override, message):
    with pytest.raises(ConfigError, match=message):
        load(overrides=[override])


def test_a_secret_in_a_server_address_is_not_repeated():
    with pytest.raises(ConfigError) as caught:
        load(overrides=["machine.servers=['http://user:secret@host/v1']"])
    assert "secret" not in str(caught.value)


def test_a_bad_file_names_the_file(tmp_path):
    with pytest.raises(DataError, match=r"absent\.toml"):
        load(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("[recipe\n")
    with pytest.raises(DataError, match=r"bad\.toml.*line 1"):
        load(tmp_path / "bad.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")
    with pytest.raises(DataError, match=r"latin\.toml"):
        load(tmp_path / "latin.toml")


def test_overrides_beat_the_file_and_the_file_beats_the_preset(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('[recipe]\npolicy.backend = "scripted"\nsampling.temperature = 0.5\nsteps.max_step_chars = 99\n')
    config = load_config(file, ["sampling.temperature=0.25"])
    assert config.recipe.steps.preset == "scripted"
    assert (config.recipe.steps.max_step_chars, config.recipe.sampling.temperature) == (99, 0.25)


@pytest.mark.parametrize("preset", preset_names())
def test_presets_resolve(preset):
    recipe = load_config(None, backend="server", model="m", preset=preset).recipe
    assert recipe.steps.preset == preset
    assert recipe.policy.model == "m"


def test_the_papers_preset_is_its_construction():
    search = load_config(None, backend="server", preset="hrm-paper").recipe.search
    assert (search.strategy, search.children, search.levels, search.merge_duplicates) == ("exhaustive", 5, 5, False)
    assert load_config(None, ["search.levels=3"], backend="server", preset="hrm-paper").recipe.search.levels == 3


def test_models_bring_their_preset():
    assert load_config(None, backend="local").recipe.steps.preset == "smollm"
    assert load_config(None, backend="local", model="qwen2.5-coder-0.5b").recipe.steps.preset == "qwen-chat"


def test_an_unknown_preset_lists_the_known():
    with pytest.raises(ConfigError, match="qwen-chat"):
        load_config(None, preset="nope")


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.name)
def test_the_recipes_in_configs_resolve(file):
    config = load_config(file)
    assert msgspec.json.decode(msgspec.json.encode(to_dict(config)))


def test_differences_are_dotted():
    assert differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4}) == {"a.c": (2, 3), "d": (None, 4)}


def test_overrides_leave_the_base_as_it_was():
    base = {"recipe": {"search": {"wave": 2}}}
    assert load(overrides=["search.wave=8"], base=base).recipe.search.wave == 8
    assert base == {"recipe": {"search": {"wave": 2}}}


@pytest.mark.parametrize(
    ("override", "choices"),
    [
        ("budget.simulation=3", "the keys are simulations, nodes"),
        ("search.strategy=greedy", "the values are mcts, exhaustive, omega"),
        ("policy.backend=oracle", "the values are scripted, local, server"),
    ],
)
def test_what_is_allowed_is_listed(override, choices):
    with pytest.raises(ConfigError, match=choices):
        load(overrides=[override])
