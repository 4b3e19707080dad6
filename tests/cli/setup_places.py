"""Where each client keeps what, at home."""

SERVERS = {"claude": ".claude.json", "codex": ".codex/config.toml", "gemini": ".gemini/settings.json"}
WORDS = {"claude": ".claude/CLAUDE.md", "codex": ".codex/AGENTS.md", "gemini": ".gemini/GEMINI.md"}
HOOKS = {"claude": ".claude/settings.json", "codex": ".codex/hooks.json"}
