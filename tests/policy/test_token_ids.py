from itertools import accumulate

import pytest

from treeforge.config import StepsConfig
from treeforge.policy.token_ids import PrefixTokens, tokens_by_step

STEPS = StepsConfig(preset="custom", prompt="Q: {question}\n", delimiter="\n")
PIECES = ["Q: ", "7+", "one", "two", "o", "n", "e", "t", "w", "\n\n", "\n", "7", "+", ".\n", "."]
BOS = 99


def encode(text: str, first: bool) -> list[int]:
    """The first piece of the list that fits, again and again: how this tokenizer reads, which is one way of several."""
    ids = [BOS] if first else []
    while text:
        number = next(i for i, piece in enumerate(PIECES) if text.startswith(piece))
        ids.append(number)
        text = text[len(PIECES[number]) :]
    return ids


def ids_of(*pieces: str) -> list[int]:
    return [PIECES.index(piece) for piece in pieces]


def starts_of(ids: list[int]) -> list[int]:
    return [0, *accumulate(len(PIECES[i]) for i in ids)]


PROMPT = [BOS, *ids_of("Q: ", "7", "\n")]


def remember(prefixes: PrefixTokens, prefix: str, text: str, ids: list[int]) -> None:
    _, key = prefixes.tokens("7", prefix)
    prefixes.remember(key, text, ids, starts_of(ids))


def test_without_memory_each_step_is_tokenised_by_itself():
    prefixes = PrefixTokens(STEPS, encode, composes=True)
    assert prefixes.tokens("7", "")[0] == PROMPT
    assert prefixes.tokens("7", "one.\ntwo\n")[0] == PROMPT + ids_of("one", ".\n", "two", "\n")


def test_a_step_keeps_the_ids_that_were_sampled():
    prefixes = PrefixTokens(STEPS, encode, composes=True)
    sampled = ids_of("o", "n", "e", "\n", "t", "w", "o", ".\n", "7")
    remember(prefixes, "", "one\ntwo.\n7", sampled)
    assert prefixes.tokens("7", "one\n")[0] == PROMPT + sampled[:4]
    assert prefixes.tokens("7", "one\ntwo.\n")[0] == PROMPT + sampled[:8]
    # The same step of another prefix, or of another question, was not sampled that way.
    assert prefixes.tokens("7", "two.\none\n")[0] == PROMPT + ids_of("two", ".\n", "one", "\n")
    assert prefixes.tokens("+", "one\n")[0] == [BOS, *ids_of("Q: ", "+", "\n", "one", "\n")]


def test_a_longer_prefix_goes_on_from_the_ids_of_the_shorter_one():
    prefixes = PrefixTokens(STEPS, encode, composes=True)
    remember(prefixes, "", "one\n", ids_of("o", "n", "e", "\n"))
    remember(prefixes, "one\n", "two\n", ids_of("t", "w", "o", "\n"))
    assert prefixes.tokens("7", "one\ntwo\n")[0] == PROMPT + ids_of("o", "n", "e", "\n", "t", "w", "o", "\n")


def test_identical_siblings_go_on_with_the_first_ones_ids():
    prefixes = PrefixTokens(STEPS, encode, composes=True)
    remember(prefixes, "", "one\n", ids_of("o", "n", "e", "\n"))
    remember(prefixes, "", "one\n", ids_of("one", "\n"))
    assert prefixes.tokens("7", "one\n")[0] == PROMPT + ids_of("o", "n", "e", "\n")


def test_a_token_across_a_steps_end_is_not_cut():
    prefixes = PrefixTokens(STEPS, encode, composes=True)
    # The step ends inside "\n\n": vLLM stopped there, and the token is longer.
    remember(prefixes, "", "one\n", ids_of("o", "n", "e", "\n\n"))
    assert prefixes.tokens("7", "one\n")[0] == PROMPT + ids_of("one", "\n")
    # "7+" reaches from the first step into the second; the third has its own tokens again.
    steps = StepsConfig(preset="custom", prompt="Q: {question}\n", delimiter="7")
    prefixes = PrefixTokens(steps, encode, composes=True)
    remember(prefixes, "", "one7+77", ids_of("o", "n", "e", "7+", "7", "7"))
    assert prefixes.tokens("7", "one7+77")[0] == PROMPT + ids_of("one", "7", "+", "7", "7")


def test_an_end_of_text_behind_a_step_is_no_part_of_it():
    prefixes = PrefixTokens(STEPS, encode, composes=True)
    _, key = prefixes.tokens("7", "")
    sampled = ids_of("o", "n", "e", "\n", ".")
    prefixes.remember(key, "one\n", sampled, [0, 1, 2, 3, 4, 4])
    assert prefixes.tokens("7", "one\n")[0] == PROMPT + sampled[:4]


def test_where_parts_do_not_compose_an_unknown_step_has_the_whole_text_tokenised():
    prefixes = PrefixTokens(STEPS, encode, composes=False)
    remember(prefixes, "", "one\n", ids_of("o", "n", "e", "\n"))
    assert prefixes.tokens("7", "one\n")[0] == PROMPT + ids_of("o", "n", "e", "\n")
    # "\n\n" is one token where the text is read as a whole.
    steps = StepsConfig(preset="custom", prompt="Q: {question}\n", delimiter="\n")
    assert PrefixTokens(steps, encode, composes=False).tokens("7", "\none\n")[0] == [
        BOS,
        *ids_of("Q: ", "7", "\n\n", "one", "\n"),
    ]


def test_what_is_remembered_is_bounded_and_the_last_used_stays():
    prefixes = PrefixTokens(STEPS, encode, composes=True, remembered=3)
    sampled = ids_of("o", "n", "e", "\n")
    remember(prefixes, "", "one\n", sampled)
    for other in ("+", "."):
        prefixes.tokens("7", "one\n")
        prefixes.tokens(other, "")
    assert prefixes.tokens("7", "one\n")[0] == PROMPT + sampled
    for other in ("+", ".", "e"):
        prefixes.tokens(other, "")
    assert prefixes.tokens("7", "one\n")[0] == PROMPT + ids_of("one", "\n")


@pytest.mark.parametrize(
    ("steps", "starts", "spans"),
    [
        ([], [0], []),
        (["one\n", "two"], [0, 3, 4, 7], [(0, 2), (2, 3)]),
        # A token across a border belongs to the step in which it starts; end-of-text tokens to the last step.
        (["one\n", "two"], [0, 3, 5, 7, 7, 7], [(0, 2), (2, 5)]),
        # A character of several tokens is the last one's: the others start where it does.
        (["ä\n", "b"], [0, 0, 1, 2, 3], [(0, 3), (3, 4)]),
    ],
)
def test_tokens_by_step(steps, starts, spans):
    assert tokens_by_step(steps, starts) == spans
