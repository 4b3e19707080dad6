import pytest
from native_scene import ENVIRONMENT, Scene, make_project


@pytest.fixture
def scene(start_daemon, tmp_path):
    """A session of Claude Code in a project inside a home of its own."""
    home = tmp_path / "home"
    project = home / "project"
    project.mkdir(parents=True)
    make_project(project)
    made = Scene(start_daemon(None, env=ENVIRONMENT | {"HOME": str(home)}), project)
    made.note("SessionStart")
    yield made
    made.close()
