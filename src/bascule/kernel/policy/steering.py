"""Files of a workspace that other programs of the user obey: one list for rules, previews and reports.

Writing one of them acts later, outside of the sandbox, when the user's shell, editor, agent or git reads it.
"""

from bascule.kernel.policy.paths import path_matches

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
)  # fmt: skip
# Ordinary work changes these often, so writing them does not ask; a part of them runs by itself (`scripts` at every
# npm install), so a change is reported.
REPORTED_FILES = ("package.json",)


def is_steering_file(path: str) -> bool:
    """Whether a path in a workspace names a file whose change a person should see at once."""
    return any(path_matches(glob, path, exact=False) for glob in (*STEERING_FILES, *REPORTED_FILES))
