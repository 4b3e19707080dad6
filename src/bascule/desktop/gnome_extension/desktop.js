
// What Bascule's desktop host asks of the shell: windows, what lies at a point, pictures, keys and clicks, stop keys.
//
// Every program of the session can talk to the shell, so nothing is answered before a peer has proved that it can read
// the token that a person's `bascule desktop gnome install` wrote. The token itself never crosses the bus: each side
// proves it to the other, about both bus names and a number of each, so that nobody can pass a proof on.

const NAME = 'io.bascule.Gnome';
const PATH = '/io/bascule/Gnome';
const INTERFACE = `<node><interface name="${NAME}">
  <method name="Hello"><arg type="s" direction="in"/><arg type="s" direction="out"/></method>
  <method name="Open"><arg type="s" direction="in"/></method>
  <method name="Look"><arg type="s" direction="out"/></method>
  <method name="Activate"><arg type="s" direction="in"/><arg type="b" direction="out"/></method>
  <method name="Act"><arg type="s" direction="in"/><arg type="s" direction="out"/></method>
  <method name="Release"/>
  <method name="Picture"><arg type="(iiii)" direction="in"/><arg type="ay" direction="out"/></method>
  <method name="WindowPicture"><arg type="s" direction="in"/><arg type="ay" direction="out"/></method>
  <method name="Clipboard"><arg type="(assay)" direction="out"/></method>
  <method name="SetClipboard"><arg type="(say)" direction="in"/></method>
  <method name="StopKeys"><arg type="as" direction="in"/><arg type="s" direction="out"/></method>
  <signal name="StopPressed"/>
</interface></node>`;
// Hosts there may be at once, with those that have not proved anything yet: one is usual.
const MAX_PEERS = 16;
const MAX_WINDOWS = 500;
const NONCE_BYTES = 32;
// What a host is given to keep of the clipboard while it pastes.
const MAX_CLIPBOARD_BYTES = 16 * 1024 * 1024;
const TEXT_TYPES = ['text/plain;charset=utf-8', 'UTF8_STRING', 'text/plain', 'STRING'];
// Shift, Control, Alt and Super, each of which changes what a key means.
const HELD = Clutter.ModifierType.SHIFT_MASK | Clutter.ModifierType.CONTROL_MASK | Clutter.ModifierType.MOD1_MASK |
    Clutter.ModifierType.MOD4_MASK | Clutter.ModifierType.SUPER_MASK;
const WHEEL = {
    up: Clutter.ScrollDirection.UP,
    down: Clutter.ScrollDirection.DOWN,
    left: Clutter.ScrollDirection.LEFT,
    right: Clutter.ScrollDirection.RIGHT,
};

class Desktop {
    constructor(metadata) {
        this._tokenFile = Gio.File.new_for_path(metadata['x-bascule-token']);
        this._bus = Gio.DBus.session;
        // By unique bus name: what was said so far, its hands once it has proved itself, and whether it wants the stop keys.
        this._peers = new Map();
        this._stop = null;
        this._exported = Gio.DBusExportedObject.wrapJSObject(INTERFACE, this);
        this._exported.export(this._bus, PATH);
        this._owned = Gio.bus_own_name_on_connection(this._bus, NAME, Gio.BusNameOwnerFlags.DO_NOT_QUEUE, null, null);
    }

    close() {
        for (const name of [...this._peers.keys()])
            this._forget(name);
        Gio.bus_unown_name(this._owned);
        this._exported.unexport();
    }

    // -- who may ask --

