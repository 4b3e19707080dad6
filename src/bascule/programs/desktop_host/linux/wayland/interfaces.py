"""The interfaces that we speak: requests and events by opcode, as the protocols list them. Data alone.

Where a list ends early, the rest is of a version that we do not bind.
"""

from typing import Final, NamedTuple


class Request(NamedTuple):
    name: str
    signature: str = ""


class Event(NamedTuple):
    name: str
    signature: str = ""
    # What the new object in it is.
    creates: str | None = None


class Interface(NamedTuple):
    name: str
    # The highest version that the lists below are true of.
    version: int
    requests: tuple[Request, ...] = ()
    events: tuple[Event, ...] = ()
    # The request after which the object is no more.
    destructor: str | None = None


def _interface(
    name: str, version: int, requests: str = "", events: str = "", destructor: str | None = None
) -> Interface:
    """`requests`: "name:signature ..."; `events`: the same, with "=interface" behind one that makes an object."""
    made = []
    for word in events.split():
        what, _, creates = word.partition("=")
        event, _, signature = what.partition(":")
        made.append(Event(event, signature, creates or None))
    asked = [Request(*word.partition(":")[::2]) for word in requests.split()]
    return Interface(name, version, tuple(asked), tuple(made), destructor)


_ALL: Final = (
    # -- wayland.xml --
    _interface("wl_display", 1, "sync:n get_registry:n", "error:ous delete_id:u"),
    _interface("wl_registry", 1, "bind:usun", "global:usu global_remove:u"),
    _interface("wl_callback", 1, "", "done:u"),
    _interface("wl_seat", 2, "get_pointer:n get_keyboard:n get_touch:n", "capabilities:u name:s"),
    _interface("wl_keyboard", 1, "", "keymap:uhu enter:uoa leave:uo key:uuuu modifiers:uuuuu"),
    _interface("wl_output", 4, "release", "geometry:iiiiissi mode:uiii done scale:i name:s description:s", "release"),
    _interface("wl_shm", 1, "create_pool:nhi", "format:u"),
    _interface("wl_shm_pool", 1, "create_buffer:niiiiu destroy resize:i", "", "destroy"),
    _interface("wl_buffer", 1, "destroy", "release", "destroy"),
    # -- wlr-protocols --
    _interface("zwlr_foreign_toplevel_manager_v1", 3, "stop", "toplevel:n=zwlr_foreign_toplevel_handle_v1 finished"),
    _interface(
        "zwlr_foreign_toplevel_handle_v1",
        3,
        "set_maximized unset_maximized set_minimized unset_minimized activate:o close set_rectangle:oiiii destroy"
        " set_fullscreen:O unset_fullscreen",
        "title:s app_id:s output_enter:o output_leave:o state:a done closed parent:O",
        "destroy",
    ),
    _interface("zwlr_screencopy_manager_v1", 3, "capture_output:nio capture_output_region:nioiiii destroy"),
    _interface(
        "zwlr_screencopy_frame_v1",
        3,
        "copy:o destroy copy_with_damage:o",
        "buffer:uuuu flags:u ready:uuu failed damage:uuuu linux_dmabuf:uuu buffer_done",
        "destroy",
    ),
    _interface("zwp_virtual_keyboard_manager_v1", 1, "create_virtual_keyboard:on"),
    _interface("zwp_virtual_keyboard_v1", 1, "keymap:uhu key:uuu modifiers:uuuu destroy", "", "destroy"),
    _interface("zwlr_virtual_pointer_manager_v1", 1, "create_virtual_pointer:On destroy"),
    _interface(
        "zwlr_virtual_pointer_v1",
        1,
        "motion:uff motion_absolute:uuuuu button:uuu axis:uuf frame axis_source:u axis_stop:uu axis_discrete:uufi"
        " destroy",
        "",
        "destroy",
    ),
    _interface("zwlr_data_control_manager_v1", 2, "create_data_source:n get_data_device:no destroy"),
    _interface(
        "zwlr_data_control_device_v1",
        2,
        "set_selection:O destroy set_primary_selection:O",
        "data_offer:n=zwlr_data_control_offer_v1 selection:O finished primary_selection:O",
        "destroy",
    ),
    _interface("zwlr_data_control_source_v1", 1, "offer:s destroy", "send:sh cancelled", "destroy"),
    _interface("zwlr_data_control_offer_v1", 1, "receive:sh destroy", "offer:s", "destroy"),
    # -- plasma-wayland-protocols: KWin, to whom it gives them --
    _interface(
        "org_kde_plasma_window_management",
        16,
        "show_desktop:u get_window:nu get_window_by_uuid:ns",
        "show_desktop_changed:u window:u stacking_order_changed:a stacking_order_uuid_changed:s window_with_uuid:us",
    ),
    _interface(
        "org_kde_plasma_window",
        16,
        "set_state:uu set_virtual_desktop:u set_minimized_geometry:ouuuu unset_minimized_geometry:o close request_move"
        " request_resize destroy get_icon:h request_enter_virtual_desktop:s request_enter_new_virtual_desktop"
        " request_leave_virtual_desktop:s request_enter_activity:s request_leave_activity:s send_to_output:o",
        "title_changed:s app_id_changed:s state_changed:u virtual_desktop_changed:i themed_icon_name_changed:s unmapped"
        " initial_state parent_window:O geometry:iiuu icon_changed pid_changed:u virtual_desktop_entered:s"
        " virtual_desktop_left:s application_menu:ss activity_entered:s activity_left:s resource_name_changed:s",
        "destroy",
    ),
    _interface(
        "org_kde_kwin_fake_input",
        4,
        "authenticate:ss pointer_motion:ff button:uu axis:uf touch_down:uff touch_motion:uff touch_up:u touch_cancel"
        " touch_frame pointer_motion_absolute:ff keyboard_key:uu",
    ),
)

INTERFACES: Final = {each.name: each for each in _ALL}
