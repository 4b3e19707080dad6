// Bascule's extension for GNOME Shell 43 and 44. The other part of this file is the same for every version.
'use strict';

const {Clutter, Gio, GLib, Meta, Shell, St} = imports.gi;
const Main = imports.ui.main;
const Keyboard = imports.ui.status.keyboard;

class BasculeExtension {
    constructor(metadata) {
        this._metadata = metadata;
        this._desktop = null;
    }

    enable() {
        this._desktop = new Desktop(this._metadata);
    }

    disable() {
        this._desktop?.close();
        this._desktop = null;
    }
}

// eslint-disable-next-line no-unused-vars -- the shell calls it
function init(extension) {
    return new BasculeExtension(extension.metadata);
}
