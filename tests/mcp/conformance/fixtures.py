"""The tools, resources and prompts that the official suite asks for by name, on the SDK's low-level server.

What each has to do stands in the suite's own scenarios (`conformance list` names them).
"""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import struct
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError

Context = ServerRequestContext[Any, Any]
Answer = dict[str, Any]
ToolBody = Callable[[Context, types.CallToolRequestParams], Awaitable[Answer]]

# For the state that a client carries between two rounds: it must come back as it went.
STATE_KEY = b"a key of the fixture server only"
# The suite wants to see that notifications come while the tool runs, not all at its end.
PAUSE_SECONDS = 0.05

bus = InMemorySubscriptionBus()
TOOLS: dict[str, tuple[dict[str, Any], ToolBody]] = {}


def _png() -> str:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + parts).decode()


def _wav() -> str:
    """Eight samples of silence."""
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8)
    data = struct.pack("<4sI", b"data", 8) + b"\x80" * 8
    whole = struct.pack("<4sI4s", b"RIFF", 4 + len(form) + len(data), b"WAVE") + form + data
    return base64.b64encode(whole).decode()


def text(text_: str) -> dict[str, str]:
    return {"type": "text", "text": text_}


IMAGE = {"type": "image", "data": _png(), "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": _wav(), "mimeType": "audio/wav"}


def resource(uri: str, kind: str, text_: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text_}}


def tool(name: str, /, **arguments: str) -> Callable[[ToolBody], ToolBody]:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in arguments.items()},
        "required": list(arguments),
    }

    def add(body: ToolBody) -> ToolBody:
        TOOLS[name] = (schema, body)
        return body

    return add


def returns(name: str, *content: dict[str, Any], is_error: bool = False) -> None:
    @tool(name)
    async def body(_context: Context, _params: types.CallToolRequestParams) -> Answer:
        return {"content": list(content), "isError": is_error}


returns("test_simple_text", text("This is a simple text response for testing."))
returns("test_image_content", IMAGE)
returns("test_audio_content", AUDIO)
returns(
    "test_embedded_resource",
    resource("test://embedded-resource", "text/plain", "This is an embedded resource content."),
)
returns(
    "test_multiple_content_types",
    text("Multiple content types test:"),
    IMAGE,
    resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
)
returns("test_error_handling", text("This tool intentionally returns an error for testing"), is_error=True)


