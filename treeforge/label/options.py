"""Multiple choice: the letter of a gold answer, and the one that a prediction chooses."""

from __future__ import annotations

import re

from treeforge.verdict import Judgement, Verdict

_GOLD = re.compile(
    r"(?:(?:[Oo]ption|[Cc]hoice)\s+)?\$?(?:\\(?:text|textbf|mathrm)\{)?(?:\(([A-H])\)|([A-H]))"
    r"(?:\}?\$?\.?|[).:]\s*.*|\s*\}\s*[^\s+*/^=<>-].*|\)?\s+[A-Z][\w\s]*)$"
)
_AT_LINE = re.compile(
    r"(?:^|\n)\s*(?:[Oo]ption\s+|[Cc]hoice\s+)?\(?([A-H])[).:]?(?!\s*(?:,|and|or|&|\+|-|=)\s*\(?[A-J]\b)(?=[\s),.:]|[^\x00-\x7f]|$)"
)
_CHOSEN = re.compile(
    r"(?i:\bis|'s|’s|\bbe|\bchoose|\bpick|\bselect|\boption|\bchoice|\banswer|[:=])\s*\(?([A-H])\)?(?![A-Za-z'’])"
)
_ALONE = re.compile(r"(?:\\(?:text|textbf|mathrm|mathbf)\{)?\(?([A-Ha-h])\)?\.?\}?")


def judge_option(answer: str, prediction: str, gold: str) -> Judgement | None:
    """A multiple-choice gold answer against a letter; None where either side gives none."""
    option = _GOLD.match(gold.strip())
    if option is None:
        return None
    gold_letter = option.group(1) or option.group(2)
    stripped = answer.strip().strip("$*. ")
    letter = _letter_at_line(stripped)
    if not letter:
        bare = _ALONE.fullmatch(stripped)
        letter = bare.group(1).upper() if bare else ""
    if not letter and len(stripped) > 12:
        letter = _chosen_letter(prediction)
    if not letter:
        return None
    verdict = Verdict.CORRECT if letter == gold_letter else Verdict.INCORRECT
    return Judgement(verdict, answer, "string", f"option {letter}")


def _letter_at_line(text: str) -> str:
    """The letter of a multiple-choice answer at the head of a line: `(C)`, `C. Cecile`, `C`; '' otherwise."""
    found = _AT_LINE.findall(text)
    return found[-1] if found else ""


def _chosen_letter(text: str) -> str:
    """The last letter that a text chooses: `I think it's B`, `option (C)`."""
    found = _CHOSEN.findall(text)
    return found[-1] if found else ""