    HelloAsync([theirs], invocation) {
        const name = invocation.get_sender();
        if (theirs.length !== 2 * NONCE_BYTES) {
            // It is kept until it is proved, and anybody may say it.
            invocation.return_dbus_error(`${NAME}.Refused`, `a number of ${NONCE_BYTES} bytes is expected, in hex`);
            return;
        }
        let ours, proof;
        try {
            const token = this._token();
            ours = hex(Gio.File.new_for_path('/dev/urandom').read(null).read_bytes(NONCE_BYTES, null).toArray());
            proof = this._proof(token, 'shell', name, theirs, ours);
        } catch (error) {
            invocation.return_dbus_error(`${NAME}.NoToken`, `the token cannot be read: ${error.message}`);
            return;
        }
        this._forget(name);
        if (this._peers.size >= MAX_PEERS) {
            // Whoever proves nothing keeps nobody else out.
            const idle = [...this._peers].find(([, peer]) => !peer.hands);
            if (!idle) {
                invocation.return_dbus_error(`${NAME}.Busy`, 'too many hosts talk to this extension: end one');
                return;
            }
            this._forget(idle[0]);
        }
        const watch = Gio.bus_watch_name_on_connection(
            this._bus, name, Gio.BusNameWatcherFlags.NONE, null, () => this._forget(name));
        this._peers.set(name, {theirs, ours, watch, hands: null, stop: false});
        invocation.return_value(new GLib.Variant('(s)', [`${ours} ${proof}`]));
    }

    OpenAsync([proof], invocation) {
        const name = invocation.get_sender();
        const peer = this._peers.get(name);
        const question = new GLib.Variant('(s)', [name]);
        this._bus.call('org.freedesktop.DBus', '/org/freedesktop/DBus', 'org.freedesktop.DBus', 'GetConnectionUnixUser',
            question, null, Gio.DBusCallFlags.NONE, -1, null, (bus, result) => {
                try {
                    const [user] = bus.call_finish(result).deepUnpack();
                    const wanted = peer && this._proof(this._token(), 'host', name, peer.theirs, peer.ours);
                    if (!peer || peer !== this._peers.get(name) || user !== new Gio.Credentials().get_unix_user() ||
                        proof !== wanted)
                        throw new Error('this is not the proof of the token');
                    peer.hands ??= new Hands();
                    invocation.return_value(null);
                } catch (error) {
                    // One try for each number of ours.
                    this._forget(name);
                    invocation.return_dbus_error(`${NAME}.Refused`, error.message);
                }
            });
    }

    _isOpen(name) {
        return Boolean(this._peers.get(name)?.hands);
    }

    _token() {
        const info = this._tokenFile.query_info('unix::uid,unix::mode', Gio.FileQueryInfoFlags.NOFOLLOW_SYMLINKS, null);
        const others = info.get_attribute_uint32('unix::mode') & 0o077;
        if (others || info.get_attribute_uint32('unix::uid') !== new Gio.Credentials().get_unix_user())
            throw new Error('others may read it');
        const [, data] = this._tokenFile.load_contents(null);
        return data;
    }

    _proof(token, side, host, theirs, ours) {
        const words = [side, this._bus.get_unique_name(), host, theirs, ours].join(' ');
        return GLib.compute_hmac_for_string(GLib.ChecksumType.SHA256, token, words, -1);
    }

    _forget(name) {
        const peer = this._peers.get(name);
        if (!peer)
            return;
        this._peers.delete(name);
        Gio.bus_unwatch_name(peer.watch);
        // No key of a host that is gone stays down, whoever else is there.
        peer.hands?.close();
        this._dropStopKeys();
    }

    _answer(verb, words, invocation) {
        const name = invocation.get_sender();
        if (!this._isOpen(name)) {
            invocation.return_dbus_error(`${NAME}.Refused`, 'this extension answers Bascule\'s desktop host alone');
            return;
        }
        try {
            this[verb](words, invocation, this._peers.get(name));
        } catch (error) {
            invocation.return_dbus_error(`${NAME}.Failed`, error.message);
        }
    }

    // -- windows --

