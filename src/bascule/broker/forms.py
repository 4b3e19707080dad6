"""`ask_person` by a form of the agent's own client, where no console is open.

What comes back is not the person's word, for hooks and wrappers fill forms in: it is marked `via: form`, has no sender,
settles no ticket and approves nothing.
"""

from typing import Any

from bascule.broker.person import MAX_QUESTION_BYTES
from bascule.foundation.errors import TooLarge
from bascule.kernel.tool import AskForm, Result

_NOTE = "form: filled in at your client, by your user or by a program for them; it approves nothing"


async def by_form(form: AskForm, handle: str, question: str, choices: list[str]) -> Result:
    if len(question.encode()) > MAX_QUESTION_BYTES:
        raise TooLarge(
            f"the question is longer than {MAX_QUESTION_BYTES} bytes",
            hint="say it shorter, and name a file for the rest",
        )
    field: dict[str, Any] = {"type": "string", "title": "Answer"}
    if choices:
        field["enum"] = choices
    schema = {"type": "object", "properties": {"answer": field}, "required": ["answer"]}
    # First whose words they are: no agent may pass for us there.
    filled = await form(f"Your agent {handle} asks, and an answer approves nothing:\n\n{question}", schema)
    content = filled.get("content")
    answer = content.get("answer") if isinstance(content, dict) else None
    if filled.get("action") != "accept" or not isinstance(answer, str):
        return Result({"status": "declined", "via": "form", "hint": "your user did not answer; ask in your own words"})
    return Result({"status": "responded", "payload": answer, "via": "form", "note": _NOTE})
