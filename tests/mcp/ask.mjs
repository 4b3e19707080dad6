// One ask by the official TypeScript client: lists the tools, asks an agent, prints what came back as one line of JSON.
// Usage: node ask.mjs '{"packages": "/where/package.json", "library": "sdk" | "client", "mode": ..., "server": ..., "ask": ...}'
// `server` is {url, token} or {command, args}; `ask` are the arguments of send_message.
import { createRequire } from "node:module";

const { packages, library, mode, server, ask } = JSON.parse(process.argv[2]);
const require = createRequire(packages);

// The first generation speaks the handshake revisions; the second also 2026-07-28.
const parts =
  library === "sdk"
    ? {
        ...require("@modelcontextprotocol/sdk/client/index.js"),
        ...require("@modelcontextprotocol/sdk/client/stdio.js"),
        ...require("@modelcontextprotocol/sdk/client/streamableHttp.js"),
      }
    : { ...require("@modelcontextprotocol/client"), ...require("@modelcontextprotocol/client/stdio") };

const options = library === "client" ? { versionNegotiation: { mode } } : {};
const client = new parts.Client({ name: "typescript", version: "1" }, options);
const transport = server.url
  ? new parts.StreamableHTTPClientTransport(new URL(server.url), {
      requestInit: { headers: { Authorization: `Bearer ${server.token}` } },
    })
  : new parts.StdioClientTransport({ ...server, stderr: "inherit" });

await client.connect(transport);
const { tools } = await client.listTools();
// The client checks the structured content against the output schema by itself.
const { structuredContent } = await client.callTool({ name: "send_message", arguments: ask });
const version = library === "client" ? client.getNegotiatedProtocolVersion() : transport.protocolVersion;
console.log(JSON.stringify({ version, tools: tools.map((tool) => tool.name), reply: structuredContent }));
await client.close();
