"""Where a solution states its final answer. Linear time; the order of places is the check policy's."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from treeforge.answers import after_hashes, boxed
from treeforge.label.check_policy import EXTRACTION, Place
from treeforge.label.prose import MAX_BARE, delimited, is_bare, reads_as_mathematics
from treeforge.label.vocabulary import FUNCTIONS

MAX_SEARCHED = 20_000
"""Characters from the end in which an answer is looked for."""

_NUMERAL = re.compile(r"[+-]?\d{1,18}(?:\.\d{1,18})?")
_END_OF_TURN = re.compile(r"<\|(?:im_start|im_end|endoftext|eot_id|end)\|>|</s>")
_STRONG = re.compile(r"(?i)final\s+answer(?:\s+is)?\s*(?:\*\*)?\s*[:：]?\s*(?:\*\*)?")
_MARKER = re.compile(
    r"""(?ix)(?:\banswer(?:\s+(?:is|are|would\s+be|should\s+be|=))\s*:?|\banswer\s*(?:\*\*)?\s*[:：=]|^\s*answer\s+(?=[-$\\\d])|\bans\s*[.:=]
    |r[ée]ponse(?:\s+(?:finale))?(?:\s+est)?\s*[:：]?|respuesta(?:\s+(?:final|correcta))?(?:\s+es)?\s*[:：]?
    |antwort(?:\s+(?:ist|lautet))?\s*[:：]?|resposta(?:\s+final)?(?:\s+é)?\s*[:：]?|risposta(?:\s+finale)?(?:\s+è)?\s*[:：]?
    |ответ\s*[:：]?|答案\s*(?:是|为|為|[:：])?|答\s*[:：]|答え\s*(?:は|[:：])?|정답\s*(?:은|[:：])?|الإجابة\s*(?:هي|[:：])?|उत्तर\s*[:：]?
    |답\s*(?:은|[:：])|الجواب\s*(?:هو|[:：])?|คำตอบ\s*(?:คือ|[:：])?|উত্তর\s*(?:হল|[:：])?|సమాధానం\s*[:：]?|\bjibu\s+(?:ni|[:：]))
    \s*(?:\*\*)?\s*"""
)
_HEADING = re.compile(
    r"(?im)^[ \t]*(?:#{1,6}[ \t]*|\*\*[ \t]*)(?:final[ \t]+)?answer[ \t]*:?[ \t]*(?:\*\*)?[ \t]*:?[ \t]*$"
)
_MAYBE_MARKED = re.compile(r"(?i)nswer|\bans\s?[.:=]|ponse|puesta|ntwort|posta|jibu|[^\x00-\x7f]")
_JSON = re.compile(r"\"answer\"\s*:\s*\"?([^\"{}]{1,500}?)\"?\s*[,}]")
_CALCULATION = re.compile(r"<<[^<>\n]*>>")
_CONTRAST = re.compile(r",?\s+(?:not|rather than|instead of|i\.e\.,?|or equivalently|equivalently)\s.*$")
_NOT_BUT = re.compile(r"^not\s+[^\s]{1,40}\s*,?\s+but\s+(?:rather\s+)?")
_JOINED = re.compile(r"\s*(?:,|,?\s*(?:and|or))\s*")
_NO_ANSWERS = frozenset(
    ("correct", "right", "wrong", "incorrect", "unique", "as follows", "the same", "below", "above", "clear", "obvious")
)
_SOMETHING = re.compile(r"[\w\\$]")
_SENTENCE_END = re.compile(r"[.!?](?=\s+[A-Z*<\[(\"']|\s*$)|\n|。")
_NUMERAL_RUN = r"(?:\d{1,3} \d{1,2}/\d{1,3}|\d{1,3}(?: \d{3})+(?!\d)|\d+(?:,\d+)*)(?:\.\d+)?"
_NUMBER = re.compile(
    rf"(?<![A-Za-z0-9_\\.,^*/+{{(])(?<![-+*/^(]\s)(?:(?<![\d)])[-−])?[$€£]?\s?{_NUMERAL_RUN}"
    rf"(?:\s?[-+*/:]\s?{_NUMERAL_RUN}(?![\w.]*[*/^]))*"
    r"(?:\s?\\?%|\s?[€$£]|\s?[AaPp]\.?\s?[Mm]\b\.?|\s?π(?:/\d+)?|\s?√\d+(?:/\d+)?)?"
    r"(?:(?![A-Za-z0-9_^+*/(\\])|(?<=\d)(?=(?:cm|km|mm|kg|mg|ml|ft|hrs?|min|mph|am|pm)\b))"
)
_ITEM = r"(?:[a-z]\s*=\s*)?[-−]?\d+(?:\.\d+)?(?:/\d+)?"
_LISTED = re.compile(rf"(?:\bare|:)\s+({_ITEM}(?:,?\s+(?:and|or)\s+{_ITEM}|,\s*{_ITEM})+)(?=\s*(?:[.!]\s*)?$)")
_POINT = re.compile(rf"(?<![\w)])[(\[]\s*{_ITEM}(?:\s*,\s*{_ITEM})+\s*[)\]](?=\s*(?:[.!]\s*)?$)")
_LONG_UNITS = r"(?:days?|hours?|minutes?|seconds?|feet|foot|inch(?:es)?|yards?|pounds?|ounces?|dollars?|cents?|weeks?)"
_COMPOUND = re.compile(
    rf"(?<![\d.])\d+(?:\.\d+)?\s{_LONG_UNITS}(?:,?\s+(?:and\s+)?\d+(?:\.\d+)?\s{_LONG_UNITS}){{1,2}}\b"
    r"|\b\d+ to \d+(?=\.?\s*$)"
)
_UNIT = re.compile(
    r"\s(seconds?|minutes?|hours?|days?|weeks?|inch(?:es)?|feet|yards?|miles|meters?|centimeters?|kilometers?)\b"
)
_ONLY_WORDS = re.compile(r"[^,;:.!?\n=<>]{1,80}")
_SUBORDINATE = re.compile(r"(?i)(?:^|[.!?\n]\s*)(?:since|because|as|if|when|after|with)\b[^.!?\n]*$")
_DENIED = re.compile(r"\s+(?:is|are|was)\s*(?:not\b|n't|n’t|wrong\b|incorrect\b)")
_NAMED_AFTER = re.compile(r"([^.\n,]{1,60})\s+is\s+(?:the|our|my)\s+(?:final\s+|correct\s+)?answer\b")
_LAST_SENTENCE = re.compile(r"(?:^|[.!?]\s+(?=[A-Z])|\n)([^\n]*?)[.!]?\s*$")
_SAID = re.compile(r"(?i).*\b(?:is|are|was|be|equals?|as|becomes|get|obtain|to|needs?)\s+(.+)$")
_THEREFORE = re.compile(r"(?i)(?:so|thus|hence|therefore|then|finally|we get|we have)\b[,:]?\s+(.+)$")
_FORMULA = re.compile(
    r"[\^_√π∞*(\[<>≤≥]|\d[a-z]\b|\b[a-z]\s?[-+/]|sqrt|\bpi\b|illion|thousand|dozen|\bbase\b|except|\d\s\d+/\d|out of"
)
_CONDITION = re.compile(r"\s*,?\s*(?:for|where|when|with|if|since|because|provided)\b[^.$]{0,60}")
_CONCLUSION = re.compile(r"(?is)^.*(?:\b(?:is|are|be|equals|est|es|ist)\b|=|为|是|:)\s*(.{1,200})$")
_JOINING = re.compile(
    r"""(?x)(?:\s|\\quad|\\qquad|\\[,;:\ ()\[\]]
    |\\text\{[^{}]*\band\b[^{}]*\}|\\text\{\s*or\s*\}|\b(?:and|or)\b|[,;.$&+]
    |(?:\\[a-z]+|[A-Za-z])[\w{}]*\s*=|\([a-z]\))*"""
)
_WORD = re.compile(r"[^\W\d_]{2,}")


def extract(text: str, markers: Sequence[str] = (), *, gold: bool = False, places: Sequence[Place] = EXTRACTION) -> str:
    """The final answer of a solution, as written; '' where there is none. A bare number is returned as it is.

    `markers` are the step format's own. A gold answer may also end inside an unclosed box. `places`: where to look, the
    first one first (`CheckPolicy.extraction`).
    """
    if len(text) > MAX_SEARCHED:
        text = text[-MAX_SEARCHED:]
    if "<" in text:
        text = _END_OF_TURN.split(text, maxsplit=1)[0] if _END_OF_TURN.search(text) else text
    text = text.strip()
    if not text or _NUMERAL.fullmatch(text):
        return text
    if "</think>" in text:
        text = text.rsplit("</think>", 1)[1].strip() or text
    if (tag := text.rfind("<answer>")) >= 0:
        text = text[tag + 8 :].partition("</answer>")[0].strip() or text
    elif '"answer"' in text and (stated := _JSON.findall(text)):
        text = stated[-1].strip()
    if "<<" in text:  # GSM8K's calculator annotations
        text = _CALCULATION.sub("", text)
    for place in places:
        found = _PLACES[place](text, markers, gold)
        if found is not None:
            return found
    return ""


def _boxes(text: str, markers: Sequence[str], gold: bool) -> str | None:
    return _from_boxes(text, gold=gold) if "boxed" in text or "fbox" in text else None


def _markers(text: str, markers: Sequence[str], gold: bool) -> str | None:
    for marker in markers:
        if "boxed" not in marker and (at := text.rfind(marker)) >= 0:
            found = _after_marker(text[at + len(marker) :])
            if found:
                return found
    return None


def _hashes(text: str, markers: Sequence[str], gold: bool) -> str | None:
    return (after_hashes(text) or None) if "####" in text else None


def _heading(text: str, markers: Sequence[str], gold: bool) -> str | None:
    if "nswer" not in text or not (headings := list(_HEADING.finditer(text))):
        return None
    return _after_heading(text[headings[-1].end() :]) or None


def _phrases(text: str, markers: Sequence[str], gold: bool) -> str | None:
    if _MAYBE_MARKED.search(text) and (found := _after_last(_MARKER, text) or _after_last(_STRONG, text)):
        return found
    if "nswer" in text and (named := _NAMED_AFTER.findall(text)) and is_bare(named[-1]):
        return str(named[-1]).strip()
    return None


_PLACES: dict[Place, Callable[[str, Sequence[str], bool], str | None]] = {
    "boxes": _boxes,
    "markers": _markers,
    "hashes": _hashes,
    "heading": _heading,
    "phrases": _phrases,
    "bare": lambda text, markers, gold: text if is_bare(text) else None,
    "last": lambda text, markers, gold: _last_mathematics(text),
}


def _from_boxes(text: str, *, gold: bool) -> str | None:
    """The last run of boxes; a final-answer sentence after it wins. None where no box is closed."""
    if "\\\\boxed" in text:
        text = text.replace("\\\\boxed", "\\boxed")
    text = text.replace("\\beginboxed", "\\boxed")
    if "\\boxed" not in text and "\\fbox" not in text:
        text = text.replace("boxed{", "\\boxed{")
    boxes = boxed(text)
    if not boxes:
        if gold and "boxed{" in text:
            return text.rsplit("boxed{", 1)[1]
        return None
    start, end, content = boxes[-1]
    tail = text[end:]
    strong = _after_last(_STRONG, tail)
    if strong and (strong[-1].isdigit() or not strong.isascii() or any(c in "0123456789$\\" for c in strong)):
        return strong
    if "nswer" in content:
        content = _after_last(_MARKER, content) or content
    joined = [content]
    for before in reversed(boxes[:-1]):
        if not _JOINING.fullmatch(text[before[1] : start]) or start - before[1] > 80:
            break
        joined.insert(0, before[2])
        start = before[0]
    if len(joined) > 1:
        return ", ".join(joined)
    unit = re.match(r"\s*\$?\s*(\\?%|percent\b|pct\b)", tail)
    return f"{content} {unit.group(1)}" if unit and "%" not in content else content


def _after_last(marker: re.Pattern[str], text: str) -> str:
    for found in reversed(list(marker.finditer(text))):
        answer = _after_marker(text[found.end() :])
        if answer:
            return answer
    return ""


def _after_heading(tail: str) -> str:
    """The answer below a heading of its own (`# Answer`): all of it where it is one, else as after a marker."""
    tail = tail.strip()
    return tail if tail and is_bare(tail) else _after_marker(tail)


def _after_marker(tail: str) -> str:
    """The answer in what follows a marker: its sentence where that is an answer, else the number that it states."""
    tail = tail.lstrip(" \t\n*:：")
    if tail.startswith("}"):  # the marker stood inside \\text{…}
        tail = tail[1:].lstrip()
    first = delimited(tail[: MAX_BARE * 4])[:1]
    if first and first[0][0] == 0 and "\n" in tail[: first[0][1]]:
        return tail[: first[0][1]]
    sentence = _CONTRAST.sub("", _NOT_BUT.sub("", _first_sentence(tail)))
    if sentence.lower().strip(" .!") in _NO_ANSWERS or not _SOMETHING.search(sentence):
        return ""
    if _NUMERAL.fullmatch(sentence) or is_bare(sentence):
        return sentence
    spans = delimited(sentence)
    if spans and spans[0][0] == 0:
        return sentence[: spans[0][1]]
    if (number := _NUMBER.match(sentence)) is not None:
        return number.group().strip()
    conclusion = _CONCLUSION.search(sentence)
    if conclusion is not None and is_bare(conclusion.group(1)):
        return conclusion.group(1).strip()
    if spans:
        return sentence[slice(*spans[0])]
    number = _NUMBER.search(sentence)
    return number.group().strip() if number else sentence


def _first_sentence(text: str) -> str:
    """Up to the first full stop or line end that stands outside braces."""
    for end in _SENTENCE_END.finditer(text, 0, MAX_BARE * 4):
        sentence = text[: end.start()]
        if sentence.count("{") <= sentence.count("}"):
            return sentence.strip(" *")
    return text[: MAX_BARE * 4].strip(" *")


def _last_mathematics(text: str) -> str:
    """The last delimited mathematics or the last plain number, whichever comes later."""
    if not _WORD.search(text):
        return text
    spans = [span for span in delimited(text) if not _is_prose(text[slice(*span)])]
    while len(spans) > 1 and _CONDITION.fullmatch(text, spans[-2][1], spans[-1][0]):
        text = text[: spans[-2][1]]
        del spans[-1]
    start = spans[-1][1] if spans else 0
    if (formula := _plain_formula(text, start)) is not None:
        return formula
    numbers = list(_NUMBER.finditer(text, start))
    if numbers:
        if _DENIED.match(text, numbers[-1].end()):
            return ""
        return _stated(text, start, _calculated(text, numbers))
    if not spans:
        return text if len(text) <= MAX_BARE else ""
    start, end = spans.pop()
    named = "=" in text[start:end]
    while spans and _JOINED.fullmatch(text, spans[-1][1], start) and named == ("=" in text[slice(*spans[-1])]):
        start = spans.pop()[0]
    return text[start:end]


def _plain_formula(text: str, start: int) -> str | None:
    """A formula without delimiters that ends the last sentence: `The derivative is 2x + 3.`, `So x > 3.`"""
    last = _LAST_SENTENCE.search(text, max(start, len(text) - MAX_BARE))
    sentence = last.group(1).strip(" *") if last else ""
    if not _FORMULA.search(sentence) or delimited(sentence):
        return None
    for found in (_SAID.match(sentence), _THEREFORE.match(sentence)):
        formula = found.group(1).strip() if found else ""
        if "=" not in formula and _FORMULA.search(formula) and is_bare(formula) and reads_as_mathematics(formula):
            return formula
    return None


def _calculated(text: str, numbers: list[re.Match[str]]) -> re.Match[str]:
    """The last number; of `he needs 4 + 5 = 9 more in 40 minutes` the result, which only words follow."""
    last = numbers[-1]
    for number in reversed(numbers):
        before = text[: number.start()].rstrip(" $€£\\")
        if before.endswith("=") and not _SUBORDINATE.search(text, max(0, number.start() - MAX_BARE), number.start()):
            return number if _ONLY_WORDS.fullmatch(text, number.end(), last.start()) else last
    return last


def _stated(text: str, start: int, number: re.Match[str]) -> str:
    """What a sentence ends in: a list, a point, a quantity of two units, a number with its unit, or just a number."""
    for pattern in (_LISTED, _POINT, _COMPOUND):
        found = None
        for found in pattern.finditer(text, start):  # noqa: B007 - the last one
            pass
        if found is not None and found.end() >= number.end():
            return found.group(found.lastindex or 0)
    unit = _UNIT.match(text, number.end())
    return number.group().strip() + (f" {unit.group(1)}" if unit else "")


def _is_prose(text: str) -> bool:
    """Two words or more that are no functions: a pair of dollar signs around them was money."""
    words = [
        w for w in _WORD.findall(re.sub(r"\\[a-zA-Z]+|\{[^{}]*\}", " ", text)) if len(w) > 2 and w not in FUNCTIONS
    ]
    return len(words) > 1
