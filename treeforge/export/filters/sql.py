"""What a condition may say: comparisons of a row's own columns, by functions that look at one row."""

from __future__ import annotations

import re

MAX_CHARS, MAX_OPERATORS, MAX_DEPTH, MAX_CALLS = 20_000, 100, 12, 3
"""polars takes quadratic time for a chain of operators and exponential time for what is nested, without a way to stop
it: 100 operators take some 10 ms a block, 12 times `left` inside itself minutes. A list after IN costs nothing."""

_OF_NUMBERS = """abs acos asin atan atan2 cbrt ceil ceiling cos degrees div exp floor ln log log10 log1p log2 mod pow
power radians round sign sin sqrt tan"""
_OF_TEXTS = """bit_length char_length character_length concat concat_ws ends_with initcap left length lower ltrim
octet_length position regexp_like replace reverse right rtrim split_part starts_with string_to_array strpos substr
substring trim upper"""
_OF_LISTS = """array_contains array_get array_length array_lower array_mean array_reverse array_sum array_to_string
array_unique array_upper"""
_OF_ANYTHING = "coalesce greatest if ifnull least nullif"
ROW_FUNCTIONS = frozenset(f"{_OF_NUMBERS} {_OF_TEXTS} {_OF_LISTS} {_OF_ANYTHING}".split())
"""Functions whose value for a row depends on that row alone."""

_WORDS = "and between case cast decimal else ilike in like not numeric or regexp rlike then try_cast varchar when"
_BEFORE_BRACKET = frozenset(_WORDS.split())
"""Words that an opening bracket may follow without being functions."""

_WORD_OPERATORS = frozenset(["and", "or", "not", "in", "is", "like", "ilike", "rlike", "regexp", "between", "when"])
_NEVER = frozenset(["select", "over", "with", "exists", "any", "all", "some"])
_OPENS, _CLOSES = ("(", "[", "case"), (")", "]", "end")

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|--[^\n]*|/\*.*?(?:\*/|\Z))+)
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")*"|`[^`]*`)
    |(?P<word>[^\W\d]\w*)
    |(?P<number>\d[\w.]*)
    |(?P<bracket>[()\[\],])
    |(?P<operator>[<>=!|:]+|.)""",
    re.VERBOSE | re.DOTALL,
)


def complaint(sql: str) -> str | None:
    """Why polars shall not be asked about a condition, with what to do; None where it may."""
    if len(sql) > MAX_CHARS:
        return f"has {len(sql):,} characters; {MAX_CHARS:,} are the most"
    operators, before = 0, ""
    open_calls: list[bool] = []  # Of each bracket that is open: whether it is a function's or an index.
    for kind, token in _tokens(sql):
        call = token == "[" or (token == "(" and _plain(before) in ROW_FUNCTIONS)
        if token == "(" and not call and (reason := _called(before)):
            return reason
        if token in _NEVER:
            return f"holds {token.upper()}; a condition is about the columns of one row, without a query or a window"
        if token in _OPENS:
            open_calls.append(call)
        elif token in _CLOSES and open_calls:
            open_calls.pop()
        if len(open_calls) > MAX_DEPTH or sum(open_calls) > MAX_CALLS:
            return f"is nested too deep: {MAX_DEPTH} brackets are the most, and {MAX_CALLS} of functions"
        sign = token == "-" and before in ("(", ",")
        operators += call or (kind == "operator" and not sign) or token in _WORD_OPERATORS
        before = token
    if operators > MAX_OPERATORS:
        return (
            f"has {operators:,} operators; {MAX_OPERATORS} are the most. "
            "Many values of one column are one term: column IN (1, 2, 3)"
        )
    return None


def _tokens(sql: str) -> list[tuple[str, str]]:
    """(kind, token in lower case), without white space and comments; texts as one mark, so that no word is in them."""
    found = [(match.lastgroup or "", match[0].lower()) for match in _TOKEN.finditer(sql)]
    return [(kind, "''" if kind == "text" else token) for kind, token in found if kind != "space"]


def _called(name: str) -> str | None:
    """Why a bracket may not open after this token; None where it may."""
    plain = _plain(name)
    if not plain or not (plain[0].isalpha() or plain[0] == "_") or plain in _BEFORE_BRACKET:
        return None
    return (
        f"calls {plain}(), which is no known function of one row, as abs, round, length, lower and coalesce are "
        "(docs/formats.md lists them); sums, means, ranks and the like look at other rows"
    )


def _plain(name: str) -> str:
    return name.strip('"`')