    _look(_, invocation) {
        const own = new Gio.Credentials().get_unix_pid();
        const here = global.workspace_manager.get_active_workspace();
        const list = [];
        for (const actor of global.get_window_actors()) {
            const window = actor.meta_window;
            if (!window || window.get_pid() === own || window.minimized || list.length >= MAX_WINDOWS)
                continue;
            // One that has drawn nothing yet has no size.
            if (window.get_frame_rect().width > 0 && window.showing_on_its_workspace() && window.located_on_workspace(here))
                list.push(described(window, list.length));
        }
        const [width, height] = global.display.get_size();
        const front = keyboardOwner() ? null : global.display.focus_window;
        const answer = {windows: list, active: front && idOf(front), screen: [0, 0, width, height]};
        invocation.return_value(new GLib.Variant('(s)', [JSON.stringify(answer)]));
    }

    _activate([id], invocation) {
        const window = windowOf(id);
        if (window && !isLockedOrModal()) {
            Main.activateWindow(window);
            invocation.return_value(new GLib.Variant('(b)', [global.display.focus_window === window && !keyboardOwner()]));
        } else {
            invocation.return_value(new GLib.Variant('(b)', [false]));
        }
    }

    // -- keys and clicks --

    // Looked at and sent in one turn of the shell. Mutter passes events through another thread, so what has the focus
    // may still change before they arrive: that is why these are called checked, and not held.
    _act([asked], invocation, {hands}) {
        const {window, windows, pid, at, anywhere, events} = JSON.parse(asked);
        let refused = null;
        if (!anywhere)
            refused = at ? pointRefused(at, windows, pid) : keysRefused(window, hands);
        if (!refused)
            hands.send(events);
        invocation.return_value(new GLib.Variant('(s)', [JSON.stringify(refused ?? {})]));
    }

    _release(_, invocation, {hands}) {
        hands.release();
        invocation.return_value(null);
    }

    // -- pictures --

    _picture([[x, y, width, height]], invocation) {
        const stream = Gio.MemoryOutputStream.new_resizable();
        new Shell.Screenshot().screenshot_area(x, y, width, height, stream, (screenshot, result) => {
            answerPicture(invocation, stream, () => screenshot.screenshot_area_finish(result));
        });
    }

    // Of the window itself, whatever lies over it: nothing of one that has closed.
    _windowPicture([id], invocation) {
        const texture = windowOf(id)?.get_compositor_private()?.paint_to_content(null)?.get_texture();
        const stream = Gio.MemoryOutputStream.new_resizable();
        if (!texture) {
            answerPicture(invocation, stream, () => true);
            return;
        }
        Shell.Screenshot.composite_to_stream(texture, 0, 0, -1, -1, 1, null, 0, 0, 1, stream, (_, result) => {
            answerPicture(invocation, stream, () => Shell.Screenshot.composite_to_stream_finish(result));
        });
    }

    // -- the clipboard, for as long as a paste takes --

    // Every type that there is, and what is there in one of them: text, where there is some.
    _clipboard(_, invocation) {
        const types = St.Clipboard.get_default().get_mimetypes(St.ClipboardType.CLIPBOARD);
        const chosen = TEXT_TYPES.find(each => types.includes(each)) ?? types[0];
        const answer = data => invocation.return_value(new GLib.Variant('((assay))', [[types, chosen ?? '', data]]));
        if (!chosen) {
            answer([]);
            return;
        }
        St.Clipboard.get_default().get_content(St.ClipboardType.CLIPBOARD, chosen, (_board, bytes) => {
            answer(bytes && bytes.get_size() <= MAX_CLIPBOARD_BYTES ? bytes.toArray() : []);
        });
    }

    _setClipboard([[type, data]], invocation) {
        St.Clipboard.get_default().set_content(St.ClipboardType.CLIPBOARD, type, new GLib.Bytes(data));
        invocation.return_value(null);
    }

    // -- stop keys --

    _stopKeys([chords], invocation, peer) {
        peer.stop = true;
        this._stop ??= this._grab(chords);
        invocation.return_value(new GLib.Variant('(s)', [this._stop?.chord ?? '']));
    }

