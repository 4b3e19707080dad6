"""Files that programs or agents of the user obey, as one run may leave them all: by what their manuals say."""

# A program executes it, or what it names.
EXECUTED = (
    ".envrc", ".factory/mcp.json", ".trae/mcp.json", ".vimrc",
    "x.code-workspace", ".helix/languages.toml", ".helix/config.toml", ".github/hooks/h.json",
    ".pnpmfile.cjs", "bunfig.toml", "rust-toolchain.toml", ".mvn/extensions.xml",
    "binding.gyp", ".irbrc", ".pryrc", ".Rprofile",
    ".iex.exs", ".ocamlinit", ".ghci", ".pdbrc",
    ".bundle/config", ".eslintrc.js", ".nvim.lua", ".vscode/tasks.json",
    ".claude/settings.json", ".mcp.json", ".husky/pre-commit", "package.json",
    ".cargo/config.toml", ".gdbinit", ".yarnrc.yml", ".npmrc",
    ".mvn/jvm.config", ".mvn/maven.config", "gradle/wrapper/gradle-wrapper.properties", "conftest.py",
    "sitecustomize.py", "eslint.config.js", ".prettierrc.js",
)  # fmt: skip
# Agents take it for instructions.
READ = (
    "CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "GEMINI.md",
    ".cursorrules", ".windsurfrules", ".goosehints", ".github/copilot-instructions.md",
    ".github/instructions/x.instructions.md",
)  # fmt: skip
# Code or settings of the project's own tools, which ordinary work writes: named and not asked about.
ORDINARY = (
    "package.json", "conftest.py", "eslint.config.js", ".eslintrc.js",
    ".prettierrc.js",
)  # fmt: skip
