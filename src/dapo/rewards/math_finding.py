"""Where a text states its final answer. The order of the places is written for people in docs/rewards.md."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_MARK = re.compile(
    r"(?<![A-Za-z])answer(?:\s+is)?\s*[*_]*\s*:"
    r"|\banswer\s+is\b"
    r"|^[ \t#*_]*(?:the\s+)?(?:final\s+)?answer[ \t*_]*$",  # a heading of its own: ### Final Answer
    re.IGNORECASE | re.MULTILINE,
)
_HASHES = re.compile(r"^####[ \t]*(?=[^\s#])", re.MULTILINE)  # how GSM8K's solutions end: #### 72
_BEFORE_ANSWER = "*_:} \t\r\n"  # the brace closes \textbf{Answer:}
_BLOCK = re.compile(
    r"\$\$(?P<dollars>.*?)\$\$|\\\[(?P<bracket>.*?)\\\]|```\w*\n(?P<fence>.*?)```"
    r"|\\begin\{(?P<name>(?:equation|align|gather)\*?)\}(?P<environment>.*?)\\end\{(?P=name)\}",
    re.DOTALL,
)
_SENTENCE_END = re.compile(r"[.!?][*_]*\s+(?=[*_]*[A-Z])")
_EMPHASIS_END = re.compile(r"(?<![*_])[*_]+[.,;:!?]*$")  # one try for each run of stars, however long


def extract_answer(text: str) -> str | None:
    """The final answer that `text` states, or None.

    The last `\\boxed{...}` or `\\fbox{...}`; a box that is empty or never closed is no answer. Without any box,
    what follows the last "Answer:", "answer is" or heading "Answer", up to the end of its sentence, line or
    displayed formula; without that, what follows the last `####`. Any length counts.
    """
    boxes = list(_BOX.finditer(text))
    if boxes:
        content = _box_content(text, boxes[-1].end())
        return content and (_after_last(_MARK, content) or content)
    return _after_last(_MARK, text) or _after_last(_HASHES, text)


def has_box(text: str) -> bool:
    """Whether a `\\boxed` or `\\fbox` stands in the text, finished or not."""
    return _BOX.search(text) is not None


def _box_content(text: str, start: int) -> str | None:
    """What the box whose content begins at `start` holds: the braces' inside, or one bare word (\\boxed 5)."""
    if not text.startswith("{", start):
        bare = re.match(r"[^\s${}]+", text[start:])
        return bare.group() if bare else None
    depth = 0
    for brace in re.finditer(r"\\.|[{}]", text[start:], re.DOTALL):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return text[start + 1 : start + brace.start()].strip() or None
    return None


def _after_last(mark: re.Pattern[str], text: str) -> str | None:
    """What stands behind the last `mark`: one displayed formula over several lines, or one sentence or line."""
    marks = list(mark.finditer(text))
    if not marks:
        return None
    rest = text[marks[-1].end() :].lstrip(_BEFORE_ANSWER)
    block = _BLOCK.match(rest)
    if block and "\n" in block.group():
        inside = next(value for name, value in block.groupdict().items() if name != "name" and value is not None)
        return " ".join(inside.split()) or None
    sentence = _SENTENCE_END.split(rest.split("\n", 1)[0], maxsplit=1)[0].strip()
    answer = _EMPHASIS_END.sub("", sentence).strip()
    if answer.endswith("}") and answer.count("}") > answer.count("{"):  # \textbf{Answer: 42}
        answer = answer[:-1].strip()
    return answer or None
