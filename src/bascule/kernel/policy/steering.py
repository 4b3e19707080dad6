"""Files of a workspace that other programs of the user obey: one table for rules, previews and reports.

Writing one of them acts later, outside of the sandbox, when the user's shell, editor, agent or git reads it. Those that
a program executes ask before they are written, but for a few that are ordinary work; texts for models never ask. All
that a run leaves new or changed are named in its result.
"""

from bascule.kernel.policy.paths import matches_any

# Programs read these without being asked to. Writing one through a file operation asks; a command that leaves a new
# or changed one is reported with its run. Build files (Makefile, CI) are not listed: changing these is the work
# agents are there for, and people read them.
STEERING_FILES = (
    ".git/**", ".gitconfig", ".gitmodules", ".hg/**", ".jj/**", ".husky/**", ".githooks/**",
    ".pre-commit-config.yaml", ".pre-commit-hooks.yaml", "lefthook.yml", ".lefthook.yml", "lefthook-local.yml",
    ".lefthook-local.yml", ".lefthook/**", ".lefthook-local/**", ".overcommit.yml", ".git-hooks/**",
    ".envrc", ".direnv/**", ".mise.toml", ".mise.local.toml", "mise.toml", "mise.local.toml", ".mise/**",
    ".config/mise/**", ".config/mise.toml", ".tool-versions", ".devcontainer/**", ".devcontainer.json",
    ".vscode/**", ".idea/**", ".zed/**", ".fleet/**", "*.code-workspace", "*.sublime-project", ".dir-locals.el",
    ".claude/**", ".claude.json", ".codex/**", ".gemini/**", ".cursor/**", ".windsurf/**", ".continue/**", ".kiro/**",
    ".opencode/**", "opencode.json", "opencode.jsonc", ".crush.json", "crush.json", ".roo/**", ".cline/**",
    ".clinerules/**", ".amazonq/**", ".qwen/**", ".junie/**", ".agents/**", ".aider*", ".mcp.json", "mcp.json",
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin",
    ".inputrc", ".vimrc", ".nvimrc", ".nvim.lua", ".exrc", ".gdbinit", ".lldbinit", ".tmux.conf", ".screenrc",
    ".ssh/**", ".gnupg/**", ".aws/**", ".kube/**", ".docker/**", ".netrc", ".npmrc", ".yarnrc", ".yarnrc.yml",
    ".pypirc", ".cargo/config", ".cargo/config.toml", ".bazelrc",
    ".helix/**", ".github/hooks/**", ".trae/mcp.json", ".factory/mcp.json", ".factory/settings.json",
    ".pnpmfile.cjs", ".pnpmfile.mjs", "bunfig.toml", "binding.gyp", ".bundle/**", ".mvn/**",
    "gradle-wrapper.properties", "gradle-wrapper.jar", "rust-toolchain", "rust-toolchain.toml",
    ".irbrc", ".pryrc", ".Rprofile", ".Renviron", ".iex.exs", ".ocamlinit", ".ghci", ".pdbrc", ".pythonrc",
    "sitecustomize.py", "usercustomize.py",
)  # fmt: skip
# Ordinary work changes these often, as it does build files, so writing them does not ask. Tools of the project execute
# them without being told their names, so a change is reported; of `package.json` the scripts alone.
REPORTED_FILES = (
    "package.json", "conftest.py", ".eslintrc.js", ".eslintrc.cjs", ".eslintrc.mjs", "eslint.config.*",
    ".prettierrc.js", ".prettierrc.cjs", ".prettierrc.mjs", ".prettierrc.ts", "prettier.config.*",
)  # fmt: skip
# Words for models: people and agents change them daily, and nothing executes them. Those in a folder of the list above
# (`.claude/CLAUDE.md`, `.cursor/rules`) ask with what lies beside them: commands and hooks.
TEXT_FILES = (
    "CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "AGENTS.override.md", "AGENT.md", "GEMINI.md", "QWEN.md", "CRUSH.md",
    "WARP.md", ".cursorrules", ".windsurfrules", ".roorules", ".goosehints", ".rules", ".augment-guidelines",
    ".github/copilot-instructions.md", ".github/instructions/**", ".github/prompts/**", ".github/chatmodes/**",
    ".trae/rules/**", ".factory/droids/**", ".kilocode/rules/**", ".augment/rules/**",
)  # fmt: skip

_EXECUTED_FILES = (*STEERING_FILES, *REPORTED_FILES)
EXECUTED = "other programs of the user execute or obey it"
READ = "agents take it for instructions"


def why_obeyed(path: str) -> str | None:
    """What a person should know about a file of that name that is new or changed; None: nothing."""
    if matches_any(_EXECUTED_FILES, path):
        return EXECUTED
    return READ if matches_any(TEXT_FILES, path) else None