# Keywords that a server must pass on as they are, and an argument that comes as a header, too.
ADDRESS = {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}, "city": {}}}
PHONE, EMAIL = {"required": ["phone"]}, {"required": ["email"]}
TOOLS["json_schema_2020_12_tool"] = (
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": ADDRESS},
        "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}, "contactMethod": {}},
        "allOf": [{"anyOf": [PHONE, EMAIL]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": PHONE,
        "else": EMAIL,
        "additionalProperties": False,
    },
    TOOLS["test_simple_text"][1],
)
TOOLS["test_header_argument"] = (
    {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
    TOOLS["test_simple_text"][1],
)


# -- while it runs ------------------------------------------------------------------------------------


@tool("test_tool_with_logging")
async def log_three_times(context: Context, _params: types.CallToolRequestParams) -> Answer:
    for text_ in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.session.send_log_message("info", text_, related_request_id=context.request_id)
        await asyncio.sleep(PAUSE_SECONDS)
    return {"content": [text("logged")]}


@tool("test_logging_tool")
async def log_once(context: Context, _params: types.CallToolRequestParams) -> Answer:
    await context.session.send_log_message("info", "for those who asked for it", related_request_id=context.request_id)
    return {"content": [text("logged")]}


@tool("test_tool_with_progress")
async def report_progress(context: Context, _params: types.CallToolRequestParams) -> Answer:
    for step in (0, 50, 100):
        await context.session.report_progress(step, 100)
        await asyncio.sleep(PAUSE_SECONDS)
    return {"content": [text("done")]}


@tool("test_trigger_tool_change")
async def change_tools(_context: Context, _params: types.CallToolRequestParams) -> Answer:
    await bus.publish(ToolsListChanged())
    return {"content": [text("told")]}


@tool("test_trigger_prompt_change")
async def change_prompts(_context: Context, _params: types.CallToolRequestParams) -> Answer:
    await bus.publish(PromptsListChanged())
    return {"content": [text("told")]}


# -- questions to the client, until 2025-11-25 -----------------------------------------------------------


@tool("test_sampling", prompt="string")
async def sample(context: Context, params: types.CallToolRequestParams) -> Answer:
    asked = types.SamplingMessage(role="user", content=types.TextContent(text=(params.arguments or {})["prompt"]))
    text_ = await context.session.create_message([asked], max_tokens=100, related_request_id=context.request_id)
    return {"content": [text(f"LLM response: {text_.content}")]}


async def elicit(context: Context, message: str, properties: dict[str, Any], required: list[str]) -> Answer:
    schema = {"type": "object", "properties": properties, "required": required}
    text_ = await context.session.elicit_form(message, schema, related_request_id=context.request_id)
    return {"content": [text(f"Elicitation completed: action={text_.action}, content={text_.content}")]}


@tool("test_elicitation", message="string")
async def ask_for_a_user(context: Context, params: types.CallToolRequestParams) -> Answer:
    properties = {name: {"type": "string", "description": f"The {name}"} for name in ("username", "email")}
    return await elicit(context, (params.arguments or {})["message"], properties, list(properties))


@tool("test_elicitation_sep1034_defaults")
async def ask_with_defaults(context: Context, _params: types.CallToolRequestParams) -> Answer:
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await elicit(context, "Check these", properties, [])


@tool("test_elicitation_sep1330_enums")
async def ask_to_choose(context: Context, _params: types.CallToolRequestParams) -> Answer:
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{number}", "title": f"Choice {number}"} for number in (1, 2, 3)]
    properties = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await elicit(context, "Choose", properties, [])


# -- questions to the client, since 2026-07-28: a result that asks ------------------------------------------


def form(message: str, field: str, kind: str = "string") -> Answer:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(question: str) -> Answer:
    messages = [{"role": "user", "content": text(question)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 100}}


ROOTS = {"method": "roots/list", "params": {}}


def seal(state: str) -> str:
    return f"{state}.{hmac.new(STATE_KEY, state.encode(), hashlib.sha256).hexdigest()}"


def unseal(sealed: str | None) -> str | None:
    if sealed is None:
        return None
    state = sealed.rpartition(".")[0]
    if not hmac.compare_digest(seal(state), sealed):
        raise MCPError(types.INVALID_PARAMS, "requestState was changed")
    return state


def asks(*, state: str | None = None, **questions: Answer) -> Answer:
    out: Answer = {"resultType": "input_required", "inputRequests": questions}
    return out if state is None else {**out, "requestState": seal(state)}


def asking(name: str, *, state: str | None = None, **questions: Answer) -> None:
    """A tool that asks until all is answered."""

    @tool(name)
    async def body(_context: Context, params: types.CallToolRequestParams) -> Answer:
        passed_on = unseal(params.request_state)
        answers = params.input_responses or {}
        if set(questions) <= set(answers) and passed_on == state:
            return {"content": [text(f"state-ok {sorted(answers)}")]}
        return asks(state=state, **questions)


asking("test_input_required_result_elicitation", user_name=form("What is your name?", "name"))
asking("test_input_required_result_sampling", capital_question=sampling("What is the capital of France?"))
asking("test_input_required_result_list_roots", client_roots=ROOTS)
asking("test_input_required_result_request_state", state="1", confirm=form("Please confirm", "ok", "boolean"))
asking("test_input_required_result_tampered_state", state="2", confirm=form("Please confirm", "ok", "boolean"))
asking("test_streaming_elicitation", answer=form("Still there?", "ok", "boolean"))
asking(
    "test_input_required_result_multiple_inputs",
    state="3",
    user_name=form("What is your name?", "name"),
    greeting=sampling("Generate a greeting"),
    client_roots=ROOTS,
)


@tool("test_input_required_result_multi_round")
async def ask_twice(_context: Context, params: types.CallToolRequestParams) -> Answer:
    answers = params.input_responses or {}
    match unseal(params.request_state):
        case "one" if "step1" in answers:
            return asks(state="two", step2=form("Step 2: What is your favorite color?", "color"))
        case "two" if "step2" in answers:
            return {"content": [text("both answered")]}
        case _:
            return asks(state="one", step1=form("Step 1: What is your name?", "name"))


@tool("test_input_required_result_capabilities")
async def ask_what_is_possible(context: Context, _params: types.CallToolRequestParams) -> Answer:
    possible = context.session.client_capabilities
    assert possible is not None
    questions = {
        **({"user": form("Who?", "name")} if possible.elicitation is not None else {}),
        **({"model": sampling("Who?")} if possible.sampling is not None else {}),
    }
    return asks(**questions) if questions else {"content": [text("nobody to ask")]}


@tool("test_missing_capability")
async def need_sampling(context: Context, _params: types.CallToolRequestParams) -> Answer:
    possible = context.session.client_capabilities
    if possible is None or possible.sampling is None:
        needed = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "this tool needs sampling", needed)
    return {"content": [text("sampling is there")]}


# -- tools that are tasks for clients that take them -------------------------------------------------------

Ask = Callable[[Answer], Awaitable[Answer]]
TaskBody = Callable[[Ask, types.CallToolRequestParams], Awaitable[Answer]]
TASK_TOOLS: dict[str, TaskBody] = {}


def task_tool(name: str, /, *, required: bool = False, **arguments: str) -> Callable[[TaskBody], TaskBody]:
    """A tool that is a task; one that must be refuses clients that take none."""

    def add(body: TaskBody) -> TaskBody:
        async def plain(_context: Context, params: types.CallToolRequestParams) -> Answer:
            if required:
                needed = {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
                raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "this tool needs tasks", needed)
            return await body(_nobody_to_ask, params)

        tool(name, **arguments)(plain)
        TASK_TOOLS[name] = body
        return body

    return add


async def _nobody_to_ask(_request: Answer) -> Answer:
    return {"action": "cancel"}


@tool("greet", name="string")
async def greet(_context: Context, params: types.CallToolRequestParams) -> Answer:
    return {"content": [text(f"Hello, {(params.arguments or {})['name']}!")]}


@task_tool("slow_compute", seconds="number", label="string")
async def compute_slowly(_ask: Ask, params: types.CallToolRequestParams) -> Answer:
    await asyncio.sleep((params.arguments or {})["seconds"])
    return {"content": [text("computed")]}


@task_tool("failing_job", required=True)
async def fail(_ask: Ask, _params: types.CallToolRequestParams) -> Answer:
    return {"content": [text("it failed")], "isError": True}


@task_tool("protocol_error_job")
async def break_down(_ask: Ask, _params: types.CallToolRequestParams) -> Answer:
    raise MCPError(types.INTERNAL_ERROR, "broken on purpose")


@task_tool("confirm_delete", filename="string")
async def confirm_delete(ask: Ask, _params: types.CallToolRequestParams) -> Answer:
    answer = await ask(form("Delete it?", "confirm", "boolean"))
    return {"content": [text(str(answer["action"]))]}


@task_tool("multi_input")
async def ask_two_at_once(ask: Ask, _params: types.CallToolRequestParams) -> Answer:
    answers = await asyncio.gather(ask(form("Who?", "name")), ask(form("Sure?", "confirm", "boolean")))
    return {"content": [text(" ".join(str(each["action"]) for each in answers))]}


@tool("test_tool_with_task")
async def ask_before_the_task(_context: Context, _params: types.CallToolRequestParams) -> Answer:
    return asks(user_name=form("What is your name?", "name"))


async def greet_slowly(_ask: Ask, params: types.CallToolRequestParams) -> Answer:
    answers = params.input_responses or {}
    name = json.loads(types.ElicitResult.model_validate(answers["user_name"], from_attributes=True).model_dump_json())
    return {"content": [text(f"Hello, {name['content']['name']}!")]}


def task_body(params: types.CallToolRequestParams) -> TaskBody | None:
    """What goes on as a task; None for a call that is answered."""
    if params.name == "test_tool_with_task" and params.input_responses:
        return greet_slowly
    return TASK_TOOLS.get(params.name)


# -- resources and prompts -----------------------------------------------------------------------------

RESOURCES = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": _png()},
    "test://watched-resource": {"mimeType": "text/plain", "text": "watched"},
}
TEMPLATE = "test://template/{id}/data"
PROMPTS: dict[str, tuple[str, ...]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


def read(uri: str) -> Answer:
    if uri in RESOURCES:
        return {"contents": [{"uri": uri, **RESOURCES[uri]}]}
    if found := re.fullmatch(r"test://template/([^/]+)/data", uri):
        data = {"id": found[1], "templateTest": True, "data": f"Data for ID: {found[1]}"}
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}]}
    raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})