    _grab(chords) {
        for (const chord of chords) {
            const keys = chord.split('+');
            const accelerator = keys.slice(0, -1).map(each => `<${each}>`).join('') + keys.at(-1);
            const action = global.display.grab_accelerator(accelerator, Meta.KeyBindingFlags.NONE);
            if (action === Meta.KeyBindingAction.NONE)
                continue;
            Main.wm.allowKeybinding(Meta.external_binding_name_for_action(action), Shell.ActionMode.ALL);
            const heard = global.display.connect('accelerator-activated', (_, pressed) => {
                if (pressed === action)
                    this._onStop();
            });
            return {chord, action, heard};
        }
        return null;
    }

    _onStop() {
        for (const [name, peer] of this._peers) {
            if (peer.stop)
                this._bus.emit_signal(name, PATH, NAME, 'StopPressed', null);
        }
    }

    _dropStopKeys() {
        if (!this._stop || [...this._peers.values()].some(each => each.stop))
            return;
        global.display.disconnect(this._stop.heard);
        global.display.ungrab_accelerator(this._stop.action);
        this._stop = null;
    }
}

// GJS calls a method of the plain name before one that ends in Async, so these alone have the names of the bus.
for (const verb of ['Look', 'Activate', 'Act', 'Release', 'Picture', 'WindowPicture', 'Clipboard', 'SetClipboard', 'StopKeys']) {
    Desktop.prototype[`${verb}Async`] = function (words, invocation) {
        this._answer(`_${verb[0].toLowerCase()}${verb.slice(1)}`, words, invocation);
    };
}

// A keyboard and a pointer of ours, there while a host is.
class Hands {
    constructor() {
        const backend = global.stage.context?.get_backend?.() ?? Clutter.get_default_backend();
        const seat = backend.get_default_seat();
        this._keyboard = seat.create_virtual_device(Clutter.InputDeviceType.KEYBOARD_DEVICE);
        this._pointer = seat.create_virtual_device(Clutter.InputDeviceType.POINTER_DEVICE);
        this._keys = [];
        this._buttons = [];
    }

    get busy() {
        return this._keys.length > 0;
    }

    send(events) {
        for (const [kind, ...words] of events)
            this[`_${kind}`](...words);
    }

    _key(code, down) {
        this._keys = this._keys.filter(each => each !== code).concat(down ? [code] : []);
        this._keyboard.notify_key(now(), code, down ? Clutter.KeyState.PRESSED : Clutter.KeyState.RELEASED);
    }

    _move(x, y) {
        this._pointer.notify_absolute_motion(now(), x, y);
    }

    _button(button, down) {
        this._buttons = this._buttons.filter(each => each !== button).concat(down ? [button] : []);
        this._pointer.notify_button(now(), button, down ? Clutter.ButtonState.PRESSED : Clutter.ButtonState.RELEASED);
    }

    _wheel(direction) {
        this._pointer.notify_discrete_scroll(now(), WHEEL[direction], Clutter.ScrollSource.WHEEL);
    }

    release() {
        for (const button of [...this._buttons].reverse())
            this._button(button, false);
        for (const code of [...this._keys].reverse())
            this._key(code, false);
    }

    close() {
        this.release();
        this._keyboard = this._pointer = null;
    }
}

// PNG.
function answerPicture(invocation, stream, finish) {
    try {
        finish();
        stream.close(null);
        const data = GLib.Variant.new_from_bytes(GLib.VariantType.new('ay'), stream.steal_as_bytes(), true);
        invocation.return_value(GLib.Variant.new_tuple([data]));
    } catch (error) {
        invocation.return_dbus_error(`${NAME}.Failed`, error.message);
    }
}

function now() {
    return GLib.get_monotonic_time();
}

function hex(bytes) {
    return Array.from(bytes, each => each.toString(16).padStart(2, '0')).join('');
}

