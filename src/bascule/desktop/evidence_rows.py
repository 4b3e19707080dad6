"""The rows of what desktop calls left as evidence: for the user of the machine, who may see every agent's."""

from typing import Annotated, Any

from msgspec import Meta

from bascule.kernel.blob import Blob
from bascule.kernel.rows import LOCAL_USER, Http, Params, Reads, Result, rows_of

_EVIDENCE = "/v1/desktop/evidence"
ExecutionRef = Annotated[str, Meta(min_length=1, max_length=64)]


class EvidenceListParams(Params, frozen=True, kw_only=True):
    # Only older ones than this execution: the last one of the page before.
    before: ExecutionRef | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class EvidenceParams(Params, frozen=True, kw_only=True):
    execution_id: ExecutionRef


class EvidenceFileParams(EvidenceParams, frozen=True, kw_only=True):
    # observe.png, marks.png, before.png or after.png.
    name: Annotated[str, Meta(min_length=1, max_length=64)]


class EvidenceFile(Result, frozen=True, kw_only=True):
    name: str
    size: int


class EvidenceView(Result, frozen=True, kw_only=True):
    """One execution, as its files say. They lie in a workspace, where agents may change them."""

    execution_id: str
    # Where it lies.
    workspace: str
    # desktop.click and so on; absent where result.json is not what the host writes.
    method: str | None = None
    app: str | None = None
    at: str | None = None
    principal: str | None = None
    # What could be seen of an act: verified, unverified and so on.
    effect: str | None = None
    # The contract's code, if it failed.
    error: str | None = None
    files: list[EvidenceFile] = []


class EvidenceDetails(EvidenceView, frozen=True, kw_only=True):
    # result.json, the lines of trace.jsonl, ax.json: JSON as it is there, not made visible.
    result: Any = None
    trace: list[Any] = []
    tree: Any = None
    # Files that are too large, or not JSON.
    left_out: list[str] = []
    # Files that are not as the host left them.
    changed: list[str] = []


EVIDENCE_LIST = Reads[EvidenceListParams, list[EvidenceView]](
    "evidence.list", "List what was done on the desktop, newest first.", Http("GET", _EVIDENCE), who=LOCAL_USER
)
EVIDENCE_SHOW = Reads[EvidenceParams, EvidenceDetails](
    "evidence.show",
    "Show the result, trace and element tree of one execution.",
    Http("GET", f"{_EVIDENCE}/{{executionId}}"),
    who=LOCAL_USER,
)
EVIDENCE_FILE = Reads[EvidenceFileParams, Blob](
    "evidence.file",
    "Get one picture of an execution.",
    Http("GET", f"{_EVIDENCE}/{{executionId}}/file"),
    who=LOCAL_USER,
)

METHODS = rows_of(globals())