def prompt(params: types.GetPromptRequestParams) -> Answer:
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            parts = [text("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            parts = [text("Prompt with arguments: " + ", ".join(f"{key}='{value}'" for key, value in given.items()))]
        case "test_prompt_with_embedded_resource":
            embedded = resource(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
            parts = [embedded, text("Please process the embedded resource above.")]
        case "test_prompt_with_image":
            parts = [IMAGE, text("Please analyze the image above.")]
        case "test_input_required_result_prompt":
            if not params.input_responses:
                return asks(user_context=form("What context should the prompt use?", "context"))
            parts = [text("With that context.")]
        case _:
            raise MCPError(types.INVALID_PARAMS, "there is no such prompt")
    return {"messages": [{"role": "user", "content": part} for part in parts]}


# -- the server ----------------------------------------------------------------------------------------


def typed(complete: type[types.Result], answer: Answer) -> Any:
    """As the SDK wants it, which adds what a revision has and others have not."""
    kind = types.InputRequiredResult if answer.get("resultType") == "input_required" else complete
    return kind.model_validate(answer)


async def complete(_context: Context, _params: Any) -> Any:
    return typed(types.CompleteResult, {"completion": {"values": [], "total": 0, "hasMore": False}})


async def nothing(_context: Context, _params: Any) -> Any:
    return types.EmptyResult()


def server() -> Server[Any]:
    async def list_tools(_context: Context, _params: Any) -> Any:
        listed = [{"name": name, "description": name, "inputSchema": schema} for name, (schema, _) in TOOLS.items()]
        return typed(types.ListToolsResult, {"tools": listed})

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> Any:
        if params.name not in TOOLS:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name}")
        return typed(types.CallToolResult, await TOOLS[params.name][1](context, params))

    async def list_resources(_context: Context, _params: Any) -> Any:
        listed = [{"uri": uri, "name": uri, "description": uri} for uri in RESOURCES]
        return typed(types.ListResourcesResult, {"resources": listed})

    async def list_templates(_context: Context, _params: Any) -> Any:
        listed = [{"uriTemplate": TEMPLATE, "name": "template", "description": "template"}]
        return typed(types.ListResourceTemplatesResult, {"resourceTemplates": listed})

    async def read_resource(_context: Context, params: types.ReadResourceRequestParams) -> Any:
        return typed(types.ReadResourceResult, read(str(params.uri)))

    async def list_prompts(_context: Context, _params: Any) -> Any:
        listed = [
            {"name": name, "description": name, "arguments": [{"name": each, "required": True} for each in arguments]}
            for name, arguments in PROMPTS.items()
        ]
        return typed(types.ListPromptsResult, {"prompts": listed})

    async def get_prompt(_context: Context, params: types.GetPromptRequestParams) -> Any:
        return typed(types.GetPromptResult, prompt(params))

    return Server(
        "fixture",
        version="1.0.0",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=nothing,
        on_unsubscribe_resource=nothing,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=nothing,
        on_subscriptions_listen=ListenHandler(bus),
    )
