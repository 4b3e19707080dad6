"""An agent, a person, a daemon, a host and a program: what the program itself says is what counts."""


def route(program):
    return {"app": {"pid": program.pid}}


def button(title):
    return {"selector": {"byRole": "AXButton", "titleContains": title}}


NAME = {"selector": {"byRole": "AXTextField", "titleContains": "Name"}}


def test_a_click_asks_and_is_done_once_when_the_person_approves(house, start):
    app = start("gtk3")
    click = {"route": route(app), "target": button("Press me")}
    question = house.asks("click", **click)
    assert app.title in question["preview"]
    assert 'AXButton "Press me"' in question["preview"]
    with open(question["picture"], "rb") as file:
        assert file.read().startswith(b"\x89PNG")
    assert "pressed" not in app.state
    house.decide(question)
    assert house.done("click", **click)["clicked"]
    app.until(pressed=1)
    assert house.call("click", **click).status == 202
    assert app.state["pressed"] == 1
