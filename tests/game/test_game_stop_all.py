"""Every game at once: ended when everything is stopped, and none started that was admitted a moment before."""

import pytest
from playground import is_alive, on_loop, playground

from bascule.foundation.errors import Stopped
from bascule.kernel.halt import Halt


@on_loop
async def test_all_games_end_at_once_with_their_processes(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write("arena", "maze")
        pids = [(await ground.games.start(name)).pid for name in ("arena", "maze")]
        assert all(map(is_alive, pids))
        assert await ground.games.stop_all() == "ended: arena, maze"
        assert not any(map(is_alive, pids))
        assert await ground.games.stop_all() == "no game was running"


@on_loop
async def test_a_start_that_was_admitted_before_the_stop_starts_nothing(tmp_path):
    async with playground(tmp_path) as ground:
        ground.write("arena")

        def check_start():
            raise Halt(by="local", at=0).refusal()

        ground.games._check_start = check_start
        with pytest.raises(Stopped):
            await ground.games.start("arena")
        assert ground.games.running() == {}
        # The control: without the check it starts.
        ground.games._check_start = lambda: None
        assert (await ground.games.start("arena")).state == "live"
