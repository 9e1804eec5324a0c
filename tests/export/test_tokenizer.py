"""Loading a tokenizer for the format `tokens`; what it makes of a text is in `test_training.py`."""

import sys

import pytest
from support.forest import blocks, forest

from treeforge.config import ExportConfig
from treeforge.errors import ConfigError, MissingExtraError
from treeforge.export import CardInfo, export
from treeforge.export.tokenizer import load_tokenizer


def test_no_name_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match="give --tokenizer"):
        export(blocks(forest(3)), tmp_path / "out", ExportConfig(formats=("tokens",)), CardInfo())
    assert list(tmp_path.iterdir()) == []


def test_without_the_library_the_pip_line_is_shown(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'treeforge\[tokens\]'"):
        load_tokenizer("some/model")


def test_a_path_without_a_tokenizer(tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text("{}")
    for path, message in (
        (tmp_path / "none", "there is no such file or folder: "),
        (tmp_path, "cannot be loaded"),
        ("missing.json", "there is no such file"),
        ("./missing", "there is no such file"),
        ("models\\missing", "there is no such file"),
        (tmp_path.parent, "no tokenizer.json and no folder"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_tokenizer(str(path))


def test_special_tokens_stand_at_the_beginning_only(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[UNK]": 0, "<s>": 1, "</s>": 2, "a": 3}, unk_token="[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    made.enable_truncation(2)
    made.save(str(tmp_path / "tokenizer.json"))
    encode = load_tokenizer(str(tmp_path))
    assert encode("a a b", True) == [1, 3, 3, 0]
    assert encode("a a a", False) == [3, 3, 3]
