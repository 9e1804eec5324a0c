"""Multiple choice: the letter of a gold answer, and the one that a prediction chooses."""

from __future__ import annotations

import re

from treeforge.verdict import Judgement, Verdict

_GOLD = re.compile(
    r"(?:(?:[Oo]ption|[Cc]hoice)\s+)?\$?(?:\\(?:text|textbf|mathrm|mathbf)\s*\{)?\s*(?:\(([A-H])\)|([A-H]))"
    r"(?:\}?\$?\.?|[).:]\s*(?P<text>.*)|\s*\}\s*(?P<math>[^\s+*/^=<>_'-].*)|\)?\s+(?P<words>[A-Z][\w\s]*))$"
)
_LABELLED = re.compile(r"\\text(?:bf)?\s*\{\s*\(([A-H])\)\s*\}?(?:\\[ ,;:~]|~|\s|\})*(?P<text>.*)$")
_AT_LINE = re.compile(
    r"(?:^|\n)\s*(?:[Oo]ption\s+|[Cc]hoice\s+)?\(?([A-H])[).:]?(?!\s*(?:,|and|or|&|\+|-|=)\s*\(?[A-J]\b)(?=[\s),.:]|[^\x00-\x7f]|$)"
)
_CHOSEN = re.compile(
    r"(?i:\bis|'s|’s|\bbe|\bchoose|\bgo\s+with|\bpick|\bselect|\boption|\bchoice|\banswer|[:=：选]|选项|선택)\s*(?:\*\*|\$)?\s*\(?([A-H])\)?"
    r"(?![A-Za-z'’])(?!\s*(?:,|and|or|&|\+|=|\*|\^)\s*\(?[A-J]\b)(?!\s*(?:is|was)\s+(?:wrong|incorrect|false|not)\b)"
)
_RIGHT = re.compile(r"\b([A-H])\)?\s+is\s+(?:the\s+|our\s+)?(?:correct|right|best|only\s+correct)\b")
_OPENINGS = frozenset("ABCDEFGHOoc($\\")
_SEVERAL_MAY = re.compile(r"[(\\]?(?:[A-H]|text)")
_ALONE = re.compile(r"(?:\\(?:text|textbf|mathrm|mathbf)\{)?\(?([A-Ha-h])\)?\.?\}?")
_MARKUP = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textrm|mbox)\s*\{|[{}$*]|\\[ ,;:]|~")
_SEVERAL = re.compile(r"\(?[A-H]\)?(?:\s*(?:,|;|、|and|&|,\s*and)?\s*\(?[A-H]\)?)+")


def judge_option(answer: str, prediction: str, gold: str) -> Judgement | None:
    """A multiple-choice gold answer against a letter; None where either side gives none."""
    gold = gold.strip()
    option = _option(gold)
    if option is None:
        return _several(answer, gold) if _SEVERAL_MAY.match(gold) else None
    gold_letter = option.group(1) or option.group(2)
    stripped = answer.strip().strip("$*. ")
    letter = _letter_at_line(_MARKUP.sub(" ", stripped).strip() if stripped[:1] == "\\" else stripped)
    if not letter:
        bare = _ALONE.fullmatch(stripped)
        letter = bare.group(1).upper() if bare else ""
    sentence = len(stripped) > 8 or not stripped.isascii()
    if not letter and (sentence or (len(prediction) > len(answer) + 8 and "boxed" not in prediction)):
        letter = _chosen_letter(prediction)
    if not letter:
        return None
    verdict = Verdict.CORRECT if letter == gold_letter else Verdict.INCORRECT
    return Judgement(verdict, answer, "string", f"option {letter}")


def _option(text: str) -> re.Match[str] | None:
    """An option's letter, and what stands beside it."""
    if text[:1] not in _OPENINGS:
        return None
    return _LABELLED.match(text) or _GOLD.match(text)


def option_text(gold: str) -> str:
    """What a gold answer says beside its letter: `12` of `(B) 12`; '' where it has no letter or nothing else."""
    option = _option(gold.strip())
    if option is None:
        return ""
    return next((text.strip() for text in option.groupdict().values() if text), "").strip("$ ")


def _several(answer: str, gold: str) -> Judgement | None:
    """The letters of several options, written together on one side and apart on the other: `AC` and `A, C`."""
    a, b = _MARKUP.sub(" ", answer).strip(" ."), _MARKUP.sub(" ", gold).strip(" .")
    if a.isalpha() == b.isalpha() or not _SEVERAL.fullmatch(a) or not _SEVERAL.fullmatch(b):
        return None
    together, apart = (a, b) if a.isalpha() else (b, a)
    letters = re.findall("[A-H]", apart)
    if list(together) != sorted(set(together)):
        return None
    verdict = Verdict.CORRECT if sorted(letters) == list(together) else Verdict.INCORRECT
    return Judgement(verdict, answer, "string", f"options {', '.join(letters if apart is a else together)}")


def _letter_at_line(text: str) -> str:
    """The letter of a multiple-choice answer at the head of a line: `(C)`, `C. Cecile`, `C`; '' otherwise."""
    found = _AT_LINE.findall(text)
    return found[-1] if found else ""


def _chosen_letter(text: str) -> str:
    """The last letter that a text chooses: `I think it's B`, `option (C)`."""
    found = _RIGHT.findall(text) or _CHOSEN.findall(text)
    return found[-1] if found else ""