function idOf(window) {
    return String(window.get_id());
}

function windowOf(id) {
    return global.get_window_actors().map(each => each.meta_window).find(each => each && idOf(each) === id);
}

function place(rect) {
    return [rect.x, rect.y, rect.width, rect.height];
}

function described(window, order) {
    const frame = window.get_frame_rect();
    const x11 = window.get_client_type() === Meta.WindowClientType.X11;
    const popups = [Meta.WindowType.DROPDOWN_MENU, Meta.WindowType.POPUP_MENU, Meta.WindowType.TOOLTIP,
        Meta.WindowType.NOTIFICATION, Meta.WindowType.COMBO, Meta.WindowType.DND, Meta.WindowType.OVERRIDE_OTHER];
    return {
        id: idOf(window),
        pid: window.get_pid(),
        title: window.get_title() ?? '',
        names: [window.get_wm_class(), window.get_gtk_application_id(), window.get_wm_class_instance()].map(each => each ?? ''),
        frame: place(frame),
        content: x11 ? place(window.frame_rect_to_client_rect(frame)) : null,
        buffer: place(window.get_buffer_rect()),
        order,
        layer: window.get_layer(),
        active: window === global.display.focus_window && !keyboardOwner(),
        popup: popups.includes(window.get_window_type()),
        raised: window.is_above() || window.is_fullscreen(),
        x11,
    };
}

function isLockedOrModal() {
    return Main.sessionMode.isLocked || (Main.modalCount > 0 && !Main.overview.visible);
}

// What of the shell's own has the keyboard, in words; null: a window has it.
function keyboardOwner() {
    if (Main.sessionMode.isLocked)
        return 'the lock screen has the keyboard';
    if (Main.overview.visible)
        return 'the overview has the keyboard';
    if (Main.modalCount > 0)
        return 'a prompt of the shell has the keyboard';
    return null;
}

function keysRefused(id, hands) {
    const owner = keyboardOwner();
    if (owner)
        return {reason: 'focus', why: owner};
    const source = Keyboard.getInputSourceManager().currentSource;
    if (source && source.index !== 0)
        return {other_layout: true, why: 'the keyboard has been switched to another than the first layout: switch it back'};
    const [, , held] = global.get_pointer();
    if (held & HELD && !hands.busy)
        return {reason: 'modifier', why: 'the person holds a modifier key'};
    const window = windowOf(id);
    if (!window)
        return {reason: 'focus', why: 'the window meant is not shown'};
    if (global.display.focus_window !== window)
        window.activate(global.display.get_current_time_roundtrip());
    if (global.display.focus_window !== window)
        return {reason: 'focus', why: 'the window meant does not get the focus'};
    return null;
}

function pointRefused([x, y], ids, pid) {
    const owner = keyboardOwner();
    if (owner)
        return {reason: 'focus', why: owner};
    const ours = window => window && (ids.includes(idOf(window)) || window.get_pid() === pid);
    if (ours(windowAt(x, y)))
        return null;
    // It comes up in a later turn of the shell; whoever asked asks again.
    const below = global.get_window_actors().map(each => each.meta_window).reverse()
        .find(each => ids.includes(idOf(each)) && contains(each.get_frame_rect(), x, y));
    below?.activate(global.display.get_current_time_roundtrip());
    return {reason: 'covered', why: 'another window covers the element'};
}

function contains(rect, x, y) {
    return x >= rect.x && y >= rect.y && x < rect.x + rect.width && y < rect.y + rect.height;
}

// The window whose surface a click at this point would reach; nothing where the shell draws something of its own.
function windowAt(x, y) {
    let actor = global.stage.get_actor_at_pos(Clutter.PickMode.REACTIVE, x, y);
    while (actor && !(actor instanceof Meta.WindowActor))
        actor = actor.get_parent();
    return actor?.meta_window ?? null;
}
